// SPDX-License-Identifier: Apache-2.0

package sim

// What an ACK has shown, as FLAG_… in tcp_input.c.
const (
	flagData            = 1 << iota // never set: ACKs carry no content
	flagWinUpdate                   // it has changed the window
	flagDataAcked                   // it acknowledges new data
	flagRetransAcked                // some of that was sent again
	flagDataSacked                  // it SACKs new data
	flagLostRetrans                 // a retransmission is found lost
	flagOrigSackAcked               // data that was sent once is (S)ACKed
	flagUnaAdvanced                 // it acknowledges anything new
	flagDsackingAck                 // it has a D-SACK
	flagSetTimer                    // the timer is to be set
	flagTLPDsack                    // the D-SACK is of a loss probe
	flagMaybeDelayed                // the receiver may have delayed it
	flagECE                         // it echoes a mark of congestion
	flagNotDup          = flagData | flagWinUpdate | flagDataAcked
	flagAlert           = flagDataSacked | flagDsackingAck
	flagForwardProgress = flagDataAcked | flagDataSacked
	dupThresh           = 3       // net.ipv4.tcp_reordering
	mostReordering      = 300     // net.ipv4.tcp_max_reordering
	rackRecoveryRounds  = 16      // TCP_RACK_RECOVERY_THRESH
	leastTimeout        = 2000    // µs, TCP_TIMEOUT_MIN_US
	leastRTO            = 200_000 // µs
	firstRTO            = int64(1e9 / jiffy)
	mostRTO             = int64(120e9 / jiffy)
)

// What is to be sent after an ACK.
type sending int

const (
	sendNothing sending = iota
	sendLost
	sendNew
)

func inCwndReduction(ca uint8) bool { return ca == caCWR || ca == caRecovery }

// acking is what is gathered while one ACK is worked through.
type acking struct {
	flag                    int
	reordered               uint32 // the lowest segment that came after later ones
	firstSacked, lastSacked int64  // when such segments were sent, µs; 0: none
	sackDelivered           uint32
	sample                  rateSample
}

// rateSample is struct rate_sample.
type rateSample struct {
	priorDelivered uint32
	priorTime      int64
	interval       int64
	rtt            int64 // µs; -1: none
	sentAt         int64
}

// acknowledged is tcp_ack, and what tcp_rcv_established does after it.
func (k *socket) acknowledged(p *packet) {
	s := k.sim
	now := s.micros()
	k.lastReceived = now
	k.conn.dataAcked(p)
	if k.closed {
		return
	}
	if k.conn.user.up {
		k.conn.join()
	}
	if p.ack > k.next {
		panic("sim: an ACK of what was not sent")
	}
	if p.stamp > k.echo {
		k.echo = p.stamp
	}
	a := acking{reordered: k.next, sample: rateSample{rtt: -1}}
	priorUna, priorFack := k.una, k.highestSacked()
	priorPackets, delivered, lostBefore := k.PacketsOut, k.delivered, k.lostSum
	send := sendNothing
	switch {
	case p.ack < priorUna: // old_ack
		if p.sacks > 0 {
			k.tagSacked(p, priorUna, &a)
			k.alert(priorUna, &a, 0, &send)
		}
		k.after(send)
		return
	case p.ack > priorUna:
		a.flag |= flagUnaAdvanced
		k.retransmits = 0
		k.BytesAcked += uint64(k.seqAt(p.ack) - k.SndUna)
		k.una, k.SndUna = p.ack, k.seqAt(p.ack)
	}
	if window := p.edge - p.dataAck; p.ack > priorUna || window > k.peerWindow {
		k.peerWindow = window
		a.flag |= flagWinUpdate
	}
	event := uint32(0)
	if a.flag&flagUnaAdvanced != 0 && p.sacks == 0 && k.LostOut+k.SackedOut+k.RetransOut == 0 && p.ecn&ecnEcho == 0 {
		event = ackWinUpdate
		a.flag |= flagWinUpdate
	} else {
		event = ackSlowPath
		if p.sacks > 0 {
			k.tagSacked(p, priorUna, &a)
		}
		if k.ecn && p.ecn&ecnEcho != 0 {
			a.flag |= flagECE
			event |= ackECE
			k.deliveredCE += a.sackDelivered
		}
		if a.sackDelivered > 0 {
			k.delivered += a.sackDelivered
		}
		if a.flag&flagWinUpdate != 0 {
			event |= ackWinUpdate
		}
	}
	k.cc.InAck(event)
	if priorPackets == 0 {
		k.after(send)
		return
	}
	k.clean(priorUna, priorFack, &a)
	k.updateReorderWindow(&a.sample)
	if k.tlpHigh != none {
		k.probeAcked(p.ack, a.flag)
	}
	if a.flag&flagNotDup == 0 || a.flag&(flagAlert|flagECE) != 0 || k.CAState != caOpen {
		dup := 0
		if a.flag&(flagUnaAdvanced|flagNotDup|flagDsackingAck) == 0 {
			dup = 1
		}
		k.alert(priorUna, &a, dup, &send)
	}
	if a.flag&flagSetTimer != 0 {
		if !k.scheduleProbe(true) {
			k.rearm()
		}
	}
	k.rate(&a.sample, k.delivered-delivered)
	k.control(k.delivered-delivered, k.lostSum-lostBefore, a.flag)
	k.after(send)
}

// seqAt returns the socket's byte at which a segment begins.
func (k *socket) seqAt(n uint32) uint32 {
	if n == k.end {
		return k.seq
	}
	return k.segment(n).seq
}

// highestSacked is tcp_highest_sack_seq.
func (k *socket) highestSacked() uint32 {
	if k.SackedOut == 0 {
		return k.una
	}
	return k.fack
}

// control is tcp_cong_control.
func (k *socket) control(delivered, newlyLost uint32, flag int) {
	switch {
	case inCwndReduction(k.CAState):
		k.reduce(int(delivered), newlyLost, flag)
	case k.reordering > dupThresh && flag&flagForwardProgress != 0 || k.reordering <= dupThresh && flag&flagDataAcked != 0:
		k.cc.CongAvoid(k.SndUna, delivered)
		k.cwndStamp = k.sim.jiffies()
	}
	k.updatePacing()
}

// after is tcp_xmit_recovery, tcp_push_pending_frames and tcp_check_space.
func (k *socket) after(send sending) {
	if k.closed {
		return
	}
	switch send {
	case sendNew:
		k.push(false)
		if k.next <= k.highSeq {
			k.frto = false
			k.retransmitLost()
		}
	case sendLost:
		k.retransmitLost()
	}
	k.conn.offer()
	k.push(false)
	k.expand()
}

// reduce is tcp_cwnd_reduction: proportional rate reduction, RFC 6937.
func (k *socket) reduce(delivered int, newlyLost uint32, flag int) {
	if delivered <= 0 || k.PriorCwnd == 0 {
		return
	}
	flying := inFlight(&k.state)
	delta := int(k.Ssthresh) - int(flying)
	k.prrDelivered += uint32(delivered)
	var send int
	if delta < 0 {
		send = int((uint64(k.Ssthresh)*uint64(k.prrDelivered)+uint64(k.PriorCwnd)-1)/uint64(k.PriorCwnd)) - int(k.prrOut)
	} else {
		send = max(int(k.prrDelivered)-int(k.prrOut), delivered)
		if flag&flagUnaAdvanced != 0 && newlyLost == 0 {
			send++
		}
		send = min(delta, send)
	}
	if k.prrOut == 0 {
		send = max(send, 1)
	}
	k.Cwnd = uint32(max(int(flying)+send, 1))
}

// setState is tcp_set_ca_state.
func (k *socket) setState(ca uint8) {
	k.cc.SetState(ca)
	k.CAState = ca
}

// startReduction is tcp_init_cwnd_reduction.
func (k *socket) startReduction() {
	k.setHigh()
	k.tlpHigh = none
	k.CwndCnt = 0
	k.PriorCwnd = k.Cwnd
	k.prrDelivered, k.prrOut = 0, 0
	k.Ssthresh = k.cc.SSThresh()
	k.queueCWR = k.ecn
}

func (k *socket) setHigh() { k.highSeq, k.HighSeq = k.next, k.SndNxt }

// endReduction is tcp_end_cwnd_reduction.
func (k *socket) endReduction() {
	if k.Ssthresh < infiniteSsthresh && (k.CAState == caCWR || k.undoMarker != none) {
		k.Cwnd = k.Ssthresh
		k.cwndStamp = k.sim.jiffies()
	}
	k.cc.CwndEvent(eventCompleteCWR)
}

// startUndo is tcp_init_undo.
func (k *socket) startUndo() {
	k.undoMarker = k.una
	k.undoRetrans = int32(k.RetransOut)
	if k.tlpHigh != none && k.tlpRetrans {
		k.undoRetrans++
	}
	if k.undoRetrans == 0 {
		k.undoRetrans = -1
	}
}

// enterRecovery is tcp_enter_recovery.
func (k *socket) enterRecovery(ece bool) {
	if !k.anyRetransDone() {
		k.retransStamp = 0
	}
	k.PriorSsthresh = 0
	k.startUndo()
	if !inCwndReduction(k.CAState) {
		if !ece {
			k.PriorSsthresh = k.currentSsthresh()
		}
		k.startReduction()
	}
	k.setState(caRecovery)
}

// enterLoss is tcp_enter_loss.
func (k *socket) enterLoss() {
	fresh := k.CAState < caRecovery
	k.markTimedOut()
	if k.CAState <= caDisorder || k.highSeq <= k.una || k.CAState == caLoss && k.retransmits == 0 {
		k.PriorSsthresh = k.currentSsthresh()
		k.PriorCwnd = k.Cwnd
		k.Ssthresh = k.cc.SSThresh()
		k.cc.CwndEvent(eventLoss)
		k.startUndo()
	}
	k.Cwnd = inFlight(&k.state) + 1
	k.CwndCnt = 0
	k.cwndStamp = k.sim.jiffies()
	if k.CAState <= caDisorder && k.SackedOut >= k.reordering {
		k.reordering = min(k.reordering, dupThresh)
	}
	k.setState(caLoss)
	k.setHigh()
	k.tlpHigh = none
	k.queueCWR = k.ecn
	k.frto = fresh || k.retransmits > 0
}

// markTimedOut is tcp_timeout_mark_lost. The receiver never takes back a SACK.
func (k *socket) markTimedOut() {
	for n := k.una; n != k.next; n++ {
		if n != k.una && k.overdue(k.segment(n), 0) > 0 {
			continue // sent only recently
		}
		k.markLost(n)
	}
	k.hint = k.una
}

// markLost is tcp_mark_skb_lost.
func (k *socket) markLost(n uint32) {
	g := k.segment(n)
	if g.flags&sacked != 0 {
		return
	}
	k.hint = min(k.hint, n)
	if g.flags&lost != 0 {
		if g.flags&again != 0 {
			g.flags &^= again
			k.RetransOut--
			k.lostSum++
		}
		return
	}
	g.flags |= lost
	k.LostOut++
	k.lostSum++
}

// tagSacked is tcp_sacktag_write_queue.
func (k *socket) tagSacked(p *packet, priorUna uint32, a *acking) {
	blocks := p.blocks[:p.sacks]
	for i, b := range blocks {
		isDup := i == 0 && p.duplicate
		if isDup && !k.dsack(b, priorUna, a) {
			continue
		}
		low, high := max(b.low, k.una), min(b.high, k.next)
		if isDup {
			for n := low; n < high; n++ {
				k.tagDuplicate(n, a)
			}
			continue
		}
		for n := k.unsacked(low, high); n < high; n = k.unsacked(n, high) {
			k.tag(n, a)
		}
	}
	if k.CAState != caLoss || k.undoMarker != none {
		k.checkReordering(a.reordered)
	}
}

// unsacked returns the first segment from n on, up to high, that is not SACKed.
func (k *socket) unsacked(n, high uint32) uint32 {
	for n < high {
		g := k.segment(n)
		if g.flags&sacked == 0 {
			return n
		}
		// Those passed on the way point further from now on.
		if next := g.skip; next < high && k.segment(next).flags&sacked != 0 {
			g.skip = k.segment(next).skip
		}
		n = g.skip
	}
	return high
}

// dsack is tcp_check_dsack and tcp_dsack_seen, of a block that has come twice. It returns false if that is not to be
// looked at further.
func (k *socket) dsack(b block, priorUna uint32, a *acking) bool {
	segments := b.high - b.low
	if segments == 1 && k.tlpHigh != none && k.tlpHigh == b.high {
		a.flag |= flagTLPDsack
	}
	k.dsackDups += segments
	if k.dsackDups > k.TotalRetrans {
		return false
	}
	if k.reordSeen && a.flag&flagTLPDsack == 0 {
		k.rack.dsackSeen = true
	}
	a.flag |= flagDsackingAck
	a.sackDelivered += segments
	if k.undoMarker != none && k.undoRetrans > 0 && b.high <= priorUna && b.high > k.undoMarker {
		k.undoRetrans = max(0, k.undoRetrans-int32(segments))
	}
	return true
}

// tagDuplicate is what tcp_sacktag_one does for a D-SACK of a segment that is still here.
func (k *socket) tagDuplicate(n uint32, a *acking) {
	g := k.segment(n)
	if g.flags&everSent != 0 {
		if k.undoMarker != none && k.undoRetrans > 0 && n+1 > k.undoMarker {
			k.undoRetrans--
		}
		if g.flags&sacked != 0 {
			a.reordered = min(a.reordered, n)
		}
	}
	if g.flags&sacked == 0 {
		k.tag(n, a)
	}
	if g.flags&again != 0 {
		g.flags &^= again
		k.RetransOut--
	}
}

// tag is tcp_sacktag_one, for a segment that is not SACKed yet.
func (k *socket) tag(n uint32, a *acking) {
	g := k.segment(n)
	k.advance(g, n)
	if g.flags&again != 0 {
		if g.flags&lost != 0 {
			g.flags &^= lost | again
			k.LostOut--
			k.RetransOut--
		}
	} else {
		if g.flags&everSent == 0 {
			if n < k.highestSacked() {
				a.reordered = min(a.reordered, n)
			}
			if n < k.highSeq {
				a.flag |= flagOrigSackAcked
			}
			if a.firstSacked == 0 {
				a.firstSacked = g.sent
			}
			a.lastSacked = g.sent
		}
		if g.flags&lost != 0 {
			g.flags &^= lost
			k.LostOut--
		}
	}
	if k.SackedOut == 0 {
		k.fack = k.una
	}
	g.flags |= sacked
	g.skip = n + 1
	a.flag |= flagDataSacked
	k.SackedOut++
	a.sackDelivered++
	k.fack = max(k.fack, n+1)
	k.sampleDelivered(g, &a.sample)
	k.unlist(n, g)
}

// checkReordering is tcp_check_sack_reordering: segment low came after later ones.
func (k *socket) checkReordering(low uint32) {
	fack := k.highestSacked()
	if low >= fack {
		return
	}
	if metric := fack - low; metric > k.reordering {
		k.reordering = min(metric, mostReordering)
	}
	k.reordSeen = true
}

// clean is tcp_clean_rtx_queue: it takes away what is acknowledged.
func (k *socket) clean(priorUna, priorFack uint32, a *acking) {
	reord := k.next
	first, last := int64(0), int64(0)
	count := uint32(0)
	priorSacked := k.SackedOut
	bytes := uint32(0)
	for n := priorUna; n != k.una; n++ {
		g := k.segment(n)
		if g.flags&everSent != 0 {
			if g.flags&again != 0 {
				k.RetransOut--
			}
			a.flag |= flagRetransAcked
		} else if g.flags&sacked == 0 {
			last = g.sent
			if first == 0 {
				first = last
			}
			reord = min(reord, n)
			if n < k.highSeq {
				a.flag |= flagOrigSackAcked
			}
		}
		if g.flags&sacked != 0 {
			k.SackedOut--
		} else {
			k.delivered++
			if a.flag&flagECE != 0 {
				k.deliveredCE++
			}
			if !k.spurious(g) {
				k.advance(g, n)
			}
		}
		if g.flags&lost != 0 {
			k.LostOut--
		}
		k.PacketsOut--
		count++
		bytes += uint32(g.size)
		k.sampleDelivered(g, &a.sample)
		k.unlist(n, g)
		k.memory -= int(g.size) + overhead
		a.flag |= flagDataAcked
	}
	now := k.sim.micros()
	seqRTT, caRTT, sackRTT := int64(-1), int64(-1), int64(-1)
	if first != 0 && a.flag&flagRetransAcked == 0 {
		seqRTT, caRTT = now-first, now-last
		if count == 1 && priorSacked == 0 && bytes < k.MSS && a.sample.priorDelivered+1 == k.delivered && a.flag&flagAlert == 0 {
			a.flag |= flagMaybeDelayed
		}
	}
	if a.firstSacked != 0 {
		sackRTT, caRTT = now-a.firstSacked, now-a.lastSacked
	}
	updated := k.measured(a, seqRTT, sackRTT, caRTT)
	if a.flag&flagDataAcked != 0 {
		a.flag |= flagSetTimer
		if reord < priorFack {
			k.checkReordering(reord)
		}
	} else if k.una != k.next && updated && sackRTT >= 0 && sackRTT > now-k.segment(k.una).sent {
		a.flag |= flagSetTimer
	}
	k.cc.PktsAcked(count, int32(a.sample.rtt), k.MSS*(k.delivered-a.sample.priorDelivered))
}

// spurious is tcp_skb_spurious_retrans: the ACK is of the original, not of what was sent again.
func (k *socket) spurious(g *segment) bool {
	return g.flags&everSent != 0 && k.echo > 0 && k.echo < g.sent/1000
}

// measured is tcp_ack_update_rtt. It returns false without a sample.
func (k *socket) measured(a *acking, seqRTT, sackRTT, caRTT int64) bool {
	if seqRTT < 0 {
		seqRTT = sackRTT
	}
	if seqRTT < 0 && k.echo > 0 && a.flag&flagDataAcked != 0 {
		seqRTT = max(1, k.sim.ms()-k.echo) * 1000
		caRTT = seqRTT
	}
	a.sample.rtt = caRTT
	if seqRTT < 0 {
		return false
	}
	if caRTT >= 0 && !(a.flag&flagMaybeDelayed != 0 && uint32(caRTT) > k.MinRttUs) {
		k.MinRttUs = k.minRTT.update(k.sim.now, uint32(max(caRTT, 1)))
	}
	k.estimate(seqRTT)
	k.backoff, k.Backoff = 0, 0
	return true
}

// estimate is tcp_rtt_estimator and tcp_set_rto.
func (k *socket) estimate(us int64) {
	m := us
	if k.SrttUs != 0 {
		m -= int64(k.SrttUs >> 3)
		k.SrttUs = uint32(int64(k.SrttUs) + m)
		if m < 0 {
			m = -m
			m -= int64(k.MdevUs >> 2)
			if m > 0 {
				m >>= 3
			}
		} else {
			m -= int64(k.MdevUs >> 2)
		}
		k.MdevUs = uint32(int64(k.MdevUs) + m)
		if k.MdevUs > k.mdevMax {
			k.mdevMax = k.MdevUs
			k.RttvarUs = max(k.RttvarUs, k.mdevMax)
		}
		if k.una > k.rttSeq {
			if k.mdevMax < k.RttvarUs {
				k.RttvarUs -= (k.RttvarUs - k.mdevMax) >> 2
			}
			k.rttSeq = k.next
			k.mdevMax = leastRTO
		}
	} else {
		k.SrttUs = uint32(m << 3)
		k.MdevUs = uint32(m << 1)
		k.RttvarUs = max(k.MdevUs, leastRTO)
		k.mdevMax = k.RttvarUs
		k.rttSeq = k.next
	}
	k.SrttUs = max(1, k.SrttUs)
	k.rto = min(mostRTO, toJiffies(int64(k.SrttUs>>3)+int64(k.RttvarUs)))
}

// sampleDelivered is tcp_rate_skb_delivered.
func (k *socket) sampleDelivered(g *segment, r *rateSample) {
	if g.deliveredAt == 0 {
		return
	}
	k.deliveredTime = k.sim.micros()
	if r.priorTime == 0 || g.sent > r.sentAt {
		r.priorDelivered, r.priorTime = g.delivered, g.deliveredAt
		r.sentAt = g.sent
		k.firstTx = g.sent
		r.interval = g.sent - g.firstTx
	}
	if g.flags&sacked != 0 {
		g.deliveredAt = 0
	}
}

// rate is tcp_rate_gen.
func (k *socket) rate(r *rateSample, _ uint32) {
	if r.priorTime == 0 {
		return
	}
	interval := max(r.interval, k.deliveredTime-r.priorTime)
	if interval <= 0 || uint32(interval) < k.MinRttUs {
		return
	}
	if delivered := k.delivered - r.priorDelivered; !k.appLimited() || uint64(delivered)*uint64(k.RateIntervalUs) >= uint64(k.RateDelivered)*uint64(interval) {
		k.RateDelivered, k.RateIntervalUs = delivered, uint32(interval)
	}
}

// appLimited says whether the socket has less to send than it might.
func (k *socket) appLimited() bool { return k.next == k.end && inFlight(&k.state) < k.Cwnd }

// minFilter is the windowed minimum of tcp_update_rtt_min: the least sample of the last five minutes, in two halves.
type minFilter struct {
	since           int64
	present, before uint32
}

func (f *minFilter) update(now int64, us uint32) uint32 {
	const half = 150e9
	if f.present == 0 || now-f.since > half {
		f.before, f.present, f.since = f.present, us, now
	}
	f.present = min(f.present, us)
	if f.before > 0 {
		return min(f.before, f.present)
	}
	return f.present
}
