// SPDX-License-Identifier: Apache-2.0

// Package twopaths has two hosts with two links between them, for tests of what real connections do there.
package twopaths

import (
	"testing"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/test/hosts"
)

// Net is sender ═ receiver. The receiver announces its address on the second link, so that a connection over the
// first comes to have a subflow on each.
type Net struct {
	Sender, Receiver *lab.Host
	Links            [2]*lab.Link
}

// New makes the hosts, until the test ends. A link has the shape of its number both ways.
func New(t *testing.T, shapes [2]lab.Shape) (n Net) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	l, all := hosts.New(t, "sender", "receiver")
	n.Sender, n.Receiver = all[0], all[1]
	for i, shape := range shapes {
		var err error
		n.Links[i], err = l.Link(n.Sender, n.Receiver, lab.LinkOpts{AtoB: shape, BtoA: shape})
		must(err)
	}
	must(l.Route())
	limits := lab.MPTCPLimits{Subflows: 2, AddAddrAccepted: 2}
	must(n.Sender.MPTCP(limits))
	must(n.Receiver.MPTCP(limits, lab.MPTCPEndpoint{Addr: n.Links[1].Addr(n.Receiver), Signal: true}))
	return n
}
