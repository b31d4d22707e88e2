// SPDX-License-Identifier: Apache-2.0

package reference

// LIA's increase (RFC 6356) in inverse proportion to the energy per bit: min(alpha/W min(e)/e, 1/w). Of
// emReno no more is published than that. Where a subflow has no energy profile, LIA.
func init() {
	register("emreno", Algorithm{
		Precision: 2e-8,
		Draw:      drawPrices,
		Corners:   priceCorners(),
		Rule:      emreno,
	})
}

func emreno(paths []Subflow, _ Tunables) []Decision {
	linked := linkedIncrease(paths)
	decisions := make([]Decision, len(paths))
	for i, p := range paths {
		weight := 1.0
		if priced(paths) {
			weight = cheapest(paths) / p.PricePJ
		}
		decisions[i] = Decision{
			Up:        min(linked*weight, 1/p.Cwnd),
			AfterLoss: halved(p.Cwnd, 2),
			Coupling:  weight,
		}
	}
	return decisions
}
