// SPDX-License-Identifier: Apache-2.0

package result

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"
)

// RepeatsFile is the name of the CSV in a run folder that has the metrics of each run.
const RepeatsFile = "repeats.csv"

// Labelled is a result, and what to call it beside others.
type Labelled struct {
	Label string
	*Result
}

// WriteRepeats writes the metrics of all runs as CSV: one row for each run and metric, so that whoever doubts a mean,
// an interval or a verdict can compute it again. The values of links are there for those that the scenario expects
// something of: there may be hundreds. After the columns here there is one for each variable of the sweeps.
func WriteRepeats(w io.Writer, results []Labelled) error {
	header := []string{"run", "repeat", "seed", "metric", "of", "unit", "source", "value", "faults"}
	var axes []string
	for _, r := range results {
		for _, a := range r.Sweep {
			if !slices.Contains(axes, a.Name) {
				axes = append(axes, a.Name)
			}
		}
	}
	out := csv.NewWriter(w)
	_ = out.Write(append(header, axes...)) // Error, below, has what Write returns
	for _, r := range results {
		for i := range r.Runs {
			run := &r.Runs[i]
			for _, m := range append(run.measures(), run.ofLinks(r.Expect)...) {
				row := []string{
					r.Label, strconv.Itoa(run.Repeat), strconv.FormatUint(run.Seed, 10), m.Metric, m.Of, m.Unit, m.Source,
					strconv.FormatFloat(m.Value, 'g', -1, 64), strings.Join(run.Faults, "; "),
				}
				for _, a := range axes {
					row = append(row, run.Point[a])
				}
				_ = out.Write(row)
			}
		}
	}
	out.Flush()
	return out.Error()
}

// ofLinks returns the metrics of the links that the scenario expects something of.
func (r *Run) ofLinks(e Expect) []Measure {
	var wanted []Select
	for _, v := range e.Values {
		wanted = append(wanted, v.Select)
	}
	for _, c := range e.Claims {
		wanted = append(wanted, c.Select)
		if c.To != nil {
			wanted = append(wanted, *c.To)
		}
	}
	for _, f := range e.Figures {
		wanted = append(wanted, f.Select)
	}
	var all []Measure
	for _, m := range Metrics {
		if m.Of != OfLink {
			continue
		}
		for _, of := range m.Has(r) {
			if slices.ContainsFunc(wanted, func(s Select) bool { return s.Metric == m.Name && s.Of == of }) {
				value, _ := m.Value(r, of)
				all = append(all, Measure{m.Name, of, value, m.Unit, m.Source})
			}
		}
	}
	return all
}
