// SPDX-License-Identifier: Apache-2.0

// Package result reads and writes what mpcc run leaves behind: a folder with results.json, and samples as CSV.
// docs/results-format.md describes both. It also has the metrics that can be read off the results, and what a
// scenario expects of them.
package result

import "time"

// What marks results.json. A reader refuses any other.
const (
	format  = "mpcc results"
	version = 1
)

// Result is results.json. Units are in the keys; what is null was not measured.
type Result struct {
	Format   string    `json:"format"`
	Version  int       `json:"version"`
	Tool     string    `json:"tool"`    // mpcc's version
	Kernel   string    `json:"kernel"`  // release that ran it, or Simulated
	Machine  string    `json:"machine"` // "" for the host itself, else what kind of virtual machine it was
	Started  time.Time `json:"started"`
	Seconds  float64   `json:"elapsed_seconds"`
	Seed     uint64    `json:"seed"`  // the runs' seeds are drawn from it
	Quick    bool      `json:"quick"` // the short form was run: its numbers are not to be relied on
	Shard    *Shard    `json:"shard"` // null: all of the sweep was run
	Scenario Scenario  `json:"scenario"`
	Sweep    []Axis    `json:"sweep"`  // its variables, in the order of the report
	Expect   Expect    `json:"expect"` // what the paper says
	Runs     []Run     `json:"runs"`
}

// Shard is a part of a sweep: of its runs, in their order, each Of-th from Number on.
type Shard struct {
	Number int `json:"number"` // from 0
	Of     int `json:"of"`
}

// Scenario is the file that was run.
type Scenario struct {
	Name   string   `json:"name"`
	Title  string   `json:"title"`
	Source string   `json:"source"` // the paper and where in it
	Notes  []string `json:"notes"`  // what is done otherwise than in the paper, and other limits
	Setup  Setup    `json:"setup"`
	YAML   string   `json:"yaml"` // the whole file, with what the command line changed
}

// Setup is the published set-up beside the scenario's, each in a few words.
type Setup struct {
	// As published.
	Published string `json:"published" yaml:"published,omitempty"`
	// As it is here.
	Ours string `json:"ours" yaml:"ours,omitempty"`
	// As the simulated results in docs/results have it, where that is another scale than with the kernel.
	Simulated string `json:"simulated,omitempty" yaml:"simulated,omitempty"`
}

// Simulated is the kernel of results that were simulated.
const Simulated = "simulated"

// Axis is one variable of the sweep.
type Axis struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

// Point is a point of the sweep: a value for each variable. In a Select some may be left out.
type Point map[string]string

// Run is one repeat at one point.
type Run struct {
	Point    Point     `json:"point"`
	Repeat   int       `json:"repeat"`          // from 0
	Planned  int       `json:"planned_repeats"` // how many the scenario's plan has at this point; 0 without a plan
	Seed     uint64    `json:"seed"`
	Warmup   float64   `json:"warmup_seconds"`
	Measured float64   `json:"measured_seconds"`
	Links    []Link    `json:"links"`
	Classes  []Class   `json:"classes"`
	RAPL     []Zone    `json:"rapl"`    // empty if the machine has none
	Samples  string    `json:"samples"` // the CSV's path in the folder; "" without samples
	Warnings []string  `json:"warnings"`
	Faults   []string  `json:"faults"`   // what makes its numbers wrong: no estimate or verdict is made of such a run
	Measures []Measure `json:"measures"` // the metrics, without those of links; Folder.Write fills them in

	folder string // where Read found it
}

// Measure is the value of one metric.
type Measure struct {
	Metric string  `json:"metric"`
	Of     string  `json:"of"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Source string  `json:"source,omitempty"` // of an energy: model or rapl
}

// Link is one direction of a link.
type Link struct {
	Name     string  `json:"name"` // as the scenario has it; NAME-back for the way back
	From     string  `json:"from"`
	To       string  `json:"to"`
	Asked    Quality `json:"asked"`
	Measured Quality `json:"measured"` // before the users began
	Qdisc    string  `json:"qdisc"`    // as tc shows it
	Queue    Queue   `json:"queue"`    // during the measured phase
}

// Quality is what a link does to packets; null: not asked for, or not measured.
type Quality struct {
	Rate  *float64 `json:"rate_bps"`
	Delay *float64 `json:"delay_ms"` // one way
	Loss  *float64 `json:"loss"`     // 0 to 1
}

// Queue counts packets at a link's queue.
type Queue struct {
	Sent    uint64 `json:"sent_packets"`
	Dropped uint64 `json:"dropped_packets"`
	Marked  uint64 `json:"marked_packets"` // by ECN, instead of being dropped
}

// Class is a class of users.
type Class struct {
	Name      string `json:"name"`
	Multipath bool   `json:"multipath"`
	CC        string `json:"cc"`
	Scheduler string `json:"scheduler"` // "": the kernel's default

	// Tunables that the scenario has set; the others had their defaults.
	CCTunables        map[string]string `json:"cc_tunables"`
	SchedulerTunables map[string]string `json:"scheduler_tunables"`

	HostPower *HostPower `json:"host_power"` // null if the users' hosts have no profile

	Users []User `json:"users"`
}

// HostPower is the power of a host by its profile: base + per_mbps · scale · Mbit/s.
type HostPower struct {
	Profile string  `json:"profile"`
	Base    float64 `json:"base"`     // in the profile's unit
	Slope   float64 `json:"per_mbps"` // of the rate that the scaled-down one stands for
	Scale   float64 `json:"scale"`    // how many times the experiment's rates are scaled down
}

// User is one user's traffic in the measured phase.
type User struct {
	Host       string     `json:"host"`           // that opens its connections
	Bytes      uint64     `json:"bytes"`          // of payload, that the receiver got
	Active     float64    `json:"active_seconds"` // time in which there was something to transfer
	Goodput    float64    `json:"goodput_bps"`    // bytes by active time; Folder.Write fills it in
	Transfers  []Transfer `json:"transfers"`      // files, in the order of their start; empty for endless traffic
	Subflows   []Subflow  `json:"subflows"`
	OutOfOrder *uint64    `json:"out_of_order_packets"` // those that waited in the receiver's out-of-order queue of MPTCP
	Received   *uint64    `json:"received_packets"`
	Reinjected *uint64    `json:"reinjected_packets"` // those that were sent again on another subflow
	Energy     *Energy    `json:"energy"`             // null if the user's interfaces have no profile
}

// Transfer is one file.
type Transfer struct {
	Start   float64  `json:"start_seconds"` // since the measured phase began
	Bytes   uint64   `json:"bytes"`
	Seconds *float64 `json:"completion_seconds"` // null: it was not complete when the run ended
}

// Subflow is what one subflow, or a plain TCP connection, did in the measured phase.
type Subflow struct {
	ID        int     `json:"id"`        // from 1, unique among the user's
	Interface string  `json:"interface"` // on the user's side
	Bytes     uint64  `json:"bytes_acked"`
	Retrans   uint64  `json:"segments_retransmitted"`
	Cwnd      float64 `json:"mean_cwnd_packets"`
	SRTT      float64 `json:"mean_srtt_ms"`
	SRTT95    float64 `json:"srtt_95_ms"` // 95th percentile of the samples
}

// Where an energy comes from.
const (
	SourceModel = "model" // P = b·x + θ of the interfaces' profiles
	SourceRAPL  = "rapl"
)

// Energy is joules and their source.
type Energy struct {
	Joules float64 `json:"joules"`
	Source string  `json:"source"` // model or rapl
}

// Zone is what one RAPL zone used in the measured phase. Zones contain each other: never add them.
type Zone struct {
	Name string `json:"name"` // such as "intel-rapl:0 package-0"
	Energy
}
