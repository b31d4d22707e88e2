// SPDX-License-Identifier: Apache-2.0

package reference

import "math/big"

// draft-khalili-mptcp-congestion-control-05: increase (w/rtt^2) / (sum w/rtt)^2 + alpha/w. With M the
// subflows of the largest w, B those of the best l/rtt^2 (metric=square: l^2/rtt) and C = B minus M,
// alpha is 1/(n |C|) in C, -1/(n |M|) in M where C is not empty, and else 0.
func init() {
	register("olia", Algorithm{
		Precision: 2e-8,
		Sets:      []Tunables{{"metric": "square"}, {"min_cwnd": "2"}},
		Rule:      olia,
	})
}

func olia(paths []Subflow, set Tunables) []Decision {
	n := float64(len(paths))
	widest := argmax(paths, func(p Subflow) *big.Rat { return exact(p.Cwnd) })
	best := argmax(paths, func(p Subflow) *big.Rat {
		l, rtt := exact(p.interval()), exact(p.SRTT)
		if set["metric"] == "square" {
			l.Mul(l, l)
		} else {
			rtt.Mul(rtt, rtt)
		}
		return l.Quo(l, rtt)
	})
	collected := make([]bool, len(paths))
	for i := range paths {
		collected[i] = best[i] && !widest[i]
	}
	x := sum(paths, Subflow.rate)
	decisions := make([]Decision, len(paths))
	for i, p := range paths {
		d := Decision{Up: p.Cwnd / square(p.SRTT) / square(x), AfterLoss: halved(p.Cwnd, soloFloor(len(paths), set))}
		switch {
		case collected[i]:
			d.Coupling = 1 / (n * count(collected))
			d.Up += d.Coupling / p.Cwnd
		case widest[i] && count(collected) > 0:
			d.Coupling = -1 / (n * count(widest))
			d.Down = -d.Coupling / p.Cwnd
		}
		decisions[i] = d
	}
	return decisions
}
