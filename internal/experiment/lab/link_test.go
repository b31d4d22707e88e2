// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/checked"
)

// goodput moves content by one TCP connection and returns its rate in bit/s.
func goodput(t *testing.T, from, to *lab.Host, dst netip.Addr, bytes int64) float64 {
	t.Helper()
	var ln *mptcp.Listener
	err := to.Do(func() (err error) {
		ln, err = mptcp.Listen(netip.AddrPortFrom(dst, 0), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	received := make(chan error, 1)
	go func() {
		conn, err := ln.Accept(t.Context())
		if err == nil {
			defer conn.Close()
			_, err = checked.Receive(conn)
		}
		received <- err
	}()
	var sent checked.Result
	err = from.Do(func() error {
		conn, err := mptcp.Dial(context.Background(), ln.Addr(), mptcp.Options{TCP: true})
		if err != nil {
			return err
		}
		defer conn.Close()
		sent, err = checked.Send(conn, checked.Transfer{Bytes: bytes, Seed: 1})
		return err
	})
	if err := errors.Join(err, <-received); err != nil {
		t.Fatal(err)
	}
	return sent.Rate()
}

// A full frame of 1514 bytes carries 1448 (with timestamps) or 1460 bytes of
// content. A link may not give more; a busy machine may use less of it.
func wantRate(t *testing.T, what string, got, asked float64) {
	t.Helper()
	t.Logf("%s: %.2f Mbit/s of content at %.0f Mbit/s", what, got/1e6, asked/1e6)
	if got < asked*1448/1514*0.8 || got > asked*1460/1514*1.01 {
		t.Errorf("%s: %.2f Mbit/s of content over a link of %.0f", what, got/1e6, asked/1e6)
	}
}

func TestRate(t *testing.T) {
	l := newLab(t)
	a, b := addHost(t, l, "a"), addHost(t, l, "b")
	link := addLink(t, l, a, b, lab.LinkOpts{
		AtoB: lab.Shape{Rate: 20e6},
		BtoA: lab.Shape{Rate: 40e6},
	})
	wantRate(t, "a to b", goodput(t, a, b, link.Addr(b), 3<<20), 20e6)
	if size := packetSize(t, a, link); size < 1400 || size > 1514 {
		t.Errorf("a packet has %d bytes on average: TCP hands over more than frames", size)
	}
	wantRate(t, "b to a", goodput(t, b, a, link.Addr(a), 6<<20), 40e6)

	if err := link.Set(lab.AtoB, lab.Shape{Rate: 10e6}); err != nil {
		t.Fatal(err)
	}
	wantRate(t, "a to b, now slower", goodput(t, a, b, link.Addr(b), 2<<20), 10e6)
	wantRate(t, "b to a, as before", goodput(t, b, a, link.Addr(a), 6<<20), 40e6)

	if err := link.Set(lab.AtoB, lab.Shape{}); err != nil {
		t.Fatal(err)
	}
	if got := goodput(t, a, b, link.Addr(b), 16<<20); got < 100e6 {
		t.Errorf("a to b, unlimited: %.1f Mbit/s", got/1e6)
	}
}

// packetSize is the mean size of what h has sent on the link, in bytes.
func packetSize(t *testing.T, h *lab.Host, link *lab.Link) uint64 {
	t.Helper()
	stats := statistics(t, h, link.Interface(h))
	return stats.TxBytes / stats.TxPackets
}

func statistics(t *testing.T, h *lab.Host, dev string) (stats netlink.LinkStatistics) {
	t.Helper()
	err := h.Do(func() error {
		l, err := netlink.LinkByName(dev)
		if err == nil {
			stats = *l.Attrs().Statistics
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// The queue keeps as much of a burst as fits into it.
func TestQueue(t *testing.T) {
	l := newLab(t)
	a, b := addHost(t, l, "a"), addHost(t, l, "b")
	const queue = 30
	link := addLink(t, l, a, b, lab.LinkOpts{AtoB: lab.Shape{Rate: 1e6, Queue: queue}})
	// Two frames pass at once, and one leaves every 12 ms while the burst comes.
	if n := burst(t, a, b, link, 300); n < queue || n > queue+6 {
		t.Errorf("%d frames of a burst passed a queue of %d", n, queue)
	}
	if err := link.Set(lab.AtoB, lab.Shape{Rate: 1e6, Queue: 2 * queue}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if n := burst(t, a, b, link, 300); n < 2*queue || n > 2*queue+6 {
		t.Errorf("%d frames of a burst passed a queue of %d", n, 2*queue)
	}
}

// A queue in bytes keeps ten times as many small frames.
func TestQueueBytes(t *testing.T) {
	l := newLab(t)
	a, b := addHost(t, l, "a"), addHost(t, l, "b")
	const rate, queue, bucket = 1e6, 30 * 1514, 1e6 / 8 / 20
	link := addLink(t, l, a, b, lab.LinkOpts{AtoB: lab.Shape{Rate: rate, QueueBytes: queue}})
	for _, frame := range []int{1514, 151} {
		sent := 3 * queue / frame
		n, took := burstOf(t, a, b, link, sent, frame)
		// The bucket passes at once, and some leave while the burst comes.
		least, most := (queue+bucket)/frame-1, (queue+bucket+int(rate/8*took.Seconds()))/frame+2
		if n < least || n > most {
			t.Errorf("%d frames of %d bytes passed a queue of %d bytes, want %d to %d", n, frame, queue, least, most)
		}
		q, err := link.Stats(lab.AtoB)
		if err != nil {
			t.Fatal(err)
		}
		if q.Dropped < uint64(sent-most) || q.Backlog != 0 {
			t.Errorf("%d of %d frames arrived, and the queue tells of %+v", n, sent, q)
		}
	}
	if _, err := link.Stats(lab.BtoA); err == nil || !strings.Contains(err.Error(), "has no queue: give it a rate") {
		t.Errorf("statistics of a link without a queue: %v", err)
	}
}

// burst sends n full frames at once and counts those that arrive.
func burst(t *testing.T, a, b *lab.Host, link *lab.Link, n int) int {
	t.Helper()
	arrived, _ := burstOf(t, a, b, link, n, 1514)
	return arrived
}

func burstOf(t *testing.T, a, b *lab.Host, link *lab.Link, n, frame int) (arrived int, took time.Duration) {
	t.Helper()
	var in, out *net.UDPConn
	err := b.Do(func() (err error) {
		in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(link.Addr(b), 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	err = a.Do(func() (err error) {
		out, err = net.DialUDP("udp4", nil, in.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	// Room for all of it, so that the sender does not wait for the queue.
	raw, err := out.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20)
	})
	if err := errors.Join(err, setErr); err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, frame-14-20-8)
	began := time.Now()
	for range n {
		// An error means that the queue dropped a frame.
		if _, err := out.Write(payload); err != nil && !errors.Is(err, unix.ENOBUFS) {
			t.Fatal(err)
		}
	}
	took = time.Since(began)
	for {
		if err := in.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Read(payload); errors.Is(err, os.ErrDeadlineExceeded) {
			return arrived, took
		} else if err != nil {
			t.Fatal(err)
		}
		arrived++
	}
}

// Every address reaches every other, by its own interface:
//
//	        r1 ── r2
//	left <           > right      left ── right
//	        r3 ─────
func TestRoutes(t *testing.T) {
	l := newLab(t)
	left, right := addHost(t, l, "left"), addHost(t, l, "right")
	r1, r2, r3 := addRouter(t, l, "r1"), addRouter(t, l, "r2"), addRouter(t, l, "r3")
	addLink(t, l, r1, r2, lab.LinkOpts{})
	type path struct{ left, right *lab.Link }
	direct := addLink(t, l, left, right, lab.LinkOpts{Name: "direct"})
	paths := []path{
		{addLink(t, l, left, r1, lab.LinkOpts{Name: "upper"}), addLink(t, l, right, r2, lab.LinkOpts{Name: "upper"})},
		{addLink(t, l, left, r3, lab.LinkOpts{Name: "lower"}), addLink(t, l, right, r3, lab.LinkOpts{Name: "lower"})},
		{direct, direct},
	}
	for range 2 { // Route may be called again
		if err := l.Route(); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range paths {
		for _, to := range paths {
			src, dst := from.left.Addr(left), to.right.Addr(right)
			dev := from.left.Interface(left)
			if err := exchange(left, right, src, dst); err != nil {
				t.Errorf("%v (%s) to %v (%s): %v", src, dev, dst, to.right.Interface(right), err)
				continue
			}
			before, other := statistics(t, left, dev).TxPackets, othersTx(t, left, dev)
			if err := exchange(left, right, src, dst); err != nil {
				t.Errorf("%v to %v, again: %v", src, dst, err)
			}
			if statistics(t, left, dev).TxPackets == before {
				t.Errorf("%v to %v did not leave by %s", src, dst, dev)
			}
			if othersTx(t, left, dev) != other {
				t.Errorf("%v to %v left by another interface than %s", src, dst, dev)
			}
		}
	}

	// Packets without a source address go by the link of the destination address.
	for _, to := range paths {
		dev := to.left.Interface(left)
		before := statistics(t, left, dev).TxBytes
		if err := exchange(left, right, netip.IPv4Unspecified(), to.right.Addr(right)); err != nil {
			t.Errorf("to %s: %v", dev, err)
		}
		if statistics(t, left, dev).TxBytes == before {
			t.Errorf("what has no source address did not leave by %s", dev)
		}
	}
}

// A relay passes on what it has sent itself and gets back from a router that takes the relay for the way to the
// destination.
//
//	a ── r1
//	└─── r2 ── b
func TestRouteBack(t *testing.T) {
	l := newLab(t)
	a, err := l.Relay("a")
	if err != nil {
		t.Fatal(err)
	}
	b := addHost(t, l, "b")
	r1, r2 := addRouter(t, l, "r1"), addRouter(t, l, "r2")
	one := addLink(t, l, a, r1, lab.LinkOpts{})
	addLink(t, l, a, r2, lab.LinkOpts{})
	far := addLink(t, l, r2, b, lab.LinkOpts{})
	if err := l.Route(); err != nil {
		t.Fatal(err)
	}
	if err := exchange(a, b, one.Addr(a), far.Addr(b)); err != nil {
		t.Error(err)
	}
}

// othersTx counts what h has sent on its interfaces other than dev.
func othersTx(t *testing.T, h *lab.Host, dev string) (packets uint64) {
	t.Helper()
	for _, name := range []string{"upper", "lower", "direct"} {
		if name != dev {
			packets += statistics(t, h, name).TxPackets
		}
	}
	return packets
}

func TestDownUp(t *testing.T) {
	l := newLab(t)
	a, r, b := addHost(t, l, "a"), addRouter(t, l, "r"), addHost(t, l, "b")
	near := addLink(t, l, a, r, lab.LinkOpts{})
	addLink(t, l, r, b, lab.LinkOpts{})
	spare := addLink(t, l, a, b, lab.LinkOpts{})
	if err := l.Route(); err != nil {
		t.Fatal(err)
	}
	try := func() error { return exchange(a, b, near.Addr(a), spare.Addr(b)) }
	if err := try(); err != nil {
		t.Fatal(err)
	}
	if err := near.Down(); err != nil {
		t.Fatal(err)
	}
	// The spare link must not take over: the source address belongs to the other.
	if err := try(); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("with the link down: %v", err)
	}
	if err := exchange(a, b, spare.Addr(a), spare.Addr(b)); err != nil {
		t.Errorf("the other link: %v", err)
	}
	if err := near.Up(); err != nil {
		t.Fatal(err)
	}
	if err := try(); err != nil {
		t.Errorf("with the link up again: %v", err)
	}
}

// No ARP request is sent for any of a host's addresses: neither at first nor after
// a link was down.
func TestNeighbours(t *testing.T) {
	l := newLab(t)
	a, b := addHost(t, l, "a"), addHost(t, l, "b")
	link := addLink(t, l, a, b, lab.LinkOpts{})
	more, err := link.AddAddrs(b, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"made", "down and up"} {
		for _, dst := range append(more, link.Addr(b)) {
			if err := exchange(a, b, link.Addr(a), dst); err != nil {
				t.Fatal(err)
			}
		}
		for _, h := range []*lab.Host{a, b} {
			var known []netlink.Neigh
			err := h.Do(func() (err error) {
				known, err = netlink.NeighList(link.Index(h), unix.AF_INET)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			permanent := 0
			for _, n := range known {
				if n.IP.IsMulticast() {
					continue
				}
				permanent++
				if n.State != netlink.NUD_PERMANENT {
					t.Errorf("%s: %s has asked for %v", when, h.Name(), n.IP)
				}
			}
			if want := map[*lab.Host]int{a: 1 + len(more), b: 1}[h]; permanent != want {
				t.Errorf("%s: %s has %d permanent neighbour entries, not %d", when, h.Name(), permanent, want)
			}
		}
		if err := errors.Join(link.Down(), link.Up()); err != nil {
			t.Fatal(err)
		}
	}
}
