// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/nearest"
	"github.com/mpcc/mpcc/internal/routes"
	"github.com/mpcc/mpcc/internal/strictyaml"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/energy"
	"github.com/mpcc/mpcc/pkg/use"
)

// check reports values that are valid by themselves, but not together, and names that nothing has.
func (c *Config) check(d *strictyaml.Decoder) {
	var loaded []catalog.Entry
	for i := range c.Algorithms {
		a := &c.Algorithms[i]
		e, err := catalog.Find(a.Name)
		if err != nil {
			d.At(&a.Name, "%v", err)
			continue
		}
		if slices.Contains(loaded, e) {
			d.At(&a.Name, "algorithm %s is there twice: leave one", a.Name)
		}
		loaded = append(loaded, e)
		if err := loader.CheckTunables(e, a.Set); err != nil {
			d.At(&a.Set, "%s", strings.TrimPrefix(err.Error(), "--set "))
		}
		if _, paper := a.Set[loader.Paper]; paper {
			d.At(&a.Set, "paper stands beside set: write paper: true")
		}
	}
	isSched := func(e catalog.Entry) bool { return e.Kind == catalog.Sched }
	if c.SmallPieces && !slices.ContainsFunc(loaded, isSched) {
		d.At(&c.SmallPieces, "small_pieces is for packet schedulers, and algorithms has none")
	}
	if c.MaxSubflows != 0 && len(loaded) == 0 {
		d.At(&c.MaxSubflows, "max_subflows is for algorithms, and there are none")
	}
	ofKind := func(field *string, k catalog.Kind) {
		if *field == "" {
			return
		}
		e, err := find(*field, k)
		switch {
		case err != nil:
			d.At(field, "%v", err)
		case !slices.Contains(loaded, e):
			d.At(field, "%s is not loaded: name it in algorithms too", *field)
		}
	}
	for i := range c.Defaults {
		def := &c.Defaults[i]
		if def.CC == "" && def.Scheduler == "" {
			d.At(def, "a default of nothing: give cc, scheduler or both")
		}
		ofKind(&def.CC, catalog.CC)
		ofKind(&def.Scheduler, catalog.Sched)
	}
	for i := range c.Uses {
		u := &c.Uses[i]
		if u.What != use.Multipath {
			ofKind(&u.What, catalog.CC)
		}
		checkUse(d, u)
	}
	for i := range c.Energy {
		if _, err := c.Energy[i].figures(); err != nil {
			d.At(&c.Energy[i], "%v", err)
		}
	}
	for i := range c.Paths {
		if err := c.Paths[i].Check(); err != nil {
			d.At(&c.Paths[i], "%v", err)
		}
	}
	for i := range c.MPTCP {
		for j := range c.MPTCP[i].Endpoints {
			checkEndpoint(d, &c.MPTCP[i].Endpoints[j])
		}
	}
	for i := range c.SourceRoutes {
		checkSourceRoute(d, &c.SourceRoutes[i])
	}
	c.checkTwice(d)
}

func checkUse(d *strictyaml.Decoder, u *Use) {
	switch {
	case (u.Cgroup == "") == !u.To.IsValid():
		d.At(u, "say for whom: cgroup, or to with addresses such as 203.0.113.0/24 or 0.0.0.0/0")
	case u.Cgroup != "" && u.Dev+u.Netns != "":
		d.At(u, "a cgroup has no dev and no netns: they go with to")
	case u.Cgroup == "" && u.What == use.Multipath:
		d.At(u, "mptcp is for a cgroup")
	case u.Cgroup != "":
		u.Cgroup = cgroupPath(u.Cgroup)
	}
}

// find returns the algorithm that a text means, which has to be of a kind: a bare name may be of either.
func find(name string, k catalog.Kind) (catalog.Entry, error) {
	if e, err := catalog.Find(string(k) + "/" + name); err == nil {
		return e, nil
	}
	e, err := catalog.Find(name)
	if err == nil && e.Kind != k {
		err = fmt.Errorf("%s is a %s, not a %s", name, e.Kind.Noun(), k.Noun())
	}
	return e, err
}

// cgroupPath is a group's path as the kernel's list has it.
func cgroupPath(text string) string {
	clean := path.Clean("/" + text)
	for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if clean == root {
			return "/"
		}
		if below, found := strings.CutPrefix(clean, root+"/"); found {
			return below
		}
	}
	if clean == "/" {
		return clean
	}
	return clean[1:]
}

// figures returns what the interface draws.
func (e Energy) figures() (loader.Profile, error) {
	p := energy.Profile{Name: "of your own"}
	if e.Profile != "" {
		var names []string
		for _, known := range energy.Builtin() {
			names = append(names, known.Name)
		}
		if !slices.Contains(names, e.Profile) {
			if near := nearest.Name(e.Profile, names); near != "" {
				return loader.Profile{}, fmt.Errorf("no profile %q: did you mean %s?", e.Profile, near)
			}
		}
		var err error
		if p, err = energy.Find(energy.Builtin(), e.Profile); err != nil {
			return loader.Profile{}, err
		}
	} else if e.Uplink == nil || e.Downlink == nil || e.Base == nil {
		return loader.Profile{}, errors.New("name a profile (mpcc energy show lists them), or give all of uplink_mw_per_mbps, downlink_mw_per_mbps and base_mw")
	}
	for _, f := range []struct{ given, of **float64 }{{&e.Uplink, &p.Uplink}, {&e.Downlink, &p.Downlink}, {&e.Base, &p.Base}} {
		if *f.given != nil {
			*f.of = *f.given
		}
	}
	if err := p.Complete(); err != nil {
		if missing := (*energy.MissingError)(nil); errors.As(err, &missing) {
			err = fmt.Errorf("profile %s has no published %s: give yours (%s)", missing.Profile, missing.Key, missing.Unit)
		}
		return loader.Profile{}, err
	}
	return loader.Profile{Uplink: *p.Uplink, Downlink: *p.Downlink, Base: *p.Base}, nil
}

func checkEndpoint(d *strictyaml.Decoder, e *Endpoint) {
	has := func(flag string) bool { return slices.Contains(e.Flags, flag) }
	if e.Port != 0 && (!has("signal") || has("subflow")) {
		d.At(&e.Port, "a port is for an address that is announced: flags has to have signal, and not subflow")
	}
}

func checkSourceRoute(d *strictyaml.Decoder, s *SourceRoute) {
	if routes.Reserved(s.Table) {
		d.At(&s.Table, "table %d is everybody's: use another", s.Table)
	}
	if s.From.IsZero() {
		d.At(&s.From, "from is not everything: give an address or a prefix")
		return
	}
	four := s.From.Addr().Is4()
	for i := range s.Routes {
		r := &s.Routes[i]
		if !r.To.IsZero() && r.To.Addr().Is4() != four {
			d.At(&r.To, "to and from are not of the same version of IP")
		}
		if !r.Via.IsZero() && r.Via.Is4() != four {
			d.At(&r.Via, "via and from are not of the same version of IP")
		}
	}
}

// to is where a route leads, of the same version of IP as the source.
func (r Route) to(from Prefix) netip.Prefix {
	if !r.To.IsZero() {
		return r.To.Prefix
	}
	if from.Addr().Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// checkTwice reports what is declared twice, in two ways.
func (c *Config) checkTwice(d *strictyaml.Decoder) {
	seen := map[id]thing{}
	for _, t := range c.things() {
		first, twice := seen[t.id()]
		if t.id().kind == kindAlgorithm {
			continue // check has told it
		}
		// Two rules may go to the same routes.
		if _, isRoute := t.(route); twice && !(isRoute && t == first) {
			d.At(c.declaredAt(t), "%s is declared twice: leave one", t.name())
		}
		seen[t.id()] = t
	}
}

// declaredAt returns the last field that declares a thing.
func (c *Config) declaredAt(t thing) (field any) {
	field = c
	visit := func(f any, declares []thing) {
		if slices.ContainsFunc(declares, func(o thing) bool { return o.id() == t.id() }) {
			field = f
		}
	}
	for i := range c.Defaults {
		visit(&c.Defaults[i], c.Defaults[i].things())
	}
	for i := range c.Uses {
		visit(&c.Uses[i], []thing{inUse(c.Uses[i])})
	}
	for i := range c.Energy {
		visit(&c.Energy[i], []thing{priced{c.Energy[i]}})
	}
	for i := range c.Paths {
		visit(&c.Paths[i], []thing{pathRule{c.Paths[i]}})
	}
	for i := range c.MPTCP {
		visit(&c.MPTCP[i], c.MPTCP[i].things())
	}
	for i := range c.SourceRoutes {
		visit(&c.SourceRoutes[i], c.SourceRoutes[i].things())
	}
	return field
}
