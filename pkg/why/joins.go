// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/mpcc/mpcc/pkg/mptcp"
)

// fallback says why a connection has become TCP. The counters are the namespace's: they tell of this connection
// where nothing else can.
func (v *view) fallback(c *Connection) Finding {
	w := words{"remote": c.Remote.Addr().String()}
	var counted []string
	for _, name := range []string{
		"MPCapableFallbackSYNACK", "MPCapableFallbackACK", "MPCapableSYNTXDrop", "Blackhole", "MPCapableSYNTXDisabled",
		"DataCsumErr", "MPFailTx", "MPFailRx", "InfiniteMapTx", "InfiniteMapRx", "DSSCorruptionFallback", "DssFallback",
		"MPCapableDataFallback",
	} {
		if n := v.Counters[name]; n > 0 {
			counted = append(counted, count(name, n))
		}
	}
	key := "the peer has not given its MPTCP key"
	if c.PeerSpeaks {
		key = "the peer has given its MPTCP key"
	}
	evidence := append([]string{"the connection is marked as fallen back", key}, counted...)
	name := "peer-without-mptcp"
	switch {
	case c.PeerSpeaks && v.Counters["DataCsumErr"]+v.Counters["MPFailRx"] > 0:
		name = "checksum-failed"
	case c.PeerSpeaks:
		name = "options-stripped"
	case v.Counters["MPCapableSYNTXDrop"]+v.Counters["MPCapableSYNTXDisabled"] > 0:
		name = "syn-blocked"
	}
	return v.finding(name, w, evidence...)
}

// single says why a connection has one subflow.
func (v *view) single(c *Connection) Finding {
	w := words{"remote": c.Remote.Addr().String()}
	have := fmt.Sprintf("%s, at most %d beyond the first", many(len(c.usable()), "established subflow"), c.MaxExtraSubflows)
	for i := range c.Subflows {
		if s := &c.Subflows[i]; s.Joining {
			asked := fmt.Sprintf("the subflow %s > %s asks to join, unanswered after %s", s.Local, s.Remote, many(s.Timeouts, "timeout"))
			if f := v.wayOut(c, s.Local.Addr(), s.Remote.Addr(), asked); f != nil {
				return *f
			}
			w["address"], w["remote"] = s.Local.Addr().String(), s.Remote.Addr().String()
			return v.finding("join-blocked", w, asked, have)
		}
	}
	established := func(s Subflow) bool { return s.Flags&mptcp.SubflowFullyEstablished != 0 }
	switch {
	case v.UserspacePM && c.MaxExtraSubflows == 0:
		return v.finding("userspace-pm", w, "net.mptcp.pm_type is 1", have)
	case v.Limits.Subflows == 0:
		return v.finding("limit-subflows", w, "ip mptcp limits: subflows 0", have)
	case !slices.ContainsFunc(c.Subflows, established) || c.Opener && c.BytesAcked+c.BytesReceived == 0:
		return v.finding("no-data-yet", w, fmt.Sprintf("%d B acknowledged, %d B received", c.BytesAcked, c.BytesReceived))
	case !c.Opener:
		return v.accepted(c, w, have)
	}
	var asks []mptcp.Endpoint // that should have opened a subflow
	var other *mptcp.Endpoint // that would, with its flag
	for i, e := range v.Endpoints {
		switch {
		case e.Addr.Is4() != c.Local.Addr().Is4() || e.Addr == c.Local.Addr():
		case e.Flags&(mptcp.EndpointSubflow|mptcp.EndpointFullmesh) != 0:
			asks = append(asks, e)
		default:
			other = &v.Endpoints[i]
		}
	}
	for _, e := range asks {
		says := fmt.Sprintf("endpoint %d is %v, and has no subflow", e.ID, e.Addr)
		if f := v.wayOut(c, e.Addr, c.Remote.Addr(), says, have); f != nil {
			return *f
		}
	}
	switch {
	case len(asks) > 0:
		return v.refused(c, asks[0].Addr, fmt.Sprintf("endpoint %d is %v, and has no subflow", asks[0].ID, asks[0].Addr), have)
	case c.AddrsAccepted > 0:
		return v.refused(c, c.Local.Addr(), fmt.Sprintf("%s of the peer accepted, and no subflow", many(c.AddrsAccepted, "address")), have)
	case other != nil:
		home, _ := v.address(other.Addr)
		w["address"], w["id"], w["interface"] = other.Addr.String(), fmt.Sprint(other.ID), home.Interface
		return v.finding("endpoint-not-subflow", w, fmt.Sprintf("%v has no flag subflow or fullmesh", other), have)
	case v.Counters["AddAddr"] > 0 && v.Limits.AddAddrAccepted == 0:
		return v.finding("limit-add-addr", w, "ip mptcp limits: add_addr_accepted 0", count("AddAddr", v.Counters["AddAddr"]), have)
	}
	return v.noEndpoint(c, w, have)
}

// noEndpoint looks for an address that could be an endpoint.
func (v *view) noEndpoint(c *Connection, w words, have string) Finding {
	evidence := []string{"no endpoint opens subflows", have}
	for _, a := range v.Addresses {
		home, _ := v.address(c.Local.Addr())
		if a.Interface == home.Interface || a.Addr.Is4() != c.Local.Addr().Is4() {
			continue
		}
		seen := fmt.Sprintf("%s has %v", a.Interface, a.Addr)
		if a.Up {
			w["address"], w["interface"] = a.Addr.String(), a.Interface
			return v.finding("no-endpoint", w, append(evidence, seen)...)
		}
		evidence = append(evidence, seen+", and is down")
	}
	return v.finding("no-second-address", w, evidence...)
}

// wayOut returns what is wrong with the way of packets from an address; nil where that is well.
func (v *view) wayOut(c *Connection, from, to netip.Addr, evidence ...string) *Finding {
	a, ok := v.address(from)
	w := words{"address": from.String(), "remote": to.String(), "interface": a.Interface, "route": fmt.Sprintf(
		"ip rule add from %v lookup 100; ip route add default via GATEWAY dev %s table 100", from, a.Interface)}
	device := c.Devices[from]
	var f Finding
	switch {
	case !ok:
		return nil
	case !a.Up:
		f = v.finding("link-down", w, append(evidence, a.Interface+" is down, or has no carrier")...)
	case device == "":
		f = v.finding("no-route", w, append(evidence, fmt.Sprintf("ip route get %v from %v finds none", to, from))...)
	case device != a.Interface:
		w["device"] = device
		f = v.finding("source-route", w, append(evidence, fmt.Sprintf("ip route get %v from %v: dev %s", to, from, device))...)
	default:
		return nil
	}
	return &f
}

// refused says what has become of a subflow that was to join. Counters are the namespace's.
func (v *view) refused(c *Connection, from netip.Addr, evidence ...string) Finding {
	w := words{"address": from.String(), "remote": c.Remote.Addr().String()}
	for _, name := range []string{"MPJoinSynTx", "MPJoinSynAckRx", "MPJoinSynAckHMacFailure", "MPRstTx", "MPRstRx"} {
		if n, known := v.Counters[name]; known {
			evidence = append(evidence, count(name, n))
		}
	}
	answered := v.Counters["MPJoinSynAckRx"]
	asked, known := v.Counters["MPJoinSynTx"] // from Linux 6.12 on
	switch {
	case v.Counters["MPJoinSynAckHMacFailure"] > 0, (known && asked > answered || answered == 0) && v.Counters["MPRstTx"] > 0:
		return v.finding("join-stripped", w, evidence...)
	case known && asked > answered, answered == 0:
		return v.finding("join-reset", w, evidence...)
	}
	return v.finding("join-refused", w, evidence...)
}

// accepted is single for a connection that the peer has opened.
func (v *view) accepted(c *Connection, w words, have string) Finding {
	evidence := []string{"the peer has opened the connection", have}
	for _, name := range []string{"MPJoinSynRx", "MPJoinAckRx", "MPJoinNoTokenFound", "MPJoinAckHMacFailure", "AddAddrTx"} {
		if n := v.Counters[name]; n > 0 {
			evidence = append(evidence, count(name, n))
		}
	}
	return v.finding("peer-opens-none", w, evidence...)
}

// blocked are subflows on which nothing can go, or which wait for others to fail.
func (v *view) blocked(c *Connection, usable []int) (found []Finding) {
	var backups, active int
	for _, i := range usable {
		s := &c.Subflows[i]
		w := v.words(c, s)
		switch {
		case s.Interface != "" && !s.Up:
			found = append(found, v.finding("link-down", w, s.Interface+" is down, or has no carrier"))
		case v.dead(s):
			found = append(found, v.finding("path-dead", w, fmt.Sprintf("%s in a row, no acknowledgement for %s", many(s.Timeouts, "timeout"), span(s.SinceAck))))
		case s.backup():
			backups++
		default:
			active++
			for _, j := range usable {
				if o := &c.Subflows[j]; j != i && o.Interface != s.Interface && o.Device == s.Device && s.Interface != "" && s.Device != s.Interface && s.Device != "" {
					found = append(found, v.finding("source-route", w, fmt.Sprintf("ip route get %v from %v: dev %s, as of the subflow from %v",
						s.Remote.Addr(), s.Local.Addr(), s.Device, o.Local.Addr())))
					break
				}
			}
		}
	}
	if backups == 0 || active > 1 {
		return found
	}
	for _, i := range usable {
		s := &c.Subflows[i]
		if !s.backup() {
			continue
		}
		w := v.words(c, s)
		by := "this side"
		w["unbackup"] = fmt.Sprintf("ip mptcp endpoint change %v nobackup", s.Local.Addr())
		if s.Flags&mptcp.SubflowBackup == 0 {
			by = "the peer"
			w["unbackup"] = fmt.Sprintf("%sip mptcp endpoint change %v nobackup", peer, s.Remote.Addr())
		}
		found = append(found, v.finding("backup", w, fmt.Sprintf("%s has made subflow %v > %v a backup", by, s.Local, s.Remote), v.carriedBy(c, i)))
	}
	return found
}

// dead tells whether a subflow's path has failed silently.
func (v *view) dead(s *Subflow) bool {
	return s.Timeouts >= 2 || s.Timeouts > 0 && s.Acked == 0 && s.SinceAck > max(time.Second, 3*s.RTT)
}
