// SPDX-License-Identifier: Apache-2.0

// Package hosts makes hosts of a network of their own, and connections between them, while a test runs.
package hosts

import (
	"net"
	"net/netip"
	"testing"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/checked"
)

// New makes a network with hosts of these names, until the test ends.
func New(t testing.TB, names ...string) (l *lab.Lab, hosts []*lab.Host) {
	t.Helper()
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range names {
		h, err := l.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, h)
	}
	return l, hosts
}

// Connect opens a connection under a congestion control, until the test ends, to an address at which a checked transfer is
// received.
func Connect(t *testing.T, sender, receiver *lab.Host, addr netip.Addr, cc string) (conn *net.TCPConn) {
	t.Helper()
	return ConnectTo(t, sender, receiver, addr, cc, func(conn net.Conn) { _, _ = checked.Receive(conn) })
}

// ConnectTo is Connect with something else at the receiver's end, which is closed when that returns.
func ConnectTo(t *testing.T, sender, receiver *lab.Host, addr netip.Addr, cc string, receive func(net.Conn)) (conn *net.TCPConn) {
	t.Helper()
	var ln *mptcp.Listener
	err := receiver.Do(func() (err error) {
		ln, err = mptcp.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), 0), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		conn, err := ln.Accept(t.Context())
		if err != nil {
			return // the sender's error tells
		}
		defer conn.Close()
		receive(conn)
	}()
	err = sender.Do(func() (err error) {
		conn, err = mptcp.Dial(t.Context(), netip.AddrPortFrom(addr, ln.Addr().Port()), mptcp.Options{CC: cc})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
