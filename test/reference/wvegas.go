// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"math"
	"math/big"
	"math/rand/v2"
)

// Cao, Xu, Fu, ICNP 2012, once per RTT: diff = floor(w (rtt-base)/rtt). In slow start, beyond gamma = 1, w
// is at most floor(w base/rtt) + 1. Else at diff >= alpha: alpha = max(2, floor(10 x/X)); then w goes one
// down above alpha and one up below. A queueing delay of twice the smallest seen (0: none seen yet) is
// drained: floor(w base/(2 rtt)); with drain=alpha only at diff >= 2 alpha. An rtt at most noise_us above base counts as
// base. At least 2 packets; ssthresh at most the window it was cut to, and at least 3/4 of the window.
func init() {
	register("wvegas", Algorithm{
		Precision:  2e-8,
		SetsWindow: true,
		OwnAlone:   true,
		Sets: []Tunables{
			{"drain": "alpha"},
			{"noise_us": "4000"},
			{"rtt": "smallest"}, // which samples are taken; the rule is the same
		},
		Draw: drawQueues,
		Corners: []Corner{
			{"diff at alpha", queued(100, 10, 90, 4, 0)},
			{"diff above alpha", queued(100, 10, 89, 4, 0)},
			{"diff below alpha", queued(100, 10, 91, 10, 0)},
			{"no queue", queued(20, 10, 100, 2, 0)},
			{"no queue, with one seen before", queued(20, 10, 100, 2, 4)},
			{"an eighth of a microsecond of queue", []Subflow{{Cwnd: 20, Ssthresh: 10, SRTT: 50_000.125, BaseRTT: 50_000, Alpha: 2}}},
			{"twice the smallest queue", queued(20, 10, 90, 2, 5000)},
			{"just less than twice the smallest queue", queued(20, 10, 90, 2, 5001)},
			{"twice the smallest queue, of twice alpha", queued(40, 10, 90, 2, 5000)},
			{"twice the smallest queue, a packet less than twice alpha", queued(39, 10, 90, 2, 5000)},
			{"twice the smallest queue, of twice an alpha that falls", queued(200, 10, 90, 11, 5000)},
			{"a smaller queue than the smallest", queued(20, 10, 90, 2, 20_000)},
			{"slow start at gamma", queued(20, 64, 95, 2, 0)},
			{"slow start above gamma", queued(20, 64, 90, 2, 0)},
			{"slow start, a packet below ssthresh", queued(20, 21, 90, 2, 0)},
			{"slow start with one packet", queued(1, 64, 50, 2, 0)},
			{"ssthresh reached", queued(20, 20, 90, 2, 0)},
			{"one packet", queued(1, 0, 50, 2, 0)},
			{"two packets, a long queue", queued(2, 0, 10, 2, 0)},
			{"three packets, to drain", queued(3, 2, 10, 2, 1)},
			{"the largest window", queued(MaxCwnd, 2, 50, 2, 0)},
			{"alpha unset", queued(20, 10, 90, 0, 0)},
			{"five equal shares", []Subflow{
				{Cwnd: 20, Ssthresh: 10, SRTT: 50_000, BaseRTT: 45_000, Alpha: 2}, {Cwnd: 20, SRTT: 50_000},
				{Cwnd: 20, SRTT: 50_000}, {Cwnd: 20, SRTT: 50_000}, {Cwnd: 20, SRTT: 50_000},
			}},
			{"a third of the rate", []Subflow{
				{Cwnd: 30, Ssthresh: 10, SRTT: 50_000, BaseRTT: 45_000, Alpha: 3}, {Cwnd: 60, SRTT: 50_000},
			}},
			{"three tenths of the rate", []Subflow{
				{Cwnd: 30, Ssthresh: 10, SRTT: 50_000, BaseRTT: 45_000, Alpha: 3}, {Cwnd: 70, SRTT: 50_000},
			}},
		},
		Rule: wvegas,
	})
}

// queued is a subflow on a path of 100 ms whose base RTT is so many milliseconds.
func queued(cwnd, ssthresh, base, alpha, queue float64) []Subflow {
	return []Subflow{{Cwnd: cwnd, Ssthresh: ssthresh, SRTT: 100_000, BaseRTT: 1000 * base, Alpha: alpha, QueueUS: queue}}
}

// drawQueues gives half of the subflows a queue of some packets.
func drawQueues(r *rand.Rand, subflows []Subflow) {
	for i := range subflows {
		s := &subflows[i]
		if r.IntN(2) == 0 && s.SRTT > 0 {
			s.BaseRTT = math.Ceil(s.SRTT * (1 - min(20*r.Float64()/s.Cwnd, 1)))
		}
		s.Alpha = float64(r.IntN(13))
		if r.IntN(3) > 0 {
			s.QueueUS = math.Round(max(s.SRTT-s.BaseRTT, 0) * 1.5 * r.Float64())
		}
	}
}

func wvegas(paths []Subflow, set Tunables) []Decision {
	x := sum(paths, Subflow.rate)
	decisions := make([]Decision, len(paths))
	for i, p := range paths {
		d := Decision{AfterLoss: halved(p.Cwnd, 2), Coupling: p.rate() / x}
		if p.BaseRTT > 0 && p.SRTT <= p.BaseRTT+set.Number("noise_us", 0) {
			p.BaseRTT = p.SRTT
		}
		d.Window, d.Ssthresh = round(paths, p, set)
		decisions[i] = d
	}
	return decisions
}

// round is the window and ssthresh after an RTT. A path without a base RTT has had no sample.
func round(paths []Subflow, p Subflow, set Tunables) (window, ssthresh float64) {
	if p.BaseRTT == 0 {
		return p.Cwnd, p.Ssthresh
	}
	// What arrives without a queue.
	w, ssthresh := p.Cwnd, p.Ssthresh
	ratio := func() *big.Rat { return new(big.Rat).Quo(exact(min(p.BaseRTT, p.SRTT)), exact(p.SRTT)) }
	through := func(w float64) *big.Rat { return ratio().Mul(ratio(), exact(w)) }
	diff := floor(new(big.Rat).Sub(exact(w), through(w)))
	if w < ssthresh {
		if diff > 1 {
			w = min(w, floor(through(w))+1)
			ssthresh = min(ssthresh, w)
		}
	} else {
		alpha := p.Alpha
		if diff >= alpha {
			alpha = max(floor(new(big.Rat).Mul(exact(10), weight(paths, p))), 2)
		}
		switch {
		case diff > alpha:
			w--
			ssthresh = min(ssthresh, w)
		case diff < alpha:
			w++
		}
		queue := max(p.SRTT-p.BaseRTT, 0)
		full := set["drain"] != "alpha" || diff >= 2*alpha
		if full && queue > 0 && p.QueueUS > 0 && queue >= 2*p.QueueUS {
			w = floor(new(big.Rat).Quo(through(w), exact(2)))
		}
	}
	w = max(w, 2)
	return w, max(ssthresh, math.Floor(w*3/4))
}

// weight is x/X.
func weight(paths []Subflow, p Subflow) *big.Rat {
	total := new(big.Rat)
	for _, k := range paths {
		total.Add(total, exactRate(k))
	}
	return total.Quo(exactRate(p), total)
}
