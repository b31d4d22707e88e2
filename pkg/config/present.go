// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/internal/routes"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/energy"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/paths"
	"github.com/mpcc/mpcc/pkg/telemetry"
	"github.com/mpcc/mpcc/pkg/use"
)

// machine is what there is.
type machine struct {
	things []thing
	netns  map[string]netns.NS // by the names that things have; "" is this process's
}

func (m *machine) find(of thing) thing {
	i := slices.IndexFunc(m.things, func(t thing) bool { return t.id() == of.id() })
	if i < 0 {
		return nil
	}
	return m.things[i]
}

// nameOf returns the name by which things know a namespace; false where they do not.
func (m *machine) nameOf(inode uint64) (string, bool) {
	for name, ns := range m.netns {
		if ns.Inode == inode {
			return name, true
		}
	}
	return "", false
}

// read looks at the machine. Of routing tables it looks at those that rules of sources lead to, and at those of the
// things that are of interest.
func read(ctx context.Context, interest []thing) (*machine, error) {
	here, err := netns.Current()
	if err != nil {
		return nil, err
	}
	m := &machine{netns: map[string]netns.NS{"": here}}
	for inode, name := range netns.Names() {
		if ns, err := netns.Named(name); err == nil && inode != here.Inode {
			m.netns[name] = ns
		}
	}
	if err := m.readLoaded(ctx); err != nil {
		return nil, err
	}
	if err := m.readEnergy(ctx); err != nil {
		return nil, err
	}
	live, err := paths.List()
	if err != nil {
		return nil, err
	}
	for _, l := range live {
		if name, known := m.nameOf(l.Inode); known {
			l.Netns = name
			m.things = append(m.things, pathRule{l.Rule})
		}
	}
	for name, ns := range m.netns {
		err := ns.Do(func() error { return m.readNetwork(name, interest) })
		if err != nil && !errors.Is(err, netns.ErrEnded) {
			return nil, err
		}
	}
	uses, err := loader.CgroupUses()
	if err != nil {
		return nil, err
	}
	for _, u := range uses {
		what := u.What
		if what != use.Multipath {
			what = catalog.Short(catalog.CC, what)
		}
		if to := u.To; to.Prefix.IsValid() {
			m.things = append(m.things, inUse{What: what, To: Prefix{to.Prefix}, Dev: to.Interface, Netns: to.Netns})
		} else {
			m.things = append(m.things, inUse{What: what, Cgroup: u.Path})
		}
	}
	return m, nil
}

// readLoaded reads the algorithms, and whose defaults they are.
func (m *machine) readLoaded(ctx context.Context) error {
	loaded, err := loader.Loaded()
	if err != nil {
		return err
	}
	for _, e := range loaded {
		values, err := loader.Running(e)
		if err != nil {
			return err
		}
		m.things = append(m.things, algorithm{Algorithm: Algorithm{Name: e.String(), Set: changed(e, values)}})
	}
	if small, err := loader.SmallPieces(); err != nil {
		return err
	} else if small {
		m.things = append(m.things, smallPieces{})
	}
	defaults, err := loader.Defaults(ctx)
	if err != nil {
		return err
	}
	for _, d := range defaults {
		if name, known := m.nameOf(d.Inode); known {
			m.things = append(m.things, standard{name, d.Kind, d.Set})
		}
	}
	return nil
}

func (m *machine) readEnergy(ctx context.Context) error {
	source, err := telemetry.Open()
	if errors.Is(err, loader.ErrNotLoaded) {
		return nil
	}
	if err != nil {
		return err
	}
	defer source.Close()
	profiles, err := source.Profiles(ctx)
	if err != nil {
		return err
	}
	for _, p := range profiles {
		name, known := m.nameOf(p.Netns)
		// A profile stays in the map when its interface goes, and another one may have the name by now.
		if !known || !m.has(name, p.Interface, p.Ifindex) {
			continue
		}
		m.things = append(m.things, priced{energyOf(name, p)})
	}
	return nil
}

func (m *machine) has(name, ifname string, index uint32) bool {
	found := false
	err := m.netns[name].Do(func() error {
		i, err := net.InterfaceByName(ifname)
		found = err == nil && uint32(i.Index) == index
		return nil
	})
	return err == nil && found
}

// energyOf names the profile that has these figures, if there is one.
func energyOf(name string, p telemetry.Profile) Energy {
	e := Energy{Interface: p.Interface, Netns: name}
	for _, known := range energy.Builtin() {
		if known.Complete() == nil && *known.Uplink == p.Uplink && *known.Downlink == p.Downlink && *known.Base == p.Base {
			e.Profile = known.Name
			return e
		}
	}
	e.Uplink, e.Downlink, e.Base = &p.Uplink, &p.Downlink, &p.Base
	return e
}

// readNetwork reads what the thread's namespace has of MPTCP and source routes.
func (m *machine) readNetwork(name string, interest []thing) error {
	if _, err := os.Stat("/proc/sys/net/mptcp"); err == nil {
		if err := m.readMPTCP(name); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tables := map[uint32]bool{}
	for _, t := range interest {
		if r, ok := t.(route); ok && r.Netns == name {
			tables[r.Table] = true
		}
	}
	rules, err := routes.Rules()
	if err != nil {
		return err
	}
	for _, r := range rules {
		tables[r.Table] = true
		m.things = append(m.things, rule{name, Prefix{r.From}, r.Table, r.Priority})
	}
	for table := range tables {
		list, err := routes.In(table)
		if err != nil {
			return err
		}
		for _, r := range list {
			m.things = append(m.things, route{name, r.Table, r.To, Addr{r.Via}, r.Dev})
		}
	}
	return nil
}

func (m *machine) readMPTCP(name string) error {
	l, err := mptcp.ReadLimits()
	if err != nil {
		return err
	}
	m.things = append(m.things, limits{name, Limits{int(l.Subflows), int(l.AddAddrAccepted)}})
	all, err := mptcp.Endpoints()
	if err != nil {
		return err
	}
	for _, raw := range all {
		if raw.Flags&mptcp.EndpointImplicit != 0 {
			continue // the kernel's own
		}
		e := Endpoint{Address: Addr{raw.Addr}, Port: raw.Port, ID: int(raw.ID)}
		for word, flag := range endpointFlags {
			if raw.Flags&flag != 0 {
				e.Flags = append(e.Flags, word)
			}
		}
		slices.Sort(e.Flags)
		if raw.Ifindex != 0 {
			if dev, err := net.InterfaceByIndex(int(raw.Ifindex)); err == nil {
				e.Dev = dev.Name
			}
		}
		m.things = append(m.things, endpoint{Netns: name, Endpoint: e})
	}
	return nil
}

// Current returns what runs now, as a configuration for which Plan has nothing to change: of this process's network
// namespace and of those that ip netns has names for. The exporter's part is that of the last configuration applied.
func Current(ctx context.Context) (*Config, error) {
	if err := checkRights(); err != nil {
		return nil, err
	}
	m, err := read(ctx, nil)
	if err != nil {
		return nil, err
	}
	s, err := readState()
	if err != nil {
		return nil, err
	}
	c := m.config()
	if len(c.Algorithms) > 0 {
		room, err := loader.MapCapacity()
		if err != nil {
			return nil, err
		}
		c.MaxSubflows = room.Subflows
	}
	if last, _, err := decode(stateFile, []byte(s.Text)); err == nil {
		c.Exporter = last.Exporter
	}
	return c, nil
}

// usualLimits are the kernel's own. A namespace that has them and no endpoint says nothing.
var usualLimits = Limits{Subflows: 2}

func (m *machine) config() *Config {
	c := &Config{}
	networks := map[string]*MPTCP{}
	defaults := map[string]*Default{}
	for name := range m.netns {
		networks[name], defaults[name] = &MPTCP{Netns: name}, &Default{Netns: name}
	}
	for _, t := range m.things {
		switch t := t.(type) {
		case algorithm:
			c.Algorithms = append(c.Algorithms, t.Algorithm)
		case smallPieces:
			c.SmallPieces = true
		case standard:
			d := defaults[t.Netns]
			if t.Kind == catalog.CC {
				d.CC = t.value()
			} else {
				d.Scheduler = t.value()
			}
		case priced:
			c.Energy = append(c.Energy, t.Energy)
		case pathRule:
			c.Paths = append(c.Paths, t.Rule)
		case limits:
			networks[t.Netns].Limits = &t.Limits
		case endpoint:
			n := networks[t.Netns]
			n.Endpoints = append(n.Endpoints, t.Endpoint)
		case rule:
			c.SourceRoutes = append(c.SourceRoutes, SourceRoute{
				From: t.From, Table: t.Table, Priority: t.Priority, Netns: t.Netns, Routes: m.routesOf(t),
			})
		case inUse:
			_, named := m.netns[t.Netns]
			if ended := strings.HasPrefix(t.Cgroup, "id "); named && !ended {
				c.Uses = append(c.Uses, Use(t))
			}
		}
	}
	names := make([]string, 0, len(m.netns))
	for name := range m.netns {
		names = append(names, name)
	}
	slices.Sort(names)
	loaded := func(name string, k catalog.Kind) string {
		e, err := find(name, k)
		if err != nil || m.find(algorithm{Algorithm: Algorithm{Name: e.ID()}}) == nil {
			return ""
		}
		return name
	}
	for _, name := range names {
		n, d := networks[name], defaults[name]
		if n.Limits != nil && (*n.Limits != usualLimits || len(n.Endpoints) > 0 || name == "") {
			c.MPTCP = append(c.MPTCP, *n)
		}
		d.CC, d.Scheduler = loaded(d.CC, catalog.CC), loaded(d.Scheduler, catalog.Sched)
		if d.CC != "" || d.Scheduler != "" {
			c.Defaults = append(c.Defaults, *d)
		}
	}
	return c
}

// routesOf returns the routes of a rule's table, of its version of IP. Those are said with the first rule that leads there.
func (m *machine) routesOf(r rule) (all []Route) {
	for _, t := range m.things {
		if first, ok := t.(rule); ok && first.Netns == r.Netns && first.Table == r.Table && first.From.Addr().Is4() == r.From.Addr().Is4() {
			if first != r {
				return nil
			}
			break
		}
	}
	for _, t := range m.things {
		o, ok := t.(route)
		if !ok || o.Netns != r.Netns || o.Table != r.Table || o.To.Addr().Is4() != r.From.Addr().Is4() {
			continue
		}
		said := Route{Via: o.Via, Dev: o.Dev}
		if o.To.Bits() > 0 {
			said.To = Prefix{o.To}
		}
		all = append(all, said)
	}
	return all
}
