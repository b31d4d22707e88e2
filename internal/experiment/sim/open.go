// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/ways"
)

// opening is how a socket comes to be: SYN, SYN with ACK, ACK, and then either the user's request, where the other
// side sends, or, of a further subflow, one more ACK where the user's side sends (RFC 8684, 3.2).
type opening struct {
	first       bool
	established bool // the sending end may send
	answered    bool // the user's side has got the answer to its SYN
	tries       int
	synAt       int64 // when the first SYN went out, and the first answer to it
	synAckAt    int64
}

// Frames of packets without content.
const (
	synFrame     = 14 + 20 + 20 + tcpSynOptions
	requestBytes = 16
)

// newSocket makes a socket between two addresses; nil if there is no way between them.
func (s *Simulation) newSocket(c *connection, local, remote place, first bool) *socket {
	u := c.user
	from, to := local, remote
	if !u.up {
		from, to = remote, local
	}
	there, ok := s.path(from, to)
	back, okBack := s.path(to, from)
	if !ok || !okBack {
		return nil
	}
	k := s.freeSocket()
	k.sim, k.conn, k.there, k.back, k.lateness = s, c, there, back, min(s.slowest(there), mostLate)
	k.first, k.ecn = first, u.ecn
	k.MSS = mssTCP
	if c.multipath {
		k.MSS = SubflowMSS
		if u.up {
			k.MSS += dssUnheard
		}
	}
	k.state.CwndClamp, k.Ssthresh, k.Cwnd = ^uint32(0), infiniteSsthresh, initialWindow
	k.MinRttUs, k.GSOMaxSize, k.SndWnd = noMinRTT, mostGSO, 1<<30
	k.Interface, k.Peer = s.network.number(from.at), uint32(to.address)
	k.tlpHigh, k.undoMarker, k.oldest, k.newest = none, none, none, none
	k.rto, k.reordering, k.rack.steps = firstRTO, dupThresh, 1
	k.window = min(c.window, firstWindow)
	k.cc = reno{&k.state}
	k.of = u.subflow(k, local, remote)
	if size := int(u.Class.SendBuffer); size > 0 {
		k.buffer, k.locked = 2*size, true
	}
	c.sockets = append(c.sockets, k)
	return k
}

// freeSocket returns a socket that is not used any more, or a new one.
func (s *Simulation) freeSocket() *socket {
	if n := len(s.free); n > 0 {
		old := s.free[n-1]
		s.free = s.free[:n-1]
		*old = socket{
			number: old.number, transmit: old.transmit, ackTimer: old.ackTimer, compressTime: old.compressTime, openTimer: old.openTimer,
			sender: sender{segments: old.segments}, receiver: receiver{late: old.late[:0], sacks: old.sacks[:0]},
		}
		return old
	}
	n := len(s.sockets)
	k := &socket{
		number: n, transmit: s.timer(transmitting, n), ackTimer: s.timer(acknowledging, n),
		compressTime: s.timer(compressing, n), openTimer: s.timer(connecting, n),
	}
	s.sockets = append(s.sockets, k)
	return k
}

// userPath returns the path of packets of the user's side.
func (k *socket) userPath() int32 {
	if k.conn.user.up {
		return k.there
	}
	return k.back
}

func (k *socket) peerPath() int32 {
	if k.conn.user.up {
		return k.back
	}
	return k.there
}

func (k *socket) signal(path int32, kind kind, size int) {
	k.flying++
	number, p := k.sim.newPacket(path)
	p.socket, p.kind, p.size = int32(k.number), kind, uint16(size)
	k.sim.send(number)
}

// openAgain begins, or tries again after a while: tcp_syn_retries, with a first timeout of a second.
func (k *socket) openAgain() {
	if k.closed || k.established {
		return
	}
	wait := firstRTO
	switch {
	case !k.answered:
		if k.tries == 0 {
			k.synAt = k.sim.now
		}
		k.signal(k.userPath(), syn, synFrame)
	case k.first:
		wait = k.rto
		k.signal(k.userPath(), request, headers+requestBytes)
	default:
		k.signal(k.userPath(), handshake, headers)
	}
	k.sim.set(k.openTimer, k.sim.expiry(k.sim.jiffies()+min(mostRTO, wait<<min(k.tries, 7))))
	k.tries++
}

// opens is for the packets of the handshake.
func (k *socket) opens(p *packet) {
	s := k.sim
	up := k.conn.user.up
	switch p.kind {
	case syn:
		if k.synAckAt == 0 {
			k.synAckAt = s.now
		}
		k.signal(k.peerPath(), synAck, synFrame)
	case synAck:
		if k.answered {
			k.signal(k.userPath(), handshake, headers)
			return
		}
		k.answered = true
		once := k.tries == 1
		k.tries = 0
		if once {
			k.estimate((s.now - k.synAt) / 1000)
		}
		k.signal(k.userPath(), handshake, headers)
		if up && k.first {
			k.establish()
			return
		}
		if !k.first {
			k.tries = 1
			s.set(k.openTimer, s.expiry(s.jiffies()+firstRTO))
			return
		}
		k.openAgain()
	case handshake:
		switch {
		case k.established:
		case !up: // at the side that sends
			if k.synAckAt > 0 {
				k.SrttUs = 0
				k.estimate((s.now - k.synAckAt) / 1000)
			}
			if !k.first {
				k.establish()
			}
		case !k.first: // the last ACK of a further subflow whose user sends
			k.signal(k.peerPath(), joined, headers)
		}
	case joined:
		if !k.established {
			k.establish()
		}
	case request:
		if !k.established {
			k.establish()
		}
	}
}

// establish lets the sending end send: tcp_init_transfer.
func (k *socket) establish() {
	s := k.sim
	s.stop(k.openTimer)
	k.established = true
	k.MinRttUs = noMinRTT
	if k.SrttUs > 0 {
		k.MinRttUs = k.minRTT.update(s.now, k.SrttUs>>3)
	}
	k.cwndStamp, k.lastSend = s.jiffies(), s.jiffies()
	if !k.locked {
		k.grow()
	}
	k.updatePacing()
	s.controls.attach(k)
	k.conn.addLane(k)
	k.conn.offer()
	k.push(false)
}

// join opens the connection's further subflows, once data or an ACK have shown that the peer speaks MPTCP: as the
// kernel's own path manager does (net/mptcp/pm_netlink.c), by the endpoints and limits of the two hosts.
func (c *connection) join() {
	if c.joined || !c.multipath {
		return
	}
	c.joined = true
	s, u := c.sim, c.user
	own, peer := s.hosts[u.Member.From], s.hosts[u.Member.To]
	left := min(own.MPTCP.Subflows, peer.MPTCP.Subflows)
	open := func(local, remote place, backup bool, wait int64) {
		if left == 0 || local == u.local && remote == u.remote {
			return
		}
		for _, k := range c.sockets {
			if k.of.local == local && k.of.remote == remote {
				return
			}
		}
		if k := s.newSocket(c, local, remote, false); k != nil {
			left--
			k.Backup, k.RequestBackup = backup, backup
			s.set(k.openTimer, s.now+wait)
		}
	}
	endpoints := func(h *scenario.Host, flag string, each func(at place, flags []string)) {
		for _, e := range h.MPTCP.Endpoints {
			at, err := s.network.interfaceOf(h.Name, e.Link)
			if err != nil || !slices.Contains(e.Flags, flag) {
				continue
			}
			for i := range e.Addresses {
				each(s.network.place(at, i), e.Flags)
			}
		}
	}
	endpoints(own, "subflow", func(at place, flags []string) { open(at, u.remote, slices.Contains(flags, "backup"), 0) })
	// Each address is announced when the one before was acknowledged.
	wait := int64(0)
	accepted := 0
	endpoints(peer, "signal", func(at place, _ []string) {
		if at == u.remote || accepted == own.MPTCP.AddAddrAccepted {
			return
		}
		accepted++
		wait += int64(c.sockets[0].SrttUs>>3) * 1000
		meshed := false
		endpoints(own, "fullmesh", func(local place, flags []string) {
			meshed = true
			open(local, at, slices.Contains(flags, "backup"), wait)
		})
		if !meshed {
			if local, ok := s.network.routed(s.network.places[u.Member.From], at); ok {
				open(local, at, false, wait)
			}
		}
	})
}

// routed returns the address with which a host sends to another where none is asked for: that of the first link on
// the way.
func (n *network) routed(host int, to place) (place, bool) {
	best := n.ways(to.at).Best(host)
	if len(best) == 0 {
		return place{}, false
	}
	return n.place(ways.End{Node: host, End: best[0]}, 0), true
}

// number returns a number for each end of the network.
func (n *network) number(at ways.End) uint32 { return uint32(at.Node)<<8 | uint32(at.End) + 1 }

// landed is called when a packet of a socket is under way no more.
func (s *Simulation) landed(k *socket) {
	k.flying--
	if k.closed && k.flying == 0 {
		s.free = append(s.free, k)
	}
}

// close ends a socket.
func (k *socket) close() {
	if k.closed {
		return
	}
	k.closed = true
	k.of.close(k)
	k.cc.Release()
	for _, t := range []int32{k.transmit, k.ackTimer, k.compressTime, k.openTimer} {
		k.sim.stop(t)
	}
	if k.flying == 0 {
		k.sim.free = append(k.sim.free, k)
	}
}
