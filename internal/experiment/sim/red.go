// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"math/bits"
	"math/rand/v2"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

// red is random early detection as the kernel has it (include/net/red.h), in the one or two stages of which the lab
// makes a scenario's curve. Both see the same backlog. Chances are in units of 2⁻³², so that all machines draw alike.
type red struct {
	stages []redStage
	end    int  // packets, from which on everything is dropped
	ecn    bool // packets that can are marked instead
	random *rand.PCG
}

// redStage is one rise of the chance, from min to max.
type redStage struct {
	min, max uint64 // backlog in bytes
	chance   uint64 // at max
	log      uint   // the average follows the backlog by 2^-log for each packet
	average  uint64 // in units of 2^-log bytes
	count    int64  // packets since the last drop, -1 below min
	wait     uint64 // drawn: count times chance at which the next one is dropped
}

// newRED returns the stages for thresholds that hold at the rate. The lab rounds them to whole packets, and tc gives
// the average its weight by the burst.
func newRED(r scenario.RED) *red {
	low, high := whole(r.Min), whole(r.Max)
	high = max(high, low+1)
	end := max(high, whole(r.End))
	q := &red{end: end, ecn: r.ECN}
	if end == high {
		q.stages = []redStage{newStage(low, high, r.Probability)}
		return q
	}
	slope := r.Probability / float64(high-low)
	q.stages = []redStage{newStage(low, end, slope*float64(end-low)), newStage(high, end, 1)}
	return q
}

// whole rounds to whole packets, at least one; 0 stays 0.
func whole(packets float64) int {
	if packets == 0 {
		return 0
	}
	return max(1, int(packets+0.5))
}

func newStage(low, high int, chance float64) redStage {
	return redStage{
		min: uint64(low) * frame, max: uint64(high) * frame, chance: uint64(min(chance, 0.9999) * (1 << 32)),
		log: redWeight(low, (2*low+high)/3+1), count: -1,
	}
}

// redWeight returns the weight with which a burst of so many packets takes the average from 0 to min, as tc computes
// it.
func redWeight(low, burst int) uint {
	room := float64(burst + 1 - low)
	weight := 0.5
	for log := uint(1); log < 32; log++ {
		if room <= (1-math.Pow(1-weight, float64(burst)))/weight {
			return log
		}
		weight /= 2
	}
	return 31
}

// takes draws whether a packet passes, and how often it is marked if it can be. The time in which the queue was empty does not count: of that red would learn
// when it is asked for a packet and has none, and tbf, above it, peeks before it asks.
func (r *red) takes(backlog int, capable bool) (passes bool, marks uint64) {
	for i := range r.stages {
		q := &r.stages[i]
		q.average += uint64(backlog) - q.average>>q.log
		switch {
		case !q.drops(r.random):
		case r.ecn && capable:
			marks++
		default:
			return false, marks
		}
	}
	return true, marks
}

func (q *redStage) drops(random *rand.PCG) bool {
	average := q.average >> q.log
	switch {
	case average < q.min:
		q.count = -1
		return false
	case average >= q.max:
		q.count = -1
		return true
	}
	q.count++
	if q.count > 0 {
		share := (average - q.min) << 32 / (q.max - q.min)
		high, low := bits.Mul64(q.chance, share)
		if (high<<32|low>>32)*uint64(q.count) < q.wait {
			return false
		}
		q.count = 0
		q.wait = random.Uint64() >> 32
		return true
	}
	q.wait = random.Uint64() >> 32
	return false
}
