// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"math"
	"math/rand/v2"
	"slices"
)

const maxPrice = 1<<32 - 1 // pJ per bit

// priced tells whether all of the subflows have an energy profile.
func priced(paths []Subflow) bool {
	return !slices.ContainsFunc(paths, func(p Subflow) bool { return p.PricePJ == 0 })
}

// cheapest is the lowest energy per bit.
func cheapest(paths []Subflow) float64 {
	low := math.Inf(1)
	for _, p := range paths {
		low = min(low, p.PricePJ)
	}
	return low
}

// drawPrices gives most connections energy profiles on all interfaces, some on all but one.
func drawPrices(r *rand.Rand, subflows []Subflow) {
	if r.IntN(4) == 0 {
		return
	}
	for i := range subflows {
		subflows[i].PricePJ = math.Round(between(r, 1, maxPrice))
	}
	if r.IntN(8) == 0 {
		subflows[r.IntN(len(subflows))].PricePJ = 0
	}
}

func priceCorners() []Corner {
	base := []Subflow{
		{Cwnd: 40, SRTT: 60_000, BaseRTT: 45_000, BytesBetweenLosses: 300_000, BytesSinceLoss: 90_000},
		{Cwnd: 25, SRTT: 35_000, BaseRTT: 20_000, BytesBetweenLosses: 80_000, BytesSinceLoss: 500_000},
		{Cwnd: 12, SRTT: 110_000, BaseRTT: 90_000, BytesSinceLoss: 2_000_000},
	}
	at := func(name string, prices ...float64) Corner {
		c := Corner{Name: name, Subflows: slices.Clone(base)}
		for i, price := range prices {
			c.Subflows[i].PricePJ = price
		}
		return c
	}
	backup := at("a cheaper backup, which sets no price", 200_000, 300_000, 1000)
	backup.Subflows[2].Backup = 1
	unpriced := at("a closing one without a profile, which is none of them", 200_000, 300_000, 0)
	unpriced.Subflows[2].Closing = 1
	return []Corner{
		at("all cost the same", 150_000, 150_000, 150_000),
		at("three prices", 137_000, 1_288_000, 283_170),
		at("one has no profile", 137_000, 0, 283_170),
		at("one pJ, and the most there is", 1, maxPrice, maxPrice),
		at("a pJ apart at the top", maxPrice-1, maxPrice, maxPrice-1),
		backup,
		unpriced,
		{"one subflow with a profile", []Subflow{{Cwnd: 25, SRTT: 80_000, BaseRTT: 40_000, BytesSinceLoss: 100_000, PricePJ: 500_000}}},
	}
}
