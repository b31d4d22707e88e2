// SPDX-License-Identifier: Apache-2.0

// Package report makes tables and plots of experiments' results, and judges claims by them. A Report has all that
// is shown as data: text, HTML, Markdown and SVG are made from it alone.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mpcc/mpcc/internal/atomicfile"
	"github.com/mpcc/mpcc/internal/experiment/result"
)

// What marks a Report's JSON.
const (
	format  = "mpcc report"
	version = 2
)

// Report is what one or several run folders show.
type Report struct {
	Format      string       `json:"format"`
	Version     int          `json:"version"`
	Experiments []Experiment `json:"experiments"`

	groups []*group // what each experiment was made of
}

// Experiment is a scenario with the runs of it that are compared.
type Experiment struct {
	Scenario result.Scenario `json:"scenario"` // of the first run
	Runs     []RunInfo       `json:"runs"`     // one per folder, in the order given
	Axes     []string        `json:"axes"`     // names of the axes in the rows' points
	Rows     []Row           `json:"rows"`
	Claims   []Verdict       `json:"claims"`
	Plots    []Plot          `json:"plots"`
}

// RunInfo says how a folder's results came about.
type RunInfo struct {
	Label    string    `json:"label"`
	Tool     string    `json:"tool"`
	Kernel   string    `json:"kernel"`
	Machine  string    `json:"machine"`
	Started  time.Time `json:"started"`
	Seed     uint64    `json:"seed"`
	Quick    bool      `json:"quick"`
	Repeats  int       `json:"repeats"`      // at the point that has the fewest
	Most     int       `json:"most_repeats"` // at the point that has the most
	Measured float64   `json:"measured_seconds"`
	Links    Links     `json:"links"`
	Warnings []string  `json:"warnings"`
	LeftOut  []string  `json:"left_out"` // runs with a fault, and which: no claim is judged by them, and no figure made where there are others
}

// Links is how far the measured links were from what was asked for, at worst; null if nothing was asked for.
type Links struct {
	Count int      `json:"count"`
	Rate  *float64 `json:"rate_relative"`
	Delay *float64 `json:"delay_ms"`
	Loss  *float64 `json:"loss"`
}

// Row is one metric at one point of the sweep.
type Row struct {
	Metric string       `json:"metric"`
	Of     string       `json:"of"`
	Unit   string       `json:"unit"`
	Source string       `json:"source,omitempty"` // of an energy: model or rapl
	Point  result.Point `json:"point"`
	Main   bool         `json:"main"` // the scenario has values, claims or figures of this metric
	// Ours has one entry per run, with n = 0 if the run did not measure it.
	Ours   []Estimate  `json:"ours"`
	Theirs []Reference `json:"theirs"`
}

// Reference is a value to compare with.
type Reference struct {
	Kind       string    `json:"kind"` // published, theory, optimum
	Value      float64   `json:"value"`
	Source     string    `json:"source"`
	Difference []float64 `json:"difference"` // ours/value - 1, one per run that measured it
}

// Load reads run folders and returns a report that compares those of one scenario.
func Load(folders ...string) (*Report, error) { return gather(folders, false) }

// Join is Load, but the folders of one scenario count as one: they have other points, or further repeats.
func Join(folders ...string) (*Report, error) { return gather(folders, true) }

func gather(folders []string, join bool) (*Report, error) {
	report := &Report{Format: format, Version: version, Experiments: []Experiment{}}
	var groups []*group
	for _, folder := range folders {
		r, err := result.Read(folder)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(groups, func(g *group) bool { return g.sources[0].Scenario.Name == r.Scenario.Name })
		if i < 0 {
			i, groups = len(groups), append(groups, &group{})
		}
		groups[i].sources = append(groups[i].sources, source{Result: r, folder: folder})
	}
	for _, g := range groups {
		if join {
			if err := g.join(); err != nil {
				return nil, err
			}
		}
		e, err := g.experiment()
		if err != nil {
			return nil, err
		}
		report.Experiments = append(report.Experiments, e)
	}
	report.groups = groups
	return report, nil
}

// WriteRepeats writes the metrics of all runs that the report is made of as CSV.
func (r *Report) WriteRepeats(w io.Writer) error {
	var all []result.Labelled
	for _, g := range r.groups {
		for _, s := range g.sources {
			all = append(all, result.Labelled{Label: s.label, Result: s.Result})
		}
	}
	return result.WriteRepeats(w, all)
}

// Read returns the Report whose JSON is in a file.
func Read(path string) (*Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Format != format || r.Version != version {
		return nil, fmt.Errorf("%s: its format is %q version %d, not %q version %d: write it again with mpcc report -j",
			path, r.Format, r.Version, format, version)
	}
	return &r, nil
}

// group has the results of one scenario.
type group struct {
	sources []source
	axes    []result.Axis // of all sources
}

type source struct {
	*result.Result
	folder string // "" when joined
	label  string
	fixed  result.Point // its values of the axes that are compared: see align
	lacks  string       // which parts of its sweep
}

// join makes one source of all. Runs at a point that several sources have become further repeats.
func (g *group) join() error {
	whole := source{Result: new(result.Result)}
	*whole.Result = *g.sources[0].Result
	whole.Runs, whole.Sweep = nil, g.sweep()
	seen := map[string]string{} // point and seed → folder
	repeats := map[string]int{}
	for _, s := range g.sources {
		if err := g.sources[0].fits(s); err != nil {
			return err
		}
		if s.Kernel != whole.Kernel || s.Machine != whole.Machine || s.Quick != whole.Quick {
			return fmt.Errorf("%s and %s differ in kernel, machine or --quick: they can be compared, not joined",
				g.sources[0].folder, s.folder)
		}
		if s.Started.Before(whole.Started) {
			whole.Started = s.Started
		}
		for _, run := range s.Runs {
			point := fmt.Sprint(run.Point)
			key := fmt.Sprint(point, run.Seed)
			if other, ok := seen[key]; ok && other != s.folder {
				return fmt.Errorf("%s and %s have the same run (%s, seed %d): give one of them another --seed",
					other, s.folder, pointText(run.Point), run.Seed)
			}
			seen[key] = s.folder
			if s.Shard == nil {
				run.Repeat = repeats[point]
				repeats[point]++
			}
			whole.Runs = append(whole.Runs, run)
		}
	}
	whole.label, whole.lacks, whole.Shard = whole.Scenario.Name, g.missing(), nil
	g.sources = []source{whole}
	return nil
}

// fits returns an error if a source is of another sweep than this one, and either is but a part.
func (s source) fits(other source) error {
	a, b := s.Shard, other.Shard
	what := ""
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil || b == nil:
		what = "one is a part of a sweep, by --shard, and one is not"
	case a.Of != b.Of:
		what = fmt.Sprintf("one is a part of %d, one of %d", a.Of, b.Of)
	case s.folder != other.folder && a.Number == b.Number:
		what = fmt.Sprintf("both are part %d/%d", a.Number, a.Of)
	case s.Seed != other.Seed:
		what = fmt.Sprintf("their seeds are %d and %d", s.Seed, other.Seed)
	case s.Tool != other.Tool:
		what = fmt.Sprintf("mpcc %s ran one, %s the other", s.Tool, other.Tool)
	case s.Scenario.YAML != other.Scenario.YAML:
		what = "their scenarios differ"
	default:
		return nil
	}
	return fmt.Errorf("%s and %s are no parts of one sweep: %s", s.folder, other.folder, what)
}

// missing tells which parts of the sweep there are none of.
func (g *group) missing() string {
	first := g.sources[0].Shard
	if first == nil {
		return ""
	}
	var missing []string
	for i := range first.Of {
		if !slices.ContainsFunc(g.sources, func(s source) bool { return s.Shard.Number == i }) {
			missing = append(missing, fmt.Sprintf("%d/%d", i, first.Of))
		}
	}
	if missing == nil {
		return ""
	}
	return "parts of the sweep are missing: " + strings.Join(missing, ", ")
}

func (g *group) experiment() (Experiment, error) {
	for _, s := range g.sources {
		if err := s.Expect.Check(); err != nil {
			return Experiment{}, fmt.Errorf("%s: %w", filepath.Join(s.folder, result.File), err)
		}
	}
	g.align()
	e := Experiment{Scenario: g.sources[0].Scenario, Axes: []string{}, Rows: []Row{}}
	for _, a := range g.axes {
		e.Axes = append(e.Axes, a.Name)
	}
	for i := range g.sources {
		e.Runs = append(e.Runs, g.sources[i].info())
	}
	e.Rows = g.rows()
	e.Claims = g.verdicts()
	var err error
	e.Plots, err = g.plots()
	return e, err
}

// align gathers the axes of all sources, and labels the sources. An axis with a single value in each source, but
// not the same in all, is what the sources are compared by: its values go into the labels instead of the points.
func (g *group) align() {
	g.axes = g.sweep()
	compared := map[string]bool{}
	for _, axis := range g.axes {
		compared[axis.Name] = len(axis.Values) > 1
		for _, s := range g.sources {
			i := slices.IndexFunc(s.Sweep, func(a result.Axis) bool { return a.Name == axis.Name })
			if i < 0 || len(s.Sweep[i].Values) != 1 {
				compared[axis.Name] = false
			}
		}
	}
	used := map[string]int{}
	for i := range g.sources {
		s := &g.sources[i]
		s.fixed = result.Point{}
		if s.label == "" {
			s.label = filepath.Base(filepath.Clean(s.folder))
		}
		used[s.label]++
		if n := used[s.label]; n > 1 {
			s.label = fmt.Sprintf("%s (%d)", s.label, n)
		}
		for _, axis := range s.Sweep {
			if compared[axis.Name] {
				s.fixed[axis.Name] = axis.Values[0]
				s.label += ", " + axis.Name + " " + axis.Values[0]
			}
		}
	}
	g.axes = slices.DeleteFunc(g.axes, func(a result.Axis) bool { return compared[a.Name] })
}

// sweep returns the axes of all sources, with all their values: numbers by size, words as they come.
func (g *group) sweep() []result.Axis {
	var axes []result.Axis
	for _, s := range g.sources {
		for _, axis := range s.Sweep {
			i := slices.IndexFunc(axes, func(a result.Axis) bool { return a.Name == axis.Name })
			if i < 0 {
				i, axes = len(axes), append(axes, result.Axis{Name: axis.Name})
			}
			for _, v := range axis.Values {
				if !slices.Contains(axes[i].Values, v) {
					axes[i].Values = append(axes[i].Values, v)
				}
			}
		}
	}
	for _, axis := range axes {
		if numbers, all := numbersOf(axis.Values); all {
			slices.SortFunc(axis.Values, func(a, b string) int { return cmp.Compare(numbers[a], numbers[b]) })
		}
	}
	return axes
}

// numbersOf returns an axis' values as numbers; false if not all of them are finite numbers.
func numbersOf(values []string) (numbers map[string]float64, all bool) {
	numbers = map[string]float64{}
	for _, v := range values {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || math.IsInf(n, 0) || math.IsNaN(n) {
			return nil, false
		}
		numbers[v] = n
	}
	return numbers, true
}

func (s *source) info() RunInfo {
	info := RunInfo{
		Label: s.label, Tool: s.Tool, Kernel: s.Kernel, Machine: s.Machine, Started: s.Started, Seed: s.Seed, Quick: s.Quick, Warnings: []string{}, LeftOut: []string{},
	}
	switch {
	case s.lacks != "":
		info.Warnings = append(info.Warnings, s.lacks)
	case s.Shard != nil:
		info.Warnings = append(info.Warnings, fmt.Sprintf("part %d/%d of a sweep: mpcc report --join takes all parts", s.Shard.Number, s.Shard.Of))
	}
	repeats := map[string]int{}
	for i := range s.Runs {
		run := &s.Runs[i]
		if len(run.Faults) > 0 {
			info.LeftOut = append(info.LeftOut, fmt.Sprintf("%s, repeat %d: %s", cmp.Or(pointText(run.Point), "-"), run.Repeat, strings.Join(run.Faults, "; ")))
		}
		repeats[fmt.Sprint(run.Point)]++
		info.Measured = max(info.Measured, run.Measured)
		info.Links.Count = max(info.Links.Count, len(run.Links))
		for _, l := range run.Links {
			worst(&info.Links.Rate, l.Asked.Rate, l.Measured.Rate, true)
			worst(&info.Links.Delay, l.Asked.Delay, l.Measured.Delay, false)
			worst(&info.Links.Loss, l.Asked.Loss, l.Measured.Loss, false)
		}
		for _, w := range run.Warnings {
			if !slices.Contains(info.Warnings, w) {
				info.Warnings = append(info.Warnings, w)
			}
		}
	}
	if len(repeats) > 0 {
		counts := slices.Collect(maps.Values(repeats))
		info.Repeats, info.Most = slices.Min(counts), slices.Max(counts)
	}
	return info
}

// worst keeps the larger of two differences between what was asked for and what was measured.
func worst(kept **float64, asked, measured *float64, relative bool) {
	if asked == nil || measured == nil {
		return
	}
	off := math.Abs(*measured - *asked)
	if relative && *asked != 0 {
		off /= *asked
	}
	if *kept == nil || off > **kept {
		*kept = &off
	}
}

// points returns the points of the sweep that any source has, in the order of the axes.
func (g *group) points() []result.Point {
	var points []result.Point
	for i := range g.sources {
		for _, run := range g.sources[i].Runs {
			p := g.sources[i].reduced(run.Point)
			if !slices.ContainsFunc(points, func(q result.Point) bool { return maps.Equal(p, q) }) {
				points = append(points, p)
			}
		}
	}
	slices.SortStableFunc(points, func(p, q result.Point) int {
		for _, a := range g.axes {
			if c := cmp.Compare(slices.Index(a.Values, p[a.Name]), slices.Index(a.Values, q[a.Name])); c != 0 {
				return c
			}
		}
		return 0
	})
	return points
}

// reduced returns a point without the axes that are in the source's label.
func (s *source) reduced(p result.Point) result.Point {
	q := result.Point{}
	for axis, value := range p {
		if _, ok := s.fixed[axis]; !ok {
			q[axis] = value
		}
	}
	return q
}

// at returns the runs at a point, by repeat. Those that have a fault are there only where all have: better to be shown,
// with a notice, than nothing.
func (s *source) at(point result.Point) []*result.Run {
	if sound := s.sound(point); len(sound) > 0 {
		return sound
	}
	return s.pick(point, func(*result.Run) bool { return true })
}

// sound returns the runs at a point that have no fault, by repeat. Claims are judged by no others.
func (s *source) sound(point result.Point) []*result.Run {
	return s.pick(point, func(r *result.Run) bool { return len(r.Faults) == 0 })
}

func (s *source) pick(point result.Point, wanted func(*result.Run) bool) []*result.Run {
	var runs []*result.Run
	for i := range s.Runs {
		if s.Runs[i].Point.Agrees(point) && wanted(&s.Runs[i]) {
			runs = append(runs, &s.Runs[i])
		}
	}
	slices.SortStableFunc(runs, func(a, b *result.Run) int { return cmp.Compare(a.Repeat, b.Repeat) })
	return runs
}

// figures returns the metric of each run at a point, without those that did not measure it.
func (s *source) figures(m result.Metric, of string, point result.Point) []float64 {
	var values []float64
	for _, run := range s.at(point) {
		if v, ok := m.Value(run, of); ok {
			values = append(values, v)
		}
	}
	return values
}

// mostLinks is the most links that a table lists although the scenario does not mention them. If there are more,
// the table lists none of these.
const mostLinks = 8

func (g *group) rows() []Row {
	rows := []Row{}
	points := g.points()
	for _, m := range result.Metrics {
		names := g.names(m)
		for _, of := range names {
			main := g.mentioned(m, of)
			if !main && (m.Of == result.OfInterface || m.Of == result.OfLink && len(names) > mostLinks) {
				continue
			}
			for _, point := range points {
				row := Row{Metric: m.Name, Of: of, Unit: m.Unit, Source: m.Source, Point: point, Main: main, Theirs: []Reference{}}
				measured := false
				for i := range g.sources {
					e := estimate(g.sources[i].figures(m, of, point))
					row.Ours = append(row.Ours, e)
					measured = measured || e.N > 0
				}
				if measured {
					g.refer(&row)
					rows = append(rows, row)
				}
			}
		}
	}
	return rows
}

// names returns what the metric was measured of in any run. Links that the scenario does not mention are left out
// if their value is 0.
func (g *group) names(m result.Metric) []string {
	var names []string
	for _, s := range g.sources {
		for i := range s.Runs {
			for _, of := range m.Has(&s.Runs[i]) {
				if slices.Contains(names, of) {
					continue
				}
				v, _ := m.Value(&s.Runs[i], of)
				if m.Of != result.OfLink || v > 0 || g.mentioned(m, of) {
					names = append(names, of)
				}
			}
		}
	}
	return names
}

// mentioned says whether the scenario has a value, a claim or a figure of the metric.
func (g *group) mentioned(m result.Metric, of string) bool {
	is := func(sel result.Select) bool { return sel.Metric == m.Name && sel.Of == of }
	drawn := func(f result.Figure) bool {
		if f.Of == "" && !m.Total {
			return f.Metric == m.Name && of != ""
		}
		return is(f.Select)
	}
	for _, s := range g.sources {
		if slices.ContainsFunc(s.Expect.Values, func(v result.Value) bool { return is(v.Select) }) ||
			slices.ContainsFunc(s.Expect.Claims, func(c result.Claim) bool { return is(c.Select) || is(c.Base()) }) ||
			slices.ContainsFunc(s.Expect.Figures, drawn) {
			return true
		}
	}
	return m.Name == "goodput" && of != ""
}

// refer adds the values that the scenario gives for the row, each once.
func (g *group) refer(row *Row) {
	for i := range g.sources {
		s := &g.sources[i]
		point := maps.Clone(row.Point)
		maps.Copy(point, s.fixed)
		for _, v := range s.Expect.Values {
			if v.Metric != row.Metric || v.Of != row.Of || !point.Agrees(v.At) {
				continue
			}
			r := Reference{Kind: v.Kind, Value: v.Value, Source: v.Source, Difference: []float64{}}
			if slices.ContainsFunc(row.Theirs, func(o Reference) bool { return o.Kind == r.Kind && o.Value == r.Value }) {
				continue
			}
			for _, e := range row.Ours {
				if e.N > 0 && v.Value != 0 {
					r.Difference = append(r.Difference, e.Mean/v.Value-1)
				}
			}
			row.Theirs = append(row.Theirs, r)
		}
	}
}

// Save writes report.html and the plots, as SVG, into a run folder, and nothing outside it.
func (r *Report) Save(folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	page, err := r.page()
	if err != nil {
		return err
	}
	if err := atomicfile.WriteIn(root, "report.html", page, 0o644); err != nil {
		return err
	}
	for _, e := range r.Experiments {
		for i := range e.Plots {
			svg, err := e.Plots[i].SVG()
			if err != nil {
				return err
			}
			if err := atomicfile.WriteIn(root, e.Plots[i].File(i), svg, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// SaveHTML writes the page to a file.
func (r *Report) SaveHTML(path string) error {
	page, err := r.page()
	if err != nil {
		return err
	}
	return atomicfile.Write(path, page, 0o644)
}

// File returns the name of a plot's file, made of its index and its title.
func (p *Plot) File(index int) string {
	name := strings.Join(strings.FieldsFunc(strings.ToLower(p.Title), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), "-")
	return strconv.Itoa(index+1) + "-" + name + ".svg"
}
