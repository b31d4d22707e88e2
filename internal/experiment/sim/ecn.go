// SPDX-License-Identifier: Apache-2.0

package sim

import "github.com/mpcc/mpcc/internal/experiment/scenario"

// Bits of a packet's header that are about congestion notification: RFC 3168.
const (
	ecnCapable = 1 << iota // it may be marked
	ecnMarked              // CE
	ecnEcho                // ECE
	ecnReduced             // CWR
)

// notification is what a socket's two ends keep of it: ecn_flags.
type notification struct {
	ecn         bool   // both ends know it
	queueCWR    bool   // the sender: the next new segment says that the window was reduced
	deliveredCE uint32 // segments that were delivered by ACKs that echo a mark
	demandCWR   bool   // the receiver: ACKs echo a mark
	seen        bool   // and a segment was capable
	// The receiver with DCTCP.
	marked bool   // the last segment was
	prior  uint32 // expected when it had come
}

// askForECN notes which hosts' connections ask for ECN: as the lab has it, those with a user of DCTCP.
func askForECN(plan *scenario.Network) map[scenario.Name]bool {
	asks := map[scenario.Name]bool{}
	for i := range plan.Classes {
		if c := &plan.Classes[i]; ccName(c.User) == "dctcp" {
			for _, m := range c.Members {
				asks[m.From] = true
			}
		}
	}
	return asks
}

// needsECN is tcp_ca_needs_ecn, of both ends.
func (k *socket) needsECN() bool { return ccName(k.conn.user.Class.User) == "dctcp" }

// markData is tcp_ecn_send, for a segment that is sent for the first time, or again.
func (k *socket) markData(p *packet, fresh bool) {
	switch {
	case !k.ecn:
	case fresh:
		p.ecn = ecnCapable
		if k.queueCWR {
			k.queueCWR = false
			p.ecn |= ecnReduced
		}
	case k.needsECN():
		p.ecn = ecnCapable
	}
}

// markAck is tcp_ecn_send, for an ACK.
func (k *socket) markAck(p *packet) {
	if !k.ecn {
		return
	}
	if k.needsECN() {
		p.ecn = ecnCapable
	}
	if k.demandCWR {
		p.ecn |= ecnEcho
	}
}

// acceptCWR is tcp_ecn_accept_cwr.
func (k *socket) acceptCWR(p *packet) {
	if k.ecn && p.ecn&ecnReduced != 0 {
		k.demandCWR, k.now = false, true
	}
}

// checkCE is tcp_data_ecn_check, of a segment that is not a duplicate.
func (k *socket) checkCE(p *packet) {
	switch {
	case !k.ecn:
		return
	case p.ecn&ecnCapable == 0:
		if k.seen {
			k.quickly()
		}
		return
	case p.ecn&ecnMarked != 0:
		if k.needsECN() {
			k.noteCE(true)
		}
		if !k.demandCWR {
			k.quickly()
			k.demandCWR = true
		}
	case k.needsECN():
		k.noteCE(false)
	}
	k.seen = true
}

// quickly is tcp_enter_quickack_mode: the sender's window may be small.
func (k *socket) quickly() { k.quick, k.ato = max(k.quick, 2), leastATO }

// noteCE is dctcp_ece_ack_update (net/ipv4/tcp_dctcp.h): ACKs tell which segments were marked, so that one that was to be
// late goes out before the first segment of the other kind is acknowledged.
func (k *socket) noteCE(marked bool) {
	if k.marked != marked {
		if k.sim.isSet(k.ackTimer) {
			k.demandCWR = k.marked
			k.acknowledge(k.prior)
		}
		k.now = true
	}
	k.prior, k.marked, k.demandCWR = k.expected, marked, marked
}

// enterCWR is tcp_enter_cwr.
func (k *socket) enterCWR() {
	k.PriorSsthresh = 0
	if k.CAState < caCWR {
		k.undoMarker = none
		k.startReduction()
		k.setState(caCWR)
	}
}

// dctcp is the kernel's (net/ipv4/tcp_dctcp.c), with its default parameters.
type dctcp struct {
	reno
	socket                       *socket
	oldDelivered, oldDeliveredCE uint32
	alpha, nextSeq, lossCwnd     uint32
}

const (
	dctcpMost  = 1024
	dctcpShift = 4 // g = 1/16
)

func newDCTCP(k *socket) *dctcp {
	d := &dctcp{reno: reno{&k.state}, socket: k, alpha: dctcpMost}
	k.prior = k.expected
	d.reset()
	return d
}

func (d *dctcp) reset() {
	d.nextSeq, d.oldDelivered, d.oldDeliveredCE = d.SndNxt, d.socket.delivered, d.socket.deliveredCE
}

// InAck is dctcp_update_alpha: once an RTT alpha follows the share of what was marked.
func (d *dctcp) InAck(uint32) {
	if int32(d.SndUna-d.nextSeq) < 0 {
		return
	}
	less := d.alpha >> dctcpShift
	if less == 0 {
		less = d.alpha
	}
	d.alpha -= less
	if marked := d.socket.deliveredCE - d.oldDeliveredCE; marked > 0 {
		d.alpha = min(d.alpha+marked<<(10-dctcpShift)/max(1, d.socket.delivered-d.oldDelivered), dctcpMost)
	}
	d.reset()
}

func (d *dctcp) SSThresh() uint32 {
	d.lossCwnd = d.Cwnd
	return max(d.Cwnd-d.Cwnd*d.alpha>>11, 2)
}

func (d *dctcp) reactToLoss() {
	d.lossCwnd = d.Cwnd
	d.Ssthresh = max(d.Cwnd>>1, 2)
}

func (d *dctcp) SetState(ca uint8) {
	if ca == caRecovery && d.CAState != caRecovery {
		d.reactToLoss()
	}
}

func (d *dctcp) CwndEvent(event int) {
	if event == eventLoss {
		d.reactToLoss()
	}
}

func (d *dctcp) UndoCwnd() uint32 { return max(d.Cwnd, d.lossCwnd) }
