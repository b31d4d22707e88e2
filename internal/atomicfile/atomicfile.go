// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces files whole: a reader, or the next process after a kill or a power cut, finds
// the old text or the new one.
package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write makes text the content of the file at path. What is there already is replaced, unless it is a folder.
func Write(path string, text []byte, mode fs.FileMode) error {
	return Stream(path, mode, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// Stream is Write for content that is written piece by piece. If write fails, path stays as it is.
func Stream(path string, mode fs.FileMode, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	// The content must be on the disk before the name is.
	err = errors.Join(f.Chmod(mode), write(f), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
