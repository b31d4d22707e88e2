// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/netlab"
)

// sharedBottleneck is
//
//	client ══ router ── bottleneck ── server
//	 rival ─────┘
//
// where each of the client's two links takes a subflow of its connections.
type sharedBottleneck struct {
	client, rival, server *netlab.Host
	bottleneck            *netlab.Link
}

func newSharedBottleneck(t *testing.T, shape netlab.Shape) sharedBottleneck {
	t.Helper()
	lab := newLab(t)
	n := sharedBottleneck{client: addHost(t, lab, "client"), rival: addHost(t, lab, "rival"), server: addHost(t, lab, "server")}
	router := addRouter(t, lab, "router")
	addLink(t, lab, n.client, router, netlab.Shape{})
	second := addLink(t, lab, n.client, router, netlab.Shape{})
	addLink(t, lab, n.rival, router, netlab.Shape{})
	n.bottleneck = addLink(t, lab, router, n.server, shape)
	route(t, lab)
	if err := n.client.MPTCP(netlab.MPTCPLimits{Subflows: 1},
		netlab.MPTCPEndpoint{Addr: second.Addr(n.client), Subflow: true}); err != nil {
		t.Fatal(err)
	}
	if err := n.server.MPTCP(netlab.MPTCPLimits{Subflows: 1}); err != nil {
		t.Fatal(err)
	}
	return n
}

// contest is a multipath connection of the client against a TCP connection of
// the rival, both sending all they can.
type contest struct {
	multipath, single pair
	start             time.Time
	multi0, single0   int64
}

// contend starts a contest.
func (n sharedBottleneck) contend(t *testing.T, cc, rivalCC string) *contest {
	t.Helper()
	addr := n.bottleneck.Addr(n.server)
	c := &contest{
		multipath: connect(t, n.client, n.server, addr, mptcp.Dial, cc, ""),
		single:    connect(t, n.rival, n.server, addr, mptcp.DialTCP, rivalCC, ""),
	}
	c.multipath.stream()
	c.single.stream()
	c.multipath.join(t, 2)
	return c
}

// reset starts to count.
func (c *contest) reset() {
	c.start, c.multi0, c.single0 = time.Now(), c.multipath.received.Load(), c.single.received.Load()
}

// rates are both goodputs since reset, in bit/s.
func (c *contest) rates() (multi, single float64) {
	seconds := time.Since(c.start).Seconds()
	return float64(c.multipath.received.Load()-c.multi0) * 8 / seconds,
		float64(c.single.received.Load()-c.single0) * 8 / seconds
}

func (c *contest) close() {
	c.multipath.close()
	c.single.close()
}
