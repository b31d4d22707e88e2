// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/judge"
	"github.com/mpcc/mpcc/internal/experiment/result"
)

// Table is a table, the same for text, HTML and Markdown.
type Table struct {
	Caption string
	Head    []string
	Rows    [][]string
	// Words is how many of the first columns are words; the others are numbers.
	Words int
}

// Main returns the tables of the metrics that the scenario has values, claims or figures of.
func (e *Experiment) Main() []Table { return e.tables(true) }

// Rest returns the tables of the other metrics that were measured.
func (e *Experiment) Rest() []Table { return e.tables(false) }

// tables returns one table for each metric.
func (e *Experiment) tables(main bool) []Table {
	var tables []Table
	for _, m := range result.Metrics {
		var rows []Row
		for _, r := range e.Rows {
			if r.Metric == m.Name && r.Main == main {
				rows = append(rows, r)
			}
		}
		if len(rows) > 0 {
			tables = append(tables, e.table(m, rows))
		}
	}
	return tables
}

func (e *Experiment) table(m result.Metric, rows []Row) Table {
	t := Table{Caption: label(m.Title, m.Unit)}
	if m.Source != "" {
		t.Caption += " (source: " + m.Source + ")"
	}
	of, _, _ := strings.Cut(m.Of, " ")
	t.Head = append([]string{of}, e.Axes...)
	t.Words = len(t.Head)
	for i, run := range e.Runs {
		switch {
		case len(e.Runs) == 1:
			t.Head = append(t.Head, "ours")
		case i == 0:
			t.Head = append(t.Head, run.Label)
		default:
			t.Head = append(t.Head, run.Label, "against "+e.Runs[0].Label)
		}
	}
	var kinds []string
	for _, kind := range []string{result.Published, result.Theory, result.Optimum} {
		if slices.ContainsFunc(rows, func(r Row) bool { return r.theirs(kind) != nil }) {
			kinds = append(kinds, kind)
			t.Head = append(t.Head, kind)
			if e.differs(kind) {
				t.Head = append(t.Head, "difference")
			}
		}
	}
	for _, r := range rows {
		t.Rows = append(t.Rows, e.cells(r, kinds))
	}
	return t
}

// differs says whether tables have a column with our difference from values of a kind.
func (e *Experiment) differs(kind string) bool { return kind == result.Published && len(e.Runs) == 1 }

// cells returns the cells of a row; kinds are those of the values to compare with that the table has.
func (e *Experiment) cells(r Row, kinds []string) []string {
	cells := []string{cmp.Or(r.Of, "all")}
	for _, axis := range e.Axes {
		cells = append(cells, r.Point[axis])
	}
	for i, ours := range r.Ours {
		cells = append(cells, ours.String())
		if i > 0 {
			cells = append(cells, against(ours, r.Ours[0]))
		}
	}
	for _, kind := range kinds {
		value, difference := "-", "-"
		if ref := r.theirs(kind); ref != nil {
			value = strconv.FormatFloat(ref.Value, 'g', -1, 64)
			if len(ref.Difference) > 0 {
				difference = percent(ref.Difference[0])
			}
		}
		cells = append(cells, value)
		if e.differs(kind) {
			cells = append(cells, difference)
		}
	}
	return cells
}

func (r Row) theirs(kind string) *Reference {
	i := slices.IndexFunc(r.Theirs, func(t Reference) bool { return t.Kind == kind })
	if i < 0 {
		return nil
	}
	return &r.Theirs[i]
}

// against returns in percent how far a run's mean is from the first run's.
func against(e, first Estimate) string {
	if e.N == 0 || first.N == 0 || first.Mean == 0 {
		return "-"
	}
	return percent(e.Mean/first.Mean - 1)
}

// ClaimTable returns the claims with all their checks.
func (e *Experiment) ClaimTable() Table {
	t := Table{Caption: "Claims", Head: []string{"claim", "source", "condition", "at"}}
	if len(e.Runs) > 1 {
		t.Head = append(t.Head, "run")
	}
	t.Head = append(t.Head, "verdict")
	t.Words = len(t.Head)
	t.Head = append(t.Head, "ours", "published", "p", "repeats", "power")
	for _, v := range e.Claims {
		first := []string{v.Text, v.Source, said(v.Claim)}
		if len(v.Checks) == 0 {
			row := append(first, "-")
			if len(e.Runs) > 1 {
				row = append(row, "-")
			}
			t.Rows = append(t.Rows, append(row, v.Outcome, "not measured", v.published(nil), "-", "0", "-"))
		}
		for i, check := range v.Checks {
			if i > 0 {
				first = []string{"", "", ""}
			}
			row := append(slices.Clone(first), cmp.Or(pointText(check.Point), "-"))
			if len(e.Runs) > 1 {
				row = append(row, check.Run)
			}
			t.Rows = append(t.Rows, append(row, check.Outcome, check.Ours.String(), v.published(&check.Ours), check.p(), check.repeats(), check.power()))
		}
	}
	return t
}

// published returns the published value, and whether it is outside of our interval: a claim may hold by more or less than
// the paper says.
func (v *Verdict) published(ours *Estimate) string {
	switch {
	case v.Published == nil:
		return "-"
	case ours != nil && ours.Low != nil && (*v.Published < *ours.Low || *v.Published > *ours.High):
		return number(*v.Published) + ", outside"
	}
	return number(*v.Published)
}

// p returns the corrected p-value of the verdict or, where there is none yet, the one that the claim waits for.
func (c Check) p() string {
	p := c.P.Reproduced
	switch c.Outcome {
	case judge.Contradicted:
		p = c.P.Contradicted
	case judge.NoEffect:
		p = c.P.NoEffect
	case judge.NotTestable:
		return "-"
	}
	if c.Ours.N < 2 {
		return "-"
	}
	if p < .001 {
		return "<0.001"
	}
	return strconv.FormatFloat(p, 'f', 3, 64)
}

// repeats returns how many there are, and of how many.
func (c Check) repeats() string {
	if c.Planned == 0 || c.Outcome == judge.NotTestable {
		return strconv.Itoa(c.Ours.N)
	}
	return fmt.Sprintf("%d of %d", c.Ours.N, c.Planned)
}

func (c Check) power() string {
	if c.Power == nil {
		return "-"
	}
	return strconv.FormatFloat(*c.Power, 'f', 2, 64)
}

// Notices returns what is to be known before a figure or a verdict of the experiment is relied on.
func (e *Experiment) Notices() []string {
	var notices []string
	for _, run := range e.Runs {
		if run.Quick {
			notices = append(notices, run.Label+": the short form was run (--quick): its numbers are not to be relied on.")
		}
		for _, w := range run.Warnings {
			notices = append(notices, run.Label+": "+w)
		}
		for _, left := range run.LeftOut {
			notices = append(notices, run.Label+": left out of verdicts, and of figures where there are other runs: "+left)
		}
	}
	off, unplanned := map[string]bool{}, false
	for _, v := range e.Claims {
		for _, check := range v.Checks {
			if v.Outcome != judge.NotTestable && check.Planned > 0 && check.Ours.N != check.Planned {
				off[check.Run] = true
			}
			unplanned = unplanned || v.Outcome != judge.NotTestable && check.Planned == 0
		}
	}
	for _, run := range e.Runs {
		if off[run.Label] {
			notices = append(notices, run.Label+": other than the planned number of repeats was run (column repeats): its verdicts do not have the chances of error that the plan gives.")
		}
	}
	if unplanned {
		notices = append(notices, "Some claims were run without a plan of how many repeats they need (column repeats).")
	}
	var reasons []string
	claims := map[string][]string{}
	for _, v := range e.Claims {
		if v.Untestable == "" {
			continue
		}
		if claims[v.Untestable] == nil {
			reasons = append(reasons, v.Untestable)
		}
		claims[v.Untestable] = append(claims[v.Untestable], strconv.Quote(v.Text))
	}
	for _, reason := range reasons {
		notices = append(notices, fmt.Sprintf("Not testable is %s, for want of %s.", strings.Join(claims[reason], ", "), strings.TrimSuffix(reason, ".")))
	}
	return notices
}

// RunTable returns how the results came about.
func (e *Experiment) RunTable() Table {
	t := Table{
		Caption: "Runs", Words: 5,
		Head: []string{"run", "mpcc", "kernel", "machine", "started", "seed", "repeats", "measured", "links off by at most"},
	}
	for _, r := range e.Runs {
		name := r.Label
		if r.Quick {
			name += " (quick)"
		}
		t.Rows = append(t.Rows, []string{
			name, r.Tool, r.Kernel, cmp.Or(r.Machine, "-"), r.Started.UTC().Format(time.DateTime) + " UTC", strconv.FormatUint(r.Seed, 10),
			r.repeats(), number(r.Measured) + " s", r.Links.String(),
		})
	}
	return t
}

func (r RunInfo) repeats() string {
	if r.Most > r.Repeats {
		return fmt.Sprintf("%d to %d", r.Repeats, r.Most)
	}
	return strconv.Itoa(r.Repeats)
}

func (l Links) String() string {
	var parts []string
	if l.Rate != nil {
		parts = append(parts, fmt.Sprintf("rate %.2g %%", 100**l.Rate))
	}
	if l.Delay != nil {
		parts = append(parts, fmt.Sprintf("delay %.2g ms", *l.Delay))
	}
	if l.Loss != nil {
		parts = append(parts, fmt.Sprintf("loss %.2g %%", 100**l.Loss))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// Text writes the report for a terminal.
func (r *Report) Text(w io.Writer) error {
	for i := range r.Experiments {
		e := &r.Experiments[i]
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s: %s (%s)\n", e.Scenario.Name, e.Scenario.Title, e.Scenario.Source)
		for _, note := range e.Scenario.Notes {
			fmt.Fprintln(w, "note:", note)
		}
		for _, notice := range e.Notices() {
			fmt.Fprintln(w, notice)
		}
		tables := append([]Table{e.RunTable()}, e.Main()...)
		if len(e.Claims) > 0 {
			tables = append(tables, e.ClaimTable().without("condition")) // it would be too wide
		}
		for _, t := range tables {
			if err := t.Text(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// without returns the table without a column.
func (t Table) without(name string) Table {
	at := slices.Index(t.Head, name)
	t.Head = slices.Delete(slices.Clone(t.Head), at, at+1)
	rows := make([][]string, len(t.Rows))
	for i, row := range t.Rows {
		rows[i] = slices.Delete(slices.Clone(row), at, at+1)
	}
	t.Rows, t.Words = rows, t.Words-1
	return t
}

// Text writes the table for a terminal.
func (t Table) Text(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "\n%s\n", t.Caption); err != nil {
		return err
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, strings.ToUpper(strings.Join(t.Head, "\t")))
	for _, row := range t.Rows {
		fmt.Fprintln(out, strings.Join(row, "\t"))
	}
	return out.Flush()
}

func (e Estimate) String() string {
	switch {
	case e.N == 0:
		return "-"
	case e.Low == nil:
		return number(e.Mean)
	}
	digits := decimals(e.Mean)
	return strconv.FormatFloat(e.Mean, 'f', digits, 64) + " ± " + strconv.FormatFloat(e.half(), 'f', digits, 64)
}

// number returns a number with three significant digits, or a whole one in full.
func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e9 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', decimals(v), 64)
}

func decimals(v float64) int {
	if v == 0 {
		return 2
	}
	return min(6, max(0, 2-int(math.Floor(math.Log10(math.Abs(v))))))
}

// percent returns a relative difference in words.
func percent(v float64) string {
	if v = math.Round(100 * v); v == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%+.0f %%", v)
}
