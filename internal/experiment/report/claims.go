// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/mpcc/mpcc/internal/experiment/judge"
	"github.com/mpcc/mpcc/internal/experiment/result"
)

// Verdict is a claim and what became of it.
type Verdict struct {
	result.Claim
	Outcome string  `json:"outcome"` // one of judge.Verdicts, of all checks together
	Checks  []Check `json:"checks"`
}

// Check is the claim at one point of one run.
type Check struct {
	Run     string       `json:"run"` // its label
	Point   result.Point `json:"point"`
	Ours    Estimate     `json:"ours"` // of the metric or, if the claim has a to, of the ratio in each repeat
	Outcome string       `json:"outcome"`
	P       judge.P      `json:"p"`               // corrected for all checks of the run
	Planned int          `json:"planned_repeats"` // 0: there was no plan
	Power   *float64     `json:"power"`           // that the claim's plan has with as many repeats as there are; null without a plan
}

// verdicts judges the claims, each run by itself.
func (g *group) verdicts() []Verdict {
	claims := g.sources[0].Expect.Claims
	verdicts := make([]Verdict, len(claims))
	for i, c := range claims {
		verdicts[i] = Verdict{Claim: c, Checks: []Check{}}
	}
	for i := range g.sources {
		var of []int // the claim of each check
		var checks []Check
		for k, c := range claims {
			for _, check := range g.sources[i].checks(c) {
				of, checks = append(of, k), append(checks, check)
			}
		}
		decide(claims, of, checks)
		for j, check := range checks {
			verdicts[of[j]].Checks = append(verdicts[of[j]].Checks, check)
		}
	}
	for i := range verdicts {
		verdicts[i].whole()
	}
	return verdicts
}

// decide fills in the outcomes of all checks of one run; of has the claim of each.
func decide(claims []result.Claim, of []int, checks []Check) {
	var judged []result.Claim
	var samples []judge.Sample
	tests := 0
	for i, check := range checks {
		judged, samples = append(judged, claims[of[i]]), append(samples, check.Ours.sample())
		if claims[of[i]].Untestable == "" {
			tests++
		}
	}
	for i, d := range judge.Decide(judged, samples) {
		checks[i].Outcome, checks[i].P = d.Verdict, d.P
		if judged[i].Plan != nil {
			power := judge.Power(judged[i], samples[i].N, tests)
			checks[i].Power = &power
		}
	}
}

// whole fills in the verdict on the claim from those of the checks.
func (v *Verdict) whole() {
	var at []string
	for _, check := range v.Checks {
		at = append(at, check.Outcome)
	}
	v.Outcome = judge.Whole(v.Claim, at)
}

// sample returns what the verdict goes by. An interval is as good as the standard error: one follows from the other.
func (e Estimate) sample() judge.Sample {
	s := judge.Sample{N: e.N, Mean: e.Mean}
	if e.Low == nil {
		s.N = min(s.N, 1)
		return s
	}
	s.Error = (*e.High - *e.Low) / 2 / distuv.StudentsT{Sigma: 1, Nu: float64(e.N - 1)}.Quantile((1+confidence)/2)
	return s
}

// checks measures the claim at every point that it picks. They are not judged yet.
func (s *source) checks(c result.Claim) []Check {
	m, _ := result.FindMetric(c.Metric)
	to := c.Base()
	n, _ := result.FindMetric(to.Metric)
	var checks []Check
	for _, point := range (&group{sources: []source{{Result: s.Result}}, axes: s.Sweep}).points() {
		base, ok := c.BasePoint(point)
		if !ok {
			continue
		}
		var values []float64
		planned := s.planned(point)
		if c.To != nil {
			planned = min(planned, s.planned(base)) // a repeat is judged by both
		}
		for _, run := range s.sound(point) {
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
			checks = append(checks, Check{Run: s.label, Point: s.reduced(point), Ours: estimate(values), Planned: planned})
		}
	}
	return checks
}

// planned returns how many repeats are planned at a point.
func (s *source) planned(point result.Point) int {
	most := 0
	for _, run := range s.sound(point) {
		most = max(most, run.Planned)
	}
	return most
}

// repeat returns the metric of one repeat at a point; false if there is none.
func (s *source) repeat(m result.Metric, of string, point result.Point, repeat int) (float64, bool) {
	runs := s.sound(point)
	i := slices.IndexFunc(runs, func(r *result.Run) bool { return r.Repeat == repeat })
	if i < 0 {
		return 0, false
	}
	return m.Value(runs[i], of)
}

// said returns the claim's condition in words, such as "ratio of goodput of multi to goodput of single > 1".
func said(c result.Claim) string {
	text := describe(c.Select)
	if c.To != nil {
		text = "ratio of " + text + " to " + describe(c.Base())
	}
	switch c.Relation {
	case result.Above:
		text = fmt.Sprintf("%s > %g", text, c.Bound)
	case result.Below:
		text = fmt.Sprintf("%s < %g", text, c.Bound)
	default:
		text = fmt.Sprintf("%s = %g ± %g", text, c.Bound, c.Margin)
	}
	if c.Anywhere {
		text += " at any of the points"
	}
	if c.Negligible > 0 {
		text += fmt.Sprintf("; 1 ± %g is no effect", c.Negligible)
	}
	return text
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
