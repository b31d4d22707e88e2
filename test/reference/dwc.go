// SPDX-License-Identifier: Apache-2.0

package reference

import "math/rand/v2"

// Zhao, Liu, Wang give for DWC, section IV: increase rtt / (n min(rtt) W) over the n subflows that share
// a bottleneck; with a cap of 1/w.
func init() {
	register("dwc", Algorithm{
		Precision: 2e-8,
		Draw: func(r *rand.Rand, subflows []Subflow) {
			groups := 1 + r.IntN(3)
			for i := range subflows {
				subflows[i].Group = float64(r.IntN(groups))
			}
		},
		Corners: []Corner{
			{"two groups", []Subflow{
				{Cwnd: 40, SRTT: 60_000}, {Cwnd: 25, SRTT: 35_000, Group: 1},
				{Cwnd: 12, SRTT: 110_000}, {Cwnd: 90, SRTT: 20_000, Group: 1},
			}},
			{"each on its own", []Subflow{
				{Cwnd: 40, SRTT: 60_000}, {Cwnd: 25, SRTT: 35_000, Group: 1}, {Cwnd: 12, SRTT: 110_000, Group: 2},
			}},
			{"groups 256 and 2^32 - 1", []Subflow{
				{Cwnd: 40, SRTT: 60_000, Group: 256}, {Cwnd: 25, SRTT: 35_000, Group: 256},
				{Cwnd: 12, SRTT: 110_000, Group: 1<<32 - 1}, {Cwnd: 90, SRTT: 20_000},
			}},
			{"backups in a group of their own", []Subflow{
				{Cwnd: 40, SRTT: 60_000}, {Cwnd: 25, SRTT: 35_000, Group: 1, Backup: 1},
				{Cwnd: 12, SRTT: 110_000, Group: 1, Backup: 1},
			}},
			{"just the cap", []Subflow{{Cwnd: 30, SRTT: 40_000}, {Cwnd: 10, SRTT: 15_000}}},
			{"just above the cap", []Subflow{{Cwnd: 30, SRTT: 40_000.125}, {Cwnd: 10, SRTT: 15_000}}},
		},
		Rule: dwc,
	})
}

func dwc(paths []Subflow, _ Tunables) []Decision {
	groups := map[float64][]Subflow{}
	for _, p := range paths {
		groups[p.Group] = append(groups[p.Group], p)
	}
	decisions := make([]Decision, len(paths))
	for i, p := range paths {
		group := groups[p.Group]
		n := float64(len(group))
		shortest := p.SRTT
		for _, k := range group {
			shortest = min(shortest, k.SRTT)
		}
		total := sum(group, func(k Subflow) float64 { return k.Cwnd })
		decisions[i] = Decision{
			Up:        min(p.SRTT/(n*shortest*total), 1/p.Cwnd),
			AfterLoss: halved(p.Cwnd, 2),
			Coupling:  n,
		}
	}
	return decisions
}
