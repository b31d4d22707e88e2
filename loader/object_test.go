// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/test/said"
)

const stranger = "../test/e2e/stranger.o"

func TestObjectOfSomebodyElse(t *testing.T) {
	o, err := ReadObject(stranger)
	if err != nil {
		t.Fatal(err)
	}
	if o.ID() != "cc/stranger" || !filepath.IsAbs(o.File) {
		t.Errorf("%s of %s", o.ID(), o.File)
	}
	spec, err := o.spec()
	if err != nil {
		t.Fatal(err)
	}
	var programs []string
	for name := range spec.Programs {
		programs = append(programs, name)
	}
	if spec.Programs["another_init"] != nil || spec.Programs["in_no_table"] != nil || len(programs) != 4 {
		t.Errorf("programs %q: want those of the complete table alone", programs)
	}
	if to := spec.Programs["stranger_init"].AttachTo; to != "tcp_congestion_ops:init" {
		t.Errorf("stranger_init is for %s", to)
	}
	if spec.Maps["incomplete"] != nil || spec.Maps["opened"] == nil {
		t.Errorf("maps %v", spec.Maps)
	}
	if all, err := o.Tunables(); err != nil || len(all) != 0 {
		t.Errorf("tunables %v, %v", all, err)
	}
	_, err = o.NewEvaluator(nil)
	said.InALine(t, err, "only what is built with mpcc's headers")
}

// An object that is built with mpcc's headers has what mpcc's own have.
func TestObjectWithHeadersOfMPCC(t *testing.T) {
	own, err := ReadObject("../bpf/obj/cc-olia.o")
	if err != nil {
		t.Fatal(err)
	}
	olia, err := catalog.Find("olia")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Tunables(olia)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := own.Tunables(); err != nil || len(got) != len(want) {
		t.Errorf("tunables %v of %v, %v", got, want, err)
	}
	if err := own.CheckTunables(map[string]string{"metric": "cubic"}); !errors.Is(err, ErrUsage) {
		t.Errorf("metric=cubic: %v", err)
	}
	said.InALine(t, source{own.Entry, own}.check(), "olia is the name of an algorithm that mpcc brings")
	ev, err := own.NewEvaluator(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ev.Close()
	ours, err := NewEvaluator(olia, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	const scene = `{"subflows":[{"cwnd":10,"srtt_us":50000},{"cwnd":20,"srtt_us":100000}]}`
	got, err := ev.EvalJSON([]byte(scene))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := ours.EvalJSON([]byte(scene)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s, mpcc's own says %s, %v", got, want, err)
	}
	if sched, err := ReadObject("../bpf/obj/sched-minrtt.o"); err != nil || sched.ID() != "sched/minrtt" {
		t.Errorf("scheduler %v, %v", sched, err)
	}
}

func TestNamesThatAreTaken(t *testing.T) {
	for _, name := range []string{"cubic", "reno", "default", "mptcp", "lia", "minrtt"} {
		if err := CheckName(name); !errors.Is(err, ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFilesThatAreNoObjects(t *testing.T) {
	text, err := os.ReadFile(stranger)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	huge := write("huge.o", text)
	if err := os.Truncate(huge, objectSize+1<<20); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe.o")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	test, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "none.o"), "no such file"},
		{dir, "it is no file"},
		{pipe, "it is no file"},
		{huge, "it has 65 MB; no object file of BPF has more than 64"},
		{write("empty.o", nil), "it is no object file"},
		{write("source.o", []byte("int main;")), "it is no object file"},
		{test, "it is for another machine than BPF"},
		{write("order.o", otherOrder(t)), "it has another byte order than this machine"},
		{write("head.o", text[:40]), "it is damaged, perhaps cut off"},
		{write("half.o", text[:len(text)/2]), "it is damaged, perhaps cut off"},
		{write("name.o", bytes.ReplaceAll(text, []byte("stranger\x00\x00"), []byte("strange/.\x00"))), `its algorithm is called "strange/."`},
		{"../bpf/obj/maps_bpfel.o", "it has no congestion control or packet scheduler"},
	} {
		_, err := ReadObject(c.path)
		said.InALine(t, err, c.want)
		if !strings.Contains(err.Error(), c.path) {
			t.Errorf("%v does not name the file", err)
		}
	}
}

// otherOrder is an object without sections, of the byte order that this machine does not have.
func otherOrder(t *testing.T) []byte {
	t.Helper()
	var order binary.ByteOrder = binary.BigEndian
	data := elf.ELFDATA2MSB
	if nativeEndian.Uint16([]byte{1, 0}) != 1 {
		order, data = binary.LittleEndian, elf.ELFDATA2LSB
	}
	h := elf.Header64{Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_BPF), Version: 1, Ehsize: 64}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(data), 1
	var b bytes.Buffer
	if err := binary.Write(&b, order, h); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Whatever is wrong with a file, it ends in a line and not in a panic.
func TestDamagedObjects(t *testing.T) {
	text, err := os.ReadFile(stranger)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "damaged.o")
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 500 {
		damaged := bytes.Clone(text)
		if i%2 == 0 {
			damaged = damaged[:random.IntN(len(text))]
		}
		for range i % 5 {
			if n := len(damaged); n > 0 {
				damaged[random.IntN(min(n, 64+random.IntN(n)))] ^= byte(1 << random.IntN(8))
			}
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if o, err := ReadObject(path); err == nil {
			_, _ = o.spec() // what is damaged may matter to the kernel alone
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("not one line: %q", err)
		}
	}
}
