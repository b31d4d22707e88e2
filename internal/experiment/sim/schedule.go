// SPDX-License-Identifier: Apache-2.0

package sim

import (
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
	c.stream.Resend = c.resend
}

// addLane tells the scheduler of a subflow that is established.
func (c *connection) addLane(k *socket) {
	if c.stream == nil {
		return
	}
	k.lane = &control.Lane{State: &k.state, LeastRTO: uint32(toJiffies(leastRTO)), Active: k.usable}
	c.stream.Add(k.lane)
}

// show brings what the scheduler sees of the connection up to date.
func (c *connection) show() {
	st := c.stream
	st.Una, st.Nxt, st.Next, st.Written, st.WndEnd = c.una, c.sentTo, c.next, c.written, c.edge
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
	c.next = c.una
	c.burst = 0
	return true
}
