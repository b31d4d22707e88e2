// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/procfs"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/bpf/obj"
	"github.com/mpcc/mpcc/test/benched"
)

//go:embed cubic.o
var cubicObject []byte

//go:embed empty.o
var emptyObject []byte

// cell is one comparison: controls that take turns under the same conditions.
type cell struct {
	condition string
	timed     bool // the kernel times every callback, which slows callbacks down
	subflows  int
	net       *network
	controls  []string
	rounds    []map[string]sample
}

// sample is what one control did in one round.
type sample struct {
	flow
	cpu       float64          // seconds that all CPUs were busy, unless timed
	callbacks map[string]usage // if timed
}

type bench struct {
	rounds     int
	span       time.Duration
	counts     bool // a nanosecond is an instruction: no figure varies, and none is of a rate
	algorithms map[string]*algorithm
	networks   []*network
	cells      []*cell
}

// prepare attaches the references and the entries, and builds the networks.
func (b *bench) prepare(entries []catalog.Entry) error {
	b.algorithms = map[string]*algorithm{}
	for name, file := range map[string][]byte{yardstick: cubicObject, empty: emptyObject} {
		spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(file))
		if err != nil {
			return err
		}
		if err := b.attach(name, spec); err != nil {
			return err
		}
	}
	var names []string
	for _, e := range entries {
		spec, err := obj.Load(e.Kind, e.Name, obj.Stock)
		if err != nil {
			return err
		}
		if err := b.attach(e.Name, spec); err != nil {
			return err
		}
		names = append(names, e.Name)
	}

	direct, err := newDirect()
	if err != nil {
		return err
	}
	b.networks = append(b.networks, direct)
	queued, err := newQueued(queuedRate, false)
	if err != nil {
		return err
	}
	b.networks = append(b.networks, queued)
	oneQueue, err := newQueued(queuedRate, true)
	if err != nil {
		return err
	}
	b.networks = append(b.networks, oneQueue)

	const largePackets, fullQueues = "bare veth: packets of up to 64 kB, slow start", benched.Queued
	all := append([]string{reno, cubic, yardstick}, names...)
	own := append([]string{yardstick, empty}, names...)
	b.cells = []*cell{
		{condition: largePackets, subflows: 2, net: direct, controls: all},
		{condition: fullQueues, subflows: 2, net: queued, controls: all},
		{condition: largePackets, timed: true, subflows: 2, net: direct, controls: own},
	}
	for _, subflows := range []int{1, 2, 4, maxPaths} {
		b.cells = append(b.cells, &cell{condition: fullQueues, timed: true, subflows: subflows, net: queued, controls: own})
	}
	if b.counts {
		b.cells = slices.DeleteFunc(b.cells, func(c *cell) bool { return !c.timed })
		for _, subflows := range []int{2, 4, maxPaths} {
			b.cells = append(b.cells, &cell{condition: benched.OneQueue, timed: true, subflows: subflows, net: oneQueue, controls: own})
		}
	}
	return nil
}

func (b *bench) attach(name string, spec *ebpf.CollectionSpec) error {
	a, err := attach(name, spec)
	if err != nil {
		return err
	}
	b.algorithms[name] = a
	return nil
}

func (b *bench) close() error {
	var err error
	for _, n := range b.networks {
		err = errors.Join(err, n.close())
	}
	for _, a := range b.algorithms {
		err = errors.Join(err, a.Close())
	}
	return err
}

// tries is how often a connection is measured before a bench gives up on a path that lies idle. A bench takes an hour:
// giving up loses all of it.
const tries = 5

func (b *bench) measure(ctx context.Context) error {
	for round := range b.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, b.rounds)
		for _, c := range b.cells {
			samples := map[string]sample{}
			for _, cc := range b.turns(c) {
				s, err := b.one(ctx, c, cc)
				for try := 1; errors.Is(err, errIdle) && try < tries; try++ {
					fmt.Fprintf(os.Stderr, "%s, %d subflows, %s: %v: once more\n", c.condition, c.subflows, cc, err)
					s, err = b.one(ctx, c, cc)
				}
				if err != nil {
					return fmt.Errorf("%s, %d subflows, %s: %w", c.condition, c.subflows, cc, err)
				}
				samples[cc] = samples[cc].and(s)
			}
			c.rounds = append(c.rounds, samples)
		}
	}
	return nil
}

// turns is the order of a round. Where times are compared, the references come again before every third of the others:
// those are small numbers beside what else the machine does, and all figures are ratios to them.
func (b *bench) turns(c *cell) []string {
	if !c.timed || b.counts {
		return c.controls
	}
	var references, turns []string
	others := 0
	for _, cc := range c.controls {
		if isReference(cc) {
			references = append(references, cc)
			continue
		}
		if others%3 == 0 {
			turns = append(turns, references...)
		}
		others++
		turns = append(turns, cc)
	}
	return turns
}

// and is both samples of a control as one.
func (s sample) and(t sample) sample {
	if s.seconds == 0 {
		return t
	}
	both := sample{cpu: s.cpu + t.cpu, callbacks: map[string]usage{}}
	both.seconds = s.seconds + t.seconds
	both.rate = (s.rate*s.seconds + t.rate*t.seconds) / both.seconds
	for _, callbacks := range []map[string]usage{s.callbacks, t.callbacks} {
		for name, u := range callbacks {
			sum := both.callbacks[name]
			both.callbacks[name] = usage{sum.Calls + u.Calls, sum.Nanoseconds + u.Nanoseconds}
		}
	}
	return both
}

// settle is how long a connection runs with all its subflows before it is measured. Where instructions are counted, the time
// grows with the subflows, until each has settled verdicts on all siblings (bpf/include/mpcc/bottleneck.h).
func (b *bench) settle(c *cell) time.Duration {
	if b.counts {
		return time.Duration(c.subflows) * 1300 * time.Millisecond
	}
	return 300 * time.Millisecond
}

func (b *bench) one(ctx context.Context, c *cell, cc string) (s sample, err error) {
	if err := c.net.use(c.subflows); err != nil {
		return s, err
	}
	if !c.timed {
		s.flow, err = c.net.run(ctx, cc, b.settle(c), b.span, func() error {
			busy, err := busyTime()
			s.cpu = busy - s.cpu
			return err
		})
		return s, err
	}
	stats, err := countTime()
	if err != nil {
		return s, err
	}
	defer stats.Close()
	var marks []map[string]usage
	s.flow, err = c.net.run(ctx, cc, b.settle(c), b.span, func() error {
		m, err := b.algorithms[cc].read()
		marks = append(marks, m)
		return err
	})
	if err != nil {
		return s, err
	}
	s.callbacks = map[string]usage{}
	for name, after := range marks[1] {
		before := marks[0][name]
		s.callbacks[name] = usage{after.Calls - before.Calls, after.Nanoseconds - before.Nanoseconds}
	}
	return s, nil
}

// busyTime returns the seconds that all CPUs together have been busy.
func busyTime() (float64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := fs.Stat()
	if err != nil {
		return 0, err
	}
	t := stat.CPUTotal
	return t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ, nil
}
