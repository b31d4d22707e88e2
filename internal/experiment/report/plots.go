// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mpcc/mpcc/internal/experiment/result"
)

// Plot is a plot as data.
type Plot struct {
	Title  string       `json:"title"`
	Source string       `json:"source,omitempty"` // the paper's figure that it repeats
	Kind   string       `json:"kind"`
	At     result.Point `json:"at,omitempty"` // the values of variables that it is about; all of the others
	X      string       `json:"x"`            // axis label, with unit
	Y      string       `json:"y"`
	Names  []string     `json:"names,omitempty"` // what to write at x = 0, 1, …; none if x is a number
	Series []Series     `json:"series"`
}

// Series is a line, or a set of bars or boxes. A series of values to compare with has the same Hue as the measured
// one.
type Series struct {
	Name string  `json:"name"`
	Kind string  `json:"kind"` // "": measured; else published, theory or optimum
	Hue  int     `json:"hue"`
	Data []Datum `json:"data"`
	// Trace has the data of a trace instead: no intervals, no boxes, many points.
	Trace Trace `json:"trace,omitempty"`
}

// Trace is a line over time. In JSON it is a text, "x,y x,y …", with five significant digits.
type Trace []Datum

// Datum is a point with its interval, or a box.
type Datum struct {
	X    float64  `json:"x"`
	Y    float64  `json:"y"` // of a box, the median
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
	Box  *Boxed   `json:"box,omitempty"`
}

// MarshalText returns the text "x,y x,y …".
func (t Trace) MarshalText() ([]byte, error) {
	var text []byte
	for i, d := range t {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendFloat(text, d.X, 'g', 5, 64)
		text = append(text, ',')
		text = strconv.AppendFloat(text, d.Y, 'g', 5, 64)
	}
	return text, nil
}

// UnmarshalText reads what MarshalText returns.
func (t *Trace) UnmarshalText(text []byte) error {
	*t = nil
	for _, pair := range strings.Fields(string(text)) {
		var d Datum
		if _, err := fmt.Sscanf(pair, "%g,%g", &d.X, &d.Y); err != nil {
			return fmt.Errorf("trace: %q is not x,y", pair)
		}
		*t = append(*t, d)
	}
	return nil
}

func (g *group) plots() ([]Plot, error) {
	plots := []Plot{}
	for _, f := range g.figures() {
		if f.Kind == result.Traces {
			drawn, err := g.traces(f)
			if err != nil {
				return nil, err
			}
			plots = append(plots, drawn...)
			continue
		}
		draw := g.plot
		if f.Kind == result.CDF {
			draw = g.distribution
		}
		if p := draw(f); len(p.Series) > 0 {
			plots = append(plots, p)
		}
	}
	return plots, nil
}

// figures returns the figures that the scenario asks for or, if it asks for none, goodput as bars.
func (g *group) figures() []result.Figure {
	if figures := g.sources[0].Expect.Figures; len(figures) > 0 {
		return figures
	}
	return []result.Figure{{Title: "Goodput", Kind: result.Bars, Select: result.Select{Metric: "goodput"}}}
}

// plot returns a metric over one axis, with a series for each value of the other axes.
func (g *group) plot(f result.Figure) Plot {
	m, _ := result.FindMetric(f.Metric)
	p := Plot{Title: f.Title, Source: f.Source, Kind: f.Kind, At: f.At, Y: label(m.Title, m.Unit)}
	if m.Source != "" {
		p.Y += " (" + m.Source + ")"
	}
	over := f.Over
	if over == "" && len(g.axes) > 0 {
		over = g.axes[0].Name
	}
	p.X = cmp.Or(f.X, over)
	xs := g.scale(&p, over)
	of := []string{f.Of}
	if f.Of == "" && !m.Total {
		of = slices.DeleteFunc(g.names(m), func(of string) bool { return of == "" })
	}
	var theirs []Series
	for i := range g.sources {
		for _, name := range of {
			for _, rest := range g.others(f.At, over) {
				l := line{source: &g.sources[i], metric: m, of: name, rest: rest, over: over}
				ours := l.ours(f, xs)
				if len(ours) == 0 {
					continue
				}
				series := Series{Name: g.seriesName(i, len(of) > 1, name, rest), Hue: len(p.Series), Data: ours}
				p.Series = append(p.Series, series)
				if i == 0 || len(g.sources[i].fixed) > 0 { // otherwise all sources have the same ones
					theirs = append(theirs, l.theirs(f, xs, series)...)
				}
			}
		}
	}
	p.Series = append(p.Series, theirs...)
	return p
}

// distribution returns how large a share of the repeats has a metric up to which value, with a series for each point.
func (g *group) distribution(f result.Figure) Plot {
	m, _ := result.FindMetric(f.Metric)
	p := Plot{Title: f.Title, Source: f.Source, Kind: f.Kind, At: f.At, X: cmp.Or(f.X, label(m.Title, m.Unit)), Y: "share of the repeats"}
	for i := range g.sources {
		for _, rest := range g.others(f.At, "") {
			point := maps.Clone(rest)
			maps.Copy(point, f.At)
			values := slices.Sorted(slices.Values(g.sources[i].figures(m, f.Of, point)))
			if len(values) == 0 {
				continue
			}
			series := Series{Name: g.seriesName(i, false, f.Of, rest), Hue: len(p.Series), Data: []Datum{{X: values[0]}}}
			for k, v := range values { // a step at each
				series.Data = append(series.Data, Datum{X: v, Y: float64(k) / float64(len(values))}, Datum{X: v, Y: float64(k+1) / float64(len(values))})
			}
			p.Series = append(p.Series, series)
		}
	}
	return p
}

// line is what one series of a plot shows: a metric of one source, at points that differ in the variable over.
type line struct {
	source *source
	metric result.Metric
	of     string
	rest   result.Point // values of the variables that neither the figure's at nor its over names
	over   string
}

func (l *line) point(f result.Figure, x tick) result.Point {
	point := maps.Clone(l.rest)
	maps.Copy(point, f.At)
	if l.over != "" {
		point[l.over] = x.value
	}
	return point
}

// ours returns what was measured.
func (l *line) ours(f result.Figure, xs []tick) []Datum {
	data := []Datum{}
	for _, x := range xs {
		if d, ok := l.source.datum(l.metric, l.of, l.point(f, x), f.Kind); ok {
			d.X = x.at
			data = append(data, d)
		}
	}
	return data
}

// theirs returns a series for each kind of values that the scenario expects, in the hue of ours.
func (l *line) theirs(f result.Figure, xs []tick, ours Series) []Series {
	byKind := map[string]*Series{}
	for _, x := range xs {
		for kind, v := range l.source.expected(l.metric, l.of, l.point(f, x)) {
			if byKind[kind] == nil {
				byKind[kind] = &Series{Name: ours.Name + ", " + kind, Kind: kind, Hue: ours.Hue}
			}
			byKind[kind].Data = append(byKind[kind].Data, Datum{X: x.at, Y: v})
		}
	}
	var all []Series
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		all = append(all, *byKind[kind])
	}
	return all
}

type tick struct {
	value string
	at    float64
}

// scale returns where the axis' values are along x: lines have numbers where they belong; everything else is
// side by side, under its name.
func (g *group) scale(p *Plot, over string) []tick {
	values := []string{""}
	if i := slices.IndexFunc(g.axes, func(a result.Axis) bool { return a.Name == over }); i >= 0 {
		values = g.axes[i].Values
	}
	numbers, all := numbersOf(values)
	byNumber := p.Kind == result.Lines && all
	var ticks []tick
	for i, v := range values {
		at := float64(i)
		if byNumber {
			at = numbers[v]
		}
		ticks = append(ticks, tick{v, at})
	}
	if !byNumber {
		p.Names = values
	}
	return ticks
}

// others returns all combinations of values of the axes that neither at nor over names.
func (g *group) others(at result.Point, over string) []result.Point {
	combinations := []result.Point{{}}
	for _, axis := range g.axes {
		if _, ok := at[axis.Name]; ok || axis.Name == over {
			continue
		}
		var longer []result.Point
		for _, c := range combinations {
			for _, v := range axis.Values {
				next := maps.Clone(c)
				next[axis.Name] = v
				longer = append(longer, next)
			}
		}
		combinations = longer
	}
	return combinations
}

// seriesName returns a name that tells a series from the others of its plot.
func (g *group) seriesName(source int, several bool, of string, rest result.Point) string {
	var parts []string
	for _, axis := range g.axes {
		if v, ok := rest[axis.Name]; ok && len(axis.Values) > 1 {
			if _, err := strconv.ParseFloat(v, 64); err == nil {
				v = axis.Name + " " + v
			}
			parts = append(parts, v)
		}
	}
	if several || len(parts) == 0 && len(g.sources) == 1 {
		parts = append(parts, of)
	}
	if len(g.sources) > 1 {
		parts = append(parts, g.sources[source].label)
	}
	return strings.Trim(strings.Join(parts, ", "), " ")
}

// datum returns what a plot shows at a point: a mean over repeats, or a box of all users of all repeats. It is
// false if nothing was measured there.
func (s *source) datum(m result.Metric, of string, point result.Point, kind string) (Datum, bool) {
	if kind == result.Box {
		var values []float64
		for _, run := range s.at(point) {
			values = append(values, m.Values(run, of)...)
		}
		if len(values) == 0 {
			return Datum{}, false
		}
		b := boxed(values)
		return Datum{Y: b.Median, Box: &b}, true
	}
	e := estimate(s.figures(m, of, point))
	return Datum{Y: e.Mean, Low: e.Low, High: e.High}, e.N > 0
}

// expected returns the scenario's values at a point, by their kind.
func (s *source) expected(m result.Metric, of string, point result.Point) map[string]float64 {
	found := map[string]float64{}
	full := maps.Clone(point)
	maps.Copy(full, s.fixed)
	for _, v := range s.Expect.Values {
		if v.Metric == m.Name && v.Of == of && full.Agrees(v.At) {
			found[v.Kind] = v.Value
		}
	}
	return found
}

// traces returns a plot of the first repeat at each point, with a line for each subflow of each class' first user.
func (g *group) traces(f result.Figure) ([]Plot, error) {
	var plots []Plot
	for i := range g.sources {
		s := &g.sources[i]
		for _, point := range (&group{sources: []source{*s}, axes: g.axes}).points() {
			runs := s.at(point)
			if !runs[0].Point.Agrees(f.At) || runs[0].Samples == "" {
				continue
			}
			p, err := s.trace(f, runs[0])
			if err != nil {
				return nil, err
			}
			rest := maps.Clone(point)
			maps.DeleteFunc(rest, func(axis, _ string) bool { _, fixed := f.At[axis]; return fixed })
			where := pointText(rest)
			if len(g.sources) > 1 {
				where = strings.Trim(where+", "+s.label, ", ")
			}
			if where != "" {
				p.Title += ", " + where
			}
			if len(p.Series) > 0 {
				plots = append(plots, p)
			}
		}
	}
	return plots, nil
}

var traceLabels = map[string]string{
	"cwnd": "congestion window, packets", "sequence": "acknowledged, MB", "srtt": "smoothed RTT, ms",
	"rate": "acknowledged per second, Mbit/s",
}

// trace returns the plot of one run.
func (s *source) trace(f result.Figure, run *result.Run) (Plot, error) {
	p := Plot{Title: f.Title, Source: f.Source, Kind: f.Kind, At: f.At, X: "time, s", Y: traceLabels[f.Metric]}
	type key struct {
		class   string
		subflow int
	}
	lines := map[key]*traced{}
	err := run.ReadSamples(func(sample result.Sample) {
		if sample.User != 0 || f.Of != "" && f.Of != sample.Class {
			return
		}
		k := key{sample.Class, sample.Subflow}
		if lines[k] == nil {
			lines[k] = &traced{metric: f.Metric, name: sample.Class + ", " + sample.Interface}
		}
		lines[k].add(sample)
	})
	if err != nil {
		return p, err
	}
	for _, class := range run.Classes {
		for _, k := range slices.SortedFunc(maps.Keys(lines), func(a, b key) int { return a.subflow - b.subflow }) {
			if k.class != class.Name || len(lines[k].data) == 0 {
				continue
			}
			name := lines[k].name
			for _, o := range p.Series {
				if o.Name == name {
					name = fmt.Sprintf("%s, subflow %d", name, k.subflow)
				}
			}
			p.Series = append(p.Series, Series{Name: name, Hue: len(p.Series), Data: []Datum{}, Trace: thin(lines[k].data)})
		}
	}
	return p, nil
}

// traced is a subflow's metric over time.
type traced struct {
	metric, name string
	data         []Datum
	last         *result.Sample // from which the present rate is counted
}

func (t *traced) add(s result.Sample) {
	d := Datum{X: s.Time}
	switch t.metric {
	case "cwnd":
		d.Y = float64(s.Cwnd)
	case "sequence":
		d.Y = float64(s.Bytes) / 1e6
	case "srtt":
		d.Y = s.SRTT
	case "rate":
		last := t.last
		if last != nil && s.Time-last.Time < 1 {
			return
		}
		t.last = &s
		if last == nil || s.Bytes < last.Bytes {
			return
		}
		d.Y = float64(s.Bytes-last.Bytes) * 8 / 1e6 / (s.Time - last.Time)
	}
	t.data = append(t.data, d)
}

// spans is how many stretches of time are told apart in a trace.
const spans = 250

// thin keeps the lowest and the highest point of each stretch of time, so that peaks stay.
func thin(data []Datum) Trace {
	if len(data) <= 2*spans {
		return data
	}
	first, last := data[0].X, data[len(data)-1].X
	width := (last - first) / spans
	var kept Trace
	for start := 0; start < len(data); {
		end := start
		low, high := start, start
		for ; end < len(data) && data[end].X < first+width*math.Floor((data[start].X-first)/width+1); end++ {
			if data[end].Y < data[low].Y {
				low = end
			}
			if data[end].Y > data[high].Y {
				high = end
			}
		}
		end = max(end, start+1)
		kept = append(kept, data[min(low, high)])
		if low != high {
			kept = append(kept, data[max(low, high)])
		}
		start = end
	}
	return kept
}

func label(title, unit string) string {
	if unit == "" {
		return title
	}
	return title + ", " + unit
}

func pointText(p result.Point) string {
	var parts []string
	for _, axis := range slices.Sorted(maps.Keys(p)) {
		parts = append(parts, axis+" "+p[axis])
	}
	return strings.Join(parts, ", ")
}
