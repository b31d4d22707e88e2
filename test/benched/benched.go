// SPDX-License-Identifier: Apache-2.0

// Package benched is what make bench and make bench-instructions leave: times, and instructions as nanoseconds.
package benched

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// The files of make bench and of make bench-instructions, from the top of a clone.
const (
	TimesFile        = "docs/bench.json"
	InstructionsFile = "docs/instructions.json"
)

// The conditions in which the cost per ACK is realistic: each path has a queue, where hardly any subflows are coupled, or
// all paths share one.
const (
	Queued   = "queues: frames of 1500 bytes, congestion avoidance"
	OneQueue = "one queue for all: frames of 1500 bytes, congestion avoidance"
)

// A Report is one run of the benchmark.
type Report struct {
	Kernel  string    `json:"kernel"`
	Machine string    `json:"machine"`
	CPUs    int       `json:"cpus"`
	Rounds  int       `json:"rounds"`
	Seconds float64   `json:"seconds"`
	Goodput []Goodput `json:"goodput"`
	Cost    []Cost    `json:"cost"`
}

// Goodput is what a congestion control carries.
type Goodput struct {
	Condition string `json:"condition"`
	Subflows  int    `json:"subflows"`
	Control   string `json:"control"`
	Rate      Figure `json:"bits_per_second"`
	OfReno    Figure `json:"of_reno"`
	// Seconds that the machine's CPUs were busy, sending and receiving, for each 10^9 bytes.
	CPU Figure `json:"cpu_seconds_per_gb"`
}

// Cost is what a congestion control's callbacks take.
type Cost struct {
	Condition string `json:"condition"`
	Subflows  int    `json:"subflows"`
	Control   string `json:"control"`
	// All callbacks together, by the calls of cong_avoid.
	PerACK      Figure `json:"ns_per_ack"`
	OfYardstick Figure `json:"of_bpf_cubic"`
	// The same, after taking away what an empty callback shows.
	Net Figure `json:"net_ns_per_ack"`
	// The medians' ratio; 0 where the yardstick is none.
	NetOfYardstick float64             `json:"net_of_bpf_cubic"`
	Calls          Figure              `json:"cong_avoid_per_second"`
	Callbacks      map[string]Callback `json:"callbacks"`
}

// Callback is one callback over all rounds.
type Callback struct {
	Calls uint64  `json:"calls"`
	Mean  float64 `json:"ns_per_call"`
}

// Figure is one number over all rounds.
type Figure struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// Read returns the report in a file.
func Read(path string) (*Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(Report)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// CostOf returns what a control costs.
func (r *Report) CostOf(condition, control string, subflows int) (c Cost, found bool) {
	i := slices.IndexFunc(r.Cost, func(c Cost) bool {
		return c.Condition == condition && c.Control == control && c.Subflows == subflows
	})
	if i < 0 {
		return c, false
	}
	return r.Cost[i], true
}

// GoodputOf returns what a control carries behind queues.
func (r *Report) GoodputOf(control string) (g Goodput, found bool) {
	i := slices.IndexFunc(r.Goodput, func(g Goodput) bool { return g.Condition == Queued && g.Control == control })
	if i < 0 {
		return g, false
	}
	return r.Goodput[i], true
}

// Save writes the report into a file.
func (r *Report) Save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
