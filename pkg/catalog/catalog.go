// SPDX-License-Identifier: Apache-2.0

// Package catalog is the one table of what mpcc brings: each algorithm with its source. The BPF object
// of a row holds the code, the tunables and their ranges.
package catalog

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/mpcc/mpcc/bpf/obj"
)

// Kind tells what of the kernel an algorithm plugs into.
type Kind string

// The kinds.
const (
	CC Kind = "cc" // tcp_congestion_ops
)

// Entry is one algorithm.
type Entry struct {
	Kind   Kind
	Name   string // what the kernel calls it too, below 16 characters
	Title  string
	Source string // paper and equation
	Rule   string // in the source's notation
	// Coupling names the quantity by which the algorithm couples subflows, shown by status.
	Coupling string
	// Reconstruction is set where the source leaves the rule open, and says what is ours.
	Reconstruction string
	Spec           func() (*ebpf.CollectionSpec, error)
}

// Entries lists every algorithm.
var Entries = []Entry{
	{
		Kind: CC, Name: "dts",
		Title:    "Delay-based Traffic Shifting",
		Source:   "Zhao, Liu, Wang, On Energy-Efficient Congestion Control for Multipath TCP, section V, Algorithm 1",
		Rule:     "w_r += eps_r (w_r/RTT_r^2) / (sum w_k/RTT_k)^2, eps_r = 2 / (1 + exp(-10 (baseRTT_r/RTT_r - 1/2)))",
		Coupling: "epsilon",
		Spec:     obj.LoadDts,
	},
	{
		Kind: CC, Name: "lia",
		Title:    "Linked Increases Algorithm",
		Source:   "RFC 6356, section 3, equations (1) and (2)",
		Rule:     "w_r += min(alpha/W, 1/w_r), alpha = W max(w_k/rtt_k^2) / (sum w_k/rtt_k)^2",
		Coupling: "alpha",
		Spec:     obj.LoadLia,
	},
	{
		Kind: CC, Name: "olia",
		Title:    "Opportunistic Linked Increases Algorithm",
		Source:   "draft-khalili-mptcp-congestion-control-05, equations (2)-(4); Khalili et al., CoNEXT 2012",
		Rule:     "w_r += (w_r/rtt_r^2) / (sum w_k/rtt_k)^2 + alpha_r/w_r",
		Coupling: "alpha",
		Spec:     obj.LoadOlia,
	},
}

// ID is the name that is unique among all kinds, such as cc/lia.
func (e Entry) ID() string { return string(e.Kind) + "/" + e.Name }

// Find looks a name up, bare (lia) or with its kind (cc/lia).
func Find(name string) (Entry, error) {
	var found []Entry
	for _, e := range Entries {
		if name == e.Name || name == e.ID() {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Entry{}, fmt.Errorf("no algorithm is called %q; mpcc list shows all", name)
	}
	var ids []string
	for _, e := range found {
		ids = append(ids, e.ID())
	}
	return Entry{}, fmt.Errorf("%q is more than one algorithm; say %s", name, strings.Join(ids, " or "))
}
