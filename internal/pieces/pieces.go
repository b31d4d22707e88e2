// SPDX-License-Identifier: Apache-2.0

// Package pieces sets how large the pieces are in which MPTCP hands data to the subflow that a packet scheduler
// chose. A piece is what the kernel allocates at a time for content: 32 KB, some 20 packets, or one page of memory
// while net.core.high_order_alloc_disable is 1. Schedulers are meant to choose for each packet. The setting is one
// for the whole machine, and for TCP too.
package pieces

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

	"github.com/mpcc/mpcc/internal/lockfile"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/internal/sysctl"
)

const (
	setting = "/proc/sys/net/core/high_order_alloc_disable"
	// record has the setting's former value, and then who wants small pieces, each a word.
	record = "/run/mpcc/pieces"
	large  = 32 << 10
)

// Bytes returns the size of a piece at present.
func Bytes() (int, error) {
	value, err := read()
	switch {
	case err != nil:
		return 0, err
	case value != "0":
		return os.Getpagesize(), nil
	}
	return max(large, os.Getpagesize()), nil
}

// Cut makes pieces small until everyone who called it has called Restore. It notes the former setting first: a kill
// in between leaves a note that the next Restore takes away.
func Cut(ctx context.Context, who string) error {
	if _, err := read(); err != nil {
		return err // before anything is made
	}
	if err := os.MkdirAll(filepath.Dir(record), 0o755); err != nil {
		return err
	}
	l, err := lockfile.Take(ctx, record)
	if err != nil {
		return err
	}
	defer func() { _ = l.Unlock() }()
	before, users, err := parse(l.File())
	if err == nil && before == "" {
		before, err = read()
	}
	if err != nil {
		return err
	}
	if !slices.Contains(users, who) {
		users = append(users, who)
	}
	if err := note(l.File(), before, users); err != nil {
		return err
	}
	return write("1")
}

// Restore takes Cut back, and gives the former setting back once nobody wants small pieces any more.
func Restore(ctx context.Context, who string) error {
	if _, err := os.Stat(record); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	l, err := lockfile.Take(ctx, record)
	if err != nil {
		return err
	}
	before, users, err := parse(l.File())
	if err != nil {
		return errors.Join(err, l.Unlock())
	}
	users = slices.DeleteFunc(users, func(user string) bool { return user == who })
	if len(users) > 0 {
		return errors.Join(note(l.File(), before, users), l.Unlock())
	}
	if before != "" {
		if err := write(before); err != nil {
			return errors.Join(err, l.Unlock())
		}
	}
	return l.Remove()
}

// WantedBy reports whether who has called Cut, and not yet Restore.
func WantedBy(who string) (bool, error) {
	f, err := os.Open(record)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	_, users, err := parse(f)
	return slices.Contains(users, who), err
}

func parse(f *os.File) (before string, users []string, err error) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<10))
	line, _, _ := strings.Cut(string(text), "\n") // what follows is left of a longer line before
	if words := strings.Fields(line); len(words) > 0 {
		before, users = words[0], words[1:]
	}
	return before, users, err
}

func note(f *os.File, before string, users []string) error {
	line := strings.Join(append([]string{before}, users...), " ") + "\n"
	if _, err := f.WriteAt([]byte(line), 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(line)))
}

func read() (value string, err error) {
	err = atHome(func() error {
		text, err := os.ReadFile(setting)
		value = strings.TrimSpace(string(text))
		return err
	})
	return value, err
}

func write(value string) error {
	return atHome(func() error { return sysctl.Write(setting, value) })
}

// atHome runs f in the machine's own network namespace, which alone has the setting.
func atHome(f func() error) error {
	err := f()
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	home, err := netns.Machine()
	if err == nil {
		err = home.Do(f)
	}
	if err != nil {
		return fmt.Errorf("net.core.high_order_alloc_disable cannot be had here: %w", err)
	}
	return nil
}
