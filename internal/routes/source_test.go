// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/internal/routes"
	"github.com/mpcc/mpcc/test/said"
)

// inNamespace runs f in a network namespace of its own with an interface wan0, whose address is 10.0.1.2/24.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	err := netns.OnOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		wan := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wan0"}, PeerName: "peer"}
		if err := netlink.LinkAdd(wan); err != nil {
			return err
		}
		addr, err := netlink.ParseAddr("10.0.1.2/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(wan, addr); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(wan); err != nil {
			return err
		}
		f()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func rules(t *testing.T, want ...routes.Rule) {
	t.Helper()
	if got, err := routes.Rules(); err != nil || !slices.Equal(got, want) {
		t.Errorf("rules %+v, %v; want %+v", got, err, want)
	}
}

func in(t *testing.T, table uint32, want ...routes.Route) {
	t.Helper()
	if got, err := routes.In(table); err != nil || !slices.Equal(got, want) {
		t.Errorf("routes %v, %v; want %v", got, err, want)
	}
}

func TestRules(t *testing.T) {
	inNamespace(t, func() {
		four := routes.Rule{From: netip.MustParsePrefix("10.0.1.2/32"), Table: 1001, Priority: 500}
		six := routes.Rule{From: netip.MustParsePrefix("2001:db8::/64"), Table: 7}
		for _, r := range []routes.Rule{four, six} {
			if err := routes.AddRule(r); err != nil {
				t.Error(err)
			}
		}
		// Others choose by more than the source, or are for a table that everybody goes by.
		for _, r := range []netlink.Rule{{Mark: 5, Table: 9}, {IifName: "lo", Table: 9}, {Table: unix.RT_TABLE_MAIN}} {
			raw := netlink.NewRule()
			raw.Family, raw.Src = unix.AF_INET, netlink.NewIPNet([]byte{10, 0, 1, 2})
			raw.Mark, raw.IifName, raw.Table = r.Mark, r.IifName, r.Table
			if err := netlink.RuleAdd(raw); err != nil {
				t.Error(err)
			}
		}
		six.Priority = 32765
		rules(t, four, six)
		for range 2 {
			if err := routes.DeleteRule(four); err != nil {
				t.Error(err)
			}
		}
		rules(t, six)
	})
}

func TestRoutes(t *testing.T) {
	inNamespace(t, func() {
		all := netip.MustParsePrefix("0.0.0.0/0")
		near := routes.Route{Table: 101, To: netip.MustParsePrefix("10.0.1.0/24"), Dev: "wan0"}
		far := routes.Route{Table: 101, To: all, Via: netip.MustParseAddr("10.0.1.1"), Dev: "wan0"}
		for _, r := range []routes.Route{near, far} {
			if err := routes.Put(r); err != nil {
				t.Error(err)
			}
		}
		in(t, 101, far, near)
		in(t, 102)
		far.Via = netip.MustParseAddr("10.0.1.3")
		if err := routes.Put(far); err != nil {
			t.Error(err)
		}
		in(t, 101, far, near)

		said.InALine(t, routes.Put(routes.Route{Table: 101, To: all, Dev: "wan9"}), "make the default route dev wan9 table 101: there is no interface wan9")
		said.InALine(t, routes.Put(routes.Route{Table: 101, To: all, Via: netip.MustParseAddr("192.0.2.1"), Dev: "wan0"}),
			"gateway 192.0.2.1 is not on the link of wan0")

		for range 2 {
			if err := routes.Delete(far); err != nil {
				t.Error(err)
			}
		}
		in(t, 101, near)
		if err := routes.Delete(routes.Route{Table: 101, To: all, Dev: "wan9"}); err != nil {
			t.Error(err)
		}
	})
}

func TestReserved(t *testing.T) {
	for table, want := range map[uint32]bool{0: true, 1: false, 251: false, 252: true, 253: true, 254: true, 255: true, 256: false} {
		if got := routes.Reserved(table); got != want {
			t.Errorf("table %d: %v", table, got)
		}
	}
}
