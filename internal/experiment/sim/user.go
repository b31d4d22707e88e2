// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

// User is one user of a class: what package traffic makes of it over the kernel's sockets.
type User struct {
	Class  *scenario.Class
	Member scenario.Member
	Number int // in its class

	sim           *Simulation
	index         int
	up            bool // the side that opens connections sends
	multipath     bool
	local, remote place
	random        *rand.Rand // of bursts
	timer, turns  int32

	conn      *connection // the present one
	begun     bool
	bytes     uint64 // of content, in order at the receiver
	active    time.Duration
	since     int64 // -1 while there is nothing to transfer
	transfers []Transfer
	subflows  []*Subflow
	ended     bool

	ecn    bool // its connections ask for congestion notification
	gated  bool // content comes at a rate
	on     bool
	due    int64 // when the next part may be sent
	path   int32 // of datagrams
	again  uint64
	waited uint64
}

// Transfer is one file.
type Transfer struct {
	Start time.Duration
	Bytes uint64
	Took  time.Duration // 0: not complete
}

// Subflow is what a user's sockets between two addresses have done: one after the other, where each file has a
// connection of its own.
type Subflow struct {
	ID        int
	Interface string // on the user's side

	local, remote place
	holds         bool // packets leave by a queue of the host's own that its sockets wait for
	sum           Tally
	socket        *socket // nil: none at present
}

// Tally holds the sender's counters.
type Tally struct {
	Sent, Acked, Delivered, Retransmitted uint64 // bytes, bytes, packets, packets
}

func (t Tally) plus(o Tally) Tally {
	return Tally{t.Sent + o.Sent, t.Acked + o.Acked, t.Delivered + o.Delivered, t.Retransmitted + o.Retransmitted}
}

// Tally returns the counters of all connections.
func (f *Subflow) Tally() Tally {
	if f.socket == nil {
		return f.sum
	}
	return f.sum.plus(f.socket.tally())
}

func (k *socket) tally() Tally {
	return Tally{k.BytesSent, k.BytesAcked, uint64(k.delivered), uint64(k.TotalRetrans)}
}

// State is what a subflow's socket shows of itself.
type State struct {
	Cwnd, Ssthresh uint32 // packets
	SRTT           time.Duration
	Rate           float64 // of delivery, bit/s
}

// State returns the state of the subflow's socket, false if it has none that is established.
func (f *Subflow) State() (State, bool) {
	k := f.socket
	if k == nil || !k.established {
		return State{}, false
	}
	s := State{Cwnd: k.Cwnd, Ssthresh: k.Ssthresh, SRTT: time.Duration(k.SrttUs>>3) * time.Microsecond}
	if k.RateIntervalUs > 0 {
		s.Rate = float64(uint64(k.RateDelivered)*uint64(k.MSS)*8*1e6) / float64(k.RateIntervalUs)
	}
	return s, true
}

// Infinite is the slow start threshold of a subflow that has not lost anything yet.
const Infinite = infiniteSsthresh

func (f *Subflow) close(k *socket) {
	if f.socket == k {
		f.sum = f.sum.plus(k.tally())
		f.socket = nil
	}
}

// subflow returns the user's subflow that a socket is of.
func (u *User) subflow(k *socket, local, remote place) *Subflow {
	for _, f := range u.subflows {
		if f.local == local && f.remote == remote && f.socket == nil {
			f.socket = k
			return f
		}
	}
	d := &u.sim.network.sides[local.at.Node][local.at.End]
	f := &Subflow{ID: len(u.subflows) + 1, Interface: d.iface, local: local, remote: remote, socket: k}
	if first := u.sim.hops[k.there]; first != arrived {
		f.holds = u.sim.links[first].holds
	}
	u.subflows = append(u.subflows, f)
	return f
}

// Bytes returns how much content the receiver has got, in order.
func (u *User) Bytes() uint64 { return u.bytes }

// Active returns how long there was something to transfer.
func (u *User) Active() time.Duration {
	if u.since < 0 {
		return u.active
	}
	return u.active + time.Duration(u.sim.now-u.since)
}

// Transfers returns the files so far.
func (u *User) Transfers() []Transfer { return u.transfers }

// Subflows returns the subflows so far, in the order in which they were opened.
func (u *User) Subflows() []*Subflow { return u.subflows }

// Again returns how many bytes were sent again on another subflow.
func (u *User) Again() uint64 {
	if u.conn == nil {
		return u.again
	}
	return u.again + u.conn.again
}

// OutOfOrder returns how many packets have waited in the receiver's queue of MPTCP.
func (u *User) OutOfOrder() uint64 {
	if u.conn == nil {
		return u.waited
	}
	return u.waited + u.conn.outOfOrder
}

// Done says whether all the user's files are complete.
func (u *User) Done() bool { return u.ended }

func (u *User) setActive(on bool) {
	u.active = u.Active()
	u.since = -1
	if on {
		u.since = u.sim.now
	}
}

// part is how much content comes at a time at a rate, and what a datagram has.
const part = 1440

// addUsers makes the users. Their random numbers are those that package run draws for them.
func (s *Simulation) addUsers(plan *scenario.Network) error {
	s.hosts = map[scenario.Name]*scenario.Host{}
	for i := range plan.Hosts {
		s.hosts[plan.Hosts[i].Name] = &plan.Hosts[i]
	}
	random := rand.New(rand.NewPCG(s.seed, 1))
	asks := askForECN(plan)
	for i := range plan.Classes {
		class := &plan.Classes[i]
		if err := s.controls.load(class.User); err != nil {
			return err
		}
		for number, member := range class.Members {
			seed := random.Uint64()
			wait := int64(class.Start.Std()+time.Duration(random.Float64()*float64(class.Within))) + s.delay(len(s.Users))
			u := &User{
				Class: class, Member: member, Number: number, sim: s, index: len(s.Users), up: class.Direction == "up",
				multipath: class.Transport == scenario.OverMPTCP, random: rand.New(rand.NewPCG(seed, 0)), since: -1,
				ecn: asks[member.From],
			}
			u.gated = class.Kind == scenario.TrafficConstant || class.Kind == scenario.TrafficBursts
			from, err := s.network.interfaceOf(member.From, class.Via)
			if err != nil {
				return err
			}
			to, err := s.network.interfaceOf(member.To, class.Peer)
			if err != nil {
				return err
			}
			u.local, u.remote = s.network.place(from, 0), s.network.place(to, 0)
			src, dst := u.local, u.remote
			if !u.up {
				src, dst = dst, src
			}
			var ok bool
			if u.path, ok = s.path(src, dst); !ok {
				return fmt.Errorf("user %s: there is no way from %s to %s", class.Name, member.From, member.To)
			}
			u.timer, u.turns = s.timer(beginning, u.index), s.timer(turning, u.index)
			s.Users = append(s.Users, u)
			s.set(u.timer, wait)
		}
	}
	return nil
}

// delay returns by how much a user begins later than it is to: by up to a tick of the kernel's clock. Without that, all
// repeats of a scenario in which nothing else is random would be one and the same, and seem to be certain.
func (s *Simulation) delay(user int) int64 {
	late, _ := bits.Mul64(s.generator(forStarts, user).Uint64(), jiffy)
	return int64(late)
}

// next begins the user's traffic, its next file, or sends the next part of what comes at a rate.
func (u *User) next() {
	s := u.sim
	switch {
	case u.gated && u.begun:
		u.pass()
		return
	case u.gated:
		u.begun = true
		if u.Class.Transport != scenario.OverUDP {
			u.open(math.MaxUint64)
		}
		u.on = u.Class.On == 0 || u.random.Float64() < float64(u.Class.On)/float64(u.Class.On+u.Class.Off)
		u.enterPhase()
		return
	case finite(u.Class):
		u.transfers = append(u.transfers, Transfer{Start: time.Duration(s.now), Bytes: uint64(u.Class.Size)})
		u.setActive(true)
		u.open(uint64(u.Class.Size))
		return
	}
	u.setActive(true)
	u.open(math.MaxUint64)
}

func finite(class *scenario.Class) bool {
	return class.Kind == scenario.TrafficFile || class.Kind == scenario.TrafficHTTP
}

// open opens a connection.
func (u *User) open(total uint64) {
	u.conn = u.sim.connect(u, total)
	if k := u.sim.newSocket(u.conn, u.local, u.remote, true); k != nil {
		k.openAgain()
	}
}

// complete ends a file, and goes on to the next.
func (u *User) complete() {
	c := u.conn
	if c.closed || !finite(u.Class) {
		return
	}
	t := &u.transfers[len(u.transfers)-1]
	t.Took = time.Duration(u.sim.now) - t.Start
	u.setActive(false)
	u.again += c.again
	u.waited += c.outOfOrder
	c.close()
	u.conn = nil
	if len(u.transfers) < u.Class.Files {
		u.sim.set(u.timer, u.sim.now)
	} else {
		u.ended = true
	}
}

// turn ends a burst, or the silence between two.
func (u *User) turn() {
	u.on = !u.on
	u.enterPhase()
}

func (u *User) enterPhase() {
	s := u.sim
	u.setActive(u.on)
	mean := u.Class.Off
	if u.on {
		mean = u.Class.On
		u.due = s.now
		s.set(u.timer, s.now)
	} else {
		s.stop(u.timer)
	}
	if u.Class.On > 0 {
		s.set(u.turns, s.now+u.pareto(mean.Std()))
	}
}

// pareto draws a length with that mean. It is rounded to microseconds, because math.Pow may differ in its last bit from
// machine to machine.
func (u *User) pareto(mean time.Duration) int64 {
	least := float64(mean) * (u.Class.Alpha - 1) / u.Class.Alpha
	return int64(math.Round(least/math.Pow(1-u.random.Float64(), 1/u.Class.Alpha)/1000)) * 1000
}

// catchUp is how much lost time a sender may make up for, whose socket was full.
const catchUp = int64(20 * time.Millisecond)

// pass lets the next part pass.
func (u *User) pass() {
	s := u.sim
	gap := int64(uint64(part*8) * uint64(time.Second) / uint64(u.Class.Rate))
	if u.Class.Transport == scenario.OverUDP {
		number, p := s.newPacket(u.path)
		p.socket, p.kind, p.size = int32(u.index), datagram, 14+20+8+part
		s.send(number)
	} else if c := u.conn; c.given-c.una < mostBuffer/2 {
		c.given += part
		c.offer()
		for _, k := range c.sockets {
			k.push(false)
		}
	}
	u.due = max(u.due, s.now-catchUp) + gap
	s.set(u.timer, max(u.due, s.now))
}

// datagram takes a datagram at its receiver.
func (u *User) datagram(p *packet) { u.bytes += part }

// ccName returns the kernel's name of a class's congestion control.
func ccName(class *scenario.User) string {
	return strings.TrimPrefix(class.CC, string(catalog.CC)+"/")
}
