// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// sharedBottleneck is
//
//	client ══ router ── bottleneck ── server
//	 rival ─────┘
//
// where each of the client's two links takes a subflow of its connections.
type sharedBottleneck struct {
	client, rival, server *lab.Host
	bottleneck            *lab.Link
}

func newSharedBottleneck(t *testing.T, shape lab.Shape) sharedBottleneck {
	t.Helper()
	l := newLab(t)
	n := sharedBottleneck{client: addHost(t, l, "client"), rival: addHost(t, l, "rival"), server: addHost(t, l, "server")}
	router := addRouter(t, l, "router")
	addLink(t, l, n.client, router, lab.Shape{})
	second := addLink(t, l, n.client, router, lab.Shape{})
	addLink(t, l, n.rival, router, lab.Shape{})
	n.bottleneck = addLink(t, l, router, n.server, shape)
	route(t, l)
	if err := n.client.MPTCP(lab.MPTCPLimits{Subflows: 1},
		lab.MPTCPEndpoint{Addr: second.Addr(n.client), Subflow: true}); err != nil {
		t.Fatal(err)
	}
	if err := n.server.MPTCP(lab.MPTCPLimits{Subflows: 1}); err != nil {
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
		multipath: connect(t, n.client, n.server, addr, mptcp.Options{CC: cc}, ""),
		single:    connect(t, n.rival, n.server, addr, mptcp.Options{CC: rivalCC, TCP: true}, ""),
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
