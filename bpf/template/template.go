// SPDX-License-Identifier: Apache-2.0

// Package template has what an algorithm of one's own begins with: its BPF file, a reference in floating point,
// vectors, a test and a Makefile, which need nothing of mpcc's but mpcc and its headers.
package template

import (
	"bytes"
	"embed"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/mpcc/mpcc/bpf/catalog"
)

//go:embed Makefile test.py cc/*.c cc/*.py cc/*.json sched/*.c sched/*.py sched/*.json
var files embed.FS

// placeholder stands for the algorithm's name, in the files and in the names of files.
const placeholder = "NAME"

// Write makes a folder with an algorithm of this kind and name. It returns the paths of the files; it is an error if the
// folder is there already.
func Write(dir string, k catalog.Kind, name string) (written []string, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	for _, folder := range []string{".", string(k)} {
		entries, err := fs.ReadDir(files, folder)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() {
				continue
			}
			text, err := files.ReadFile(path.Join(folder, e.Name()))
			if err != nil {
				return nil, err
			}
			to := filepath.Join(dir, string(named([]byte(e.Name()), name)))
			if err := os.WriteFile(to, named(text, name), 0o644); err != nil {
				return nil, err
			}
			written = append(written, to)
		}
	}
	return written, nil
}

func named(text []byte, name string) []byte {
	return bytes.ReplaceAll(text, []byte(placeholder), []byte(name))
}
