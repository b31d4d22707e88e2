// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"math"
	"math/big"
	"math/rand/v2"
)

// LIA (RFC 6356), and the cut of CDD-MPTCP's Algorithm 1: with theta = (1-beta) Dmax/Dmin + beta theta, the
// subflow with Dmax goes from w to w/theta above theta_max and to (w/theta + w)/2 above theta_0;
// rule=text: to the latter above theta_max. theta_max is midway between (N-2) tau/d + 1 and
// (N-1) tau/d + 1, tau/d = 1/w of the subflow with Dmin, of several the largest w. No cut below 2
// packets, or where the RTT is at most 1.05 of the base RTT, or at most noise_us above it.
func init() {
	register("cdd", Algorithm{
		Precision:  2e-8,
		SetsWindow: true,
		Sets: []Tunables{
			{"rule": "text"},
			{"beta_percent": "0"},
			{"beta_percent": "99", "theta_0_percent": "100"},
			{"theta_0_percent": "1000"},
			{"period_ms": "10"}, // when it is decided; the rule is the same
			{"noise_us": "4000"},
			{"base_rtt": "window"}, // where the base RTT comes from; the rule is the same
		},
		Draw: drawDelays,
		Corners: []Corner{
			{"theta_max of N 64, w 20 is 4.125: theta below", delays(40, 60, 4.12499, 64)},
			{"theta at theta_max", delays(40, 60, 4.125, 64)},
			{"theta above theta_max", delays(40, 60, 4.12501, 64)},
			{"theta at theta_0", []Subflow{
				{Cwnd: 40, SRTT: 90_000, BaseRTT: 40_000, Theta: 1.5, PeerWindow: 1000}, {Cwnd: 20, SRTT: 60_000, BaseRTT: 60_000},
			}},
			{"theta above theta_0", []Subflow{
				{Cwnd: 40, SRTT: 90_000, BaseRTT: 40_000, Theta: 1.50001, PeerWindow: 1000}, {Cwnd: 20, SRTT: 60_000, BaseRTT: 60_000},
			}},
			{"RTT at 1.05 of the base RTT", []Subflow{
				{Cwnd: 40, SRTT: 210_000, BaseRTT: 200_000, PeerWindow: 10}, {Cwnd: 20, SRTT: 60_000, BaseRTT: 60_000},
			}},
			{"RTT above 1.05 of the base RTT", []Subflow{
				{Cwnd: 40, SRTT: 210_000.125, BaseRTT: 200_000, PeerWindow: 10}, {Cwnd: 20, SRTT: 60_000, BaseRTT: 60_000},
			}},
			{"a cut in slow start ends it", []Subflow{
				{Cwnd: 40, Ssthresh: 64, SRTT: 120_000, BaseRTT: 50_000, PeerWindow: 10}, {Cwnd: 20, SRTT: 60_000, BaseRTT: 60_000},
			}},
			{"a cut above ssthresh leaves it", []Subflow{
				{Cwnd: 40, Ssthresh: 8, SRTT: 120_000, BaseRTT: 50_000, PeerWindow: 10}, {Cwnd: 20, SRTT: 60_000, BaseRTT: 60_000},
			}},
			{"windows of 1, 2 and 3 packets", []Subflow{
				{Cwnd: 1, SRTT: 400_000, BaseRTT: 50_000, PeerWindow: 2}, {Cwnd: 2, SRTT: 400_000, BaseRTT: 50_000, PeerWindow: 2},
				{Cwnd: 3, SRTT: 400_000, BaseRTT: 50_000, PeerWindow: 2}, {Cwnd: 20, SRTT: 60_000, BaseRTT: 60_000},
			}},
			{"peers that take 0, 1 and 2 packets", []Subflow{
				{Cwnd: 40, SRTT: 80_000, BaseRTT: 50_000, Theta: 1.01}, {Cwnd: 40, SRTT: 80_000, BaseRTT: 50_000, Theta: 1.01, PeerWindow: 1},
				{Cwnd: 40, SRTT: 80_000, BaseRTT: 50_000, Theta: 1.01, PeerWindow: 2}, {Cwnd: 20, SRTT: 79_000, BaseRTT: 60_000},
			}},
			{"two fastest with unlike windows", []Subflow{
				{Cwnd: 20, SRTT: 60_000, BaseRTT: 60_000}, {Cwnd: 90, SRTT: 60_000, BaseRTT: 60_000},
				{Cwnd: 40, SRTT: 120_000, BaseRTT: 50_000, PeerWindow: 50},
			}},
		},
		Rule: cdd,
	})
}

// delays is a subflow of this window that is the slowest, with a theta that stays, beside one of 20 packets.
func delays(cwnd, srtt, theta, peer float64) []Subflow {
	return []Subflow{
		{Cwnd: cwnd, SRTT: 1000 * srtt * 4.125, BaseRTT: 20_000, Theta: theta, PeerWindow: peer},
		{Cwnd: 20, SRTT: 1000 * srtt, BaseRTT: 20_000},
	}
}

// drawDelays brings the RTTs of half the connections within some multiples of each other, where theta is of
// the size of theta_0 and theta_max.
func drawDelays(r *rand.Rand, subflows []Subflow) {
	near, shortest := r.IntN(2) == 0, between(r, 100, MaxRTT/5)
	for i := range subflows {
		s := &subflows[i]
		if near && s.SRTT > 0 {
			s.SRTT = math.Round(8*shortest*between(r, 1, 5)) / 8
			s.BaseRTT = randomBase(r, s.SRTT)
		}
		if r.IntN(5) > 0 {
			s.Theta = between(r, 1, 20)
		}
		if r.IntN(10) > 0 {
			s.PeerWindow = math.Round(between(r, 1, MaxCwnd))
		}
	}
}

func cdd(paths []Subflow, set Tunables) []Decision {
	decisions := lia(paths, set)
	for i, p := range paths {
		theta := nextTheta(paths, p, set)
		d := &decisions[i]
		d.Window, d.Ssthresh = cut(paths, p, theta, set)
		d.Coupling, _ = theta.Float64()
	}
	return decisions
}

func slowestRTT(paths []Subflow) float64 {
	longest := 0.0
	for _, p := range paths {
		longest = max(longest, p.SRTT)
	}
	return longest
}

// quickest is the subflow with Dmin.
func quickest(paths []Subflow) Subflow {
	best := paths[0]
	for _, p := range paths {
		if p.SRTT < best.SRTT || p.SRTT == best.SRTT && p.Cwnd > best.Cwnd {
			best = p
		}
	}
	return best
}

func nextTheta(paths []Subflow, p Subflow, set Tunables) *big.Rat {
	now := exact(slowestRTT(paths))
	now.Quo(now, exact(quickest(paths).SRTT))
	if p.Theta == 0 {
		return now
	}
	beta := big.NewRat(int64(set.Number("beta_percent", 75)), 100)
	old := exact(p.Theta)
	old.Mul(old, beta)
	now.Mul(now, beta.Sub(exact(1), beta))
	return now.Add(now, old)
}

// cut is the window and ssthresh after a period.
func cut(paths []Subflow, p Subflow, theta *big.Rat, set Tunables) (window, ssthresh float64) {
	queue := 20*p.SRTT > 21*p.BaseRTT && p.SRTT > p.BaseRTT+set.Number("noise_us", 0)
	if len(paths) < 2 || p.SRTT < slowestRTT(paths) || p.Cwnd <= 2 || !queue {
		return p.Cwnd, p.Ssthresh
	}
	quotient := exact(p.Cwnd)
	quotient.Quo(quotient, theta)
	mean := new(big.Rat).Add(quotient, exact(p.Cwnd))
	mean.Quo(mean, exact(2))

	// A peer that takes less than 2 packets leaves nothing to reorder.
	most := exact(max(2*p.PeerWindow-3, 0))
	most.Quo(most, exact(2*quickest(paths).Cwnd))
	most.Add(most, exact(1))
	least := big.NewRat(int64(set.Number("theta_0_percent", 150)), 100)
	switch above := theta.Cmp(most) > 0; {
	case set["rule"] == "text" && above:
		window = floor(mean)
	case set["rule"] == "text":
		return p.Cwnd, p.Ssthresh
	case above:
		window = floor(quotient)
	case theta.Cmp(least) > 0:
		window = floor(mean)
	default:
		return p.Cwnd, p.Ssthresh
	}
	window = max(window, 2)
	return window, min(window, p.Ssthresh)
}
