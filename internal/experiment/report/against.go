// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/mpcc/mpcc/internal/experiment/judge"
	"github.com/mpcc/mpcc/internal/experiment/result"
)

// Against returns for each experiment a table of how the main metrics at each point compare with those at the same
// point, but with another value of one variable: more, less, the same within the margin, or not told. It is judged like
// claims, with a correction over the whole table. It is an error if an experiment has no such variable or value.
func (r *Report) Against(axis, value string, margin float64) ([]Table, error) {
	var tables []Table
	for i := range r.groups {
		t, err := r.groups[i].against(&r.Experiments[i], axis, value, margin)
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// comparedAs has words for verdicts on "it is above the baseline".
var comparedAs = map[string]string{judge.Reproduced: "more", judge.Contradicted: "less", judge.NoEffect: "same", judge.Inconclusive: "not told"}

func (g *group) against(e *Experiment, axis, value string, margin float64) (Table, error) {
	t := Table{
		Caption: fmt.Sprintf("%s: against %s %s (same: within %g %%)", e.Scenario.Name, axis, value, 100*margin),
		Head:    []string{"metric", "of", "at", "run", "it is", "ratio"}, Words: 5,
	}
	if !has(g.sources, axis, value) {
		return t, fmt.Errorf("%s has no %s %s to compare with", e.Scenario.Name, axis, value)
	}
	for i := range g.sources {
		var claims []result.Claim
		var of []int
		var checks []Check
		for _, row := range e.Rows {
			if !row.Main || row.Point[axis] == value {
				continue
			}
			at := maps.Clone(row.Point)
			maps.Copy(at, g.sources[i].fixed)
			c := result.Claim{
				Select: result.Select{Metric: row.Metric, Of: row.Of, At: at}, Relation: result.Above, Bound: 1, Negligible: margin,
				To: &result.Select{Metric: row.Metric, Of: row.Of, At: result.Point{axis: value}},
			}
			for _, check := range g.sources[i].checks(c) {
				of, checks = append(of, len(claims)), append(checks, check)
			}
			claims = append(claims, c)
		}
		decide(claims, of, checks)
		for k, check := range checks {
			c := claims[of[k]]
			t.Rows = append(t.Rows, []string{
				c.Metric, cmp.Or(c.Of, "all"), cmp.Or(pointText(check.Point), "-"), check.Run, comparedAs[check.Outcome], check.Ours.String(),
			})
		}
	}
	return t, nil
}

// has says whether any run has the value of a variable.
func has(sources []source, axis, value string) bool {
	for _, s := range sources {
		for i := range s.Runs {
			if s.Runs[i].Point[axis] == value {
				return true
			}
		}
	}
	return false
}

// Baseline reads what mpcc report --against takes, variable=value.
func Baseline(text string) (axis, value string, err error) {
	axis, value, ok := strings.Cut(text, "=")
	if !ok || axis == "" || value == "" {
		return "", "", fmt.Errorf("%q is no baseline: say variable=value, as in cc=lia", text)
	}
	return axis, value, nil
}
