// SPDX-License-Identifier: Apache-2.0

package sim

import "github.com/mpcc/mpcc/internal/experiment/sim/control"

// callbacks are those of the kernel's tcp_congestion_ops.
type callbacks interface {
	CongAvoid(ack, acked uint32)
	SSThresh() uint32
	PktsAcked(acked uint32, rttUs int32, inFlight uint32)
	SetState(ca uint8)
	CwndEvent(event int)
	UndoCwnd() uint32
	InAck(flags uint32)
	Release()
}

// States of congestion, as enum tcp_ca_state has them.
const (
	caOpen = iota
	caDisorder
	caCWR
	caRecovery
	caLoss
)

// Events of congestion, as enum tcp_ca_event has them.
const (
	eventTxStart = iota
	eventCwndRestart
	eventCompleteCWR
	eventLoss
)

// Flags of InAck, as enum tcp_ca_ack_event_flags has them.
const (
	ackSlowPath  = 1 << 0
	ackWinUpdate = 1 << 1
	ackECE       = 1 << 2
)

const (
	infiniteSsthresh = 0x7fffffff
	initialWindow    = 10 // packets, TCP_INIT_CWND
	noMinRTT         = ^uint32(0)
)

// state is what a congestion control sees of a socket.
type state = control.State

// slowStart is tcp_in_slow_start.
func slowStart(s *state) bool { return s.Cwnd < s.Ssthresh }

// cwndLimited is tcp_is_cwnd_limited.
func cwndLimited(s *state) bool {
	return s.CwndLimited || slowStart(s) && s.Cwnd < 2*s.MaxPacketsOut
}

// inFlight is tcp_packets_in_flight.
func inFlight(s *state) uint32 { return s.PacketsOut - s.SackedOut - s.LostOut + s.RetransOut }

// slowStartBy is tcp_slow_start: it grows the window by what was acknowledged, and returns what is left of that.
func slowStartBy(s *state, acked uint32) uint32 {
	cwnd := min(s.Cwnd+acked, s.Ssthresh)
	acked -= cwnd - s.Cwnd
	s.Cwnd = min(cwnd, s.CwndClamp)
	return acked
}

// additive is tcp_cong_avoid_ai: it grows the window by a packet for each w that are acknowledged.
func additive(s *state, w, acked uint32) {
	if s.CwndCnt >= w {
		s.CwndCnt = 0
		s.Cwnd++
	}
	s.CwndCnt += acked
	if s.CwndCnt >= w {
		delta := s.CwndCnt / w
		s.CwndCnt -= delta * w
		s.Cwnd += delta
	}
	s.Cwnd = min(s.Cwnd, s.CwndClamp)
}

// reno is the kernel's tcp_reno (net/ipv4/tcp_cong.c).
type reno struct{ *state }

func (r reno) CongAvoid(_, acked uint32) {
	if !cwndLimited(r.state) {
		return
	}
	if slowStart(r.state) {
		if acked = slowStartBy(r.state, acked); acked == 0 {
			return
		}
	}
	additive(r.state, r.Cwnd, acked)
}

func (r reno) SSThresh() uint32              { return max(r.Cwnd>>1, 2) }
func (r reno) UndoCwnd() uint32              { return max(r.Cwnd, r.PriorCwnd) }
func (reno) PktsAcked(uint32, int32, uint32) {}
func (reno) SetState(uint8)                  {}
func (reno) CwndEvent(int)                   {}
func (reno) InAck(uint32)                    {}
func (reno) Release()                        {}
