// SPDX-License-Identifier: Apache-2.0

package reference

import "math"

// Zhao, Liu, Wang, section V: increase eps (w/RTT^2) / (sum w/RTT)^2 with
// eps = 2 / (1 + exp(-10 (baseRTT/RTT - 1/2))), and eps = 1 for a single subflow. With epsilon=relative, not the paper's,
// eps is over the largest eps of all subflows.
func init() {
	register("dts", Algorithm{
		Precision: 4e-4, // of the table of eps, whose errors are in both sides of a ratio
		Sets: []Tunables{
			{"cap": "on"},
			{"min_cwnd": "2"},
			{"base_rtt": "window"}, // where baseRTT comes from; the rule is the same
			{"epsilon": "relative"},
			{"epsilon": "relative", "cap": "on"},
		},
		Rule: dts,
	})
}

func dts(paths []Subflow, set Tunables) []Decision {
	x := sum(paths, Subflow.rate)
	decisions := make([]Decision, len(paths))
	for i, p := range paths {
		d := Decision{AfterLoss: halved(p.Cwnd, soloFloor(len(paths), set)), Coupling: 1}
		if len(paths) > 1 {
			d.Coupling = epsilonAmong(paths, p, set)
		}
		d.Up = d.Coupling * p.Cwnd / square(p.SRTT) / square(x)
		if set["cap"] == "on" {
			d.Up = min(d.Up, 1/p.Cwnd)
		}
		decisions[i] = d
	}
	return decisions
}

// epsilonAmong is eps of one of several subflows.
func epsilonAmong(paths []Subflow, p Subflow, set Tunables) float64 {
	if set["epsilon"] != "relative" {
		return epsilon(p)
	}
	largest := 0.0
	for _, q := range paths {
		largest = max(largest, epsilon(q))
	}
	return epsilon(p) / largest
}

func epsilon(p Subflow) float64 {
	// A smoothed RTT can fall below every sample that the minimum has seen since it was unset.
	ratio := min(p.BaseRTT/p.SRTT, 1)
	if p.BaseRTT == 0 {
		ratio = 1
	}
	return 2 / (1 + math.Exp(-10*(ratio-0.5)))
}
