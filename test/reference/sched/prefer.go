// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"math"
	"math/rand/v2"
)

// NeverSpills as a subflow's threshold.
const NeverSpills = 1<<32 - 1

// The best tier that has room: the rank, then paths whose quota is used up, then excluded ones. If a better tier is
// alive, only subflows that spill, once each better one's queue has reached the threshold. Within the tier the lowest
// RTT, or with weights the lowest RTT of those that have some of their weight * 8 KiB left in this round. Where a cap is
// in the way of sending at all, it waits for that, by the timer.
func init() {
	register("prefer", Scheduler{Rule: preferRule, Draw: drawPreference})
}

func (s Subflow) tier() float64 { return s.Rank + math.Ldexp(s.Spent, 32) + math.Ldexp(s.Excluded, 33) }

// standing is how long new data would wait on the subflow, in µs.
func (s Subflow) standing(unsent float64) float64 {
	return max(0, s.SRTT-s.MinSRTT) + s.Wait + (unsent+s.Queued)*s.SRTT/(s.Cwnd*s.MSS)
}

func (s Subflow) perRound() float64 { return max(1, s.Weight) * 8192 }

func preferRule(d *decision) {
	again := d.Connection.Reinject != 0
	if again && d.Connection.Early != 0 {
		d.defers = true
		return
	}
	tier, queue, soonest, weighted := math.Inf(1), math.Inf(1), math.Inf(1), false
	room := make([]bool, len(d.Subflows))
	for i, s := range d.Subflows {
		room[i] = d.usable[i] && (again || s.Wait == 0)
		if room[i] {
			tier = min(tier, s.tier())
		} else if d.usable[i] {
			soonest = min(soonest, s.Wait)
		}
	}
	better := false
	for i, s := range d.Subflows {
		weighted = weighted || room[i] && s.tier() == tier && s.Weight > 0
		if d.alive[i] && s.tier() < tier {
			better = true
			queue = min(queue, s.standing(d.Connection.Unsent))
		}
	}
	may := make([]bool, len(d.Subflows))
	rounds := math.Inf(1)
	for i, s := range d.Subflows {
		spills := s.Spent == 0 && s.Excluded == 0 && s.Spill != NeverSpills && (again || queue >= s.Spill)
		may[i] = room[i] && s.tier() == tier && (!better || spills)
		if may[i] && weighted {
			rounds = min(rounds, math.Floor(s.Served/s.perRound()))
		}
	}
	if weighted {
		for i, s := range d.Subflows {
			if !math.IsInf(rounds, 1) && s.tier() == tier {
				d.Subflows[i].Served = max(0, s.Served-rounds*s.perRound())
			}
			may[i] = may[i] && d.Subflows[i].Served < s.perRound()
		}
	}
	best := d.fastest(may)
	if best < 0 && !math.IsInf(soonest, 1) {
		d.Wait = soonest
		return
	}
	for i, s := range d.Subflows {
		d.usable[i] = d.usable[i] && (best >= 0 || s.tier() == tier) // to send on if the wait is not granted
	}
	d.send(best)
}

// drawPreference gives most connections a rule or two, and paths of equal rank.
func drawPreference(r *rand.Rand, s *Scene) {
	if r.IntN(2) == 0 {
		s.Connection.Unsent = math.Round(between(r, 1, 1<<20))
	}
	for i := range s.Subflows {
		f := &s.Subflows[i]
		f.Rank = float64(1 + r.IntN(3))
		f.Weight = maybe(r, 0.5, float64(1+r.IntN(5)))
		f.Spill = []float64{0, NeverSpills, math.Round(between(r, 1, 1e6))}[r.IntN(3)]
		f.Wait = maybe(r, 0.2, math.Round(between(r, 1, 1e6)))
		f.Served = maybe(r, 0.7, math.Floor(100_000*r.Float64()))
		f.Spent, f.Excluded = flag(r, 0.1), flag(r, 0.1)
		if r.IntN(3) == 0 { // most are full, for the better ones to leave something
			f.InFlight = f.Cwnd
		}
	}
}
