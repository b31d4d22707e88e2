// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mpcc/mpcc/internal/lockfile"
)

// registryDir holds one file for each lab, named by the lab's id, made before
// its first namespace and removed after its last. The owner holds a lock on it,
// which the kernel drops when the owner dies, however it dies: an entry that
// can be locked has no owner any more. (A process id would have to be guarded
// against reuse, and means nothing in another PID namespace; the one in the
// file is for people only.)
const registryDir = "/run/mpcc/lab"

// register makes and locks the entry of a new lab.
func register() (id string, entry *lockfile.Lock, err error) {
	if err := os.MkdirAll(registryDir, 0o755); err != nil {
		return "", nil, err
	}
	for {
		id = strings.ToLower(rand.Text()[:5])
		entry, err = lockfile.Make(filepath.Join(registryDir, id))
		var held *lockfile.HeldError
		switch {
		case errors.Is(err, fs.ErrExist): // another lab has that id
		case errors.Is(err, fs.ErrNotExist), errors.As(err, &held):
			// A sweep found the file before it was locked, and took it for a dead one's.
		case err != nil:
			return "", nil, err
		default:
			if _, err := fmt.Fprintf(entry.File(), "%d\n", os.Getpid()); err != nil {
				return "", nil, errors.Join(err, entry.Remove())
			}
			return id, entry, nil
		}
	}
}

// Sweep removes the namespaces of labs whose owner is dead, and returns their names.
// Labs with a living owner, in whatever process, are left alone.
func Sweep() (removed []string, err error) {
	entries, err := os.ReadDir(registryDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("lab: sweep: %w", err)
	}
	for _, e := range entries {
		names, sweepErr := sweep(e.Name())
		removed = append(removed, names...)
		if sweepErr != nil {
			err = errors.Join(err, fmt.Errorf("lab: sweep lab %s: %w", e.Name(), sweepErr))
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return removed, err
}

func sweep(id string) ([]string, error) {
	entry, err := lockfile.Try(filepath.Join(registryDir, id))
	var alive *lockfile.HeldError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &alive) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	removed, err := removeNamespaces(id)
	if err != nil {
		return removed, errors.Join(err, entry.Unlock())
	}
	return removed, entry.Remove()
}
