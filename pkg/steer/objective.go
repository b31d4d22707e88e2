// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"cmp"
	"math"
	"slices"
)

// The objective of ES-MPTCP (Electronics 2022, 11(3), 490): O = ΣX − λE, where a set of paths moves a
// transfer of N Mbit at the rates X in T = N/ΣX seconds and takes E = T·Σ(bX + θ) mJ for it. λ weighs
// mJ against Mbit/s; the paper gives λ no unit. For X the paper takes the rates that LIA settles at, equation (7). By
// equation (7) a path with a few losses carries next to nothing beside a path without a loss, and the energy of a Mbit
// on the lossy path, b + θ/X, grows without bound. mpcc's controls couple subflows only behind one bottleneck, so X is
// measured here.

// Path is what an Objective has to know of a subflow.
type Path struct {
	Rate  float64 // X, Mbit/s expected; above 0
	Slope float64 // b, mW/Mbps
	Base  float64 // θ, mW while active
}

// Cost returns the energy of a Mbit at the path's rate, in mJ: b' = b + θ/X.
func (p Path) Cost() float64 { return p.Slope + p.Base/p.Rate }

// Objective is that of ES-MPTCP: the rate of a set of paths, less the weighted energy of a transfer over them.
// The set with the greatest value is the best. Larger parameters favour fewer paths.
type Objective struct {
	Lambda float64 // weight of 1 mJ, in Mbit/s; 0 or more
	Size   float64 // of a transfer, in Mbit; above 0
}

// Of returns O for a set of paths, minus infinity for none.
func (o Objective) Of(set []Path) float64 {
	rate, power := 0., 0.
	for _, p := range set {
		rate += p.Rate
		power += p.Slope*p.Rate + p.Base
	}
	if rate == 0 {
		return math.Inf(-1) // an empty set moves nothing
	}
	return rate - o.Lambda*power*o.Size/rate
}

// Choice is what Objective.Choose returns.
type Choice struct {
	Order []int     // indices of the paths, cheapest Mbit first
	O     []float64 // O[k-1] for the first k of them
	K     int       // the k with the greatest O
}

// Best returns the paths to use, as indices of those given to Choose.
func (c Choice) Best() []int { return c.Order[:c.K] }

// Choose sorts the paths by cost, and returns with how many of the cheapest O is greatest. Where several numbers
// of paths have the same O, it takes the fewest.
func (o Objective) Choose(paths []Path) Choice {
	var c Choice
	for i := range paths {
		c.Order = append(c.Order, i)
	}
	slices.SortStableFunc(c.Order, func(a, b int) int { return cmp.Compare(paths[a].Cost(), paths[b].Cost()) })
	var set []Path
	for _, i := range c.Order {
		set = append(set, paths[i])
		c.O = append(c.O, o.Of(set))
		if c.K == 0 || c.O[len(c.O)-1] > c.O[c.K-1] {
			c.K = len(c.O)
		}
	}
	return c
}

// hysteresis is the part of its absolute value by which O has to grow for a change of the set.
const hysteresis = 0.05

// worthwhile reports whether O grows enough.
func worthwhile(now, then float64) bool {
	return then-now > hysteresis*math.Abs(now) || math.IsInf(now, -1)
}
