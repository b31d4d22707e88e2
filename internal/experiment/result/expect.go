// SPDX-License-Identifier: Apache-2.0

package result

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Expect is what a scenario says about its results. It has the same keys in a scenario's YAML and in the JSON of
// a run folder, which repeats it.
type Expect struct {
	// Values to print beside what was measured.
	Values []Value `json:"values" yaml:"values,omitempty"`
	// What the paper says, as conditions on what was measured.
	Claims []Claim `json:"claims" yaml:"claims,omitempty"`
	// Plots to draw.
	Figures []Figure `json:"figures" yaml:"figures,omitempty"`
}

// Select picks measured values: of a metric, of a class, link or interface, at points of the sweep.
type Select struct {
	// The metric's name; docs/results-format.md lists them.
	Metric string `json:"metric" yaml:"metric"`
	// The class, link, class/interface or zone that was measured. Without it a metric of classes is of all users.
	Of string `json:"of,omitempty" yaml:"of,omitempty"`
	// Values of some variables of the sweep; picks all points that have them. Without it all points.
	At Point `json:"at,omitempty" yaml:"at,omitempty"`
}

// Kinds of values.
const (
	Published = "published"
	Theory    = "theory"
	Optimum   = "optimum"
)

// Value is a number to print beside what was measured.
type Value struct {
	Select `yaml:",inline"`
	// published: measured by the paper; theory: the algorithm's fixed point; optimum: what no algorithm can
	// exceed.
	Kind string `json:"kind" yaml:"kind" oneof:"published|theory|optimum"`
	// The number, in the metric's unit.
	Value float64 `json:"value" yaml:"value"`
	// Where in the paper the value is, or the formula that gives it.
	Source string `json:"source" yaml:"source"`
}

// Relations of a claim.
const (
	Above  = "above"
	Below  = "below"
	Within = "within"
)

// Claim is a statement of the paper as a condition: the value that `metric`, `of` and `at` pick, divided by the
// value that `to` picks if there is a `to`, is above `bound`, below it, or within `margin` of it.
type Claim struct {
	// The paper's words, in short.
	Text string `json:"text" yaml:"text"`
	// Where in the paper.
	Source string `json:"source" yaml:"source"`
	Select `yaml:",inline"`
	// The value to divide by. A variable that its at leaves out has the same value as in the claim.
	To *Select `json:"to,omitempty" yaml:"to,omitempty"`
	// How the value is to compare with bound.
	Relation string `json:"is" yaml:"is" oneof:"above|below|within"`
	// The bound, in the metric's unit; with to, a plain number.
	Bound float64 `json:"bound" yaml:"bound"`
	// For within: how far from the bound, to either side.
	Margin float64 `json:"margin,omitempty" yaml:"margin,omitempty"`
	// The paper leaves open what the sweep varies: the claim holds if it does at any of its points, and is contradicted
	// only if it is at all of them.
	Anywhere bool `json:"anywhere,omitempty" yaml:"anywhere,omitempty" default:"false"`
	// With to: a ratio that is no further from 1 than this counts as no effect, whatever the bound.
	Negligible float64 `json:"negligible,omitempty" yaml:"negligible,omitempty" range:"0..0.5"`
	// What the paper has for the value, or the most it says, as in "by up to 20 %".
	Published *float64 `json:"published,omitempty" yaml:"published,omitempty"`
	// How many repeats it takes to tell. The driver runs as many at the points that the claim is about.
	Plan *Plan `json:"plan,omitempty" yaml:"plan,omitempty"`
	// Where this experiment cannot judge the claim: the quantity that it lacks, as after "for want of". What was measured
	// is printed all the same.
	Untestable string `json:"untestable,omitempty" yaml:"untestable,omitempty"`
}

// Base returns the Select that the claim divides by: To, with the claim's own values of the variables that To.At leaves
// out. It is the claim's own Select if there is no To.
func (c Claim) Base() Select {
	if c.To == nil {
		return c.Select
	}
	base := Select{Metric: c.To.Metric, Of: c.To.Of, At: Point{}}
	maps.Copy(base.At, c.At)
	maps.Copy(base.At, c.To.At)
	return base
}

// BasePoint returns the point of the value that the claim divides by at a point; false if the claim is not about that
// point, or would compare it with itself.
func (c Claim) BasePoint(point Point) (Point, bool) {
	if !point.Agrees(c.At) {
		return nil, false
	}
	base := c.Base()
	at := maps.Clone(point)
	maps.Copy(at, base.At)
	return at, c.To == nil || base.Metric != c.Metric || base.Of != c.Of || !maps.Equal(at, point)
}

// Plan is what the number of a claim's repeats follows from.
type Plan struct {
	// For above and below: how far the true value is from the bound, at least, if the claim is to be told. Within
	// takes the margin.
	Effect float64 `json:"effect,omitempty" yaml:"effect,omitempty"`
	// The standard deviation of the value between repeats.
	Spread float64 `json:"spread" yaml:"spread"`
	// What the spread is taken from.
	Source string `json:"source" yaml:"source"`
	// The chance that the claim is told if it is true by as much.
	Power float64 `json:"power,omitempty" yaml:"power,omitempty" default:"0.9" range:"0.9..0.999"`
}

// Kinds of figures.
const (
	Traces = "traces"
	Box    = "box"
	Bars   = "bars"
	Lines  = "lines"
	CDF    = "cdf"
)

// Figure is a plot, with a series for each value of the variables that neither `at` nor `over` names and, without
// `of`, for each class. Totals without of are of all users. Traces are drawn of the first repeat at each point
// that at picks, and of each class' first user.
type Figure struct {
	// What it shows.
	Title string `json:"title" yaml:"title"`
	// The paper's figure that it repeats.
	Source string `json:"source,omitempty" yaml:"source,omitempty"`
	// bars: means with intervals, beside the published values; lines: the same over a variable; box: quartiles
	// and outliers of all users of all repeats; cdf: how large a share of the repeats is up to which value; traces:
	// cwnd, sequence, srtt or rate over time.
	Kind   string `json:"kind" yaml:"kind" oneof:"traces|box|bars|lines|cdf"`
	Select `yaml:",inline"`
	// The variable along the x axis; without it the first one.
	Over string `json:"over,omitempty" yaml:"over,omitempty"`
	// The label of the x axis, with the unit; without it the variable's name.
	X string `json:"x,omitempty" yaml:"x,omitempty"`
}

// TraceMetrics is what can be drawn over time: window (packets), bytes acknowledged (MB), smoothed RTT (ms),
// and bytes acknowledged per second (Mbit/s).
var TraceMetrics = []string{"cwnd", "sequence", "srtt", "rate"}

// Check returns an error for what no report can show: unknown metrics, kinds and relations. Whether the classes,
// links and variables exist is for the scenario to check.
func (e Expect) Check() error {
	for i, v := range e.Values {
		if err := cmp.Or(v.Select.check(), oneOf("kind", v.Kind, Published, Theory, Optimum)); err != nil {
			return fmt.Errorf("values[%d]: %w", i, err)
		}
	}
	for i, c := range e.Claims {
		err := cmp.Or(c.Select.check(), oneOf("relation", c.Relation, Above, Below, Within))
		if c.To != nil {
			err = cmp.Or(err, c.To.check())
		}
		if err != nil {
			return fmt.Errorf("claims[%d]: %w", i, err)
		}
	}
	for i, f := range e.Figures {
		err := oneOf("kind", f.Kind, Traces, Box, Bars, Lines, CDF)
		switch {
		case err != nil:
		case f.Kind == Traces:
			err = oneOf("trace", f.Metric, TraceMetrics...)
		case f.Kind == Lines && f.Over == "":
			err = errors.New("lines need the axis that they run over")
		default:
			err = f.Select.check()
		}
		if err != nil {
			return fmt.Errorf("figures[%d]: %w", i, err)
		}
	}
	return nil
}

func (s Select) check() error {
	_, err := FindMetric(s.Metric)
	return err
}

func oneOf(what, value string, known ...string) error {
	if slices.Contains(known, value) {
		return nil
	}
	return fmt.Errorf("unknown %s %q: use one of %s", what, value, strings.Join(known, ", "))
}
