// SPDX-License-Identifier: Apache-2.0

package bytecode

import "encoding/binary"

// What the translation emits of WebAssembly's binary format (https://webassembly.github.io/spec/core/binary).
const (
	wasmI32, wasmI64 = 0x7f, 0x7e
	wasmNoResult     = 0x40

	opUnreachable = 0x00
	opBlock       = 0x02
	opLoop        = 0x03
	opIf          = 0x04
	opElse        = 0x05
	opEnd         = 0x0b
	opBr          = 0x0c
	opBrIf        = 0x0d
	opReturn      = 0x0f
	opCall        = 0x10
	opSelect      = 0x1b
	opLocalGet    = 0x20
	opLocalSet    = 0x21
	opLocalTee    = 0x22
	opGlobalGet   = 0x23

	opI64Load    = 0x29
	opI64Load8S  = 0x30
	opI64Load8U  = 0x31
	opI64Load16S = 0x32
	opI64Load16U = 0x33
	opI64Load32S = 0x34
	opI64Load32U = 0x35
	opI64Store   = 0x37
	opI64Store8  = 0x3c
	opI64Store16 = 0x3d
	opI64Store32 = 0x3e

	opI32Const = 0x41
	opI64Const = 0x42
	opI32Eqz   = 0x45
	opI64Eqz   = 0x50

	// The first of ten comparisons in this order: eq, ne, lt_s, lt_u, gt_s, gt_u, le_s, le_u, ge_s, ge_u.
	opI32Compare = 0x46
	opI64Compare = 0x51
	opI64Ne      = 0x52
	opI64GtU     = 0x56

	// The first of add, sub, mul, div_s, div_u, rem_s, rem_u, and, or, xor, shl, shr_s, shr_u.
	opI32Arithmetic = 0x6a
	opI64Arithmetic = 0x7c
	opI64Add        = 0x7c
	opI64Sub        = 0x7d
	opI64And        = 0x83
	opI64Or         = 0x84
	opI64Xor        = 0x85
	opI64Shl        = 0x86
	opI64ShrU       = 0x88

	opI32WrapI64    = 0xa7
	opI64ExtendI32U = 0xad
	opI64Extend8S   = 0xc2
	opI64Extend16S  = 0xc3
	opI64Extend32S  = 0xc4
)

// The places in the lists above.
const (
	isEq, isNe, isLtS, isLtU, isGtS, isGtU, isLeS, isLeU, isGeS, isGeU      = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
	doAdd, doSub, doMul, doDivS, doDivU, doRemS, doRemU, doAnd, doOr, doXor = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
	doShl, doShrS, doShrU                                                   = 10, 11, 12
)

// text is a part of a module's bytes.
type text []byte

func (t *text) bytes(b ...byte) { *t = append(*t, b...) }

func (t *text) unsigned(v uint64) { *t = binary.AppendUvarint(*t, v) }

func (t *text) signed(v int64) {
	for {
		b := byte(v & 0x7f)
		v >>= 7
		if v == 0 && b&0x40 == 0 || v == -1 && b&0x40 != 0 {
			t.bytes(b)
			return
		}
		t.bytes(b | 0x80)
	}
}

// sized appends a part after its length.
func (t *text) sized(part []byte) {
	t.unsigned(uint64(len(part)))
	t.bytes(part...)
}

// list appends parts after their number.
func (t *text) list(parts []text) {
	t.unsigned(uint64(len(parts)))
	for _, p := range parts {
		t.bytes(p...)
	}
}

func (t *text) i32(v int32) {
	t.bytes(opI32Const)
	t.signed(int64(v))
}

func (t *text) i64(v int64) {
	t.bytes(opI64Const)
	t.signed(v)
}

func (t *text) local(op byte, index uint64) {
	t.bytes(op)
	t.unsigned(index)
}

func (t *text) call(index uint64) {
	t.bytes(opCall)
	t.unsigned(index)
}

// memory appends a load or store. Nothing is promised of the address: alignment is a hint, and 2^0.
func (t *text) memory(op byte, offset uint64) {
	t.bytes(op, 0)
	t.unsigned(offset)
}

// module puts a module together, of these sections by number.
func module(sections map[byte]text) []byte {
	m := text("\x00asm\x01\x00\x00\x00")
	for id := byte(1); id <= 10; id++ {
		if s, ok := sections[id]; ok {
			m.bytes(id)
			m.sized(s)
		}
	}
	return m
}

const (
	sectionTypes     = 1
	sectionImports   = 2
	sectionFunctions = 3
	sectionMemory    = 5
	sectionGlobals   = 6
	sectionExports   = 7
	sectionCode      = 10
)
