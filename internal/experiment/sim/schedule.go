// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"slices"

	"github.com/mpcc/mpcc/internal/experiment/sim/control"
)

// A packet scheduler of mpcc takes the place of mptcp_subflow_get_send and mptcp_subflow_get_retrans. The functions here
// do with its choice what __mptcp_push_pending, __mptcp_retrans and the module in bpf/kmod do.

// smallPiece is what is left of a page of memory beside a struct mptcp_data_frag: a run with packet schedulers has MPTCP
// hand data over in such pieces.
const smallPiece = 4096 - 40

// follow has a packet scheduler choose for the connection.
func (c *connection) follow(s *control.Scheduler) {
	c.sim.tokens++
	c.stream = s.Stream(c.sim.tokens)
	c.stream.Timeout = uint64(toJiffies(leastRTO))
	c.stream.Resend, c.stream.ResendOf = c.resend, c.resendOf
}

// addLane tells the scheduler of a subflow that is established.
func (c *connection) addLane(k *socket) {
	if c.stream == nil {
		return
	}
	k.lane = &control.Lane{State: &k.state, LeastRTO: uint32(toJiffies(leastRTO)), Active: k.usable, Carries: k.carries}
	c.stream.Add(k.lane)
}

// show brings what the scheduler sees of the connection up to date.
func (c *connection) show() {
	st := c.stream
	st.Una, st.Nxt, st.Next, st.Written, st.WndEnd = c.una, c.sentTo, c.next, c.written, c.edge
	st.Piece = uint16(min(c.written, c.pieceEnd(c.next)) - c.next)
	st.Burst = int32(c.burst)
	st.Queued, st.Buffer = int32(c.written-c.una), int32(c.sendBuffer())
	for _, k := range c.sockets {
		if l := k.lane; l != nil {
			l.Queued, l.Buffer, l.StaleCount = int32(k.memory), int32(k.buffer), k.staleCount
			l.Timer = 0
			if k.pending != pendingNothing {
				l.Timer = uint64(max(1, k.deadline))
			}
		}
	}
}

// carries says whether the subflow has a byte of the connection that was not acknowledged to it: mptcp_xsched_carries.
func (k *socket) carries(at uint64) bool {
	for n := k.una; n != k.end; n++ {
		if g := k.segment(n); g.data <= at && at < g.data+uint64(g.size) {
			return true
		}
	}
	return false
}

// scheduled is a subflow that the scheduler has chosen and that has not sent since.
func (k *socket) scheduled() bool { return k.lane != nil && k.lane.Scheduled }

// choose asks the scheduler where new data go, unless its last choice was not used yet: mptcp_sched_get_send.
func (c *connection) choose() bool {
	if slices.ContainsFunc(c.sockets, (*socket).scheduled) {
		return true
	}
	c.show()
	ok := c.stream.Send()
	c.sim.controls.fail(c.scheduler.Err())
	c.burst = int(c.stream.Burst)
	return ok
}

// offerByScheduler is __mptcp_push_pending.
func (c *connection) offerByScheduler() {
	sent := false
	for pushed := true; pushed && c.next < c.written && c.choose(); {
		pushed = false
		for _, k := range c.sockets {
			if !k.scheduled() {
				continue
			}
			k.lane.Scheduled = false
			if c.hand(k) {
				pushed = true
				k.pushMarked()
			}
			if c.closed {
				return
			}
		}
		sent = sent || pushed
	}
	if sent && !c.timed() {
		c.setTimer()
	}
}

// retransmitByScheduler is __mptcp_retrans.
func (c *connection) retransmitByScheduler() {
	c.show()
	ok, early := c.stream.Retransmit()
	c.sim.controls.fail(c.scheduler.Err())
	if !early {
		c.pickAgain() // for the timeouts that it counts
	}
	switch {
	case c.closed:
		return
	case c.una < c.sentTo:
		for _, k := range c.sockets {
			if ok && k.scheduled() {
				c.giveAgain(k)
			}
		}
	case c.next >= c.written:
		return
	}
	c.offer()
	if !c.closed && !c.timed() {
		c.setTimer()
	}
}

// giveAgain gives a subflow the oldest piece of what is not acknowledged, as far as it was sent.
func (c *connection) giveAgain(k *socket) {
	k.lane.Scheduled = false
	if high := min(c.next, c.pieceEnd(c.una)); high > c.una {
		k.afterIdle()
		c.give(k, c.una, int(high-c.una))
		c.again += high - c.una
		k.push(false)
	}
}

// resend is __mptcp_retransmit_pending_data: all that is not acknowledged is handed out again.
func (c *connection) resend() bool {
	if c.una >= c.sentTo {
		return false
	}
	c.next, c.repeats = c.una, nil
	c.burst = 0
	return true
}

// resendOf is mptcp_xsched_resend_of: the pieces that one subflow has something of are handed out again.
func (c *connection) resendOf(l *control.Lane) bool {
	k := c.sockets[slices.IndexFunc(c.sockets, func(k *socket) bool { return k.lane == l })]
	var repeats []span
	for n := k.una; n != k.end; n++ {
		g := k.segment(n)
		for at := max(g.data, c.una); at < min(g.data+uint64(g.size), c.sentTo); at = c.pieceEnd(at) {
			repeats = append(repeats, span{max(c.una, c.pieceEnd(at)-c.sim.piece), min(c.pieceEnd(at), c.sentTo)})
		}
	}
	slices.SortFunc(repeats, func(a, b span) int { return cmp.Compare(a.low, b.low) })
	if c.repeats = slices.Compact(repeats); len(c.repeats) == 0 {
		return false
	}
	c.next = c.una
	c.burst = 0
	c.skip()
	return true
}

// skip goes on to what is to be sent next, beyond what is not to be sent again.
func (c *connection) skip() {
	for len(c.repeats) > 0 {
		r := c.repeats[0]
		if c.next = max(c.next, r.low); c.next < r.high {
			return
		}
		if c.repeats = c.repeats[1:]; len(c.repeats) == 0 {
			c.next = max(c.next, c.sentTo)
		}
	}
}
