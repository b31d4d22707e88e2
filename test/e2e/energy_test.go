// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// The energy of a connection whose two subflows share an interface:
//
//	                     ┌── 10 Mbit/s, 20 ms, queue 33 ──┐
//	client ── router ────┤                                ├─ server
//	                     └── 10 Mbit/s, 20 ms, queue 33 ──┘
//
// 1 mW/Mbps is 1 nJ for each bit, so the energy follows from the bytes that the
// kernel counts, and from the time that the transfer takes.
func TestOwnTimeEnergy(t *testing.T) {
	load(t, "lia")
	l := newLab(t)
	client, server, router := addHost(t, l, "client"), addHost(t, l, "server"), addRouter(t, l, "router")
	access := addLink(t, l, client, router, lab.Shape{})
	var paths [2]*lab.Link
	for i := range paths {
		paths[i] = addLink(t, l, router, server, lab.Shape{Rate: 10e6, Delay: 10 * time.Millisecond, Queue: 33})
	}
	route(t, l)
	accept(t, client)
	announce(t, server, paths[1].Addr(server))

	// price sets a profile, in mW/Mbps and mW.
	price := func(h *lab.Host, link *lab.Link, uplink, downlink, base float64) {
		t.Helper()
		mpcc(t, "energy", "set", link.Interface(h), "--netns", h.Namespace(), "--uplink", fmt.Sprint(uplink),
			"--downlink", fmt.Sprint(downlink), "--base", fmt.Sprint(base))
	}
	// joules is the energy of a host's link in all.
	joules := func(h *lab.Host, link *lab.Link) float64 {
		return readStatus(t).total(h, link.Interface(h), "lia").Joules
	}
	// move makes a connection, transfers content, and waits until it is closed.
	// Meanwhile may look in while content flows.
	type moved struct {
		sent, received uint64 // bytes, of both subflows
		active         time.Duration
	}
	move := func(bytes int64, meanwhile func(pair)) (m moved) {
		t.Helper()
		p := connect(t, client, server, paths[0].Addr(server), mptcp.Options{CC: "lia"}, "lia")
		p.join(t, 2)
		x := p.transfer(bytes)
		meanwhile(p)
		m.active = x.wait(t).Duration
		for _, s := range quiet(t, p.client).Subflows {
			m.sent += s.TCP.Bytes_sent
		}
		for _, s := range quiet(t, p.server).Subflows {
			m.received += s.TCP.Bytes_received
		}
		p.close()
		if !eventually(10*time.Second, func() bool { return len(readStatus(t).Subflows) == 0 }) {
			t.Fatal("still live 10 s after the close")
		}
		return m
	}
	bits := func(bytes uint64, slope float64) float64 { return slope * 1e-9 * 8 * float64(bytes) }
	nothing := func(pair) {}

	// The slopes, exactly. A FIN is a received byte, for the kernel as for mpcc.
	price(client, access, 300, 0, 0)
	for _, path := range paths {
		price(server, path, 0, 100, 0)
	}
	m := move(5e6, nothing)
	if got, want := joules(client, access), bits(m.sent, 300); math.Abs(got/want-1) > 1e-5 {
		t.Errorf("%.6f J for %d bytes sent at 300 mW/Mbps, want %.6f", got, m.sent, want)
	}
	got, want := joules(server, paths[0])+joules(server, paths[1]), bits(m.received, 100)
	if math.Abs(got/want-1) > 1e-5 {
		t.Errorf("%.6f J for %d bytes received at 100 mW/Mbps, want %.6f", got, m.received, want)
	}

	// The base, once for both subflows: 1 W for as long as the transfer takes,
	// give or take two round trips with a full queue, 2·60 ms, at each end of 4 s.
	before := joules(client, access)
	price(client, access, 0, 0, 1000)
	m = move(8e6, nothing)
	got, want = joules(client, access)-before, m.active.Seconds()
	t.Logf("%.3f J of base in %v of transfer", got, m.active)
	if math.Abs(got/want-1) > 0.1 {
		t.Errorf("%.3f J for %.3f s at 1 W", got, want)
	}

	// A profile that changes while content flows. If x bytes were charged at the
	// first slope, the change came after x bytes were sent; what was sent since
	// the last refresh, two windows at most of 33+17 packets on each path, already
	// costs what the new slope says.
	before = joules(client, access)
	price(client, access, 100, 0, 0)
	var least, most uint64
	m = move(8e6, func(p pair) {
		sent := func() (bytes uint64) {
			info, err := mptcp.ReadInfo(p.client)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range info.Subflows {
				bytes += s.TCP.Bytes_sent
			}
			return bytes
		}
		if !eventually(20*time.Second, func() bool { return sent() > 3e6 }) {
			t.Fatal("3 MB take more than 20 s")
		}
		least = sent()
		price(client, access, 300, 0, 0)
		most = sent()
	})
	got = joules(client, access) - before
	cheap := (bits(m.sent, 300) - got) / bits(1, 200)
	t.Logf("%.0f of %d bytes at the first slope; it changed after %d to %d", cheap, m.sent, least, most)
	// Energy is kept in whole nanojoules, of which a byte is 1600.
	if windows := 2 * 2 * 50 * 1448.; cheap < float64(least)-windows || cheap > float64(most)+1 {
		t.Errorf("%.0f of %d bytes were charged at the first slope, which changed after %d to %d", cheap, m.sent, least, most)
	}
}
