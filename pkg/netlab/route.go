// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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
	rule := netlink.NewRule()
	rule.Src = ipNet(netip.PrefixFrom(e.addr, 32))
	rule.Table = e.table
	rule.Priority = rulePriority
	if err := e.host.nl.RuleAdd(rule); err != nil {
		return fmt.Errorf("add the rule for %v: %w", e.addr, err)
	}
	nowhere := &netlink.Route{
		Dst:      ipNet(netip.MustParsePrefix("0.0.0.0/0")),
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

// farCost is more than any number of hops.
const farCost = 1 << 20

// Route gives every host a shortest route to every address of the lab, from
// each of its own addresses through that address's interface. Call it when the
// links are made, and again after adding some.
//
// An address is reached by its own link; where no path leads there, by any
// link of its host (two hosts with two links between them, say, where the
// first address of one speaks to the second of the other).
func (l *Lab) Route() error {
	for _, h := range l.hosts {
		for _, e := range h.ends {
			e.routes = slices.DeleteFunc(e.routes, func(r netlink.Route) bool { return r.Gw != nil })
		}
	}
	for _, dst := range l.hosts {
		byAny := l.hops(dst, dst)
		for _, target := range dst.ends {
			byOwn := l.hops(target.peer.host, dst)
			cost := func(e *end) (int, bool) {
				next := e.peer.host
				if n, ok := byOwn[next]; ok && next.forwards && next != dst {
					return n, true
				}
				if n, ok := byAny[next]; ok && (next.forwards || next == dst) {
					return farCost + n, true
				}
				return 0, false
			}
			for _, h := range l.hosts {
				if h == dst {
					continue
				}
				if err := h.routeTo(target, cost); err != nil {
					return fmt.Errorf("netlab: %s: %w", h.name, err)
				}
			}
		}
	}
	return nil
}

// routeTo installs h's routes to the address of target; cost is that of going
// through one of h's ends, if that leads there at all.
func (h *Host) routeTo(target *end, cost func(*end) (int, bool)) error {
	var best *end
	var bestCost int
	for _, e := range h.ends {
		if e == target.peer {
			// On the same subnet, where the kernel has its own route.
			best, bestCost = e, -1
			continue
		}
		c, ok := cost(e)
		if !ok {
			continue
		}
		if e.table != 0 {
			if err := e.addRoute(e.via(target, e.table)); err != nil {
				return err
			}
		}
		if best == nil || c < bestCost {
			best, bestCost = e, c
		}
	}
	if best == nil || best == target.peer {
		return nil
	}
	return best.addRoute(best.via(target, unix.RT_TABLE_MAIN))
}

// via is the route through e to the address of target.
func (e *end) via(target *end, table int) netlink.Route {
	return netlink.Route{
		Dst:   ipNet(netip.PrefixFrom(target.addr, 32)),
		Gw:    e.peer.addr.AsSlice(),
		Table: table,
	}
}

// hops counts the hops from every host to start. Only routers pass packets on,
// and dst does nothing but receive.
func (l *Lab) hops(start, dst *Host) map[*Host]int {
	hops := map[*Host]int{start: 0}
	for queue := []*Host{start}; len(queue) > 0; queue = queue[1:] {
		h := queue[0]
		if h != start && h == dst || h != dst && !h.forwards {
			continue
		}
		for _, e := range h.ends {
			next := e.peer.host
			if _, seen := hops[next]; !seen {
				hops[next] = hops[h] + 1
				queue = append(queue, next)
			}
		}
	}
	return hops
}
