// SPDX-License-Identifier: Apache-2.0

package bytecode_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/bytecode"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/test/reference"
)

var (
	inputs   = flag.Int("inputs", 400, "random inputs for each algorithm")
	programs = flag.Int("programs", 40, "random programs")
	seed     = flag.Uint64("seed", 1, "of the random inputs and programs; 0 = a new one")
)

// random returns a source, and says how to have the same one again.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	start := *seed
	if start == 0 {
		start = rand.Uint64()
	}
	t.Logf("repeat with: go test ./internal/bytecode -run '^%s$' -seed %d", t.Name(), start)
	return rand.New(rand.NewPCG(start, 0))
}

// evaluation is the program mpcc_eval of an algorithm, in the kernel and in machines.
type evaluation struct {
	entry    catalog.Entry
	kernel   *ebpf.Collection
	machines map[string]evaluating
	eval     *btf.Struct
	size     int
	// Of a packet scheduler.
	own     *btf.Struct
	ownSize int
}

type evaluating struct {
	m *bytecode.Machine
	p *bytecode.Program
}

func congestionControls() []catalog.Entry {
	return slices.DeleteFunc(slices.Clone(catalog.Entries), func(e catalog.Entry) bool { return e.Kind != catalog.CC })
}

// specOf is an algorithm's object, less what needs kernel functions.
func specOf(t testing.TB, e catalog.Entry, set reference.Tunables) *ebpf.CollectionSpec {
	t.Helper()
	values := map[string]string{loader.Paper: ""}
	maps.Copy(values, set)
	spec, err := loader.Spec(e, values)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range spec.Programs {
		if p.Type == ebpf.StructOps {
			delete(spec.Programs, name)
		}
	}
	for name, m := range spec.Maps {
		if m.Type == ebpf.StructOpsMap {
			delete(spec.Maps, name)
		}
		m.Pinning = ebpf.PinNone
	}
	return spec
}

// constants is the section that holds the tunables. In the kernel it stays open here, so that one load is enough for all
// values of them.
const constants = ".rodata"

func newEvaluation(t testing.TB, e catalog.Entry) *evaluation {
	t.Helper()
	spec := specOf(t, e, nil)
	ev := &evaluation{entry: e, machines: map[string]evaluating{}}
	v := spec.Variables["eval"]
	ev.eval, ev.size = btf.UnderlyingType(v.Type.Type).(*btf.Struct), int(v.Size())
	if e.Kind == catalog.Sched {
		ev.ownSize = int(spec.Variables[own].Size())
		if err := spec.Types.TypeByName("sched_own", &ev.own); err != nil {
			t.Fatal(err)
		}
	}
	for name, interpret := range map[string]bool{"compiled": false, "interpreted": true} {
		m := newMachine(t, spec, bytecode.Options{Interpret: interpret})
		p, err := m.Program("mpcc_eval")
		if err != nil {
			t.Fatal(err)
		}
		ev.machines[name] = evaluating{m, p}
	}
	spec.Maps[constants].Name, spec.Maps[constants].Flags = "open", 0
	var err error
	if ev.kernel, err = ebpf.NewCollection(spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ev.kernel.Close)
	return ev
}

// set gives the tunables other values.
func (ev *evaluation) set(t testing.TB, set reference.Tunables) {
	t.Helper()
	spec := specOf(t, ev.entry, set)
	image := slices.Clone(spec.Maps[constants].Contents[0].Value.([]byte))
	for name, v := range spec.Variables {
		if v.SectionName != constants || v.Value == nil {
			continue
		}
		copy(image[v.Offset:], v.Value)
		for _, e := range ev.machines {
			variable, err := e.m.Variable(name)
			if err != nil {
				t.Fatal(err)
			}
			copy(variable, v.Value)
		}
	}
	if err := ev.kernel.Maps[constants].Put(uint32(0), image); err != nil {
		t.Fatal(err)
	}
}

func newMachine(t testing.TB, spec *ebpf.CollectionSpec, o bytecode.Options) *bytecode.Machine {
	t.Helper()
	m, err := bytecode.New(spec, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// inKernel returns the variable eval after a run in the kernel.
func (ev *evaluation) inKernel(t testing.TB, image []byte) []byte {
	t.Helper()
	if err := ev.kernel.Variables["eval"].Set(image); err != nil {
		t.Fatal(err)
	}
	if _, err := ev.kernel.Programs["mpcc_eval"].Run(&ebpf.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	after := make([]byte, ev.size)
	if err := ev.kernel.Variables["eval"].Get(after); err != nil {
		t.Fatal(err)
	}
	return after
}

func (e evaluating) run(t testing.TB, image []byte) []byte {
	t.Helper()
	v, err := e.m.Variable("eval")
	if err != nil {
		t.Fatal(err)
	}
	copy(v, image)
	if _, err := e.p.Run(0); err != nil {
		t.Fatal(err)
	}
	return v
}

// compare fails the test if a machine leaves other bytes than the kernel. It returns them.
func (ev *evaluation) compare(t *testing.T, image []byte, names ...string) []byte {
	t.Helper()
	want := ev.inKernel(t, image)
	for _, name := range names {
		got := ev.machines[name].run(t, image)
		if !bytes.Equal(got, want) {
			at := 0
			for got[at] == want[at] {
				at++
			}
			t.Fatalf("%s: byte %d of eval is %#x, in the kernel %#x\n%x", name, at, got[at], want[at], image)
		}
	}
	return want
}

// image writes subflows as the C structs have them.
func (ev *evaluation) image(t testing.TB, subflows []reference.Subflow) []byte {
	t.Helper()
	image := make([]byte, ev.size)
	put := func(at uint32, size int, v uint64) {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		copy(image[at:], b[:size])
	}
	for _, m := range ev.eval.Members {
		switch m.Name {
		case "count":
			put(m.Offset.Bytes(), 4, uint64(len(subflows)))
		case "paths":
			path := m.Type.(*btf.Array).Type.(*btf.Struct)
			for i, s := range subflows {
				raw, err := json.Marshal(s)
				if err != nil {
					t.Fatal(err)
				}
				var values map[string]float64
				if err := json.Unmarshal(raw, &values); err != nil {
					t.Fatal(err)
				}
				for _, field := range path.Members {
					at := m.Offset.Bytes() + uint32(i)*path.Size + field.Offset.Bytes()
					size, err := btf.Sizeof(field.Type)
					if err != nil {
						t.Fatal(err)
					}
					if key, ok := strings.CutSuffix(field.Name, "_us8"); ok {
						put(at, size, uint64(values[key+"_us"]*8))
					} else if _, number := btf.UnderlyingType(field.Type).(*btf.Struct); number {
						fraction, exponent := math.Frexp(values[field.Name])
						put(at, 4, uint64(math.Ldexp(fraction, 32)))
						put(at+4, 4, uint64(uint32(int32(exponent-32))))
					} else {
						put(at, size, uint64(values[field.Name]))
					}
				}
			}
		}
	}
	return image
}

// All vectors give in a machine, to the bit, what they give in the kernel, and so do random connections, and bytes that
// are no connection at all.
func TestEvaluationsAsInKernel(t *testing.T) {
	r := random(t)
	for _, e := range congestionControls() {
		t.Run(e.Name, func(t *testing.T) {
			ev := newEvaluation(t, e)
			n := 0
			for _, folder := range []string{"", "derived"} {
				n += onVectors(t, ev, filepath.Join("../../testdata/vectors", folder, e.Name+".json"))
			}
			a, err := reference.Of(e.Name)
			if err != nil {
				t.Fatal(err)
			}
			ev.set(t, nil)
			onRandom(t, ev, a, r)
			t.Logf("%d vectors, %d random inputs", n, *inputs)
		})
	}
}

// chosen are the machines for an input: the interpreter takes a hundred times as long.
func chosen(input int) []string {
	if input%20 == 0 {
		return []string{"compiled", "interpreted"}
	}
	return []string{"compiled"}
}

func onVectors(t *testing.T, ev *evaluation, path string) (ran int) {
	v, err := reference.ReadVectors(path)
	if err != nil {
		t.Fatal(err)
	}
	var set reference.Tunables
	ev.set(t, nil)
	for i, c := range v.Cases {
		if !maps.Equal(c.Set, set) {
			set = c.Set
			ev.set(t, set)
		}
		image := ev.image(t, c.Subflows)
		if after := ev.compare(t, image, chosen(i)...); bytes.Equal(after, image) {
			t.Errorf("%s: nothing was decided", c.Name)
		}
		ran++
	}
	return ran
}

func onRandom(t *testing.T, ev *evaluation, a reference.Algorithm, r *rand.Rand) {
	for i := range *inputs {
		image := ev.image(t, a.Random(r))
		if i%4 == 3 {
			for j := range image {
				image[j] = byte(r.Uint32())
			}
			binary.LittleEndian.PutUint32(image, 1+r.Uint32N(reference.MaxSubflows))
		}
		ev.compare(t, image, chosen(i)...)
	}
}

// What one decision on a connection of two subflows costs.
func BenchmarkEvaluation(b *testing.B) {
	for _, e := range congestionControls() {
		if e.Name != "lia" && e.Name != "dts" && e.Name != "olia" {
			continue
		}
		ev := newEvaluation(b, e)
		image := ev.image(b, []reference.Subflow{
			{Cwnd: 20, SRTT: 50000, BaseRTT: 40000, BytesSinceLoss: 1e6}, {Cwnd: 30, SRTT: 20000, BaseRTT: 15000, BytesSinceLoss: 1e6},
		})
		ev.inKernel(b, image)
		b.Run(e.Name+"/kernel", func(b *testing.B) {
			for b.Loop() {
				if _, err := ev.kernel.Programs["mpcc_eval"].Run(&ebpf.RunOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		for name, machine := range ev.machines {
			machine.run(b, image)
			b.Run(e.Name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					if _, err := machine.p.Run(0); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
