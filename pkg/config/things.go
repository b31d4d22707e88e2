// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"

	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/netns"
)

// thing is one setting of the machine. What is declared and what is there are both lists of things, and two of the same
// id are the same setting.
type thing interface {
	id() id
	name() string  // in a line for people, such as "endpoint 10.0.1.1"
	value() string // likewise, such as "subflow backup"; "" where there is nothing to say
	fits(there thing) bool
	put(ctx context.Context, was thing) error // in the place of was, unless that is nil
	drop(ctx context.Context) error           // may be gone already
}

// id tells which setting a thing is.
type id struct{ kind, netns, key string }

// The kinds, in the order in which they are put: what needs something comes after it.
const (
	kindAlgorithm = "algorithm"
	kindPieces    = "small_pieces"
	kindDefault   = "default"
	kindEnergy    = "energy"
	kindPath      = "path"
	kindRoute     = "route"
	kindRule      = "rule"
	kindLimits    = "limits"
	kindEndpoint  = "endpoint"
	kindUse       = "use" // last: a cgroup may not be there yet
)

var kinds = []struct {
	name   string
	decode func(*yaml.Node) (thing, error)
}{
	{kindAlgorithm, decodeAs[algorithm]},
	{kindPieces, decodeAs[smallPieces]},
	{kindDefault, decodeAs[standard]},
	{kindEnergy, decodeAs[priced]},
	{kindPath, decodeAs[pathRule]},
	{kindRoute, decodeAs[route]},
	{kindRule, decodeAs[rule]},
	{kindLimits, decodeAs[limits]},
	{kindEndpoint, decodeAs[endpoint]},
	{kindUse, decodeAs[inUse]},
}

func decodeAs[T thing](n *yaml.Node) (thing, error) {
	var t T
	err := n.Decode(&t)
	return t, err
}

// things returns all that is declared.
func (c *Config) things() []thing {
	var all []thing
	for _, a := range c.Algorithms {
		all = append(all, algorithm{a, c.MaxSubflows})
	}
	if c.SmallPieces {
		all = append(all, smallPieces{})
	}
	for _, d := range c.Defaults {
		all = append(all, d.things()...)
	}
	for _, e := range c.Energy {
		all = append(all, priced{e})
	}
	for _, r := range c.Paths {
		all = append(all, pathRule{r})
	}
	for _, s := range c.SourceRoutes {
		all = append(all, s.things()...)
	}
	for _, m := range c.MPTCP {
		all = append(all, m.things()...)
	}
	for _, u := range c.Uses {
		all = append(all, inUse(u))
	}
	return all
}

func (d Default) things() (all []thing) {
	for kind, name := range map[catalog.Kind]string{catalog.CC: d.CC, catalog.Sched: d.Scheduler} {
		if name != "" {
			all = append(all, standard{d.Netns, kind, name})
		}
	}
	return all
}

func (s SourceRoute) things() []thing {
	all := []thing{rule{s.Netns, s.From, s.Table, s.Priority}}
	for _, r := range s.Routes {
		all = append(all, route{s.Netns, s.Table, r.to(s.From), r.Via, r.Dev})
	}
	return all
}

func (m MPTCP) things() (all []thing) {
	if m.Limits != nil {
		all = append(all, limits{m.Netns, *m.Limits})
	}
	for _, e := range m.Endpoints {
		all = append(all, endpoint{Netns: m.Netns, Endpoint: e})
	}
	return all
}

// inNetns runs f in the namespace of a name of ip netns, "" being this process's.
func inNetns(name string, f func() error) error {
	ns, err := netns.Current()
	if name != "" {
		ns, err = netns.Named(name)
	}
	if err != nil {
		return err
	}
	return ns.Do(f)
}
