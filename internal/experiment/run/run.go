// SPDX-License-Identifier: Apache-2.0

// Package run runs experiments: it loads the algorithms, builds a scenario's
// network, measures whether that is what was asked for, lets the users send,
// measures what they do, and removes everything again.
//
// While it lasts a run has in the system what loader and lab describe, and a
// file in /run/mpcc/run for each algorithm that it has loaded. The next run, or
// Clean, removes what a killed one has left.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// Options of All.
type Options struct {
	Quick    bool
	Repeats  int            // in place of the scenario's, if not 0
	Seed     uint64         // in place of the scenario's, if not 0
	Shard    *result.Shard  // the part of the runs that is done; nil: all
	Tool     string         // mpcc's version, for the results
	Machine  string         // what is to be known of the machine, for the results
	Progress func(Progress) // called each time something is done, and every second
}

// Progress tells how far the runs are.
type Progress struct {
	Run, Runs int          // the present one, from 0, and how many there are
	Point     result.Point // of the present one
	Doing     string       // "building", "warming up", …
	Done, All time.Duration
}

// overhead is about how long a run takes beside its phases.
const overhead = 3 * time.Second

// tries is how often a run is tried whose links are not what was asked. A long
// series should not end because the machine was busy for a moment.
const tries = 3

// All runs every repeat of every point, writes what comes out to the folder, and
// returns it. With an error the result, and the folder, have the runs that were
// complete before; it is nil, and the folder has none, if no run was.
func All(ctx context.Context, file *scenario.File, folder *result.Folder, o Options) (r *result.Result, err error) {
	runs := o.Runs(file)
	// Those of the whole sweep, as how MPTCP hands data over hangs on whether there are packet schedulers among them.
	algorithms, err := load(ctx, o.sweep(file))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, algorithms.release(ctx)) }()

	r = o.result(file, loader.Release())
	p := progress{tell: o.Progress, now: Progress{Runs: len(runs)}}
	for _, one := range runs {
		p.now.All += Length(one)
	}
	for i, one := range runs {
		p.now.Run, p.now.Point = i, one.Point
		done := p.now.Done
		var m *measurement
		for range tries {
			m = &measurement{run: one, algorithms: algorithms, folder: folder, index: i, progress: &p}
			if err = m.do(ctx); !errors.Is(err, errUnbelievable) {
				break
			}
		}
		if err != nil {
			err = fmt.Errorf("run %d of %d (%s): %w", i+1, len(runs), describe(one), errors.Join(err, folder.Drop(&m.result)))
			break
		}
		r.Runs = append(r.Runs, m.result)
		p.now.Done = done + Length(one)
	}
	if len(r.Runs) == 0 {
		return nil, err
	}
	p.say("writing")
	r.Seconds = time.Since(r.Started).Seconds()
	if failed := folder.Write(r); failed != nil {
		return nil, errors.Join(err, failed)
	}
	return r, err
}

// result returns the results of a file as they are before the first run.
func (o Options) result(file *scenario.File, kernel string) *result.Result {
	return &result.Result{
		Tool: o.Tool, Kernel: kernel, Machine: o.Machine, Started: time.Now().UTC(), Seed: cmp.Or(o.Seed, file.Seed), Quick: o.Quick, Shard: o.Shard,
		Scenario: result.Scenario{
			Name: string(file.Name), Title: file.Title, Source: file.Source, Notes: file.Notes, Setup: file.Setup, YAML: file.YAML(),
		},
		Sweep: file.Axes(o.Quick), Expect: file.Expect,
	}
}

// Runs returns the file's runs, with the repeats and the seed of the options, as far as they are in its shard.
func (o Options) Runs(file *scenario.File) []scenario.Run {
	all := o.sweep(file)
	if o.Shard == nil {
		return all
	}
	var runs []scenario.Run
	for i := o.Shard.Number; i < len(all); i += o.Shard.Of {
		runs = append(runs, all[i])
	}
	return runs
}

// sweep returns all of the file's runs.
func (o Options) sweep(file *scenario.File) []scenario.Run {
	var runs []scenario.Run
	for _, one := range file.Runs(o.Quick) {
		if one.Repeat > 0 && o.Repeats > 0 {
			continue // repeats are made of the first one, below
		}
		repeats := max(1, o.Repeats)
		for i := range repeats {
			if o.Repeats > 0 {
				one.Repeat = i
			}
			if o.Repeats > 0 || o.Seed > 0 {
				one.Seed = rand.New(rand.NewPCG(cmp.Or(o.Seed, file.Seed), uint64(one.Repeat))).Uint64()
			}
			runs = append(runs, one)
		}
	}
	return runs
}

// describe names a run, for an error.
func describe(r scenario.Run) string {
	text := ""
	for _, axis := range r.Scenario.Sweep {
		text += fmt.Sprintf("%s=%s, ", axis.Name, r.Point[string(axis.Name)])
	}
	return text + fmt.Sprintf("repeat %d", r.Repeat)
}

// Length returns how long a run takes, about.
func Length(r scenario.Run) time.Duration {
	return r.Scenario.Phases.Warmup.Std() + r.Scenario.Phases.Measure.Std() + overhead
}

// progress tells how far the runs are.
type progress struct {
	tell func(Progress)
	now  Progress
}

func (p *progress) say(doing string) {
	p.now.Doing = doing
	if p.tell != nil {
		p.tell(p.now)
	}
}

// load loads the algorithms of all runs, with the tunables of the first one that uses them. Those that are not in
// the catalog must be the kernel's own.
func load(ctx context.Context, runs []scenario.Run) (*algorithms, error) {
	var all []algorithm
	for _, one := range runs {
		for _, u := range one.Scenario.Users {
			cc := ccName(&u)
			if _, err := catalog.Find("cc/" + cc); err != nil && cc != "" {
				if err := mptcp.Available(cc); err != nil {
					return nil, fmt.Errorf("%s, user %s: %w", one.Scenario.Name, u.Name, err)
				}
			}
		}
		wanted, err := wantedBy(one)
		if err != nil {
			return nil, err
		}
		for _, w := range wanted {
			if err := loader.Check(w.Entry); err != nil {
				return nil, fmt.Errorf("%s wants %s: %w", one.Scenario.Name, w.ID(), err)
			}
		}
		all = append(all, wanted...)
	}
	return acquire(ctx, all)
}

// wantedBy returns mpcc's algorithms that a run uses.
func wantedBy(one scenario.Run) ([]algorithm, error) {
	var all []algorithm
	for i := range one.Scenario.Users {
		for _, e := range one.Scenario.Users[i].Algorithms() {
			set, err := one.Scenario.Settings(e)
			if err != nil {
				return nil, err
			}
			all = append(all, algorithm{e, set})
		}
	}
	return all, nil
}

// Clean removes what killed runs have left, and returns the names of their namespaces.
func Clean(ctx context.Context) (removed []string, err error) {
	removed, err = lab.Sweep()
	if err != nil {
		return removed, err
	}
	unlock, err := lockState(ctx)
	if err != nil {
		return removed, err
	}
	defer unlock()
	return removed, sweepAlgorithms(ctx)
}
