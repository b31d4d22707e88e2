// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/lockfile"
)

// What waits to be confirmed is on the disk: a machine that is restarted to get it back must not come up with it.
const (
	pendingFile = "/var/lib/mpcc/pending.json"
	guardPath   = runDir + "/guard.lock"
)

// poll is the time between two looks at whether the changes are confirmed.
const poll = 200 * time.Millisecond

// pending is what waits to be confirmed, or was not.
type pending struct {
	ID       string        `json:"id"`
	Text     string        `json:"text"`      // the configuration
	At       time.Time     `json:"at"`        // when it was applied
	Boot     string        `json:"boot"`      // of the machine
	Deadline time.Duration `json:"deadline"`  // by the time since the boot, which no setting of the clock changes
	Was      list          `json:"was"`       // what was changed or removed, as it was
	Added    list          `json:"added"`     // what was added
	Before   state         `json:"before"`    // what had been applied
	Back     bool          `json:"gone_back"` // all that is undone
}

func (h *pending) clock() string { return h.At.Format(time.TimeOnly) }

// over tells whether the time to confirm is.
func (h *pending) over() (bool, error) {
	boot, err := bootID()
	if err != nil {
		return false, err
	}
	now, err := sinceBoot()
	return boot != h.Boot || now >= h.Deadline, err
}

// readPending returns nil where nothing waits.
func readPending() (*pending, error) {
	text, err := os.ReadFile(pendingFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	h := &pending{}
	if err == nil {
		err = json.Unmarshal(text, h)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, the note of what to go back to, cannot be read: %w", pendingFile, err)
	}
	return h, nil
}

func forget() error { return remove(pendingFile) }

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// sinceBoot goes on while the machine sleeps. Tests turn it forward.
var sinceBoot = func() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano()), err
}

// applyHeld carries a plan out that has to be confirmed. What to go back to, and somebody who does, are there before the
// first change.
func (c *Config) applyHeld(ctx context.Context, p *Plan, o Options) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	h := &pending{ID: rand.Text(), Text: string(c.yaml()), At: time.Now(), Boot: boot, Before: p.state}
	for _, m := range p.moves {
		if m.was != nil {
			h.Was = append(h.Was, m.was)
		} else {
			h.Added = append(h.Added, m.to)
		}
	}
	if err := h.extend(o.Confirm); err != nil {
		return err
	}
	if err := o.Guard(); err != nil {
		return errors.Join(err, forget())
	}
	if err := c.apply(ctx, p, o); err != nil {
		if failed := h.goBack(context.WithoutCancel(ctx)); failed != nil {
			return fmt.Errorf("%w; not all of it could be undone: %w", err, failed)
		}
		return errors.Join(fmt.Errorf("%w; that is undone", err), forget())
	}
	return h.extend(o.Confirm) // the time counts from now on
}

func (h *pending) extend(by time.Duration) error {
	now, err := sinceBoot()
	if err != nil {
		return err
	}
	h.Deadline = now + by
	return writeJSON(pendingFile, h)
}

// goBack undoes what was applied. It can be called again after a kill.
func (h *pending) goBack(ctx context.Context) error {
	m, err := read(ctx, append(append(list{}, h.Was...), h.Added...))
	if err != nil {
		return err
	}
	now, err := readState()
	if err != nil {
		return err
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	// A restart has undone it.
	if boot == h.Boot {
		var moves []move
		for _, t := range h.Was {
			if there := m.find(t); there == nil || !t.fits(there) {
				moves = append(moves, move{there, t})
			}
		}
		for _, t := range h.Added {
			if there := m.find(t); there != nil {
				moves = append(moves, move{there, nil})
			}
		}
		if err := newPlan(now, moves).carryOut(ctx, nil); err != nil {
			return err
		}
		if err := h.Before.write(); err != nil {
			return err
		}
	}
	h.Back = true
	return writeJSON(pendingFile, h)
}

// Confirm lets the changes of an Apply with Options.Confirm stay. It is an error if none wait for it.
func Confirm(ctx context.Context) error {
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	h, err := readPending()
	switch {
	case err != nil:
		return err
	case h == nil:
		return errors.New("no changes wait to be confirmed")
	case h.Back:
		return fmt.Errorf("too late: the changes of %s are undone; apply them again", h.clock())
	}
	return forget()
}

// Guard waits until the changes that wait are confirmed, or undoes them when their time is over. It calls ready once it
// looks after them, which nobody else does meanwhile.
func Guard(ctx context.Context, ready func()) error {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	guard, err := lockfile.Take(ctx, guardPath)
	if err != nil {
		return err
	}
	defer func() { _ = guard.Unlock() }()
	first, err := readPending()
	if err != nil || first == nil {
		return err
	}
	ready()
	for {
		h, err := readPending()
		if err != nil || h == nil || h.ID != first.ID || h.Back {
			return err
		}
		if over, err := h.over(); err != nil {
			return err
		} else if over {
			undone, err := undo(ctx, first.ID)
			if err != nil || undone {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

// undo goes back if the time is over indeed: while it waits for the lock, the changes may be confirmed, or only be at
// their end.
func undo(ctx context.Context, of string) (bool, error) {
	unlock, err := lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	h, err := readPending()
	if err != nil || h == nil || h.ID != of || h.Back {
		return false, err
	}
	over, err := h.over()
	if err != nil || !over {
		return false, err
	}
	return true, h.goBack(ctx)
}

// Recover undoes changes whose time is over, where nobody lives who would: the guard was killed, or the machine was
// restarted. It tells when these were applied; "" if there was nothing to do.
func Recover(ctx context.Context) (undone string, err error) {
	h, err := readPending()
	if errors.Is(err, fs.ErrPermission) || err == nil && (h == nil || h.Back) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if over, err := h.over(); err != nil || !over {
		return "", err
	}
	guard, err := lockfile.Try(guardPath)
	if held := (*lockfile.HeldError)(nil); errors.As(err, &held) {
		return "", nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if guard != nil {
		defer func() { _ = guard.Unlock() }()
	}
	done, err := undo(ctx, h.ID)
	if err != nil || !done {
		return "", err
	}
	return cmp.Or(h.clock(), "before"), nil
}
