// SPDX-License-Identifier: Apache-2.0

// Package use chooses the congestion control of some applications: of those in a network namespace or in a control
// group, of connections to some addresses, or of processes that run already; and gives applications Multipath TCP without a change to them. docs/use.md
// tells what each way reaches.
//
// What Start and StartMultipath set lasts until Remove, until the algorithm is unloaded or the machine reboots, and
// needs no process. Errors wrap loader.ErrNotLoaded where the algorithm is not loaded, and loader.ErrUnsupported where
// the kernel cannot do it.
package use

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/cgroups"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/loader"
)

// Use is what applications use in a place.
type Use struct {
	What string `json:"what"` // an algorithm, as mpcc names it; or Multipath
	Place
	Was string `json:"was,omitempty"` // what a namespace comes back to
}

// Multipath is in the place of an algorithm where programs get MPTCP sockets when they ask for TCP ones.
const Multipath = loader.Multipath

// Place is where something is used: in a network namespace, in a cgroup, or on the way to some addresses.
type Place struct {
	Netns  string       `json:"netns,omitempty"`  // as ip netns names it, or the inode number of one without a name
	Cgroup string       `json:"cgroup,omitempty"` // below the root of the cgroups; "/" is the root, "id N" one that has ended
	To     netip.Prefix `json:"to,omitzero"`      // the peers' addresses; Netns is then "" for the caller's namespace
	Dev    string       `json:"dev,omitempty"`    // with To: the interface; "" for any
}

func (p Place) String() string {
	switch {
	case p.To.IsValid():
		return loader.Destination{Prefix: p.To, Interface: p.Dev, Netns: p.Netns}.String()
	case p.Netns != "":
		return "network namespace " + p.Netns
	}
	return "cgroup " + p.Cgroup
}

// InNetns returns the place of a network namespace that ip netns knows by a name.
func InNetns(name string) (Place, error) {
	_, err := netns.Named(name)
	return Place{Netns: name}, err
}

// InCgroup returns the place of a cgroup, and of those below it: by its path below the root, or its folder.
func InCgroup(path string) (Place, error) {
	g, err := cgroups.Find(path)
	return Place{Cgroup: g.Path}, err
}

// InDirection returns the place of connections to a prefix, by an interface, "" for any, in the network namespace that
// ip netns knows by a name, "" for the caller's.
func InDirection(to netip.Prefix, dev, netns string) (Place, error) {
	d, err := loader.DestinationIn(netns, to, dev)
	return ofDestination(d), err
}

// unsupported is a loader.ErrUnsupported in words of its own.
type unsupported string

func (e unsupported) Error() string        { return string(e) }
func (e unsupported) Is(target error) bool { return target == loader.ErrUnsupported }

// errScheduler says why applications in a namespace cannot have different packet schedulers.
const errScheduler unsupported = "no kernel has a packet scheduler for some applications of a network namespace: a socket gets what net.mptcp.scheduler of its namespace says when it is made; run them in a namespace of their own, and say --netns"

// Start has the connections that are made in a place from now on use a loaded algorithm: in a network namespace those
// that choose none, elsewhere MPTCP connections of applications that choose none. A packet scheduler can
// only be that of a namespace. Start reports whether anything is new.
func Start(ctx context.Context, e catalog.Entry, at Place) (isNew bool, err error) {
	switch {
	case at.Netns != "" && !at.To.IsValid():
		return loader.UseInNetns(ctx, e, at.Netns)
	case e.Kind == catalog.Sched:
		return false, errScheduler
	case at.To.IsValid():
		to, err := loader.DestinationIn(at.Netns, at.To, at.Dev)
		if err != nil {
			return false, err
		}
		return loader.UseTo(ctx, e, to)
	}
	return loader.UseInCgroup(ctx, e, at.Cgroup)
}

// StartMultipath gives the programs in a cgroup MPTCP sockets from now on, where they ask for TCP ones and
// net.mptcp.enabled is 1. It reports whether that is new.
func StartMultipath(ctx context.Context, at Place) (isNew bool, err error) {
	return loader.MultipathInCgroup(ctx, at.Cgroup)
}

// List returns what is used by Start and StartMultipath, and the defaults that loader.Load has set.
func List(ctx context.Context) ([]Use, error) {
	inGroups, err := loader.CgroupUses()
	if err != nil {
		return nil, err
	}
	defaults, err := loader.Defaults(ctx)
	if err != nil {
		return nil, err
	}
	all := []Use{}
	for _, u := range inGroups {
		all = append(all, ofGroup(u))
	}
	for _, d := range defaults {
		if d.Original != "" {
			all = append(all, ofDefault(d))
		}
	}
	slices.SortStableFunc(all, func(a, b Use) int {
		return cmp.Or(strings.Compare(a.Place.String(), b.Place.String()), strings.Compare(a.What, b.What))
	})
	return all, nil
}

// Remove ends those uses that are selected, and returns them. What a namespace had before comes back; connections that
// live keep what they have.
func Remove(ctx context.Context, selected func(Use) bool) (ended []Use, err error) {
	defaults, err := loader.EndDefaults(ctx, func(d loader.Default) bool { return selected(ofDefault(d)) })
	for _, d := range defaults {
		ended = append(ended, ofDefault(d))
	}
	if err != nil {
		return ended, err
	}
	inGroups, err := loader.EndCgroupUses(ctx, func(u loader.CgroupUse) bool { return selected(ofGroup(u)) })
	for _, u := range inGroups {
		ended = append(ended, ofGroup(u))
	}
	return ended, err
}

func ofDefault(d loader.Default) Use {
	return Use{What: catalog.Short(d.Kind, d.Set), Place: Place{Netns: cmp.Or(d.Netns, fmt.Sprint(d.Inode))}, Was: d.Original}
}

func ofGroup(u loader.CgroupUse) Use {
	what := u.What
	if what != Multipath {
		what = catalog.Short(catalog.CC, what)
	}
	if u.To != (loader.Destination{}) {
		return Use{What: what, Place: ofDestination(u.To)}
	}
	return Use{What: what, Place: Place{Cgroup: u.Path}}
}

func ofDestination(d loader.Destination) Place {
	return Place{Netns: d.Netns, To: d.Prefix, Dev: d.Interface}
}
