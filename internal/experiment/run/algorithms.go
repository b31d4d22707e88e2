// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/loader"
)

// stateDir has a file for each algorithm that a run has loaded, made before it
// is loaded and removed after it is unloaded, and one for pieces. Every run that uses the algorithm
// shares a lock on the file, which the kernel drops when a run dies: who can
// lock it alone may unload it.
const stateDir = "/run/mpcc/run"

// pins is where the loader pins everything.
const pins = "/sys/fs/bpf/mpcc"

// fresh is there when a run found nothing of mpcc's, so that nothing is to stay.
const fresh = "fresh"

// algorithms are those that a run has loaded, or found loaded by another run.
type algorithms struct {
	held map[string]*os.File // by id, and pieces
}

// pieces is the file that stands for smallPieces; it holds the value to give back.
const pieces = "pieces"

// smallPieces makes a kernel whose MPTCP hands 32 KB at a time to a subflow, some 20 packets, hand out 4 KB:
// packet schedulers are made for packets. It belongs to all namespaces.
const smallPieces = "/proc/sys/net/core/high_order_alloc_disable"

// acquire loads what is not loaded yet. What the user has loaded is left as it
// is, now and later.
func acquire(ctx context.Context, entries []catalog.Entry) (_ *algorithms, err error) {
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
		if slices.ContainsFunc(loaded, func(l catalog.Entry) bool { return l.ID() == e.ID() }) && statErr != nil {
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
		if _, err := loader.Load(ctx, e, loader.Options{}); err != nil {
			return nil, errors.Join(err, os.Remove(path))
		}
	}
	if slices.ContainsFunc(entries, func(e catalog.Entry) bool { return e.Kind == catalog.Sched }) {
		err = a.cutSmall()
	}
	return a, err
}

// cutSmall sets smallPieces while a run lasts.
func (a *algorithms) cutSmall() error {
	path := filepath.Join(stateDir, pieces)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		before, err := os.ReadFile(smallPieces)
		if err != nil {
			return err
		}
		if err := result.WriteFile(path, before); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	a.held[pieces] = file
	if err := unix.Flock(int(file.Fd()), unix.LOCK_SH); err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	return os.WriteFile(smallPieces, []byte("1"), 0)
}

// giveBackPieces gives smallPieces its value back when no run is left that set it.
func giveBackPieces() error {
	return ifUnused(filepath.Join(stateDir, pieces), func(file *os.File) error {
		before, err := io.ReadAll(file)
		if err != nil {
			return err
		}
		return os.WriteFile(smallPieces, before, 0)
	})
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

// sweepAlgorithms unloads what runs have loaded and none uses any more, and gives back what they set.
func sweepAlgorithms() error {
	if err := giveBackPieces(); err != nil {
		return err
	}
	used := false
	for _, e := range catalog.Entries {
		err := ifUnused(statePath(e), func(*os.File) error {
			if _, err := loader.Unload(context.Background(), e); err != nil && !errors.Is(err, loader.ErrNotLoaded) {
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
		if _, err := os.Stat(statePath(e)); err == nil {
			used = true
		}
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
		if _, err := loader.UnloadAll(context.Background()); err != nil { // the maps
			return err
		}
	}
	return os.Remove(mark)
}

// ifUnused does what ends the use of a state file, and removes it, if no run holds it.
func ifUnused(path string, end func(*os.File) error) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	switch err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil
	case err != nil:
		return fmt.Errorf("lock %s: %w", path, err)
	}
	if err := end(file); err != nil {
		return err
	}
	return os.Remove(path)
}
