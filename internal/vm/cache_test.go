// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/lockfile"
	"github.com/mpcc/mpcc/test/nobody"
)

// newCache is an empty cache that a user could look into.
func newCache(t *testing.T) cache {
	t.Helper()
	dir := t.TempDir()
	c := cache{filepath.Join(dir, "cache"), func(string) {}}
	err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.MkdirAll(c.path(workFolder), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCacheEntry(t *testing.T) {
	c := newCache(t)
	built := 0
	entry := func(recipe string, refresh bool, fail error) (string, error) {
		return c.entry("thing", recipe, refresh, func(dir string) error {
			built++
			return errors.Join(os.WriteFile(filepath.Join(dir, "f"), []byte(recipe), 0o644), fail)
		})
	}
	for _, step := range []struct {
		recipe  string
		refresh bool
		fail    error
		built   int
		content string
	}{
		{"one", false, errors.New("killed half way"), 1, ""},
		{"one", false, nil, 2, "one"},
		{"one", false, nil, 2, "one"},
		{"one", true, nil, 3, "one"},
		{"two", false, errors.New("killed half way"), 4, "one"}, // the old one is not lost
		{"two", false, nil, 5, "two"},
	} {
		_, err := entry(step.recipe, step.refresh, step.fail)
		if (err != nil) != (step.fail != nil) {
			t.Fatalf("%+v: error %v", step, err)
		}
		content, _ := os.ReadFile(c.path("thing/f"))
		if built != step.built || string(content) != step.content {
			t.Fatalf("%+v: built %d times, holds %q", step, built, content)
		}
	}
	left, err := os.ReadDir(c.path(workFolder))
	if len(left) != 0 || err != nil {
		t.Errorf("left in work: %v, %v", left, err)
	}
}

// Folders of killed owners are removed, those of living ones stay.
func TestScratchSweep(t *testing.T) {
	c := newCache(t)
	for _, dead := range []string{"work/dead/sub", "work/locked"} {
		if err := os.MkdirAll(c.path(dead), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(c.path("work/locked/lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	alive, remove, err := c.scratch()
	if err != nil {
		t.Fatal(err)
	}
	for _, dead := range []string{"work/dead", "work/locked"} {
		if _, err := os.Stat(c.path(dead)); err == nil {
			t.Errorf("%s, of a dead owner, is still there", dead)
		}
	}
	_, removeOther, err := c.scratch()
	if err != nil {
		t.Fatal(err)
	}
	removeOther()
	if _, err := os.Stat(alive); err != nil {
		t.Error("the folder of a living owner was swept away")
	}
	remove()
	if _, err := os.Stat(alive); err == nil {
		t.Error("remove left the folder behind")
	}
}

// A wait for the cache says which process holds it, and ends with its context.
func TestCacheLock(t *testing.T) {
	c := newCache(t)
	var said []string
	c.say = func(stage string) { said = append(said, stage) }
	unlock, err := c.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if said != nil {
		t.Errorf("alone, it said %q", said)
	}
	reason := errors.New("the user has had enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, reason)
	defer cancel()
	_, err = c.lock(ctx)
	var held *lockfile.HeldError
	if !errors.As(err, &held) || !errors.Is(err, reason) {
		t.Errorf("waited until %v", err)
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "waiting: "+c.path("lock")+" is held by process ") {
		t.Errorf("waiting, it said %q", said)
	}
	unlock()
	nobody.CannotLock(t, c.path("lock"))

	dir, remove, err := c.scratch()
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	nobody.CannotLock(t, filepath.Join(dir, "lock"))
}

// A command lives on when the thread that started it would have ended.
func TestCommandOutlivesItsThread(t *testing.T) {
	var printed []byte
	err := stream(command(t.Context(), "sh", "-c", "sleep 0.5; echo alive"), func(r io.Reader) (err error) {
		go endIdleThreads()
		printed, err = io.ReadAll(r)
		return err
	})
	if err != nil || string(printed) != "alive\n" {
		t.Errorf("it printed %q, %v", printed, err)
	}
}

// The first thread of a process never ends: the test above must not run on it.
func init() { runtime.LockOSThread() }

// endIdleThreads ends all threads of this process that no goroutine holds.
func endIdleThreads() {
	const threads = 64 // more than there are
	var locked sync.WaitGroup
	locked.Add(threads)
	all := make(chan struct{})
	for range threads {
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
			locked.Done()
			<-all
		}()
	}
	locked.Wait()
	close(all)
}

// mmdebstrap, when it fails while it writes, sends SIGHUP to its process group.
func TestFailureOfMmdebstrapHitsNobodyElse(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "mmdebstrap"), []byte("#!/bin/sh\nkill -HUP 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	// A signal with a handler is not ignored in children, even if whoever runs the tests ignores it, as nohup does.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("MPCC_DEBIAN_MIRROR", "http://mirror.invalid/debian")
	cmd, err := debootstrap(t.Context(), t.TempDir(), hostArch, "tar", "-", []string{rootfsSuite}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := output(cmd); err == nil || !strings.Contains(err.Error(), "hangup") {
		t.Errorf("it fails with %v, not with a hangup", err)
	}
	signal.Stop(hangups)
	if len(hangups) > 0 {
		t.Error("the tests have the hangup too")
	}
}

// What fails for a moment is built again; what goes on failing is an error, the last one.
func TestDownloadTriesAgain(t *testing.T) {
	c := newCache(t)
	for _, failures := range []int{0, 2, 3} {
		built := 0
		err := c.download(t.Context(), "building a thing", func() error {
			if built++; built <= failures {
				return fmt.Errorf("failure %d", built)
			}
			return nil
		})
		if failed := failures >= 3; (err != nil) != failed || built != min(failures+1, 3) {
			t.Errorf("with %d failures it is built %d times: %v", failures, built, err)
		}
	}
}
