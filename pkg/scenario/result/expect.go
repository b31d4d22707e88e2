// SPDX-License-Identifier: Apache-2.0

package result

// Expect is what a scenario says about its results. It is the same in YAML and JSON, so that a scenario
// carries it and a run folder repeats it.
type Expect struct {
	Values  []Value  `json:"values" yaml:"values"`
	Claims  []Claim  `json:"claims" yaml:"claims"`
	Figures []Figure `json:"figures" yaml:"figures"`
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
	Kind   string  `json:"kind" yaml:"kind"`
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
// one that To picks where there is one, is above or below Bound, or within Margin of it.
type Claim struct {
	Text     string `json:"text" yaml:"text"`
	Source   string `json:"source" yaml:"source"`
	Select   `yaml:",inline"`
	To       *Select `json:"to,omitempty" yaml:"to,omitempty"`
	Relation string  `json:"is" yaml:"is"`
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

// Figure is a plot that the report draws. Over names the axis that runs along x: it is needed for lines,
// and for box and bars where the sweep has more than one. Every other axis that At does not fix gives a
// series, and so does every class where Of is empty. Traces take one of TraceMetrics, and are drawn for
// the first repeat at each point that agrees with At.
type Figure struct {
	Title  string `json:"title" yaml:"title"`
	Source string `json:"source,omitempty" yaml:"source,omitempty"` // the paper's figure that it is like
	Kind   string `json:"kind" yaml:"kind"`
	Select `yaml:",inline"`
	Over   string `json:"over,omitempty" yaml:"over,omitempty"`
}

// TraceMetrics is what can be drawn over time: window (packets), bytes acknowledged (MB), smoothed RTT (ms),
// and bytes acknowledged per second (Mbit/s).
var TraceMetrics = []string{"cwnd", "sequence", "srtt", "throughput"}
