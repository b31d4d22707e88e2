// SPDX-License-Identifier: Apache-2.0

package mptcp_test

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// The state of another namespace than the thread's, read by a thread that has given up its capabilities, as it changes.
func TestStateWithoutCapabilities(t *testing.T) {
	p := newTwoPaths(t, 0)
	var s *mptcp.State
	if err := p.sender.Do(func() (err error) { s, err = mptcp.OpenState(); return err }); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p.set(t, lab.MPTCPEndpoint{Subflow: true, Fullmesh: true}, lab.MPTCPEndpoint{Signal: true, Backup: true})
	if err := p.sender.Sysctl("net.mptcp.pm_type", "1"); err != nil {
		t.Fatal(err)
	}
	before := counter(t, s, "MPCapableSYNTX")
	ln := p.listen(t)
	p.dial(t, ln, mptcp.Options{})

	err := netns.OnOwnThread(func() error {
		var none [2]unix.CapUserData
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&header, &none[0]); err != nil {
			return err
		}
		endpoints, err := s.Endpoints()
		want := []mptcp.Endpoint{
			{ID: 1, Addr: p.links[0].Addr(p.sender), Flags: mptcp.EndpointSubflow | mptcp.EndpointFullmesh},
			{ID: 2, Addr: p.links[1].Addr(p.sender), Flags: mptcp.EndpointSignal | mptcp.EndpointBackup},
		}
		if err != nil || !slices.Equal(endpoints, want) {
			t.Errorf("endpoints %+v, want %+v: %v", endpoints, want, err)
		}
		if l, err := s.Limits(); err != nil || l != (mptcp.Limits{Subflows: 2, AddAddrAccepted: 2}) {
			t.Errorf("limits %+v, %v", l, err)
		}
		if userspace, err := s.UserspacePM(); err != nil || !userspace {
			t.Errorf("userspace path manager %t, %v", userspace, err)
		}
		if after := counter(t, s, "MPCapableSYNTX"); after != before+1 {
			t.Errorf("%d connections opened, want %d", after, before+1)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func counter(t *testing.T, s *mptcp.State, name string) uint64 {
	t.Helper()
	all, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	n, known := all[name]
	if !known {
		t.Fatalf("the kernel does not count %s: %v", name, all)
	}
	return n
}
