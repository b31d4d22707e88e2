// SPDX-License-Identifier: Apache-2.0

package mptcp_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mpcc/mpcc/pkg/mptcp"
)

// What anybody may see of a connection is what its own process sees.
func TestConnections(t *testing.T) {
	p := newTwoPaths(t, 20e6)
	ln := p.listen(t)
	conn := p.dial(t, ln, mptcp.Options{CC: "cubic"})
	peer, err := ln.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	go discard(peer)
	joined := func() (own mptcp.Info) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if _, err := conn.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			if own, err = mptcp.ReadInfo(conn); err != nil {
				t.Fatal(err)
			}
			if len(own.Subflows) == 2 && own.Subflows[1].TCP.State == 1 {
				return own
			}
		}
		t.Fatal("no second subflow in a minute")
		return own
	}
	own := joined()
	acknowledged := func() bool {
		for _, s := range own.Subflows {
			if s.TCP.Unacked > 0 || s.TCP.Notsent_bytes > 0 {
				return false
			}
		}
		return own.BytesAcked == own.BytesSent
	}
	for deadline := time.Now().Add(time.Minute); !acknowledged(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not all is acknowledged after a minute: %+v", own)
		}
		if own, err = mptcp.ReadInfo(conn); err != nil {
			t.Fatal(err)
		}
	}

	var connections []mptcp.Connection
	var sockets []mptcp.TCPSocket
	var limits mptcp.Limits
	var counters map[string]uint64
	var devices [2]uint32
	second := p.links[1].Addr(p.sender)
	err = p.sender.Do(func() (err error) {
		connections, err = mptcp.Connections()
		if err != nil {
			return err
		}
		if sockets, err = mptcp.TCPSockets(); err != nil {
			return err
		}
		if limits, err = mptcp.ReadLimits(); err != nil {
			return err
		}
		if counters, err = mptcp.Counters(); err != nil {
			return err
		}
		for i := range devices {
			from := p.links[i].Addr(p.sender)
			if devices[i], err = mptcp.Device(from, p.links[0].Addr(p.receiver), 0); err != nil {
				return err
			}
		}
		_, err = mptcp.Device(second, netip.MustParseAddr("192.0.2.1"), 0)
		if !errors.Is(err, mptcp.ErrNoRoute) {
			return errors.Join(errors.New("there is a route to nowhere"), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(connections) != 1 {
		t.Fatalf("connections %+v", connections)
	}
	c := connections[0]
	if c.Token != own.Token || c.Fallback || !c.PeerSpeaks || c.ExtraSubflows != 1 || c.MaxExtraSubflows != 2 ||
		c.Local != conn.LocalAddr().(*net.TCPAddr).AddrPort() || c.Remote != conn.RemoteAddr().(*net.TCPAddr).AddrPort() ||
		c.BytesSent != own.BytesSent || c.BytesAcked != own.BytesAcked || c.WriteSeq != c.SendUna || c.Memory.SendBuffer == 0 {
		t.Errorf("it is %+v, to its process %+v", c, own)
	}
	for i, want := range own.Subflows {
		found := false
		for _, s := range sockets {
			if s.Local != want.Local {
				continue
			}
			found = true
			first := i == 0
			if s.Subflow == nil || s.Subflow.Token != own.Token || s.Remote != want.Remote || s.CC != "cubic" || s.Listens ||
				s.TCP.Bytes_acked != want.TCP.Bytes_acked ||
				(s.Subflow.Flags&mptcp.SubflowAskedCapable != 0) != first || (s.Subflow.Flags&mptcp.SubflowAskedJoin != 0) == first {
				t.Errorf("subflow %d is %+v %+v, to its process %+v", i, s, s.Subflow, want)
			}
		}
		if !found {
			t.Errorf("no socket for %+v in %+v", want, sockets)
		}
	}
	if want := (mptcp.Limits{Subflows: 2, AddAddrAccepted: 2}); limits != want {
		t.Errorf("limits %+v, want %+v", limits, want)
	}
	if counters["MPCapableSYNTX"] != 1 || counters["MPJoinSynAckRx"] < 1 {
		t.Errorf("counters %v", counters)
	}
	for i, device := range devices {
		if want := p.links[i].Index(p.sender); device != uint32(want) {
			t.Errorf("packets from path %d leave by interface %d, not %d", i, device, want)
		}
	}

	// A listener and TCP connections are no subflows of any connection.
	err = p.receiver.Do(func() (err error) {
		sockets, err = mptcp.TCPSockets()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	listeners := 0
	for _, s := range sockets {
		if s.Listens && s.Subflow != nil && s.Subflow.Token == 0 && s.Local.Port() == ln.Addr().Port() {
			listeners++
		}
	}
	if listeners == 0 {
		t.Errorf("no MPTCP listener in %+v", sockets)
	}
}
