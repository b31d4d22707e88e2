// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"

	"github.com/mpcc/mpcc/internal/experiment/judge"
	"github.com/mpcc/mpcc/internal/experiment/result"
)

// planOf checks a claim's plan.
func (d *decoder) planOf(c *result.Claim) {
	p := c.Plan
	switch {
	case p == nil:
	case c.Untestable != "":
		d.At(&c.Untestable, "a claim that is not testable needs no plan: leave one of the two")
	case p.Spread <= 0:
		d.At(&p.Spread, "the spread is a standard deviation, above 0")
	case (c.Relation == result.Within) != (p.Effect == 0):
		d.At(&p.Effect, "above and below need an effect, above 0; within takes its margin")
	case p.Effect < 0 || p.Effect > 0 && p.Effect < c.Negligible:
		d.At(&p.Effect, "the effect is below what is negligible: no number of repeats tells it")
	}
}

// plan returns how many repeats the claims' plans need at each point of the full form that any of them is about, by the
// point as text. Each claim is a test at each of its points, for which the tests are corrected.
func (d *decoder) plan(s *Scenario) map[string]int {
	planned := map[string]int{}
	if d.Err() != nil {
		return planned
	}
	about, tests := s.compared()
	for i := range s.Expect.Claims {
		c := &s.Expect.Claims[i]
		if c.Plan == nil || len(about[i]) == 0 {
			continue
		}
		n := judge.Repeats(*c, tests)
		if n > judge.MostRepeats {
			d.At(&c.Plan.Spread, "%d repeats are not enough to tell the claim: plan for a larger effect, or for a smaller spread by longer runs",
				judge.MostRepeats)
			continue
		}
		for _, p := range about[i] {
			planned[fmt.Sprint(p)] = max(planned[fmt.Sprint(p)], n)
		}
	}
	return planned
}

// compared returns the points that each claim compares, and how many tests that makes of all together.
func (s *Scenario) compared() (about [][]result.Point, tests int) {
	about = make([][]result.Point, len(s.Expect.Claims))
	for i, c := range s.Expect.Claims {
		if c.Untestable != "" {
			continue
		}
		for _, p := range points(s.Sweep, false) {
			if base, ok := c.BasePoint(p); ok {
				about[i] = append(about[i], p, base)
				tests++
			}
		}
	}
	return about, tests
}

// Planned is what a claim's plan comes to.
type Planned struct {
	result.Claim
	Repeats int     // that the plan needs
	Power   float64 // with these
}

// Plans returns those of the claims that have one and are about a point of the sweep, and how many tests the p-values
// are corrected for.
func (f *File) Plans() (plans []Planned, tests int) {
	about, tests := f.compared()
	for i, c := range f.Expect.Claims {
		if c.Plan != nil && len(about[i]) > 0 {
			n := judge.Repeats(c, tests)
			plans = append(plans, Planned{c, n, judge.Power(c, n, tests)})
		}
	}
	return plans, tests
}
