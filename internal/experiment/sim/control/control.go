// SPDX-License-Identifier: Apache-2.0

// Package control runs mpcc's congestion controls and packet schedulers for the sockets of a simulation: the very
// programs that a kernel runs, by package bytecode. A socket is memory that looks to them as a kernel's struct tcp_sock
// does, with its connection and its siblings around it.
//
// It is otherwise than in a kernel in that a socket's tcp_mstamp is the time of its last callback, also where the kernel's
// would be that of a segment sent since, that all sockets are in one network namespace, and that they are established
// until State.Closing says that they are on their way out.
package control

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/bytecode"
	"github.com/mpcc/mpcc/loader"
)

// State is what congestion controls read of a socket, and what they write: Cwnd, CwndCnt, Ssthresh, PacingRate and
// PacingStatus. The fields have the kernel's units and, where nothing is said, the meaning of those of their name in
// struct tcp_sock and what is in there. Siblings are read as their State is at that moment.
type State struct {
	Cwnd, CwndCnt, CwndClamp uint32 // packets
	Ssthresh                 uint32 // packets; 0x7fffffff before the first loss
	PriorCwnd, PriorSsthresh uint32 // packets; what an undo goes back to, PriorSsthresh 0 where it goes back to nothing

	SrttUs    uint32 // times 8
	MdevUs    uint32 // times 4
	RttvarUs  uint32 // times 4
	MinRttUs  uint32 // of rtt_min; ^0 without a sample
	RackRttUs uint32 // the newest sample

	PacketsOut, SackedOut, LostOut, RetransOut, MaxPacketsOut uint32
	TotalRetrans                                              uint32 // segments
	RateDelivered, RateIntervalUs                             uint32
	BytesSent, BytesAcked, BytesReceived, BytesRetrans        uint64

	MSS                                   uint32
	SndUna, SndNxt, WriteSeq, HighSeq     uint32
	SndWnd                                uint32 // bytes
	CAState                               uint8  // TCP_CA_Open and so on; the old one while SetState runs
	Backoff                               uint8  // timeouts in a row
	CwndLimited                           bool
	PacingRate                            uint64 // bytes per second
	PacingStatus                          uint32 // 0: the socket does not pace
	GSOMaxSize                            uint32 // bytes
	Backup, RequestBackup, Stale, Closing bool

	// Interface is the number of the interface that the socket sends through, Peer that of the remote address. Both are
	// read once, by Subflow.
	Interface, Peer uint32
}

// Algorithm is a congestion control with its tunables, for the sockets of one simulation. It is for one goroutine at a
// time.
type Algorithm struct {
	kernel
	clock func() uint64

	init, release, congAvoid, ssthresh, pktsAcked, setState, cwndEvent, undoCwnd, inAck *bytecode.Program

	sock    sockFields
	subflow subflowFields
	conn    connectionFields
	sample  sampleFields

	context, ackSample uint64 // addresses of the programs' arguments
	ops                uint64 // address of the table that all sockets have
	opsSize, opsName   uint32
	sockets            map[uint64]*Subflow
	current            *Subflow // whose callback runs
	tokens             uint32
	// The addresses of structs whose sockets were released.
	freeSockets, freeSubflows, freeConnections []uint64
}

// Load returns the algorithm of the catalog with this name. The clock gives the simulation's time in nanoseconds, and
// random what programs that draw numbers get. The error wraps loader.ErrUsage if the algorithm has no such tunable.
func Load(name string, tunables map[string]string, clock func() uint64, random func() uint32) (*Algorithm, error) {
	spec, err := specOf(catalog.CC, name, tunables)
	if err != nil {
		return nil, err
	}
	return load(spec, name, clock, random, false)
}

func specOf(kind catalog.Kind, name string, tunables map[string]string) (*ebpf.CollectionSpec, error) {
	e, err := catalog.Find(string(kind) + "/" + name)
	if err != nil {
		return nil, err
	}
	return loader.Spec(e, tunables)
}

func load(spec *ebpf.CollectionSpec, name string, clock func() uint64, random func() uint32, interpret bool) (*Algorithm, error) {
	a := &Algorithm{kernel: newKernel(name), clock: clock, sockets: map[uint64]*Subflow{}}
	if err := a.readLayouts(spec.Types); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	o := bytecode.Options{
		Helpers: map[asm.BuiltinFunc]bytecode.Function{
			asm.FnSetsockopt:    {Arguments: 5, Call: a.setsockopt},
			asm.FnKtimeGetNs:    {Call: func(_, _, _, _, _ uint64) uint64 { return clock() }},
			asm.FnGetPrandomU32: {Call: func(_, _, _, _, _ uint64) uint64 { return uint64(random()) }},
		},
		Functions: map[string]bytecode.Function{
			"tcp_slow_start":     {Arguments: 2, Call: a.slowStart},
			"tcp_reno_undo_cwnd": {Arguments: 1, Call: a.renoUndo},
		},
		Interpret: interpret,
	}
	var sock *btf.Struct
	if err := spec.Types.TypeByName("tcp_sock", &sock); err == nil {
		id, err := spec.Types.TypeID(sock)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		o.Watch = &bytecode.Watch{Type: id, Call: a.refresh}
	}
	var err error
	if a.m, err = bytecode.New(spec, o); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := a.findPrograms(spec); err != nil {
		a.m.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	a.shareMemory()
	return a, nil
}

// findPrograms finds the members of the algorithm's table.
func (a *Algorithm) findPrograms(spec *ebpf.CollectionSpec) error {
	members := map[string]**bytecode.Program{
		"init": &a.init, "release": &a.release, "cong_avoid": &a.congAvoid, "ssthresh": &a.ssthresh,
		"pkts_acked": &a.pktsAcked, "set_state": &a.setState, "cwnd_event": &a.cwndEvent, "undo_cwnd": &a.undoCwnd,
		"in_ack_event": &a.inAck,
	}
	const table = "tcp_congestion_ops:"
	for name, p := range spec.Programs {
		if p.Type != ebpf.StructOps {
			continue
		}
		if len(p.AttachTo) < len(table) || p.AttachTo[:len(table)] != table {
			return fmt.Errorf("program %s is for %s, which is no congestion control", name, p.AttachTo)
		}
		member := p.AttachTo[len(table):]
		of, ok := members[member]
		if !ok {
			return fmt.Errorf("its callback %s is not simulated", member)
		}
		var err error
		if *of, err = a.m.Program(name); err != nil {
			return err
		}
	}
	if a.congAvoid == nil || a.ssthresh == nil || a.undoCwnd == nil {
		return fmt.Errorf("it lacks one of cong_avoid, ssthresh and undo_cwnd")
	}
	return nil
}

// Connection is one MPTCP connection. Its subflows see each other.
type Connection struct {
	a       *Algorithm
	token   uint32
	address uint64     // while it has subflows
	list    []*Subflow // in the order of the kernel's list
	ids     uint32
}

// Connection returns a connection without subflows. It takes memory only while it has some.
func (a *Algorithm) Connection() *Connection {
	a.tokens++
	return &Connection{a: a, token: a.tokens}
}

// link writes the kernel's list anew.
func (c *Connection) link() {
	a := c.a
	at := c.address + uint64(a.conn.list)
	for _, s := range c.list {
		next := s.context + uint64(a.subflow.node)
		binary.LittleEndian.PutUint64(a.at(at, 8), next)
		at = next
	}
	binary.LittleEndian.PutUint64(a.at(at, 8), c.address+uint64(a.conn.list))
}

// Subflow is one socket.
type Subflow struct {
	a       *Algorithm
	c       *Connection // nil: it is TCP, not MPTCP
	state   *State
	sock    uint64 // address of its struct tcp_sock
	context uint64 // address of its struct mptcp_subflow_context, if it is MPTCP's
	handed  string
}

// Subflow adds an established subflow to the connection. Its State stays the caller's: callbacks read and write it.
func (c *Connection) Subflow(state *State) (*Subflow, error) {
	a := c.a
	if len(c.list) == 0 {
		c.address = a.take(&a.freeConnections, a.conn.size)
		binary.LittleEndian.PutUint32(a.at(c.address, a.conn.size)[a.conn.token:], c.token)
	}
	s := a.newSocket(state, c)
	c.ids++
	binary.LittleEndian.PutUint32(a.at(s.context, a.subflow.size)[a.subflow.id:], c.ids)
	c.list = append(c.list, s)
	c.link()
	return s, s.start()
}

// Socket returns a socket that is TCP, not MPTCP. The algorithm may hand it over to another congestion control.
func (a *Algorithm) Socket(state *State) (*Subflow, error) {
	s := a.newSocket(state, nil)
	return s, s.start()
}

// HandedTo is the name of the kernel's congestion control that the algorithm has given the socket to, "" if it has not.
// Callbacks then do nothing.
func (s *Subflow) HandedTo() string { return s.handed }

func (s *Subflow) start() error {
	if s.a.err == nil {
		s.run(s.a.init, 0, 0)
	}
	return s.a.err
}

// Release takes the socket out of its connection. No other callback may follow.
func (s *Subflow) Release() {
	a, c := s.a, s.c
	s.run(a.release, 0, 0)
	delete(a.sockets, s.sock)
	a.freeSockets = append(a.freeSockets, s.sock)
	if c == nil {
		return
	}
	c.list = slices.DeleteFunc(c.list, func(other *Subflow) bool { return other == s })
	c.link()
	a.freeSubflows = append(a.freeSubflows, s.context)
	if len(c.list) == 0 {
		a.freeConnections = append(a.freeConnections, c.address)
	}
}

// CongAvoid is for an ACK of so many segments, up to the byte ack, that may raise the window.
func (s *Subflow) CongAvoid(ack, acked uint32) { s.run(s.a.congAvoid, uint64(ack), uint64(acked)) }

// SSThresh is for a loss event. It returns the window to come down to.
func (s *Subflow) SSThresh() uint32 { return uint32(s.run(s.a.ssthresh, 0, 0)) }

// SetState is called before State.CAState becomes this.
func (s *Subflow) SetState(ca uint8) { s.run(s.a.setState, uint64(ca), 0) }

// CwndEvent has the numbers of the kernel's enum tcp_ca_event.
func (s *Subflow) CwndEvent(event int) { s.run(s.a.cwndEvent, uint64(event), 0) }

// UndoCwnd is for a loss event that was none. It returns the window to go back to.
func (s *Subflow) UndoCwnd() uint32 { return uint32(s.run(s.a.undoCwnd, 0, 0)) }

// InAck is for every ACK, with the flags of the kernel's enum tcp_ca_ack_event_flags.
func (s *Subflow) InAck(flags uint32) { s.run(s.a.inAck, uint64(flags), 0) }

// PktsAcked is for an ACK of so many segments, before the window is raised. An RTT below 0 is none.
func (s *Subflow) PktsAcked(acked uint32, rttUs int32, inFlight uint32) {
	a := s.a
	if a.pktsAcked == nil {
		return
	}
	b := a.at(a.ackSample, a.sample.size)
	binary.LittleEndian.PutUint32(b[a.sample.acked:], acked)
	binary.LittleEndian.PutUint32(b[a.sample.rttUs:], uint32(rttUs))
	binary.LittleEndian.PutUint32(b[a.sample.inFlight:], inFlight)
	s.run(a.pktsAcked, a.ackSample, 0)
}

// run runs a callback of the socket, if the algorithm has it.
func (s *Subflow) run(p *bytecode.Program, second, third uint64) uint64 {
	a := s.a
	if p == nil || a.err != nil || s.handed != "" {
		return 0
	}
	a.current = s
	args := a.at(a.context, 24)
	binary.LittleEndian.PutUint64(args, s.sock)
	binary.LittleEndian.PutUint64(args[8:], second)
	binary.LittleEndian.PutUint64(args[16:], third)
	b := a.at(s.sock, a.sock.size)
	s.write(b)
	binary.LittleEndian.PutUint64(b[a.sock.mstamp:], a.clock()/1000)
	result, err := p.Run(a.context)
	if err != nil {
		a.err = fmt.Errorf("%s: %w", a.name, err)
		return 0
	}
	s.read(a.at(s.sock, a.sock.size))
	return result
}

// refresh is called when a program begins to read a socket: a sibling's, whose state may have changed since its last
// callback, or its own, which it may have changed itself.
func (a *Algorithm) refresh(address uint64) {
	s := a.sockets[address]
	if s != nil && s != a.current {
		s.write(a.at(s.sock, a.sock.size))
	}
}

// setsockopt lets a program give a socket to another congestion control.
func (a *Algorithm) setsockopt(sock, level, name, value, size uint64) uint64 {
	if int32(level) != unix.IPPROTO_TCP || int32(name) != unix.TCP_CONGESTION || sock != a.current.sock || size > 16 {
		return ^uint64(unix.EINVAL) + 1
	}
	a.current.handed = unix.ByteSliceToString(a.m.Bytes(value, size))
	return 0
}

// slowStart is the kernel's tcp_slow_start (net/ipv4/tcp_cong.c): the window grows by what was acknowledged, up to
// ssthresh. It returns what is left of that.
func (a *Algorithm) slowStart(sock, acked, _, _, _ uint64) uint64 {
	b := a.at(sock, a.sock.size)
	cwnd, ssthresh := binary.LittleEndian.Uint32(b[a.sock.cwnd:]), binary.LittleEndian.Uint32(b[a.sock.ssthresh:])
	grown := min(cwnd+uint32(acked), ssthresh)
	left := uint32(acked) - (grown - cwnd)
	binary.LittleEndian.PutUint32(b[a.sock.cwnd:], min(grown, binary.LittleEndian.Uint32(b[a.sock.cwndClamp:])))
	return uint64(left)
}

// renoUndo is the kernel's tcp_reno_undo_cwnd.
func (a *Algorithm) renoUndo(sock, _, _, _, _ uint64) uint64 {
	cwnd := binary.LittleEndian.Uint32(a.at(sock, a.sock.size)[a.sock.cwnd:])
	return uint64(max(cwnd, a.current.state.PriorCwnd))
}
