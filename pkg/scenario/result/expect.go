// SPDX-License-Identifier: Apache-2.0

package result

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Expect is what a scenario says about its results. It is the same in YAML and JSON, so that a scenario
// carries it and a run folder repeats it.
type Expect struct {
	Values  []Value  `json:"values" yaml:"values,omitempty"`
	Claims  []Claim  `json:"claims" yaml:"claims,omitempty"`
	Figures []Figure `json:"figures" yaml:"figures,omitempty"`
}

// Select picks figures: a metric, of a class or a link (see Metrics), at the points that agree with At.
type Select struct {
	Metric string `json:"metric" yaml:"metric"`
	Of     string `json:"of,omitempty" yaml:"of,omitempty"`
	At     Point  `json:"at,omitempty" yaml:"at,omitempty"`
}

// Kinds of values.
const (
	Published = "published" // measured by the paper
	Theory    = "theory"    // what the algorithm's fixed point gives
	Optimum   = "optimum"   // what no algorithm can pass
)

// Value is a figure to print beside ours, in the metric's unit.
type Value struct {
	Select `yaml:",inline"`
	Kind   string  `json:"kind" yaml:"kind" oneof:"published|theory|optimum"`
	Value  float64 `json:"value" yaml:"value"`
	Source string  `json:"source" yaml:"source"` // table 3; algorithms.md 7.2
}

// Relations of a claim.
const (
	Above  = "above"
	Below  = "below"
	Within = "within"
)

// Claim is what the paper says, as something that can fail: the figure that Select picks, divided by the
// one that To picks where there is one, is above or below Bound, or within Margin of it. An axis that To's
// At leaves out is as in the claim's.
type Claim struct {
	Text     string `json:"text" yaml:"text"`
	Source   string `json:"source" yaml:"source"`
	Select   `yaml:",inline"`
	To       *Select `json:"to,omitempty" yaml:"to,omitempty"`
	Relation string  `json:"is" yaml:"is" oneof:"above|below|within"`
	Bound    float64 `json:"bound" yaml:"bound"`
	Margin   float64 `json:"margin,omitempty" yaml:"margin,omitempty"` // of the bound's unit
}

// Kinds of figures.
const (
	Traces = "traces" // of samples, over time: one run's subflows
	Box    = "box"    // over the users of all repeats
	Bars   = "bars"   // mean, interval, published
	Lines  = "lines"  // over an axis of the sweep
)

// Figure is a plot that the report draws. Over names the axis that runs along x, for box and bars the first
// where it is empty. Every other axis that At does not fix gives a series, and so does every class where Of
// is empty, save for totals: theirs are of all users. Traces take one of TraceMetrics, and are drawn for the
// first repeat at each point that agrees with At.
type Figure struct {
	Title  string `json:"title" yaml:"title"`
	Source string `json:"source,omitempty" yaml:"source,omitempty"` // the paper's figure that it is like
	Kind   string `json:"kind" yaml:"kind" oneof:"traces|box|bars|lines"`
	Select `yaml:",inline"`
	Over   string `json:"over,omitempty" yaml:"over,omitempty"`
}

// TraceMetrics is what can be drawn over time: window (packets), bytes acknowledged (MB), smoothed RTT (ms),
// and bytes acknowledged per second (Mbit/s).
var TraceMetrics = []string{"cwnd", "sequence", "srtt", "rate"}

// Check finds what no report can show: unknown metrics, kinds and relations. Whether classes, links and
// axes exist is for the scenario to know.
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
		err := oneOf("kind", f.Kind, Traces, Box, Bars, Lines)
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
