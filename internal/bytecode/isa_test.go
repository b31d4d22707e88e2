// SPDX-License-Identifier: Apache-2.0

package bytecode_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/mpcc/mpcc/internal/bytecode"
)

// The memory that assembled programs get their numbers from and leave results in: a value of this map. base points to it.
const (
	numbers    = "numbers"
	inputWords = 16
	base       = asm.R9
)

// assembled is a program with room for so many results, as a spec.
func assembled(insns asm.Instructions, words int) *ebpf.CollectionSpec {
	start := asm.LoadMapPtr(base, 0).WithReference(numbers)
	start.Src = asm.PseudoMapValue
	return &ebpf.CollectionSpec{
		ByteOrder: binary.LittleEndian,
		Maps: map[string]*ebpf.MapSpec{
			numbers: {Name: numbers, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(8 * (inputWords + words)), MaxEntries: 1},
		},
		Programs: map[string]*ebpf.ProgramSpec{
			"main": {Name: "main", Type: ebpf.Syscall, Flags: 1 << 4 /* BPF_F_SLEEPABLE */, License: "Dual BSD/GPL", Instructions: append(asm.Instructions{start}, insns...)},
		},
	}
}

// both runs a program in the kernel and in machines.
type both struct {
	kernel   *ebpf.Collection
	machines []evaluating
	size     int
}

func newBoth(t *testing.T, spec *ebpf.CollectionSpec) *both {
	t.Helper()
	b := &both{size: int(spec.Maps[numbers].ValueSize)}
	for _, interpret := range []bool{false, true} {
		m := newMachine(t, spec, bytecode.Options{Interpret: interpret})
		p, err := m.Program("main")
		if err != nil {
			t.Fatal(err)
		}
		b.machines = append(b.machines, evaluating{m, p})
	}
	var err error
	if b.kernel, err = ebpf.NewCollection(spec); err != nil {
		t.Fatalf("%v\n%v", err, spec.Programs["main"].Instructions)
	}
	t.Cleanup(b.kernel.Close)
	return b
}

func (b *both) compare(t *testing.T, what func(word int) string, input ...uint64) {
	t.Helper()
	image := make([]byte, b.size)
	for i, v := range input {
		binary.LittleEndian.PutUint64(image[8*i:], v)
	}
	if err := b.kernel.Maps[numbers].Put(uint32(0), image); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, b.size)
	wantResult, err := b.kernel.Programs["main"].Run(&ebpf.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.kernel.Maps[numbers].Lookup(uint32(0), want); err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 4)
	for i, e := range b.machines {
		p, err := e.m.Map(numbers)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Put(key, image); err != nil {
			t.Fatal(err)
		}
		result, err := e.p.Run(0)
		if err != nil {
			t.Fatal(err)
		}
		got := p.Lookup(key)
		if uint32(result) != wantResult {
			t.Errorf("interpreted %v, of %x: the result is %#x, in the kernel %#x", i == 1, input, result, wantResult)
		}
		for at := 0; at < b.size; at += 8 {
			if !bytes.Equal(got[at:at+8], want[at:at+8]) {
				t.Fatalf("interpreted %v, word %d, %s of %x: %#x, in the kernel %#x", i == 1, at/8-inputWords, what(at/8-inputWords), input,
					binary.LittleEndian.Uint64(got[at:]), binary.LittleEndian.Uint64(want[at:]))
			}
		}
	}
}

func input(r asm.Register, i int) asm.Instruction {
	return asm.LoadMem(r, base, int16(8*i), asm.DWord)
}

func output(r asm.Register, i int) asm.Instruction {
	return asm.StoreMem(base, int16(8*(inputWords+i)), r, asm.DWord)
}

// storeImm is asm.StoreImm, which refuses double words.
func storeImm(to asm.Register, offset int16, value int64, size asm.Size) asm.Instruction {
	code := asm.OpCode(asm.StClass).SetMode(asm.MemMode).SetSize(size)
	return asm.Instruction{OpCode: code, Dst: to, Offset: offset, Constant: value}
}

var done = asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}

var edges = []uint64{
	0, 1, 2, 7, 8, 31, 32, 33, 63, 64, 0x7f, 0x80, 0xff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 1 << 32,
	0x1_80000000, math.MaxInt64, 1 << 63, math.MaxUint64, math.MaxUint64 - 1, 0xffffffff_80000000, 0x0123456789abcdef, 0xfedcba9876543210,
}

var immediates = []int32{0, 1, -1, 2, 7, 31, 255, -128, math.MaxInt32, math.MinInt32, 0x12345678}

// arithmetic is every instruction that works on registers r1 and r2 alone, and leaves its result in r1.
func arithmetic() asm.Instructions {
	var all asm.Instructions
	wide := []asm.Class{asm.ALUClass, asm.ALU64Class}
	for _, class := range wide {
		for _, op := range []asm.ALUOp{
			asm.Add, asm.Sub, asm.Mul, asm.Div, asm.SDiv, asm.Or, asm.And, asm.LSh, asm.RSh, asm.Mod, asm.SMod, asm.Xor,
			asm.Mov, asm.ArSh,
		} {
			code := asm.OpCode(class).SetALUOp(op)
			all = append(all, asm.Instruction{OpCode: code.SetSource(asm.RegSource), Dst: asm.R1, Src: asm.R2})
			for _, imm := range immediates {
				shift, divide := op == asm.LSh || op == asm.RSh || op == asm.ArSh, op == asm.Div || op == asm.SDiv || op == asm.Mod || op == asm.SMod
				// These the kernel refuses.
				if shift && (imm < 0 || imm > 63 || class == asm.ALUClass && imm > 31) || divide && imm == 0 {
					continue
				}
				all = append(all, asm.Instruction{OpCode: code.SetSource(asm.ImmSource), Dst: asm.R1, Constant: int64(imm)})
			}
		}
		all = append(all, asm.Instruction{OpCode: asm.OpCode(class).SetALUOp(asm.Neg), Dst: asm.R1})
		for _, op := range []asm.ALUOp{asm.MovSX8, asm.MovSX16, asm.MovSX32} {
			if op == asm.MovSX32 && class == asm.ALUClass {
				continue
			}
			all = append(all, asm.Instruction{OpCode: asm.OpCode(class).SetALUOp(op).SetSource(asm.RegSource), Dst: asm.R1, Src: asm.R2})
		}
	}
	for _, size := range []asm.Size{asm.Half, asm.Word, asm.DWord} {
		all = append(all, asm.HostTo(asm.LE, asm.R1, size), asm.HostTo(asm.BE, asm.R1, size), asm.BSwap(asm.R1, size))
	}
	return append(all, asm.LoadImm(asm.R1, 0x0123456789abcdef, asm.DWord), asm.LoadImm(asm.R1, -1, asm.DWord))
}

func TestArithmeticAsInKernel(t *testing.T) {
	all := arithmetic()
	var program asm.Instructions
	for i, ins := range all {
		program = append(program, input(asm.R1, 0), input(asm.R2, 1), ins, output(asm.R1, i))
	}
	b := newBoth(t, assembled(append(program, done...), len(all)))
	for _, x := range edges {
		for _, y := range edges {
			b.compare(t, func(word int) string { return fmt.Sprint(all[word]) }, x, y)
		}
	}
}

var conditions = []asm.JumpOp{
	asm.JEq, asm.JNE, asm.JGT, asm.JGE, asm.JLT, asm.JLE, asm.JSGT, asm.JSGE, asm.JSLT, asm.JSLE, asm.JSet,
}

func TestJumpsAsInKernel(t *testing.T) {
	var jumps asm.Instructions
	for _, op := range conditions {
		jumps = append(jumps, op.Reg(asm.R1, asm.R2, ""), op.Reg32(asm.R1, asm.R2, ""))
		for _, imm := range immediates {
			jumps = append(jumps, op.Imm(asm.R1, imm, ""), op.Imm32(asm.R1, imm, ""))
		}
	}
	jumps = append(jumps, asm.Ja.Label(""), asm.LongJump(""))
	var program asm.Instructions
	for i, ins := range jumps {
		after, between := fmt.Sprint("after", i), fmt.Sprint("between", i)
		program = append(program, input(asm.R1, 0), input(asm.R2, 1), asm.Mov.Imm(asm.R3, 1))
		if ins.OpCode.JumpOp() == asm.Ja {
			program = append(program, asm.JEq.Imm(asm.R1, 0, between))
		}
		program = append(program, ins.WithReference(after), asm.Mov.Imm(asm.R3, 2).WithSymbol(between), output(asm.R3, i).WithSymbol(after))
	}
	b := newBoth(t, assembled(append(program, done...), len(jumps)))
	for _, x := range edges {
		for _, y := range edges {
			b.compare(t, func(word int) string { return fmt.Sprint(jumps[word]) }, x, y)
		}
	}
}

func TestMemoryAsInKernel(t *testing.T) {
	var program, what asm.Instructions
	keep := func(ins asm.Instruction, r asm.Register) {
		program = append(program, output(r, len(what)))
		what = append(what, ins)
	}
	for _, size := range []asm.Size{asm.Byte, asm.Half, asm.Word, asm.DWord} {
		for _, offset := range []int16{0, 1, 3, 7} {
			load := asm.LoadMem(asm.R1, base, offset, size)
			program = append(program, load)
			keep(load, asm.R1)
			if size == asm.DWord {
				continue
			}
			load = asm.LoadMemSX(asm.R1, base, offset, size)
			program = append(program, load)
			keep(load, asm.R1)
		}
		// To the stack and back, with what was around it.
		for _, store := range []asm.Instruction{
			asm.StoreMem(asm.R10, -16, asm.R2, size), storeImm(asm.R10, -16, -2, size), storeImm(asm.R10, -16, math.MaxInt32, size),
		} {
			program = append(program,
				input(asm.R1, 0), input(asm.R2, 1), asm.StoreMem(asm.R10, -16, asm.R1, asm.DWord), store,
				asm.LoadMem(asm.R3, asm.R10, -16, asm.DWord))
			keep(store, asm.R3)
		}
	}
	for _, size := range []asm.Size{asm.Word, asm.DWord} {
		for _, op := range []asm.AtomicOp{
			asm.AddAtomic, asm.AndAtomic, asm.OrAtomic, asm.XorAtomic, asm.FetchAdd, asm.FetchAnd, asm.FetchOr, asm.FetchXor,
			asm.Xchg, asm.CmpXchg,
		} {
			ins := op.Mem(asm.R3, asm.R2, size, 8)
			ins.Constant = int64(op) >> 8 // which the library leaves out
			program = append(program,
				input(asm.R1, 0), input(asm.R2, 1), input(asm.R0, 2), asm.StoreMem(asm.R10, -16, asm.R1, asm.DWord),
				asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -24), ins, asm.LoadMem(asm.R4, asm.R10, -16, asm.DWord))
			keep(ins, asm.R4)
			keep(ins, asm.R2)
			keep(ins, asm.R0)
		}
	}
	b := newBoth(t, assembled(append(program, done...), len(what)))
	for _, x := range edges {
		for _, y := range edges {
			b.compare(t, func(word int) string { return fmt.Sprint(what[word]) }, x, y, x)
			b.compare(t, func(word int) string { return fmt.Sprint(what[word]) }, x, y, y^x)
		}
	}
}

// Loops within loops, left in the middle; functions that call functions, with a stack each.
func TestFlowAsInKernel(t *testing.T) {
	program := asm.Instructions{
		input(asm.R1, 0), asm.And.Imm(asm.R1, 15), input(asm.R2, 1), asm.And.Imm(asm.R2, 15), asm.Mov.Imm(asm.R4, 0), asm.Mov.Imm(asm.R6, 0),
		asm.Mov.Imm(asm.R3, 0).WithSymbol("skipped"),
		asm.JGE.Reg(asm.R3, asm.R1, "out").WithSymbol("outer"),
		asm.Mov.Imm(asm.R4, 0),
		asm.JGE.Reg(asm.R4, asm.R2, "next").WithSymbol("inner"),
		asm.Mul.Imm(asm.R6, 31), asm.Add.Reg(asm.R6, asm.R4), asm.Xor.Reg(asm.R6, asm.R3),
		asm.Mov.Reg(asm.R5, asm.R6), asm.And.Imm(asm.R5, 63),
		asm.JEq.Imm(asm.R5, 17, "out"),
		asm.Add.Imm(asm.R4, 1),
		asm.JEq.Imm(asm.R5, 18, "inner"),
		asm.JEq.Imm(asm.R5, 19, "next"),
		asm.Ja.Label("inner"),
		asm.Add.Imm(asm.R3, 1).WithSymbol("next"),
		asm.Ja.Label("outer"),
		output(asm.R6, 0).WithSymbol("out"), output(asm.R3, 1), output(asm.R4, 2),

		asm.Mov.Imm(asm.R7, 7), asm.Mov.Imm(asm.R8, 8), storeImm(asm.R10, -8, 77, asm.DWord),
		input(asm.R1, 0), input(asm.R2, 1), asm.Mov.Imm(asm.R3, 3), asm.Mov.Imm(asm.R4, 4), asm.Mov.Imm(asm.R5, 5),
		asm.Call.Label("five"),
		output(asm.R0, 3), output(asm.R6, 4), output(asm.R7, 5), output(asm.R8, 6),
		asm.LoadMem(asm.R1, asm.R10, -8, asm.DWord), output(asm.R1, 7),
		asm.Mov.Imm(asm.R0, 42), asm.Return(),

		asm.Mov.Reg(asm.R6, asm.R1).WithSymbol("five"),
		asm.StoreMem(asm.R10, -8, asm.R2, asm.DWord),
		asm.Mov.Reg(asm.R7, asm.R3), asm.Mov.Reg(asm.R8, asm.R4), asm.Add.Reg(asm.R8, asm.R5),
		asm.Mov.Reg(asm.R1, asm.R10), asm.Add.Imm(asm.R1, -8),
		asm.Call.Label("one"),
		asm.LoadMem(asm.R1, asm.R10, -8, asm.DWord),
		asm.Mul.Reg(asm.R0, asm.R6), asm.Add.Reg(asm.R0, asm.R1), asm.Mul.Reg(asm.R0, asm.R7), asm.Sub.Reg(asm.R0, asm.R8),
		asm.Return(),

		asm.LoadMem(asm.R0, asm.R1, 0, asm.DWord).WithSymbol("one"),
		storeImm(asm.R10, -8, 99, asm.DWord),
		storeImm(asm.R1, 0, 9, asm.Word),
		asm.Return(),
	}
	b := newBoth(t, assembled(program, 8))
	for _, x := range edges {
		for _, y := range edges {
			b.compare(t, func(word int) string { return fmt.Sprint("result ", word) }, x, y)
		}
	}
}

// Random programs of all arithmetic on all registers, with jumps forward.
func TestRandomProgramsAsInKernel(t *testing.T) {
	const length, registers = 120, 9
	r := random(t)
	all := arithmetic()
	for range *programs {
		var program asm.Instructions
		for i := range registers {
			program = append(program, input(asm.Register(i), i))
		}
		register := func() asm.Register { return asm.Register(r.IntN(registers)) }
		targets := map[int]int{}
		for i := range length {
			var ins asm.Instruction
			if r.IntN(8) == 0 && i < length-1 {
				op := conditions[r.IntN(len(conditions))]
				targets[len(program)] = len(program) + 1 + r.IntN(length-i-1)
				switch imm := immediates[r.IntN(len(immediates))]; r.IntN(4) {
				case 0:
					ins = op.Reg(register(), register(), "")
				case 1:
					ins = op.Reg32(register(), register(), "")
				case 2:
					ins = op.Imm(register(), imm, "")
				default:
					ins = op.Imm32(register(), imm, "")
				}
			} else {
				ins = all[r.IntN(len(all))]
				ins.Dst = register()
				if ins.OpCode.Source() == asm.RegSource {
					ins.Src = register()
				}
			}
			program = append(program, ins)
		}
		b := newBoth(t, assembled(append(resolved(program, targets), outputs(registers)...), registers))
		for range 25 {
			var in [registers]uint64
			for i := range in {
				in[i] = r.Uint64()
				if r.IntN(2) == 0 {
					in[i] = edges[r.IntN(len(edges))]
				}
			}
			b.compare(t, func(word int) string { return fmt.Sprintf("r%d of\n%v", word, program) }, in[:]...)
		}
	}
}

// resolved gives jumps the distances to their targets. An instruction has one symbol only, and may be that of several.
func resolved(program asm.Instructions, targets map[int]int) asm.Instructions {
	offsets := make([]int, len(program))
	for i := 1; i < len(program); i++ {
		offsets[i] = offsets[i-1] + int(program[i-1].Width())
	}
	for i, target := range targets {
		program[i].Offset = int16(offsets[target] - offsets[i] - 1)
	}
	return program
}

func outputs(registers int) asm.Instructions {
	var all asm.Instructions
	for i := range registers {
		all = append(all, output(asm.Register(i), i))
	}
	return append(all, done...)
}

// A program that leaves the memory ends with an error that says where.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name    string
		program asm.Instructions
		want    string
	}{
		{"null", asm.Instructions{asm.Mov.Imm(asm.R1, 0), asm.LoadMem(asm.R0, asm.R1, 8, asm.Word)},
			"program main: function main, instruction 2 (LdXMemW dst: r0 src: r1 off: 8 imm: 0): 0x8 is no address of anything"},
		{"before null", asm.Instructions{asm.Mov.Imm(asm.R1, 4), storeImm(asm.R1, -8, 1, asm.DWord)},
			"program main: function main, instruction 2 (StMemDW dst: r1 src: r0 off: -8 imm: 1): 0xfffffffffffffffc is no address of anything"},
		{"far away", asm.Instructions{asm.LoadImm(asm.R1, 1<<32+1<<16, asm.DWord), asm.StoreMem(asm.R1, 0, asm.R1, asm.Byte)},
			"program main: function main, instruction 2 (StXMemB dst: r1 src: r1 off: 0 imm: 0): 0x100010000 is no address of anything"},
		{"behind the memory", asm.Instructions{asm.LoadImm(asm.R1, 1<<17-7, asm.DWord), asm.FetchAdd.Mem(asm.R1, asm.R0, asm.DWord, 0)},
			"program main: function main, instruction 2 (StXAtomicFetchAddDW dst: r1 src: r0 off: 0): 0x1fff9 is no address of anything"},
		{"more calls than the stack has room for", deep(9), "program main: out of bounds memory access"},
		{"below the stack", asm.Instructions{asm.LoadMem(asm.R0, asm.R10, -4097, asm.Byte)},
			"program main: function main, instruction 1 (LdXMemB dst: r0 src: rfp off: -4097 imm: 0): 0xffff is no address of anything"},
		{"a helper's key", asm.Instructions{asm.LoadMapPtr(asm.R1, 0).WithReference(numbers), asm.Mov.Imm(asm.R2, 0), asm.FnMapLookupElem.Call()},
			"program main: a helper was given 0x0, which is no address of 4 bytes"},
	} {
		for _, interpret := range []bool{false, true} {
			m := newMachine(t, assembled(append(c.program, asm.Return()), 0), bytecode.Options{Interpret: interpret})
			p, err := m.Program("main")
			if err != nil {
				t.Fatal(err)
			}
			_, err = p.Run(0)
			if got := fmt.Sprint(err); got != c.want {
				t.Errorf("%s, interpreted %v: %s, want %s", c.name, interpret, got, c.want)
			}
		}
	}
}

// deep is a program of so many functions, each of which uses its stack and calls the next one.
func deep(functions int) asm.Instructions {
	var all asm.Instructions
	for i := range functions {
		write := storeImm(asm.R10, -8, int64(i), asm.DWord)
		if i > 0 {
			write = write.WithSymbol(fmt.Sprint("deep", i))
		}
		all = append(all, write)
		if i < functions-1 {
			all = append(all, asm.Call.Label(fmt.Sprint("deep", i+1)), asm.Return())
		}
	}
	return all
}

// What is not supported is refused before anything runs.
func TestRefusals(t *testing.T) {
	returns := func(insns ...asm.Instruction) asm.Instructions { return append(insns, done...) }
	for _, c := range []struct {
		program asm.Instructions
		want    string
	}{
		{returns(asm.LoadAbs(0, asm.Word)), "function main: instruction 1 (LdAbsW imm: 0): this instruction is not supported"},
		{returns(asm.LoadAcquire(asm.R0, asm.R10, asm.DWord, -8)), "this instruction is not supported"},
		{returns(asm.StoreRelease(asm.R10, asm.R0, asm.DWord, -8)), "this instruction is not supported"},
		{returns(asm.JCOND.Imm(asm.R0, 0, "x"), asm.Mov.Imm(asm.R0, 0).WithSymbol("x")), "this instruction is not supported"},
		{returns(asm.Instruction{OpCode: asm.MovSX8.Op(asm.RegSource), Offset: 3}), "this instruction is not supported"},
		{returns(asm.FnSkbLoadBytes.Call()), "function main: instruction 1 (Call FnSkbLoadBytes): the function FnSkbLoadBytes is not supported"},
		{returns(asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoKfuncCall}.WithReference("bpf_obj_new_impl")),
			"the function bpf_obj_new_impl is not supported"},
		{asm.Instructions{asm.Ja.Label("nowhere"), asm.Return()}, "function main: instruction 1: it jumps to nowhere, which is not in the function"},
		{asm.Instructions{asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource), Offset: 7}, asm.Return()}, "function main: instruction 1: it jumps out of the function"},
		{asm.Instructions{asm.Mov.Imm(asm.R0, 0)}, "function main: instruction 1: the function ends without an exit"},
		{asm.Instructions{asm.Call.Label("again"), asm.Return(), asm.Call.Label("again").WithSymbol("again"), asm.Return()},
			"function again: it calls itself"},
		{asm.Instructions{
			asm.JEq.Imm(asm.R1, 0, "middle"),
			asm.Add.Imm(asm.R1, 1).WithSymbol("head"),
			asm.Add.Imm(asm.R1, 2).WithSymbol("middle"),
			asm.JLT.Imm(asm.R1, 9, "head"),
			asm.Mov.Imm(asm.R0, 0), asm.Return(),
		}, "a jump into the middle of a loop is not supported"},
	} {
		m, err := bytecode.New(assembled(c.program, 0), bytecode.Options{})
		if err == nil {
			m.Close()
		}
		if !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("the error is %v, want %s", err, c.want)
		}
	}
	spec := assembled(done, 0)
	spec.Maps[numbers].Type = ebpf.LRUHash
	if _, err := bytecode.New(spec, bytecode.Options{}); err == nil || err.Error() != "map numbers: maps of type LRUHash are not supported" {
		t.Errorf("the error is %v", err)
	}
}

// Helpers and kernel functions get the registers that they have use for, and a cast of the watched type is told.
func TestFunctions(t *testing.T) {
	kernel := func(name string) asm.Instruction {
		code := asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call)
		return asm.Instruction{OpCode: code, Src: asm.PseudoKfuncCall, Constant: -1}.WithReference(name)
	}
	program := asm.Instructions{
		asm.FnKtimeGetNs.Call(), asm.Mov.Reg(asm.R6, asm.R0),
		asm.Mov.Imm(asm.R1, 1), asm.Mov.Imm(asm.R2, 2), asm.Mov.Imm(asm.R3, 3), asm.Mov.Imm(asm.R4, 4), asm.Mov.Imm(asm.R5, 5),
		kernel("digits"), asm.Add.Reg(asm.R6, asm.R0),
	}
	for id := range int32(3) {
		program = append(program, asm.Mov.Imm(asm.R1, 1000+id), asm.Mov.Imm(asm.R2, id), kernel("bpf_rdonly_cast"), asm.Add.Reg(asm.R6, asm.R0))
	}
	program = append(program, asm.Mov.Reg(asm.R0, asm.R6), asm.Return())
	for _, interpret := range []bool{false, true} {
		var watched []uint64
		m := newMachine(t, assembled(program, 0), bytecode.Options{
			Helpers: map[asm.BuiltinFunc]bytecode.Function{
				asm.FnKtimeGetNs: {Call: func(_, _, _, _, _ uint64) uint64 { return 1e12 }},
			},
			Functions: map[string]bytecode.Function{
				"digits": {Arguments: 5, Call: func(r1, r2, r3, r4, r5 uint64) uint64 {
					return 1e10 * (10000*r1 + 1000*r2 + 100*r3 + 10*r4 + r5)
				}},
			},
			Watch:     &bytecode.Watch{Type: 1, Call: func(address uint64) { watched = append(watched, address) }},
			Interpret: interpret,
		})
		p, err := m.Program("main")
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Run(0)
		if want := uint64(1e12 + 12345e10 + 3003); err != nil || got != want {
			t.Errorf("interpreted %v: the result is %d, %v, want %d", interpret, got, err, want)
		}
		if len(watched) != 1 || watched[0] != 1001 {
			t.Errorf("interpreted %v: casts of %v were told, want that of 1001", interpret, watched)
		}
	}
}

// What a run costs by itself.
func BenchmarkRun(b *testing.B) {
	m, err := bytecode.New(assembled(done, 0), bytecode.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	p, err := m.Program("main")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := p.Run(0); err != nil {
			b.Fatal(err)
		}
	}
}
