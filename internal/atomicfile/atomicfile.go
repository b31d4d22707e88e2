// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces files whole: a reader, or the next process after a kill or a power cut, finds
// the old text or the new one.
package atomicfile

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write makes text the content of the file at path. What is there already is replaced, unless it is a folder.
func Write(path string, text []byte, mode fs.FileMode) error {
	return Stream(path, mode, whole(text))
}

// Stream is Write for content that is written piece by piece. If write fails, path stays as it is.
func Stream(path string, mode fs.FileMode, write func(io.Writer) error) error {
	folder, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(stream(folder, filepath.Base(path), mode, write), folder.Close())
}

// WriteIn is Write for a folder that somebody else may have filled: neither the name nor a symbolic link
// leads out of it.
func WriteIn(folder *os.Root, name string, text []byte, mode fs.FileMode) error {
	return stream(folder, name, mode, whole(text))
}

func whole(text []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}
}

func stream(folder *os.Root, name string, mode fs.FileMode, write func(io.Writer) error) error {
	half := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+"."+rand.Text())
	f, err := folder.OpenFile(half, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	// The temporary file's name would say less.
	named := func(err error) error {
		var failed *fs.PathError
		if errors.As(err, &failed) {
			failed.Op, failed.Path = "write", filepath.Join(folder.Name(), name)
		}
		return err
	}
	if err != nil {
		return named(err)
	}
	// Sync before the rename: after a power cut there must be no name without its content.
	err = errors.Join(f.Chmod(mode), write(f), f.Sync(), f.Close())
	if err == nil {
		err = folder.Rename(half, name)
	}
	if err != nil {
		return errors.Join(named(err), folder.Remove(half))
	}
	return sync(folder, filepath.Dir(name))
}

func sync(folder *os.Root, name string) error {
	f, err := folder.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
