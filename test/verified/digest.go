// SPDX-License-Identifier: Apache-2.0

package verified

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/scanner"
	"go/token"
	"hash"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/mpcc/mpcc/bpf/kmod"
)

func sum(write func(hash.Hash) error) (string, error) {
	h := sha256.New()
	if err := write(h); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// Object returns a digest of what the kernel gets of an object: instructions, relocations, maps and constants. A comment
// or a line moved in the source changes the object, but not this. The further texts count too.
func Object(spec *ebpf.CollectionSpec, more ...string) string {
	digest, _ := sum(func(h hash.Hash) error { // which cannot fail
		for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
			p := spec.Programs[name]
			fmt.Fprintln(h, "program", name, p.Type, p.AttachType, p.AttachTo, p.Flags)
			for i := range p.Instructions {
				ins := &p.Instructions[i]
				offset, constant := ins.Offset, ins.Constant
				relocation := btf.CORERelocationMetadata(ins)
				if relocation != nil {
					// The loader replaces the offset and the constant by what the access is in the running kernel.
					offset, constant = 0, 0
				}
				fmt.Fprintln(h, ins.OpCode, ins.Dst, ins.Src, offset, constant, ins.Symbol(), ins.Reference())
				if relocation != nil {
					access, _, _ := strings.Cut(relocation.String(), ", local_id=") // a number that other types move
					fmt.Fprintln(h, access)
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
			m := spec.Maps[name]
			fmt.Fprintln(h, "map", name, m.Type, m.KeySize, m.ValueSize, m.MaxEntries, m.Flags, m.Pinning)
			for _, content := range m.Contents {
				fmt.Fprintln(h, content.Key, content.Value)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(spec.Variables)) {
			v := spec.Variables[name]
			fmt.Fprintln(h, "variable", name, v.SectionName, v.Offset, v.Value)
		}
		for _, text := range more {
			fmt.Fprintln(h, text)
		}
		return nil
	})
	return digest
}

// Module returns a digest of the kernel module's sources.
func Module() (string, error) {
	return sum(func(h hash.Hash) error { return folder(h, kmod.Source(), "*") })
}

// Files returns a digest of the files below root that the patterns choose. Patterns match the whole path; tests are
// left out, but where the pattern says so. In Go's files comments and white space do not count.
func Files(root string, patterns ...string) (string, error) {
	return sum(func(h hash.Hash) error { return folder(h, os.DirFS(root), patterns...) })
}

func folder(h hash.Hash, files fs.FS, patterns ...string) error {
	for _, pattern := range patterns {
		names, err := fs.Glob(files, pattern)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return fmt.Errorf("no file is called %s", pattern)
		}
		for _, name := range names {
			test := strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(pattern, "_test.go")
			if info, err := fs.Stat(files, name); err != nil {
				return err
			} else if info.IsDir() || test {
				continue
			}
			fmt.Fprintln(h, filepath.ToSlash(name))
			text, err := fs.ReadFile(files, name)
			if err != nil {
				return err
			}
			if filepath.Ext(name) == ".go" {
				tokens(h, text)
			} else {
				h.Write(text)
			}
		}
	}
	return nil
}

// tokens writes what the Go compiler reads of a source: neither white space nor comments, but for directives.
func tokens(h hash.Hash, source []byte) {
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile("", -1, len(source)), source, nil, scanner.ScanComments)
	for {
		_, kind, text := s.Scan()
		switch {
		case kind == token.EOF:
			return
		case kind == token.SEMICOLON: // a line's end is one too
			text = ";"
		case kind == token.COMMENT && !strings.HasPrefix(text, "//go:"):
			continue
		}
		fmt.Fprintln(h, kind, text)
	}
}
