// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mpcc/mpcc/internal/experiment/result"
)

// Outcomes of a claim.
const (
	Reproduced    = "reproduced"
	NotReproduced = "not reproduced"
	Undecided     = "undecided"
)

// Verdict is a claim and its outcome: reproduced if all checks are, not reproduced if any is not, else undecided.
type Verdict struct {
	result.Claim
	Outcome string  `json:"outcome"`
	Checks  []Check `json:"checks"`
}

// Check is the claim at one point of one run.
type Check struct {
	Run     string       `json:"run"` // its label
	Point   result.Point `json:"point"`
	Ours    Estimate     `json:"ours"` // of the metric or, if the claim has a to, of the ratio in each repeat
	Outcome string       `json:"outcome"`
}

// other returns the Select that the claim divides by: To, with the claim's own values on the axes that To.At
// leaves out. It is the claim's own Select if there is no To.
func other(c result.Claim) result.Select {
	if c.To == nil {
		return c.Select
	}
	o := result.Select{Metric: c.To.Metric, Of: c.To.Of, At: result.Point{}}
	maps.Copy(o.At, c.At)
	maps.Copy(o.At, c.To.At)
	return o
}

func (g *group) verdicts() []Verdict {
	verdicts := []Verdict{}
	for _, c := range g.sources[0].Expect.Claims {
		v := Verdict{Claim: c, Checks: []Check{}}
		for i := range g.sources {
			v.Checks = append(v.Checks, g.sources[i].checks(c)...)
		}
		v.Outcome = Reproduced
		for _, check := range v.Checks {
			switch {
			case check.Outcome == NotReproduced:
				v.Outcome = NotReproduced
			case check.Outcome == Undecided && v.Outcome == Reproduced:
				v.Outcome = Undecided
			}
		}
		if len(v.Checks) == 0 {
			v.Outcome = Undecided
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// checks judges the claim at every measured point that it picks.
func (s *source) checks(c result.Claim) []Check {
	m, _ := result.FindMetric(c.Metric)
	to := other(c)
	n, _ := result.FindMetric(to.Metric)
	var checks []Check
	for _, point := range (&group{sources: []source{{Result: s.Result}}, axes: s.Sweep}).points() {
		if !point.Agrees(c.At) {
			continue
		}
		base := maps.Clone(point)
		maps.Copy(base, to.At)
		if c.To != nil && n.Name == m.Name && to.Of == c.Of && maps.Equal(base, point) {
			continue // the claim would compare this point with itself
		}
		var values []float64
		for _, run := range s.at(point) {
			v, ok := m.Value(run, c.Of)
			if c.To != nil {
				divisor, found := s.repeat(n, to.Of, base, run.Repeat)
				v, ok = v/divisor, ok && found && divisor != 0
			}
			if ok {
				values = append(values, v)
			}
		}
		if len(values) > 0 {
			e := estimate(values)
			checks = append(checks, Check{s.label, s.reduced(point), e, judge(c, e)})
		}
	}
	return checks
}

// repeat returns the metric of one repeat at a point; false if there is none.
func (s *source) repeat(m result.Metric, of string, point result.Point, repeat int) (float64, bool) {
	runs := s.at(point)
	i := slices.IndexFunc(runs, func(r *result.Run) bool { return r.Repeat == repeat })
	if i < 0 {
		return 0, false
	}
	return m.Value(runs[i], of)
}

// judge returns the outcome of a check. It takes the whole confidence interval to decide; a single repeat has
// none, and leaves the check undecided.
func judge(c result.Claim, e Estimate) string {
	if e.Low == nil {
		return Undecided
	}
	yes, no := false, false
	switch c.Relation {
	case result.Above:
		yes, no = *e.Low > c.Bound, *e.High <= c.Bound
	case result.Below:
		yes, no = *e.High < c.Bound, *e.Low >= c.Bound
	case result.Within:
		low, high := c.Bound-c.Margin, c.Bound+c.Margin
		yes, no = *e.Low >= low && *e.High <= high, *e.High < low || *e.Low > high
	}
	switch {
	case yes:
		return Reproduced
	case no:
		return NotReproduced
	}
	return Undecided
}

// said returns the claim's condition in words, such as "ratio of goodput of multi to goodput of single > 1".
func said(c result.Claim) string {
	text := describe(c.Select)
	if c.To != nil {
		o := other(c)
		text = "ratio of " + text + " to " + describe(o)
	}
	switch c.Relation {
	case result.Above:
		return fmt.Sprintf("%s > %g", text, c.Bound)
	case result.Below:
		return fmt.Sprintf("%s < %g", text, c.Bound)
	}
	return fmt.Sprintf("%s = %g ± %g", text, c.Bound, c.Margin)
}

func describe(s result.Select) string {
	text := s.Metric
	if s.Of != "" {
		text += " of " + s.Of
	}
	if len(s.At) > 0 {
		text += " at " + pointText(s.At)
	}
	return text
}
