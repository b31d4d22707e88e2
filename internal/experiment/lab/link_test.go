// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

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
