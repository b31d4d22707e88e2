// SPDX-License-Identifier: Apache-2.0

// Package traffic makes the users of an experiment. A user transfers content in
// one direction between two hosts of a lab, in a pattern such as one endless
// stream or files one after the other, and counts what arrives. Thousands of
// them run in one process.
//
//	server, err := traffic.Listen(host)
//	defer server.Close()
//	flow, err := server.Start(ctx, traffic.Config{Client: phone, Addr: addr, Multipath: true, CC: "lia", Pattern: traffic.Endless{}})
//	time.Sleep(time.Minute)
//	before := flow.Count()
//	…
//	err = flow.Stop()
package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// Config describes one user.
type Config struct {
	Client    *lab.Host
	Local     netip.Addr // of the client's first subflow; the zero Addr leaves it to the routes
	Addr      netip.Addr // of the server
	Upload    bool       // the client sends; else the server does
	Multipath bool
	CC        string // congestion control of both ends; "": the namespace's default

	// Sizes of the sender's and the receiver's socket buffers in bytes; 0: the
	// kernel's own choice.
	SendBuffer, ReceiveBuffer int

	Pattern Pattern
	Seed    uint64 // of the pattern's random times

	// Watch may be nil. It is called when the flow starts, when a connection is
	// there, and before it is closed, with both ends still open.
	Watch func(*Flow)
}

func (c Config) options() mptcp.Options {
	o := mptcp.Options{CC: c.CC, TCP: !c.Multipath, Local: c.Local}
	o.SendBuffer, o.ReceiveBuffer = c.SendBuffer, 0
	if !c.Upload {
		o.SendBuffer, o.ReceiveBuffer = 0, c.ReceiveBuffer
	}
	return o
}

// serverOptions are the options of the server's end.
func (c Config) serverOptions() mptcp.Options {
	if c.Upload {
		return mptcp.Options{CC: c.CC, ReceiveBuffer: c.ReceiveBuffer}
	}
	return mptcp.Options{CC: c.CC, SendBuffer: c.SendBuffer}
}

// Flow is a user's traffic, under way or stopped.
type Flow struct {
	config Config
	id     uint64
	server *Server
	cancel context.CancelFunc
	ended  chan struct{} // closed when all of it has ended
	err    error         // why it ended; to be read after that

	received atomic.Uint64

	mu             sync.Mutex
	clock          stopwatch
	transfers      []Transfer
	client, served *net.TCPConn // the present connection's ends
	gate           *gate        // of a pattern with a rate; nil without
}

// Transfer is one file.
type Transfer struct {
	Start time.Time
	Bytes uint64
	Took  time.Duration // 0: not complete
}

// Count is what a flow has done since it began.
type Count struct {
	Bytes  uint64        // of content, at the receiver
	Active time.Duration // in which there was something to transfer
}

// Count returns the flow's counts so far.
func (f *Flow) Count() Count {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Count{f.received.Load(), f.clock.read(time.Now())}
}

// Transfers returns the files so far, in the order of their start.
func (f *Flow) Transfers() []Transfer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Transfer(nil), f.transfers...)
}

// conns returns the client's and the server's end of the present connection;
// nil where there is none, and with UDP.
func (f *Flow) conns() (client, server *net.TCPConn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.client, f.served
}

// Sender returns the sending end of the present connection; nil where there is
// none, and with UDP.
func (f *Flow) Sender() *net.TCPConn {
	client, server := f.conns()
	if f.config.Upload {
		return client
	}
	return server
}

// Done returns a channel that is closed when the flow has ended: by Stop, by an
// error, or because its pattern is complete.
func (f *Flow) Done() <-chan struct{} { return f.ended }

// Stop ends the flow and returns the error that ended it before.
func (f *Flow) Stop() error {
	f.cancel()
	<-f.ended
	return f.err
}

// setActive starts or stops the time in which there is something to transfer.
func (f *Flow) setActive(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock.set(on, time.Now())
}

// stopwatch adds up the time for which it is on.
type stopwatch struct {
	since time.Time // zero while off
	sum   time.Duration
}

func (w *stopwatch) set(on bool, now time.Time) {
	w.sum = w.read(now)
	w.since = time.Time{}
	if on {
		w.since = now
	}
}

func (w *stopwatch) read(now time.Time) time.Duration {
	if w.since.IsZero() {
		return w.sum
	}
	return w.sum + now.Sub(w.since)
}

// Server accepts the connections of all users whose server is one host. It
// listens on one port, for MPTCP and TCP.
type Server struct {
	host *lab.Host
	ln   *mptcp.Listener
	next atomic.Uint64

	mu    sync.Mutex
	flows map[uint64]*Flow
	wait  sync.WaitGroup
	web   web
}

// Listen starts a server on a host.
func Listen(h *lab.Host) (*Server, error) {
	s := &Server{host: h, flows: map[uint64]*Flow{}}
	err := h.Do(func() (err error) {
		s.ln, err = mptcp.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), 0), "")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("traffic: %s: %w", h.Name(), err)
	}
	s.wait.Go(s.accept)
	return s, nil
}

// Close stops listening and waits for the server's ends of flows. Stop the flows
// before.
func (s *Server) Close() error {
	err := s.ln.Close()
	s.wait.Wait()
	s.web.close()
	return err
}

func (s *Server) accept() {
	for {
		conn, err := s.ln.Accept(context.Background()) // Close ends it
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // the connection is reset already, or there are too many open files
			continue
		}
		s.wait.Go(func() {
			defer conn.Close()
			s.serve(conn)
		})
	}
}

// greeting is how long a connection may take to say whose it is.
const greeting = 30 * time.Second

// serve does the server's part of a connection. It begins with what dial writes:
// the flow's id and how many bytes are to be sent, 0 for no end.
func (s *Server) serve(conn *net.TCPConn) {
	var hello struct{ Flow, Bytes uint64 }
	if err := conn.SetReadDeadline(time.Now().Add(greeting)); err != nil {
		return
	}
	if err := binary.Read(conn, binary.BigEndian, &hello); err != nil {
		return
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	s.mu.Lock()
	f := s.flows[hello.Flow]
	s.mu.Unlock()
	if f == nil {
		return
	}
	if err := mptcp.Apply(conn, f.config.serverOptions()); err != nil {
		f.fail(err)
		return
	}
	f.mu.Lock()
	f.served = conn
	f.mu.Unlock()
	if f.config.Upload {
		_ = f.receive(conn, hello.Bytes)
		return
	}
	if err := send(conn, hello.Bytes, f.pace()); err == nil {
		_, _ = conn.Read(make([]byte, 1)) // returns when the client has all of it and closes
	}
}

// fail ends the flow with an error.
func (f *Flow) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.cancel()
}

// Start starts a user. It returns when the first connection is there, or at once
// where the pattern opens its connections later. The flow ends with ctx.
func (s *Server) Start(ctx context.Context, c Config) (*Flow, error) {
	ctx, cancel := context.WithCancel(ctx)
	f := &Flow{config: c, id: s.next.Add(1), server: s, cancel: cancel, ended: make(chan struct{})}
	s.mu.Lock()
	s.flows[f.id] = f
	s.mu.Unlock()
	f.watch()
	ready := make(chan error, 1)
	go func() {
		defer close(f.ended)
		err := c.Pattern.run(ctx, f, rand.New(rand.NewPCG(c.Seed, 0)), func() { ready <- nil })
		f.setActive(false)
		if _, served := f.conns(); served != nil {
			served.Close() // it may wait to send what nobody will receive
		}
		if ctx.Err() == nil && err != nil {
			f.fail(err)
		}
		cancel()
		s.mu.Lock()
		delete(s.flows, f.id)
		s.mu.Unlock()
		ready <- f.failure()
	}()
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("traffic: %s to %v: %w", c.Client.Name(), c.Addr, err)
	}
	return f, nil
}

func (f *Flow) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// dialing limits how many threads are inside hosts at once to connect.
var dialing = make(chan struct{}, 256)

// dial opens a connection of the flow and says what it wants of the server.
func (f *Flow) dial(ctx context.Context, bytes uint64) (conn *net.TCPConn, err error) {
	dialing <- struct{}{}
	defer func() { <-dialing }()
	o := f.config.options()
	if o.TCP {
		o.CC = "" // set when connected: only a server with DCTCP grants the ECN that a SYN of DCTCP asks for
	}
	err = f.config.Client.Do(func() (err error) {
		conn, err = mptcp.Dial(ctx, netip.AddrPortFrom(f.config.Addr, f.server.ln.Addr().Port()), o)
		return err
	})
	if err != nil {
		return nil, err
	}
	if o.TCP {
		if err := mptcp.Apply(conn, mptcp.Options{CC: f.config.CC}); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	if err := binary.Write(conn, binary.BigEndian, struct{ Flow, Bytes uint64 }{f.id, bytes}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	f.mu.Lock()
	f.client = conn
	f.mu.Unlock()
	f.watch()
	return conn, nil
}

func (f *Flow) watch() {
	if f.config.Watch != nil {
		f.config.Watch(f)
	}
}

// content is what is sent: the network does not look at it.
var content [64 << 10]byte

// send sends so many bytes of content, 0 for no end. pace, if not nil, waits until
// so many bytes may be sent, and returns false when the flow has ended.
func send(conn net.Conn, bytes uint64, pace func(int) bool) error {
	for sent := uint64(0); bytes == 0 || sent < bytes; {
		part := content[:]
		if bytes > 0 {
			part = part[:min(uint64(len(part)), bytes-sent)]
		}
		if pace != nil {
			part = part[:min(len(part), pacedPart)]
			if !pace(len(part)) {
				return nil
			}
		}
		n, err := conn.Write(part)
		sent += uint64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// receive receives so many bytes of content, 0 for no end, and counts them.
func (f *Flow) receive(conn net.Conn, bytes uint64) error {
	buf := make([]byte, 32<<10)
	for got := uint64(0); bytes == 0 || got < bytes; {
		n, err := conn.Read(buf)
		got += uint64(n)
		f.received.Add(uint64(n))
		if err != nil {
			return err
		}
	}
	return nil
}
