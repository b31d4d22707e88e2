// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/netlab"
)

// A connection whose two subflows share a bottleneck with somebody's TCP:
//
//	client ══ router ── 20 Mbit/s, 20 ms, queue 33 ── server
//	 rival ─────┘
//
// The queue holds one bandwidth-delay product: 20 Mbit/s·20 ms = 33 frames of
// 1514 bytes, so the bottleneck stays full while windows are halved.
//
// Three equal Reno flows take a third each: a connection of two uncoupled
// subflows gets 2/3. RFC 6356 allows the coupled connection what one TCP would
// get: 1/2. LIA that does not couple would therefore differ from reno by
// chance only; it must differ by half of the 1/6 between the two. Rounds of a
// few dozen loss epochs scatter by some 0.04, their average by half of that:
// 0.6 is further than that from either theory.
func TestSharedBottleneck(t *testing.T) {
	const (
		rate    = 20e6
		rounds  = 3
		settle  = 3 * time.Second // some 7 loss epochs of (33+33)/3/2 round trips of 40 ms
		measure = 8 * time.Second
	)
	load(t, "lia")
	lab := newLab(t)
	client, rival, server := addHost(t, lab, "client"), addHost(t, lab, "rival"), addHost(t, lab, "server")
	router := addRouter(t, lab, "router")
	addLink(t, lab, client, router, netlab.Shape{})
	second := addLink(t, lab, client, router, netlab.Shape{})
	addLink(t, lab, rival, router, netlab.Shape{})
	bottleneck := addLink(t, lab, router, server, netlab.Shape{Rate: rate, Delay: 10 * time.Millisecond, Queue: 33})
	route(t, lab)
	if err := client.MPTCP(netlab.MPTCPLimits{Subflows: 1},
		netlab.MPTCPEndpoint{Addr: second.Addr(client), Subflow: true}); err != nil {
		t.Fatal(err)
	}
	if err := server.MPTCP(netlab.MPTCPLimits{Subflows: 1}); err != nil {
		t.Fatal(err)
	}

	// share is the part of the bottleneck that a connection under cc gets.
	share := func(cc string) float64 {
		multipath := connect(t, client, server, bottleneck.Addr(server), mptcp.Dial, cc, "")
		defer multipath.close()
		single := connect(t, rival, server, bottleneck.Addr(server), mptcp.DialTCP, "reno", "")
		defer single.close()
		multipath.stream()
		single.stream()
		multipath.join(t, 2)
		time.Sleep(settle)
		start, multi0, single0 := time.Now(), multipath.received.Load(), single.received.Load()
		time.Sleep(measure)
		multi, single1 := float64(multipath.received.Load()-multi0), float64(single.received.Load()-single0)
		t.Logf("%s: %.3f of %.1f Mbit/s", cc, multi/(multi+single1), (multi+single1)*8/time.Since(start).Seconds()/1e6)
		return multi / (multi + single1)
	}
	var reno, lia float64
	for range rounds {
		reno += share("reno") / rounds
		lia += share("lia") / rounds
	}
	t.Logf("on average uncoupled %.3f, lia %.3f", reno, lia)
	if lia > 0.6 || reno-lia < 1./12 {
		t.Errorf("lia gets %.3f of a shared bottleneck, uncoupled subflows %.3f; theory has 1/2 and 2/3", lia, reno)
	}
}
