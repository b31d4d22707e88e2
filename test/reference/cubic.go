// SPDX-License-Identifier: Apache-2.0

package reference

import "math"

// What the kernel's CUBIC rounds to: a tick of time, in microseconds, whole packets of a window, and 717/1024 for the
// 0.7 that a loss leaves.
const (
	cubicTick = 1024
	cubicC    = 0.4
)

// RFC 9438, sections 4.2 and 4.6, in whole packets: 1/cnt for each segment, cnt = floor(w / (W(t+RTT) - w)), where
// W(t) = C (t-K)^3 + W_max, K = cbrt((W_max - w_0)/C), w_0 = 717/1024 W_max; 2 at least, 100 w where W is not above w.
// Before the first loss W_max = w, K = 0, and cnt at most 20. RTT is the smallest one.
//
// near is the increase if the cube comes out a hair smaller or larger, where that makes another whole number.
func cubicIncrease(s Subflow) (up, near float64) {
	plateau, k := math.Floor(s.LastMax), 0.0
	if plateau == 0 {
		plateau = s.Cwnd
	} else {
		seconds := math.Cbrt((plateau - cubicAfterLoss(plateau)) / cubicC)
		k = math.Floor(seconds * 1e6 / cubicTick)
	}
	away := (math.Floor((s.EpochUS+s.BaseRTT)/cubicTick) - k) * cubicTick / 1e6
	cube := cubicC * math.Abs(away*away*away)
	increase := func(cube float64) float64 {
		missing := plateau + math.Copysign(math.Floor(cube), away) - s.Cwnd
		cnt := 100 * s.Cwnd
		if missing > 0 {
			cnt = math.Floor(s.Cwnd / missing)
		}
		if s.LastMax < 1 {
			cnt = min(cnt, 20)
		}
		return 1 / max(cnt, 2)
	}
	up = increase(cube)
	for _, other := range []float64{cube*(1-1e-8) - 1e-4, cube*(1+1e-8) + 1e-4} {
		if u := increase(max(other, 0)); u != up {
			near = u
		}
	}
	return up, near
}

// cubicAfterLoss is what a loss leaves.
func cubicAfterLoss(cwnd float64) float64 { return math.Floor(cwnd * 717 / 1024) }
