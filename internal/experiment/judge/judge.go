// SPDX-License-Identifier: Apache-2.0

// Package judge decides a scenario's claims from the repeats of its runs, by rules that are fixed before anything is
// run, and says how many repeats that takes.
//
// Three questions are asked of a claim, each by a t-test over repeats: does the value meet the condition; does it
// fail it; is it so near to no effect that nobody would care (two one-sided tests). As a scenario has several claims,
// and each is judged at several points, the p-values of each question are corrected by Holm's method over all that is
// judged in one scenario. Over a scenario, because its claims are about one experiment and are read together; over
// all scenarios, the verdict on one experiment would change whenever another is added.
package judge

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/mpcc/mpcc/internal/experiment/result"
)

// Verdicts on a claim.
const (
	Reproduced   = "reproduced"
	Contradicted = "contradicted"
	NoEffect     = "no effect"
	Inconclusive = "inconclusive"
	NotTestable  = "not testable"
)

// Verdicts lists them, in the order of tables.
var Verdicts = []string{Reproduced, Contradicted, NoEffect, Inconclusive, NotTestable}

// How often, at most, any claim of a scenario is called reproduced that is not, and the same for the other two verdicts:
// AlphaSide, which is what a 95 % interval leaves out on one side, or AlphaBoth if any of the claims is a within.
const (
	AlphaSide = 0.025 // reproduced, contradicted
	AlphaBoth = 0.05  // equivalence, by two one-sided tests: no effect, and within
)

// Sample is what repeats show of the value that a claim is about.
type Sample struct {
	N     int
	Mean  float64
	Error float64 // standard error of the mean
}

// P has the p-values of the three questions. One that is not asked has 1.
type P struct {
	Reproduced   float64 `json:"reproduced"`
	Contradicted float64 `json:"contradicted"`
	NoEffect     float64 `json:"no_effect"`
}

// Decision is the verdict at one point, with the p-values after the correction.
type Decision struct {
	Verdict string
	P       P
}

// Test returns the p-values of a claim at one point, without correction. It needs two repeats.
func Test(c result.Claim, s Sample) P {
	p := P{1, 1, 1}
	if s.N < 2 {
		return p
	}
	switch c.Relation {
	case result.Above:
		p.Reproduced, p.Contradicted = s.above(c.Bound), s.below(c.Bound)
	case result.Below:
		p.Reproduced, p.Contradicted = s.below(c.Bound), s.above(c.Bound)
	case result.Within:
		low, high := c.Bound-c.Margin, c.Bound+c.Margin
		p.Reproduced, p.Contradicted = s.inside(low, high), min(s.below(low), s.above(high))
	}
	if c.Negligible > 0 {
		p.NoEffect = s.inside(1-c.Negligible, 1+c.Negligible)
	}
	return p
}

// above returns the p-value against a true value of at most the bound.
func (s Sample) above(bound float64) float64 {
	if s.Error == 0 {
		if s.Mean > bound {
			return 0
		}
		return 1
	}
	return distuv.StudentsT{Sigma: 1, Nu: float64(s.N - 1)}.Survival((s.Mean - bound) / s.Error)
}

// below returns the p-value against a true value of at least the bound.
func (s Sample) below(bound float64) float64 {
	return Sample{s.N, -s.Mean, s.Error}.above(-bound)
}

// inside returns the p-value of two one-sided tests against a true value that is not between low and high.
func (s Sample) inside(low, high float64) float64 { return max(s.above(low), s.below(high)) }

// Decide judges all that is to be judged in a scenario: a claim at each of its points. Samples of claims that are not
// testable are not counted.
func Decide(claims []result.Claim, samples []Sample) []Decision {
	decisions := make([]Decision, len(claims))
	var judged []int
	for i, c := range claims {
		decisions[i] = Decision{Inconclusive, Test(c, samples[i])}
		switch {
		case c.Untestable != "":
			decisions[i] = Decision{NotTestable, P{1, 1, 1}}
		case samples[i].N > 1:
			judged = append(judged, i)
		}
	}
	for _, of := range []func(*P) *float64{
		func(p *P) *float64 { return &p.Reproduced },
		func(p *P) *float64 { return &p.Contradicted },
		func(p *P) *float64 { return &p.NoEffect },
	} {
		values := make([]float64, len(judged))
		for k, i := range judged {
			values[k] = *of(&decisions[i].P)
		}
		for k, p := range Holm(values) {
			*of(&decisions[judged[k]].P) = p
		}
	}
	for _, i := range judged {
		decisions[i].Verdict = verdict(claims[i], decisions[i].P)
	}
	return decisions
}

// verdict goes by the size of an effect before its sign: one that is certain, but negligible, is none.
func verdict(c result.Claim, p P) string {
	alpha := AlphaSide
	if c.Relation == result.Within {
		alpha = AlphaBoth
	}
	switch {
	case p.NoEffect <= AlphaBoth:
		return NoEffect
	case p.Reproduced <= alpha:
		return Reproduced
	case p.Contradicted <= AlphaSide:
		return Contradicted
	}
	return Inconclusive
}

// Whole returns the verdict on a claim from the verdicts at its points. A claim about all points is contradicted by a
// single point, a claim that says anywhere only by all points together. Holm's correction covers the number of
// points.
func Whole(c result.Claim, at []string) string {
	switch {
	case c.Untestable != "":
		return NotTestable
	case len(at) == 0:
		return Inconclusive
	case c.Anywhere && slices.Contains(at, Reproduced):
		return Reproduced
	case c.Anywhere && slices.Contains(at, Inconclusive):
		return Inconclusive
	case slices.Contains(at, Contradicted):
		return Contradicted
	}
	for _, v := range at[1:] {
		if v != at[0] {
			return Inconclusive
		}
	}
	return at[0]
}

// Holm returns the p-values after Holm's correction: those up to alpha are wrong all together with a chance of alpha at
// most.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	corrected := make([]float64, len(p))
	largest := 0.0
	for step, i := range order {
		largest = max(largest, min(1, float64(len(p)-step)*p[i]))
		corrected[i] = largest
	}
	return corrected
}

// MostRepeats is the largest plan. One that needs more asks for longer runs instead, or for a larger effect.
const MostRepeats = 1000

// Repeats returns how many repeats a claim's plan needs if that many tests are made in its scenario; more than
// MostRepeats if those are not enough.
func Repeats(c result.Claim, tests int) int {
	for n := 2; n <= MostRepeats; n++ {
		if Power(c, n, tests) >= c.Plan.Power {
			return n
		}
	}
	return MostRepeats + 1
}

// Power returns the chance to call a claim reproduced with n repeats if it is true by as much as its plan says, and if
// it is the first of Holm's steps, which asks most. For within it is a lower bound, and near it from a power of 0.8 on:
// the sum of the chances that either of the two tests fails counts twice when both do.
func Power(c result.Claim, n, tests int) float64 {
	if n < 2 || c.Plan.Spread <= 0 {
		return 0
	}
	nu, error := float64(n-1), c.Plan.Spread/math.Sqrt(float64(n))
	told := func(effect, alpha float64) float64 {
		limit := distuv.StudentsT{Sigma: 1, Nu: nu}.Quantile(1 - alpha/float64(tests))
		return 1 - distuv.NoncentralT{Nu: nu, Mu: effect / error}.CDF(limit)
	}
	if c.Relation == result.Within {
		return max(0, 2*told(c.Margin, AlphaBoth)-1)
	}
	return told(c.Plan.Effect, AlphaSide)
}
