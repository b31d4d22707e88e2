// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

// link is one direction of a link, as the lab makes it of qdiscs: loss, then delay, then the queue and the rate. The
// order of packets on it is known when they enter. So is therefore when each of them leaves, and whether there is
// room in the queue when it gets there: one timer for each link is enough, and one thing that happens for each packet.
type link struct {
	rate     uint64 // bit/s; 0: unlimited
	delay    int64
	jitter   int64
	overtake bool   // packets that are delayed by less overtake others
	loss     uint64 // a packet is lost if a random number is below it
	certain  bool   // all are lost
	down     bool
	limit    int // of the queue, in packets or in bytes
	inBytes  bool
	tokens   bool  // the rate is tbf's: a change of it is felt by packets that wait already
	bucket   int64 // in time: what tbf may catch up of the rate
	holds    bool  // the sockets of a host wait for room in the queue, instead of losing packets to it
	red      *red
	manager  manager // of the queue; nil: packets are dropped where it is full
	sending  bool    // the first packet has left the queue of a manager, and is not through yet

	random *rand.PCG // of loss and jitter
	timer  int32

	// Packets on the link, in the order in which they leave: a ring from first on. Those from queued on will still be
	// in the queue at the time of the last packet that came there.
	ring          []flight
	first, queued uint32
	end           uint32
	waiting       int // packets in the queue at that time
	backlog       int // and bytes
	latest        int64
	free          int64 // when the last packet will have left the queue
	empty         int64 // when tbf\'s bucket would have been empty, had it filled at the rate since
	lastSize      uint16
	lastTime      int64

	entered, left, lost, dropped, marked uint64

	name  string
	shape scenario.Shape
}

// flight is a packet on a link, with what links need to know of it: most of its way they need not look at it.
type flight struct {
	out    int64 // when it leaves
	packet int32
	hop    int32 // the place in hops of this link
	size   uint16
}

// threshold returns the number below which a random one of 64 bits is with that chance.
func threshold(chance float64) (below uint64, certain bool) {
	if chance >= 1 {
		return 0, true
	}
	return uint64(chance * (1 << 32) * (1 << 32)), false
}

// reshape gives the link other qualities.
func (l *link) reshape(s scenario.Shape) {
	l.shape = s
	l.delay, l.jitter = int64(s.Delay), int64(s.Jitter)
	l.loss, l.certain = threshold(float64(s.Loss) / 100)
	l.rate, l.lastSize = uint64(s.Rate), 0
}

// frame is a full Ethernet frame.
const frame = 1514

// defaultQueue is what the lab has where no queue is given, in packets.
const defaultQueue = 100

// queue gives the link the shape's queue.
func (l *link) queue(s scenario.Shape) {
	switch {
	case s.Queue.RED != nil:
		l.red = newRED(s.Queue.RED.For(s.Rate))
		l.tokens = true
		l.limit, l.inBytes = 4*l.red.end*frame, true
	case s.Queue.Bytes > 0:
		l.limit, l.inBytes, l.tokens = int(s.Queue.Bytes), true, true
	case s.Queue.Packets > 0:
		l.limit = s.Queue.Packets
		l.tokens = l.manager != nil
	default:
		l.limit = defaultQueue
	}
	l.fill(0)
}

func (l *link) at(place uint32) *flight { return &l.ring[place&uint32(len(l.ring)-1)] }

// chance draws whether something happens that has the chance.
func chance(random *rand.PCG, below uint64, certain bool) bool {
	return certain || below > 0 && random.Uint64() < below
}

// enter puts a packet on a link, which is at that place in hops. It comes there late by some time.
func (s *Simulation) enter(number, packet, hop int32, size uint16, late int64) {
	l := &s.links[number]
	l.entered++
	if l.down || chance(l.random, l.loss, l.certain) {
		l.lost++
		s.drop(packet)
		return
	}
	at := s.now + l.delay + late
	if l.jitter > 0 {
		at += s.jitter(l)
	}
	if !l.overtake {
		at = max(at, l.latest)
		l.latest = at
	}
	out := at
	if l.rate > 0 && l.manager == nil {
		for l.queued != l.end {
			f := l.at(l.queued)
			if f.out > at {
				break
			}
			l.queued++
			l.waiting--
			l.backlog -= int(f.size)
		}
		if !l.takes(&s.packets[packet], int(size)) {
			s.refuse(l, packet)
			return
		}
		if size != l.lastSize {
			l.lastSize, l.lastTime = size, frameTime(size, l.rate)
		}
		out = l.serve(at, l.lastTime)
		l.waiting++
		l.backlog += int(size)
	}
	l.push(flight{out, packet, hop, size})
	if l.at(l.first).packet == packet && !l.sending {
		s.set(l.timer, out)
	}
}

// serve returns when a packet leaves the queue that comes there at a time: when it is through, or, where tbf makes the
// rate, when there are tokens for it.
func (l *link) serve(at, took int64) int64 {
	if l.tokens {
		l.free = max(at, l.free, l.empty+took)
		l.empty = max(l.empty, l.free-l.bucket) + took
	} else {
		l.free = max(at, l.free) + took
	}
	return l.free
}

// fill fills tbf's bucket, of 50 ms, or 1 ms where the queue has a manager, and at least two frames, as the lab asks for.
func (l *link) fill(now int64) {
	if !l.tokens {
		return
	}
	l.bucket = int64(50 * time.Millisecond)
	if l.manager != nil {
		l.bucket = int64(time.Millisecond)
	}
	l.bucket = max(l.bucket, 2*frameTime(frame, l.rate))
	l.empty = now - l.bucket
}

// frameTime returns how long a frame takes at a rate, in whole nanoseconds.
func frameTime(size uint16, rate uint64) int64 {
	return int64((uint64(size)*8*uint64(time.Second) + rate/2) / rate)
}

// jitter draws by how much a delay differs, evenly by as much either way.
func (s *Simulation) jitter(l *link) int64 {
	high, _ := bits.Mul64(l.random.Uint64(), uint64(2*l.jitter+1))
	return int64(high) - l.jitter
}

// takes says whether the queue takes a packet, which it may mark.
func (l *link) takes(p *packet, size int) bool {
	if l.red != nil {
		passes, marks := l.red.takes(l.backlog, p.ecn&ecnCapable != 0)
		if l.marked += marks; marks > 0 {
			p.ecn |= ecnMarked
		}
		if !passes {
			return false
		}
	}
	if l.inBytes {
		return l.backlog+size <= l.limit
	}
	return l.waiting < l.limit
}

// push puts a flight where it belongs in the order of leaving.
func (l *link) push(f flight) {
	if l.end-l.first == uint32(len(l.ring)) {
		l.grow()
	}
	place := l.end
	l.end++
	if l.overtake {
		for ; place != l.first && l.at(place-1).out > f.out; place-- {
			*l.at(place) = *l.at(place - 1)
		}
	}
	*l.at(place) = f
}

func (l *link) grow() {
	ring := make([]flight, max(16, 2*len(l.ring)))
	for i := l.first; i != l.end; i++ {
		ring[i&uint32(len(ring)-1)] = *l.at(i)
	}
	l.ring = ring
}

// leave takes the first packet off a link, and has it go on.
func (s *Simulation) leave(number int32) {
	l := &s.links[number]
	f := *l.at(l.first)
	if l.rate > 0 && l.queued == l.first {
		l.queued++
		l.waiting--
		l.backlog -= int(f.size)
	}
	l.first++
	if l.rate == 0 {
		l.queued = l.first
	}
	if l.first != l.end {
		s.set(l.timer, l.at(l.first).out)
	}
	s.forward(l, f)
}

// forward has a packet go on that has left a link.
func (s *Simulation) forward(l *link, f flight) {
	l.left++
	if l.holds {
		s.released(f.packet)
	}
	s.hopsDone++
	s.pass(f.packet, f.hop+1, f.size, 0)
}

// refuse drops a packet for the sake of a link's queue.
func (s *Simulation) refuse(l *link, packet int32) {
	l.dropped++
	if l.holds {
		s.released(packet)
	}
	s.drop(packet)
}

// change gives a link other qualities while packets are on it. Those that wait for a rate of tbf's leave at the new
// one; netem has set when they leave.
func (s *Simulation) change(number int32, to scenario.Shape) {
	l := &s.links[number]
	before := l.rate
	l.reshape(to)
	if !l.tokens || l.rate == before {
		return
	}
	l.free = s.now
	l.fill(s.now)
	if l.first == l.end {
		return
	}
	if l.manager != nil {
		if l.sending {
			s.set(l.timer, l.serve(s.now, frameTime(l.at(l.first).size, l.rate)))
		}
		return
	}
	for i := l.first; i != l.end; i++ {
		f := l.at(i)
		f.out = l.serve(s.now, frameTime(f.size, l.rate)) // all are in the queue: the delay is another link's
	}
	s.set(l.timer, l.at(l.first).out)
}

// takeDown loses all packets on a link, and all that enter it until it is up again.
func (s *Simulation) takeDown(number int32) {
	l := &s.links[number]
	l.down = true
	for ; l.first != l.end; l.first++ {
		l.lost++
		packet := l.at(l.first).packet
		if l.holds {
			s.released(packet)
		}
		s.drop(packet)
	}
	l.queued, l.waiting, l.backlog, l.free, l.sending = l.end, 0, 0, s.now, false
	l.fill(s.now)
	s.stop(l.timer)
}
