// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/catalog"
)

// stateDir has a file for each algorithm that a run has loaded, made before it
// is loaded and removed after it is unloaded. Every run that uses the algorithm
// shares a lock on the file, which the kernel drops when a run dies: who can
// lock it alone may unload it.
const stateDir = "/run/mpcc/run"

// pins is where the loader pins everything.
const pins = "/sys/fs/bpf/mpcc"

// fresh is there when a run found nothing of mpcc's, so that nothing is to stay.
const fresh = "fresh"

// algorithms are those that a run has loaded, or found loaded by another run.
type algorithms struct {
	held map[string]*os.File // by id
}

// acquire loads what is not loaded yet. What the user has loaded is left as it
// is, now and later.
func acquire(entries []catalog.Entry) (_ *algorithms, err error) {
	unlock, err := lockState()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := sweepAlgorithms(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(pins); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(filepath.Join(stateDir, fresh), nil, 0o644); err != nil {
			return nil, err
		}
	}
	a := &algorithms{held: map[string]*os.File{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.drop())
		}
	}()
	loaded, err := loader.Loaded()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if a.held[e.ID()] != nil {
			continue
		}
		path := statePath(e)
		_, statErr := os.Stat(path)
		if contains(loaded, e) && statErr != nil {
			continue // the user's
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, err
		}
		a.held[e.ID()] = file
		if err := unix.Flock(int(file.Fd()), unix.LOCK_SH); err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if _, err := loader.Load(e, loader.Options{}); err != nil {
			return nil, errors.Join(err, os.Remove(path))
		}
	}
	return a, nil
}

func contains(all []catalog.Entry, e catalog.Entry) bool {
	for _, other := range all {
		if other.ID() == e.ID() {
			return true
		}
	}
	return false
}

func statePath(e catalog.Entry) string {
	return filepath.Join(stateDir, strings.ReplaceAll(e.ID(), "/", "-"))
}

// release unloads what no other run uses.
func (a *algorithms) release() error {
	unlock, err := lockState()
	if err != nil {
		return err
	}
	defer unlock()
	return a.drop()
}

func (a *algorithms) drop() error {
	for _, file := range a.held {
		file.Close()
	}
	a.held = nil
	return sweepAlgorithms()
}

// lockState keeps other runs from loading and unloading meanwhile.
func lockState() (unlock func(), err error) {
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(stateDir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
	}
	return func() { file.Close() }, nil
}

// sweepAlgorithms unloads what runs have loaded and none uses any more.
func sweepAlgorithms() error {
	used := false
	for _, e := range catalog.Entries {
		unused, err := unloadUnused(e)
		if err != nil {
			return err
		}
		used = used || !unused
	}
	mark := filepath.Join(stateDir, fresh)
	if _, err := os.Stat(mark); used || err != nil {
		return nil
	}
	loaded, err := loader.Loaded()
	if err != nil {
		return err
	}
	if _, err := os.Stat(pins); err == nil && len(loaded) == 0 {
		if _, err := loader.UnloadAll(); err != nil { // the maps
			return err
		}
	}
	return os.Remove(mark)
}

// unloadUnused unloads an algorithm that a run has loaded, if it is not in use.
func unloadUnused(e catalog.Entry) (unused bool, err error) {
	file, err := os.OpenFile(statePath(e), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	switch err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	if _, err := loader.Unload(e); err != nil && !errors.Is(err, loader.ErrNotLoaded) {
		return false, err
	}
	return true, os.Remove(file.Name())
}
