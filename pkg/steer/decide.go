// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/mpcc/mpcc/pkg/telemetry"
)

const (
	// A subflow's rate says little about its path before this many bytes are acknowledged, and round trips over.
	measuredBytes = 64 << 10
	measuredRTTs  = 10
	// How long a verdict stands after the connection last sent.
	verdictLasts = 10 * time.Second
	// The time after which a sent or received byte counts half.
	halfLife = 10 * time.Second
	// A connection that has lately received this many bytes, and more than it has sent, is a download.
	downloadBytes = 64 << 10
	// How many of the connections that have ended are remembered, to expect the size of others.
	remembered = 100
)

// tariff is what sending on an interface costs.
type tariff struct {
	slope float64 // mW/Mbps
	base  float64 // mW while active
}

// lever is what a backup flag can be set on: an endpoint of the kernel's path manager, or a single subflow of
// a connection that a userspace path manager looks after.
type lever struct {
	Endpoint uint8          `json:"endpoint,omitempty"` // its id; 0 for a single subflow
	Token    uint32         `json:"token,omitempty"`    // of the single subflow's connection
	Local    netip.AddrPort `json:"local"`              // port 0 for any
	Remote   netip.AddrPort `json:"remote"`             // of the single subflow
}

// seen is a subflow with its lever. The zero lever means that there is none: the subflow stays as it is.
type seen struct {
	telemetry.Subflow
	lever   lever
	held    bool // steer has made it a backup
	foreign bool // somebody else has made it a backup: it is not to choose from
}

// Verdict is what the objective says about one connection.
type Verdict struct {
	Token    telemetry.Token `json:"token"`
	Subflows []Member        `json:"subflows"`             // cheapest first
	O        []float64       `json:"objective"`            // O[k-1] is that of the first k subflows
	K        int             `json:"k"`                    // the k with the greatest objective
	Size     uint64          `json:"size_bytes,omitempty"` // of the transfer that the objective is for
	// Download tells that the connection mostly receives: all of its subflows are to be used, since a backup is one
	// for the peer, too. The objective counts only what sending costs, and says nothing then.
	Download bool `json:"download,omitempty"`
	// Unpriced is an interface without energy profile, because of which the connection is left alone.
	Unpriced string   `json:"unpriced,omitempty"`
	stuck    []Member // subflows that had better be backups, but have no lever
}

// Member is a subflow of a verdict.
type Member struct {
	Interface string     `json:"interface"`
	Local     netip.Addr `json:"local"`
	Remote    netip.Addr `json:"remote"`
	Rate      float64    `json:"rate_mbps"`        // expected
	Cost      float64    `json:"cost_mj_per_mbit"` // at that rate
	In        bool       `json:"in"`               // to be used; by hysteresis not always the first K
	lever     lever
}

// decider judges connections by what it sees of them over time.
type decider struct {
	objective   Objective
	learn       bool     // take the size of a transfer from connections that have ended
	ended       []uint64 // bytes that the last of these have sent
	connections map[telemetry.Token]*connection
}

type connection struct {
	flows   map[uint64]counted // by the subflow's identity
	judged  time.Time          // the last time
	pause   time.Duration      // until the next time: a round trip of the slowest subflow
	verdict *Verdict
	active  time.Time // when it was last seen to send, or to be a download
	sent    uint64    // bytes, by all subflows that it has had
	// Bytes lately received and sent; older ones count less.
	down, up float64
}

// judge takes all subflows of a namespace and returns the verdicts that stand, by token.
func (d *decider) judge(now time.Time, all []seen, tariffs map[uint32]tariff) []*Verdict {
	byToken := map[telemetry.Token][]seen{}
	for _, s := range all {
		if s.Token != 0 {
			byToken[s.Token] = append(byToken[s.Token], s)
		}
	}
	for token, c := range d.connections {
		if byToken[token] == nil {
			d.remember(c)
			delete(d.connections, token)
		}
	}
	var standing []*Verdict
	for token, subflows := range byToken {
		c := d.connections[token]
		if c == nil {
			c = &connection{flows: map[uint64]counted{}}
			d.connections[token] = c
		}
		if now.Sub(c.judged) >= c.pause {
			c.judge(d, now, subflows, tariffs)
		}
		if c.verdict != nil && now.Sub(c.active) > verdictLasts {
			c.verdict = nil
		}
		if c.verdict != nil {
			standing = append(standing, c.verdict)
		}
	}
	slices.SortFunc(standing, func(a, b *Verdict) int { return cmp.Compare(a.Token, b.Token) })
	return standing
}

// remember keeps what a connection has sent, if that was enough for a verdict.
func (d *decider) remember(c *connection) {
	if c.sent < measuredBytes {
		return
	}
	d.ended = append(d.ended, c.sent)
	d.ended = d.ended[max(0, len(d.ended)-remembered):]
}

// size returns the bytes that a connection may be expected to send in all, which has sent so many: the mean of those
// that have sent more. It is the mean since the objective is linear in the size.
func (d *decider) size(sent uint64) uint64 {
	configured := uint64(d.objective.Size * 1e6 / 8)
	if !d.learn {
		return configured
	}
	sum, n := uint64(0), uint64(0)
	for _, bytes := range d.ended {
		if bytes > sent {
			sum += bytes
			n++
		}
	}
	if n == 0 {
		return max(sent, configured)
	}
	return sum / n
}

// judge renews the verdict of a connection that sends, if all of its subflows can be judged, or that is a download.
func (c *connection) judge(d *decider, now time.Time, subflows []seen, tariffs map[uint32]tariff) {
	sent, received := c.observe(now, subflows)
	choosable := slices.DeleteFunc(slices.Clone(subflows), func(s seen) bool { return s.foreign })
	if len(choosable) < 2 {
		return // the kernel uses an only subflow, backup or not
	}
	verdict := &Verdict{Token: subflows[0].Token}
	all := func() {
		c.active, c.verdict = now, verdict
		for _, s := range choosable {
			verdict.Subflows = append(verdict.Subflows, member(s, Path{}, true))
		}
	}
	if c.down >= downloadBytes && c.down > c.up {
		verdict.Download = true
		if received > 0 {
			all()
		}
		return
	}
	if sent == 0 || sent < received {
		return
	}
	for _, s := range choosable {
		if s.SRTT == 0 || s.MSS == 0 || s.BytesAcked < measuredBytes || time.Duration(s.Age) < measuredRTTs*c.pause {
			return
		}
		if _, priced := tariffs[s.Ifindex]; !priced {
			verdict.Unpriced = s.Interface
		}
	}
	if verdict.Unpriced != "" {
		all()
		return
	}
	c.active, c.verdict = now, verdict
	verdict.Size = d.size(c.sent)
	o := Objective{d.objective.Lambda, float64(verdict.Size) * 8 / 1e6}
	verdict.choose(o, choosable, measured(choosable, tariffs))
}

// observe updates what is remembered of the subflows, and returns how many bytes they have sent and received since
// the last time.
func (c *connection) observe(now time.Time, subflows []seen) (sent, received uint64) {
	fade, first := faded(now.Sub(c.judged)), c.judged.IsZero()
	c.judged, c.pause = now, 0
	flows := map[uint64]counted{}
	for _, s := range subflows {
		sent += s.BytesSent - c.flows[s.ID].sent
		received += s.BytesReceived - c.flows[s.ID].received
		flows[s.ID] = counted{s.BytesSent, s.BytesReceived}
		c.pause = max(c.pause, time.Duration(s.SRTT))
	}
	c.flows = flows
	c.sent += sent
	if !first { // what it did before it was first seen may be long ago
		c.up, c.down = c.up*fade+float64(sent), c.down*fade+float64(received)
	}
	return sent, received
}

// faded returns how much what is so old still counts.
func faded(age time.Duration) float64 { return math.Exp2(-age.Seconds() / halfLife.Seconds()) }

// choose fills in the verdict on subflows that have these paths. The set changes only if that is worthwhile.
func (v *Verdict) choose(o Objective, choosable []seen, paths []Path) {
	choice := o.Choose(paths)
	v.O, v.K = choice.O, choice.K
	var then, current []Path
	for i, s := range choosable {
		if s.lever == (lever{}) || slices.Contains(choice.Best(), i) {
			then = append(then, paths[i])
		}
		if !s.held {
			current = append(current, paths[i])
		}
	}
	present := o.Of(current)
	change := worthwhile(present, o.Of(then))
	for at, i := range choice.Order {
		in := !choosable[i].held
		if change {
			in = at < choice.K
		}
		m := member(choosable[i], paths[i], in || choosable[i].lever == (lever{}))
		v.Subflows = append(v.Subflows, m)
		if m.lever == (lever{}) && at >= choice.K && worthwhile(present, choice.O[choice.K-1]) {
			v.stuck = append(v.stuck, m)
		}
	}
}

func member(s seen, p Path, in bool) Member {
	m := Member{Interface: s.Interface, Local: s.Local.Addr(), Remote: s.Remote.Addr(), Rate: p.Rate, In: in, lever: s.lever}
	if p.Rate > 0 {
		m.Cost = p.Cost()
	}
	return m
}

// measured returns the paths of subflows, with the rate that each may be expected to carry: its delivery rate or its
// window per RTT, whichever is larger.
func measured(subflows []seen, tariffs map[uint32]tariff) (all []Path) {
	for _, s := range subflows {
		t := tariffs[s.Ifindex]
		window := float64(s.Cwnd) * float64(s.MSS) / time.Duration(s.SRTT).Seconds() // bytes/s
		rate := max(float64(s.DeliveryRate), window) * 8 / 1e6
		all = append(all, Path{Rate: rate, Slope: t.slope, Base: t.base})
	}
	return all
}

// counted are the bytes of a subflow that are counted already.
type counted struct{ sent, received uint64 }

// wish is what the verdicts want of a lever: to set the flag or not.
type wish struct {
	backup  bool
	because *Verdict
	rule    string // in place of a verdict
	member  Member
}

// wishes brings the verdicts together. A lever may serve several connections: its flag is to be set only if
// none of them wants its subflow in use.
func wishes(verdicts []*Verdict) map[lever]wish {
	all := map[lever]wish{}
	for _, v := range verdicts {
		for _, m := range v.Subflows {
			if m.lever == (lever{}) {
				continue
			}
			if w, known := all[m.lever]; !known || w.backup && m.In {
				all[m.lever] = wish{backup: !m.In, because: v, member: m}
			}
		}
	}
	return all
}
