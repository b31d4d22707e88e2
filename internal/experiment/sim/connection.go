// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"slices"

	"github.com/mpcc/mpcc/internal/experiment/sim/control"
)

// connection is one stream of bytes, over one socket or over the subflows of MPTCP. Rules of MPTCP are those of
// net/mptcp/protocol.c in Linux 6.12.
type connection struct {
	sim       *Simulation
	user      *User
	multipath bool
	sockets   []*socket // the first is the one that opened the connection
	group     *control.Connection
	scheduler *control.Scheduler // nil: the kernel's own
	stream    *control.Stream
	joined    bool
	closed    bool

	// The sender's side.
	total   uint64 // bytes to be sent; math.MaxUint64: no end
	given   uint64 // that the application has had the chance to write
	written uint64 // that it has written, of a connection with subflows
	full    bool   // it waits for room
	next    uint64 // the first that no socket has got
	una     uint64 // the first that is not acknowledged
	edge    uint64 // the first behind the receiver's window
	burst   int    // bytes that the chosen subflow may still get: snd_burst
	sentTo  uint64 // the first that no socket ever got: before it next only comes where data are sent again
	repeats []span // what lies before sentTo and is to be sent again, from next on; nil: all of it
	timer   int32  // -1: it has none yet
	again   uint64 // bytes that were given to another subflow too

	// The receiver's side.
	expected   uint64
	late       []span
	lateBytes  int    // that wait for earlier ones, here and at sockets
	open       uint64 // the first byte behind the window, as it was told
	window     int    // of an empty buffer, in bytes of content
	fixed      bool   // the buffer's size was asked for
	space      int    // bytes that came within an RTT, at most so far
	copied     uint64 // expected when the present RTT began
	since      int64
	outOfOrder uint64 // packets that waited here
	drained    bool   // the application has read all that there is
}

// span is a range of bytes, from low to below high.
type span struct{ low, high uint64 }

const (
	leastBuffer = 4096                     // the first value of net.ipv4.tcp_wmem
	firstWindow = 64240                    // what the second value of net.ipv4.tcp_rmem leaves for whole segments
	mostReceive = 6 << 20                  // and the third, with what packets take beside it
	largePiece  = 32 << 10                 // bytes in which MPTCP keeps what is written, and hands it to subflows
	burstSize   = 1<<16 - 20 - 40 - 40 - 8 // MPTCP_SEND_BURST_SIZE
	firstSpace  = initialWindow * mssTCP
)

func (s *Simulation) connect(u *User, total uint64) *connection {
	c := &connection{
		sim: s, user: u, multipath: u.multipath, total: total, given: total, timer: -1,
		window: firstWindow, space: firstSpace, since: s.now,
	}
	if c.multipath {
		if c.scheduler = s.controls.schedulers[u.Class.Scheduler]; c.scheduler != nil {
			c.follow(c.scheduler)
		}
	}
	if u.gated {
		c.given = 0
	}
	if size := int(u.Class.ReceiveBuffer); size > 0 {
		c.window, c.fixed = contentOf(2*size), true // setsockopt doubles what it is given
	}
	c.open = uint64(min(c.window, firstWindow))
	c.edge = c.open
	return c
}

// contentOf returns how much content fits into receive buffers of a size.
func contentOf(size int) int { return size / (mssTCP + overhead) * mssTCP }

// supply gives a TCP socket a segment to send, if there is content; subflows are pushed theirs. A segment need not be
// full: programs switch off that it waits for more (TCP_NODELAY).
func (c *connection) supply(k *socket) bool {
	left := min(c.total, c.given) - c.next
	if c.multipath || left == 0 {
		return false
	}
	limit := mostBuffer
	if k.locked {
		limit = k.buffer
	}
	if k.memory >= limit {
		return false
	}
	size := min(left, uint64(k.MSS))
	k.afterIdle()
	k.add(c.next, int(size))
	c.next += size
	return true
}

// fits says whether the receiver's window has room for a segment. What MPTCP maps to subflows is within it already.
func (c *connection) fits(g *segment) bool { return c.multipath || g.data+uint64(g.size) <= c.edge }

// noSpace says whether the application waits for room in the socket's buffer: SOCK_NOSPACE.
func (c *connection) noSpace() bool { return !c.multipath && c.next < min(c.total, c.given) }

// offer is __mptcp_subflow_push_pending: it hands what is written to subflows.
func (c *connection) offer() {
	if !c.multipath || c.closed {
		return
	}
	c.write()
	if c.stream != nil {
		c.offerByScheduler()
		return
	}
	last := (*socket)(nil)
	for c.next < c.limit() {
		k := c.pick()
		if last != nil && k != last {
			last.pushMarked()
		}
		if last = k; k == nil {
			return
		}
		c.hand(k)
		if !c.timed() {
			c.setTimer()
		}
	}
	if last != nil {
		last.pushMarked()
	}
}

// pushMarked is tcp_push: what was queued last has the flag PSH.
func (k *socket) pushMarked() {
	if k.end != k.next {
		k.segment(k.end - 1).flags |= pushed
	}
	k.push(false)
}

// hand is __subflow_push_pending: it hands a subflow what it may get now. It returns false if that was nothing.
func (c *connection) hand(k *socket) bool {
	k.afterIdle()
	before := c.next
	for c.next < c.limit() {
		n := min(c.limit(), c.pieceEnd(c.next)) - c.next
		c.give(k, c.next, int(n))
		if c.next < c.sentTo {
			c.again += min(n, c.sentTo-c.next)
		}
		c.next += n
		c.sentTo = max(c.sentTo, c.next)
		c.skip()
		if c.burst -= int(n); c.burst <= 0 || k.memory >= k.buffer {
			break
		}
		if c.stream != nil {
			c.stream.Timeout = uint64(c.timeoutOfSubflows())
		}
	}
	return c.next > before
}

// pieceEnd returns where the piece with a byte ends.
func (c *connection) pieceEnd(at uint64) uint64 { return (at/c.sim.piece + 1) * c.sim.piece }

// timed says whether the connection's timer runs.
func (c *connection) timed() bool { return c.timer >= 0 && c.sim.isSet(c.timer) }

// write is what the application does: it writes until the connection's buffer is full, and goes on when a third of
// it is free (sk_stream_is_writeable). The buffer is the subflows' together (__mptcp_sync_sndbuf).
func (c *connection) write() {
	buffer := c.sendBuffer()
	if c.full && 3*(c.written-c.una) > 2*buffer {
		return
	}
	have := min(c.total, c.given)
	for c.written < have && c.written-c.una < buffer {
		c.written = min(have, c.pieceEnd(c.written))
	}
	c.full = c.written < have
}

func (c *connection) sendBuffer() uint64 {
	if size := uint64(c.user.Class.SendBuffer); size > 0 {
		return 2 * size
	}
	buffer := uint64(leastBuffer)
	for _, k := range c.sockets {
		buffer += uint64(k.buffer)
	}
	if c.stream != nil {
		buffer = max(buffer, min(c.stream.Needed, uint64(len(c.sockets))*mostBuffer))
	}
	return buffer
}

// limit returns the byte up to which subflows may get data: what is written, and what the receiver has room for.
func (c *connection) limit() uint64 { return min(c.written, c.edge) }

// give maps data to a subflow: mptcp_sendmsg_frag. What follows the subflow's last segment fills that up.
func (c *connection) give(k *socket, at uint64, n int) {
	if k.end != k.next {
		if g := k.segment(k.end - 1); g.data+uint64(g.size) == at && uint32(g.size) < k.MSS {
			more := min(n, int(k.MSS)-int(g.size))
			g.size += uint16(more)
			g.flags &^= pushed
			k.seq += uint32(more)
			k.WriteSeq = k.seq
			k.memory += more
			at, n = at+uint64(more), n-more
		}
	}
	for n > 0 {
		size := min(n, int(k.MSS))
		k.add(at, size)
		at, n = at+uint64(size), n-size
	}
}

// usable says whether a subflow may carry data: mptcp_subflow_active. One that was stale is not when something has come.
func (k *socket) usable() bool {
	if k.Stale && k.staleStamp != k.lastReceived {
		k.Stale = false
	}
	return k.established && !k.closed && !k.Stale
}

// pick is mptcp_subflow_get_send: the subflow whose queue takes the least time at its pacing rate, a backup only if
// there is no other.
func (c *connection) pick() *socket {
	best, backup := (*socket)(nil), (*socket)(nil)
	least, leastBackup := uint64(math.MaxUint64), uint64(math.MaxUint64)
	active := false
	for _, k := range c.sockets {
		if !k.usable() {
			continue
		}
		active = active || !k.Backup
		if k.pace == 0 {
			if k.pace = k.PacingRate; k.pace == 0 {
				continue
			}
		}
		linger := uint64(k.memory) << 32 / k.pace
		switch {
		case !k.Backup && linger < least:
			best, least = k, linger
		case k.Backup && linger < leastBackup:
			backup, leastBackup = k, linger
		}
	}
	if !active {
		best = backup
	}
	if best == nil || best.memory >= best.buffer {
		return nil
	}
	burst := min(burstSize, int(c.edge-c.next))
	best.pace = (best.pace*uint64(best.memory) + best.PacingRate*uint64(burst)) / uint64(burst+best.memory)
	c.burst = burst
	return best
}

// dataAcked is ack_update_msk, at the sender.
func (c *connection) dataAcked(p *packet) {
	c.edge = max(c.edge, p.edge)
	if p.dataAck <= c.una {
		return
	}
	c.una = p.dataAck
	c.next = max(c.next, c.una)
	c.skip()
	if c.una == c.total && c.user.up {
		c.user.complete()
		return
	}
	if c.timer >= 0 {
		if c.una < c.sentTo || c.stream != nil && c.next < c.written {
			c.setTimer()
		} else {
			c.sim.stop(c.timer)
		}
	}
}

// setTimer is mptcp_reset_rtx_timer: as long as the longest of the subflows' timers still takes.
func (c *connection) setTimer() {
	if c.timer < 0 {
		c.timer = c.sim.timer(reinjecting, c.sockets[0].number)
	}
	wait := int64(0)
	if c.stream != nil {
		wait = int64(c.stream.Timeout)
	} else {
		wait = c.timeoutOfSubflows()
	}
	c.sim.set(c.timer, c.sim.expiry(c.sim.jiffies()+wait))
}

// timeoutOfSubflows is mptcp_set_timeout, in jiffies.
func (c *connection) timeoutOfSubflows() (wait int64) {
	for _, k := range c.sockets {
		if k.usable() && k.pending != pendingNothing && k.staleCount == 0 {
			wait = max(wait, k.deadline-c.sim.jiffies())
		}
	}
	if wait <= 0 {
		wait = toJiffies(leastRTO)
	}
	return wait
}

// mostStale is net.mptcp.stale_loss_cnt.
const mostStale = 4

// timeout is __mptcp_retrans: data that were not acknowledged for long go to a subflow that has nothing to do.
func (c *connection) timeout() {
	switch {
	case c.closed:
		return
	case c.stream != nil:
		c.retransmitByScheduler()
		return
	case c.una >= c.sentTo:
		return
	}
	if k := c.pickAgain(); k != nil {
		high := min(c.sentTo, c.pieceEnd(c.una))
		k.afterIdle()
		c.give(k, c.una, int(high-c.una))
		c.again += high - c.una
		k.push(false)
	}
	if !c.closed && !c.timed() {
		c.setTimer()
	}
}

// pickAgain is mptcp_subflow_get_retrans, and mptcp_pm_subflow_chk_stale for subflows that make no progress.
func (c *connection) pickAgain() *socket {
	pick, backup := (*socket)(nil), (*socket)(nil)
	least := 255
	for _, k := range c.sockets {
		if !k.usable() {
			continue
		}
		if k.una != k.end {
			c.checkStale(k)
			least = min(least, int(k.staleCount))
			continue
		}
		if k.Backup {
			if backup == nil {
				backup = k
			}
		} else if pick == nil {
			pick = k
		}
	}
	if pick == nil && least > 1 {
		return backup
	}
	return pick
}

func (c *connection) checkStale(k *socket) {
	switch {
	case k.staleCount == 0:
		k.staleStamp = k.lastReceived
		k.staleCount = 1
	case k.staleStamp == k.lastReceived:
		if k.staleCount < 255 {
			k.staleCount++
		}
		if k.staleCount > mostStale && slices.ContainsFunc(c.sockets, func(other *socket) bool {
			return other != k && other.usable() && other.staleCount < mostStale
		}) {
			k.Stale = true
			c.resend()
			c.offer()
		}
	default:
		k.staleCount = 0
	}
}

// take takes data of a socket, in the socket's order, at the receiver: __mptcp_move_skb.
func (c *connection) take(at uint64, size int) {
	end := at + uint64(size)
	switch {
	case at > c.expected:
		c.outOfOrder++
		c.takeLate(span{at, end})
		return
	case end <= c.expected:
		return // it has come by another subflow
	}
	before := c.expected
	c.expected = end
	for len(c.late) > 0 && c.late[0].low <= c.expected {
		c.lateBytes -= int(c.late[0].high - c.late[0].low)
		c.expected = max(c.expected, c.late[0].high)
		c.late = c.late[:copy(c.late, c.late[1:])]
	}
	c.user.bytes += c.expected - before
	c.adjust()
	if c.multipath {
		c.tellWindow()
	}
	c.drained = c.lateBytes == 0
	if c.expected == c.total && !c.user.up {
		c.user.complete()
	}
}

// tellWindow has the subflows tell the sender when the window has become twice what they told last, wherever the data
// came that made room: mptcp_cleanup_rbuf and tcp_cleanup_rbuf.
func (c *connection) tellWindow() {
	for _, k := range c.sockets {
		if k.toldWindow > 0 && 2*k.toldWindow <= c.window && c.room(k) >= 2*k.toldWindow && !k.closed {
			k.sendAck()
		}
	}
}

func (c *connection) takeLate(s span) {
	i := len(c.late)
	for i > 0 && c.late[i-1].low > s.low {
		i--
	}
	before := i > 0 && c.late[i-1].high >= s.low
	switch {
	case before && c.late[i-1].high >= s.high:
		return
	case before:
		c.lateBytes += int(s.high - c.late[i-1].high)
		c.late[i-1].high = s.high
		i--
	default:
		c.lateBytes += int(s.high - s.low)
		c.late = slices.Insert(c.late, i, s)
	}
	for i+1 < len(c.late) && c.late[i+1].low <= c.late[i].high {
		next := c.late[i+1]
		c.lateBytes -= int(min(next.high, c.late[i].high) - next.low)
		c.late[i].high = max(c.late[i].high, next.high)
		c.late = slices.Delete(c.late, i+1, i+2)
	}
}

// adjust is tcp_rcv_space_adjust, and mptcp_rcv_space_adjust: a window of more than twice what comes in an RTT.
func (c *connection) adjust() {
	rtt := uint32(0)
	for _, k := range c.sockets {
		rtt = max(rtt, k.SrttUs>>3)
	}
	if c.sim.now-c.since < int64(rtt)*1000 || rtt == 0 {
		return
	}
	copied := int(c.expected - c.copied)
	if copied > c.space {
		if !c.fixed {
			window := 2*copied + 16*mssTCP
			window += 2 * (window * (copied - c.space) / c.space)
			c.window = max(c.window, min(window, contentOf(mostReceive)))
		}
		c.space = copied
	}
	c.copied, c.since = c.expected, c.sim.now
}

// openWindow returns the first byte behind the receiver's window, as a socket tells it (__tcp_select_window). It is
// never drawn back.
func (c *connection) openWindow(k *socket) uint64 {
	k.toldWindow = c.room(k)
	c.open = max(c.open, c.expected+uint64(k.toldWindow))
	return c.open
}

// room returns for how much more a socket may tell that there is room.
func (c *connection) room(k *socket) int { return max(0, min(c.window-c.lateBytes, k.window)) }

// close ends the connection: what is under way is thrown away when it comes.
func (c *connection) close() {
	c.closed = true
	if c.timer >= 0 {
		c.sim.stop(c.timer)
	}
	if c.stream != nil {
		c.stream.Release()
	}
	for _, k := range c.sockets {
		k.close()
	}
}
