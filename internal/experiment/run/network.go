// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/energy"
)

// network is a scenario's network, made of a lab.
type network struct {
	lab        *lab.Lab
	hosts      map[scenario.Name]*lab.Host
	links      map[scenario.LinkName]*lab.Link
	shapes     map[scenario.LinkName]*[2]scenario.Shape // as they are now, there and back
	directions []*direction
	// each host's interfaces, in the order of its links
	interfaces map[scenario.Name][]address
	prices     []loader.Interface // energy profiles that were set
	warnings   []string
}

// address is one interface of a host, with its addresses.
type address struct {
	iface
	price *energy.Profile // of the interface at the far end of the path; nil if the link has no price
	link  *lab.Link
	away  lab.Dir // the direction of the link that leads away from the host
	addrs []netip.Addr
}

func newNetwork(l *lab.Lab) network {
	return network{
		lab: l, hosts: map[scenario.Name]*lab.Host{}, links: map[scenario.LinkName]*lab.Link{},
		shapes: map[scenario.LinkName]*[2]scenario.Shape{}, interfaces: map[scenario.Name][]address{},
	}
}

// build makes the network. It has to be closed, also after an error.
func (n *network) build(ctx context.Context, plan *scenario.Network, events []scenario.Event) error {
	if err := supported(plan.Links, events); err != nil {
		return err
	}
	if err := n.lab.Together(func() error { return n.wire(ctx, plan) }); err != nil {
		return err
	}
	if err := n.lab.Route(); err != nil {
		return err
	}
	connects := map[scenario.Name]bool{} // the hosts that speak MPTCP: true for those that open connections
	for _, c := range plan.Classes {
		if c.Transport != scenario.OverMPTCP {
			continue
		}
		for _, m := range c.Members {
			connects[m.From] = true
			if !connects[m.To] {
				connects[m.To] = false
			}
		}
	}
	for i := range plan.Hosts {
		h := &plan.Hosts[i]
		first, ok := connects[h.Name]
		if !ok {
			continue // nobody speaks MPTCP there
		}
		if err := n.endpoints(h, first); err != nil {
			return err
		}
	}
	return nil
}

// wire makes routers, hosts and links. In a large network that takes seconds, and ends early with ctx.
func (n *network) wire(ctx context.Context, plan *scenario.Network) (err error) {
	for _, r := range plan.Routers {
		if n.hosts[r], err = n.lab.Router(string(r)); err != nil {
			return err
		}
	}
	for _, p := range plan.Hosts {
		add := n.lab.Host
		if p.Forwards {
			add = n.lab.Relay
		}
		if n.hosts[p.Name], err = add(string(p.Name)); err != nil {
			return err
		}
	}
	for i := range plan.Links {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := n.link(&plan.Links[i]); err != nil {
			return err
		}
	}
	for i := range plan.Hosts {
		if err := n.addresses(&plan.Hosts[i]); err != nil {
			return err
		}
	}
	return nil
}

// supported fails if the kernel lacks a qdisc that a link needs.
func supported(links []scenario.Link, events []scenario.Event) error {
	has := map[string]error{}
	for i := range links {
		for _, qdisc := range qdiscs(&links[i], events) {
			err, tried := has[qdisc]
			if !tried {
				err = lab.Has(qdisc)
				has[qdisc] = err
			}
			if err != nil {
				return fmt.Errorf("%s: link %s: %w: %w; mpcc run --vm runs it on a kernel that has it",
					links[i].Place, links[i].Name, loader.ErrUnsupported, err)
			}
		}
	}
	return nil
}

// qdiscs returns those that a link needs and that a kernel may lack.
func qdiscs(l *scenario.Link, events []scenario.Event) (names []string) {
	shapes := []*scenario.Shape{&l.Shape}
	if l.Back != nil {
		shapes = append(shapes, l.Back)
	}
	for _, s := range shapes {
		if s.Delay > 0 || s.Loss > 0 {
			names = append(names, "netem")
		}
		if s.Rate > 0 {
			names = append(names, "tbf")
		}
		if s.Queue.RED != nil {
			names = append(names, "red")
		}
		if s.Queue.AQM != "" {
			names = append(names, s.Queue.AQM)
		}
	}
	for _, e := range events {
		if e.Link == l.Name && (e.Delay != nil || e.Loss != nil) {
			names = append(names, "netem")
		}
	}
	return names
}

func (n *network) link(l *scenario.Link) error {
	a, b := n.hosts[l.Between[0]], n.hosts[l.Between[1]]
	back := l.Shape
	if l.Back != nil {
		back = *l.Back
	}
	o := lab.LinkOpts{Name: l.Interface, AtoB: shape(l.Shape), BtoA: shape(back)}
	k, err := n.lab.Link(a, b, o)
	if err != nil {
		return err
	}
	n.links[l.Name], n.shapes[l.Name] = k, &[2]scenario.Shape{l.Shape, back}
	for _, d := range []*direction{
		{name: string(l.Name), link: k, dir: lab.AtoB, from: a, to: b, shape: o.AtoB},
		{name: string(l.Name) + "-back", link: k, dir: lab.BtoA, from: b, to: a, shape: o.BtoA},
	} {
		if d.shaped() {
			n.directions = append(n.directions, d)
		}
	}
	own, price, err := profiles(l)
	if err != nil {
		return err
	}
	for i, name := range l.Between {
		n.interfaces[name] = append(n.interfaces[name], address{
			iface: iface{name: l.Interface, profile: own}, price: price,
			link: k, away: lab.Dir(i), addrs: []netip.Addr{k.Addr(n.hosts[name])},
		})
	}
	return nil
}

// profiles returns a link's energy profile and its price; nil for what it has not.
func profiles(l *scenario.Link) (own, price *energy.Profile, err error) {
	if own, err = profile(l.Energy); err == nil {
		price, err = profile(l.Price)
	}
	if err != nil {
		err = fmt.Errorf("link %s: %w", l.Name, err)
	}
	return own, price, err
}

// profile returns the built-in energy profile of that name; nil for no name.
func profile(name string) (*energy.Profile, error) {
	if name == "" {
		return nil, nil
	}
	p, err := energy.Find(energy.Builtin(), name)
	return &p, err
}

// shape returns a scenario's shape as lab has it.
func shape(s scenario.Shape) lab.Shape {
	to := lab.Shape{
		Rate:       uint64(s.Rate),
		Delay:      s.Delay.Std(),
		Jitter:     s.Jitter.Std(),
		Reorder:    s.Reorder,
		Loss:       float64(s.Loss),
		Queue:      s.Queue.Packets,
		QueueBytes: int(s.Queue.Bytes),
		AQM:        s.Queue.AQM,
		Changes:    s.Trace != "",
	}
	if s.Queue.RED != nil {
		r := s.Queue.RED.For(s.Rate)
		to.RED = &lab.RED{Min: whole(r.Min), Max: whole(r.Max), Prob: r.Probability, End: whole(r.End), ECN: r.ECN}
		to.RED.Max = max(to.RED.Max, to.RED.Min+1)
	}
	return to
}

// whole rounds to whole packets, at least one; 0 stays 0.
func whole(packets float64) int {
	if packets == 0 {
		return 0
	}
	return max(1, int(packets+0.5))
}

// addresses gives a host the further addresses that its endpoints ask for.
func (n *network) addresses(h *scenario.Host) error {
	for _, e := range h.MPTCP.Endpoints {
		at, err := n.interfaceOf(h.Name, e.Link)
		if err != nil {
			return err
		}
		if e.Addresses > len(at.addrs) {
			more, err := at.link.AddAddrs(n.hosts[h.Name], e.Addresses-len(at.addrs))
			if err != nil {
				return err
			}
			at.addrs = append(at.addrs, more...)
		}
	}
	return nil
}

func (n *network) interfaceOf(host, link scenario.Name) (*address, error) {
	all := n.interfaces[host]
	if link == "" && len(all) > 0 {
		return &all[0], nil
	}
	for i := range all {
		if all[i].name == string(link) {
			return &all[i], nil
		}
	}
	return nil, fmt.Errorf("host %s has no link %s", host, link)
}

// endpoints sets up a host's path manager. A host that only accepts connections
// opens no subflows: it would connect to the port that its client has happened to
// get, where nobody listens.
func (n *network) endpoints(h *scenario.Host, connects bool) error {
	var endpoints []lab.MPTCPEndpoint
	for _, e := range h.MPTCP.Endpoints {
		at, err := n.interfaceOf(h.Name, e.Link)
		if err != nil {
			return err
		}
		for _, addr := range at.addrs[:e.Addresses] {
			endpoint := lab.MPTCPEndpoint{Addr: addr}
			for _, flag := range e.Flags {
				switch flag {
				case "subflow":
					endpoint.Subflow = connects
				case "signal":
					endpoint.Signal = true
				case "backup":
					endpoint.Backup = true
				case "fullmesh":
					endpoint.Fullmesh = true
				}
			}
			if endpoint.Subflow || endpoint.Signal {
				endpoints = append(endpoints, endpoint)
			}
		}
	}
	limits := lab.MPTCPLimits{Subflows: h.MPTCP.Subflows, AddAddrAccepted: h.MPTCP.AddAddrAccepted}
	return n.hosts[h.Name].MPTCP(limits, endpoints...)
}

// setPrices gives the algorithms what a host's interfaces cost.
func (n *network) setPrices(host scenario.Name) error {
	h := n.hosts[host]
	for _, at := range n.interfaces[host] {
		if at.profile == nil && at.price == nil {
			continue
		}
		iface := loader.Interface{Netns: h.Namespace(), Name: at.link.Interface(h)}
		if err := loader.SetProfile(context.Background(), iface, n.costs(at)); err != nil {
			return err
		}
		n.prices = append(n.prices, iface)
	}
	return nil
}

// costs returns the profile that the algorithms get for an interface. On a link with a price, sending costs what
// receiving costs at the far end.
func (n *network) costs(at address) loader.Profile {
	var unknown []string
	known := func(figure *float64, what string) float64 {
		if figure == nil {
			unknown = append(unknown, what)
			return 0
		}
		return *figure
	}
	var costs loader.Profile
	p := at.price
	if p != nil {
		costs.Uplink = known(p.Downlink, "downlink")
	} else {
		p = at.profile
		costs.Uplink, costs.Downlink = known(p.Uplink, "uplink"), known(p.Downlink, "downlink")
	}
	costs.Base = known(p.Base, "base")
	if len(unknown) > 0 {
		n.warn("energy profile %s has no published figure for %s: it counts as 0", p.Name, strings.Join(unknown, ", "))
	}
	return costs
}

func (n *network) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, w := range n.warnings {
		if w == text {
			return
		}
	}
	n.warnings = append(n.warnings, text)
}

// close removes all that the network has in the system.
func (n *network) close() error {
	for _, iface := range n.prices {
		if err := loader.DeleteProfile(context.Background(), iface); err != nil {
			return err
		}
	}
	return n.lab.Close()
}
