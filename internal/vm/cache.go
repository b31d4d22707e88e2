// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/mpcc/mpcc/internal/lockfile"
)

// cache is the folder of what is fetched or built once: kernels, the root file
// system, whether KVM works.
//
//	lock        held by whoever changes the cache
//	ENTRY/      one for each kernel, root file system, …; whole or absent
//	work/*/     temporary folders, each with a lock that its owner holds while it lives
//	console-*   the console of the last run of each kernel, and of each run in trouble
type cache struct {
	dir string
	say func(stage string) // Spec.Stage
}

const workFolder = "work"

// openCache returns the cache: that of the clone of mpcc around the working
// folder (git ignores it) or, elsewhere, the user's.
func openCache(say func(stage string)) (cache, error) {
	if say == nil {
		say = func(string) {}
	}
	root, err := Clone()
	if err != nil {
		return cache{}, err
	}
	dir := filepath.Join(root, ".cache", "vm")
	if root == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return cache{}, err
		}
		dir = filepath.Join(user, "mpcc", "vm")
	}
	c := cache{dir, say}
	return c, os.MkdirAll(c.path(workFolder), 0o755)
}

// cloneModule is what the go.mod of a clone begins with.
const cloneModule = "module github.com/mpcc/mpcc\n"

// Clone returns the root of the clone of mpcc that the working folder is in; "" if
// it is in none.
func Clone() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), cloneModule) {
			return dir, nil
		}
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		return "", nil
	}
}

func (c cache) path(name string) string { return filepath.Join(c.dir, name) }

// lock takes the lock on the cache. It waits until no other process changes it, or
// ctx ends.
func (c cache) lock(ctx context.Context) (unlock func(), err error) {
	l, err := lockfile.Try(c.path("lock"))
	var held *lockfile.HeldError
	if errors.As(err, &held) {
		c.say(fmt.Sprintf("waiting: %v", held))
	}
	if err != nil {
		l, err = lockfile.Take(ctx, c.path("lock"))
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = l.Unlock() }, nil
}

// lockCache opens the cache and takes the lock on it.
func lockCache(ctx context.Context, say func(stage string)) (c cache, unlock func(), err error) {
	if c, err = openCache(say); err != nil {
		return c, nil, err
	}
	unlock, err = c.lock(ctx)
	return c, unlock, err
}

// scratch returns a new temporary folder. It removes those whose owners were
// killed. Call it with the cache locked.
func (c cache) scratch() (dir string, remove func(), err error) {
	old, err := os.ReadDir(c.path(workFolder))
	if err != nil {
		return "", nil, err
	}
	for _, e := range old {
		if err := sweep(c.path(filepath.Join(workFolder, e.Name()))); err != nil {
			return "", nil, err
		}
	}
	dir, err = os.MkdirTemp(c.path(workFolder), "")
	if err != nil {
		return "", nil, err
	}
	l, err := lockfile.Make(filepath.Join(dir, "lock"))
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() { _ = errors.Join(os.RemoveAll(dir), l.Unlock()) }, nil
}

// sweep removes a temporary folder unless its owner lives.
func sweep(dir string) error {
	l, err := lockfile.Try(filepath.Join(dir, "lock"))
	var alive *lockfile.HeldError
	switch {
	case errors.As(err, &alive):
		return nil
	case err == nil:
		return errors.Join(os.RemoveAll(dir), l.Unlock())
	case !errors.Is(err, fs.ErrNotExist): // there is none if the owner was killed while it made or removed the folder
		return err
	}
	return os.RemoveAll(dir)
}

// entry returns the folder called name. If it is absent, was built from another
// recipe, or refresh is set, build fills a new folder, which replaces the old one
// once it is whole. Call it with the cache locked.
func (c cache) entry(name, recipe string, refresh bool, build func(dir string) error) (string, error) {
	dir := c.path(name)
	known, err := os.ReadFile(filepath.Join(dir, "recipe"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err == nil && string(known) == recipe && !refresh {
		return dir, nil
	}

	tmp, remove, err := c.scratch()
	if err != nil {
		return "", err
	}
	defer remove()
	fresh := filepath.Join(tmp, "new")
	if err := os.Mkdir(fresh, 0o755); err != nil {
		return "", err
	}
	if err := build(fresh); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if err := os.WriteFile(filepath.Join(fresh, "recipe"), []byte(recipe), 0o644); err != nil {
		return "", err
	}
	if err := os.Rename(dir, filepath.Join(tmp, "old")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	return dir, os.Rename(fresh, dir)
}

//go:embed packages.txt
var packageList string

// packages returns the Debian packages that the host needs.
func packages() string {
	_, names, _ := strings.Cut(packageList, "\n") // the first line says what they are
	return strings.Join(strings.Fields(names), " ")
}

// command is exec.CommandContext for a child that dies with this process.
func command(ctx context.Context, name string, arg ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, arg...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// output runs a command and returns what it prints. What it says on its standard
// error is in the error.
func output(cmd *exec.Cmd) (text string, err error) {
	err = stream(cmd, func(r io.Reader) error {
		printed, err := io.ReadAll(r)
		text = string(printed)
		return err
	})
	return text, err
}

// stream runs a command and calls read with what it prints. What it says on its
// standard error is in the error.
func stream(cmd *exec.Cmd, read func(io.Reader) error) error {
	// Stay on this thread: Pdeathsig kills the command when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	printed, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return explain(cmd, err, "")
	}
	err = read(printed)
	printed.Close() // so that the command ends if not all of it was read
	return errors.Join(err, explain(cmd, cmd.Wait(), complaint.String()))
}

// explain says which command failed and why, and how to get one that is missing.
func explain(cmd *exec.Cmd, err error, complaint string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%s is not installed, on Debian: apt install %s", cmd.Args[0], packages())
	}
	return fmt.Errorf("%s: %w: %s", cmd.Args[0], err, strings.TrimSpace(complaint))
}
