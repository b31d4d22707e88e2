// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
)

// mostMemory is what reading an object of a few kilobytes may take in all, also if it is freed at once.
const mostMemory = 512 << 20

// damage is a change of an object that somebody may make: a few bytes anywhere, and an end before the end.
func damage(text []byte, at, end uint32, patch []byte) []byte {
	damaged := bytes.Clone(text)
	if len(damaged) > 0 {
		copy(damaged[int(at)%len(damaged):], patch)
	}
	if end != 0 {
		damaged = damaged[:int(end)%(len(damaged)+1)]
	}
	return damaged
}

// Whatever an object file has in it, mpcc says in a line what is wrong or takes it; it neither panics nor takes memory
// that the file does not have. The kernel, which judges what is taken, is not asked here.
func FuzzReadObject(f *testing.F) {
	var texts [][]byte
	for _, path := range []string{stranger, "../bpf/obj/cc-dts.o", "../bpf/obj/sched-blest.o", "../test/e2e/simplest.o"} {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		texts = append(texts, text)
		headers := nativeEndian.Uint64(text[0x28:]) // of the sections, 64 bytes each
		for section := range uint32(nativeEndian.Uint16(text[0x3c:])) {
			header := uint32(headers) + 64*section
			which := uint8(len(texts) - 1)
			f.Add(which, uint32(0), header, []byte{})                 // cut off there
			f.Add(which, header+4, uint32(0), []byte{8, 0, 0, 0})     // a section of zeroes
			f.Add(which, header+8, uint32(0), []byte{0, 8})           // a compressed one
			f.Add(which, header+32, uint32(0), []byte{0, 0, 0, 0x70}) // of 1.8 GB
			f.Add(which, header+4, uint32(0), []byte("\x08\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x40\x00\x00\x00\x00\x00\x00\x00\x70"))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, at, end uint32, patch []byte) {
		text := damage(texts[int(which)%len(texts)], at, end, patch)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		o, err := parseObject("fuzz.o", text)
		if err == nil {
			err = exercise(o)
		}
		runtime.ReadMemStats(&after)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("more than a line: %q", err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > mostMemory {
			t.Errorf("%d MB of memory for %d bytes: %v", took>>20, len(text), err)
		}
	})
}

// exercise does with an object what mpcc does before it asks the kernel.
func exercise(o *Object) error {
	tunables, err := o.Tunables()
	if err != nil {
		return err
	}
	set := map[string]string{Paper: ""}
	for _, t := range tunables {
		set[t.Name] = t.Default
	}
	if err := o.CheckTunables(set); err != nil {
		return err
	}
	spec, err := o.spec()
	if err != nil {
		return err
	}
	ev := &Evaluator{kind: o.Kind}
	if err := ev.readLayout(spec, o.Entry); err != nil {
		return err
	}
	in := Input{}
	for range ev.in.subflows[0].places {
		in.Subflows = append(in.Subflows, Numbers{})
	}
	return roundTrip(ev, in)
}

// roundTrip writes an input as the program gets it, and reads what it would have decided.
func roundTrip(ev *Evaluator, in Input) error {
	var images [][]byte
	for _, image := range ev.images {
		images = append(images, make([]byte, image.size))
	}
	if err := ev.fill(images, in); err != nil {
		return err
	}
	out := Output{Connection: decode(images, ev.out.connection, 0), Memory: decode(images, ev.out.memory, 0)}
	for i := range in.Subflows {
		out.Subflows = append(out.Subflows, decode(images, ev.out.subflows, i))
	}
	_, err := json.Marshal(out)
	return err
}

// Whatever the JSON of mpcc eval is, it is taken, or refused in a line that says where.
func FuzzEvalJSON(f *testing.F) {
	evaluators := map[bool]*Evaluator{}
	for isSched, name := range map[bool]string{false: "dts", true: "ecf"} {
		e, err := catalog.Find(name)
		if err != nil {
			f.Fatal(err)
		}
		spec, err := obj.Load(e.Kind, e.Name, obj.Stock)
		if err != nil {
			f.Fatal(err)
		}
		evaluators[isSched] = &Evaluator{kind: e.Kind}
		if err := evaluators[isSched].readLayout(spec, e); err != nil {
			f.Fatal(err)
		}
	}
	examples, err := filepath.Glob("../testdata/vectors/*.json")
	if err != nil || len(examples) == 0 {
		f.Fatalf("no vectors: %v", err)
	}
	for _, path := range examples[:2] {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(false, text)
	}
	for _, text := range []string{
		``, `null`, `{}`, `{"subflows":[]}`, `{"subflows":[{}]}`, `{"subflows":[null]}`, `{"subflows":[{"cwnd":1e999}]}`,
		`{"subflows":[{"cwnd":10,"srtt_us":50000},{"cwnd":-1}]}`, `{"subflows":[{"backup":2}]}`, `{"subflows":[{"theta":1e-320}]}`,
		`{"connection":{"bytes":1},"memory":{},"subflows":[{"cwnd":4294967295.4}]}`, "{\"subflows\":[{\n\"cwnd\":[]}]} x", `{"Subflows":[{}],"subflows":[{},{}]}`,
	} {
		f.Add(false, []byte(text))
		f.Add(true, []byte(text))
	}
	f.Fuzz(func(t *testing.T, isSched bool, text []byte) {
		var in Input
		err := readJSON(text, &in)
		if err == nil {
			err = roundTrip(evaluators[isSched], in)
		}
		if err != nil && (err.Error() == "" || strings.Contains(err.Error(), "\n")) {
			t.Errorf("not a line: %q", err)
		}
	})
}
