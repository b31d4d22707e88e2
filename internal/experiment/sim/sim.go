// SPDX-License-Identifier: Apache-2.0

// Package sim runs a scenario's network in virtual time, packet by packet: what lab and traffic do with the kernel,
// it does alone, with no privileges, and the same to the bit on every machine. docs/simulator.md says what it models
// and what it leaves out.
//
//	s, err := sim.New(run)
//	defer s.Close()
//	err = s.Until(time.Second)
//	for _, u := range s.Users { … u.Count() … }
//	err = s.Check()
//
// Times are whole nanoseconds, those of TCP whole microseconds, as in the kernel.
package sim

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/internal/experiment/sim/control"
)

// Simulation is one run. It is for one goroutine; several run side by side.
type Simulation struct {
	wheel
	Directions []Direction // of links that do anything to packets
	Users      []*User

	seed     uint64
	network  network
	links    []link
	hops     []int32
	packets  []packet
	unused   int32 // the first packet of those that are free; -1: none
	flying   int   // packets that are not
	sockets  []*socket
	free     []*socket
	controls *controls
	hosts    map[scenario.Name]*scenario.Host
	tokens   uint32    // of connections under a packet scheduler
	piece    uint64    // bytes in which MPTCP keeps what is written, and hands it to subflows
	sources  *rand.PCG // of what hosts take to send a packet

	sent, delivered, lost uint64 // packets
	hopsDone              uint64
	digest                uint64
}

// What timers are for.
const (
	leaving       what = iota // the first packet of a link leaves it
	transmitting              // a socket's timer of retransmissions and probes
	acknowledging             // a socket's delayed ACK
	compressing               // a socket's compressed SACKs
	connecting                // a socket's SYN, or the request
	reinjecting               // a connection's timer at the level of data
	beginning                 // a user begins, or goes on
	turning                   // a user's burst begins or ends
)

// New prepares a run.
func New(run scenario.Run) (*Simulation, error) {
	if err := Supports(run.Scenario); err != nil {
		return nil, err
	}
	s := &Simulation{wheel: *newWheel(), seed: run.Seed, unused: -1, network: newNetwork(), digest: fnvBasis, piece: largePiece}
	plan := run.Network()
	s.sources = s.generator(forSources, 0)
	s.build(plan, run.Changes())
	s.controls = &controls{
		sim: s, scenario: run.Scenario, plan: plan, loaded: map[string]*control.Algorithm{}, schedulers: map[string]*control.Scheduler{},
	}
	if err := s.addUsers(plan); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Until goes on to a time since the beginning.
func (s *Simulation) Until(end time.Duration) error {
	for t := s.next(int64(end)); t != nil; t = s.next(int64(end)) {
		switch t.what {
		case leaving:
			if s.links[t.of].manager != nil {
				s.manage(t.of)
			} else {
				s.leave(t.of)
			}
		case transmitting:
			s.sockets[t.of].timeout()
		case acknowledging:
			s.sockets[t.of].delayedAck()
		case compressing:
			s.sockets[t.of].compressedAck()
		case connecting:
			s.sockets[t.of].openAgain()
		case reinjecting:
			s.sockets[t.of].conn.timeout()
		case beginning:
			s.Users[t.of].next()
		case turning:
			s.Users[t.of].turn()
		}
	}
	return s.controls.err
}

// Now returns the time since the beginning.
func (s *Simulation) Now() time.Duration { return time.Duration(s.now) }

func (s *Simulation) micros() int64 { return s.now / 1000 }

// kind is what a packet is.
type kind uint8

const (
	data kind = iota
	ack
	syn
	synAck
	handshake // the third packet of a connection
	joined    // the fourth of a further subflow
	request   // what the user asks for, where the other side sends
	datagram
)

// packet is a packet under way. Packets are numbered, and used again.
type packet struct {
	path      int32 // the place in hops where it begins
	next      int32 // the next free one
	socket    int32 // which it goes to; of a datagram, the user
	size      uint16
	kind      kind
	sacks     uint8 // how many blocks there are
	ecn       uint8
	duplicate bool // the first of them is a D-SACK
	segment   uint32
	ack       uint32 // the next segment that is expected
	stamp     int64  // timestamp, and its echo, in ms
	dataAck   uint64 // the next byte that is expected
	edge      uint64 // and the first behind the window
	blocks    [maxBlocks]block
}

// block is a range of segments, from low to below high.
type block struct{ low, high uint32 }

// maxBlocks is how many blocks of SACK fit into a TCP header beside timestamps.
const maxBlocks = 3

// newPacket returns the number of a packet that is to go a path, and the packet to be filled in.
func (s *Simulation) newPacket(path int32) (int32, *packet) {
	number := s.unused
	if number < 0 {
		number = int32(len(s.packets))
		s.packets = append(s.packets, packet{})
	} else {
		s.unused = s.packets[number].next
	}
	p := &s.packets[number]
	p.path, p.sacks, p.ecn, p.duplicate, p.segment, p.ack = path, 0, 0, false, 0, 0
	return number, p
}

// send sends a packet on its way. It may be gone when send returns.
func (s *Simulation) send(number int32) { s.sendLate(number, 0) }

// sendLate has the packet come later to the first link, but behind what is there already.
func (s *Simulation) sendLate(number int32, late int64) {
	s.sent++
	s.flying++
	p := &s.packets[number]
	s.pass(number, p.path, p.size, late)
}

// pass puts a packet on the link at a place in hops, or delivers it.
func (s *Simulation) pass(number, hop int32, size uint16, late int64) {
	if link := s.hops[hop]; link != arrived {
		s.enter(link, number, hop, size, late)
		return
	}
	p := &s.packets[number]
	s.delivered++
	s.mix(uint64(s.now))
	s.mix(uint64(p.socket)<<40 | uint64(p.kind)<<32 | uint64(p.segment) ^ uint64(p.ack)<<8)
	got := *p
	s.release(number)
	s.deliver(&got)
}

// drop takes a packet away.
func (s *Simulation) drop(number int32) {
	p := &s.packets[number]
	s.lost++
	if p.kind != datagram {
		s.landed(s.sockets[p.socket])
	}
	s.release(number)
}

func (s *Simulation) release(number int32) {
	s.packets[number].next = s.unused
	s.unused = number
	s.flying--
}

func (s *Simulation) deliver(p *packet) {
	if p.kind == datagram {
		s.Users[p.socket].datagram(p)
		return
	}
	k := s.sockets[p.socket]
	if !k.closed {
		switch p.kind {
		case data:
			k.receive(p)
		case ack:
			k.acknowledged(p)
		default:
			k.opens(p)
		}
	}
	s.landed(k)
}

// released gives a host's socket back the room that a packet took in the host's queue.
func (s *Simulation) released(number int32) {
	if p := &s.packets[number]; p.kind == data {
		s.sockets[p.socket].leftHost(int(p.size))
	}
}

// FNV-1a, over all that is delivered and when.
const (
	fnvBasis = 14695981039346656037
	fnvPrime = 1099511628211
)

// mostLate is the most that a host takes to send a packet, also where links are slow.
const mostLate = 500_000

// late draws how long a host takes to send a packet, up to most.
func (s *Simulation) late(most int64) int64 {
	late, _ := bits.Mul64(s.sources.Uint64(), uint64(most))
	return int64(late)
}

func (s *Simulation) mix(v uint64) { s.digest = (s.digest ^ v) * fnvPrime }

// Digest is a number that differs if anything was delivered at another time, or in another order.
func (s *Simulation) Digest() uint64 { return s.digest }

// PacketHops returns how many times a packet has passed a link.
func (s *Simulation) PacketHops() uint64 { return s.hopsDone }

// Check returns an error if packets have come from nowhere or have got lost uncounted: a fault of the simulator.
func (s *Simulation) Check() error {
	var err error
	flying := 0
	for i := range s.links {
		l := &s.links[i]
		on := int(l.end - l.first)
		flying += on
		if l.entered != l.left+l.lost+l.dropped+uint64(on) {
			err = errors.Join(err, fmt.Errorf("link %s: %d packets came, %d left, %d were lost, %d dropped, %d are on it",
				l.name, l.entered, l.left, l.lost, l.dropped, on))
		}
	}
	if s.sent != s.delivered+s.lost+uint64(flying) || flying != s.flying {
		err = errors.Join(err, fmt.Errorf("%d packets were sent, %d delivered, %d lost, %d are on links, %d in use",
			s.sent, s.delivered, s.lost, flying, s.flying))
	}
	for _, k := range s.sockets {
		err = errors.Join(err, k.check())
	}
	if err != nil {
		return fmt.Errorf("the simulator has lost count, at %v of seed %d: %w", s.Now(), s.seed, err)
	}
	return nil
}
