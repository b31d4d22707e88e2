// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/mpcc/mpcc/internal/routes"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// limits are those of a namespace's path manager. They are always there.
type limits struct {
	Netns  string `yaml:"netns,omitempty"`
	Limits `yaml:",inline"`
}

func (l limits) id() id       { return id{kindLimits, l.Netns, ""} }
func (l limits) name() string { return "limits" }

func (l limits) value() string {
	return fmt.Sprintf("subflows %d, add_addr_accepted %d", l.Subflows, l.AddAddrAccepted)
}

func (l limits) fits(there thing) bool { return l == there }

func (l limits) put(context.Context, thing) error {
	return inNetns(l.Netns, func() error {
		return mptcp.SetLimits(mptcp.Limits{Subflows: uint32(l.Subflows), AddAddrAccepted: uint32(l.AddAddrAccepted)})
	})
}

func (l limits) drop(context.Context) error { return nil }

// endpoint is one of a namespace's path manager.
type endpoint struct {
	Netns    string `yaml:"netns,omitempty"`
	Endpoint `yaml:",inline"`
	yields   bool // the id that it has is declared for another one
}

func (e endpoint) id() id { return id{kindEndpoint, e.Netns, e.key()} }

func (e endpoint) key() string {
	if e.Port == 0 {
		return e.Address.String()
	}
	return netip.AddrPortFrom(e.Address.Addr, e.Port).String()
}

func (e endpoint) name() string { return "endpoint " + e.key() }

func (e endpoint) value() string {
	words := slices.Sorted(slices.Values(e.Flags))
	if e.Dev != "" {
		words = append(words, "dev "+e.Dev)
	}
	if e.ID != 0 {
		words = append(words, fmt.Sprintf("id %d", e.ID))
	}
	return strings.Join(words, " ")
}

var endpointFlags = map[string]mptcp.EndpointFlags{
	"signal": mptcp.EndpointSignal, "subflow": mptcp.EndpointSubflow, "backup": mptcp.EndpointBackup, "fullmesh": mptcp.EndpointFullmesh,
}

func (e endpoint) flags() (all mptcp.EndpointFlags) {
	for _, word := range e.Flags {
		all |= endpointFlags[word]
	}
	return all
}

func (e endpoint) fits(there thing) bool {
	return e.stays(there.(endpoint)) && e.flags() == there.(endpoint).flags()
}

// stays tells whether an endpoint can become this one without an end of its subflows.
func (e endpoint) stays(there endpoint) bool {
	return !e.yields && (e.ID == 0 || e.ID == there.ID) && e.Dev == there.Dev && e.flags()&^mptcp.EndpointBackup == there.flags()&^mptcp.EndpointBackup
}

func (e endpoint) put(_ context.Context, was thing) error {
	return inNetns(e.Netns, func() error {
		raw := mptcp.Endpoint{ID: uint8(e.ID), Addr: e.Address.Addr, Port: e.Port, Flags: e.flags()}
		if was != nil && e.stays(was.(endpoint)) {
			raw.ID = uint8(was.(endpoint).ID)
			return mptcp.SetEndpointBackup(raw, raw.Flags&mptcp.EndpointBackup != 0)
		}
		if e.Dev != "" {
			dev, err := net.InterfaceByName(e.Dev)
			if err != nil {
				return fmt.Errorf("endpoint %v: there is no interface %s", e.Address, e.Dev)
			}
			raw.Ifindex = uint32(dev.Index)
		}
		return mptcp.AddEndpoint(raw)
	})
}

func (e endpoint) drop(context.Context) error {
	return inNetns(e.Netns, func() error {
		all, err := mptcp.Endpoints()
		if err != nil {
			return err
		}
		for _, there := range all {
			if there.Addr == e.Address.Addr && there.Port == e.Port && there.Flags&mptcp.EndpointImplicit == 0 {
				return mptcp.DeleteEndpoint(there)
			}
		}
		return nil
	})
}

// rule sends packets from an address to a routing table.
type rule struct {
	Netns    string `yaml:"netns,omitempty"`
	From     Prefix `yaml:"from"`
	Table    uint32 `yaml:"table"`
	Priority uint32 `yaml:"priority,omitempty"`
}

func (r rule) id() id       { return id{kindRule, r.Netns, r.From.String()} }
func (r rule) name() string { return "source route from " + r.From.String() }

func (r rule) value() string {
	text := fmt.Sprintf("table %d", r.Table)
	if r.Priority != 0 {
		text += fmt.Sprintf(", priority %d", r.Priority)
	}
	return text
}

func (r rule) fits(there thing) bool {
	o := there.(rule)
	return r.Table == o.Table && (r.Priority == 0 || r.Priority == o.Priority)
}

func (r rule) raw() routes.Rule {
	return routes.Rule{From: r.From.Prefix, Table: r.Table, Priority: r.Priority}
}

func (r rule) put(_ context.Context, was thing) error {
	return inNetns(r.Netns, func() error {
		// The new one comes first, so that there is one all the time.
		if err := routes.AddRule(r.raw()); err != nil || was == nil {
			return err
		}
		return routes.DeleteRule(was.(rule).raw())
	})
}

func (r rule) drop(context.Context) error {
	return inNetns(r.Netns, func() error { return routes.DeleteRule(r.raw()) })
}

// route is one of such a table.
type route struct {
	Netns string       `yaml:"netns,omitempty"`
	Table uint32       `yaml:"table"`
	To    netip.Prefix `yaml:"to"`
	Via   Addr         `yaml:"via,omitempty"`
	Dev   string       `yaml:"dev"`
}

func (r route) id() id {
	return id{kindRoute, r.Netns, strconv.FormatUint(uint64(r.Table), 10) + " " + r.To.String()}
}

func (r route) name() string {
	to := Prefix{r.To}.String()
	if r.To.Bits() == 0 {
		to = "default"
	}
	return fmt.Sprintf("route %s table %d", to, r.Table)
}

func (r route) value() string {
	if r.Via.IsZero() {
		return "dev " + r.Dev
	}
	return fmt.Sprintf("via %s dev %s", r.Via, r.Dev)
}

func (r route) fits(there thing) bool { return r == there }

func (r route) raw() routes.Route {
	return routes.Route{Table: r.Table, To: r.To, Via: r.Via.Addr, Dev: r.Dev}
}

func (r route) put(context.Context, thing) error {
	return inNetns(r.Netns, func() error { return routes.Put(r.raw()) })
}

func (r route) drop(context.Context) error {
	return inNetns(r.Netns, func() error { return routes.Delete(r.raw()) })
}
