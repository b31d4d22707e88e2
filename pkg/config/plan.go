// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/use"
)

// Op is what is done to a setting.
type Op string

// What is done.
const (
	Add    Op = "add"
	Update Op = "update"
	Remove Op = "remove"
)

// Change is one difference between what is and what is declared.
type Change struct {
	Op    Op     `json:"op"`
	Kind  string `json:"kind"` // algorithm, small_pieces, default, energy, path, route, rule, limits, endpoint or use
	Name  string `json:"name"` // such as "endpoint 10.0.1.1"
	Netns string `json:"netns,omitempty"`
	From  string `json:"from,omitempty"` // what it is
	To    string `json:"to,omitempty"`   // what it becomes
}

// String returns the change in a line such as "~ limits: subflows 2, add_addr_accepted 0 -> subflows 4, add_addr_accepted 2".
func (c Change) String() string {
	text := map[Op]string{Add: "+ ", Update: "~ ", Remove: "- "}[c.Op] + c.Name
	if c.Netns != "" {
		text += " in " + c.Netns
	}
	switch {
	case c.Op == Add && c.To != "":
		text += ": " + c.To
	case c.Op == Update:
		text += ": " + cmp.Or(c.From, "default") + " -> " + cmp.Or(c.To, "default")
	}
	return text
}

// Plan is what has to be changed to make the machine what is declared, in the order in which Apply does it.
type Plan struct {
	Changes []Change
	moves   []move
	state   state // before
}

// move is a change, of one thing into another.
type move struct {
	was, to thing // was is nil for what is new, to for what goes away
}

func (m move) id() id {
	if m.to != nil {
		return m.to.id()
	}
	return m.was.id()
}

func (m move) change() Change {
	i := m.id()
	c := Change{Kind: i.kind, Netns: i.netns}
	switch {
	case m.was == nil:
		c.Op, c.Name, c.To = Add, m.to.name(), m.to.value()
	case m.to == nil:
		c.Op, c.Name, c.From = Remove, m.was.name(), m.was.value()
	default:
		c.Op, c.Name, c.From, c.To = Update, m.to.name(), m.was.value(), m.to.value()
	}
	return c
}

func rank(kind string) int {
	for i, k := range kinds {
		if k.name == kind {
			return i
		}
	}
	return -1
}

// remade tells whether an endpoint has to be removed before it is made again.
func (m move) remade() bool {
	from, isEndpoint := m.was.(endpoint)
	if !isEndpoint || m.to == nil {
		return false
	}
	return !m.to.(endpoint).stays(from)
}

// order returns where a move comes: what is put in the order of kinds, then what goes away in the opposite one. But
// endpoints go before others come, for which there may else be neither room nor id.
func (m move) order() int {
	at := rank(m.id().kind)
	if m.to == nil && m.id().kind != kindEndpoint {
		return 2*len(kinds) - at
	}
	return at
}

func (m move) do(ctx context.Context) error {
	switch {
	case m.to == nil:
		return m.was.drop(ctx)
	case m.remade():
		return m.to.put(ctx, nil) // it was dropped before
	}
	return m.to.put(ctx, m.was)
}

// newPlan returns the moves in their order.
func newPlan(s state, moves []move) *Plan {
	p := &Plan{moves: moves, state: s}
	slices.SortStableFunc(p.moves, func(a, b move) int {
		removal := func(m move) int {
			if m.to == nil {
				return 0
			}
			return 1
		}
		// The kernel gives an endpoint without an id the first one that is free.
		anyID := func(m move) int {
			if e, ok := m.to.(endpoint); ok && e.ID == 0 {
				return 1
			}
			return 0
		}
		i, j := a.id(), b.id()
		return cmp.Or(cmp.Compare(a.order(), b.order()), removal(a)-removal(b), anyID(a)-anyID(b),
			strings.Compare(i.netns, j.netns), strings.Compare(i.key, j.key))
	})
	for _, m := range p.moves {
		p.Changes = append(p.Changes, m.change())
	}
	return p
}

// Plan returns what has to be changed to make the machine what is declared, and changes nothing. It is an error if the
// machine lacks what is named, such as a network namespace.
func (c *Config) Plan(ctx context.Context) (*Plan, error) {
	if err := checkRights(); err != nil {
		return nil, err
	}
	s, err := readState()
	if err != nil {
		return nil, err
	}
	declared := c.things()
	m, err := read(ctx, slices.Concat(declared, s.Owned, s.Before))
	if err != nil {
		return nil, err
	}
	if err := c.checkMachine(m, declared); err != nil {
		return nil, err
	}
	return newPlan(s, difference(declared, m, s)), nil
}

// checkMachine returns an error if there is no way to what is declared from here.
func (c *Config) checkMachine(m *machine, declared []thing) error {
	for _, t := range declared {
		if name := t.id().netns; name != "" {
			if _, there := m.netns[name]; !there {
				return fmt.Errorf("%s: there is no network namespace %q; ip netns list shows them", t.name(), name)
			}
		}
	}
	if c.MaxSubflows == 0 {
		return nil
	}
	room, err := loader.MapCapacity()
	if errors.Is(err, loader.ErrNotLoaded) {
		return nil
	}
	if err == nil && room.Subflows != c.MaxSubflows {
		err = fmt.Errorf("max_subflows is %d, and the maps that are there have room for %d; mpcc unload --all removes them", c.MaxSubflows, room.Subflows)
	}
	return err
}

// difference returns the moves from what is there to what is declared.
func difference(declared []thing, m *machine, s state) []move {
	wanted := slices.Clone(list(declared))
	for _, t := range s.Before {
		if _, there := m.netns[t.id().netns]; there && wanted.find(t) == nil {
			wanted = append(wanted, t)
		}
	}
	var moves []move
	for _, t := range unique(wanted) {
		t = yielding(t, m, wanted)
		if was := m.find(t); was == nil || !t.fits(was) {
			moves = append(moves, move{was, t})
		}
	}
	gone := map[id]bool{}
	for _, t := range s.Owned {
		if was := m.find(t); was != nil && wanted.find(t) == nil && t.id().kind != kindLimits {
			moves, gone[t.id()] = append(moves, move{was, nil}), true
		}
	}
	// With an algorithm goes what uses it, whoever has set that.
	for _, t := range m.things {
		if name, ok := runs(t); ok && gone[name] && !gone[t.id()] && wanted.find(t) == nil {
			moves, gone[t.id()] = append(moves, move{t, nil}), true
		}
	}
	return moves
}

// yielding has an endpoint for which no id is declared give up the one it has, where that is declared for another.
func yielding(t thing, m *machine, wanted list) thing {
	e, isEndpoint := t.(endpoint)
	there, is := m.find(t).(endpoint)
	if !isEndpoint || !is || e.ID != 0 {
		return t
	}
	e.yields = slices.ContainsFunc(wanted, func(o thing) bool {
		other, ok := o.(endpoint)
		return ok && other.Netns == e.Netns && other.ID == there.ID
	})
	return e
}

// unique leaves one of things that are declared several times.
func unique(all list) (once list) {
	for _, t := range all {
		if once.find(t) == nil {
			once = append(once, t)
		}
	}
	return once
}

// runs returns the algorithm that a default or a cgroup runs.
func runs(t thing) (of id, ok bool) {
	switch t := t.(type) {
	case standard:
		return id{kind: kindAlgorithm, key: string(t.Kind) + "/" + t.value()}, true
	case inUse:
		return id{kind: kindAlgorithm, key: string(catalog.CC) + "/" + t.value()}, t.What != use.Multipath
	}
	return id{}, false
}

// carryOut makes the changes one after the other, and calls done after each.
func (p *Plan) carryOut(ctx context.Context, done func(Change)) error {
	dropped := false
	for i, m := range p.moves {
		err := context.Cause(ctx)
		if err == nil && m.id().kind == kindEndpoint && m.to != nil && !dropped {
			dropped = true
			err = p.dropRemade(ctx)
		}
		if err == nil {
			err = m.do(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w (%s)", m.change().Name, err, made(i, len(p.moves)))
		}
		if done != nil {
			done(p.Changes[i])
		}
	}
	return nil
}

// dropRemade removes all endpoints that are to be made anew: they may be after each other's ids.
func (p *Plan) dropRemade(ctx context.Context) error {
	for _, m := range p.moves {
		if m.remade() {
			if err := m.was.drop(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func made(n, of int) string {
	switch n {
	case 0:
		return "nothing was changed before"
	case 1:
		return fmt.Sprintf("1 change of %d was made before", of)
	}
	return fmt.Sprintf("%d changes of %d were made before", n, of)
}
