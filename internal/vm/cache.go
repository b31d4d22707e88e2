// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// cache is the folder that holds what is fetched or built once: kernels, the
// root file system, the verdict on KVM.
//
//	lock        taken by whoever changes the cache
//	ENTRY/      one per kernel, root file system, …; whole or absent
//	tmp/        work in progress, one folder a process, locked while it lives
//	console-*   the console of the last run of each kernel
type cache struct{ dir string }

// openCache finds the cache: a clone of mpcc around the working folder has its
// own (git ignores it), elsewhere the user has one.
func openCache() (cache, error) {
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
	c := cache{dir}
	return c, os.MkdirAll(c.path("tmp"), 0o755)
}

// cloneModule is what the go.mod of a clone begins with.
const cloneModule = "module github.com/mpcc/mpcc\n"

// Clone returns the clone of mpcc that the working folder is in, "" where it is in none.
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

// Scratch makes a temporary folder. One whose owner was killed goes with the next.
func Scratch() (dir string, remove func(), err error) {
	c, err := openCache()
	if err != nil {
		return "", nil, err
	}
	unlock, err := c.lock()
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	return c.scratch()
}

func (c cache) path(name string) string { return filepath.Join(c.dir, name) }

// lock waits until no other process changes the cache.
func (c cache) lock() (unlock func(), err error) {
	f, err := os.OpenFile(c.path("lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := flock(f, syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// flock is flock(2), repeated when a signal of the Go runtime cuts it short.
func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// scratch makes a temporary folder and sweeps away those whose owners were
// killed. Call it with the cache locked.
func (c cache) scratch() (dir string, remove func(), err error) {
	old, err := os.ReadDir(c.path("tmp"))
	if err != nil {
		return "", nil, err
	}
	for _, e := range old {
		dir := c.path(filepath.Join("tmp", e.Name()))
		f, err := os.Open(dir)
		if err != nil {
			continue // its owner is just removing it
		}
		if flock(f, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			err = os.RemoveAll(dir)
		}
		f.Close()
		if err != nil {
			return "", nil, err
		}
	}

	dir, err = os.MkdirTemp(c.path("tmp"), "")
	if err != nil {
		return "", nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	if err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return "", nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return dir, func() { os.RemoveAll(dir); f.Close() }, nil
}

// entry returns the folder called name. When it is absent, was built to
// another recipe, or refresh is set, build fills a new folder, which replaces
// the old one only when it is whole. Call it with the cache locked.
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

// packages are those of Debian that the host needs.
func packages() string {
	_, names, _ := strings.Cut(packageList, "\n") // below a line that says what they are
	return strings.Join(strings.Fields(names), " ")
}

// command is exec.CommandContext for a child that dies with this process.
func command(ctx context.Context, name string, arg ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, arg...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// output runs a command and returns what it prints; its complaint is in the error.
func output(cmd *exec.Cmd) (string, error) {
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	return string(out), explain(cmd, err, complaint.String())
}

// explain says which command failed, why, and how to get one that is missing.
func explain(cmd *exec.Cmd, err error, complaint string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%s is not installed, on Debian: apt install %s", cmd.Args[0], packages())
	}
	return fmt.Errorf("%s: %w: %s", cmd.Args[0], err, strings.TrimSpace(complaint))
}
