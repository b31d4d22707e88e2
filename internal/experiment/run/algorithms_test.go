// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/lockfile"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/test/loaded"
	"github.com/mpcc/mpcc/test/nobody"
)

// Runs wait for each other only until their contexts end.
func TestWaitForOtherRuns(t *testing.T) {
	unlock, err := lockState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	for name, wait := range map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error { _, err := acquire(ctx, nil); return err },
		"Clean":   func(ctx context.Context) error { _, err := Clean(ctx); return err },
	} {
		reason := errors.New("the user has had enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, reason)
		defer cancel()
		err := wait(ctx)
		var held *lockfile.HeldError
		if !errors.As(err, &held) || !errors.Is(err, reason) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// After an interrupt algorithms are unloaded, too, unless another run holds the lock for long.
func TestReleaseAfterInterrupt(t *testing.T) {
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	unlock, err := lockState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	err = (&algorithms{}).release(interrupted)
	var held *lockfile.HeldError
	if took := time.Since(start); !errors.As(err, &held) || took < releaseWait {
		t.Errorf("after %v: %v", took, err)
	}
	unlock()
	if err := (&algorithms{}).release(interrupted); err != nil {
		t.Error(err)
	}
}

// What another process loads while a run waits to remove the maps stays.
func TestReleaseLeavesAnotherLoad(t *testing.T) {
	loaded.DTS(t, nil) // which makes the maps
	unlockState, err := lockState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(statePath(fresh), nil, 0o644)
	unlockState()
	if err != nil {
		t.Fatal(err)
	}
	const loaders = "/run/mpcc/lock"
	lock, err := lockfile.Take(t.Context(), loaders)
	if err != nil {
		t.Fatal(err)
	}
	dts, beside := pins+"/cc/dts", pins+"/beside"
	if err := os.Rename(dts, beside); err != nil { // nothing is loaded, as it seems
		t.Fatal(err)
	}
	opened := watch(t, loaders)
	ended := make(chan error)
	go func() { ended <- (&algorithms{}).release(t.Context()) }()
	opened()
	if err := os.Rename(beside, dts); err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dts); err != nil {
		t.Errorf("another's load is gone: %v", err)
	}
}

// watch returns what waits until a file is opened from now on.
func watch(t *testing.T, path string) (wait func()) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		defer unix.Close(fd)
		if _, err := unix.Read(fd, make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
	}
}

// What the user has loaded is used if it runs what the run wants, and refused if not: also where the scenario sets nothing.
func TestLoadedByTheUser(t *testing.T) {
	dts := loaded.DTS(t, map[string]string{"min_cwnd": "1"})
	for _, c := range []struct {
		set  map[string]string
		want string
	}{
		{map[string]string{"min_cwnd": "1"}, ""},
		{nil, "dts is loaded already, with min_cwnd=1 where the scenario has 2: say mpcc unload dts, then the run loads it"},
		{map[string]string{"min_cwnd": "1", "plain": "own"}, "dts is loaded already, with plain=kernel where the scenario has own"},
	} {
		a, err := acquire(t.Context(), []algorithm{{dts, c.set}})
		if err == nil {
			err = a.release(t.Context())
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("with %v: error %v, want %q", c.set, err, c.want)
		}
	}
	// The user's are those of the first point, not of the second.
	if a, err := acquire(t.Context(), []algorithm{{dts, map[string]string{"min_cwnd": "1"}}, {dts, map[string]string{"min_cwnd": "3"}}}); err == nil {
		t.Errorf("a sweep of tunables goes on with what the user has loaded: %v", a.release(t.Context()))
	}
	if _, err := loader.Running(dts); err != nil {
		t.Errorf("after that the user's is gone: %v", err)
	}
}

func TestLocksAreNotForNobody(t *testing.T) {
	unlock, err := lockState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	nobody.CannotLock(t, statePath(guard))

	const file = "test" // as an algorithm has one
	a := &algorithms{held: map[string]*lockfile.Lock{}}
	if err := a.share(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	nobody.CannotLock(t, statePath(file))
	if err := ifUnused(file, func(*os.File) error { return errors.New("it is used") }); err != nil {
		t.Error(err)
	}
	if err := a.held[file].Unlock(); err != nil {
		t.Fatal(err)
	}
	ended := false
	if err := ifUnused(file, func(*os.File) error { ended = true; return nil }); err != nil || !ended {
		t.Errorf("nobody uses the file; ended: %v, %v", ended, err)
	}
	if _, err := os.Stat(statePath(file)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}
