// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// The sections of tables: cilium/ebpf reads the latter alone. They differ in whether the table is meant to be attached
// by a link, which any table of an algorithm can be.
const (
	plainSection = ".struct_ops"
	linkSection  = ".struct_ops.link"
)

var errCutOff = errors.New("a section ends before its content")

// linkTables returns the object with its section of plain tables renamed to that of tables for links, in the section's
// header and in BTF. Both names are in tables of strings, of which longer copies come after the end of the file.
func linkTables(text []byte, f *elf.File) ([]byte, error) {
	plain := f.Section(plainSection)
	if plain == nil {
		return text, nil
	}
	// The ELF header of 64 bits has where the headers of sections are, their size, and which of them has the names.
	const atHeaders, atHeaderSize, atNames = 0x28, 0x3a, 0x3e
	if f.Class != elf.ELFCLASS64 || len(text) < atNames+2 {
		return nil, errCutOff
	}
	order := f.ByteOrder
	headers, size := order.Uint64(text[atHeaders:]), uint64(order.Uint16(text[atHeaderSize:]))
	header := func(i int) []byte { // debug/elf has read all of them, so they are there
		at := headers + uint64(i)*size
		return text[at : at+size]
	}
	text = slices.Clone(text)
	// In a header the name is the first word; offset and size are the eight bytes at 0x18 and at 0x20.
	moveTo := func(i int, content []byte) {
		order.PutUint64(header(i)[0x18:], uint64(len(text)))
		order.PutUint64(header(i)[0x20:], uint64(len(content)))
		text = append(text, content...)
	}
	names := int(order.Uint16(text[atNames:]))
	if names >= len(f.Sections) {
		return nil, errCutOff
	}
	strings, err := f.Sections[names].Data()
	if err != nil {
		return nil, err
	}
	order.PutUint32(header(slices.Index(f.Sections, plain)), uint32(len(strings)))
	moveTo(names, append(slices.Clone(strings), linkSection+"\x00"...))
	i := slices.IndexFunc(f.Sections, func(s *elf.Section) bool { return s.Name == ".BTF" })
	if i < 0 {
		return text, nil // the library says so
	}
	types, err := f.Sections[i].Data()
	if err != nil {
		return nil, err
	}
	if types, err = linkTypes(types, order); err != nil {
		return nil, err
	}
	moveTo(i, types)
	return text, nil
}

// linkTypes renames the section in BTF.
func linkTypes(types []byte, order binary.ByteOrder) ([]byte, error) {
	var h struct {
		Magic                                          uint16
		Version, Flags                                 uint8
		Length, TypeAt, TypeLength, NameAt, NameLength uint32
	}
	if _, err := binary.Decode(types, order, &h); err != nil {
		return nil, errCutOff
	}
	typeAt, nameAt := uint64(h.Length)+uint64(h.TypeAt), uint64(h.Length)+uint64(h.NameAt)
	typeEnd, nameEnd := typeAt+uint64(h.TypeLength), nameAt+uint64(h.NameLength)
	if typeEnd > uint64(len(types)) || nameEnd != uint64(len(types)) {
		return nil, errCutOff
	}
	const lengthOfNames = 20 // where the header has it
	renamed := append(slices.Clone(types), linkSection+"\x00"...)
	order.PutUint32(renamed[lengthOfNames:], uint32(len(renamed))-uint32(nameAt))
	for at := typeAt; at+12 <= typeEnd; {
		name, info := order.Uint32(types[at:]), order.Uint32(types[at+4:])
		kind, count := info>>24&0x1f, uint64(info&0xffff)
		const datasec = 15
		if kind == datasec && nameAt+uint64(name) < nameEnd && bytes.HasPrefix(types[nameAt+uint64(name):], []byte(plainSection+"\x00")) {
			order.PutUint32(renamed[at:], h.NameLength)
		}
		// What follows the first 12 bytes, by the kernel's include/uapi/linux/btf.h.
		switch kind {
		case 1, 14, 17: // int, var, decl_tag
			at += 4
		case 3: // array
			at += 12
		case 4, 5, datasec, 19: // struct, union, enum64
			at += 12 * count
		case 6, 13: // enum, func_proto
			at += 8 * count
		}
		at += 12
	}
	return renamed, nil
}

// tablesOf returns the programs of each table of an algorithm by the table's member, by the table's name.
func tablesOf(f *elf.File, spec *ebpf.CollectionSpec) (map[string]map[string]string, error) {
	symbols, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	found := map[string]map[string]string{}
	for i, section := range f.Sections {
		if section.Name != plainSection && section.Name != linkSection {
			continue
		}
		at, err := relocations(f, i, symbols)
		if err != nil {
			return nil, err
		}
		for _, symbol := range symbols {
			m := spec.Maps[symbol.Name]
			if int(symbol.Section) != i || m == nil || m.Type != ebpf.StructOpsMap {
				continue
			}
			s, ok := m.Value.(*btf.Struct)
			if !ok || opsTypes[s.Name] == "" {
				continue
			}
			found[symbol.Name] = map[string]string{}
			for _, member := range s.Members {
				if program := at[symbol.Value+uint64(member.Offset.Bytes())]; spec.Programs[program] != nil {
					found[symbol.Name][member.Name] = program
				}
			}
		}
	}
	return found, nil
}

// relocations returns the symbols that a section refers to, by the place in the section.
func relocations(f *elf.File, section int, symbols []elf.Symbol) (map[uint64]string, error) {
	at := map[uint64]string{}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_REL || int(s.Info) != section {
			continue
		}
		data, err := s.Data()
		if err != nil {
			return nil, err
		}
		for ; len(data) >= 16; data = data[16:] {
			symbol := f.ByteOrder.Uint64(data[8:]) >> 32
			if symbol == 0 || symbol > uint64(len(symbols)) {
				return nil, fmt.Errorf("section %s refers to symbol %d of %d", s.Name, symbol, len(symbols))
			}
			at[f.ByteOrder.Uint64(data)] = symbols[symbol-1].Name
		}
	}
	return at, nil
}
