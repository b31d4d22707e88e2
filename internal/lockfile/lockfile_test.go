// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func take(t *testing.T, path string) *Lock {
	t.Helper()
	l, err := Take(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestAnotherWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := take(t, path)
	second := make(chan *Lock)
	go func() {
		l, err := Take(t.Context(), path)
		if err != nil {
			t.Error(err)
		}
		second <- l
	}()
	select {
	case <-second:
		t.Fatal("two have the lock")
	case <-time.After(4 * poll):
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	_ = (<-second).Unlock()
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	defer func(l *Lock) { _ = l.Unlock() }(take(t, path))
	reason := errors.New("the user has had enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(3*poll, func() { cancel(reason) })
	for name, wait := range map[string]func(context.Context, string) (*Lock, error){"Take": Take, "Share": Share} {
		_, err := wait(ctx, path)
		var held *HeldError
		if !errors.As(err, &held) || !errors.Is(err, reason) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The holder is another process, which the error names.
func TestTheHolderIsNamed(t *testing.T) {
	if path := os.Getenv("LOCKFILE_HOLD"); path != "" {
		l := take(t, path)
		fmt.Println("held")
		time.Sleep(time.Minute)
		_ = l.Unlock()
	}
	path := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0], "-test.run=^TestTheHolderIsNamed$")
	cmd.Env = append(os.Environ(), "LOCKFILE_HOLD="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	if _, err := out.Read(make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	_, err = Try(path)
	want := fmt.Sprintf("process %d (%s -test.run=", cmd.Process.Pid, filepath.Base(os.Args[0]))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one with %q", err, want)
	}
	// The kernel drops the lock with the process.
	_ = cmd.Process.Kill()
	_ = take(t, path).Unlock()
}

func TestShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Share(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Share(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Unlock()
	var held *HeldError
	if _, err := Try(path); !errors.As(err, &held) {
		t.Errorf("taken while it is shared: %v", err)
	}
	_ = second.Unlock()
	_ = take(t, path).Unlock()
}

// A lock on a file that its former holder has removed must not count: others lock the next file.
func TestARemovedFileDoesNotCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := take(t, path)
	next := make(chan *Lock)
	go func() {
		l, err := Take(t.Context(), path)
		if err != nil {
			t.Error(err)
		}
		next <- l
	}()
	time.Sleep(2 * poll)
	if err := first.Remove(); err != nil {
		t.Fatal(err)
	}
	l := <-next
	defer func() { _ = l.Unlock() }()
	opened, err := l.File().Stat()
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.Stat(path)
	if err != nil || !os.SameFile(opened, there) {
		t.Errorf("the lock is on a file that is not there any more (%v)", err)
	}
}

func TestWhetherThereIsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if _, err := Try(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Try without a file: %v", err)
	}
	l, err := Make(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Unlock() }()
	if _, err := Make(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Make with a file: %v", err)
	}
}

// Whoever can open a file can lock it. So only the owner may, even if an older mpcc has made the file open to all.
func TestOnlyTheOwnerMayOpen(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "new"), old} {
		defer func(l *Lock) { _ = l.Unlock() }(take(t, path))
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v (%v), want 0600", path, st.Mode(), err)
		}
	}
}
