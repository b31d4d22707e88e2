// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/ss"
)

func (n *network) close() error { return errors.Join(n.listener.Close(), n.lab.Close()) }

// maxPaths is the most subflows that a coupled decision looks at.
const maxPaths = 8

// network is a sender and a receiver with maxPaths paths between them. The sender opens one subflow to
// each of the receiver's addresses that is announced.
type network struct {
	lab      *lab.Lab
	sender   *lab.Host
	receiver *lab.Host
	listener *mptcp.Listener // on all of the receiver's addresses: later subflows need it too
	paths    []*lab.Link     // ends at the receiver
	rate     uint64          // bit/s of the paths in use together; 0: unlimited
	shared   bool            // the paths share one queue, that of the link before the router
	subflows int             // that are set up at present
}

// newDirect joins the hosts by veth pairs alone: packets of up to 64 kB, no queue, no loss.
//
//	sender ═══ receiver
func newDirect() (*network, error) {
	n := &network{}
	return n, n.build(func() error {
		for range maxPaths {
			if err := n.link(n.sender); err != nil {
				return err
			}
		}
		return nil
	})
}

// newQueued has queues with a rate, one before the router for all paths, or one behind it for each. There TCP sends
// frames of 1500 bytes, and fills the queues instead of waiting before them.
//
//	sender ─── router ═══ receiver
func newQueued(rate uint64, shared bool) (*network, error) {
	n := &network{rate: rate, shared: shared}
	return n, n.build(func() error {
		router, err := n.lab.Router("router")
		if err != nil {
			return err
		}
		first, err := n.lab.Link(n.sender, router, lab.LinkOpts{})
		if err != nil {
			return err
		}
		if shared {
			if err := first.Set(lab.AtoB, lab.Shape{Rate: rate}); err != nil {
				return err
			}
		}
		for range maxPaths {
			if err := n.link(router); err != nil {
				return err
			}
		}
		return nil
	})
}

func (n *network) build(links func() error) (err error) {
	if n.lab, err = lab.New(); err != nil {
		return err
	}
	if n.sender, err = n.lab.Host("sender"); err == nil {
		n.receiver, err = n.lab.Host("receiver")
	}
	if err == nil {
		err = links()
	}
	if err == nil {
		err = n.lab.Route()
	}
	if err == nil {
		// What has overtaken the packets of a slower path lies in the receiver's buffer. With eight paths the usual 6 MB fill up:
		// then the connection stands still for seconds, under any control.
		err = n.receiver.Sysctl("net.ipv4.tcp_rmem", "4096 131072 67108864")
	}
	if err == nil {
		err = n.receiver.Do(func() (err error) {
			n.listener, err = mptcp.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), 0), "")
			return err
		})
	}
	if err != nil {
		return errors.Join(err, n.lab.Close())
	}
	return nil
}

func (n *network) link(from *lab.Host) error {
	link, err := n.lab.Link(from, n.receiver, lab.LinkOpts{})
	n.paths = append(n.paths, link)
	return err
}

// use announces as many addresses as there shall be subflows, and shares the rate among their paths if each has a queue, as
// 2 : 3 : 4 and so on: behind equal queues that fill in step subflows seem to share one.
func (n *network) use(subflows int) error {
	if n.subflows == subflows {
		return nil
	}
	var announced []lab.MPTCPEndpoint
	for i, path := range n.paths[:subflows] {
		if i > 0 {
			announced = append(announced, lab.MPTCPEndpoint{Addr: path.Addr(n.receiver), Signal: true})
		}
		if n.rate == 0 || n.shared {
			continue
		}
		parts, of := uint64(2+i), uint64(subflows*(subflows+3)/2)
		if err := path.Set(lab.AtoB, lab.Shape{Rate: n.rate * parts / of}); err != nil {
			return err
		}
	}
	limits := lab.MPTCPLimits{Subflows: maxPaths, AddAddrAccepted: maxPaths}
	if err := errors.Join(n.sender.MPTCP(limits), n.receiver.MPTCP(limits, announced...)); err != nil {
		return err
	}
	n.subflows = subflows
	return nil
}

// flow is what one connection did within a span of time.
type flow struct {
	rate    float64 // bit/s of content, arrived
	seconds float64
}

// readyTimeout is how long the subflows may take to join, and again to fill their queues where they have any.
const readyTimeout = 20 * time.Second

// run sends over n.subflows subflows under cc, first for the time settle, then for a span, and calls around at the beginning
// and the end of the span. It fails where not every subflow was there, ran cc and carried data.
func (n *network) run(ctx context.Context, cc string, settle, span time.Duration, around func() error) (f flow, err error) {
	sender, receiver, err := n.connect(ctx, cc)
	if err != nil {
		return f, err
	}
	var arrived atomic.Uint64
	var pumps sync.WaitGroup
	pumps.Go(func() { receive(receiver, &arrived) })
	defer func() {
		err = errors.Join(err, sender.SetLinger(0), sender.Close(), receiver.Close())
		pumps.Wait()
	}()

	// Subflows join once something has been acknowledged; behind a full queue an announced address can be lost.
	if _, err := sender.Write(make([]byte, 1)); err != nil {
		return f, err
	}
	if err := n.wait(ctx, sender, "joined", func(s mptcp.Subflow) bool { return s.TCP.State == unix.BPF_TCP_ESTABLISHED }); err != nil {
		return f, err
	}
	pumps.Go(func() { send(sender) })
	if n.rate > 0 { // in slow start all congestion controls do the same
		if err := n.wait(ctx, sender, "left slow start", func(s mptcp.Subflow) bool { return s.TCP.Snd_ssthresh < noSSThresh }); err != nil {
			return f, err
		}
	}
	if err := sleep(ctx, settle); err != nil {
		return f, err
	}
	before, err := mptcp.ReadInfo(sender)
	if err != nil {
		return f, err
	}
	begin, at := arrived.Load(), time.Now()
	if err := around(); err != nil {
		return f, err
	}
	if err := sleep(ctx, span); err != nil {
		return f, err
	}
	if err := around(); err != nil {
		return f, err
	}
	f.seconds = time.Since(at).Seconds()
	f.rate = float64(arrived.Load()-begin) * 8 / f.seconds
	if f.rate < float64(n.rate)/2 {
		return f, fmt.Errorf("%.0f of %.0f Mbit/s arrived: %w", f.rate/1e6, float64(n.rate)/1e6, errIdle)
	}
	after, err := mptcp.ReadInfo(sender)
	if err != nil {
		return f, err
	}
	return f, n.check(ctx, cc, before, after)
}

func (n *network) connect(ctx context.Context, cc string) (sender, receiver *net.TCPConn, err error) {
	err = n.sender.Do(func() (err error) {
		server := netip.AddrPortFrom(n.paths[0].Addr(n.receiver), n.listener.Addr().Port())
		sender, err = mptcp.Dial(ctx, server, mptcp.Options{CC: cc})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if receiver, err = n.listener.Accept(ctx); err != nil {
		return nil, nil, errors.Join(err, sender.Close())
	}
	return sender, receiver, nil
}

const block = 1 << 20

// send keeps the connection busy until it is closed.
func send(conn *net.TCPConn) {
	content := make([]byte, block)
	for {
		if _, err := conn.Write(content); err != nil {
			return
		}
	}
}

func receive(conn *net.TCPConn, arrived *atomic.Uint64) {
	content := make([]byte, block)
	for {
		k, err := conn.Read(content)
		arrived.Add(uint64(k))
		if err != nil {
			return
		}
	}
}

// wait returns once all subflows are there and done is true of each; what names that in an error.
func (n *network) wait(ctx context.Context, conn *net.TCPConn, what string, done func(mptcp.Subflow) bool) error {
	for end := time.Now().Add(readyTimeout); ; {
		info, err := mptcp.ReadInfo(conn)
		if err != nil {
			return err
		}
		count := 0
		for _, s := range info.Subflows {
			if done(s) {
				count++
			}
		}
		if count == n.subflows {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("after %v %d of %d subflows have %s", readyTimeout, count, n.subflows, what)
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// noSSThresh is TCP_INFINITE_SSTHRESH of the kernel.
const noSSThresh = 0x7fffffff

// errIdle is a sample that does not count: the kernel's scheduler left a subflow out, or it waited for a timeout, or the
// connection as a whole stood still for a while.
var errIdle = errors.New("a path lay idle")

// check makes sure that the same subflows were there all the time, ran cc and carried data.
func (n *network) check(ctx context.Context, cc string, before, after mptcp.Info) error {
	if len(before.Subflows) != n.subflows || len(after.Subflows) != n.subflows {
		return fmt.Errorf("%d subflows at the beginning, %d at the end; %d asked for",
			len(before.Subflows), len(after.Subflows), n.subflows)
	}
	for i, s := range after.Subflows {
		if s.ID != before.Subflows[i].ID {
			return errors.New("a subflow was replaced meanwhile")
		}
		if s.TCP.Bytes_acked == before.Subflows[i].TCP.Bytes_acked {
			return fmt.Errorf("subflow %d to %v carried nothing: %w", s.ID, s.Remote, errIdle)
		}
	}
	sockets, err := ss.Sockets(ctx, n.sender)
	if err != nil {
		return err
	}
	seen := 0
	for _, s := range sockets {
		if s.Proto != "tcp" || s.Token != after.Token {
			continue
		}
		if s.CC != cc {
			return fmt.Errorf("the subflow to %v runs %s", s.Remote, s.CC)
		}
		seen++
	}
	if seen != n.subflows {
		return fmt.Errorf("ss shows %d of %d subflows", seen, n.subflows)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
