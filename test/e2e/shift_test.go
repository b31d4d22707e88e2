// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// Two connections, under lia and under dts, use the same two paths, of which
// one suddenly has a long queue that others fill:
//
//	        ┌────── 10 Mbit/s, 20 ms, queue 17 ──────┐
//	client ─┤                                        ├─ server
//	        └─ router ── 10 Mbit/s, 20 ms, queue 17 ─┘
//	   rival ───┘        then queue 83: 100 ms
//
// Four Reno flows of the rival keep the long queue between full and, if all
// lost at once, half full. LIA increases there as Reno does (the connection's
// rate is the other path's, and so is the increase that 1/w caps) and keeps
// one flow's part of the path: 20 of the 100 packets that path and queue hold.
// DTS compares base RTT and RTT: 20/60 to 20/120 makes epsilon 0.3 to 0.07,
// where the short queue at its longest makes it 1 (20/40). With next to no
// increase each loss halves its window, down to a few packets of LIA's 20. In
// rounds of 12 s DTS had a sixth of LIA's rate on average, 0.04 to 0.4 of it in
// one round; half, as the bound for three, leaves room for subflows that are
// spared by a few losses.
func TestOwnTimeShift(t *testing.T) {
	const (
		rate    = 10e6
		rounds  = 3
		rivals  = 4
		free    = 3 * time.Second
		settle  = 12 * time.Second // some 12 losses, every 20/2 round trips of 100 ms
		crowded = 12 * time.Second
	)
	ccs := []string{"lia", "dts"}
	load(t, append(ccs, "--set", "paper")...)
	l := newLab(t)
	client, rival, server := addHost(t, l, "client"), addHost(t, l, "rival"), addHost(t, l, "server")
	router := addRouter(t, l, "router")
	short := lab.Shape{Rate: rate, Delay: 10 * time.Millisecond, Queue: 17}
	long := lab.Shape{Rate: rate, Delay: 10 * time.Millisecond, Queue: 83}
	steady := addLink(t, l, client, server, short)
	shifting := addLink(t, l, client, router, lab.Shape{})
	addLink(t, l, rival, router, lab.Shape{})
	bottleneck := addLink(t, l, router, server, short)
	route(t, l)
	accept(t, client)
	announce(t, server, bottleneck.Addr(server))

	acked := func(p pair) float64 {
		info, err := mptcp.ReadInfo(p.client)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range info.Subflows {
			if s.Local.Addr() == shifting.Addr(client) {
				return float64(s.TCP.Bytes_acked)
			}
		}
		t.Fatalf("no subflow on the shifting path: %v", info.Subflows)
		return 0
	}
	// look tells of each connection what it has on the shifting path: its rate
	// in bit/s, and the coupling quantity that mpcc shows most of the time.
	type view struct{ rate, coupling map[string]float64 }
	look := func(conns map[string]pair, over time.Duration) view {
		v := view{map[string]float64{}, map[string]float64{}}
		start, from, coupling := time.Now(), map[string]float64{}, map[string][]float64{}
		for cc, p := range conns {
			from[cc] = acked(p)
		}
		for time.Since(start) < over {
			time.Sleep(over / 6)
			for _, f := range readStatus(t).of(client) {
				if f.Local.Addr() == shifting.Addr(client) {
					coupling[f.CC] = append(coupling[f.CC], f.Coupling)
				}
			}
		}
		for cc, p := range conns {
			v.rate[cc] = (acked(p) - from[cc]) * 8 / time.Since(start).Seconds()
			if len(coupling[cc]) == 0 {
				t.Fatalf("mpcc status does not show the shifting path under %s", cc)
			}
			v.coupling[cc] = slices.Sorted(slices.Values(coupling[cc]))[len(coupling[cc])/2]
		}
		return v
	}
	round := func() (before, after view) {
		if err := bottleneck.Set(lab.AtoB, short); err != nil {
			t.Fatal(err)
		}
		conns := map[string]pair{}
		for _, cc := range ccs {
			p := connect(t, client, server, steady.Addr(server), mptcp.Options{CC: cc}, "")
			defer p.close()
			p.join(t, 2)
			conns[cc] = p
		}
		for _, p := range conns {
			p.stream()
		}
		before = look(conns, free)
		if err := bottleneck.Set(lab.AtoB, long); err != nil {
			t.Fatal(err)
		}
		for range rivals {
			p := connect(t, rival, server, bottleneck.Addr(server), mptcp.Options{CC: "reno", TCP: true}, "")
			defer p.close()
			p.stream()
		}
		time.Sleep(settle)
		return before, look(conns, crowded)
	}
	kept := map[string]float64{}
	for range rounds {
		before, after := round()
		for _, cc := range ccs {
			t.Logf("%s: %.2f Mbit/s and coupling %.3f on the free path, %.2f Mbit/s and %.3f on the crowded one",
				cc, before.rate[cc]/1e6, before.coupling[cc], after.rate[cc]/1e6, after.coupling[cc])
			moves(t, cc+" on the free path", before.rate[cc], rate/10)
			kept[cc] += after.rate[cc] / rounds
		}
		if after.coupling["dts"] > before.coupling["dts"]/2 {
			t.Errorf("epsilon is %.3f on the free path and %.3f on the crowded one", before.coupling["dts"], after.coupling["dts"])
		}
	}
	t.Logf("on the crowded path lia keeps %.2f Mbit/s, dts %.2f", kept["lia"]/1e6, kept["dts"]/1e6)
	moves(t, "lia on the crowded path", kept["lia"], rate/50)
	if kept["dts"] > kept["lia"]/2 {
		t.Errorf("dts keeps %.2f Mbit/s on the crowded path, lia %.2f", kept["dts"]/1e6, kept["lia"]/1e6)
	}
}
