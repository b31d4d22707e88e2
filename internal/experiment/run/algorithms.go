// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/lockfile"
	"github.com/mpcc/mpcc/internal/pieces"
	"github.com/mpcc/mpcc/loader"
)

// stateDir has the files named below, and one for each algorithm that a run has loaded: made before the
// algorithm is loaded, and removed after it is unloaded. It says which tunables were set. All runs that use the
// algorithm share a lock on its file, which the kernel drops when a run dies. Whoever gets that lock alone may
// unload the algorithm, or switch it to other tunables.
const stateDir = "/run/mpcc/run"

const (
	// guard is locked by whoever loads or unloads.
	guard = "lock"
	// fresh says that there were no pins of mpcc before the first run: the last one removes all of them.
	fresh = "fresh"
	// small says that runs use packet schedulers, and so want small pieces. They share a lock on it, as with an
	// algorithm's file.
	small = "pieces"
)

// piecesUser is what package pieces knows the runs by, all together.
const piecesUser = "run"

// pins is the folder in which the loader pins everything.
const pins = "/sys/fs/bpf/mpcc"

func statePath(file string) string { return filepath.Join(stateDir, file) }

// stateFile returns the name of an algorithm's file in stateDir.
func stateFile(e catalog.Entry) string { return strings.ReplaceAll(e.ID(), "/", "-") }

// algorithm is one that a run uses, and what its tunables are set to.
type algorithm struct {
	catalog.Entry
	set map[string]string
}

// settings are the tunables as the algorithm's file has them.
func (w algorithm) settings() string {
	var all []string
	for name, value := range w.set {
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// algorithms are those that a run uses and that it, or another run, has loaded.
type algorithms struct {
	held map[string]*lockfile.Lock // by file in stateDir
}

// acquire loads what is not loaded yet. What is loaded, but not by a run, is the user's: it is left as it is,
// also by release.
func acquire(ctx context.Context, wanted []algorithm) (*algorithms, error) {
	unlock, err := lockState(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := sweepAlgorithms(ctx); err != nil {
		return nil, err
	}
	if _, err := os.Stat(pins); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(statePath(fresh), nil, 0o644); err != nil {
			return nil, err
		}
	}
	a := &algorithms{held: map[string]*lockfile.Lock{}}
	if err := a.load(ctx, wanted); err != nil {
		return nil, errors.Join(err, a.drop(context.WithoutCancel(ctx)))
	}
	return a, nil
}

func (a *algorithms) load(ctx context.Context, wanted []algorithm) error {
	loaded, err := loader.Loaded()
	if err != nil {
		return err
	}
	for _, w := range wanted {
		file := stateFile(w.Entry)
		if a.held[file] != nil {
			continue
		}
		_, byRun := os.Stat(statePath(file))
		there := slices.ContainsFunc(loaded, func(l catalog.Entry) bool { return l.ID() == w.ID() })
		if there && byRun != nil { // it is the user's
			if err := w.runs(); err != nil {
				return err
			}
			continue
		}
		if err := a.share(ctx, file); err != nil {
			return err
		}
		if there {
			if err := a.agrees(w); err != nil {
				return err
			}
			continue
		}
		if err := write(a.held[file], w.settings()); err != nil {
			return err
		}
		if _, err := loader.Load(ctx, w.Entry, loader.Options{Set: w.set}); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(wanted, func(w algorithm) bool { return w.Kind == catalog.Sched }) {
		return a.cutSmall(ctx)
	}
	return nil
}

// agrees returns an error if the algorithm, which is loaded, has other tunables.
func (a *algorithms) agrees(w algorithm) error {
	text, err := os.ReadFile(statePath(stateFile(w.Entry)))
	if err != nil {
		return err
	}
	if now := string(text); now != w.settings() {
		return fmt.Errorf("another run has loaded %s with %s, this one wants %s: wait until it has ended",
			w, tunablesIn(now), tunablesIn(w.settings()))
	}
	return nil
}

// runs returns an error if what the user has loaded runs other tunables than the algorithm is to have.
func (w algorithm) runs() error {
	now, err := loader.Running(w.Entry)
	if err != nil {
		return err
	}
	want, err := loader.Values(w.Entry, w.set)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if now[name] != want[name] {
			return fmt.Errorf("%s is loaded already, with %s=%s where the scenario has %s: say mpcc unload %[1]s, then the run loads it",
				w, name, cmp.Or(now[name], "?"), want[name])
		}
	}
	return nil
}

// tunablesIn names settings, in an error.
func tunablesIn(settings string) string { return cmp.Or(settings, "the default tunables") }

// write makes text all that the locked file holds.
func write(l *lockfile.Lock, text string) error {
	if err := l.File().Truncate(0); err != nil {
		return err
	}
	_, err := l.File().WriteAt([]byte(text), 0)
	return err
}

// adopt switches those algorithms, all of them acquired, that have other tunables than wanted.
func (a *algorithms) adopt(ctx context.Context, wanted []algorithm) error {
	for _, w := range wanted {
		file := stateFile(w.Entry)
		if a.held[file] == nil || a.agrees(w) == nil {
			continue
		}
		if err := a.change(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func (a *algorithms) change(ctx context.Context, w algorithm) (err error) {
	unlock, err := lockState(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	file := stateFile(w.Entry)
	if err := a.held[file].Unlock(); err != nil {
		return err
	}
	// Nobody else unloads it meanwhile: that takes the guard.
	defer func() { err = errors.Join(err, a.share(ctx, file)) }()
	alone, err := lockfile.Try(statePath(file))
	var used *lockfile.HeldError
	if errors.As(err, &used) {
		return a.agrees(w)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, alone.Unlock()) }()
	if err := loader.Switch(ctx, w.Entry, loader.SwitchOptions{Set: w.set}); err != nil {
		return err
	}
	return write(alone, w.settings())
}

// share shares the lock on a file of stateDir, which it makes if need be, until drop.
func (a *algorithms) share(ctx context.Context, file string) (err error) {
	a.held[file], err = lockfile.Share(ctx, statePath(file))
	if err != nil {
		delete(a.held, file)
	}
	return err
}

// cutSmall has MPTCP hand data over in small pieces.
func (a *algorithms) cutSmall(ctx context.Context) error {
	if err := a.share(ctx, small); err != nil {
		return err
	}
	return pieces.Cut(ctx, piecesUser)
}

// releaseWait is how long a run that was interrupted waits for another one that loads or unloads.
const releaseWait = 3 * time.Second

// release unloads what no other run uses. It does so after an interrupt too, but then does not wait long.
func (a *algorithms) release(ctx context.Context) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), releaseWait,
			errors.New("mpcc run --clean unloads what this run had loaded"))
		defer cancel()
	}
	unlock, err := lockState(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return a.drop(ctx)
}

// drop is release for one who has the guard.
func (a *algorithms) drop(ctx context.Context) (err error) {
	for _, l := range a.held {
		err = errors.Join(err, l.Unlock())
	}
	a.held = nil
	return errors.Join(err, sweepAlgorithms(ctx))
}

// lockState takes the guard, so that no other run loads or unloads anything until unlock.
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

// sweepAlgorithms unloads what runs have loaded and no run uses any more, and sets back what they set.
func sweepAlgorithms(ctx context.Context) error {
	if err := ifUnused(small, func(*os.File) error { return pieces.Restore(ctx, piecesUser) }); err != nil {
		return err
	}
	used := false
	for _, e := range catalog.Entries {
		err := ifUnused(stateFile(e), func(*os.File) error {
			if _, err := loader.Unload(ctx, e); err != nil && !errors.Is(err, loader.ErrNotLoaded) {
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
	return sweepMaps(ctx)
}

// sweepMaps removes the pinned maps if there were none before the first run, and nothing is loaded.
func sweepMaps(ctx context.Context) error {
	if _, err := os.Stat(statePath(fresh)); err != nil {
		return nil
	}
	if _, err := os.Stat(pins); err == nil {
		if err := loader.RemoveIdleMaps(ctx); err != nil {
			return err
		}
	}
	return os.Remove(statePath(fresh))
}

// ifUnused calls end with a file of stateDir and then removes it, if it is there and no run shares its lock.
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
