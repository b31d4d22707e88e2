// SPDX-License-Identifier: Apache-2.0

package sim

// rack is struct tcp_rack: RFC 8985, as tcp_recovery.c has it.
type rack struct {
	sent          int64  // µs, of the segment that was sent last of those delivered
	end           uint32 // behind it
	rtt           int64  // µs
	advanced      bool
	steps         uint32 // of the window for reordering, quarters of the least RTT
	persist       uint8  // recoveries for which they stay
	dsackSeen     bool
	lastDelivered uint32
}

// pending is what the timer of transmissions is set for, icsk_pending.
type pending uint8

const (
	pendingNothing pending = iota
	pendingRetransmit
	pendingReorder
	pendingProbe
)

// sentAfter is tcp_skb_sent_after.
func sentAfter(a, b int64, endA, endB uint32) bool { return a > b || a == b && endA > endB }

// advance is tcp_rack_advance: a segment was delivered.
func (k *socket) advance(g *segment, n uint32) {
	rtt := k.sim.micros() - g.sent
	if rtt < int64(k.MinRttUs) && g.flags&everSent != 0 {
		return // it may have been the original
	}
	k.rack.advanced = true
	k.rack.rtt = rtt
	k.RackRttUs = uint32(rtt)
	if sentAfter(g.sent, k.rack.sent, n+1, k.rack.end) {
		k.rack.sent, k.rack.end = g.sent, n+1
	}
}

// reorderWindow is tcp_rack_reo_wnd, in µs.
func (k *socket) reorderWindow() int64 {
	if !k.reordSeen && (k.CAState >= caRecovery || k.SackedOut >= k.reordering) {
		return 0
	}
	return min(int64(k.MinRttUs>>2)*int64(k.rack.steps), int64(k.SrttUs>>3))
}

// overdue is tcp_rack_skb_timeout: how long a segment may still take, µs.
func (k *socket) overdue(g *segment, window int64) int64 {
	return k.rack.rtt + window - (k.sim.micros() - g.sent)
}

// detectLoss is tcp_rack_detect_loss. It returns how long the last of the others may take.
func (k *socket) detectLoss() (wait int64) {
	window := k.reorderWindow()
	for n := k.oldest; n != none; {
		g := k.segment(n)
		newer := g.newer
		if g.flags&lost != 0 && g.flags&again == 0 {
			n = newer
			continue // it is to be sent again already
		}
		if !sentAfter(k.rack.sent, g.sent, k.rack.end, n+1) {
			break
		}
		if left := k.overdue(g, window); left <= 0 {
			k.markLost(n)
			k.unlist(n, g)
		} else {
			wait = max(wait, left)
		}
		n = newer
	}
	return wait
}

// identifyLoss is tcp_identify_packet_loss and tcp_rack_mark_lost.
func (k *socket) identifyLoss(a *acking) {
	if k.una == k.next {
		return
	}
	before := k.RetransOut
	if k.rack.advanced {
		k.rack.advanced = false
		if wait := k.detectLoss(); wait > 0 {
			k.setTimer(pendingReorder, toJiffies(wait+leastTimeout))
			a.flag &^= flagSetTimer
		}
	}
	if before > k.RetransOut {
		a.flag |= flagLostRetrans
	}
}

// updateReorderWindow is tcp_rack_update_reo_wnd.
func (k *socket) updateReorderWindow(r *rateSample) {
	if r.priorTime == 0 {
		return
	}
	if r.priorDelivered < k.rack.lastDelivered {
		k.rack.dsackSeen = false
	}
	if k.rack.dsackSeen {
		k.rack.steps = min(0xff, k.rack.steps+1)
		k.rack.dsackSeen = false
		k.rack.lastDelivered = k.delivered
		k.rack.persist = rackRecoveryRounds
	} else if k.rack.persist == 0 {
		k.rack.steps = 1
	}
}

// alert is tcp_fastretrans_alert.
func (k *socket) alert(priorUna uint32, a *acking, dup int, send *sending) {
	if a.flag&flagECE != 0 {
		k.PriorSsthresh = 0
	}
	if k.CAState == caOpen {
		k.retransStamp = 0
	} else if k.una >= k.highSeq {
		switch k.CAState {
		case caCWR:
			if k.una != k.highSeq {
				k.endReduction()
				k.setState(caOpen)
			}
		case caRecovery:
			k.undoRecovery()
			k.endReduction()
		}
	}
	switch k.CAState {
	case caRecovery:
		if a.flag&flagUnaAdvanced != 0 && k.undoPartial(priorUna) {
			return
		}
		if k.undoDsack() {
			k.tryOpen(a.flag)
		}
		k.identifyLoss(a)
		if k.CAState != caRecovery {
			if k.LostOut == 0 {
				return
			}
			k.enterRecovery(a.flag&flagECE != 0)
		}
	case caLoss:
		k.processLoss(a.flag, dup, send)
		k.identifyLoss(a)
		if k.CAState != caOpen && a.flag&flagLostRetrans == 0 {
			return
		}
		k.enterIfLost(a, send)
		return
	default:
		k.enterIfLost(a, send)
		return
	}
	*send = sendLost
}

// enterIfLost is what tcp_fastretrans_alert does outside of recovery.
func (k *socket) enterIfLost(a *acking, send *sending) {
	if k.CAState <= caDisorder {
		k.undoDsack()
	}
	k.identifyLoss(a)
	if k.LostOut == 0 { // tcp_time_to_recover
		k.tryOpen(a.flag)
		return
	}
	k.enterRecovery(a.flag&flagECE != 0)
	*send = sendLost
}

// tryOpen is tcp_try_to_open and tcp_try_keep_open.
func (k *socket) tryOpen(flag int) {
	if !k.anyRetransDone() {
		k.retransStamp = 0
	}
	if flag&flagECE != 0 {
		k.enterCWR()
	}
	if k.CAState != caCWR {
		k.keepOpen()
	}
}

func (k *socket) keepOpen() {
	ca := uint8(caOpen)
	if k.SackedOut+k.LostOut > 0 || k.anyRetransDone() {
		ca = caDisorder
	}
	if ca != k.CAState {
		k.setState(ca)
		k.setHigh()
	}
}

// anyRetransDone is tcp_any_retrans_done.
func (k *socket) anyRetransDone() bool {
	return k.RetransOut > 0 || k.una != k.next && k.segment(k.una).flags&everSent != 0
}

// processLoss is tcp_process_loss, with F-RTO of RFC 5682.
func (k *socket) processLoss(flag, dup int, send *sending) {
	recovered := k.una >= k.highSeq
	if flag&flagUnaAdvanced != 0 && k.undoLoss(false) {
		return
	}
	if k.frto {
		if flag&flagOrigSackAcked != 0 && k.undoLoss(true) {
			return
		}
		if k.next > k.highSeq {
			if flag&flagDataSacked != 0 || dup > 0 {
				k.frto = false
			}
		} else if flag&flagUnaAdvanced != 0 && !recovered {
			k.setHigh()
			if k.next != k.end || k.conn.supply(k) {
				*send = sendNew
				return
			}
			k.frto = false
		}
	}
	if recovered {
		k.undoRecovery()
		return
	}
	*send = sendLost
}

// mayUndo is tcp_may_undo.
func (k *socket) mayUndo() bool {
	return k.undoMarker != none && (k.undoRetrans == 0 || k.delayed())
}

// delayed is tcp_packet_delayed: the ACK is of what was sent before the first retransmission.
func (k *socket) delayed() bool {
	return k.retransStamp == 0 || k.echo > 0 && k.echo < k.retransStamp
}

// undo is tcp_undo_cwnd_reduction.
func (k *socket) undo(unmark bool) {
	if unmark {
		for n := k.una; n != k.next; n++ {
			k.segment(n).flags &^= lost
		}
		k.LostOut = 0
		k.hint = k.una
	}
	if k.PriorSsthresh > 0 {
		k.Cwnd = k.cc.UndoCwnd()
		if k.PriorSsthresh > k.Ssthresh {
			k.Ssthresh, k.queueCWR = k.PriorSsthresh, false
		}
	}
	k.cwndStamp = k.sim.jiffies()
	k.undoMarker = none
	k.rack.advanced = true
}

// undoRecovery is tcp_try_undo_recovery.
func (k *socket) undoRecovery() {
	if k.mayUndo() {
		k.undo(false)
	} else if k.rack.persist > 0 {
		k.rack.persist--
	}
	k.setState(caOpen)
}

// undoDsack is tcp_try_undo_dsack.
func (k *socket) undoDsack() bool {
	if k.undoMarker == none || k.undoRetrans != 0 {
		return false
	}
	k.rack.persist = min(rackRecoveryRounds, k.rack.persist+1)
	k.undo(false)
	return true
}

// undoLoss is tcp_try_undo_loss.
func (k *socket) undoLoss(frto bool) bool {
	if !frto && !k.mayUndo() {
		return false
	}
	k.undo(true)
	k.retransmits = 0
	k.setState(caOpen)
	return true
}

// undoPartial is tcp_try_undo_partial.
func (k *socket) undoPartial(priorUna uint32) bool {
	if k.undoMarker == none || !k.delayed() {
		return false
	}
	k.checkReordering(priorUna)
	if k.RetransOut > 0 {
		return true
	}
	if !k.anyRetransDone() {
		k.retransStamp = 0
	}
	k.undo(true)
	k.keepOpen()
	return false
}

// setTimer is tcp_reset_xmit_timer, in jiffies from now.
func (k *socket) setTimer(what pending, after int64) {
	k.pending = what
	k.deadline = k.sim.jiffies() + min(after, mostRTO)
	k.due = k.sim.expiry(k.deadline)
	if t := &k.sim.timers[k.transmit]; t.slot == idle || t.at > k.due {
		k.sim.set(k.transmit, k.due)
	} // else it finds its new deadline when it goes off
}

// timeout is the timer of transmissions.
func (k *socket) timeout() {
	if k.closed || k.pending == pendingNothing {
		return
	}
	if k.due > k.sim.now {
		k.sim.set(k.transmit, k.due)
		return
	}
	switch what := k.pending; what {
	case pendingReorder:
		k.reorderTimeout()
	case pendingProbe:
		k.probe()
	case pendingRetransmit:
		k.pending = pendingNothing
		k.retransmitTimeout()
	}
}

// rearm is tcp_rearm_rto.
func (k *socket) rearm() {
	if k.PacketsOut == 0 {
		k.pending = pendingNothing
		return
	}
	after := k.rto
	if k.pending == pendingReorder || k.pending == pendingProbe {
		after = toJiffies(max(1, k.untilRTO()))
	}
	k.setTimer(pendingRetransmit, after)
}

// untilRTO is tcp_rto_delta_us.
func (k *socket) untilRTO() int64 {
	return k.segment(k.una).sent + k.rto*jiffy/1000 - k.sim.micros()
}

// reorderTimeout is tcp_rack_reo_timeout.
func (k *socket) reorderTimeout() {
	before, lostBefore := inFlight(&k.state), k.lostSum
	k.detectLoss()
	if before != inFlight(&k.state) {
		if k.CAState != caRecovery {
			k.enterRecovery(false)
			k.reduce(1, k.lostSum-lostBefore, 0)
		}
		k.retransmitLost()
	}
	if k.pending != pendingRetransmit {
		k.rearm()
	}
}

// scheduleProbe is tcp_schedule_loss_probe.
func (k *socket) scheduleProbe(advancing bool) bool {
	if k.PacketsOut == 0 || k.CAState != caOpen && k.CAState != caCWR {
		return false
	}
	after := firstRTO
	if k.SrttUs > 0 {
		us := int64(k.SrttUs >> 2)
		if k.PacketsOut == 1 {
			us += leastRTO
		} else {
			us += leastTimeout
		}
		after = toJiffies(us)
	}
	until := k.rto * jiffy / 1000
	if !advancing {
		until = k.untilRTO()
	}
	if until > 0 {
		after = min(after, toJiffies(until))
	}
	k.setTimer(pendingProbe, after)
	return true
}

// probe is tcp_send_loss_probe.
func (k *socket) probe() {
	if k.tlpHigh == none && k.una != k.next {
		k.tlpRetrans = false
		probed := false
		if k.next != k.end {
			probed = k.push(true)
		} else {
			// The last segment, outside of what is counted as sent again.
			n := k.next - 1
			g := k.segment(n)
			k.sendSegment(n, g)
			k.TotalRetrans++
			k.BytesRetrans += uint64(g.size)
			g.flags |= everSent
			k.tlpRetrans, probed = true, true
		}
		if probed {
			k.tlpHigh = k.next
			k.pending = pendingNothing
		}
	}
	k.rearm()
}

// probeAcked is tcp_process_tlp_ack.
func (k *socket) probeAcked(upTo uint32, flag int) {
	if upTo < k.tlpHigh {
		return
	}
	switch {
	case !k.tlpRetrans, flag&flagTLPDsack != 0:
		k.tlpHigh = none
	case upTo > k.tlpHigh:
		k.startReduction()
		k.setState(caCWR)
		k.endReduction()
		k.keepOpen()
	case flag&(flagUnaAdvanced|flagNotDup|flagDataSacked) == 0:
		k.tlpHigh = none
	}
}

// retransmitTimeout is tcp_retransmit_timer: RFC 6298.
func (k *socket) retransmitTimeout() {
	if k.PacketsOut == 0 {
		return
	}
	k.enterLoss()
	k.retransmits++
	k.retransmit(k.una)
	k.backoff++
	k.Backoff = k.backoff
	k.rto = min(k.rto<<1, mostRTO)
	k.setTimer(pendingRetransmit, k.rto)
}
