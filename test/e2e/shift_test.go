// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/netlab"
)

// One of two paths suddenly has a long queue, which others fill:
//
//	        ┌────── 10 Mbit/s, 20 ms, queue 17 ──────┐
//	client ─┤                                        ├─ server
//	        └─ router ── 10 Mbit/s, 20 ms, queue 17 ─┘
//	   rival ───┘        then queue 100: 120 ms
//
// Four Reno flows of the rival keep the long queue between full and, if they
// lost at once, half full. LIA increases there as Reno does (the connection's
// rate is the steady path's, and so is the increase 1/w that it caps), so it
// holds on to one flow's part of the path, 1/5. DTS compares base RTT and RTT:
// 20/80 to 20/140 makes epsilon 0.15 to 0.06, where the short queue at its
// longest makes it 1 (20/40); and each loss takes the subflow further down, to
// a few of the 117 packets that the path and its queue hold.
func TestShift(t *testing.T) {
	const (
		rate    = 10e6
		rounds  = 3
		rivals  = 4
		before  = 3 * time.Second
		settle  = 6 * time.Second // some 50 round trips, a few loss events
		measure = 5 * time.Second
	)
	load(t, "lia", "dts")
	lab := newLab(t)
	client, rival, server := addHost(t, lab, "client"), addHost(t, lab, "rival"), addHost(t, lab, "server")
	router := addRouter(t, lab, "router")
	short := netlab.Shape{Rate: rate, Delay: 10 * time.Millisecond, Queue: 17}
	long := netlab.Shape{Rate: rate, Delay: 10 * time.Millisecond, Queue: 100}
	steady := addLink(t, lab, client, server, short)
	shifting := addLink(t, lab, client, router, netlab.Shape{})
	addLink(t, lab, rival, router, netlab.Shape{})
	bottleneck := addLink(t, lab, router, server, short)
	route(t, lab)
	accept(t, client)
	announce(t, server, bottleneck.Addr(server))

	// What a connection has on the second path: its rate in bit/s, and the
	// coupling quantity, mostly.
	type view struct{ rate, coupling float64 }
	look := func(p pair, over time.Duration) (v view) {
		acked := func() float64 {
			info, err := mptcp.ReadInfo(p.client)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range info.Subflows {
				if s.Local.Addr() == shifting.Addr(client) {
					return float64(s.TCP.Bytes_acked)
				}
			}
			t.Fatalf("no subflow on the second path: %v", info.Subflows)
			return 0
		}
		var coupling []float64
		start, from := time.Now(), acked()
		for time.Since(start) < over {
			time.Sleep(over / 8)
			for _, f := range readStatus(t).of(client) {
				if f.Local.Addr() == shifting.Addr(client) {
					coupling = append(coupling, f.Coupling)
				}
			}
		}
		v.rate = (acked() - from) * 8 / time.Since(start).Seconds()
		if len(coupling) == 0 {
			t.Fatal("mpcc status does not show the second path")
		}
		v.coupling = slices.Sorted(slices.Values(coupling))[len(coupling)/2]
		return v
	}
	run := func(cc string) (free, crowded view) {
		if err := bottleneck.Set(netlab.AtoB, short); err != nil {
			t.Fatal(err)
		}
		p := connect(t, client, server, steady.Addr(server), mptcp.Dial, cc, "")
		defer p.close()
		p.stream()
		p.join(t, 2)
		free = look(p, before)
		if err := bottleneck.Set(netlab.AtoB, long); err != nil {
			t.Fatal(err)
		}
		for range rivals {
			q := connect(t, rival, server, bottleneck.Addr(server), mptcp.DialTCP, "reno", "")
			defer q.close()
			q.stream()
		}
		time.Sleep(settle)
		crowded = look(p, measure)
		t.Logf("%s: %.2f Mbit/s and coupling %.3f on the free path, %.2f Mbit/s and %.3f on the crowded one",
			cc, free.rate/1e6, free.coupling, crowded.rate/1e6, crowded.coupling)
		return free, crowded
	}
	var kept = map[string]float64{}
	for range rounds {
		for _, cc := range []string{"lia", "dts"} {
			free, crowded := run(cc)
			kept[cc] += crowded.rate / free.rate / rounds
			if cc == "dts" && crowded.coupling > free.coupling/3 {
				t.Errorf("epsilon is %.3f on the free path and %.3f on the crowded one", free.coupling, crowded.coupling)
			}
		}
	}
	t.Logf("kept of the second path: lia %.3f, dts %.3f", kept["lia"], kept["dts"])
	if kept["dts"] > 0.1 || kept["dts"] > kept["lia"]/2 {
		t.Errorf("dts keeps %.3f of its rate on the crowded path, lia %.3f", kept["dts"], kept["lia"])
	}
}
