// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"

	"github.com/mpcc/mpcc/internal/experiment/sim/control"
)

// socket is both ends of a TCP connection, or of a subflow. Data go one way: what the user asks for, where the other
// side sends, is one packet. All segments are whole packets, as in the lab, where TCP hands over single frames; they
// are numbered from 0. Names and rules are those of Linux 6.12, where not otherwise said of net/ipv4/tcp_input.c and
// tcp_output.c.
type socket struct {
	state // as congestion controls see it
	sim   *Simulation
	conn  *connection
	cc    callbacks
	of    *Subflow
	lane  *control.Lane // what a packet scheduler sees of it
	number,
	flying int // packets under way that concern it
	closed                           bool
	there, back                      int32 // the paths of data and of ACKs
	lateness                         int64 // the most that the host takes to send a packet, ns
	transmit, ackTimer, compressTime int32 // timers
	openTimer                        int32

	opening // the handshake
	notification
	sender
	receiver
}

// sender is the end that sends.
type sender struct {
	segments       []segment // a ring, of those from una on
	una            uint32    // the first that is not acknowledged
	next           uint32    // the first that was not sent yet
	end            uint32    // behind the last that there is
	highSeq        uint32    // next when the present state of congestion began
	fack           uint32    // behind the highest that is SACKed
	hint           uint32    // no segment before it waits for being sent again
	oldest, newest uint32    // of those under way, by when they were sent last; none

	seq       uint32 // bytes up to end
	memory    int    // that queued segments take: sk_wmem_queued
	buffer    int    // sk_sndbuf
	locked    bool   // the buffer's size was asked for
	host      int    // bytes in the host's own queue
	throttled bool   // it waits for room there

	mdevMax     uint32
	rttSeq      uint32 // segment
	rto         int64  // jiffies
	backoff     uint8
	retransmits uint32 // timeouts in a row
	delivered   uint32
	lostSum     uint32

	prrDelivered, prrOut uint32
	undoMarker           uint32 // segment; none
	undoRetrans          int32
	retransStamp         int64 // ms
	frto                 bool
	dsackDups            uint32
	echo                 int64 // the timestamp that the last ACK has brought, ms

	pending    pending
	deadline   int64 // of the timer, jiffies
	due        int64 // when it goes off for that, ns
	tlpHigh    uint32
	tlpRetrans bool

	rack       rack
	reordering uint32
	reordSeen  bool

	minRTT        minFilter
	cwndUsageSeq  uint32
	cwndStamp     int64 // jiffies
	cwndUsed      uint32
	lastSend      int64  // jiffies
	firstTx       int64  // µs, of the rate sample
	deliveredTime int64  // µs
	pace          uint64 // avg_pacing_rate of a subflow
	staleCount    uint8
	staleStamp    int64
	lastReceived  int64
	peerWindow    uint64 // that the receiver has told last
}

// none is no segment.
const none = ^uint32(0)

// segment is a packet's content, from when it is queued until it is acknowledged.
type segment struct {
	sent         int64 // µs, the last time
	firstTx      int64 // µs, of the rate sample
	deliveredAt  int64
	data         uint64 // the first byte, as the connection counts
	seq          uint32 // and as the socket does
	delivered    uint32
	older, newer uint32
	skip         uint32 // of one that is SACKed: a segment up to which all are
	size         uint16
	flags        uint8
}

// Flags of segments, as TCPCB_SACKED_ACKED and so on.
const (
	sacked = 1 << iota
	lost
	again    // it was sent again, and that is under way
	everSent // it was sent again at some time
	listed
	pushed // it has TCP's flag PSH
)

func (k *socket) segment(n uint32) *segment { return &k.segments[n&uint32(len(k.segments)-1)] }

// What a segment takes of the sender's and of the receiver's memory beside its content: struct sk_buff, the room for
// headers and what ends it. The first is as tcp_sndbuf_expand counts it.
const (
	bufferPerPacket = 4352
	overhead        = 960
)

// The sizes of headers on the wire, with timestamps.
const (
	headers       = 14 + 20 + 20 + 12
	dssData       = 28 // MPTCP's option with an acknowledgement and a mapping of 64 bits
	dssUnheard    = 4  // bytes less that it has of an acknowledgement while the peer has sent no data
	dssAck        = 12
	sackBase      = 4
	sackBlock     = 8
	tcpSynOptions = 20
	mssTCP        = 1500 - 20 - 20 - 12
)

// mostGSO is sk_gso_max_size; single frames are gso_max_segs.
const mostGSO = 65536 - 320 - 1

// SubflowMSS is how many bytes of content a segment of a subflow has, where the side that opens the connection receives.
const SubflowMSS = mssTCP - dssData

// jiffy is the kernel's tick, at Debian's 250 a second.
const jiffy = 4_000_000

func (s *Simulation) jiffies() int64 { return s.now / jiffy }

// expiry returns when a timer of the kernel's goes off that is set for a jiffy: one later, so that it is never early,
// and, if it is far ahead, with the others of the same 8, 64, … jiffies (calc_wheel_index).
func (s *Simulation) expiry(jiffies int64) int64 {
	const levelStart, levelBits = 63, 3
	shift := 0
	for ahead := jiffies - s.jiffies(); ahead >= levelStart<<shift; shift += levelBits {
	}
	return (jiffies>>shift + 1) << shift * jiffy
}

// toJiffies is usecs_to_jiffies.
func toJiffies(us int64) int64 { return (us*1000 + jiffy - 1) / jiffy }

// ms is the clock of timestamps.
func (s *Simulation) ms() int64 { return s.now / 1_000_000 }

// add queues a segment.
func (k *socket) add(data uint64, size int) {
	if k.end-k.una == uint32(len(k.segments)) {
		k.growRing()
	}
	*k.segment(k.end) = segment{data: data, seq: k.seq, size: uint16(size)}
	k.end++
	k.seq += uint32(size)
	k.WriteSeq = k.seq
	k.memory += size + overhead
}

func (k *socket) growRing() {
	bigger := make([]segment, max(32, 2*len(k.segments)))
	for n := k.una; n != k.end; n++ {
		bigger[n&uint32(len(bigger)-1)] = *k.segment(n)
	}
	k.segments = bigger
}

// unlist takes a segment off the list of those under way, tcp_tsorted_anchor.
func (k *socket) unlist(n uint32, g *segment) {
	if g.flags&listed == 0 {
		return
	}
	g.flags &^= listed
	if g.older != none {
		k.segment(g.older).newer = g.newer
	} else {
		k.oldest = g.newer
	}
	if g.newer != none {
		k.segment(g.newer).older = g.older
	} else {
		k.newest = g.older
	}
}

// enlist puts a segment at the list's end: it was sent last.
func (k *socket) enlist(n uint32, g *segment) {
	k.unlist(n, g)
	g.flags |= listed
	g.older, g.newer = k.newest, none
	if k.newest != none {
		k.segment(k.newest).newer = n
	} else {
		k.oldest = n
	}
	k.newest = n
}

// sendSegment is tcp_transmit_skb.
func (k *socket) sendSegment(n uint32, g *segment) {
	s := k.sim
	now := s.micros()
	if k.PacketsOut == 0 { // tcp_rate_skb_sent
		k.firstTx, k.deliveredTime = now, now
	}
	if inFlight(&k.state) == 0 {
		k.cc.CwndEvent(eventTxStart)
	}
	k.lastSend = s.jiffies()
	g.sent, g.firstTx, g.deliveredAt, g.delivered = now, k.firstTx, k.deliveredTime, k.delivered
	k.enlist(n, g)
	k.BytesSent += uint64(g.size)
	size := headers + int(g.size)
	if k.conn.multipath {
		size += mssTCP - int(k.MSS)
	}
	k.flying++
	if k.of.holds {
		k.host += size + overhead
	}
	number, p := s.newPacket(k.there)
	p.socket, p.kind, p.size, p.segment, p.stamp = int32(k.number), data, uint16(size), n, s.ms()
	k.markData(p, n == k.next)
	s.sendLate(number, s.late(k.lateness))
}

// push is tcp_write_xmit: it sends what the windows allow. With probe it sends one segment whatever cwnd says.
func (k *socket) push(probe bool) (sent bool) {
	if k.closed || !k.established {
		return false
	}
	for {
		if k.next == k.end && !k.conn.supply(k) {
			break
		}
		if inFlight(&k.state) >= k.Cwnd && !probe {
			break
		}
		g := k.segment(k.next)
		if !k.conn.fits(g) || k.tooMuchInHost(false) {
			break
		}
		k.sendSegment(k.next, g)
		// tcp_event_new_data_sent
		k.next++
		k.SndNxt = g.seq + uint32(g.size)
		prior := k.PacketsOut
		k.PacketsOut++
		if prior == 0 || k.pending == pendingProbe {
			k.rearm()
		}
		sent = true
		if inCwndReduction(k.CAState) {
			k.prrOut++
		}
		if probe {
			break
		}
	}
	limited := inFlight(&k.state) >= k.Cwnd
	if sent || limited {
		k.validate(limited)
	}
	if sent && !probe {
		k.scheduleProbe(false)
	}
	return sent
}

// tooMuchInHost is tcp_small_queue_check, where the host's own queue has the packets of its sockets on their account.
func (k *socket) tooMuchInHost(retransmit bool) bool {
	if !k.of.holds {
		return false
	}
	limit := max(2*(int(k.MSS)+overhead), int(k.PacingRate>>10))
	if retransmit {
		limit <<= 1
	}
	if k.host <= limit {
		return false
	}
	k.throttled = true
	return true
}

// leftHost is what happens when a packet has left the host's queue (tcp_tsq_handler).
func (k *socket) leftHost(size int) {
	k.host -= size + overhead
	if !k.throttled || k.closed {
		return
	}
	k.throttled = false
	if k.LostOut > k.RetransOut && k.Cwnd > inFlight(&k.state) {
		k.retransmitLost()
	}
	k.push(false)
}

// validate is tcp_cwnd_validate.
func (k *socket) validate(limited bool) {
	if k.una >= k.cwndUsageSeq || limited || !k.CwndLimited && k.PacketsOut > k.MaxPacketsOut {
		k.CwndLimited, k.MaxPacketsOut, k.cwndUsageSeq = limited, k.PacketsOut, k.next
	}
	if cwndLimited(&k.state) {
		k.cwndUsed, k.cwndStamp = 0, k.sim.jiffies()
		return
	}
	k.cwndUsed = max(k.cwndUsed, k.PacketsOut)
	if k.sim.jiffies()-k.cwndStamp >= k.rto {
		k.applicationLimited()
	}
}

// applicationLimited is tcp_cwnd_application_limited.
func (k *socket) applicationLimited() {
	if k.CAState == caOpen && !k.conn.noSpace() {
		used := max(k.cwndUsed, initialWindow)
		if used < k.Cwnd {
			k.Ssthresh = k.currentSsthresh()
			k.Cwnd = (k.Cwnd + used) >> 1
		}
		k.cwndUsed = 0
	}
	k.cwndStamp = k.sim.jiffies()
}

// afterIdle is tcp_slow_start_after_idle_check, when data are queued.
func (k *socket) afterIdle() {
	if k.PacketsOut > 0 || k.sim.jiffies()-k.lastSend <= k.rto {
		return
	}
	// tcp_cwnd_restart
	delta := k.sim.jiffies() - k.lastSend
	k.cc.CwndEvent(eventCwndRestart)
	k.Ssthresh = k.currentSsthresh()
	cwnd := k.Cwnd
	restart := min(initialWindow, cwnd)
	for delta -= k.rto; delta > 0 && cwnd > restart; delta -= k.rto {
		cwnd >>= 1
	}
	k.Cwnd = max(cwnd, restart)
	k.cwndStamp, k.cwndUsed = k.sim.jiffies(), 0
}

// currentSsthresh is tcp_current_ssthresh.
func (k *socket) currentSsthresh() uint32 {
	if inCwndReduction(k.CAState) {
		return k.Ssthresh
	}
	return max(k.Ssthresh, k.Cwnd>>1+k.Cwnd>>2)
}

// retransmit is tcp_retransmit_skb.
func (k *socket) retransmit(n uint32) {
	g := k.segment(n)
	k.sendSegment(n, g)
	k.TotalRetrans++
	k.BytesRetrans += uint64(g.size)
	if g.flags&again == 0 {
		k.RetransOut++
	}
	g.flags |= again | everSent
	if k.retransStamp == 0 {
		k.retransStamp = k.sim.ms()
	}
	k.undoRetrans = max(k.undoRetrans, 0) + 1
}

// retransmitLost is tcp_xmit_retransmit_queue.
func (k *socket) retransmitLost() {
	if k.PacketsOut == 0 {
		return
	}
	rearm := false
	for n := max(k.hint, k.una); n != k.next; n++ {
		k.hint = n
		if inFlight(&k.state) >= k.Cwnd || k.RetransOut >= k.LostOut {
			break
		}
		g := k.segment(n)
		if g.flags&lost == 0 || g.flags&(sacked|again) != 0 {
			continue
		}
		if k.tooMuchInHost(true) {
			break
		}
		k.retransmit(n)
		if inCwndReduction(k.CAState) {
			k.prrOut++
		}
		rearm = rearm || n == k.una && k.pending != pendingReorder
	}
	if rearm {
		k.setTimer(pendingRetransmit, k.rto)
	}
}

// updatePacing is tcp_update_pacing_rate. Nothing is paced: the rate is what schedulers go by.
func (k *socket) updatePacing() {
	rate := uint64(k.MSS) * (1e6 / 100 << 3)
	if k.Cwnd < k.Ssthresh/2 {
		rate *= 200
	} else {
		rate *= 120
	}
	rate *= uint64(max(k.Cwnd, k.PacketsOut))
	if k.SrttUs > 0 {
		rate /= uint64(k.SrttUs)
	}
	k.PacingRate = rate
}

// expand is tcp_new_space: the buffer follows the window, where its size was not asked for.
func (k *socket) expand() {
	if k.locked || inFlight(&k.state) >= k.Cwnd {
		return
	}
	k.grow()
}

// mostBuffer is the last value of net.ipv4.tcp_wmem.
const mostBuffer = 4 << 20

// grow is tcp_sndbuf_expand.
func (k *socket) grow() {
	k.buffer = max(k.buffer, min(mostBuffer, 2*bufferPerPacket*int(max(initialWindow, k.Cwnd, k.reordering+1))))
}

// check returns an error if the socket's counts do not fit its segments.
func (k *socket) check() error {
	if k.closed {
		return nil
	}
	var sackedOut, lostOut, retransOut uint32
	for n := k.una; n != k.next; n++ {
		f := k.segment(n).flags
		if f&sacked != 0 {
			sackedOut++
		}
		if f&lost != 0 {
			lostOut++
		}
		if f&again != 0 {
			retransOut++
		}
	}
	if k.PacketsOut != k.next-k.una || sackedOut != k.SackedOut || lostOut != k.LostOut || retransOut != k.RetransOut {
		return fmt.Errorf("socket %d: of %d segments %d are counted, %d of %d as SACKed, %d of %d as lost, %d of %d as sent again",
			k.number, k.next-k.una, k.PacketsOut, k.SackedOut, sackedOut, k.LostOut, lostOut, k.RetransOut, retransOut)
	}
	return nil
}
