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

// flow is a connection's part on a path.
type flow struct {
	conn   *net.TCPConn
	path   int
	silent bool // is to carry nothing
}

// carried is what a flow has carried, there and back.
func (p *twoPaths) carried(t *testing.T, f flow) (bytes uint64) {
	t.Helper()
	info, err := mptcp.ReadInfo(f.conn)
	if err != nil {
		t.Fatal(err)
	}
	addr := p.links[f.path].Addr(p.sender)
	for _, s := range info.Subflows {
		if s.Local.Addr() == addr {
			bytes += s.TCP.Bytes_sent + s.TCP.Bytes_received
		}
	}
	return bytes
}

// settle waits until the silent flows carry next to nothing while each of the others carries a megabyte, however long
// the machine takes for that: first goes what is queued.
func (p *twoPaths) settle(t *testing.T, flows ...flow) {
	t.Helper()
	const enough, nothing = 1e6, 4e4
	deadline := time.Now().Add(time.Minute)
	for {
		before := make([]uint64, len(flows))
		for i, f := range flows {
			before[i] = p.carried(t, f)
		}
		moved := make([]uint64, len(flows))
		for short := true; short; {
			time.Sleep(50 * time.Millisecond)
			short = false
			for i, f := range flows {
				moved[i] = p.carried(t, f) - before[i]
				short = short || !f.silent && moved[i] < enough
			}
			if short && time.Now().After(deadline) {
				t.Fatalf("%+v carry %d bytes", flows, moved)
			}
		}
		loud := false
		for i, f := range flows {
			loud = loud || f.silent && moved[i] > nothing
		}
		if !loud {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v carry %d bytes", flows, moved)
		}
	}
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
	for _, backups := range [][2]bool{{false, false}, {false, true}, {true, false}, {false, false}} {
		for i, backup := range backups {
			p.setBackup(t, p.endpoints(t)[i], backup)
		}
		p.settle(t, flow{conn, 0, backups[0]}, flow{conn, 1, backups[1]})
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
	for _, backup := range []bool{false, true, false} {
		err := p.sender.Do(func() error { return mptcp.SetSubflowBackup(info.Token, first.Local, first.Remote, backup) })
		if err != nil {
			t.Fatal(err)
		}
		p.settle(t, flow{conns[0], 1, backup}, flow{conns[1], 1, false})
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

// Endpoints and limits are made, read and removed like those of ip mptcp.
func TestEndpointsAndLimits(t *testing.T) {
	p := newTwoPaths(t, 0)
	p.set(t)
	in := func(f func() error) {
		t.Helper()
		if err := p.sender.Do(f); err != nil {
			t.Error(err)
		}
	}
	first := mptcp.Endpoint{ID: 5, Addr: p.links[0].Addr(p.sender), Flags: mptcp.EndpointSubflow | mptcp.EndpointBackup}
	second := mptcp.Endpoint{Addr: p.links[1].Addr(p.sender), Port: 4433, Ifindex: 1, Flags: mptcp.EndpointSignal}
	in(func() error { return mptcp.AddEndpoint(first) })
	in(func() error { return mptcp.AddEndpoint(second) })
	second.ID = 6
	if got := p.endpoints(t); !slices.Equal(got, []mptcp.Endpoint{first, second}) {
		t.Errorf("endpoints %+v, made %+v and %+v", got, first, second)
	}
	if err := p.sender.Do(func() error { return mptcp.AddEndpoint(first) }); err == nil ||
		err.Error() != "make an endpoint of "+first.Addr.String()+": the address or the id is another endpoint's" {
		t.Errorf("made twice: %v", err)
	}
	in(func() error { return mptcp.DeleteEndpoint(first) })
	if err := p.sender.Do(func() error { return mptcp.DeleteEndpoint(first) }); !errors.Is(err, mptcp.ErrGone) {
		t.Errorf("removed twice: %v", err)
	}
	if got := p.endpoints(t); !slices.Equal(got, []mptcp.Endpoint{second}) {
		t.Errorf("endpoints %+v, left %+v", got, second)
	}

	want := mptcp.Limits{Subflows: 4, AddAddrAccepted: 3}
	in(func() error { return mptcp.SetLimits(want) })
	var got mptcp.Limits
	in(func() (err error) { got, err = mptcp.ReadLimits(); return err })
	if got != want {
		t.Errorf("limits %+v, set %+v", got, want)
	}
}
