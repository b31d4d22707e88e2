// SPDX-License-Identifier: Apache-2.0

// Package routes changes the routes by which hosts with several ways out find them, in the network namespace of the
// calling thread. Source routes are those of MPTCP hosts: packets from each address leave by the interface that has it.
package routes

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Rule sends packets from some addresses to a routing table: ip rule add from FROM table TABLE.
type Rule struct {
	From     netip.Prefix
	Table    uint32
	Priority uint32 // 0 for one below the least that there is
}

// Route is a route of a routing table: ip route add TO via VIA dev DEV table TABLE.
type Route struct {
	Table uint32
	To    netip.Prefix
	Via   netip.Addr // the gateway; the zero Addr for what is on the link
	Dev   string
}

// Reserved reports whether a table is one of those that every host has, which packets from anywhere go by.
func Reserved(table uint32) bool {
	return table == unix.RT_TABLE_UNSPEC || table >= unix.RT_TABLE_COMPAT && table <= unix.RT_TABLE_LOCAL
}

var families = []int{unix.AF_INET, unix.AF_INET6}

// Rules returns the rules that choose by the source alone, for tables that are not Reserved.
func Rules() ([]Rule, error) {
	var all []Rule
	for _, family := range families {
		list, err := netlink.RuleList(family)
		if err != nil {
			return nil, fmt.Errorf("list the routing rules: %w", err)
		}
		for _, r := range list {
			from, ok := prefixOf(r.Src, family)
			if ok && r.Src != nil && onlySource(r) && !Reserved(uint32(r.Table)) {
				all = append(all, Rule{From: from, Table: uint32(r.Table), Priority: uint32(r.Priority)})
			}
		}
	}
	return all, nil
}

// onlySource tells whether a rule is a Rule and no more.
func onlySource(r netlink.Rule) bool {
	bare := netlink.NewRule()
	bare.Priority, bare.Family, bare.Table, bare.Src, bare.Protocol = r.Priority, r.Family, r.Table, r.Src, r.Protocol
	return r == *bare
}

// AddRule makes a rule.
func AddRule(r Rule) error {
	if err := netlink.RuleAdd(r.raw()); err != nil {
		return fmt.Errorf("make the routing rule from %v table %d: %w", r.From, r.Table, err)
	}
	return nil
}

// DeleteRule removes a rule, which may be gone already.
func DeleteRule(r Rule) error {
	if err := netlink.RuleDel(r.raw()); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the routing rule from %v table %d: %w", r.From, r.Table, err)
	}
	return nil
}

func (r Rule) raw() *netlink.Rule {
	raw := netlink.NewRule()
	raw.Family, raw.Table, raw.Src = familyOf(r.From.Addr()), int(r.Table), netOf(r.From)
	if r.Priority != 0 {
		raw.Priority = int(r.Priority)
	}
	return raw
}

// In returns the routes of a table that have one interface. Of those to the same place it is the first that the kernel
// takes.
func In(table uint32) ([]Route, error) {
	var all []Route
	for _, family := range families {
		list, err := netlink.RouteListFiltered(family, &netlink.Route{Table: int(table)}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("list the routes of table %d: %w", table, err)
		}
		slices.SortStableFunc(list, func(a, b netlink.Route) int { return cmp.Compare(a.Priority, b.Priority) })
		for _, raw := range list {
			to, ok := prefixOf(raw.Dst, family)
			link, err := netlink.LinkByIndex(raw.LinkIndex)
			if !ok || err != nil || raw.Type != unix.RTN_UNICAST || len(raw.MultiPath) > 0 || raw.Tos != 0 {
				continue
			}
			via, _ := netip.AddrFromSlice(raw.Gw)
			r := Route{Table: table, To: to, Via: via.Unmap(), Dev: link.Attrs().Name}
			if !slices.ContainsFunc(all, func(o Route) bool { return o.To == r.To }) {
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// Put makes a route, in the place of one to the same destinations in its table.
func Put(r Route) error {
	raw, err := r.raw()
	if err == nil {
		err = netlink.RouteReplace(raw)
	}
	if errors.Is(err, unix.ENETUNREACH) {
		err = fmt.Errorf("gateway %v is not on the link of %s: the interface is down, or has no address in its network", r.Via, r.Dev)
	}
	if err != nil {
		return fmt.Errorf("make %v: %w", r, err)
	}
	return nil
}

// Delete removes a route, which may be gone already, with its interface too.
func Delete(r Route) error {
	raw, err := r.raw()
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = netlink.RouteDel(raw)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove %v: %w", r, err)
	}
	return nil
}

func (r Route) String() string {
	text := "the route to " + r.To.String()
	if r.To.Bits() == 0 {
		text = "the default route"
	}
	if r.Via.IsValid() {
		text += " via " + r.Via.String()
	}
	return fmt.Sprintf("%s dev %s table %d", text, r.Dev, r.Table)
}

func (r Route) raw() (*netlink.Route, error) {
	link, err := netlink.LinkByName(r.Dev)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, fmt.Errorf("there is no interface %s: %w", r.Dev, err)
	}
	if err != nil {
		return nil, err
	}
	raw := &netlink.Route{Family: familyOf(r.To.Addr()), Table: int(r.Table), Dst: netOf(r.To), LinkIndex: link.Attrs().Index}
	if r.Via.IsValid() {
		raw.Gw = r.Via.AsSlice()
	} else {
		raw.Scope = netlink.SCOPE_LINK
	}
	return raw, nil
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func netOf(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefixOf is everything, where the kernel gives no network.
func prefixOf(n *net.IPNet, family int) (netip.Prefix, bool) {
	if n == nil {
		all := netip.IPv4Unspecified()
		if family == unix.AF_INET6 {
			all = netip.IPv6Unspecified()
		}
		return netip.PrefixFrom(all, 0), true
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	if family == unix.AF_INET {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, bits), ok
}
