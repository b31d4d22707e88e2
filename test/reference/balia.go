// SPDX-License-Identifier: Apache-2.0

package reference

// draft-walid-mptcp-congestion-control-04: with x = w/rtt and y = max(x)/x, increase
// x / (rtt X^2) (1+y)/2 (4+y)/5, and w/2 min(y, 1.5) less after a loss.
func init() {
	register("balia", Algorithm{
		Precision: 2e-8,
		Sets:      []Tunables{{"min_cwnd": "2"}},
		Corners: []Corner{
			{"y just below and above its bound", []Subflow{
				{Cwnd: 30_000, SRTT: 10_000}, {Cwnd: 20_001, SRTT: 10_000}, {Cwnd: 19_999, SRTT: 10_000},
			}},
			{"a loss that leaves just a whole number", []Subflow{
				{Cwnd: 500_000, SRTT: 40_000}, {Cwnd: 1_000_000, SRTT: 100_000},
			}},
			{"a loss that leaves just less", []Subflow{
				{Cwnd: 500_000, SRTT: 40_000}, {Cwnd: 999_999, SRTT: 100_000},
			}},
		},
		Rule: balia,
	})
}

func balia(paths []Subflow, set Tunables) []Decision {
	x := sum(paths, Subflow.rate)
	fastest := paths[first(argmax(paths, exactRate))]
	decisions := make([]Decision, len(paths))
	for i, p := range paths {
		slowness := exactRate(fastest)
		slowness.Quo(slowness, exactRate(p))
		y, _ := slowness.Float64()
		if slowness.Cmp(exact(1.5)) > 0 {
			slowness = exact(1.5)
		}
		slowness.Quo(slowness, exact(2))
		left := slowness.Sub(exact(1), slowness)
		decisions[i] = Decision{
			Up:        p.rate() / p.SRTT / square(x) * (1 + y) / 2 * (4 + y) / 5,
			AfterLoss: max(floor(left.Mul(left, exact(p.Cwnd))), soloFloor(len(paths), set)),
			Coupling:  y,
		}
	}
	return decisions
}
