// SPDX-License-Identifier: Apache-2.0

package mptcp_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/checked"
	"github.com/mpcc/mpcc/test/hosts"
	"github.com/mpcc/mpcc/test/ss"
)

// twoPaths is sender ═ receiver, two links of the given rate.
type twoPaths struct {
	sender, receiver *lab.Host
	links            [2]*lab.Link
}

func newTwoPaths(t *testing.T, rate uint64) *twoPaths {
	t.Helper()
	l, all := hosts.New(t, "sender", "receiver")
	p := &twoPaths{sender: all[0], receiver: all[1]}
	for i := range p.links {
		shape := lab.Shape{Rate: rate}
		var err error
		p.links[i], err = l.Link(p.sender, p.receiver, lab.LinkOpts{AtoB: shape, BtoA: shape})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Route(); err != nil {
		t.Fatal(err)
	}
	limits := lab.MPTCPLimits{Subflows: 2, AddAddrAccepted: 2}
	if err := p.sender.MPTCP(limits); err != nil {
		t.Fatal(err)
	}
	announced := lab.MPTCPEndpoint{Addr: p.links[1].Addr(p.receiver), Signal: true}
	if err := p.receiver.MPTCP(limits, announced); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *twoPaths) listen(t *testing.T) *mptcp.Listener {
	t.Helper()
	var ln *mptcp.Listener
	err := p.receiver.Do(func() (err error) {
		ln, err = mptcp.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), 0), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// at is the listener's address on the first path.
func (p *twoPaths) at(ln *mptcp.Listener) netip.AddrPort {
	return netip.AddrPortFrom(p.links[0].Addr(p.receiver), ln.Addr().Port())
}

func (p *twoPaths) dial(t *testing.T, ln *mptcp.Listener, o mptcp.Options) *net.TCPConn {
	t.Helper()
	var conn *net.TCPConn
	err := p.sender.Do(func() (err error) {
		conn, err = mptcp.Dial(t.Context(), p.at(ln), o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

type received struct {
	checked.Result
	err error
}

func receive(t *testing.T, ln *mptcp.Listener) <-chan received {
	done := make(chan received, 1)
	go func() {
		conn, err := ln.Accept(t.Context())
		if err != nil {
			done <- received{err: err}
			return
		}
		defer conn.Close()
		r, err := checked.Receive(conn)
		done <- received{r, err}
	}()
	return done
}

func TestTransferOverTwoPaths(t *testing.T) {
	p := newTwoPaths(t, 80e6)
	ln := p.listen(t)
	done := receive(t, ln)
	conn := p.dial(t, ln, mptcp.Options{CC: "cubic"})

	const size = 16<<20 + 12345 // no multiple of a block
	sent, err := checked.Send(conn, checked.Transfer{Bytes: size, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	info, err := mptcp.ReadInfo(conn)
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := ss.Sockets(t.Context(), p.sender)
	if err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.err != nil {
		t.Fatal(got.err)
	}

	if sent.Bytes != size || got.Bytes != size {
		t.Errorf("sent %d, received %d, want %d", sent.Bytes, got.Bytes, size)
	}
	if sent.SHA256 != got.SHA256 || sent.SHA256 == [32]byte{} {
		t.Errorf("SHA-256 sent %x, received %x", sent.SHA256, got.SHA256)
	}
	// A busy machine may use less of them.
	if rate := sent.Rate(); rate > 160e6 {
		t.Errorf("%.1f Mbit/s over two paths of 80", rate/1e6)
	}
	if is, err := conn.MultipathTCP(); err != nil || !is {
		t.Errorf("MultipathTCP = %v, %v", is, err)
	}

	// The socket's info against what ss shows.
	acked := map[netip.AddrPort]uint64{}
	var total uint64
	for _, s := range sockets {
		if s.Token != info.Token {
			t.Errorf("%s %v→%v: token %x in ss, %x in the socket's info", s.Proto, s.Local, s.Remote, s.Token, info.Token)
		}
		if s.Proto != "tcp" {
			continue
		}
		if s.CC != "cubic" {
			t.Errorf("subflow %v→%v runs %q, want cubic", s.Local, s.Remote, s.CC)
		}
		acked[s.Local] = s.BytesAcked
		total += s.BytesAcked
		if s.BytesAcked < size/4 {
			t.Errorf("subflow %v→%v carried %d of %d bytes", s.Local, s.Remote, s.BytesAcked, size)
		}
	}
	if len(acked) != 2 || total < size {
		t.Errorf("ss shows %d subflows that carried %d of %d bytes", len(acked), total, size)
	}
	if len(info.Subflows) != 2 {
		t.Errorf("the socket's info shows %d subflows", len(info.Subflows))
	}
	for i, s := range info.Subflows {
		want := p.links[i]
		if s.Local.Addr() != want.Addr(p.sender) || s.Remote.Addr() != want.Addr(p.receiver) {
			t.Errorf("subflow %d: %v→%v, want link %d", i, s.Local, s.Remote, i+1)
		}
		if s.TCP.Bytes_acked != acked[s.Local] {
			t.Errorf("subflow %v: %d bytes acked, ss says %d", s.Local, s.TCP.Bytes_acked, acked[s.Local])
		}
	}
	// The content, the 13 bytes before it and the checksum behind it.
	if want := uint64(size + 13 + 32); info.BytesSent != want || info.BytesAcked != want {
		t.Errorf("the connection sent %d bytes and had %d acknowledged, want %d", info.BytesSent, info.BytesAcked, want)
	}
}

func TestFastTransfer(t *testing.T) {
	p := newTwoPaths(t, 0)
	ln := p.listen(t)
	done := receive(t, ln)
	conn := p.dial(t, ln, mptcp.Options{CC: "cubic"})
	sent, err := checked.Send(conn, checked.Transfer{Bytes: 1 << 30, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.err != nil || got.Bytes != 1<<30 || sent.Bytes != 1<<30 {
		t.Fatalf("sent %d, received %d of %d bytes: %v", sent.Bytes, got.Bytes, 1<<30, got.err)
	}
	t.Logf("%.1f Gbit/s", sent.Rate()/1e9)
}

func TestPlainTCP(t *testing.T) {
	p := newTwoPaths(t, 0)
	ln := p.listen(t)
	done := receive(t, ln)
	conn := p.dial(t, ln, mptcp.Options{CC: "reno", TCP: true})
	if is, err := conn.MultipathTCP(); err != nil || is {
		t.Errorf("MultipathTCP = %v, %v for a TCP connection", is, err)
	}
	if _, err := mptcp.ReadInfo(conn); err == nil {
		t.Error("ReadInfo worked on a TCP connection")
	}
	if cc, err := mptcp.CongestionControl(conn); err != nil || cc != "reno" {
		t.Errorf("congestion control %q, %v", cc, err)
	}
	err := p.sender.Do(func() error {
		if counts, err := mptcp.CongestionControls(); err != nil || counts["reno"] != 1 || len(counts) != 1 {
			t.Errorf("congestion controls %v, %v", counts, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	sent, err := checked.Send(conn, checked.Transfer{Bytes: 1 << 20, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.err != nil || got.SHA256 != sent.SHA256 {
		t.Errorf("received %x, sent %x: %v", got.SHA256, sent.SHA256, got.err)
	}
}

func TestFallbackIsSeen(t *testing.T) {
	p := newTwoPaths(t, 0)
	var ln net.Listener
	err := p.receiver.Do(func() (err error) {
		lc := net.ListenConfig{}
		lc.SetMultipathTCP(false)
		ln, err = lc.Listen(t.Context(), "tcp", netip.AddrPortFrom(p.links[0].Addr(p.receiver), 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	err = p.sender.Do(func() error {
		conn, err := mptcp.Dial(t.Context(), ln.Addr().(*net.TCPAddr).AddrPort(), mptcp.Options{})
		if err != nil {
			return err
		}
		defer conn.Close()
		if is, err := conn.MultipathTCP(); err != nil || is {
			t.Errorf("MultipathTCP = %v, %v towards a TCP listener", is, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUnknownCongestionControl(t *testing.T) {
	p := newTwoPaths(t, 0)
	ln := p.listen(t)
	for _, tcp := range []bool{false, true} {
		err := p.sender.Do(func() error {
			conn, err := mptcp.Dial(t.Context(), p.at(ln), mptcp.Options{CC: "nosuch", TCP: tcp})
			if err == nil {
				conn.Close()
			}
			return err
		})
		if err == nil || !strings.Contains(err.Error(), `congestion control "nosuch" is not available`) {
			t.Errorf("error %v", err)
		}
	}
}

func TestNoMPTCPSocket(t *testing.T) {
	p := newTwoPaths(t, 0)
	if err := p.receiver.Sysctl("net.mptcp.enabled", "0"); err != nil {
		t.Fatal(err)
	}
	err := p.receiver.Do(func() error {
		ln, err := mptcp.Listen(netip.AddrPortFrom(p.links[0].Addr(p.receiver), 0), "")
		if err == nil {
			ln.Close()
		}
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "net.mptcp.enabled is 0") {
		t.Errorf("error %v", err)
	}
}

// A wait for a connection ends with its context, and the next one can wait again.
func TestAcceptEndsWithItsContext(t *testing.T) {
	p := newTwoPaths(t, 0)
	ln := p.listen(t)
	enough := errors.New("waited enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(enough) })
	if conn, err := ln.Accept(ctx); !errors.Is(err, enough) { // and nobody connects: it would wait for ever
		t.Errorf("Accept gave %v, %v", conn, err)
	}
	p.dial(t, ln, mptcp.Options{})
	conn, err := ln.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
