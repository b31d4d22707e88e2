// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"math"
	"math/rand/v2"
)

// The usable subflow s with the earliest arrival, srtt - least/2, unless those that arrive earlier are done with the k bytes
// that may be sent before it is: min arrival + k/(sum w/srtt) < arrival_s. When the timer goes off early, all that the
// holder h of the oldest byte has goes out again, if the others are done with it and with k sooner than h, which takes a
// srtt, or two if it repairs a loss or has made no progress for one.
func init() {
	register("earliest", Scheduler{Rule: earliestRule, Draw: drawEarliest})
}

func (s Subflow) arrival() float64 {
	rtts := 1 + s.Repairing
	return rtts*s.SRTT - min(s.LeastRTT/2, s.SRTT)
}

func earliestRule(d *decision) {
	n := len(d.Subflows)
	c := d.Connection
	k := min(c.Fresh, c.Window)
	arrival := Subflow.arrival
	first := d.least(d.alive, arrival)
	for _, s := range d.Subflows {
		slow := s.CarriedBytes > 0 && s.Stale == 0 && s.Closing == 0
		if first >= 0 && slow && s.arrival() > 2*d.Subflows[first].arrival() {
			d.Look = 1 + math.Floor(d.Subflows[first].SRTT)
		}
	}
	if c.Reinject != 0 && c.Early != 0 {
		d.defers = true
		holds, lacks, rate := make([]bool, n), make([]bool, n), 0.0
		for i, s := range d.Subflows {
			holds[i], lacks[i] = s.Holds != 0, d.alive[i] && s.Holds == 0
			if lacks[i] {
				rate += s.Cwnd * s.MSS / s.SRTT
			}
		}
		held := func(s Subflow) float64 {
			if s.Repairing != 0 || c.Waited > s.SRTT {
				return 2 * s.SRTT
			}
			return s.SRTT
		}
		h, f := d.least(holds, held), d.least(lacks, arrival)
		if h < 0 || f < 0 || c.Repeating != 0 || c.Repeated != 0 {
			return
		}
		if d.Subflows[f].arrival()+(k+d.Subflows[h].CarriedBytes)/rate < held(d.Subflows[h]) {
			d.Repeats = float64(h + 1)
			d.Scene.Memory.Slow = d.Subflows[h].SubflowID
		}
		return
	}
	if c.Repeating != 0 && c.Repeated != 0 && c.Reinject == 0 {
		d.spareSlow()
	}
	s := d.least(d.usable, arrival)
	if s < 0 {
		return
	}
	rate := 0.0
	for i, other := range d.Subflows {
		if d.alive[i] && other.arrival() < d.Subflows[s].arrival() {
			rate += other.Cwnd * other.MSS / other.SRTT
		}
	}
	if c.Reinject == 0 && rate > 0 && d.Subflows[first].arrival()+k/rate < d.Subflows[s].arrival() {
		return
	}
	d.send(s)
}

// spareSlow makes the slow subflow, whose data is being sent again, unusable if another subflow is alive.
func (d *decision) spareSlow() {
	others := false
	for i, s := range d.Subflows {
		others = others || d.alive[i] && s.SubflowID != d.Scene.Memory.Slow
	}
	for i, s := range d.Subflows {
		d.usable[i] = d.usable[i] && !(others && s.SubflowID == d.Scene.Memory.Slow)
	}
}

func drawEarliest(r *rand.Rand, scene *Scene) {
	scene.Connection.Reinject = flag(r, 0.4)
	scene.Connection.Early = flag(r, 0.8)
	scene.Connection.Fresh = maybe(r, 0.8, math.Round(between(r, 1, 1<<26)))
	scene.Connection.Waited = maybe(r, 0.8, math.Round(between(r, 1e3, 1e7)))
	scene.Connection.Repeating, scene.Connection.Repeated = flag(r, 0.2), flag(r, 0.2)
	scene.Memory.Slow = float64(r.IntN(len(scene.Subflows)+1) + 1)
	for i := range scene.Subflows {
		s := &scene.Subflows[i]
		s.LeastRTT = math.Round(s.SRTT * (0.01 + r.Float64()))
		s.CarriedBytes = maybe(r, 0.8, math.Round(between(r, 1, 1<<22)))
		s.Repairing, s.Holds = flag(r, 0.2), flag(r, 0.4)
	}
}
