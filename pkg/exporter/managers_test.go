// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// named is what was read of the namespace of this name; nil if it is not covered.
func named(t *testing.T, n *Namespaces, name string) *Manager {
	t.Helper()
	all, err := n.Read()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all.Covered, func(m Manager) bool { return m.NetnsName == name })
	if i < 0 {
		return nil
	}
	return &all.Covered[i]
}

// Namespaces come and go while others are held, and one that has lost its name is let go of.
func TestNamespacesComeAndGo(t *testing.T) {
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if err := l.Close(); err != nil && !closed {
			t.Error(err)
		}
	}()
	n, err := OpenNamespaces()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	own, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	if n.open[own.Inode] == nil {
		t.Error("the process's own namespace is not covered")
	}

	host, err := l.Host("late")
	if err != nil {
		t.Fatal(err)
	}
	if m := named(t, n, host.Namespace()); m == nil || len(m.Endpoints) != 0 || len(m.Counters) == 0 {
		t.Errorf("of a new namespace: %+v", m)
	}
	err = host.MPTCP(lab.MPTCPLimits{Subflows: 3}, lab.MPTCPEndpoint{Addr: netip.MustParseAddr("127.0.0.1"), Signal: true})
	if err != nil {
		t.Fatal(err)
	}
	if m := named(t, n, host.Namespace()); m == nil || len(m.Endpoints) != 1 || m.Limits.Subflows != 3 {
		t.Errorf("with an endpoint: %+v", m)
	}

	ns, err := netns.Named(host.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	if closed = true; l.Close() != nil {
		t.Fatal("the lab does not close")
	}
	if m := named(t, n, host.Namespace()); m != nil || n.open[ns.Inode] != nil {
		t.Errorf("after its end: %+v", m)
	}
}

// Those beyond the limit are only counted.
func TestNamespacesAreBounded(t *testing.T) {
	n, err := OpenNamespaces()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for i := range uint64(maxNamespaces) {
		n.open[i] = &mptcp.State{}
	}
	if err := n.enter(netns.NS{}); !errors.Is(err, errTooMany) {
		t.Errorf("one more than %d: %v", maxNamespaces, err)
	}
}
