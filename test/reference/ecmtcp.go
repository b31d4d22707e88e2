// SPDX-License-Identifier: Apache-2.0

package reference

import "math/big"

// The increase that Zhao, Liu, Wang give for ecMTCP, section IV, LIA's times p_r/p_h (ratio=literal), or
// with the ratio the other way round: min(alpha/W s, 1/w), s = price_h/price_r kept to [1/8, 8], where a
// price is the loss rate p = 1/l, times the energy per bit where all subflows have a profile, and h has
// the largest rate w/rtt, of several the one with the largest loss rate, then energy. s = 1 while a
// subflow has no l. With no_loss=alike a subflow that has had no loss yet has no smaller l than h.
func init() {
	register("ecmtcp", Algorithm{
		Precision: 2e-8,
		Sets:      []Tunables{{"ratio": "literal"}, {"no_loss": "alike"}, {"ratio": "literal", "no_loss": "alike"}},
		Draw:      drawPrices,
		Corners: append(priceCorners(),
			Corner{"a ratio at its bounds", []Subflow{
				{Cwnd: 50, SRTT: 50_000, BytesSinceLoss: 80_000},
				{Cwnd: 10, SRTT: 50_000, BytesSinceLoss: 640_000},
				{Cwnd: 10, SRTT: 50_000, BytesSinceLoss: 10_000},
			}},
			Corner{"a ratio a byte within its bounds", []Subflow{
				{Cwnd: 50, SRTT: 50_000, BytesSinceLoss: 80_000},
				{Cwnd: 10, SRTT: 50_000, BytesSinceLoss: 639_999},
				{Cwnd: 10, SRTT: 50_000, BytesSinceLoss: 10_001},
			}},
			Corner{"a ratio a byte beyond its bounds", []Subflow{
				{Cwnd: 50, SRTT: 50_000, BytesSinceLoss: 80_000},
				{Cwnd: 10, SRTT: 50_000, BytesSinceLoss: 640_001},
				{Cwnd: 10, SRTT: 50_000, BytesSinceLoss: 9_999},
			}},
			Corner{"one has no loss rate", []Subflow{
				{Cwnd: 50, SRTT: 50_000, BytesSinceLoss: 80_000, PricePJ: 100_000},
				{Cwnd: 10, SRTT: 50_000, PricePJ: 200_000},
			}},
			Corner{"two without a loss yet, less and more carried than by the fastest", []Subflow{
				{Cwnd: 50, SRTT: 50_000, BytesBetweenLosses: 80_000, BytesSinceLoss: 10_000},
				{Cwnd: 10, SRTT: 50_000, BytesSinceLoss: 15_000},
				{Cwnd: 10, SRTT: 50_000, BytesSinceLoss: 160_000},
			}},
			Corner{"rates tied, more losses on the first", []Subflow{
				{Cwnd: 10, SRTT: 50_000, BytesSinceLoss: 80_000}, {Cwnd: 20, SRTT: 100_000, BytesSinceLoss: 90_000},
			}},
			Corner{"rates tied, more losses on the last", []Subflow{
				{Cwnd: 10, SRTT: 50_000, BytesSinceLoss: 90_000}, {Cwnd: 20, SRTT: 100_000, BytesSinceLoss: 80_000},
			}},
			Corner{"rates and losses tied, the last dearer", []Subflow{
				{Cwnd: 10, SRTT: 50_000, BytesSinceLoss: 90_000, PricePJ: 100_000},
				{Cwnd: 20, SRTT: 100_000, BytesSinceLoss: 90_000, PricePJ: 200_000},
			}}),
		Rule: ecmtcp,
	})
}

func ecmtcp(paths []Subflow, set Tunables) []Decision {
	linked := linkedIncrease(paths)
	fastest := fastestAndDearest(paths)
	decisions := make([]Decision, len(paths))
	for i, p := range paths {
		s := shift(paths, fastest, p, set)
		decisions[i] = Decision{Up: min(linked*s, 1/p.Cwnd), AfterLoss: halved(p.Cwnd, 2), Coupling: s}
	}
	return decisions
}

func shift(paths []Subflow, h, p Subflow, set Tunables) float64 {
	for _, p := range paths {
		if p.interval() == 0 {
			return 1
		}
	}
	l := p.interval()
	if set["no_loss"] == "alike" && p.BytesBetweenLosses == 0 {
		l = max(l, h.interval())
	}
	if set["ratio"] == "literal" {
		return h.interval() / l
	}
	s := l / h.interval()
	if priced(paths) {
		s *= h.PricePJ / p.PricePJ
	}
	return min(max(s, 1.0/8), 8)
}

func fastestAndDearest(paths []Subflow) Subflow {
	for _, order := range []func(Subflow) *big.Rat{
		exactRate,
		func(p Subflow) *big.Rat { return exact(-p.interval()) },
		func(p Subflow) *big.Rat { return exact(p.PricePJ) },
	} {
		var best []Subflow
		for i, mark := range argmax(paths, order) {
			if mark {
				best = append(best, paths[i])
			}
		}
		paths = best
	}
	return paths[0]
}
