// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// layout is where an object has the fields of a kernel struct. A field that the object knows nothing of lies behind the
// struct, where no program sees it: State has more fields than most algorithms have use for.
type layout struct {
	name string
	s    *btf.Struct // nil if the object does not know the struct
	size uint32
	err  error // the first field that is not as expected
}

func layoutOf(types *btf.Spec, name string) *layout {
	l := &layout{name: name}
	if err := types.TypeByName(name, &l.s); err != nil {
		l.s = nil
		return l
	}
	l.size = l.s.Size
	return l
}

// at returns the offset of a field, such as "sk.__sk_common.skc_state".
func (l *layout) at(path string, size uint32) uint32 {
	m, at, ok := l.find(path)
	if !ok {
		at = (l.size + 7) &^ 7
		l.size = at + size
		return at
	}
	if have, err := btf.Sizeof(m.Type); err != nil || uint32(have) != size {
		l.fail("%s has not %d bytes", path, size)
	}
	return at
}

// bits are those of one bit field.
type bits struct {
	at    uint32 // the byte
	shift uint8
	mask  uint8
}

func (l *layout) bits(path string) bits {
	m, at, ok := l.find(path)
	if !ok {
		return bits{at: l.at(path, 1), mask: 0xff}
	}
	first := uint32(m.Offset.Bytes())
	at += uint32(m.Offset)/8 - first
	b := bits{at: at, shift: uint8(m.Offset % 8), mask: 1<<m.BitfieldSize - 1}
	if m.BitfieldSize == 0 || uint32(b.shift)+uint32(m.BitfieldSize) > 8 {
		l.fail("%s is no bit field within a byte", path)
	}
	return b
}

func (b bits) put(memory []byte, v uint8) {
	memory[b.at] = memory[b.at]&^(b.mask<<b.shift) | v&b.mask<<b.shift
}

// find follows a path through structs, and into the first elements of arrays.
func (l *layout) find(path string) (m btf.Member, at uint32, ok bool) {
	var within btf.Type = l.s
	if l.s == nil {
		return m, 0, false
	}
	for name := range strings.SplitSeq(path, ".") {
		t := btf.UnderlyingType(within)
		if a, isArray := t.(*btf.Array); isArray {
			t = btf.UnderlyingType(a.Type)
		}
		s, isStruct := t.(*btf.Struct)
		if !isStruct {
			return m, 0, false
		}
		i := slices.IndexFunc(s.Members, func(m btf.Member) bool { return m.Name == name })
		if i < 0 {
			return m, 0, false
		}
		m = s.Members[i]
		at += m.Offset.Bytes()
		within = m.Type
	}
	return m, at, true
}

func (l *layout) fail(format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("struct %s: "+format, append([]any{l.name}, args...)...)
	}
}
