// SPDX-License-Identifier: Apache-2.0

package reference

import "math"

// Kelly and Voice, Han et al.; variant=a as "COUPLED" in NSDI 2011: increase 1/W, W/2 less after a loss.
// variant=b as Zhao, Liu, Wang model it, section IV: increase w/W^2, w/2 less after a loss.
func init() {
	register("coupled", Algorithm{
		Precision: 2e-8,
		Sets:      []Tunables{{"variant": "a"}, {"min_cwnd": "2"}, {"variant": "a", "min_cwnd": "2"}},
		Corners: []Corner{
			{"half of the total, and a packet more or less", []Subflow{
				{Cwnd: 50, SRTT: 10_000}, {Cwnd: 24, SRTT: 10_000}, {Cwnd: 26, SRTT: 10_000},
			}},
			{"a packet above half", []Subflow{{Cwnd: 51, SRTT: 10_000}, {Cwnd: 49, SRTT: 10_000}}},
			{"three packets above half", []Subflow{{Cwnd: 53, SRTT: 10_000}, {Cwnd: 47, SRTT: 10_000}}},
		},
		Rule: coupled,
	})
}

func coupled(paths []Subflow, set Tunables) []Decision {
	total := sum(paths, func(p Subflow) float64 { return p.Cwnd })
	decisions := make([]Decision, len(paths))
	for i, p := range paths {
		d := Decision{Up: p.Cwnd / square(total), Coupling: p.Cwnd / total}
		left := p.Cwnd / 2
		if set["variant"] == "a" {
			d.Up = min(1/total, 1/p.Cwnd)
			left = p.Cwnd - total/2
		}
		d.AfterLoss = max(math.Floor(left), soloFloor(len(paths), set))
		decisions[i] = d
	}
	return decisions
}
