// SPDX-License-Identifier: Apache-2.0

package bytecode

import (
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf/asm"
)

const (
	argumentRegisters = 5
	frameBytes        = 512 // of the stack, for each function
)

// The locals of a translated function are its parameters, which are r1 to r5 as far as it has them and r10, then the
// other registers, then these.
const (
	localScratch = 11
	localOld     = 12
	localFrame   = 13 // the frame's lowest byte, as an offset into the memory
)

// function is a BPF function and what the translation knows of it.
type function struct {
	name  string
	insns asm.Instructions
	index uint64 // in the module
	// arguments are r1 up to that register; a function that was given more would not see them.
	arguments int
}

// translator writes one function.
type translator struct {
	text
	m      *Machine
	f      *function
	blocks []block
	// within are the WebAssembly constructs around the present place, the innermost last: the block that a branch to
	// each leads to, or -1 for an if.
	within []int
}

// translate returns the function's body.
func (m *Machine) translate(f *function) (body text, err error) {
	t := &translator{m: m, f: f}
	if t.blocks, err = flow(f.insns); err != nil {
		return nil, fmt.Errorf("function %s: %w", f.name, err)
	}
	if err := t.tree(0); err != nil {
		return nil, fmt.Errorf("function %s: %w", f.name, err)
	}
	t.bytes(opUnreachable, opEnd)
	// The registers that are no parameters with the two after them, and the frame.
	body.unsigned(2)
	body.unsigned(uint64(12 - f.arguments))
	body.bytes(wasmI64)
	body.unsigned(1)
	body.bytes(wasmI32)
	prologue := text{}
	prologue.local(opLocalGet, t.register(asm.R10))
	prologue.i64(-(nowhere + frameBytes))
	prologue.bytes(opI64Add, opI32WrapI64)
	prologue.local(opLocalSet, localFrame)
	body.bytes(prologue...)
	body.bytes(t.text...)
	return body, nil
}

// register is the local that holds a register.
func (t *translator) register(r asm.Register) uint64 {
	n := t.f.arguments
	switch {
	case r == asm.R10:
		return uint64(n)
	case r >= asm.R1 && int(r) <= n:
		return uint64(r - asm.R1)
	case r == asm.R0:
		return uint64(n + 1)
	}
	// Those behind the arguments, in their order.
	return uint64(n+2) + uint64(int(r)-n-1)
}

// tree writes a block and all blocks that it dominates (Ramsey, Beyond Relooper, ICFP 2022): those that several jumps
// lead to each follow a construct that these jumps leave, a loop's head begins a loop, and all others stand where
// their only jump is.
func (t *translator) tree(i int) error {
	b := &t.blocks[i]
	if b.loops {
		t.open(opLoop, i)
	}
	var merges []int
	for _, to := range b.inside {
		if t.blocks[to].merges {
			merges = append(merges, to)
		}
	}
	slices.Sort(merges)
	for _, to := range slices.Backward(merges) {
		t.open(opBlock, to)
	}
	if err := t.block(i); err != nil {
		return err
	}
	for _, to := range merges {
		t.close()
		if err := t.tree(to); err != nil {
			return err
		}
	}
	if b.loops {
		t.close()
	}
	return nil
}

func (t *translator) open(construct byte, leadsTo int) {
	t.bytes(construct, wasmNoResult)
	t.within = append(t.within, leadsTo)
}

func (t *translator) close() {
	t.bytes(opEnd)
	t.within = t.within[:len(t.within)-1]
}

// depth is how many constructs out the one is that a branch to the block names.
func (t *translator) depth(to int) uint64 {
	return uint64(len(t.within) - 1 - slices.Index(t.within, to))
}

// isBranch reports whether a jump between the blocks is a branch. The other's block stands where the jump is.
func (t *translator) isBranch(from, to int) bool { return to <= from || t.blocks[to].merges }

func (t *translator) jump(from, to int) error {
	if !t.isBranch(from, to) {
		return t.tree(to)
	}
	t.bytes(opBr)
	t.unsigned(t.depth(to))
	return nil
}

// block writes the instructions of a block, and where it goes.
func (t *translator) block(i int) error {
	b := &t.blocks[i]
	for at := b.first; at <= b.last; at++ {
		ins := t.f.insns[at]
		if endsBlock(ins) {
			break
		}
		if err := t.instruction(at, ins); err != nil {
			return fmt.Errorf("instruction %d (%v): %w", at, ins, err)
		}
	}
	switch len(b.next) {
	case 0:
		t.local(opLocalGet, t.register(asm.R0))
		t.bytes(opReturn)
		return nil
	case 1:
		return t.jump(i, b.next[0])
	}
	if err := t.condition(t.f.insns[b.last]); err != nil {
		return fmt.Errorf("instruction %d (%v): %w", b.last, t.f.insns[b.last], err)
	}
	if t.isBranch(i, b.next[0]) {
		t.bytes(opBrIf)
		t.unsigned(t.depth(b.next[0]))
		return t.jump(i, b.next[1])
	}
	t.open(opIf, -1)
	if err := t.tree(b.next[0]); err != nil {
		return err
	}
	t.close()
	return t.jump(i, b.next[1])
}

var comparisons = map[asm.JumpOp]byte{
	asm.JEq: isEq, asm.JNE: isNe, asm.JGT: isGtU, asm.JGE: isGeU, asm.JLT: isLtU, asm.JLE: isLeU,
	asm.JSGT: isGtS, asm.JSGE: isGeS, asm.JSLT: isLtS, asm.JSLE: isLeS,
}

// condition leaves whether a jump is made.
func (t *translator) condition(ins asm.Instruction) error {
	op, wide := ins.OpCode.JumpOp(), ins.OpCode.Class() == asm.JumpClass
	t.operand(ins.Dst, wide)
	t.source(ins, wide)
	if op == asm.JSet {
		if wide {
			t.bytes(opI64And)
			t.bytes(opI64Eqz, opI32Eqz)
		} else {
			t.bytes(opI32Arithmetic + doAnd)
		}
		return nil
	}
	compare, ok := comparisons[op]
	if !ok {
		return errUnknown
	}
	if wide {
		t.bytes(opI64Compare + compare)
	} else {
		t.bytes(opI32Compare + compare)
	}
	return nil
}

// operand leaves a register, or its lower half.
func (t *translator) operand(r asm.Register, wide bool) {
	t.local(opLocalGet, t.register(r))
	if !wide {
		t.bytes(opI32WrapI64)
	}
}

// source leaves the source of arithmetic or a comparison.
func (t *translator) source(ins asm.Instruction, wide bool) {
	switch {
	case ins.OpCode.Source() == asm.RegSource:
		t.operand(ins.Src, wide)
	case wide:
		t.i64(ins.Constant)
	default:
		t.i32(int32(ins.Constant))
	}
}

func (t *translator) set(r asm.Register) { t.local(opLocalSet, t.register(r)) }

func (t *translator) instruction(at int, ins asm.Instruction) error {
	if ins.Dst > asm.R10 || ins.OpCode.Class() != asm.JumpClass && ins.Src > asm.R10 && !ins.OpCode.IsDWordLoad() {
		return errUnknown
	}
	switch ins.OpCode.Class() {
	case asm.ALUClass, asm.ALU64Class:
		return t.arithmetic(ins)
	case asm.JumpClass:
		return t.callOf(ins)
	case asm.LdClass:
		if !ins.OpCode.IsDWordLoad() {
			return errUnknown
		}
		value, err := t.m.constant(ins)
		if err != nil {
			return err
		}
		t.i64(value)
		t.set(ins.Dst)
		return nil
	case asm.LdXClass:
		return t.load(at, ins)
	case asm.StClass, asm.StXClass:
		if ins.OpCode.Mode() == asm.AtomicMode {
			return t.atomic(at, ins)
		}
		return t.store(at, ins)
	}
	return errUnknown
}

var operations = map[asm.ALUOp]byte{
	asm.Add: doAdd, asm.Sub: doSub, asm.Mul: doMul, asm.Or: doOr, asm.And: doAnd, asm.Xor: doXor,
	asm.LSh: doShl, asm.RSh: doShrU, asm.ArSh: doShrS,
}

func (t *translator) arithmetic(ins asm.Instruction) error {
	op, wide := ins.OpCode.ALUOp(), ins.OpCode.Class() == asm.ALU64Class
	if ins.Offset != 0 {
		return errUnknown
	}
	first, extend := byte(opI64Arithmetic), []byte{}
	if !wide {
		first, extend = opI32Arithmetic, []byte{opI64ExtendI32U}
	}
	switch op {
	case asm.Mov:
		t.source(ins, wide)
	case asm.MovSX8, asm.MovSX16, asm.MovSX32:
		if ins.OpCode.Source() != asm.RegSource || op == asm.MovSX32 && !wide {
			return errUnknown
		}
		t.local(opLocalGet, t.register(ins.Src))
		t.bytes(map[asm.ALUOp]byte{asm.MovSX8: opI64Extend8S, asm.MovSX16: opI64Extend16S, asm.MovSX32: opI64Extend32S}[op])
		if !wide {
			t.bytes(opI32WrapI64)
		}
	case asm.Neg:
		if ins.OpCode.Source() != asm.ImmSource {
			return errUnknown
		}
		if wide {
			t.i64(0)
		} else {
			t.i32(0)
		}
		t.operand(ins.Dst, wide)
		t.bytes(first + doSub)
	case asm.Div, asm.Mod, asm.SDiv, asm.SMod:
		return t.division(ins, wide)
	case asm.Swap:
		return t.swap(ins)
	default:
		do, ok := operations[op]
		if !ok {
			return errUnknown
		}
		t.operand(ins.Dst, wide)
		t.source(ins, wide)
		t.bytes(first + do)
	}
	t.bytes(extend...)
	t.set(ins.Dst)
	return nil
}

// division by 0 gives 0, and leaves the dividend of a remainder. The smallest number by -1 is itself.
func (t *translator) division(ins asm.Instruction, wide bool) error {
	op := ins.OpCode.ALUOp()
	signed, remainder := op == asm.SDiv || op == asm.SMod, op == asm.Mod || op == asm.SMod
	divide := map[asm.ALUOp]byte{asm.Div: doDivU, asm.Mod: doRemU, asm.SDiv: doDivS, asm.SMod: doRemS}[op]
	// Both are worked out in 64 bits, which hold the result for the smallest number of 32 bits.
	value := func(reg bool, r asm.Register, constant int64) {
		switch {
		case !reg && wide:
			t.i64(constant)
		case !reg && signed:
			t.i64(int64(int32(constant)))
		case !reg:
			t.i64(int64(uint32(constant)))
		default:
			t.local(opLocalGet, t.register(r))
			switch {
			case wide:
			case signed:
				t.bytes(opI64Extend32S)
			default:
				t.bytes(opI32WrapI64, opI64ExtendI32U)
			}
		}
	}
	narrow := func() {
		if !wide {
			t.bytes(opI32WrapI64, opI64ExtendI32U)
		}
	}
	reg := ins.OpCode.Source() == asm.RegSource
	safe := !reg && ins.Constant != 0 && !(signed && ins.Constant == -1)
	value(true, ins.Dst, 0)
	value(reg, ins.Src, ins.Constant)
	if safe {
		t.bytes(opI64Arithmetic + divide)
		narrow()
		t.set(ins.Dst)
		return nil
	}
	t.local(opLocalSet, localScratch)
	t.local(opLocalSet, localOld)
	t.local(opLocalGet, localScratch)
	t.bytes(opI64Eqz, opIf, wasmI64)
	if remainder {
		t.local(opLocalGet, localOld)
	} else {
		t.i64(0)
	}
	t.bytes(opElse)
	if signed {
		t.local(opLocalGet, localScratch)
		t.i64(-1)
		t.bytes(opI64Compare+isEq, opIf, wasmI64)
		t.i64(0)
		if !remainder {
			t.local(opLocalGet, localOld)
			t.bytes(opI64Sub)
		}
		t.bytes(opElse)
	}
	t.local(opLocalGet, localOld)
	t.local(opLocalGet, localScratch)
	t.bytes(opI64Arithmetic + divide)
	if signed {
		t.bytes(opEnd)
	}
	t.bytes(opEnd)
	narrow()
	t.set(ins.Dst)
	return nil
}

// swap turns the order of bytes, or only cuts off those above: this machine, like the object, is little-endian.
func (t *translator) swap(ins asm.Instruction) error {
	bits := ins.Constant
	if bits != 16 && bits != 32 && bits != 64 {
		return errUnknown
	}
	turns := ins.OpCode.Class() == asm.ALU64Class || ins.OpCode.Endianness() == asm.BE
	t.local(opLocalGet, t.register(ins.Dst))
	if turns {
		// Neighbours are exchanged, of 8, 16 and 32 bits, and the result is taken from the top.
		for _, step := range []struct{ shift, mask int64 }{{8, 0x00ff00ff00ff00ff}, {16, 0x0000ffff0000ffff}, {32, 0xffffffff}} {
			t.local(opLocalTee, localScratch)
			t.i64(step.shift)
			t.bytes(opI64ShrU)
			t.i64(step.mask)
			t.bytes(opI64And)
			t.local(opLocalGet, localScratch)
			t.i64(step.mask)
			t.bytes(opI64And)
			t.i64(step.shift)
			t.bytes(opI64Shl, opI64Or)
		}
		if bits < 64 {
			t.i64(64 - bits)
			t.bytes(opI64ShrU)
		}
	} else if bits < 64 {
		t.i64(1<<bits - 1)
		t.bytes(opI64And)
	}
	t.set(ins.Dst)
	return nil
}

// address leaves the place in the memory that a register and an offset name, and returns the offset that is left for
// the load or store. What is outside the memory is a fault. The frame is inside.
func (t *translator) address(at int, r asm.Register, offset int16) (rest uint64) {
	if r == asm.R10 && offset < 0 && offset >= -frameBytes {
		t.local(opLocalGet, localFrame)
		return uint64(frameBytes + int(offset))
	}
	t.local(opLocalGet, t.register(r))
	t.i64(int64(offset) - nowhere)
	t.bytes(opI64Add)
	t.local(opLocalTee, localScratch)
	t.local(opGlobalGet, globalEnd)
	t.bytes(opI64GtU, opIf, wasmNoResult)
	t.i32(t.m.note(place{t.f, at}))
	t.local(opLocalGet, localScratch)
	t.call(importFault)
	t.bytes(opUnreachable, opEnd)
	t.local(opLocalGet, localScratch)
	t.bytes(opI32WrapI64)
	return 0
}

func (t *translator) load(at int, ins asm.Instruction) error {
	type key struct {
		mode asm.Mode
		size asm.Size
	}
	op, ok := map[key]byte{
		{asm.MemMode, asm.DWord}: opI64Load, {asm.MemMode, asm.Word}: opI64Load32U,
		{asm.MemMode, asm.Half}: opI64Load16U, {asm.MemMode, asm.Byte}: opI64Load8U,
		{asm.MemSXMode, asm.Word}: opI64Load32S, {asm.MemSXMode, asm.Half}: opI64Load16S, {asm.MemSXMode, asm.Byte}: opI64Load8S,
	}[key{ins.OpCode.Mode(), ins.OpCode.Size()}]
	if !ok {
		return errUnknown
	}
	offset := t.address(at, ins.Src, ins.Offset)
	t.memory(op, offset)
	t.set(ins.Dst)
	return nil
}

var stores = map[asm.Size]byte{
	asm.DWord: opI64Store, asm.Word: opI64Store32, asm.Half: opI64Store16, asm.Byte: opI64Store8,
}

func (t *translator) store(at int, ins asm.Instruction) error {
	op, ok := stores[ins.OpCode.Size()]
	if !ok || ins.OpCode.Mode() != asm.MemMode {
		return errUnknown
	}
	offset := t.address(at, ins.Dst, ins.Offset)
	if ins.OpCode.Class() == asm.StClass {
		t.i64(ins.Constant)
	} else {
		t.local(opLocalGet, t.register(ins.Src))
	}
	t.memory(op, offset)
	return nil
}

var atomics = map[asm.AtomicOp]byte{
	asm.AddAtomic: opI64Add, asm.FetchAdd: opI64Add, asm.AndAtomic: opI64And, asm.FetchAnd: opI64And,
	asm.OrAtomic: opI64Or, asm.FetchOr: opI64Or, asm.XorAtomic: opI64Xor, asm.FetchXor: opI64Xor,
}

// atomic is a load and a store: a machine runs one program at a time.
func (t *translator) atomic(at int, ins asm.Instruction) error {
	load, store := map[asm.Size]byte{asm.DWord: opI64Load, asm.Word: opI64Load32U}[ins.OpCode.Size()], stores[ins.OpCode.Size()]
	op := ins.OpCode.AtomicOp()
	do, arithmetic := atomics[op]
	if load == 0 || !arithmetic && op != asm.Xchg && op != asm.CmpXchg {
		return errUnknown
	}
	offset := t.address(at, ins.Dst, ins.Offset)
	t.memory(load, offset)
	t.local(opLocalSet, localOld)
	t.address(at, ins.Dst, ins.Offset)
	switch op {
	case asm.Xchg:
		t.local(opLocalGet, t.register(ins.Src))
	case asm.CmpXchg:
		t.local(opLocalGet, t.register(ins.Src))
		t.local(opLocalGet, localOld)
		t.local(opLocalGet, localOld)
		t.local(opLocalGet, t.register(asm.R0))
		if ins.OpCode.Size() == asm.Word {
			t.bytes(opI32WrapI64, opI64ExtendI32U)
		}
		t.bytes(opI64Compare+isEq, opSelect)
	default:
		t.local(opLocalGet, localOld)
		t.local(opLocalGet, t.register(ins.Src))
		t.bytes(do)
	}
	t.memory(store, offset)
	switch op {
	case asm.CmpXchg:
		t.local(opLocalGet, localOld)
		t.set(asm.R0)
	case asm.AddAtomic, asm.AndAtomic, asm.OrAtomic, asm.XorAtomic:
	default:
		t.local(opLocalGet, localOld)
		t.set(ins.Src)
	}
	return nil
}

// callOf writes a call.
func (t *translator) callOf(ins asm.Instruction) error {
	if ins.OpCode.JumpOp() != asm.Call {
		return errUnknown
	}
	if ins.IsFunctionCall() {
		callee := t.m.functions[ins.Reference()]
		t.arguments(callee.arguments)
		t.local(opLocalGet, t.register(asm.R10))
		t.i64(-frameBytes)
		t.bytes(opI64Add)
		t.call(callee.index)
		t.set(asm.R0)
		return nil
	}
	if isCast(ins) {
		t.cast()
		return nil
	}
	h, err := t.m.host(ins)
	if err != nil {
		return err
	}
	t.arguments(h.Arguments)
	t.call(h.index)
	t.set(asm.R0)
	return nil
}

func (t *translator) arguments(n int) {
	for r := asm.R1; r < asm.R1+asm.Register(n); r++ {
		t.local(opLocalGet, t.register(r))
	}
}

// cast says what an address is, and gives the same address.
func (t *translator) cast() {
	if w := t.m.options.Watch; w != nil {
		t.local(opLocalGet, t.register(asm.R2))
		t.i64(int64(w.Type))
		t.bytes(opI64Compare+isEq, opIf, wasmNoResult)
		t.local(opLocalGet, t.register(asm.R1))
		t.call(importWatch)
		t.bytes(opEnd)
	}
	t.local(opLocalGet, t.register(asm.R1))
	t.set(asm.R0)
}

// countArguments finds the highest of r1 to r5 that a function reads before it writes it. It also finds calls that lead
// nowhere.
func (m *Machine) countArguments(f *function, callers map[string]bool) error {
	if f.arguments >= 0 {
		return nil
	}
	if callers[f.name] {
		return fmt.Errorf("function %s: it calls itself", f.name)
	}
	callers[f.name] = true
	defer delete(callers, f.name)
	blocks, err := flow(f.insns)
	if err != nil {
		return fmt.Errorf("function %s: %w", f.name, err)
	}
	type set = uint16
	reads, writes := make([]set, len(blocks)), make([]set, len(blocks))
	for i, b := range blocks {
		for at := b.first; at <= b.last; at++ {
			r, w, err := m.uses(f.insns[at], callers)
			if err != nil {
				return fmt.Errorf("function %s: instruction %d (%v): %w", f.name, at, f.insns[at], err)
			}
			reads[i] |= r &^ writes[i]
			writes[i] |= w
		}
	}
	live := make([]set, len(blocks))
	for changed := true; changed; {
		changed = false
		for i := len(blocks) - 1; i >= 0; i-- {
			in := reads[i]
			for _, to := range blocks[i].next {
				in |= live[to] &^ writes[i]
			}
			if in != live[i] {
				live[i], changed = in, true
			}
		}
	}
	f.arguments = 0
	for r := 1; r <= argumentRegisters; r++ {
		if live[0]&(1<<r) != 0 {
			f.arguments = r
		}
	}
	return nil
}

// uses returns the registers that an instruction reads and writes, as bits. A call leaves r1 to r5 undefined.
func (m *Machine) uses(ins asm.Instruction, callers map[string]bool) (reads, writes uint16, err error) {
	bit := func(r asm.Register) uint16 { return 1 << r }
	op := ins.OpCode
	switch op.Class() {
	case asm.ALUClass, asm.ALU64Class:
		writes = bit(ins.Dst)
		if o := op.ALUOp(); o != asm.Mov && o != asm.MovSX8 && o != asm.MovSX16 && o != asm.MovSX32 {
			reads = bit(ins.Dst)
		}
		if op.Source() == asm.RegSource {
			reads |= bit(ins.Src)
		}
	case asm.LdClass:
		writes = bit(ins.Dst)
	case asm.LdXClass:
		reads, writes = bit(ins.Src), bit(ins.Dst)
	case asm.StClass:
		reads = bit(ins.Dst)
	case asm.StXClass:
		reads = bit(ins.Dst) | bit(ins.Src)
		if op.AtomicOp() == asm.CmpXchg {
			reads |= bit(asm.R0)
		}
	default:
		switch op.JumpOp() {
		case asm.Exit:
			reads = bit(asm.R0)
		case asm.Ja:
		case asm.Call:
			n, err := m.argumentsOf(ins, callers)
			if err != nil {
				return 0, 0, err
			}
			reads = (1<<n - 1) << 1
			writes = math.MaxUint8 >> 2 // r0 to r5
		default:
			reads = bit(ins.Dst)
			if op.Source() == asm.RegSource {
				reads |= bit(ins.Src)
			}
		}
	}
	return reads, writes, nil
}

// argumentsOf returns how many registers a call passes on.
func (m *Machine) argumentsOf(call asm.Instruction, callers map[string]bool) (int, error) {
	switch {
	case call.IsFunctionCall():
		callee, ok := m.functions[call.Reference()]
		if !ok {
			return 0, fmt.Errorf("there is no function %s", call.Reference())
		}
		if err := m.countArguments(callee, callers); err != nil {
			return 0, err
		}
		return callee.arguments, nil
	case isCast(call):
		return 2, nil
	}
	h, err := m.host(call)
	if err != nil {
		return 0, err
	}
	return h.Arguments, nil
}

func isCast(call asm.Instruction) bool { return call.IsKfuncCall() && call.Reference() == castFunction }
