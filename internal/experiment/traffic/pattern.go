// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Pattern is what a user transfers, and when.
type Pattern interface {
	// run transfers until all is done or ctx ends. It calls ready when its first
	// connection is there or, if the pattern opens connections later, at once.
	run(ctx context.Context, f *Flow, random *rand.Rand, ready func()) error
}

// Endless transfers as much as the network takes.
type Endless struct{}

func (Endless) run(ctx context.Context, f *Flow, _ *rand.Rand, ready func()) error {
	f.setActive(true) // also while there is no connection yet: that is time without goodput
	return f.stream(ctx, ready)
}

// stream transfers by one connection until ctx ends. It calls begun when that is there.
func (f *Flow) stream(ctx context.Context, begun func()) error {
	conn, err := f.dial(ctx, 0)
	if err != nil {
		return err
	}
	begun()
	return f.move(ctx, conn, 0)
}

// move does the client's part of a connection and closes it.
func (f *Flow) move(ctx context.Context, conn *net.TCPConn, bytes uint64) error {
	stop := context.AfterFunc(ctx, func() { f.hangUp(conn) })
	defer stop()
	defer conn.Close()
	defer f.watch()
	if !f.config.Upload {
		return f.receive(conn, bytes)
	}
	if err := send(conn, bytes, f.pace()); err != nil {
		return err
	}
	if bytes == 0 {
		return nil
	}
	// The server closes when it has all of it.
	if err := conn.CloseWrite(); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// hangUp closes both ends, the receiver's first: it answers what still arrives
// with a reset. Otherwise the sender would try for a minute to send what it has.
func (f *Flow) hangUp(client *net.TCPConn) {
	if _, served := f.conns(); f.config.Upload && served != nil {
		served.Close()
	}
	client.Close()
}

// Files transfers files one after the other, each by a connection of its own.
type Files struct {
	Bytes uint64 // of one file
	Count int    // 0: without end
}

func (p Files) run(ctx context.Context, f *Flow, _ *rand.Rand, ready func()) error {
	ready()
	for i := 0; ctx.Err() == nil && (p.Count == 0 || i < p.Count); i++ {
		if err := f.transfer(p.Bytes, func() error {
			conn, err := f.dial(ctx, p.Bytes)
			if err != nil {
				return err
			}
			return f.move(ctx, conn, p.Bytes)
		}); err != nil {
			return err
		}
	}
	return nil
}

// transfer records one file, which move transfers.
func (f *Flow) transfer(bytes uint64, move func() error) error {
	start := time.Now()
	f.mu.Lock()
	i := len(f.transfers)
	f.transfers = append(f.transfers, Transfer{Start: start, Bytes: bytes})
	f.clock.set(true, start)
	f.mu.Unlock()
	err := move()
	end := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock.set(false, end)
	if err == nil {
		f.transfers[i].Took = end.Sub(start)
	}
	return err
}

// Bursts sends at a rate for a while, then pauses, and so on. How long each lasts
// follows a Pareto distribution. Without On it never pauses.
type Bursts struct {
	Rate    uint64        // bit/s of content while on, 0 as much as the network takes
	On, Off time.Duration // mean lengths of bursts and pauses
	Shape   float64       // exponent of the distributions, above 1; 0: 1.5
	UDP     bool
}

const defaultShape = 1.5

// pareto draws a length from the distribution with that mean.
func (p Bursts) pareto(random *rand.Rand, mean time.Duration) time.Duration {
	shape := p.Shape
	if shape == 0 {
		shape = defaultShape
	}
	least := float64(mean) * (shape - 1) / shape
	return time.Duration(least / math.Pow(1-random.Float64(), 1/shape))
}

func (p Bursts) run(ctx context.Context, f *Flow, random *rand.Rand, ready func()) error {
	f.mu.Lock()
	f.gate = newGate(ctx, p.Rate)
	f.mu.Unlock()
	stream := f.stream
	if p.UDP {
		stream = f.datagrams
	}
	ended := make(chan error, 1)
	go func() { ended <- stream(ctx, ready) }()
	on := p.On == 0 || random.Float64() < float64(p.On)/float64(p.On+p.Off)
	for {
		f.gate.set(on)
		f.setActive(on)
		mean := p.Off
		if on {
			mean = p.On
		}
		next := make(<-chan time.Time)
		if p.On > 0 {
			next = time.After(p.pareto(random, mean))
		}
		select {
		case err := <-ended:
			return err
		case <-next:
			on = !on
		}
	}
}

// gate lets content pass at a rate while it is open.
type gate struct {
	ctx  context.Context
	rate uint64

	mu   sync.Mutex
	open bool
	turn chan struct{} // closed when it opens or shuts
	next time.Time     // when the next content may pass
}

func newGate(ctx context.Context, rate uint64) *gate {
	return &gate{ctx: ctx, rate: rate, turn: make(chan struct{})}
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.next = open, time.Now()
	close(g.turn)
	g.turn = make(chan struct{})
}

// catchUp is how much lost time a late sender may make up for by sending at once.
const catchUp = 20 * time.Millisecond

// pass waits until n bytes may pass. It returns false when the flow has ended.
func (g *gate) pass(n int) bool {
	for {
		g.mu.Lock()
		open, turn := g.open, g.turn
		var wait time.Duration
		if open && g.rate > 0 {
			now := time.Now()
			if earliest := now.Add(-catchUp); g.next.Before(earliest) {
				g.next = earliest
			}
			wait = g.next.Sub(now)
			g.next = g.next.Add(time.Duration(float64(n) * 8 / float64(g.rate) * float64(time.Second)))
		}
		g.mu.Unlock()
		if open {
			return sleep(g.ctx, wait)
		}
		select {
		case <-g.ctx.Done():
			return false
		case <-turn:
		}
	}
}

// pacedPart is how many bytes pass a gate at a time: the content of one datagram.
const pacedPart = 1440

// pace returns what has senders wait for the flow's gate; nil where it has none.
func (f *Flow) pace() func(int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gate == nil {
		return nil
	}
	return f.gate.pass
}

// datagrams sends by UDP until ctx ends. It calls begun when the sockets are there.
func (f *Flow) datagrams(ctx context.Context, begun func()) error {
	c := f.config
	from, to, src, dst := c.Client, f.server.host, c.Local, c.Addr
	if !c.Upload {
		from, to, src, dst = to, from, dst, src
	}
	if !dst.IsValid() {
		return errors.New("UDP to a client needs the client's address")
	}
	var in, out *net.UDPConn
	err := to.Do(func() (err error) {
		in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, 0)))
		return err
	})
	if err != nil {
		return err
	}
	defer in.Close()
	err = from.Do(func() (err error) {
		var local *net.UDPAddr
		if src.IsValid() {
			local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(src, 0))
		}
		out, err = net.DialUDP("udp4", local, in.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { in.Close(); out.Close() })
	defer stop()
	begun()
	go func() { _ = f.receive(in, 0) }()
	pass := f.pace()
	for pass(pacedPart) {
		// An error means that the sender's own queue is full: the datagram is lost, as in any queue.
		_, _ = out.Write(content[:pacedPart])
	}
	return out.Close()
}

// sleep waits. It returns false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
