// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"math"
	"math/rand/v2"
)

// w is the window, but at most the delivery rate times srtt, and a packet, where srtt is above 9/8 of the least RTT, outside
// slow start; and at most the counted rate times srtt, and a packet.
//
// New data. A piece that is sent now arrives after round - least/2. round is srtt load/w, where load is the bytes in flight, the
// queued bytes and the piece; at least the least RTT; one least RTT more for a load above the window with nothing in flight.
// In a time t a subflow sends w t/srtt, in slow start the sum of windows that double in each of the first
// four round trips. A usable subflow may send, unless the subflows with an earlier arrival(0) can send k bytes by the arrival
// of the usable subflow's piece: the written and the awaited bytes, at most a third of the peer's window; or can send any, and
// the piece arrives later than their earliest arrival(0), 500 ms and the least RTT of the usable subflow. If the subflow that
// sent last may send, and the piece would arrive over that subflow at most 1 ms after the earliest arrival of all, that
// subflow sends. Otherwise the subflow with the earliest arrival sends, if that subflow may.
//
// Data sent again. When the timer goes off early, the bytes held by h, the subflow with the oldest byte, go out again, if the
// subflows without the oldest byte can send the written bytes in one srtt of the first among them, and the written bytes and the
// held ones in the time that h needs: srtt_h, or twice srtt_h if the oldest byte has been the oldest for longer than srtt_h.
// They go out too if arrival(0) of h is more than twice srtt_h, and those subflows can send the held bytes in half of that;
// both times by the counted rate alone, if there is one.
func init() {
	register("earliest", Scheduler{Rule: earliestRule, Draw: drawEarliest})
}

// window is what a subflow sends in an RTT.
func (s Subflow) window() float64 {
	window := s.Cwnd * s.MSS
	limit := func(rate float64) {
		if rate > 0 && rate < 1<<32 {
			window = min(window, max(s.MSS, math.Floor(rate*s.SRTT/1e6)))
		}
	}
	limit(s.CountedRate)
	if s.Growing == 0 && s.SRTT > s.LeastRTT*9/8 {
		limit(s.Rate)
	}
	return min(window, 1<<32-1)
}

func (s Subflow) arrival(more float64) float64 {
	window, load := s.window(), s.InFlight*s.MSS+s.Queued+more
	round := s.SRTT
	if window > 0 {
		round *= min(load, 1<<29) / window
	}
	round = max(round, s.LeastRTT)
	if load > s.Cwnd*s.MSS && s.InFlight == 0 {
		round += s.LeastRTT
	}
	return round - s.LeastRTT/2
}

func (s Subflow) sentIn(us float64) float64 {
	rounds := min(us/s.SRTT, 1024)
	if s.Growing != 0 {
		windows := 0.0
		for n := range 4 {
			windows += math.Ldexp(min(max(rounds-float64(n), 0), 1), n)
		}
		rounds = windows + 16*max(rounds-4, 0)
	}
	return s.window() * rounds
}

// sentBy is what the subflows of who whose arrival(0) is less than before send by a time.
func (d *decision) sentBy(who []bool, before, us float64) (bytes float64) {
	first := d.least(who, Subflow.arrivalOfNothing)
	if first < 0 {
		return 0
	}
	begin := d.Subflows[first].arrival(0)
	if begin >= us {
		return 0
	}
	for i, s := range d.Subflows {
		if who[i] && s.arrival(0) < before {
			bytes += s.sentIn(us - begin)
		}
	}
	return bytes
}

func (s Subflow) arrivalOfNothing() float64 { return s.arrival(0) }

func earliestRule(d *decision) {
	n := len(d.Subflows)
	c := d.Connection
	first := d.least(d.alive, Subflow.arrivalOfNothing)
	if first >= 0 {
		d.watch(d.Subflows[first])
	}
	if c.Reinject != 0 && c.Early != 0 {
		d.defers = true
		holds, lacks := make([]bool, n), make([]bool, n)
		for i, s := range d.Subflows {
			holds[i], lacks[i] = s.Holds != 0, d.alive[i] && s.Holds == 0
		}
		held := func(s Subflow) float64 {
			if c.Waited > s.SRTT {
				return 2 * s.SRTT
			}
			return s.SRTT
		}
		h := d.least(holds, held)
		if h < 0 || c.Repeating != 0 || c.Repeated != 0 {
			return
		}
		beside := d.least(lacks, Subflow.arrivalOfNothing)
		if beside < 0 {
			return
		}
		others, slow := d.Subflows[beside], d.Subflows[h]
		sent := func(by float64) float64 { return d.sentBy(lacks, math.Inf(1), by) }
		fresh := min(c.Fresh, c.Window)
		if late := slow.late(); late > 2*slow.SRTT && slow.CarriedBytes < sent(late/2) ||
			fresh < sent(others.arrival(0)+others.SRTT) && fresh+slow.CarriedBytes < sent(held(slow)) {
			d.Repeats = float64(h + 1)
			d.Scene.Memory.Slow = d.Subflows[h].SubflowID
		}
		return
	}
	if c.Repeating != 0 && c.Repeated != 0 && c.Reinject == 0 {
		d.spareSlow()
	}
	s := d.least(d.usable, func(s Subflow) float64 { return s.arrival(c.Piece) })
	if s < 0 {
		return
	}
	if c.Reinject != 0 {
		d.send(s)
		return
	}
	k := min(c.Fresh+c.Awaited, math.Floor(c.Window/3))
	may := func(s Subflow) bool {
		others := d.sentBy(d.alive, s.arrival(0), s.arrival(c.Piece))
		return k >= others && (others == 0 || s.arrival(c.Piece) <= d.Subflows[first].arrival(0)+500_000+s.LeastRTT)
	}
	latest := d.Subflows[s].arrival(c.Piece) + 1000
	for i, l := range d.Subflows {
		if l.SubflowID == d.Scene.Memory.Last && d.usable[i] && l.arrival(c.Piece) <= latest && may(l) {
			s = i
			break
		}
	}
	if may(d.Subflows[s]) {
		d.Scene.Memory.Last = d.Subflows[s].SubflowID
		d.send(s)
	}
}

// late is arrival(0) by the counted rate alone, where there is one. A subflow with a late of more than two srtt has become slow
// since the subflow was given its data.
func (s Subflow) late() float64 {
	if s.CountedRate > 0 {
		s.Growing = 1 // TCP's rate limits no window in slow start
	}
	return s.arrival(0)
}

// watch sets when the timer goes off beside subflows that are slower than half as fast as the first: after a round trip of the
// first one, or half of the time for a packet of a slow one, while a decision to send again is near.
func (d *decision) watch(first Subflow) {
	after, slowed := math.Inf(1), false
	for _, s := range d.Subflows {
		slowed = slowed || s.CarriedBytes > 0 && s.late() > 2*s.SRTT
		if s.CarriedBytes > 0 && s.Stale == 0 && s.Closing == 0 && s.arrival(0) > 2*first.arrival(0) {
			after = min(after, s.SRTT/max(s.InFlight, 1)/2)
		}
	}
	if math.IsInf(after, 1) {
		return
	}
	if c := d.Connection; c.Repeated != 0 || !slowed && min(c.Fresh, c.Window) >= 2*first.Cwnd*first.MSS {
		after = first.SRTT
	}
	d.Look = 1 + math.Floor(min(after, first.SRTT))
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
	scene.Connection.Awaited = maybe(r, 0.3, math.Round(between(r, 1, 1<<22)))
	scene.Connection.Piece = math.Round(between(r, 1, 1<<15))
	scene.Connection.Waited = maybe(r, 0.8, math.Round(between(r, 1e3, 1e7)))
	scene.Connection.Repeating, scene.Connection.Repeated = flag(r, 0.2), flag(r, 0.2)
	scene.Memory.Last = float64(r.IntN(len(scene.Subflows)+1) + 1)
	scene.Memory.Slow = float64(r.IntN(len(scene.Subflows)+1) + 1)
	for i := range scene.Subflows {
		s := &scene.Subflows[i]
		s.LeastRTT = math.Round(s.SRTT * (0.01 + r.Float64()))
		s.CarriedBytes = maybe(r, 0.8, math.Round(between(r, 1, 1<<22)))
		s.CountedRate = maybe(r, 0.3, math.Round(between(r, 1e3, 1e8)))
		s.Growing, s.Holds = flag(r, 0.3), flag(r, 0.4)
	}
}
