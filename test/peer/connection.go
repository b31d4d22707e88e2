// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Connection is the peer's end of one.
type Connection struct {
	w            *Wire
	ours, theirs Key
	Checksum     bool // of data, as both have agreed
	Plain        bool // it has fallen back to TCP
	Subflows     []*Subflow
	Received     []byte // of the host's data, in order

	next   uint64            // of the host's data, by its number
	early  map[uint64][]byte // what has come before what is before it
	number uint64            // of our data that is next
	Acked  uint64            // of our data, bytes
	Thrown []int             // how often each byte behind Received was thrown away
}

// Subflow is the peer's end of one.
type Subflow struct {
	c             *Connection
	Local, Remote netip.AddrPort
	Seq, Ack      uint32 // next
	iss, irs      uint32
	mapped        mapping
	Reset         bool // by the host
	Deaf          bool // it takes nothing in
	Forgetful     bool // it acknowledges what comes, and throws it away
	Finished      bool // by the host
}

// mapping says which data numbers the bytes of a subflow have.
type mapping struct {
	data    uint64
	subflow uint32 // from 1
	length  int    // 0 for all to come
	valid   bool
}

const (
	capableFlags = 0x01 // HMAC-SHA256
	withChecksum = 0x80
	ourISS       = 0x11111111
)

func (c *Connection) capable(keys ...Key) Option {
	o := Option{Capable<<4 | 1, capableFlags}
	if c.Checksum {
		o[1] |= withChecksum
	}
	for _, k := range keys {
		o = append(o, k.bytes()...)
	}
	return o
}

// Connect opens a connection to the host's port. With plain the options get lost on the way after the SYN, as with a
// middlebox that takes them out.
func (w *Wire) Connect(port uint16, checksum, plain bool) *Connection {
	w.t.Helper()
	c := &Connection{w: w, ours: 0x0123456789abcdef, Checksum: checksum, Plain: plain, early: map[uint64][]byte{}}
	f := c.subflow(netip.AddrPortFrom(Addr[0], 40000), netip.AddrPortFrom(Host, port))
	w.Send(&Segment{From: f.Local, To: f.Remote, Seq: f.Seq, SYN: true, Options: []Option{c.capable()}})
	f.Seq++
	answer := w.Await("SYN/ACK with a key", func(s *Segment) bool {
		return s.SYN && s.ACK && s.To == f.Local && len(s.Option(Capable)) == 10
	})
	c.setTheirs(answer.Option(Capable))
	f.irs, f.Ack = answer.Seq, answer.Seq+1
	ack := f.segment()
	if !plain {
		ack.Options = []Option{c.capable(c.ours, c.theirs)}
	}
	w.Send(ack)
	return c
}

// Accept answers the host's connection to Addr[0]. With plain its answer has no options.
func (w *Wire) Accept(plain bool) *Connection {
	w.t.Helper()
	c := &Connection{w: w, ours: 0x0123456789abcdef, Plain: plain, early: map[uint64][]byte{}}
	syn := w.Await("SYN that asks for MPTCP", func(s *Segment) bool {
		return s.SYN && !s.ACK && s.To.Addr() == Addr[0] && len(s.Option(Capable)) == 2
	})
	c.Checksum = syn.Option(Capable)[1]&withChecksum != 0
	f := c.subflow(syn.To, syn.From)
	f.irs, f.Ack = syn.Seq, syn.Seq+1
	answer := f.segment()
	answer.SYN = true
	if !plain {
		answer.Options = []Option{c.capable(c.ours)}
	}
	w.Send(answer)
	f.Seq++
	ack := w.Await("ACK of the SYN/ACK", func(s *Segment) bool { return s.ACK && s.To == f.Local })
	if !plain {
		o := ack.Option(Capable)
		if len(o) < 18 || !bytes.Equal(o[10:18], c.ours.bytes()) {
			w.t.Fatalf("the third ACK has not both keys: %v", ack)
		}
		c.setTheirs(o)
	}
	c.absorb(ack)
	return c
}

func (c *Connection) setTheirs(o Option) {
	c.theirs = Key(binary.BigEndian.Uint64(o[2:]))
	c.next, c.number = c.theirs.first(), c.ours.first()
}

func (c *Connection) subflow(local, remote netip.AddrPort) *Subflow {
	f := &Subflow{c: c, Local: local, Remote: remote, iss: ourISS, Seq: ourISS}
	c.Subflows = append(c.Subflows, f)
	return f
}

// segment is one that acknowledges all that has come.
func (f *Subflow) segment(options ...Option) *Segment {
	return &Segment{From: f.Local, To: f.Remote, Seq: f.Seq, Ack: f.Ack, ACK: true, Options: options}
}

// acknowledge is the option that acknowledges the host's data.
func (c *Connection) acknowledge() Option {
	return binary.BigEndian.AppendUint64(Option{DSS << 4, 0x03}, c.next)
}

// Options sends options on an ACK.
func (f *Subflow) Options(options ...Option) { f.c.w.Send(f.segment(options...)) }

// Write sends data, at most a segment of it.
func (f *Subflow) Write(data []byte) { f.write(data, 0) }

// WriteWrong sends data with a checksum that is wrong.
func (f *Subflow) WriteWrong(data []byte) { f.write(data, 1) }

func (f *Subflow) write(data []byte, wrong uint16) {
	f.c.w.t.Helper()
	s := f.segment()
	s.PSH, s.Payload = true, data
	if !f.c.Plain {
		c := f.c
		o := binary.BigEndian.AppendUint64(Option{DSS << 4, 0x0f}, c.next)
		var m []byte
		m = binary.BigEndian.AppendUint64(m, c.number)
		m = binary.BigEndian.AppendUint32(m, f.Seq-f.iss)
		m = binary.BigEndian.AppendUint16(m, uint16(len(data)))
		o = append(o, m...)
		if c.Checksum {
			o = binary.BigEndian.AppendUint16(o, checksum(m, data)+wrong)
		}
		s.Options = []Option{o}
		c.number += uint64(len(data))
	}
	f.c.w.Send(s)
	f.Seq += uint32(len(data))
}

// checksum is that of RFC 8684, 3.3.1: over the mapping and the data, each padded to whole words.
func checksum(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, part := range parts {
		for i, b := range part {
			sum += uint32(b) << (8 * (1 - i%2))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// Await passes over segments, whose data it takes in, until one is as wanted.
func (c *Connection) Await(what string, wanted func(*Segment) bool) *Segment {
	c.w.t.Helper()
	return c.w.Await(what, func(s *Segment) bool {
		c.absorb(s)
		return wanted(s)
	})
}

// Read takes segments in until so much of the host's data has come in all.
func (c *Connection) Read(length int) []byte {
	c.w.t.Helper()
	if len(c.Received) < length {
		c.Await("more data", func(*Segment) bool { return len(c.Received) >= length })
	}
	return c.Received[:length]
}

// Quiet takes segments in for a while, and returns those.
func (c *Connection) Quiet(span time.Duration) (all []*Segment) {
	for end := time.Now().Add(span); ; {
		s := c.w.next(time.Until(end))
		if s == nil {
			return all
		}
		c.absorb(s)
		all = append(all, s)
	}
}

// absorb takes a segment of the connection's in, and acknowledges what is in it.
func (c *Connection) absorb(s *Segment) {
	i := slices.IndexFunc(c.Subflows, func(f *Subflow) bool { return f.Local == s.To && f.Remote == s.From })
	if i < 0 || s.SYN {
		return
	}
	f := c.Subflows[i]
	if s.RST {
		f.Reset = true
		return
	}
	if f.Deaf {
		return
	}
	f.readOptions(s)
	if len(s.Payload) == 0 && !s.FIN {
		return
	}
	if s.Seq == f.Ack {
		c.take(f, s)
		f.Ack += uint32(len(s.Payload))
		if s.FIN {
			f.Ack++
			f.Finished = true
		}
	}
	answer := f.segment()
	if !c.Plain {
		answer.Options = []Option{c.acknowledge()}
	}
	c.w.Send(answer)
}

// readOptions reads which data a segment has, and how much of ours it acknowledges.
func (f *Subflow) readOptions(s *Segment) {
	c := f.c
	if o := s.Option(Capable); len(o) >= 20 { // with the length of the first data
		f.mapped = mapping{c.theirs.first(), 1, int(binary.BigEndian.Uint16(o[18:])), true}
	}
	o := s.Option(DSS)
	if o == nil {
		return
	}
	flags, rest := o[1], o[2:]
	number := func(long bool, near uint64) (n uint64) {
		if long {
			n, rest = binary.BigEndian.Uint64(rest), rest[8:]
			return n
		}
		n, rest = near&^0xffffffff|uint64(binary.BigEndian.Uint32(rest)), rest[4:]
		return n
	}
	if flags&0x01 != 0 {
		if acked := number(flags&0x02 != 0, c.number) - c.ours.first(); acked <= c.number-c.ours.first() {
			c.Acked = max(c.Acked, acked)
		}
	}
	if flags&0x04 == 0 {
		return
	}
	m := mapping{data: number(flags&0x08 != 0, c.next), valid: true}
	m.subflow, m.length = binary.BigEndian.Uint32(rest), int(binary.BigEndian.Uint16(rest[4:]))
	if fin := flags&0x10 != 0; fin {
		m.length-- // the end counts as a byte
		if m.length == 0 && c.next == m.data {
			c.next++
		}
	}
	if m.length > 0 || binary.BigEndian.Uint16(rest[4:]) == 0 {
		f.mapped = m
	}
}

// take takes the data of a segment in that is next on its subflow.
func (c *Connection) take(f *Subflow, s *Segment) {
	if c.Plain {
		c.Received = append(c.Received, s.Payload...)
		return
	}
	if len(s.Payload) == 0 || !f.mapped.valid {
		return
	}
	number := f.mapped.data + uint64(s.Seq-f.irs-f.mapped.subflow)
	if f.Forgetful {
		c.throw(number, len(s.Payload))
		return
	}
	c.early[number] = s.Payload
	for _, at := range slices.Sorted(maps.Keys(c.early)) {
		data := c.early[at]
		if at > c.next {
			break
		}
		if known := c.next - at; known < uint64(len(data)) {
			c.Received = append(c.Received, data[known:]...)
			c.next += uint64(len(data)) - known
		}
		delete(c.early, at)
	}
}

// throw counts bytes that are thrown away.
func (c *Connection) throw(number uint64, length int) {
	for at := number; at < number+uint64(length); at++ {
		if at < c.next {
			continue
		}
		for uint64(len(c.Thrown)) <= at-c.next {
			c.Thrown = append(c.Thrown, 0)
		}
		c.Thrown[at-c.next]++
	}
}

// join begins a subflow from an address with a token, and returns the host's answer.
func (c *Connection) join(from netip.Addr, id byte, token uint32) (*Subflow, *Segment) {
	c.w.t.Helper()
	f := c.subflow(netip.AddrPortFrom(from, 40001), c.Subflows[0].Remote)
	o := binary.BigEndian.AppendUint32(Option{Join << 4, id}, token)
	syn := &Segment{From: f.Local, To: f.Remote, Seq: f.Seq, SYN: true, Options: []Option{binary.BigEndian.AppendUint32(o, nonce)}}
	c.w.Send(syn)
	f.Seq++
	return f, c.Await("answer to MP_JOIN", func(s *Segment) bool { return s.To == f.Local && (s.SYN || s.RST) })
}

const nonce = 0xcafef00d

// Join adds a subflow from an address, with an address identifier of its own. With forged the peer cannot prove that it
// has the keys.
func (c *Connection) Join(from netip.Addr, id byte, forged bool) *Subflow {
	c.w.t.Helper()
	f, answer := c.join(from, id, c.theirs.token())
	o := answer.Option(Join)
	if answer.RST || len(o) != 14 {
		c.w.t.Fatalf("the host refuses a subflow: %v", answer)
	}
	f.irs, f.Ack = answer.Seq, answer.Seq+1
	ours, theirs := binary.BigEndian.AppendUint32(nil, nonce), o[10:14]
	if want := authenticate(c.theirs, c.ours, slices.Concat(theirs, ours))[:8]; !bytes.Equal(o[2:10], want) {
		c.w.t.Fatalf("the host's HMAC is %x, want %x", o[2:10], want)
	}
	proof := authenticate(c.ours, c.theirs, slices.Concat(ours, theirs))[:20]
	if forged {
		proof[0]++
	}
	f.Options(append(Option{Join << 4, 0}, proof...))
	if !forged {
		c.Await("ACK that ends the join", func(s *Segment) bool { return s.To == f.Local && s.ACK && !s.SYN })
	}
	return f
}

// JoinUnknown asks for a subflow of a connection that the host does not have, and returns its answer.
func (c *Connection) JoinUnknown(from netip.Addr) *Segment {
	c.w.t.Helper()
	f, answer := c.join(from, 1, c.theirs.token()+1)
	c.Subflows = slices.DeleteFunc(c.Subflows, func(other *Subflow) bool { return other == f })
	return answer
}

// AcceptJoin answers a subflow that the host begins to an address.
func (c *Connection) AcceptJoin(to netip.Addr, id byte) *Subflow {
	c.w.t.Helper()
	syn := c.Await("MP_JOIN", func(s *Segment) bool { return s.SYN && s.To.Addr() == to && len(s.Option(Join)) == 10 })
	o := syn.Option(Join)
	if token := binary.BigEndian.Uint32(o[2:]); token != c.ours.token() {
		c.w.t.Fatalf("the host joins %08x, want %08x", token, c.ours.token())
	}
	f := c.subflow(syn.To, syn.From)
	f.irs, f.Ack = syn.Seq, syn.Seq+1
	theirs, ours := o[6:10], binary.BigEndian.AppendUint32(nil, nonce)
	answer := f.segment(slices.Concat(Option{Join << 4, id}, authenticate(c.ours, c.theirs, slices.Concat(ours, theirs))[:8], ours))
	answer.SYN = true
	c.w.Send(answer)
	f.Seq++
	ack := c.Await("proof of a join", func(s *Segment) bool { return s.To == f.Local && len(s.Option(Join)) == 22 })
	if want := authenticate(c.theirs, c.ours, slices.Concat(theirs, ours))[:20]; !bytes.Equal(ack.Option(Join)[2:], want) {
		c.w.t.Fatalf("the host's proof is %x, want %x", ack.Option(Join)[2:], want)
	}
	f.Options(c.acknowledge()) // the host waits for it
	return f
}

// AddAddr announces an address of the peer's. With forged it cannot prove that it has the keys.
func (f *Subflow) AddAddr(id byte, addr netip.Addr, forged bool) {
	message := append([]byte{id}, addr.AsSlice()...)
	proof := authenticate(f.c.ours, f.c.theirs, append(message, 0, 0))[24:]
	if forged {
		proof[0]++
	}
	f.Options(slices.Concat(Option{AddAddr << 4}, message, proof))
}

// RemoveAddr takes an address back.
func (f *Subflow) RemoveAddr(id byte) { f.Options(Option{RemAddr << 4, id}) }

// Prio makes the subflow a backup, or no backup.
func (f *Subflow) Prio(backup bool) {
	o := Option{Prio << 4}
	if backup {
		o[0] |= 1
	}
	f.Options(o)
}

// Fail says that data from so many bytes on has come broken.
func (f *Subflow) Fail(from uint64) {
	f.Options(binary.BigEndian.AppendUint64(Option{Fail << 4, 0}, f.c.theirs.first()+from))
}

// FastClose ends the connection at once.
func (f *Subflow) FastClose() {
	f.Options(append(Option{FastClose << 4, 0}, f.c.theirs.bytes()...))
}

// Kill resets the subflow.
func (f *Subflow) Kill() {
	s := f.segment()
	s.RST = true
	f.c.w.Send(s)
}

// Kill resets all subflows.
func (c *Connection) Kill() {
	for _, f := range c.Subflows {
		f.Kill()
	}
}
