// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Zhao, Liu, Wang, equations (6)-(9): increase d - w kappa u, d = eps (w/RTT^2) / (sum w/RTT)^2, eps as in DTS;
// kappa u = k1 e/min(e) where all subflows have an energy profile, and k2 more where the queue takes longer
// than q_target. Besides, not the paper's, a share of d less: p1 (1 - min(e)/e) where all have a profile, and p2 more
// where the queue does. With epsilon=relative, not the paper's either, eps is over the largest of all subflows, and
// queues cost nothing where all subflows have one. A single subflow is Reno.
func init() {
	register("dtsx", Algorithm{
		Precision: 4e-4, // of the table of eps, whose errors are in both sides of a ratio
		Sets: []Tunables{
			{"k1_ppm": "0"},
			{"k2_ppm": "100000"},
			{"q_target_us": "0"},
			{"min_cwnd": "2"},
			{"base_rtt": "window"}, // where baseRTT comes from; the rule is the same
			{"p1_percent": "50"},
			{"p2_percent": "50"},
			{"p1_percent": "50", "p2_percent": "50", "k1_ppm": "0", "k2_ppm": "0"},
			{"k1_ppm": "100000", "k2_ppm": "0", "q_target_us": "10000000"},
			{"epsilon": "relative"},
			{"epsilon": "relative", "p1_percent": "50", "p2_percent": "50", "k1_ppm": "0", "k2_ppm": "0"},
		},
		Draw: func(r *rand.Rand, subflows []Subflow) {
			drawPrices(r, subflows)
			for i, s := range subflows {
				if r.IntN(4) == 0 {
					subflows[i].BaseRTT = math.Ceil(s.SRTT)
					subflows[i].SRTT = subflows[i].BaseRTT + 5000 + float64(r.IntN(9)-4)/8
				}
			}
		},
		Corners: append(priceCorners(),
			Corner{"queues at q_target and an eighth of a microsecond to either side", []Subflow{
				{Cwnd: 40, SRTT: 50_000, BaseRTT: 45_000},
				{Cwnd: 40, SRTT: 50_000.125, BaseRTT: 45_000},
				{Cwnd: 40, SRTT: 49_999.875, BaseRTT: 45_000},
			}},
			Corner{"queues on all", []Subflow{
				{Cwnd: 40, SRTT: 60_000, BaseRTT: 45_000}, {Cwnd: 20, SRTT: 90_000, BaseRTT: 50_000},
			}},
			Corner{"any queue at all", []Subflow{
				{Cwnd: 40, SRTT: 50_000, BaseRTT: 50_000}, {Cwnd: 40, SRTT: 50_000.125, BaseRTT: 50_000},
			}},
			Corner{"a long queue, base RTT unset", []Subflow{
				{Cwnd: 40, SRTT: 10_050_000, BaseRTT: 0}, {Cwnd: 40, SRTT: 10_050_000, BaseRTT: 49_999},
			}}),
		Rule: dtsx,
	})
}

func dtsx(paths []Subflow, set Tunables) []Decision {
	x := sum(paths, Subflow.rate)
	decisions := make([]Decision, len(paths))
	for i, p := range paths {
		share := p.rate() / p.SRTT / square(x)
		d := Decision{Up: share, AfterLoss: halved(p.Cwnd, soloFloor(len(paths), set))}
		if len(paths) > 1 {
			d.Up = epsilonAmong(paths, p, set) * share
			price := pathPrice(paths, p, set)
			paid, most := pathShare(paths, p, set)
			d.Coupling = price + d.Up*paid/p.Cwnd
			d.CouplingTerms = price + d.Up*most/p.Cwnd
			d.Down = p.Cwnd * d.Coupling
		}
		decisions[i] = d
	}
	return decisions
}

// pathPrice is kappa u.
func pathPrice(paths []Subflow, p Subflow, set Tunables) float64 {
	ppm := 0.0
	if priced(paths) {
		ppm = set.Number("k1_ppm", 1000) * p.PricePJ / cheapest(paths)
	}
	if paysForQueue(paths, p, set) {
		ppm += set.Number("k2_ppm", 1000)
	}
	return ppm / 1e6
}

// pathShare is what of its increase a path pays, and that before the difference 1 - min(e)/e is taken.
func pathShare(paths []Subflow, p Subflow, set Tunables) (paid, most float64) {
	percent, size := 0.0, 0.0
	if priced(paths) {
		size = set.Number("p1_percent", 0)
		percent = size * (1 - cheapest(paths)/p.PricePJ)
	}
	if paysForQueue(paths, p, set) {
		percent += set.Number("p2_percent", 0)
		size += set.Number("p2_percent", 0)
	}
	return percent / 100, size / 100
}

func paysForQueue(paths []Subflow, p Subflow, set Tunables) bool {
	if set["epsilon"] == "relative" && !slices.ContainsFunc(paths, func(q Subflow) bool { return !queues(q, set) }) {
		return false
	}
	return queues(p, set)
}

func queues(p Subflow, set Tunables) bool {
	return p.BaseRTT > 0 && p.SRTT-p.BaseRTT > set.Number("q_target_us", 5000)
}
