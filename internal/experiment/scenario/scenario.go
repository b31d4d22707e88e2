// SPDX-License-Identifier: Apache-2.0

// Package scenario is the language of experiments: YAML that says which network to build, who sends what
// over it, how long to measure, and what a paper says comes out. docs/scenarios.md describes every key.
//
//	file, err := scenario.Load("scenario-c")     // or a path
//	runs := file.Runs(false)                     // points of the sweep × repeats
//	network := runs[0].Network()                 // each host, link and user of it
package scenario

import "github.com/mpcc/mpcc/internal/experiment/result"

// The struct tags are what the decoder checks, and what the JSON schema and the table of keys in
// docs/scenarios.md are generated from: a key without omitempty is needed; default, range (both ends
// included) and oneof are written as they are in YAML; varies:"no" is where $(…) is not for. The comments are
// the descriptions.

// Scenario is one experiment.
type Scenario struct {
	// Name of the experiment, which is part of the names of its results.
	Name Name `yaml:"name" varies:"no"`
	// One line on what the experiment shows.
	Title string `yaml:"title" varies:"no"`
	// The paper, and where in it; for an experiment of your own, say so.
	Source string `yaml:"source" varies:"no"`
	// What is done otherwise than in the paper, and other limits. The report repeats them.
	Notes []string `yaml:"notes,omitempty" varies:"no"`
	// The published set-up and this one, each in a few words.
	Setup result.Setup `yaml:"setup,omitempty" varies:"no"`
	// Variables that the experiment varies; it runs at every combination of their values. `$(…)` in other
	// values, except in expect, computes with them.
	Sweep []Axis `yaml:"sweep,omitempty" varies:"no"`
	// How often each point is run, at least: as often as the plans of the claims about it say.
	Repeats int `yaml:"repeats,omitempty" varies:"no" default:"1" range:"1..1000"`
	// The seeds of the repeats are drawn from this one. A repeat has the same seed at all points.
	Seed uint64 `yaml:"seed,omitempty" varies:"no" default:"1"`
	// How long it runs.
	Phases Phases `yaml:"phases"`
	// A short form, for a first look.
	Quick Quick `yaml:"quick,omitempty" varies:"no"`
	// How often the subflows' state is sampled.
	Sample Duration `yaml:"sample,omitempty" default:"100 ms" range:"1 ms..1 min"`

	// End hosts.
	Hosts []Host `yaml:"hosts,omitempty"`
	// Names of hosts that forward packets, and neither send nor receive.
	Routers []Name `yaml:"routers,omitempty"`
	// Links between them.
	Links []Link `yaml:"links,omitempty"`
	// Data centre networks, made from their size.
	Generate []Generate `yaml:"generate,omitempty"`
	// Rates that change over time, such as a train's, for links that name one.
	Traces []Trace `yaml:"traces,omitempty"`

	// Who sends what.
	Users []User `yaml:"users"`
	// What mpcc's congestion controls and packet schedulers are set to, as by mpcc load --set: name=value goes to
	// those that have such a tunable; paper sets all others to what the algorithm's paper has; default sets nothing.
	Tunables []string `yaml:"tunables,omitempty"`
	// Changes of links while users send.
	Events []Event `yaml:"events,omitempty"`

	// What the paper says comes out.
	Expect result.Expect `yaml:"expect,omitempty" varies:"no"`
}

// Axis is one variable of the sweep. The variables cc and scheduler are what the command line's --cc and
// --sched replace.
type Axis struct {
	// What expressions call it.
	Name Variable `yaml:"name"`
	// Its values: numbers or words.
	Values []string `yaml:"values"`
	// Its values in the short form; without this key all of them.
	Quick []string `yaml:"quick,omitempty"`
}

// Phases is how long a run takes.
type Phases struct {
	// How long users send before anything counts.
	Warmup Duration `yaml:"warmup,omitempty" default:"0 s" range:"0 s..1 h"`
	// How long the measured phase lasts. Where users transfer files, it ends once all files are complete.
	Measure Duration `yaml:"measure" range:"100 ms..24 h"`
}

// Quick is the short form: a key that is left out is as in the full form, and each axis has its own short list.
type Quick struct {
	// How long users send before anything counts.
	Warmup *Duration `yaml:"warmup,omitempty" range:"0 s..1 h"`
	// How long the measured phase lasts. Events that would come later do not happen.
	Measure *Duration `yaml:"measure,omitempty" range:"100 ms..24 h"`
	// How often each point is run.
	Repeats *int `yaml:"repeats,omitempty" range:"1..1000"`
}

// Host is an end host, or several hosts of a kind.
type Host struct {
	// Forwards says that it relays what others send.
	Forwards bool `yaml:"-"`

	// Name of the host. Several hosts of a kind are called NAME-0, NAME-1, ….
	Name Name `yaml:"name"`
	// How many there are. A link to them is one link to each.
	Count *int `yaml:"count,omitempty" range:"1..1000"`
	// The in-kernel path manager. Without it every link's address is an endpoint for subflows, and the
	// limits let all of them be used.
	MPTCP *MPTCP `yaml:"mptcp,omitempty"`
	// What its processor draws, for the metric host_energy of the users on it.
	Energy *HostEnergy `yaml:"energy,omitempty"`
	// If false, the entry is left out.
	When *bool `yaml:"when,omitempty"`
}

// HostEnergy is the power model of a host: of its processor, while its interfaces have profiles of their own.
type HostEnergy struct {
	// Host profile, one of those that docs/energy.md lists.
	Host string `yaml:"host"`
	// How many times the experiment's rates are scaled down: the power is that at as many times the rate.
	Scale float64 `yaml:"scale,omitempty" default:"1" range:"1..1000000"`
}

// MPTCP is the configuration of the in-kernel path manager, as ip-mptcp(8) sets it.
type MPTCP struct {
	// Most subflows of a connection beyond its first.
	Subflows int `yaml:"subflows" range:"0..8"`
	// Most addresses announced by the peer to which subflows are opened.
	AddAddrAccepted int `yaml:"add_addr_accepted,omitempty" default:"0" range:"0..8"`
	// Addresses the path manager may use; at most 8 in all.
	Endpoints []Endpoint `yaml:"endpoints,omitempty"`
}

// Endpoint is the host's addresses on one link.
type Endpoint struct {
	// A link of the host.
	Link Name `yaml:"link"`
	// How many addresses, beginning with the link's own; each gives a subflow.
	Addresses int `yaml:"addresses,omitempty" default:"1" range:"0..8"`
	// What they are for.
	Flags []string `yaml:"flags,omitempty" default:"subflow" oneof:"subflow|signal|backup|fullmesh"`
}

// Shape is what one direction of a link does to packets: loss, then delay, then the queue and the rate.
type Shape struct {
	// Rate of Ethernet frames. Without it the link is unlimited, and no packet waits.
	Rate Rate `yaml:"rate,omitempty" range:"8 kbit/s..100 Gbit/s"`
	// The name of a trace, in place of a rate. The queue is then one in bytes: those who wait in it leave at the rate
	// that there is by then.
	Trace Name `yaml:"trace,omitempty"`
	// Delay, one way.
	Delay Duration `yaml:"delay,omitempty" default:"0 s" range:"0 s..4 s"`
	// The delay varies evenly by this much either way. Packets keep their order: one that would overtake others leaves
	// right behind them.
	Jitter Duration `yaml:"jitter,omitempty" default:"0 s" range:"0 s..4 s"`
	// Let packets overtake each other because of the jitter. Data that overtakes the handshake of a subflow makes the
	// kernel reset that subflow.
	Reorder bool `yaml:"reorder,omitempty" default:"false"`
	// Packets lost at random.
	Loss Percent `yaml:"loss,omitempty" default:"0 %" range:"0 %..100 %"`
	// The queue of packets that wait because of the rate.
	Queue Queue `yaml:"queue,omitempty"`
}

// Queue is one of three kinds.
type Queue struct {
	// DropTail, full at this many packets; 100 where no queue is given.
	Packets int `yaml:"packets,omitempty" range:"1..1000000"`
	// Active management of a queue in packets, with the kernel's own targets and without ECN: codel, fq_codel (a queue for
	// each flow) or pie. The simulator has no fq_codel.
	AQM string `yaml:"aqm,omitempty" oneof:"codel|fq_codel|pie"`
	// DropTail, full at this many bytes.
	Bytes Size `yaml:"bytes,omitempty" range:"1514 B..1 GB"`
	// Random early detection.
	RED *RED `yaml:"red,omitempty"`
}

// RED drops packets before the queue is full. The chance of a drop is 0 up to an average queue of min, rises
// evenly to probability at max, and from there evenly to 1 at end. The kernel's RED has one rise; two of them in
// a row make the curve.
type RED struct {
	// The link rate for which min, max and end are given: they are scaled to the rate that the link has.
	// Without it they hold at any rate.
	Per Rate `yaml:"per,omitempty" range:"8 kbit/s..100 Gbit/s"`
	// Average queue, in packets, up to which nothing is dropped.
	Min float64 `yaml:"min" range:"0.1..1000000"`
	// Average queue, in packets, at which the chance of a drop is probability.
	Max float64 `yaml:"max" range:"0.1..1000000"`
	// Chance of a drop at max.
	Probability float64 `yaml:"probability" range:"0.001..1"`
	// Average queue, in packets, from which everything is dropped; without it max.
	End float64 `yaml:"end,omitempty" range:"0.1..1000000"`
	// Mark packets that allow it instead of dropping them.
	ECN bool `yaml:"ecn,omitempty" default:"false"`
}

// Link joins two hosts or routers. Results call its direction from the first to the second NAME and the
// other one NAME-back.
type Link struct {
	// Also the name of the interface on hosts.
	Name LinkName `yaml:"name"`
	// The two hosts or routers it joins. A host with a count has a link for each, NAME-0, NAME-1, ….
	Between []Name `yaml:"between"`
	// Both directions, unless back differs.
	Shape `yaml:",inline"`
	// The direction from the second to the first. Its keys have their own defaults, not the other direction's values.
	Back *Shape `yaml:"back,omitempty"`
	// Energy profile of the interface, one of those that mpcc energy show lists.
	Energy string `yaml:"energy,omitempty"`
	// Energy profile of the interface at the far end of the path, for a sender that is to spare its receiver's
	// energy: its algorithms are told that sending on this link costs what receiving costs there.
	Price string `yaml:"price,omitempty"`
	// If false, the entry is left out.
	When *bool `yaml:"when,omitempty"`

	// Interface is the name on hosts: the same at each of several of a kind.
	Interface string `yaml:"-"`
	// Place is where the file describes it: file:line:column.
	Place string `yaml:"-"`
}

// Trace is how a rate changes over time. It begins anew where it ends.
type Trace struct {
	// What links call it.
	Name Name `yaml:"name"`
	// How long each of the rates lasts.
	Step Duration `yaml:"step,omitempty" default:"200 ms" range:"10 ms..1 min"`
	// The rates, one after the other; at 0 bit/s next to nothing passes.
	Rates []Rate `yaml:"rates,omitempty"`
	// In place of rates: a recording in the format of Mahimahi, a line for each packet of 1500 bytes that could leave,
	// with the time in ms; a path from the scenario's own folder. What is run, and kept with the results, has the rates.
	File string `yaml:"file,omitempty" varies:"no"`
	// A run begins up to this far into the trace, at random; all traces of a run equally far.
	Within Duration `yaml:"within,omitempty" default:"0 s" range:"0 s..1 h"`
}

// Generate makes a data centre network of one kind.
type Generate struct {
	// The hosts are a kind of this name: NAME-0, ….
	Name Name `yaml:"name"`
	// Al-Fares et al., SIGCOMM 2008.
	FatTree *FatTree `yaml:"fat_tree,omitempty"`
	// Greenberg et al., SIGCOMM 2009.
	VL2 *VL2 `yaml:"vl2,omitempty"`
	// Guo et al., SIGCOMM 2009.
	BCube *BCube `yaml:"bcube,omitempty"`
	// Links between a host and a switch.
	Access Shape `yaml:"access,omitempty"`
	// Links between switches.
	Fabric Shape `yaml:"fabric,omitempty"`
	// Energy profile of the hosts' interfaces.
	Energy string `yaml:"energy,omitempty"`
	// The hosts' path manager, as for a host. The hosts' links are called eth0, eth1, ….
	MPTCP *MPTCP `yaml:"mptcp,omitempty"`
	// If false, the entry is left out.
	When *bool `yaml:"when,omitempty"`

	// Place is where the file describes it: file:line:column.
	Place string `yaml:"-"`
}

// FatTree has ports³/4 hosts and 5·ports²/4 switches.
type FatTree struct {
	// Ports of each switch; an even number.
	Ports int `yaml:"ports" range:"2..16"`
}

// VL2 joins each top-of-rack switch to two aggregation switches, and each of those to all intermediate ones.
type VL2 struct {
	// Top-of-rack switches.
	Racks int `yaml:"racks" range:"1..256"`
	// Hosts of each rack.
	Hosts int `yaml:"hosts" range:"1..64"`
	// Aggregation switches.
	Aggregations int `yaml:"aggregations" range:"2..128"`
	// Intermediate switches.
	Intermediates int `yaml:"intermediates" range:"1..128"`
}

// BCube has a host for each combination of ports, with one interface per level; hosts relay.
type BCube struct {
	// Ports of the switches at each level; equal ones make BCube as published.
	Ports []int `yaml:"ports" range:"2..64"`
}

// User is a class of users that do the same.
type User struct {
	// What results call the class.
	Name Name `yaml:"name"`
	// How many users there are; on several hosts of a kind, how many on each.
	Count int `yaml:"count,omitempty" default:"1" range:"1..10000"`
	// The host that opens the connections: the user's own.
	From Name `yaml:"from"`
	// The host that accepts them. Of several hosts of a kind, each user gets another one at random.
	To Name `yaml:"to"`
	// The link of the user's host that the first subflow takes; without it the host's first link.
	Via Name `yaml:"via,omitempty"`
	// The link of the accepting host to whose address the first subflow goes; without it the host's first link.
	Peer Name `yaml:"peer,omitempty"`
	// Transport protocol; udp is for constant and bursts only.
	Transport string `yaml:"transport,omitempty" default:"mptcp" oneof:"mptcp|tcp|udp"`
	// Which way data goes: up from the user, down to it.
	Direction string `yaml:"direction,omitempty" default:"up" oneof:"up|down"`
	// Congestion control of the side that sends: of mpcc, the kernel's own, or any that is loaded.
	CC string `yaml:"cc,omitempty" default:"reno"`
	// Packet scheduler of the side that sends: of mpcc, default, the kernel's own, or any that is loaded.
	Scheduler string `yaml:"scheduler,omitempty" default:"default"`
	// Buffer of the sending socket; without it the kernel's choice.
	SendBuffer Size `yaml:"send_buffer,omitempty" range:"4 KB..1 GB"`
	// Buffer of the receiving socket; without it the kernel's choice.
	ReceiveBuffer Size `yaml:"receive_buffer,omitempty" range:"4 KB..1 GB"`
	// What is sent.
	Traffic `yaml:",inline"`
	// If false, the entry is left out.
	When *bool `yaml:"when,omitempty"`
}

// Kinds of traffic.
const (
	TrafficBulk     = "bulk"
	TrafficFile     = "file"
	TrafficHTTP     = "http"
	TrafficIperf3   = "iperf3"
	TrafficConstant = "constant"
	TrafficBursts   = "bursts"
)

// Transports.
const (
	OverMPTCP = "mptcp"
	OverUDP   = "udp"
)

// Traffic is what a user sends.
type Traffic struct {
	// bulk: data without end. file: files of a size. http: files of a size that curl fetches from nginx, with
	// direction down. iperf3: data without end, by iperf3. constant: data at a rate. bursts: data at a rate for
	// a while, then none for a while.
	Kind string `yaml:"traffic" oneof:"bulk|file|http|iperf3|constant|bursts"`
	// Size of a file, for file and http.
	Size Size `yaml:"size,omitempty" range:"1 B..1 TB"`
	// How many files, one after another, each over a connection of its own.
	Files int `yaml:"files,omitempty" default:"1" range:"1..100000"`
	// Rate of constant traffic, and of bursts while they last.
	Rate Rate `yaml:"rate,omitempty" range:"1 kbit/s..100 Gbit/s"`
	// Mean length of a burst, Pareto distributed.
	On Duration `yaml:"on,omitempty" range:"1 ms..1 h"`
	// Mean silence between bursts, Pareto distributed.
	Off Duration `yaml:"off,omitempty" range:"1 ms..1 h"`
	// Exponent of both Pareto distributions: the nearer to 1, the longer the longest bursts and silences.
	Alpha float64 `yaml:"alpha,omitempty" default:"1.5" range:"1.05..10"`
	// When the traffic begins, since the start of the warm-up.
	Start Duration `yaml:"start,omitempty" default:"0 s" range:"0 s..24 h"`
	// The traffic begins up to this much later, at random.
	Within Duration `yaml:"within,omitempty" default:"0 s" range:"0 s..1 h"`
}

// Event changes a link, in both directions; a key that is left out changes nothing.
type Event struct {
	// When it happens, since the start of the warm-up.
	At Duration `yaml:"at" range:"0 s..24 h"`
	// The link; NAME-0, NAME-1, … are those to several hosts of a kind.
	Link LinkName `yaml:"link"`
	// Takes the link away or brings it back.
	State string `yaml:"state,omitempty" oneof:"up|down"`
	// Its new rate.
	Rate *Rate `yaml:"rate,omitempty" range:"8 kbit/s..100 Gbit/s"`
	// Its new delay, one way.
	Delay *Duration `yaml:"delay,omitempty" range:"0 s..4 s"`
	// Its new loss.
	Loss *Percent `yaml:"loss,omitempty" range:"0 %..100 %"`
	// If false, the entry is left out.
	When *bool `yaml:"when,omitempty"`

	// Only is the one direction that changes.
	Only Way `yaml:"-"`
}

// Way is one direction of a link, or both.
type Way int

// Directions of a link.
const (
	BothWays Way = iota
	There        // from the first of between to the second
	Back
)

// Changes says whether the event changes a direction.
func (e *Event) Changes(w Way) bool { return e.Only == BothWays || e.Only == w }
