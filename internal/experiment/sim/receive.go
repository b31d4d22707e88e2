// SPDX-License-Identifier: Apache-2.0

package sim

import "slices"

// receiver is the end that receives.
type receiver struct {
	expected   uint32  // the next segment: rcv_nxt
	told       uint32  // expected as the last ACK had it: rcv_wup
	untold     int     // bytes received in order since then
	late       []block // segments that came before earlier ones, in order
	window     int     // bytes, at most told to the sender: rcv_ssthresh
	toldWindow int     // and was told last
	sacks      []block // the newest of them, the last that changed first: selective_acks
	dup        block   // a D-SACK that is to be sent
	isDup      bool

	quick        int   // ACKs that are not to be delayed
	ato          int64 // jiffies; 0: no data yet
	lastData     int64 // jiffies
	now          bool  // ICSK_ACK_NOW
	pushed       bool  // ICSK_ACK_PUSHED
	recent       int64 // the timestamp to be echoed
	dupAcks      int
	compressed   int
	compressedAt uint32
}

const (
	mostQuick      = 16            // TCP_MAX_QUICKACKS
	leastATO       = 40e6 / jiffy  // TCP_ATO_MIN
	mostATO        = 200e6 / jiffy // TCP_DELACK_MAX
	mostSacks      = 4             // TCP_NUM_SACKS
	mostCompressed = 44            // net.ipv4.tcp_comp_sack_nr
	compressFor    = 1_000_000     // ns, net.ipv4.tcp_comp_sack_delay_ns
)

// receive is tcp_data_queue, and what tcp_rcv_established does after it.
func (k *socket) receive(p *packet) {
	n := p.segment
	if n <= k.told && p.stamp > k.recent {
		k.recent = p.stamp // tcp_replace_ts_recent
	}
	k.acceptCWR(p)
	switch {
	case n < k.expected:
		k.setDup(n)
		k.quick = max(k.quick, mostQuick)
		k.sendAck()
		return
	case n > k.expected:
		k.checkCE(p)
		if !k.receiveLate(n) {
			k.setDup(n)
		}
		k.growWindow()
		k.answer()
		return
	}
	k.take(n)
	if !k.closed {
		k.dataCame(p)
	}
	if len(k.late) > 0 && !k.closed {
		k.fillHole()
	}
	if k.closed {
		return
	}
	if !k.conn.user.up {
		k.conn.join()
	}
	k.answer()
	k.conn.read()
}

// dataCame is tcp_event_data_recv.
func (k *socket) dataCame(p *packet) {
	now := k.sim.jiffies()
	switch since := now - k.lastData; {
	case k.ato == 0:
		k.quick, k.ato = mostQuick, leastATO
	case since <= leastATO/2:
		k.ato = k.ato>>1 + leastATO/2
	case since < k.ato:
		k.ato = k.ato>>1 + since
	case since > firstRTO:
		k.quick = mostQuick
	}
	k.lastData = now
	k.checkCE(p)
	k.growWindow()
}

// read is what the application does when data have come in order: it reads them all. What the sender has pushed is then
// acknowledged at once, unless something is still waiting for earlier data (mptcp_cleanup_rbuf, tcp_cleanup_rbuf).
func (c *connection) read() {
	if !c.drained || c.closed {
		return
	}
	c.drained = false
	for _, k := range c.sockets {
		if k.pushed && k.untold > 0 && (c.multipath || len(k.late) == 0) {
			k.sendAck()
		}
	}
}

// take takes the expected segment.
func (k *socket) take(n uint32) {
	g := k.segment(n)
	k.expected++
	k.untold += int(g.size)
	k.pushed = k.pushed || g.flags&pushed != 0 || uint32(g.size) < k.MSS
	k.conn.take(g.data, int(g.size))
}

// receiveLate puts a segment among those that came too early; false if it is there already.
func (k *socket) receiveLate(n uint32) bool {
	i := len(k.late)
	for i > 0 && k.late[i-1].low > n {
		i--
	}
	if i > 0 && n < k.late[i-1].high {
		return false
	}
	before := i > 0 && k.late[i-1].high == n
	behind := i < len(k.late) && k.late[i].low == n+1
	switch {
	case before && behind:
		k.late[i-1].high = k.late[i].high
		k.late = slices.Delete(k.late, i, i+1)
	case before:
		k.late[i-1].high++
	case behind:
		k.late[i].low--
	default:
		k.late = slices.Insert(k.late, i, block{n, n + 1})
	}
	k.countLate(int(k.segment(n).size))
	k.addSack(n)
	return true
}

// enoughSacks is TCP_SACK_BLOCKS_EXPECTED.
const enoughSacks = 2

// addSack is tcp_sack_new_ofo_skb: the block with the segment comes first. An ACK that waits goes out before that, where
// the blocks that it should tell might have no place in the next one.
func (k *socket) addSack(n uint32) {
	b := block{n, n + 1}
	touches := func(other block) bool { return other.low <= b.high && other.high >= b.low }
	if i := slices.IndexFunc(k.sacks, touches); i >= enoughSacks || i < 0 && len(k.sacks) >= enoughSacks {
		k.compressedAck()
	}
	kept := k.sacks[:0]
	for _, other := range k.sacks {
		if touches(other) {
			b = block{min(b.low, other.low), max(b.high, other.high)}
		} else {
			kept = append(kept, other)
		}
	}
	if len(kept) == mostSacks {
		kept = kept[:mostSacks-1]
	}
	k.sacks = append(kept, block{})
	copy(k.sacks[1:], k.sacks)
	k.sacks[0] = b
}

// fillHole is tcp_ofo_queue and tcp_sack_remove.
func (k *socket) fillHole() {
	for len(k.late) > 0 && k.late[0].low <= k.expected {
		for n := k.expected; n < k.late[0].high; n++ {
			k.countLate(-int(k.segment(n).size))
			k.take(n)
			if k.closed {
				return
			}
		}
		k.late = k.late[:copy(k.late, k.late[1:])]
	}
	if len(k.late) == 0 {
		k.now = true
	}
	kept := k.sacks[:0]
	for _, b := range k.sacks {
		if b.low > k.expected {
			kept = append(kept, b)
		}
	}
	k.sacks = kept
}

// countLate counts what waits for earlier segments. What waits at a subflow is not on the account of MPTCP's socket.
func (k *socket) countLate(bytes int) {
	if !k.conn.multipath {
		k.conn.lateBytes += bytes
	}
}

// growWindow is tcp_grow_window: the window opens as segments come, up to what the buffer has room for. As long as it
// does, ACKs are not delayed.
func (k *socket) growWindow() {
	if room := k.conn.window - max(k.conn.lateBytes, 0) - k.window; room > 0 {
		k.window += min(room, 2*int(k.MSS))
		k.quick |= 1
	}
}

func (k *socket) setDup(n uint32) { k.dup, k.isDup = block{n, n + 1}, true }

// answer is __tcp_ack_snd_check: it sends an ACK now or later.
func (k *socket) answer() {
	if k.untold > int(k.MSS) || k.quick > 0 || k.now {
		k.sendAck()
		return
	}
	if len(k.late) == 0 {
		k.delayAck()
		return
	}
	if k.compressed >= mostCompressed {
		k.sendAck()
		return
	}
	if k.compressedAt != k.expected {
		k.compressedAt, k.dupAcks = k.expected, 0
	}
	if k.dupAcks < dupThresh {
		k.dupAcks++
		k.sendAck()
		return
	}
	k.compressed++
	if !k.sim.isSet(k.compressTime) {
		wait := min(compressFor, int64(k.SrttUs>>3)*1000/20)
		k.sim.set(k.compressTime, k.sim.now+wait)
	}
}

// delayAck is tcp_send_delayed_ack.
func (k *socket) delayAck() {
	ato := k.ato
	if ato > leastATO {
		ato = min(ato, max(toJiffies(int64(k.SrttUs>>3)), leastATO), mostATO)
	}
	at := k.sim.expiry(k.sim.jiffies() + ato)
	if t := &k.sim.timers[k.ackTimer]; t.slot == idle || t.at > at {
		k.sim.set(k.ackTimer, at)
	}
}

// delayedAck is tcp_delack_timer_handler.
func (k *socket) delayedAck() {
	if k.closed || k.untold == 0 {
		return
	}
	k.ato = min(k.ato<<1, mostATO) // outside of interactive sessions a late ACK makes the next one later
	k.sendAck()
}

// compressedAck is tcp_compressed_ack_kick.
func (k *socket) compressedAck() {
	if !k.closed && k.compressed > 0 {
		k.sendAck()
	}
}

// sendAck is __tcp_send_ack.
func (k *socket) sendAck() {
	s := k.sim
	if k.sim.isSet(k.ackTimer) {
		s.stop(k.ackTimer)
	}
	if k.compressed > 0 {
		k.compressed = 0
		s.stop(k.compressTime)
	}
	k.quick = max(0, k.quick-1)
	k.untold, k.now, k.pushed, k.told = 0, false, false, k.expected
	k.acknowledge(k.expected)
}

// acknowledge sends an ACK up to a segment.
func (k *socket) acknowledge(expected uint32) {
	s := k.sim
	number, p := s.newPacket(k.back)
	p.socket, p.kind, p.ack, p.stamp = int32(k.number), ack, expected, k.recent
	k.markAck(p)
	p.dataAck, p.edge = k.conn.expected, k.conn.openWindow(k)
	most := maxBlocks
	size := headers
	if k.conn.multipath {
		most = 1 // beside MPTCP's option
		size += dssAck
	}
	if k.isDup {
		p.blocks[0], p.duplicate, p.sacks, k.isDup = k.dup, true, 1, false
	}
	for i := 0; i < len(k.sacks) && int(p.sacks) < most; i++ {
		p.blocks[p.sacks] = k.sacks[i]
		p.sacks++
	}
	if p.sacks > 0 {
		size += sackBase + sackBlock*int(p.sacks)
	}
	p.size = uint16(size)
	k.flying++
	s.send(number)
}
