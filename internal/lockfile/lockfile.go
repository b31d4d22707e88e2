// SPDX-License-Identifier: Apache-2.0

// Package lockfile lets processes wait for each other by locks on files (flock(2)). The kernel drops a lock
// with the process that holds it, however that ends. Only the file's owner may open it: anybody who can
// open a file can lock it, and would keep everybody else waiting.
package lockfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Lock is a lock that is held.
type Lock struct{ file *os.File }

// HeldError says that somebody else holds a lock.
type HeldError struct {
	Path   string
	Holder string // "process 4711 (mpcc load dts)"; "another process" where the kernel does not tell
	Waited time.Duration
	Cause  error // why the wait ended; nil where there was none
}

func (e *HeldError) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("%s is held by %s", e.Path, e.Holder)
	}
	return fmt.Sprintf("%s is held by %s; waited %s for it: %v", e.Path, e.Holder, e.Waited.Round(time.Second), e.Cause)
}

func (e *HeldError) Unwrap() error { return e.Cause }

// poll is the time between two tries: a wait inside flock(2) would not end with the context.
const poll = 50 * time.Millisecond

// Take makes the file at path if need be and waits until it has its lock alone. The error is a *HeldError
// if ctx ends first.
func Take(ctx context.Context, path string) (*Lock, error) { return wait(ctx, path, unix.LOCK_EX) }

// Share is Take for a lock that several may hold, if each of them shares it.
func Share(ctx context.Context, path string) (*Lock, error) { return wait(ctx, path, unix.LOCK_SH) }

// Try takes the lock alone if nobody has it, and returns a *HeldError otherwise. It does not make the
// file: the error is fs.ErrNotExist where there is none.
func Try(path string) (*Lock, error) { return try(path, os.O_RDWR, unix.LOCK_EX) }

// Make is Try for a file that is not there yet: fs.ErrExist where it is.
func Make(path string) (*Lock, error) {
	return try(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, unix.LOCK_EX)
}

// File is the locked file, for those that keep something in it.
func (l *Lock) File() *os.File { return l.file }

// Unlock lets go of the lock; the file stays.
func (l *Lock) Unlock() error { return l.file.Close() }

// Remove removes the file, then lets go of the lock.
func (l *Lock) Remove() error { return errors.Join(os.Remove(l.file.Name()), l.file.Close()) }

func wait(ctx context.Context, path string, how int) (*Lock, error) {
	start := time.Now()
	for {
		l, err := try(path, os.O_RDWR|os.O_CREATE, how)
		var held *HeldError
		if !errors.As(err, &held) {
			return l, err
		}
		select {
		case <-ctx.Done():
			held.Waited, held.Cause = time.Since(start), context.Cause(ctx)
			return nil, held
		case <-time.After(poll):
		}
	}
}

func try(path string, open, how int) (*Lock, error) {
	for {
		f, err := os.OpenFile(path, open|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		mine, err := lock(f, how)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if mine {
			return &Lock{f}, nil
		}
		// The holder before has removed the file since it was opened here.
		f.Close()
		if open&os.O_EXCL != 0 {
			return nil, &fs.PathError{Op: "lock", Path: path, Err: fs.ErrNotExist}
		}
	}
}

// lock locks an open file. It reports false when that is not the one at its path any more.
func lock(f *os.File, how int) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	for err = unix.EINTR; err == unix.EINTR; { // signals of the Go runtime cut it short
		err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	}
	if err == unix.EWOULDBLOCK {
		return false, &HeldError{Path: f.Name(), Holder: holder(opened)}
	}
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if opened.Mode().Perm() != 0o600 { // made by an earlier version of mpcc
		if err := f.Chmod(0o600); err != nil {
			return false, err
		}
	}
	there, err := os.Stat(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, there), err
}

// holder names the process that has locked a file, by /proc/locks.
func holder(file fs.FileInfo) string {
	const unknown = "another process"
	st, ok := file.Sys().(*syscall.Stat_t)
	if !ok {
		return unknown
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return unknown
	}
	id := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK  ADVISORY  WRITE 4711 00:19:42 0 EOF
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[5] != id {
			continue
		}
		command, err := os.ReadFile("/proc/" + fields[4] + "/cmdline")
		if err != nil || len(command) == 0 {
			return "process " + fields[4]
		}
		words := strings.Split(strings.TrimRight(string(command), "\x00"), "\x00")
		words[0] = filepath.Base(words[0])
		return fmt.Sprintf("process %s (%s)", fields[4], strings.Join(words, " "))
	}
	return unknown
}
