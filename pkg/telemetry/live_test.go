// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/telemetry"
	"github.com/mpcc/mpcc/test/loaded"
)

// host is a namespace of its own until close.
type host struct {
	*lab.Host
	inode uint64
	close func()
}

func newHost(t *testing.T) host {
	t.Helper()
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	end := func() {
		if err := l.Close(); err != nil && !closed {
			t.Error(err)
		}
		closed = true
	}
	t.Cleanup(end)
	h, err := l.Host("host")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := netns.Named(h.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	return host{h, ns.Inode, end}
}

// exchange connects the host with itself under dts, sends so many bytes, and looks before it closes.
func (h host) exchange(t *testing.T, bytes int64, look func()) {
	t.Helper()
	err := h.Do(func() error {
		ln, err := mptcp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), "")
		if err != nil {
			return err
		}
		defer ln.Close()
		client, err := mptcp.Dial(t.Context(), ln.Addr(), mptcp.Options{CC: "dts", TCP: true})
		if err != nil {
			return err
		}
		defer client.Close()
		server, err := ln.Accept(t.Context())
		if err != nil {
			return err
		}
		defer server.Close()
		received := make(chan error, 1)
		go func() {
			_, err := io.CopyN(io.Discard, server, bytes)
			received <- err
		}()
		_, err = client.Write(make([]byte, bytes))
		if err = errors.Join(err, <-received); err != nil {
			return err
		}
		look()
		// Without TIME_WAIT, which would keep the namespace.
		for _, conn := range []*net.TCPConn{client, server} {
			if err := conn.SetLinger(0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T) telemetry.Snapshot {
	t.Helper()
	snap, err := telemetry.Take(t.Context())
	if err != nil || snap == nil {
		t.Fatalf("snapshot %v, %v", snap, err)
	}
	return *snap
}

func profiles(t *testing.T) []telemetry.Profile {
	t.Helper()
	source, err := telemetry.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	all, err := source.Profiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// settled waits until none of the host's subflows is live, and returns the totals of all namespaces that
// have had its inode number.
func (h host) settled(t *testing.T) (totals []telemetry.Total) {
	t.Helper()
	var snap telemetry.Snapshot
	live := func(f telemetry.Subflow) bool { return f.Netns == h.inode }
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if snap = read(t); !slices.ContainsFunc(snap.Subflows, live) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("still live: %+v", snap.Subflows)
		}
	}
	for _, total := range snap.Totals {
		if total.Netns == h.inode {
			totals = append(totals, total)
		}
	}
	return totals
}

// A namespace that gets the inode number of one that has ended is another one: it has totals of its own, and
// no energy profile.
func TestInodeNumberComesAgain(t *testing.T) {
	loaded.DTS(t, map[string]string{"plain": "own"})
	first := newHost(t)
	iface := loader.Interface{Netns: first.Namespace(), Name: "lo"}
	if err := loader.SetProfile(t.Context(), iface, loader.Profile{Uplink: 1000, Downlink: 1000, Base: 1000}); err != nil {
		t.Fatal(err)
	}
	const bytes = 1 << 20
	first.exchange(t, bytes, func() {})
	before := first.settled(t)
	if len(before) != 1 || before[0].BytesAcked < bytes || before[0].Energy == 0 || before[0].NetnsName != first.Namespace() {
		t.Fatalf("totals of the first: %+v", before)
	}
	if set := profiles(t); len(set) != 1 || set[0].NetnsName != first.Namespace() || set[0].Interface != "lo" || set[0].Uplink != 1000 {
		t.Errorf("profiles: %+v", set)
	}
	first.close()

	var second host
	for try := 0; ; try++ {
		if second = newHost(t); second.inode == first.inode {
			break
		}
		second.close()
		if try == 100 {
			t.Fatalf("in %d namespaces the inode number %d did not come again", try, first.inode)
		}
		time.Sleep(20 * time.Millisecond) // the kernel takes namespaces down in its own time
	}
	second.exchange(t, 3*bytes, func() {
		for _, f := range read(t).Subflows {
			if f.Netns == second.inode && (f.Priced || f.Energy != nil || f.NetnsName != second.Namespace()) {
				t.Errorf("a subflow of the second: %+v", f)
			}
		}
	})
	after := second.settled(t)
	if len(after) != 2 {
		t.Fatalf("totals of both: %+v", after)
	}
	one, two := after[0], after[1]
	if one.NetnsCookie != before[0].NetnsCookie {
		one, two = two, one
	}
	if one.BytesAcked != before[0].BytesAcked || one.Energy != before[0].Energy || one.NetnsCookie != before[0].NetnsCookie {
		t.Errorf("the first has %+v, had %+v", one, before[0])
	}
	if one.NetnsName != "" {
		t.Errorf("the first, which has ended, goes by the name of the second: %+v", one)
	}
	if two.BytesAcked < 3*bytes || two.BytesAcked > 3*bytes+10000 || two.Energy != 0 || two.NetnsName != second.Namespace() {
		t.Errorf("the second has %+v", two)
	}
	if set := profiles(t); len(set) != 1 || set[0].NetnsName != "" || set[0].NetnsCookie != one.NetnsCookie {
		t.Errorf("profiles: %+v", set)
	}
}
