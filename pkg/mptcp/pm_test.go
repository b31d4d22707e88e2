// SPDX-License-Identifier: Apache-2.0

package mptcp_test

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/netlab"
)

// set makes endpoints of the sender's two addresses, in that order, by ip mptcp.
func (p *twoPaths) set(t *testing.T, flags ...netlab.MPTCPEndpoint) {
	t.Helper()
	for i := range flags {
		flags[i].Addr = p.links[i].Addr(p.sender)
	}
	if err := p.sender.MPTCP(netlab.MPTCPLimits{Subflows: 2, AddAddrAccepted: 2}, flags...); err != nil {
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
	p.set(t, netlab.MPTCPEndpoint{Subflow: true, Fullmesh: true}, netlab.MPTCPEndpoint{Signal: true, Backup: true})
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

// A path whose endpoint is a backup falls silent in both directions, and comes back.
func TestBackupFallsSilent(t *testing.T) {
	p := newTwoPaths(t, 20e6)
	p.set(t, netlab.MPTCPEndpoint{}, netlab.MPTCPEndpoint{})
	ln := p.listen(t)
	conn := p.dial(t, ln, "cubic", mptcp.Dial)
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	for _, end := range []struct{ from, to *net.TCPConn }{{conn, peer}, {peer, conn}} {
		go func() {
			block := make([]byte, 64<<10)
			for {
				if _, err := end.from.Write(block); err != nil {
					return
				}
			}
		}()
		go func() {
			block := make([]byte, 64<<10)
			for {
				if _, err := end.to.Read(block); err != nil {
					return
				}
			}
		}()
	}
	// moved is what a path carried of the connection in half a second, there and back.
	moved := func(path int) (sum uint64) {
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
	const full = 2 * 20e6 / 8 / 2 // bytes
	for _, step := range []struct{ first, second bool }{{false, false}, {false, true}, {true, false}, {false, false}} {
		for i, backup := range []bool{step.first, step.second} {
			p.setBackup(t, p.endpoints(t)[i], backup)
		}
		time.Sleep(time.Second) // what is queued goes, windows grow
		for i, backup := range []bool{step.first, step.second} {
			got := moved(i)
			t.Logf("%+v: path %d carried %d of %.0f bytes", step, i, got, full)
			if backup && got > full/50 || !backup && got < full/2 {
				t.Errorf("backups %+v: path %d carried %d of %.0f bytes", step, i, got, full)
			}
		}
	}
}

// Only a userspace path manager's connections have flags of their own.
func TestSubflowBackupIsRefused(t *testing.T) {
	p := newTwoPaths(t, 0)
	ln := p.listen(t)
	conn := p.dial(t, ln, "cubic", mptcp.Dial)
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
