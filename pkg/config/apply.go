// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mpcc/mpcc/loader"
)

// Options of Apply.
type Options struct {
	Done func(Change) // called after each change
	// Confirm has the changes be undone after this time, unless Confirm is called meanwhile. Guard then has to start a
	// process that calls Guard, and to return once Guard has called ready.
	Confirm time.Duration
	Guard   func() error
}

// ErrNotConfirmed is wrapped where the configuration is one that was applied to be confirmed, and was not.
var ErrNotConfirmed = errors.New("it was applied with --confirm, and not confirmed")

// Apply makes the machine what is declared, and returns what that took. It stops at the first error, which tells how far
// it has come. A process that is killed in between leaves what the next Apply goes on from.
//
// A configuration that was not confirmed is refused until it is applied with Options.Confirm again. On a machine that has
// been restarted since then, what was applied before it is applied instead.
func (c *Config) Apply(ctx context.Context, o Options) (*Plan, error) {
	unlock, err := lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	held, err := readPending()
	if err != nil {
		return nil, err
	}
	if held != nil && !held.Back {
		return nil, fmt.Errorf("the changes of %s wait to be confirmed: say mpcc confirm, or wait until they are undone", held.clock())
	}
	if held != nil && held.Text == string(c.yaml()) && o.Confirm == 0 {
		return c.refuse(ctx, held, o)
	}
	p, err := c.Plan(ctx)
	if err != nil {
		return nil, err
	}
	if o.Confirm > 0 && len(p.moves) > 0 {
		return p, c.applyHeld(ctx, p, o)
	}
	if err := c.apply(ctx, p, o); err != nil {
		return p, err
	}
	return p, forget()
}

// refuse applies, once the machine has been restarted, what was applied before.
func (c *Config) refuse(ctx context.Context, held *pending, o Options) (*Plan, error) {
	refused := fmt.Errorf("%w; what was before is in place: apply it with --confirm again, or change it", ErrNotConfirmed)
	boot, err := bootID()
	if err != nil || boot == held.Boot {
		return &Plan{}, errors.Join(refused, err)
	}
	before, err := Parse("the configuration of before", []byte(held.Before.Text))
	if err != nil {
		return nil, err
	}
	p, err := before.Plan(ctx)
	if err == nil {
		err = before.apply(ctx, p, o)
	}
	if err != nil {
		return p, fmt.Errorf("%w; what was before: %w", ErrNotConfirmed, err)
	}
	return p, refused
}

// yaml returns the text that is noted of the configuration.
func (c *Config) yaml() []byte {
	if c.text != nil {
		return c.text
	}
	return c.YAML()
}

// apply carries a plan out. It notes what it is about to set before it does.
func (c *Config) apply(ctx context.Context, p *Plan, o Options) error {
	s := p.state
	for _, m := range p.moves {
		if m.to == nil || s.Owned.find(m.to) != nil {
			continue
		}
		s.Owned = append(s.Owned, m.to)
		if m.was != nil {
			s.Before = append(s.Before, m.was)
		}
	}
	if err := s.write(); err != nil {
		return err
	}
	if err := p.carryOut(ctx, o.Done); err != nil {
		return err
	}
	// An earlier one may have been killed while it unloaded something.
	if err := loader.Sweep(ctx); err != nil {
		return err
	}
	// What is not declared any more has gone, or belongs to somebody else again.
	declared := list(c.things())
	s = state{Owned: s.Owned.of(declared), Before: s.Before.of(declared), Text: string(c.yaml())}
	if len(declared) == 0 {
		s.Text = ""
	}
	return s.write()
}

// of returns those that are also in another list.
func (l list) of(other list) (both list) {
	for _, t := range l {
		if other.find(t) != nil {
			both = append(both, t)
		}
	}
	return both
}
