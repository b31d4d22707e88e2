// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"slices"
	"time"

	"github.com/mpcc/mpcc/pkg/telemetry"
)

// From where on something counts.
const (
	// A path is held down if it carries less than this part of an even share.
	heldShare = 0.6
	// And if its window allows less than that, unless it carries more than this.
	evenShare = 1.2
	// Of segments sent again. Queues that overflow lose less.
	lossy = 0.01
	// An RTT that is longer than the shortest by so much, and by as much again, has a queue in it. Such a path loses what
	// does not fit there.
	queued = 20 * time.Millisecond
	// Of the shortest RTT: windows that grow by a packet per RTT carry that much less.
	farRTT = 3
	// Energy per MB of a dear path, as part of that of the cheapest.
	dear = 1.5
	// Copies of content: beyond what is sent again because of losses.
	copies = 1.5
	// Of the send buffer. A writer that waits for room goes on when a third is free.
	bufferFull = 0.6
	// Of the looks: if the send buffer is full in fewer, no path is said to hold up the others.
	oftenFull = 0.25
	// The least ratio for the finding held-up: the time in which the data on the slowest path arrives, over the time in which
	// the data on the second slowest path arrives.
	late = 4
	// Of content in a buffer, with what the kernel keeps beside it.
	overhead = 2
	// How alike RTTs move on paths with a common queue: correlation, and slope, of the steps between looks.
	sharedCorrelation = 0.8
	sharedSlope       = 0.5
)

// view is the evidence while it is judged.
type view struct{ *Evidence }

// Judge returns what holds the connections down. It looks at nothing but the evidence.
func Judge(e *Evidence) Report {
	v := &view{e}
	r := Report{Interval: telemetry.Seconds(e.Interval), Netns: e.Netns, Host: v.host(), Connections: []Verdict{}}
	for i := range e.Connections {
		c := &e.Connections[i]
		r.Connections = append(r.Connections, Verdict{
			Token: telemetry.Token(c.Token), Local: c.Local, Remote: c.Remote, Findings: v.judge(c), Subflows: c.shares(),
		})
	}
	return r
}

// host are the causes that are not a single connection's.
func (v *view) host() []Finding {
	found := []Finding{}
	add := func(name string, w words, evidence ...string) { found = append(found, v.finding(name, w, evidence...)) }
	if !v.Enabled {
		add("mptcp-disabled", nil, "net.mptcp.enabled is 0")
	}
	if n := len(v.FellBack); n > 0 {
		add("peer-without-mptcp", nil, fmt.Sprintf("%s came as TCP to an MPTCP listener, such as %s",
			many(n, "connection"), v.FellBack[0].Remote))
	}
	if n := len(v.PlainTCP); n > 0 && len(v.Connections) == 0 && v.Enabled {
		add("plain-tcp", nil, fmt.Sprintf("%s from TCP sockets, such as %s > %s",
			many(n, "connection"), v.PlainTCP[0].Local, v.PlainTCP[0].Remote))
	}
	if v.UserspacePM {
		add("userspace-pm", nil, "net.mptcp.pm_type is 1")
	} else if v.Enabled {
		if v.Limits.Subflows == 0 {
			add("limit-subflows", nil, "ip mptcp limits: subflows 0")
		}
		if n := v.Counters["AddAddr"]; n > 0 && v.Limits.AddAddrAccepted == 0 {
			add("limit-add-addr", nil, "ip mptcp limits: add_addr_accepted 0", count("AddAddr", n))
		}
	}
	for _, counted := range []struct{ counter, cause string }{
		{"MPCapableFallbackSYNACK", "peer-without-mptcp"},
		{"MPCapableSYNTXDrop", "syn-blocked"},
		{"DataCsumErr", "checksum-failed"},
		{"MPJoinRejected", "limit-subflows"},
	} {
		if n := v.Counters[counted.counter]; n > 0 && !has(found, counted.cause) {
			add(counted.cause, words{"remote": "the path"}, count(counted.counter, n)+" since the namespace was made")
		}
	}
	if len(v.Connections) == 0 && len(found) == 0 {
		add("no-connections", nil, "no MPTCP connection, and no TCP one")
	}
	return found
}

func has(found []Finding, cause string) bool {
	return slices.ContainsFunc(found, func(f Finding) bool { return f.Cause == cause })
}

func count(name string, n uint64) string { return fmt.Sprintf("MPTcpExt%s is %d", name, n) }

func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (v *view) judge(c *Connection) []Finding {
	usable := c.usable()
	switch {
	case c.Fallback:
		return []Finding{v.fallback(c)}
	case len(usable) < 2:
		return []Finding{v.single(c)}
	}
	found := v.blocked(c, usable)
	alive := slices.DeleteFunc(slices.Clone(usable), func(i int) bool { return c.Subflows[i].backup() || v.dead(&c.Subflows[i]) })
	judge := func() []Finding { return v.sending(c, alive) }
	if c.Received > c.Acked {
		judge = func() []Finding { return v.receiving(c, usable) }
	}
	for _, f := range judge() {
		if !f.OK || len(found) == 0 {
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		found = append(found, v.finding("aggregating", words{"shares": c.carried()}, v.rates(c, usable)...))
	}
	return found
}

// words are what causes say of a subflow.
func (v *view) words(c *Connection, s *Subflow) words {
	return words{
		"address": s.Local.Addr().String(), "remote": s.Remote.Addr().String(), "interface": s.Interface,
		"device": s.Device, "id": fmt.Sprint(s.LocalID), "cc": s.CC, "rule": s.Rule, "path": s.RulePath,
		"route": fmt.Sprintf("ip rule add from %v lookup 100; ip route add default via GATEWAY dev %s table 100", s.Local.Addr(), s.Interface),
	}
}
