// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"cmp"
	"math"
	"slices"
)

// The objective of ES-MPTCP (Electronics 2022, 11(3), 490): O = ΣX − λE, where a set of paths moves a
// transfer of N Mbit at the rates X in T = N/ΣX seconds and takes E = T·Σ(bX + θ) mJ for it. λ stands
// between the Mbit/s and the mJ, which the paper subtracts from each other as they are.

// Path is what the objective has to know of a subflow.
type Path struct {
	Rate  float64 // X, Mbit/s expected; above 0
	Slope float64 // b, mW/Mbps
	Base  float64 // θ, mW while active
}

// Cost is the energy of a Mbit at the path's rate, in mJ: b' = b + θ/X.
func (p Path) Cost() float64 { return p.Slope + p.Base/p.Rate }

// Objective has the two parameters of O.
type Objective struct {
	Lambda float64 // what a mJ counts, in Mbit/s
	Size   float64 // N, the size of a transfer in Mbit
}

// Of is O for a set of paths.
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

// Choice is what the objective says about paths.
type Choice struct {
	Order []int     // the paths, cheapest Mbit first
	O     []float64 // O[k-1] for the first k of them
	K     int       // the k with the greatest O
}

// Best are the paths to use.
func (c Choice) Best() []int { return c.Order[:c.K] }

// Choose sorts the paths by cost and finds the best k of them; of equals the least.
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

// hysteresis is by how much of its size O has to grow for a change of the set.
const hysteresis = 0.05

// worthwhile tells whether O grows enough.
func worthwhile(now, then float64) bool {
	return then-now > hysteresis*math.Abs(now) || math.IsInf(now, -1)
}

// Link is what the paper's equation (7) has to know of a subflow.
type Link struct {
	Loss float64 // p, loss events for each packet; above 0
	RTT  float64 // s; above 0
}

// Equilibrium gives the rates, in packets per second, that LIA settles at: equation (7). Together they are
// that of one TCP connection on the best of the links.
func Equilibrium(links []Link) []float64 {
	best, sum := 0., 0.
	for _, l := range links {
		best = max(best, math.Sqrt(2/l.Loss)/l.RTT)
		sum += 1 / (l.RTT * l.Loss)
	}
	rates := make([]float64, len(links))
	for i, l := range links {
		rates[i] = best / sum / (l.Loss * l.RTT)
	}
	return rates
}
