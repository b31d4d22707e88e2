// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/atomicfile"
	"github.com/mpcc/mpcc/internal/lockfile"
	"github.com/mpcc/mpcc/loader"
)

// stateDir has a file for each algorithm that runs have loaded, made before it is loaded and removed after
// it is unloaded, and the files named below. Every run that uses an algorithm shares the lock on its file,
// which the kernel drops when the run dies: whoever gets the lock alone may unload it.
const stateDir = "/run/mpcc/run"

const (
	// guard is held by whoever loads or unloads.
	guard = "lock"
	// fresh is there when a run found nothing of mpcc's, so that nothing is to stay.
	fresh = "fresh"
	// pieces holds the value of smallPieces that is to be given back; runs share it like an algorithm.
	pieces = "pieces"
)

// smallPieces makes a kernel whose MPTCP hands 32 KB at a time to a subflow, some 20 packets, hand out 4 KB:
// packet schedulers are made for packets. It belongs to all namespaces.
const smallPieces = "/proc/sys/net/core/high_order_alloc_disable"

// pins is where the loader pins everything.
const pins = "/sys/fs/bpf/mpcc"

func statePath(file string) string { return filepath.Join(stateDir, file) }

// stateFile is an algorithm's file in stateDir.
func stateFile(e catalog.Entry) string { return strings.ReplaceAll(e.ID(), "/", "-") }

// algorithms are those that a run has loaded, or found loaded by another run.
type algorithms struct {
	held map[string]*lockfile.Lock // by file in stateDir
}

// acquire loads what is not loaded yet. What the user has loaded is left as it is, now and later.
func acquire(ctx context.Context, entries []catalog.Entry) (*algorithms, error) {
	unlock, err := lockState(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := sweepAlgorithms(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(pins); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(statePath(fresh), nil, 0o644); err != nil {
			return nil, err
		}
	}
	a := &algorithms{held: map[string]*lockfile.Lock{}}
	if err := a.load(ctx, entries); err != nil {
		return nil, errors.Join(err, a.drop())
	}
	return a, nil
}

func (a *algorithms) load(ctx context.Context, entries []catalog.Entry) error {
	loaded, err := loader.Loaded()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if a.held[stateFile(e)] != nil {
			continue
		}
		_, byRun := os.Stat(statePath(stateFile(e)))
		if slices.ContainsFunc(loaded, func(l catalog.Entry) bool { return l.ID() == e.ID() }) && byRun != nil {
			continue // the user's
		}
		if err := a.share(ctx, stateFile(e)); err != nil {
			return err
		}
		if _, err := loader.Load(e, loader.Options{}); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(entries, func(e catalog.Entry) bool { return e.Kind == catalog.Sched }) {
		return a.cutSmall(ctx)
	}
	return nil
}

// share makes a file of stateDir if need be, and shares its lock until the algorithms are released.
func (a *algorithms) share(ctx context.Context, file string) (err error) {
	a.held[file], err = lockfile.Share(ctx, statePath(file))
	if err != nil {
		delete(a.held, file)
	}
	return err
}

// cutSmall sets smallPieces while a run lasts.
func (a *algorithms) cutSmall(ctx context.Context) error {
	if _, err := os.Stat(statePath(pieces)); errors.Is(err, fs.ErrNotExist) {
		before, err := os.ReadFile(smallPieces)
		if err != nil {
			return err
		}
		if err := atomicfile.Write(statePath(pieces), before, 0o600); err != nil {
			return err
		}
	}
	if err := a.share(ctx, pieces); err != nil {
		return err
	}
	return os.WriteFile(smallPieces, []byte("1"), 0)
}

// releaseWait is longer than other runs take to load what they need.
const releaseWait = 30 * time.Second

// release unloads what no other run uses. It does so after an interrupt as well.
func (a *algorithms) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), releaseWait,
		errors.New("mpcc run --clean unloads what this run had loaded"))
	defer cancel()
	unlock, err := lockState(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return a.drop()
}

func (a *algorithms) drop() (err error) {
	for _, l := range a.held {
		err = errors.Join(err, l.Unlock())
	}
	a.held = nil
	return errors.Join(err, sweepAlgorithms())
}

// lockState keeps other runs from loading and unloading meanwhile.
func lockState(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, err
	}
	l, err := lockfile.Take(ctx, statePath(guard))
	if err != nil {
		return nil, err
	}
	return func() { _ = l.Unlock() }, nil
}

// sweepAlgorithms unloads what runs have loaded and none uses any more, and gives back what they set.
func sweepAlgorithms() error {
	err := ifUnused(pieces, func(file *os.File) error {
		before, err := io.ReadAll(file)
		if err != nil {
			return err
		}
		return os.WriteFile(smallPieces, before, 0)
	})
	if err != nil {
		return err
	}
	used := false
	for _, e := range catalog.Entries {
		err := ifUnused(stateFile(e), func(*os.File) error {
			if _, err := loader.Unload(e); err != nil && !errors.Is(err, loader.ErrNotLoaded) {
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
		if _, err := os.Stat(statePath(stateFile(e))); err == nil {
			used = true
		}
	}
	if used {
		return nil
	}
	return sweepMaps()
}

// sweepMaps removes mpcc's maps where a run found none and nothing uses them any more.
func sweepMaps() error {
	if _, err := os.Stat(statePath(fresh)); err != nil {
		return nil
	}
	loaded, err := loader.Loaded()
	if err != nil {
		return err
	}
	if _, err := os.Stat(pins); err == nil && len(loaded) == 0 {
		if _, err := loader.UnloadAll(); err != nil {
			return err
		}
	}
	return os.Remove(statePath(fresh))
}

// ifUnused does what ends the use of a file in stateDir, and removes the file, if no run holds it.
func ifUnused(file string, end func(*os.File) error) error {
	l, err := lockfile.Try(statePath(file))
	var used *lockfile.HeldError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &used) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := end(l.File()); err != nil {
		return errors.Join(err, l.Unlock())
	}
	return l.Remove()
}
