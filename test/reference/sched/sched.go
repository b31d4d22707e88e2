// SPDX-License-Identifier: Apache-2.0

// Package sched computes what each packet scheduler decides, from its published rule and apart from the
// BPF code, in float64, for the vectors and tests to compare with. A scheduler is one file that registers
// itself by its name.
package sched

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mpcc/mpcc/test/reference"
)

// Subflow is one subflow, as mpcc eval takes it.
type Subflow struct {
	SubflowID    float64 `json:"subflow_id,omitempty"`
	Cwnd         float64 `json:"cwnd"` // packets, as the next two
	Ssthresh     float64 `json:"ssthresh,omitempty"`
	InFlight     float64 `json:"in_flight,omitempty"`
	Queued       float64 `json:"queued,omitempty"` // bytes
	MSS          float64 `json:"mss,omitempty"`    // bytes
	SRTT         float64 `json:"srtt_us,omitempty"`
	MinSRTT      float64 `json:"min_srtt_us,omitempty"`
	MaxSRTT      float64 `json:"max_srtt_us,omitempty"`
	Deviation    float64 `json:"deviation_us,omitempty"`
	Rate         float64 `json:"rate,omitempty"`   // bytes per second; 0 = not measured
	Served       float64 `json:"served,omitempty"` // bytes
	Loss         float64 `json:"loss,omitempty"`
	Slope        float64 `json:"up_uw_per_mbps,omitempty"`
	Base         float64 `json:"base_uw,omitempty"`
	TriedAt      float64 `json:"tried_us,omitempty"`
	Trial        float64 `json:"trial,omitempty"` // bytes
	Rank         float64 `json:"rank,omitempty"`
	Weight       float64 `json:"weight,omitempty"`
	Spill        float64 `json:"spill_us,omitempty"` // NeverSpills: never
	Wait         float64 `json:"wait_us,omitempty"`
	LeastRTT     float64 `json:"least_rtt_us,omitempty"`
	CountedRate  float64 `json:"counted_rate,omitempty"` // bytes per second; 0 = not counted
	CarriedBytes float64 `json:"carried_bytes,omitempty"`
	Spent        float64 `json:"spent,omitempty"` // 0 or 1, as all below
	Growing      float64 `json:"growing,omitempty"`
	Holds        float64 `json:"holds,omitempty"`
	Excluded     float64 `json:"excluded,omitempty"`
	Allowed      float64 `json:"allowed,omitempty"`
	Backup       float64 `json:"backup,omitempty"`
	Stale        float64 `json:"stale,omitempty"`
	Closing      float64 `json:"closing,omitempty"`
	TimedOut     float64 `json:"timed_out,omitempty"`
	Stalled      float64 `json:"stalled,omitempty"`
	Full         float64 `json:"full,omitempty"`
	Carried      float64 `json:"carried,omitempty"`
}

// Connection is what there is to send.
type Connection struct {
	Now         float64 `json:"now_us,omitempty"`
	Waited      float64 `json:"waited_us,omitempty"`
	Window      float64 `json:"window,omitempty"` // bytes, as the next five
	Unsent      float64 `json:"unsent,omitempty"`
	Fresh       float64 `json:"fresh,omitempty"`
	Awaited     float64 `json:"awaited,omitempty"`
	Piece       float64 `json:"piece,omitempty"`
	Outstanding float64 `json:"outstanding,omitempty"`
	Reinject    float64 `json:"reinject,omitempty"` // 0 or 1, as all below
	Copying     float64 `json:"copying,omitempty"`
	Repeating   float64 `json:"repeating,omitempty"`
	Repeated    float64 `json:"repeated,omitempty"`
	Copied      float64 `json:"copied,omitempty"`
	More        float64 `json:"more,omitempty"`
	Early       float64 `json:"early,omitempty"`
	Resent      float64 `json:"resent,omitempty"`
	Dropped     float64 `json:"dropped,omitempty"`
}

// Memory is what a scheduler remembers of the connection.
type Memory struct {
	LambdaAt     float64 `json:"lambda_at_us,omitempty"`
	Lambda       float64 `json:"lambda_percent,omitempty"`
	Reinjections float64 `json:"reinjections,omitempty"`
	ChosenAt     float64 `json:"chosen_us,omitempty"`
	Size         float64 `json:"size,omitempty"` // bytes
	Changes      float64 `json:"changes,omitempty"`
	K            float64 `json:"k,omitempty"`
	Alive        float64 `json:"alive,omitempty"`
	Leader       float64 `json:"leader,omitempty"`
	Last         float64 `json:"last,omitempty"`
	Slow         float64 `json:"slow,omitempty"`
	Waiting      float64 `json:"waiting,omitempty"`
}

// Scene is one connection at one moment.
type Scene struct {
	Connection Connection `json:"connection"`
	Memory     Memory     `json:"memory"`
	Subflows   []Subflow  `json:"subflows"`
}

// Outcome is what a scheduler decides. The lists have a value for each subflow.
type Outcome struct {
	Send          []float64 // 0 or 1
	Waits, Resend float64   // 0 or 1
	Wait          float64   // µs until a cap allows more, and the connection's timer ends the wait
	Look          float64   // µs after which the connection's timer looks; 0: the kernel's timeout
	Repeats       float64   // number of the subflow whose data goes out again, from 1
	Memory        Memory
	Rate, Cost    []float64 // Mbit/s and mJ per Mbit expected
	Objective     []float64 // O_k of the first k subflows
	// Terms are the sizes of the terms whose differences the objectives are: errors are relative to them.
	Terms []float64
}

// Tunables are what load --set sets. An absent one has what the source has (--set paper).
type Tunables = reference.Tunables

// Scheduler is one packet scheduler.
type Scheduler struct {
	// Sets are the tunables to test with, besides what the source has. Each tunable is in one of them.
	Sets []Tunables
	// Rule decides on the subflows that may send; it marks them in Send.
	Rule func(d *decision)
	// Draw adds to a connection drawn at random what only this scheduler looks at.
	Draw func(r *rand.Rand, s *Scene)
}

// decision is a scene, and its outcome as far as it is decided.
type decision struct {
	Scene
	Outcome
	set           Tunables
	alive, usable []bool
	defers        bool // it sends nothing, and that is no wait
}

var schedulers = map[string]Scheduler{}

func register(name string, s Scheduler) { schedulers[name] = s }

// Names lists the schedulers.
func Names() []string { return slices.Sorted(maps.Keys(schedulers)) }

// Of returns the scheduler of this name.
func Of(name string) (Scheduler, error) {
	s, ok := schedulers[name]
	if !ok {
		return s, fmt.Errorf("test/reference/sched has no scheduler %q: add %s.go, which registers it", name, name)
	}
	return s, nil
}

// Decide returns the whole decision: which subflows may send, which do, and whether the scheduler waits.
func (s Scheduler) Decide(scene Scene, set Tunables) Outcome {
	n := len(scene.Subflows)
	d := &decision{
		Scene: Scene{scene.Connection, scene.Memory, slices.Clone(scene.Subflows)},
		set:   set, alive: make([]bool, n), usable: make([]bool, n),
	}
	for _, list := range []*[]float64{&d.Send, &d.Rate, &d.Cost, &d.Objective, &d.Terms} {
		*list = make([]float64, n)
	}
	if d.look(); d.Resend == 0 {
		s.Rule(d)
		d.guard()
	}
	d.Outcome.Memory = d.Scene.Memory
	return d.Outcome
}

// room is what the window takes beyond what is queued, in bytes.
func (s Subflow) room() float64 {
	return max(0, max(0, s.Cwnd-s.InFlight)*s.MSS-s.Queued)
}

// look finds the subflows whose turn it is. New data: first choices, those of them that recover from a timeout,
// backups, and again those that recover; each only where there is none of the kind before. Retransmissions: first
// choices, or backups once no other can send nor makes progress.
func (d *decision) look() {
	kinds := []func(Subflow) bool{
		func(s Subflow) bool { return s.Backup == 0 && s.TimedOut == 0 },
		func(s Subflow) bool { return s.Backup == 0 && s.TimedOut != 0 },
		func(s Subflow) bool { return s.Backup != 0 && s.TimedOut == 0 },
		func(s Subflow) bool { return s.Backup != 0 && s.TimedOut != 0 },
	}
	here := func(kind func(Subflow) bool) func(Subflow) bool {
		return func(s Subflow) bool { return s.Closing == 0 && s.Stale == 0 && kind(s) }
	}
	has := func(what func(Subflow) bool) bool { return slices.ContainsFunc(d.Subflows, what) }
	turn := func(Subflow) bool { return false }
	if d.Connection.Reinject != 0 {
		turn = here(kinds[0])
		idle := has(func(s Subflow) bool { return s.Carried == 0 && turn(s) })
		progress := has(func(s Subflow) bool { return s.Closing == 0 && s.Carried != 0 && s.Stalled == 0 })
		if spare := here(kinds[2]); !idle && !progress && has(func(s Subflow) bool { return s.Carried == 0 && spare(s) }) {
			turn = spare
		}
	} else if k := slices.IndexFunc(kinds, func(kind func(Subflow) bool) bool { return has(here(kind)) }); k >= 0 {
		turn = here(kinds[k])
	}
	idle, stalled, busy := false, false, false
	for i, s := range d.Subflows {
		d.alive[i] = turn(s)
		// Without anything outstanding nobody would find out that the subflow is dead.
		startsTimer := s.TimedOut != 0 && d.Connection.Outstanding == 0 && d.Connection.Reinject == 0
		d.usable[i] = d.alive[i] && s.Full == 0 && (s.room() > 0 || startsTimer)
		idle = idle || d.usable[i] && s.Carried == 0
		stalled = stalled || s.Carried != 0 && s.Stalled != 0
		busy = busy || s.Carried != 0 && s.Stalled == 0 && d.alive[i] && s.Backup == 0
	}
	if d.Connection.Reinject == 0 {
		return
	}
	// Once, all goes out again, where first choices that make progress can take it; and what no subflow has any more.
	if stalled && busy && !idle && d.Connection.Resent == 0 || d.Connection.Dropped != 0 {
		d.Resend = 1
	}
	for i, s := range d.Subflows {
		mayHaveCarried := s.Carried != 0
		if stalled && !idle {
			mayHaveCarried = mayHaveCarried && s.Stalled != 0
		}
		d.usable[i] = d.usable[i] && !mayHaveCarried
	}
}

func (d *decision) guard() {
	acks := false
	for i, s := range d.Subflows {
		if !d.usable[i] {
			d.Send[i] = 0
		}
		acks = acks || d.alive[i] && (s.room() == 0 || s.Full != 0) && s.InFlight+s.Queued > 0
	}
	if slices.Contains(d.Send, 1) || !slices.Contains(d.usable, true) || d.Resend != 0 || d.defers {
		return
	}
	if d.Connection.Reinject == 0 && d.Wait == 0 && (d.Connection.Outstanding == 0 || !acks) {
		d.send(d.fastest(d.usable))
		return
	}
	d.Waits = 1
}

// send marks a subflow, if there is one.
func (d *decision) send(i int) {
	if i >= 0 {
		d.Send[i] = 1
	}
}

// fastest has the lowest RTT of those marked; -1 if none is.
func (d *decision) fastest(of []bool) int {
	return d.least(of, func(s Subflow) float64 { return s.SRTT })
}

// least has the smallest value of those marked, the first of equals; -1 if none is marked.
func (d *decision) least(of []bool, value func(Subflow) float64) int {
	best := -1
	for i, s := range d.Subflows {
		if of[i] && (best < 0 || value(s) < value(d.Subflows[best])) {
			best = i
		}
	}
	return best
}

// The valid range of the inputs.
const (
	MaxSubflows = 8
	maxCwnd     = 100_000
	noThreshold = 1<<31 - 1
)

// Random draws a connection with all that the scheduler looks at.
func (s Scheduler) Random(r *rand.Rand) Scene {
	scene := random(r)
	if s.Draw != nil {
		s.Draw(r, &scene)
	}
	return scene
}

// random draws a connection: numbers evenly over their orders of magnitude, windows mostly part full.
func random(r *rand.Rand) Scene {
	s := Scene{
		Connection: Connection{
			Now:         math.Round(between(r, 1e6, 1e12)),
			Window:      math.Round(between(r, 1, 1<<30)),
			Unsent:      math.Round(between(r, 1, 1<<30)),
			Outstanding: maybe(r, 0.8, math.Round(between(r, 1, 1<<30))),
			Reinject:    flag(r, 0.1),
			Copying:     flag(r, 0.3),
			Copied:      flag(r, 0.2),
			Early:       flag(r, 0.3),
			Resent:      flag(r, 0.5),
			Dropped:     flag(r, 0.2),
			More:        flag(r, 0.5),
		},
		Memory: Memory{Waiting: flag(r, 0.5), Lambda: maybe(r, 0.8, float64(100+r.IntN(31))), Reinjections: flag(r, 0.3)},
	}
	s.Memory.LambdaAt = s.Connection.Now - math.Round(between(r, 1, 1e6))
	s.Memory.ChosenAt = s.Connection.Now - math.Round(between(r, 1, 1e6))
	for i := range 1 + r.IntN(MaxSubflows) {
		s.Subflows = append(s.Subflows, randomSubflow(r, i))
		if i > 0 && r.IntN(10) == 0 {
			s.Subflows[i].SRTT = s.Subflows[0].SRTT
		}
		s.Memory.Alive += math.Ldexp(flag(r, 0.9), i)
		s.Subflows[i].TriedAt = max(0, s.Connection.Now-math.Round(between(r, 1e3, 1e9)))
		s.Subflows[i].Trial = maybe(r, 0.5, math.Round(between(r, 1, 1<<17)))
	}
	s.Memory.K = float64(r.IntN(len(s.Subflows) + 1))
	s.Memory.Leader = float64(r.IntN(len(s.Subflows)+1) + 1)
	return s
}

func randomSubflow(r *rand.Rand, i int) Subflow {
	s := Subflow{
		SubflowID: float64(i + 1),
		Cwnd:      math.Round(between(r, 1, maxCwnd)),
		Ssthresh:  noThreshold,
		MSS:       float64(500 + r.IntN(8500)),
		SRTT:      math.Round(8*between(r, 1000, 1e6)) / 8,
		Deviation: math.Round(between(r, 1, 1e5)),
		Rate:      maybe(r, 0.7, math.Round(between(r, 1e4, 1e9))),
		Loss:      maybe(r, 0.7, between(r, 1e-5, 0.5)),
		Allowed:   flag(r, 0.6),
		Backup:    flag(r, 0.1),
		Stale:     flag(r, 0.05),
		Closing:   flag(r, 0.05),
		TimedOut:  flag(r, 0.1),
		Stalled:   flag(r, 0.5),
		Full:      flag(r, 0.05),
		Carried:   flag(r, 0.5),
	}
	if r.IntN(2) == 0 {
		s.Ssthresh = math.Round(between(r, 2, maxCwnd))
	}
	switch r.IntN(4) {
	case 0:
		s.InFlight = s.Cwnd
	case 1:
		s.InFlight = math.Floor(s.Cwnd * r.Float64())
		s.Queued = math.Floor(s.Cwnd * s.MSS * r.Float64() / 2)
	default:
		s.InFlight = math.Floor(s.Cwnd * r.Float64())
	}
	s.MinSRTT = math.Round(8*s.SRTT*(0.3+0.7*r.Float64())) / 8
	s.MaxSRTT = math.Round(8*s.SRTT*(1+2*r.Float64())) / 8
	s.Served = maybe(r, 0.5, math.Floor(s.MSS*3*r.Float64()))
	if r.IntN(5) > 0 {
		s.Slope, s.Base = math.Round(between(r, 1e3, 1e6)), math.Round(between(r, 1e3, 2e6))
	}
	return s
}

func between(r *rand.Rand, low, high float64) float64 {
	return low * math.Exp(r.Float64()*math.Log(high/low))
}

func flag(r *rand.Rand, chance float64) float64 { return maybe(r, chance, 1) }

func maybe(r *rand.Rand, chance, value float64) float64 {
	if r.Float64() < chance {
		return value
	}
	return 0
}
