// SPDX-License-Identifier: Apache-2.0

// Package advise tells which congestion control or packet scheduler a host should load, if any: it looks at the host's
// ways out and at what its connections have met on them, finds the kind of user that docs/choose.md has measurements
// for, and says what those measurements recommend. Gather looks, Judge decides, Observe does both. Nothing is changed.
package advise

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/internal/choose"
	"github.com/mpcc/mpcc/internal/figures"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// Options say which host to look at, and what cannot be seen there.
type Options struct {
	Netns   string   // as ip netns names it; "" for the caller's
	Metered []string // interfaces whose bytes are paid
}

// Evidence is what was seen of a network namespace.
type Evidence struct {
	Netns     string // its name
	MPTCP     bool   // the kernel has it, and it is switched on
	Endpoints int    // of MPTCP's path manager
	Multipath int    // MPTCP connections that are open
	Ways      []Way
}

// Kinds of ways out.
const (
	Wired   = "wired"
	WLAN    = "WLAN"
	Mobile  = "mobile"
	Unknown = "unknown"
)

// Way is an interface that leads out of the host, and what connections have met there.
type Way struct {
	Interface   string           `json:"interface"`
	Kind        string           `json:"kind"`
	KnownBy     string           `json:"known_by"`          // what tells the kind
	Gateway     string           `json:"gateway,omitempty"` // "" for none, or several
	Metered     string           `json:"metered,omitempty"` // what says so; "" if nothing does
	Connections int              `json:"connections"`       // TCP connections and subflows that are open
	MinRTT      telemetry.Micros `json:"min_rtt_us"`        // the least of theirs; 0 without any
	RTT         telemetry.Micros `json:"rtt_us"`            // the largest smoothed one
	Sent        uint64           `json:"segments_sent"`     // with data
	Again       uint64           `json:"segments_retransmitted"`
	Rate        float64          `json:"delivery_rate_bytes_per_second"` // the highest that is known
}

// again is the share of segments that were sent again, as far as enough were sent to tell.
func (w *Way) again() (share float64, ok bool) {
	const enough = 1000
	return float64(w.Again) / float64(max(w.Sent, 1)), w.Sent >= enough
}

func (w *Way) says() string {
	parts := []string{fmt.Sprintf("%s: %s, %s", w.Interface, w.Kind, w.KnownBy)}
	if w.Gateway != "" {
		parts = append(parts, "by "+w.Gateway)
	}
	if w.Metered != "" {
		parts = append(parts, "metered, "+w.Metered)
	}
	if w.MinRTT > 0 {
		parts = append(parts, fmt.Sprintf("RTT from %s to %s", figures.RTT(w.MinRTT), figures.RTT(w.RTT)))
	}
	if w.Rate > 0 {
		parts = append(parts, "up to "+figures.BitRate(w.Rate))
	}
	if share, ok := w.again(); ok {
		parts = append(parts, fmt.Sprintf("%.2g %% of segments sent again", 100*share))
	}
	if w.Connections == 0 && w.Rate == 0 {
		parts = append(parts, "nothing seen on it yet")
	}
	return strings.Join(parts, ", ")
}

// Report is what is made of the evidence.
type Report struct {
	Netns    string   `json:"netns,omitempty"`
	MPTCP    bool     `json:"mptcp"`
	Ways     []Way    `json:"ways"`
	Row      string   `json:"row"` // of docs/choose.md
	Title    string   `json:"title"`
	Why      []string `json:"why"`
	Load     string   `json:"load"`              // "" for nothing
	Command  string   `json:"command,omitempty"` // that loads it
	Measured []string `json:"measured"`          // what the advice rests on
	Trades   []Trade  `json:"trades"`
}

// Trade is something that gains in one thing and costs in another.
type Trade struct {
	Load    string `json:"load"`
	Command string `json:"command"`
	Gain    string `json:"gain"`
	Cost    string `json:"cost,omitempty"`
}

// Observe looks at a network namespace, and judges what it saw. Sockets of others, and their subflows, are seen by root.
func Observe(ctx context.Context, o Options) (Report, error) {
	e, err := Gather(ctx, o)
	if err != nil {
		return Report{}, err
	}
	return Judge(e), nil
}

// Judge says which kind of user the host is, and what is recommended to it.
func Judge(e *Evidence) Report {
	row, why := kindOfUser(e)
	r := Report{Netns: e.Netns, MPTCP: e.MPTCP, Ways: slices.Clone(e.Ways), Row: row, Why: why, Measured: []string{}, Trades: []Trade{}}
	if r.Ways == nil {
		r.Ways = []Way{}
	}
	for i := range e.Ways {
		r.Why = append(r.Why, e.Ways[i].says())
	}
	chosen := choose.FindRow(row)
	r.Title = chosen.Title
	advice := chosen.Advice()
	if advice.Nothing() {
		r.Measured = append(r.Measured, "nothing that mpcc has is certainly better than the kernel's cubic there without costing more than 2 % elsewhere")
	} else {
		r.Load, r.Command = advice.Load.String(), command(advice.Load, e.Netns)
		for _, f := range advice.Gains {
			r.Measured = append(r.Measured, says(f))
		}
	}
	for _, t := range advice.Trades {
		trade := Trade{Load: t.Load.String(), Command: command(t.Load, e.Netns), Gain: says(t.Gain)}
		if t.Cost != nil {
			trade.Cost = says(t.Cost)
		}
		r.Trades = append(r.Trades, trade)
	}
	return r
}

// says is a figure as one line.
func says(f *choose.Figure) string {
	return fmt.Sprintf("%s: %s %s", choose.FindCell(f.Cell).Says, choose.Noun(f.Metric), f.Change())
}

// command loads a contestant as the default. Schedulers were measured with small pieces.
func command(c choose.Contestant, netns string) string {
	words := []string{"mpcc load"}
	if c.CC != choose.Kernel.CC {
		words = append(words, "cc/"+c.CC)
	}
	if c.Scheduler != choose.Kernel.Scheduler {
		words = append(words, "sched/"+c.Scheduler)
	}
	words = append(words, "--default")
	if c.Scheduler != choose.Kernel.Scheduler {
		words = append(words, "--small-pieces")
	}
	if netns != "" {
		words = append(words, "--netns "+netns)
	}
	return strings.Join(words, " ")
}

// kindOfUser returns the row of docs/choose.md that is the host's, and why.
func kindOfUser(e *Evidence) (row string, why []string) {
	count := map[string]int{}
	var metered, names []string
	gateways := map[string]bool{}
	for _, w := range e.Ways {
		count[w.Kind]++
		names = append(names, w.Interface)
		gateways[cmp.Or(w.Gateway, w.Interface)] = true
		if w.Metered != "" {
			metered = append(metered, w.Interface)
		}
	}
	lossy := slices.ContainsFunc(e.Ways, func(w Way) bool { share, ok := w.again(); return ok && share > 0.002 && w.Kind == Unknown })
	all := strings.Join(names, ", ")
	switch n := len(e.Ways); {
	case n == 0:
		return "line", []string{"no way out: no interface has a default route, a connection or an MPTCP endpoint"}
	case n == 1:
		return "line", []string{"one way out: a connection has nothing to choose from"}
	case !e.MPTCP:
		return "line", []string{fmt.Sprintf("%d ways out, but MPTCP is off or not in the kernel: every connection has one", n)}
	case e.Endpoints == 0 && e.Multipath == 0:
		why = append(why, "no MPTCP endpoint and no MPTCP connection: until there is one, every connection has one way (mpcc why)")
	}
	switch {
	case len(gateways) == 1:
		return "shared", append(why, fmt.Sprintf("%s lead to the same gateway: they share its uplink", all))
	case len(metered) > 0:
		return "metered", append(why, fmt.Sprintf("%s is paid by the byte", strings.Join(metered, ", ")))
	case count[Mobile] > 1 && count[Wired]+count[WLAN] == 0:
		return "train", append(why, fmt.Sprintf("%s are all mobile", all))
	case count[WLAN] > 0 && count[Wired] == 0:
		return "phone", append(why, fmt.Sprintf("%s: WLAN, and no wire", all))
	case lossy:
		return "phone", append(why, fmt.Sprintf("%s: segments get lost as in a WLAN", all))
	case count[Wired] == len(e.Ways):
		return "own", append(why, fmt.Sprintf("%s are all wired, by different gateways", all))
	case count[Unknown] > 0:
		return "home", append(why, fmt.Sprintf("%s: nothing tells all their kinds, so they are taken for unlike ones", all))
	}
	return "home", append(why, fmt.Sprintf("%s: a wire, and something without", all))
}
