// SPDX-License-Identifier: Apache-2.0

package reference

// RFC 6356, section 3: alpha = W max(w/rtt^2) / (sum w/rtt)^2, increase min(alpha/W, 1/w).
func init() {
	register("lia", Algorithm{Precision: 2e-8, Rule: lia})
}

func lia(paths []Subflow, _ Tunables) []Decision {
	total := sum(paths, func(p Subflow) float64 { return p.Cwnd })
	linked := linkedIncrease(paths)
	decisions := make([]Decision, len(paths))
	for i, p := range paths {
		decisions[i] = Decision{
			Up:        min(linked, 1/p.Cwnd),
			AfterLoss: halved(p.Cwnd, 2),
			Coupling:  linked * total,
		}
	}
	return decisions
}

// linkedIncrease is alpha/W.
func linkedIncrease(paths []Subflow) float64 {
	best := 0.0
	for _, p := range paths {
		best = max(best, p.Cwnd/square(p.SRTT))
	}
	return best / square(sum(paths, Subflow.rate))
}
