// SPDX-License-Identifier: Apache-2.0

package reference

import "math"

// Honda et al., PFLDNeT 2009: increase a/w, with a = 1/sqrt(n) as Zhao, Liu, Wang model it, or 1/n^2
// (weight=fair), which takes as much of a shared bottleneck as one TCP.
func init() {
	register("ewtcp", Algorithm{
		Precision: 2e-9,
		Sets:      []Tunables{{"weight": "fair"}},
		Rule:      ewtcp,
	})
}

func ewtcp(paths []Subflow, set Tunables) []Decision {
	n := float64(len(paths))
	a := 1 / math.Sqrt(n)
	if set["weight"] == "fair" {
		a = 1 / square(n)
	}
	decisions := make([]Decision, len(paths))
	for i, p := range paths {
		decisions[i] = Decision{Up: a / p.Cwnd, AfterLoss: halved(p.Cwnd, 2), Coupling: a}
	}
	return decisions
}
