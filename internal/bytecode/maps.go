// SPDX-License-Identifier: Apache-2.0

package bytecode

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Map is a map of the object. Values are in the memory; a per-CPU map has those of one CPU.
type Map struct {
	m      *Machine
	handle int64
	spec   *ebpf.MapSpec
	array  uint64            // the address of an array's values
	values map[string]uint64 // the addresses of a hash's values
	free   []uint64          // those of values that were deleted
}

// addMaps finds room for arrays, which sections are too, and gives every map a handle. No handle is an address of
// anything.
func (m *Machine) addMaps(spec *ebpf.CollectionSpec) error {
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		s := spec.Maps[name]
		if s.Type == ebpf.StructOpsMap {
			continue
		}
		added := &Map{m: m, spec: s, handle: int64(len(m.byHandle) + 1)}
		switch s.Type {
		case ebpf.Array:
			added.array = m.Allocate(uint64(s.MaxEntries) * added.stride())
		case ebpf.Hash, ebpf.PerCPUHash:
			added.values = map[string]uint64{}
		default:
			return fmt.Errorf("map %s: maps of type %v are not supported", name, s.Type)
		}
		m.maps[name] = added
		m.byHandle = append(m.byHandle, added)
	}
	return nil
}

func (p *Map) stride() uint64 { return (uint64(p.spec.ValueSize) + 7) &^ 7 }

// lookup returns the address of a value, 0 if there is none.
func (p *Map) lookup(key []byte) uint64 {
	if p.values != nil {
		return p.values[string(key)]
	}
	if i := uint64(binary.LittleEndian.Uint32(key)); i < uint64(p.spec.MaxEntries) {
		return p.array + i*p.stride()
	}
	return 0
}

func (p *Map) update(key, value []byte, flags uint64) unix.Errno {
	at := p.lookup(key)
	switch {
	case flags > unix.BPF_EXIST:
		return unix.EINVAL
	case at != 0 && flags == unix.BPF_NOEXIST:
		return unix.EEXIST
	case at == 0 && p.values == nil:
		return unix.E2BIG
	case at == 0 && flags == unix.BPF_EXIST:
		return unix.ENOENT
	case at == 0 && len(p.values) >= int(p.spec.MaxEntries):
		return unix.E2BIG
	case at == 0:
		// The value may move with the memory when this allocates.
		value, key := slices.Clone(value), string(key)
		if n := len(p.free); n > 0 {
			at, p.free = p.free[n-1], p.free[:n-1]
		} else {
			at = p.m.Allocate(p.stride())
		}
		p.values[key] = at
		copy(p.m.Bytes(at, uint64(p.spec.ValueSize)), value)
		return 0
	}
	copy(p.m.Bytes(at, uint64(p.spec.ValueSize)), value)
	return 0
}

func (p *Map) remove(key []byte) unix.Errno {
	if p.values == nil {
		return unix.EINVAL
	}
	at, ok := p.values[string(key)]
	if !ok {
		return unix.ENOENT
	}
	delete(p.values, string(key))
	p.free = append(p.free, at)
	return 0
}

// Map returns a map of the object.
func (m *Machine) Map(name string) (*Map, error) {
	p, ok := m.maps[name]
	if !ok {
		return nil, fmt.Errorf("the object has no map %s", name)
	}
	return p, nil
}

// Lookup returns the value of a key, nil if there is none. It is valid until more is allocated.
func (p *Map) Lookup(key []byte) []byte {
	at := p.lookup(key)
	if at == 0 {
		return nil
	}
	return p.m.Bytes(at, uint64(p.spec.ValueSize))
}

// Put gives a key a value.
func (p *Map) Put(key, value []byte) error {
	if len(key) != int(p.spec.KeySize) || len(value) != int(p.spec.ValueSize) {
		return fmt.Errorf("map %s: a key has %d bytes and a value %d, not %d and %d", p.spec.Name, p.spec.KeySize, p.spec.ValueSize, len(key), len(value))
	}
	if errno := p.update(key, value, unix.BPF_ANY); errno != 0 {
		return fmt.Errorf("map %s: %w", p.spec.Name, errno)
	}
	return nil
}

// helper returns the helpers that are about maps and memory, which every machine has.
func (m *Machine) helper(f asm.BuiltinFunc) (Function, bool) {
	key := func(p *Map, at uint64) []byte { return m.argument(at, uint64(p.spec.KeySize)) }
	switch f {
	case asm.FnMapLookupElem:
		return Function{2, func(r1, r2, _, _, _ uint64) uint64 {
			p := m.byHandle[r1-1]
			return p.lookup(key(p, r2))
		}}, true
	case asm.FnMapUpdateElem:
		return Function{4, func(r1, r2, r3, r4, _ uint64) uint64 {
			p := m.byHandle[r1-1]
			return negative(p.update(key(p, r2), m.argument(r3, uint64(p.spec.ValueSize)), r4))
		}}, true
	case asm.FnMapDeleteElem:
		return Function{2, func(r1, r2, _, _, _ uint64) uint64 {
			p := m.byHandle[r1-1]
			return negative(p.remove(key(p, r2)))
		}}, true
	case asm.FnProbeReadKernel:
		return Function{3, func(r1, r2, r3, _, _ uint64) uint64 {
			to := m.argument(r1, uint64(uint32(r2)))
			if !m.has(r3, uint64(len(to))) {
				clear(to)
				return negative(unix.EFAULT)
			}
			copy(to, m.Bytes(r3, uint64(len(to))))
			return 0
		}}, true
	}
	return Function{}, false
}

func (m *Machine) has(address, size uint64) bool {
	at := address - nowhere
	return at < uint64(len(m.memory)) && size <= uint64(len(m.memory))-at
}

// argument returns the memory that an argument points to. Without such memory the program ends, as by a Fault.
func (m *Machine) argument(address, size uint64) []byte {
	if !m.has(address, size) {
		panic(fmt.Errorf("a helper was given %#x, which is no address of %d bytes", address, size))
	}
	return m.Bytes(address, size)
}

// negative is an error as helpers return it.
func negative(errno unix.Errno) uint64 { return uint64(-int64(errno)) }
