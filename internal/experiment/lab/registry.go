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

	"golang.org/x/sys/unix"
)

// registryDir holds one file for each lab, named by the lab's id, made before
// its first namespace and removed after its last. The owner holds a lock on it,
// which the kernel drops when the owner dies, however it dies: an entry that
// can be locked has no owner any more. (A process id would have to be guarded
// against reuse, and means nothing in another PID namespace.) The owner's
// process id inside is for people.
const registryDir = "/run/mpcc/lab"

// register makes and locks the entry of a new lab.
func register() (id string, entry *os.File, err error) {
	if err := os.MkdirAll(registryDir, 0o755); err != nil {
		return "", nil, err
	}
	for {
		id = strings.ToLower(rand.Text()[:5])
		entry, err = os.OpenFile(filepath.Join(registryDir, id), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		owned, err := lock(entry)
		if err == nil && owned {
			_, err = fmt.Fprintf(entry, "%d\n", os.Getpid())
		}
		if err != nil {
			return "", nil, errors.Join(err, os.Remove(entry.Name()), entry.Close())
		}
		if owned {
			return id, entry, nil
		}
		// A sweep saw the entry in the moment before its lock and took it.
		if err := entry.Close(); err != nil {
			return "", nil, err
		}
	}
}

// lock takes the entry's lock. It reports false when somebody else holds it,
// or held it and removed the file meanwhile.
func lock(entry *os.File) (bool, error) {
	err := unix.Flock(int(entry.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", entry.Name(), err)
	}
	held, err := entry.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(entry.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(held, there), err
}

// Sweep removes the namespaces of labs whose owner is dead, and names them.
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
	entry, err := os.OpenFile(filepath.Join(registryDir, id), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer entry.Close()
	if dead, err := lock(entry); err != nil || !dead {
		return nil, err
	}
	removed, err := removeNamespaces(id)
	if err != nil {
		return removed, err
	}
	return removed, os.Remove(entry.Name())
}
