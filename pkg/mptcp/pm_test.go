// SPDX-License-Identifier: Apache-2.0

package mptcp_test

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/pmtest"
)

// set makes endpoints of the sender's two addresses, in that order, by ip mptcp.
func (p *twoPaths) set(t *testing.T, flags ...lab.MPTCPEndpoint) {
	t.Helper()
	for i := range flags {
		flags[i].Addr = p.links[i].Addr(p.sender)
	}
	if err := p.sender.MPTCP(lab.MPTCPLimits{Subflows: 2, AddAddrAccepted: 2}, flags...); err != nil {
		t.Fatal(err)
	}
}

// endpoints is what the sender's path manager knows.
func (p *twoPaths) endpoints(t *testing.T) (all []mptcp.Endpoint) {
	t.Helper()
	err := p.sender.Do(func() (err error) {
		all, err = mptcp.Endpoints()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (p *twoPaths) setBackup(t *testing.T, e mptcp.Endpoint, backup bool) {
	t.Helper()
	if err := p.sender.Do(func() error { return mptcp.SetEndpointBackup(e, backup) }); err != nil {
		t.Fatal(err)
	}
}

func TestEndpointFlags(t *testing.T) {
	p := newTwoPaths(t, 0)
	p.set(t, lab.MPTCPEndpoint{Subflow: true, Fullmesh: true}, lab.MPTCPEndpoint{Signal: true, Backup: true})
	want := []mptcp.Endpoint{
		{ID: 1, Addr: p.links[0].Addr(p.sender), Flags: mptcp.EndpointSubflow | mptcp.EndpointFullmesh},
		{ID: 2, Addr: p.links[1].Addr(p.sender), Flags: mptcp.EndpointSignal | mptcp.EndpointBackup},
	}
	if got := p.endpoints(t); !slices.Equal(got, want) {
		t.Fatalf("endpoints %+v, ip mptcp set %+v", got, want)
	}
	p.setBackup(t, want[0], true)
	p.setBackup(t, want[1], false)
	want[0].Flags |= mptcp.EndpointBackup
	want[1].Flags &^= mptcp.EndpointBackup
	if got := p.endpoints(t); !slices.Equal(got, want) {
		t.Errorf("endpoints %+v after the changes, want %+v", got, want)
	}

	gone := mptcp.Endpoint{ID: 77, Addr: netip.MustParseAddr("192.0.2.1")}
	err := p.sender.Do(func() error { return mptcp.SetEndpointBackup(gone, true) })
	if !errors.Is(err, mptcp.ErrGone) || err.Error() != "endpoint 77 (192.0.2.1): not there any more" {
		t.Errorf("an endpoint that is not there: %v", err)
	}
}

// stream sends without end; discard takes it.
func stream(from net.Conn) {
	block := make([]byte, 64<<10)
	for {
		if _, err := from.Write(block); err != nil {
			return
		}
	}
}

func discard(at net.Conn) {
	block := make([]byte, 64<<10)
	for {
		if _, err := at.Read(block); err != nil {
			return
		}
	}
}

// moved is what a path carried of a connection in half a second, there and back.
func (p *twoPaths) moved(t *testing.T, conn *net.TCPConn, path int) uint64 {
	t.Helper()
	addr := p.links[path].Addr(p.sender)
	carried := func() (bytes uint64) {
		info, err := mptcp.ReadInfo(conn)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range info.Subflows {
			if s.Local.Addr() == addr {
				bytes += s.TCP.Bytes_sent + s.TCP.Bytes_received
			}
		}
		return bytes
	}
	before := carried()
	time.Sleep(500 * time.Millisecond)
	return carried() - before
}

// A path whose endpoint is a backup falls silent in both directions, and comes back.
func TestBackupFallsSilent(t *testing.T) {
	p := newTwoPaths(t, 20e6)
	p.set(t, lab.MPTCPEndpoint{}, lab.MPTCPEndpoint{})
	ln := p.listen(t)
	conn := p.dial(t, ln, mptcp.Options{CC: "cubic"})
	peer, err := ln.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	for _, end := range []net.Conn{conn, peer} {
		go stream(end)
		go discard(end)
	}
	const full = 2 * 20e6 / 8 / 2 // bytes
	for _, backups := range [][2]bool{{false, false}, {false, true}, {true, false}, {false, false}} {
		for i, backup := range backups {
			p.setBackup(t, p.endpoints(t)[i], backup)
		}
		time.Sleep(time.Second) // what is queued goes, windows grow
		for i, backup := range backups {
			if got := p.moved(t, conn, i); backup && got > full/50 || !backup && got < full/2 {
				t.Errorf("backups %v: path %d carried %d of %.0f bytes", backups, i, got, full)
			}
		}
	}
}

// Under a userspace path manager a subflow of one connection falls silent, and not that of another.
func TestSubflowBackup(t *testing.T) {
	p := newTwoPaths(t, 20e6)
	var release func()
	if err := p.sender.Do(func() (err error) {
		release, err = pmtest.Take()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer release()
	ln := p.listen(t)
	var conns [2]*net.TCPConn
	for i := range conns {
		conns[i] = p.dial(t, ln, mptcp.Options{CC: "cubic"})
		peer, err := ln.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		go stream(conns[i])
		go discard(peer)
		time.Sleep(100 * time.Millisecond) // the first data makes it able to join
		info, err := mptcp.ReadInfo(conns[i])
		if err != nil {
			t.Fatal(err)
		}
		second := netip.AddrPortFrom(p.links[1].Addr(p.receiver), ln.Addr().Port())
		err = p.sender.Do(func() error { return pmtest.Join(info.Token, 1, p.links[1].Addr(p.sender), second) })
		if err != nil {
			t.Fatal(err)
		}
	}
	var first mptcp.Subflow
	info, err := mptcp.ReadInfo(conns[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range info.Subflows {
		if s.Local.Addr() == p.links[1].Addr(p.sender) {
			first = s
		}
	}
	const full = 20e6 / 8 / 2 // bytes
	for _, backup := range []bool{false, true, false} {
		err := p.sender.Do(func() error { return mptcp.SetSubflowBackup(info.Token, first.Local, first.Remote, backup) })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		one, other := p.moved(t, conns[0], 1), p.moved(t, conns[1], 1)
		t.Logf("backup %v: %d bytes, and %d of the other connection", backup, one, other)
		if backup && one > full/50 || !backup && one < full/10 || other < full/10 {
			t.Errorf("backup %v: %d bytes, and %d of the other connection", backup, one, other)
		}
	}
}

// Only a userspace path manager's connections have flags of their own.
func TestSubflowBackupIsRefused(t *testing.T) {
	p := newTwoPaths(t, 0)
	ln := p.listen(t)
	conn := p.dial(t, ln, mptcp.Options{CC: "cubic"})
	info, err := mptcp.ReadInfo(conn)
	if err != nil {
		t.Fatal(err)
	}
	s := info.Subflows[0]
	err = p.sender.Do(func() error { return mptcp.SetSubflowBackup(info.Token, s.Local, s.Remote, true) })
	if !errors.Is(err, mptcp.ErrGone) {
		t.Errorf("a subflow of a connection of the kernel's path manager: %v", err)
	}
	err = p.sender.Do(func() error {
		userspace, err := mptcp.UserspacePM()
		if err == nil && userspace {
			err = errors.New("a new namespace has a userspace path manager")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
