// SPDX-License-Identifier: Apache-2.0

package bytecode_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/bytecode"
)

// Any sequence of updates, look-ups and deletions has the results that it has in the kernel, also when a map is full.
func TestMapsAsInKernel(t *testing.T) {
	const table = "table"
	const (
		inKey, inValue, inFlags = 0, 2, 3 // words of the input; a key is two words
	)
	helper := func(f asm.BuiltinFunc, out int) asm.Instructions {
		return asm.Instructions{
			asm.LoadMapPtr(asm.R1, 0).WithReference(table),
			asm.Mov.Reg(asm.R2, base), asm.Add.Imm(asm.R2, 8*inKey),
			asm.Mov.Reg(asm.R3, base), asm.Add.Imm(asm.R3, 8*inValue),
			input(asm.R4, inFlags),
			f.Call(), output(asm.R0, out),
		}
	}
	// Which of them is done is the input's last word.
	const inWhat = 4
	program := asm.Instructions{
		input(asm.R6, inWhat), asm.JEq.Imm(asm.R6, 1, "delete"), asm.JEq.Imm(asm.R6, 2, "end"),
	}
	program = append(program, helper(asm.FnMapUpdateElem, 0)...)
	program = append(program, asm.Ja.Label("end"))
	remove := helper(asm.FnMapDeleteElem, 1)
	remove[0] = remove[0].WithSymbol("delete")
	program = append(program, remove...)
	look := helper(asm.FnMapLookupElem, 2)
	look[0] = look[0].WithSymbol("end")
	look = look[:len(look)-1]
	program = append(program, look...)
	program = append(program,
		asm.JEq.Imm(asm.R0, 0, "none"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), output(asm.R1, 2),
		// What programs write there stays.
		asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 1), asm.Return(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("none"), asm.Return())
	onOneCPU(t)
	for _, kind := range []ebpf.MapType{ebpf.Hash, ebpf.PerCPUHash, ebpf.Array} {
		spec := assembled(program, 3)
		s := &ebpf.MapSpec{Name: table, Type: kind, KeySize: 16, ValueSize: 8, MaxEntries: 4, Flags: unix.BPF_F_NO_PREALLOC}
		if kind == ebpf.Array {
			s.KeySize, s.Flags = 4, 0
		}
		spec.Maps[table] = s
		b := newBoth(t, spec)
		r := random(t)
		for range 1500 {
			b.compare(t, func(word int) string { return fmt.Sprint(kind, " word ", word) },
				r.Uint64N(6), 7, r.Uint64(), r.Uint64N(4), r.Uint64N(3))
		}
	}
}

// onOneCPU keeps the test there: a per-CPU map has other values elsewhere.
func onOneCPU(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for cpu := range len(before) * 64 {
		if before.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
}

// Values are found again when the memory has grown, and stay zero where nothing was written.
func TestMemoryGrows(t *testing.T) {
	spec := assembled(done, 0)
	spec.Maps["table"] = &ebpf.MapSpec{Name: "table", Type: ebpf.Hash, KeySize: 8, ValueSize: 1000, MaxEntries: 1 << 20}
	m := newMachine(t, spec, bytecode.Options{})
	table, err := m.Map("table")
	if err != nil {
		t.Fatal(err)
	}
	const values = 5000
	key := func(i int) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(i)) }
	for i := range values {
		value := make([]byte, 1000)
		binary.LittleEndian.PutUint64(value[992:], uint64(i))
		if err := table.Put(key(i), value); err != nil {
			t.Fatal(err)
		}
	}
	address := m.Allocate(100_000)
	for i := range values {
		if got := binary.LittleEndian.Uint64(table.Lookup(key(i))[992:]); got != uint64(i) {
			t.Fatalf("value %d is %d", i, got)
		}
	}
	for i, b := range m.Bytes(address, 100_000) {
		if b != 0 {
			t.Fatalf("byte %d of new memory is %d", i, b)
		}
	}
	if table.Lookup(key(values)) != nil {
		t.Error("a key that was never put has a value")
	}
	if err := table.Put([]byte{1}, nil); err == nil {
		t.Error("a key of one byte was put")
	}
}
