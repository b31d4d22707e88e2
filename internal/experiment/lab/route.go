// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/ways"
)

// rulePriority is before the main table's 32766.
const rulePriority = 1000

// addOwnRoutes gives the end's address a routing table of its own, in which
// everything goes through its interface or nowhere: a subflow whose link is
// down must fail instead of moving to another one.
func (e *end) addOwnRoutes() error {
	if e.table == 0 {
		return nil
	}
	if err := e.addRule(e.addr); err != nil {
		return err
	}
	nowhere := &netlink.Route{
		Dst:      ipNet(everywhere),
		Table:    e.table,
		Type:     unix.RTN_UNREACHABLE,
		Priority: 1 << 20,
	}
	if err := e.host.nl.RouteReplace(nowhere); err != nil {
		return fmt.Errorf("close the table of %v: %w", e.addr, err)
	}
	return e.addRoute(netlink.Route{
		Dst:   ipNet(e.subnet),
		Table: e.table,
		Scope: netlink.SCOPE_LINK,
	})
}

// addRule has packets with the source address addr routed by the end's own
// table. That is for packets that the host itself sends (IifName lo): where a
// relay gets one back, because a router takes the relay for a way to the
// destination, it goes on by the main table.
func (e *end) addRule(addr netip.Addr) error {
	if e.table == 0 {
		return nil
	}
	rule := netlink.NewRule()
	rule.Src = ipNet(netip.PrefixFrom(addr, 32))
	rule.IifName = "lo"
	rule.Table = e.table
	rule.Priority = rulePriority
	if err := e.host.nl.RuleAdd(rule); err != nil {
		return fmt.Errorf("add the rule for %v: %w", addr, err)
	}
	return nil
}

func (e *end) addRoute(r netlink.Route) error {
	r.LinkIndex = e.nl.Attrs().Index
	if err := e.host.nl.RouteReplace(&r); err != nil {
		return fmt.Errorf("add route to %v by %s: %w", r.Dst, e.dev, err)
	}
	e.routes = append(e.routes, r)
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}

// Route gives every host and router a shortest route to every address of the
// lab's hosts, from each of its own addresses through that address's interface.
// Call it when the links are made, and again after adding some.
//
// The way to an address ends with that address's link; where none does, with any
// link of its host: of two hosts with two links between them, the first address
// of one reaches the second of the other by the first link. Of equal ways a host
// takes the first; a router spreads over all of them, by a hash of source and
// destination.
func (l *Lab) Route() error {
	for _, h := range l.hosts {
		for _, e := range h.ends {
			e.routes = slices.DeleteFunc(e.routes, func(r netlink.Route) bool { return r.Gw != nil || r.MultiPath != nil })
		}
	}
	for _, h := range l.hosts {
		if !h.leaf() {
			continue
		}
		for _, table := range []int{h.ends[0].table, unix.RT_TABLE_MAIN} {
			if err := h.ends[0].addRoute(h.ends[0].via(everywhere, table)); err != nil {
				return fmt.Errorf("lab: %s: %w", h.name, err)
			}
		}
	}
	network := l.ways()
	for i, dst := range l.hosts {
		if dst.router {
			continue
		}
		for j, target := range dst.ends {
			to := network.To(ways.End{Node: i, End: j})
			for k, h := range l.hosts {
				if h == dst || h.leaf() {
					continue
				}
				if err := h.routeTo(target, to, k); err != nil {
					return fmt.Errorf("lab: %s: %w", h.name, err)
				}
			}
		}
	}
	return nil
}

// ways returns the lab's hosts and links, in its order.
func (l *Lab) ways() ways.Network {
	network := make(ways.Network, len(l.hosts))
	for i, h := range l.hosts {
		network[i].Forwards = h.forwards
	}
	for _, k := range l.links {
		network.Link(slices.Index(l.hosts, k.ends[0].host), slices.Index(l.hosts, k.ends[1].host))
	}
	return network
}

var everywhere = netip.MustParsePrefix("0.0.0.0/0")

// leaf says whether all of a host's traffic goes to the one router that it is
// linked to: a default route will do. In a large network most hosts are so.
func (h *Host) leaf() bool {
	return !h.forwards && len(h.ends) == 1 && h.ends[0].peer.host.router
}

// routeTo adds h's routes to the addresses of target; h has that place in the lab.
func (h *Host) routeTo(target *end, to *ways.Ways, place int) error {
	for i, e := range h.ends {
		if to.Direct(place, i) {
			continue // on the same subnet, where the kernel has its own route
		}
		if _, ok := to.Cost(place, i); !ok {
			continue
		}
		if err := e.addTableRoutes(target); err != nil {
			return err
		}
	}
	var best []*end
	for _, i := range to.Best(place) {
		if to.Direct(place, i) {
			return nil
		}
		best = append(best, h.ends[i])
	}
	for _, dst := range target.prefixes() {
		if err := h.addMainRoute(dst, best); err != nil {
			return err
		}
	}
	return nil
}

// addMainRoute adds a route by one end, or one that spreads over several.
func (h *Host) addMainRoute(dst netip.Prefix, by []*end) error {
	if len(by) == 1 {
		return by[0].addRoute(by[0].via(dst, unix.RT_TABLE_MAIN))
	}
	r := netlink.Route{Dst: ipNet(dst), Table: unix.RT_TABLE_MAIN}
	for _, e := range by {
		r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{LinkIndex: e.nl.Attrs().Index, Gw: e.peer.addr.AsSlice()})
	}
	if len(by) == 0 {
		return nil
	}
	if err := h.nl.RouteReplace(&r); err != nil {
		return fmt.Errorf("add route to %v by %d ways: %w", r.Dst, len(by), err)
	}
	for _, e := range by {
		e.routes = append(e.routes, r)
	}
	return nil
}

// addTableRoutes adds to e's own table, if it has one, what leads to target.
func (e *end) addTableRoutes(target *end) error {
	if e.table == 0 {
		return nil
	}
	for _, dst := range target.prefixes() {
		if err := e.addRoute(e.via(dst, e.table)); err != nil {
			return err
		}
	}
	return nil
}

// prefixes cover all the end's addresses and no other host's.
func (e *end) prefixes() []netip.Prefix {
	if e.peer.host.router {
		return []netip.Prefix{e.subnet}
	}
	all := []netip.Prefix{netip.PrefixFrom(e.addr, 32)}
	if len(e.more) > 0 {
		all = append(all, e.morePrefix())
	}
	return all
}

// via is the route through e to dst.
func (e *end) via(dst netip.Prefix, table int) netlink.Route {
	return netlink.Route{Dst: ipNet(dst), Gw: e.peer.addr.AsSlice(), Table: table}
}
