// SPDX-License-Identifier: Apache-2.0

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
)

// Lane is one subflow of a connection, as packet schedulers see it.
type Lane struct {
	*State
	Queued, Buffer int32                 // bytes: sk_wmem_queued, sk_sndbuf
	Timer          uint64                // jiffies; when its timer of retransmissions and probes goes off, 0: none runs
	LeastRTO       uint32                // jiffies; read once
	StaleCount     uint8                 // timeouts of the connection's in which it has made no progress
	Active         func() bool           // mptcp_subflow_active: whether it may carry data; may change Stale
	Carries        func(seq uint64) bool // mptcp_xsched_carries: has a byte of the connection that was not acknowledged to it
	Scheduled      bool                  // the scheduler has chosen it; the caller takes that away when it has sent
	sock, context  uint64
}

// Stream is an MPTCP connection under a packet scheduler, with the kernel's names of struct mptcp_sock. Before Send and
// Retransmit the caller brings it and its lanes up to date. Schedulers write Burst and Timeout.
type Stream struct {
	Una, Nxt       uint64           // the first byte that is not acknowledged, the first that was never sent
	Next           uint64           // the next that is to be sent: below Nxt while data are sent again
	Piece          uint16           // bytes from Next on that are handed to one subflow
	Written        uint64           // behind the last that the application has written
	WndEnd         uint64           // the first behind the peer's window
	Burst          int32            // bytes that those chosen may send
	Timeout        uint64           // jiffies; timer_ival
	Queued, Buffer int32            // bytes
	Needed         uint64           // bytes of buffer that the scheduler has last asked for; schedulers write it
	Resend         func() bool      // __mptcp_retransmit_pending_data
	ResendOf       func(*Lane) bool // mptcp_xsched_resend_of

	s       *Scheduler
	lanes   []*Lane
	ids     uint32
	address uint64
}

// Scheduler is a packet scheduler with its tunables, for the connections of one simulation. It is for one goroutine at a
// time.
type Scheduler struct {
	kernel
	send, retransmit, init, release *bytecode.Program

	sock    laneSockFields
	subflow laneFields
	stream  streamFields
	frag    fragFields
	pair    pairFields

	context uint64 // address of the programs' argument
	head    uint64 // address of the fragment that is to be sent next
	current *Stream
	// The addresses of structs whose sockets were released.
	freeSockets, freeSubflows, freeStreams []uint64
}

// laneSockFields are the offsets of struct tcp_sock's fields.
type laneSockFields struct {
	sockFields
	queued, buffer, pending, expires, leastRTO uint32
}

type laneFields struct {
	subflowFields
	staleCount uint32
}

// streamFields are the offsets of struct mptcp_sock's fields.
type streamFields struct {
	size, una, nxt, written, wndEnd, burst, timeout, head, token, net, queued, buffer uint32
}

type fragFields struct{ size, seq, length, sent uint32 }

// pairFields are the offsets of what an iterator gives.
type pairFields struct{ size, context, socket uint32 }

// LoadScheduler returns the packet scheduler of the catalog with this name. The clocks give the simulation's time, in
// nanoseconds and in the ticks of Lane.Timer. The error wraps loader.ErrUsage if it has no such tunable.
func LoadScheduler(name string, tunables map[string]string, clock, jiffies func() uint64) (*Scheduler, error) {
	spec, err := specOf(catalog.Sched, name, tunables)
	if err != nil {
		return nil, err
	}
	return loadScheduler(spec, name, clock, jiffies, false)
}

func loadScheduler(spec *ebpf.CollectionSpec, name string, clock, jiffies func() uint64, interpret bool) (*Scheduler, error) {
	s := &Scheduler{kernel: newKernel(name)}
	if err := s.readLayouts(spec.Types); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	tick := func(f func() uint64) bytecode.Function {
		return bytecode.Function{Call: func(_, _, _, _, _ uint64) uint64 { return f() }}
	}
	o := bytecode.Options{
		Helpers: map[asm.BuiltinFunc]bytecode.Function{asm.FnKtimeGetNs: tick(clock), asm.FnJiffies64: tick(jiffies)},
		Functions: map[string]bytecode.Function{
			"bpf_iter_mptcp_xsched_new":     {Arguments: 2, Call: s.walk},
			"bpf_iter_mptcp_xsched_next":    {Arguments: 1, Call: s.nextLane},
			"bpf_iter_mptcp_xsched_destroy": {Arguments: 1, Call: func(_, _, _, _, _ uint64) uint64 { return 0 }},
			"mptcp_xsched_set_scheduled":    {Arguments: 2, Call: s.choose},
			"mptcp_xsched_active":           {Arguments: 1, Call: s.active},
			"mptcp_xsched_carries":          {Arguments: 2, Call: func(context, seq, _, _, _ uint64) uint64 { return uint64(one(s.lane(context).Carries(seq))) }},
			"mptcp_xsched_resend_of":        {Arguments: 2, Call: func(_, context, _, _, _ uint64) uint64 { return uint64(one(s.current.ResendOf(s.lane(context)))) }},
			"mptcp_xsched_grow_buffer":      {Arguments: 2, Call: func(_, bytes, _, _, _ uint64) uint64 { s.current.Needed = bytes; return 0 }},
			"mptcp_xsched_resend":           {Arguments: 1, Call: func(_, _, _, _, _ uint64) uint64 { return uint64(one(s.current.Resend())) }},
		},
		Interpret: interpret,
	}
	var err error
	if s.m, err = bytecode.New(spec, o); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for member, p := range map[string]**bytecode.Program{
		"mpcc_get_send": &s.send, "mpcc_get_retrans": &s.retransmit, "mpcc_sched_init": &s.init, "mpcc_sched_release": &s.release,
	} {
		if *p, err = s.m.Program(member); err != nil {
			s.m.Close()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	s.shareNet()
	s.context = s.m.Allocate(8)
	s.head = s.m.Allocate(uint64(s.frag.size))
	return s, nil
}

func (s *Scheduler) readLayouts(types *btf.Spec) error {
	const icsk = "inet_conn."
	const sk = "icsk_inet.sk."
	sock, subflow := layoutOf(types, "tcp_sock"), layoutOf(types, "mptcp_subflow_context")
	conn, frag, pair := layoutOf(types, "mptcp_sock"), layoutOf(types, "mptcp_data_frag"), layoutOf(types, "mptcp_xsched_subflow")
	s.sock = laneSockFields{
		sockFields: readSock(sock), queued: sock.at(icsk+sk+"sk_wmem_queued", 4), buffer: sock.at(icsk+sk+"sk_sndbuf", 4),
		pending: sock.at(icsk+"icsk_pending", 1), expires: sock.at(icsk+"icsk_retransmit_timer.expires", 8),
		leastRTO: sock.at(icsk+"icsk_rto_min", 4),
	}
	s.subflow = laneFields{readSubflow(subflow), subflow.at("stale_count", 1)}
	s.stream = streamFields{
		una: conn.at("snd_una", 8), nxt: conn.at("snd_nxt", 8), written: conn.at("write_seq", 8), wndEnd: conn.at("wnd_end", 8),
		burst: conn.at("snd_burst", 4), timeout: conn.at("timer_ival", 8), head: conn.at("first_pending", 8),
		token: conn.at("token", 4), net: conn.at("sk."+sk+"__sk_common.skc_net.net", 8),
		queued: conn.at("sk."+sk+"sk_wmem_queued", 4), buffer: conn.at("sk."+sk+"sk_sndbuf", 4),
	}
	s.frag = fragFields{seq: frag.at("data_seq", 8), length: frag.at("data_len", 2), sent: frag.at("already_sent", 2)}
	s.pair = pairFields{size: pair.size, context: pair.at("context", 8), socket: pair.at("socket", 8)}
	s.sock.size, s.subflow.size, s.stream.size, s.frag.size = sock.size, subflow.size, conn.size, frag.size
	if err := s.readShared(types); err != nil {
		return err
	}
	return firstError(sock, subflow, conn, frag, pair)
}

// Stream returns a connection without subflows, known by a token.
func (s *Scheduler) Stream(token uint32) *Stream {
	st := &Stream{s: s, address: s.take(&s.freeStreams, s.stream.size)}
	b := s.at(st.address, s.stream.size)
	binary.LittleEndian.PutUint32(b[s.stream.token:], token)
	put64(b, s.stream.net, s.net)
	st.run(s.init)
	return st
}

// Add adds a subflow to the connection: in the kernel's list it is the last.
func (st *Stream) Add(l *Lane) {
	s := st.s
	l.sock, l.context = s.take(&s.freeSockets, s.sock.size), s.take(&s.freeSubflows, s.subflow.size)
	st.ids++
	context := s.at(l.context, s.subflow.size)
	s.subflow.begin(context, l.sock, st.address)
	binary.LittleEndian.PutUint32(context[s.subflow.id:], st.ids)
	s.beginSocket(&s.sock.sockFields, l.sock, l.context, l.State)
	binary.LittleEndian.PutUint32(s.at(l.sock, s.sock.size)[s.sock.leastRTO:], l.LeastRTO)
	st.lanes = append(st.lanes, l)
}

// Release ends the connection.
func (st *Stream) Release() {
	s := st.s
	st.run(s.release)
	for _, l := range st.lanes {
		s.freeSockets, s.freeSubflows = append(s.freeSockets, l.sock), append(s.freeSubflows, l.context)
	}
	s.freeStreams = append(s.freeStreams, st.address)
	st.lanes = nil
}

// Send has the scheduler choose for new data. It returns false if it has chosen none: the module's xsched_get_send.
func (st *Stream) Send() bool { return int32(st.run(st.s.send)) == 0 && st.chosen() }

// Retransmit has the scheduler choose for what is to be sent again. Unless early, no timeout has passed, the caller then
// counts one against the lanes, and after that looks which are Scheduled. Where ok is false, none is to send.
func (st *Stream) Retransmit() (ok, early bool) {
	result := int32(st.run(st.s.retransmit))
	return result >= 0, result > 0
}

func (st *Stream) chosen() bool {
	return slices.ContainsFunc(st.lanes, func(l *Lane) bool { return l.Scheduled })
}

// run runs a program of the connection.
func (st *Stream) run(p *bytecode.Program) uint64 {
	s := st.s
	if s.err != nil {
		return ^uint64(unix.EINVAL) + 1
	}
	s.current = st
	st.write()
	for _, l := range st.lanes {
		s.write(l)
	}
	put64(s.at(s.context, 8), 0, st.address)
	result, err := p.Run(s.context)
	if err != nil {
		s.err = fmt.Errorf("%s: %w", s.name, err)
		return ^uint64(unix.EINVAL) + 1
	}
	b := s.at(st.address, s.stream.size)
	st.Burst = int32(binary.LittleEndian.Uint32(b[s.stream.burst:]))
	st.Timeout = binary.LittleEndian.Uint64(b[s.stream.timeout:])
	return result
}

// write copies the connection.
func (st *Stream) write() {
	s := st.s
	f, b := &s.stream, s.at(st.address, s.stream.size)
	put64(b, f.una, st.Una)
	put64(b, f.nxt, st.Nxt)
	put64(b, f.written, st.Written)
	put64(b, f.wndEnd, st.WndEnd)
	put64(b, f.timeout, st.Timeout)
	binary.LittleEndian.PutUint32(b[f.burst:], uint32(st.Burst))
	binary.LittleEndian.PutUint32(b[f.queued:], uint32(st.Queued))
	binary.LittleEndian.PutUint32(b[f.buffer:], uint32(st.Buffer))
	put64(b, f.head, 0)
	if st.Next < st.Written {
		put64(b, f.head, s.head)
		head := s.at(s.head, s.frag.size)
		put64(head, s.frag.seq, st.Next)
		binary.LittleEndian.PutUint16(head[s.frag.length:], st.Piece)
	}
}

// write copies a subflow.
func (s *Scheduler) write(l *Lane) {
	f, b := &s.sock, s.at(l.sock, s.sock.size)
	f.sockFields.write(b, l.State)
	binary.LittleEndian.PutUint32(b[f.queued:], uint32(l.Queued))
	binary.LittleEndian.PutUint32(b[f.buffer:], uint32(l.Buffer))
	b[f.pending] = one(l.Timer > 0)
	put64(b, f.expires, l.Timer)
	context := s.at(l.context, s.subflow.size)
	s.subflow.write(context, l.State)
	context[s.subflow.staleCount] = l.StaleCount
}

// lane returns the subflow whose struct mptcp_subflow_context is at an address.
func (s *Scheduler) lane(context uint64) *Lane {
	i := slices.IndexFunc(s.current.lanes, func(l *Lane) bool { return l.context == context })
	if i < 0 {
		panic(fmt.Errorf("a function was given %#x, which is no subflow of the connection", context))
	}
	return s.current.lanes[i]
}

// An iterator holds the number of the next subflow, and then what it gives: a struct mptcp_xsched_subflow.
const given = 8

func (s *Scheduler) walk(iterator, _, _, _, _ uint64) uint64 {
	put64(s.at(iterator, 8), 0, 0)
	return 0
}

func (s *Scheduler) nextLane(iterator, _, _, _, _ uint64) uint64 {
	b := s.at(iterator, given+s.pair.size)
	i := binary.LittleEndian.Uint64(b)
	if i >= uint64(len(s.current.lanes)) {
		return 0
	}
	put64(b, 0, i+1)
	put64(b, given+s.pair.context, s.current.lanes[i].context)
	put64(b, given+s.pair.socket, s.current.lanes[i].sock)
	return iterator + given
}

// choose is the module's mptcp_xsched_set_scheduled.
func (s *Scheduler) choose(context, on, _, _, _ uint64) uint64 {
	if l := s.lane(context); on&1 == 0 || l.Active() {
		l.Scheduled = on&1 != 0
	}
	return 0
}

// active may take the mark stale away.
func (s *Scheduler) active(context, _, _, _, _ uint64) uint64 {
	l := s.lane(context)
	is := l.Active()
	s.subflow.stale.put(s.at(context, s.subflow.size), one(l.Stale))
	return uint64(one(is))
}
