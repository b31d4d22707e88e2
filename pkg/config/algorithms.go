// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/netns"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/pkg/use"
)

// algorithm is what is loaded.
type algorithm struct {
	Algorithm   `yaml:",inline"`
	maxSubflows int
}

func (a algorithm) entry() (catalog.Entry, error) { return catalog.Find(a.Name) }

func (a algorithm) id() id {
	if e, err := a.entry(); err == nil {
		return id{kind: kindAlgorithm, key: e.ID()}
	}
	return id{kind: kindAlgorithm, key: a.Name}
}

func (a algorithm) name() string { return "load " + a.Name }

// settings are the tunables, as loader.Options.Set has them.
func (a algorithm) settings() map[string]string {
	set := maps.Clone(a.Set)
	if a.Paper {
		if set == nil {
			set = map[string]string{}
		}
		set[loader.Paper] = ""
	}
	return set
}

func (a algorithm) value() string {
	e, err := a.entry()
	if err != nil {
		return ""
	}
	values, err := loader.Values(e, a.settings())
	if err != nil {
		return ""
	}
	var words []string
	for name, value := range changed(e, values) {
		words = append(words, name+"="+value)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// changed returns the tunables that are not what they are by default.
func changed(e catalog.Entry, values map[string]string) map[string]string {
	usual, err := loader.Values(e, nil)
	set := map[string]string{}
	for name, value := range values {
		if err != nil || usual[name] != value {
			set[name] = value
		}
	}
	return set
}

func (a algorithm) fits(there thing) bool {
	e, err := a.entry()
	if err != nil {
		return false
	}
	want, err := loader.Values(e, a.settings())
	if err != nil {
		return false
	}
	got, err := loader.Values(e, there.(algorithm).settings())
	return err == nil && maps.Equal(want, got)
}

func (a algorithm) put(ctx context.Context, was thing) error {
	e, err := a.entry()
	if err != nil {
		return err
	}
	if was != nil {
		return loader.Switch(ctx, e, loader.SwitchOptions{Set: a.settings()})
	}
	_, err = loader.Load(ctx, e, loader.Options{Set: a.settings(), MaxSubflows: a.maxSubflows})
	return err
}

func (a algorithm) drop(ctx context.Context) error {
	e, err := a.entry()
	if err != nil {
		return err
	}
	_, err = loader.Unload(ctx, e)
	return err
}

// smallPieces is how much data packet schedulers choose for.
type smallPieces struct{}

func (smallPieces) id() id          { return id{kind: kindPieces} }
func (smallPieces) name() string    { return "small pieces" }
func (smallPieces) value() string   { return "" }
func (smallPieces) fits(thing) bool { return true }

func (smallPieces) put(ctx context.Context, _ thing) error {
	loaded, err := loader.Loaded()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(loaded, func(e catalog.Entry) bool { return e.Kind == catalog.Sched })
	if i < 0 {
		return fmt.Errorf("small pieces: no packet scheduler is loaded: %w", loader.ErrNotLoaded)
	}
	_, err = loader.Load(ctx, loaded[i], loader.Options{SmallPieces: true})
	return err
}

func (smallPieces) drop(ctx context.Context) error { return loader.EndSmallPieces(ctx) }

// standard is a default of a network namespace.
type standard struct {
	Netns string       `yaml:"netns,omitempty"`
	Kind  catalog.Kind `yaml:"kind"`
	Name  string       `yaml:"name"`
}

func (s standard) id() id       { return id{kindDefault, s.Netns, string(s.Kind)} }
func (s standard) name() string { return "default " + s.Kind.Noun() }

func (s standard) value() string {
	if e, err := find(s.Name, s.Kind); err == nil {
		return e.Name
	}
	return s.Name
}

func (s standard) fits(there thing) bool { return s.value() == there.value() }

func (s standard) put(ctx context.Context, _ thing) error {
	e, err := find(s.Name, s.Kind)
	if err != nil {
		return err
	}
	o := loader.Options{Default: true}
	if s.Netns != "" {
		o.Netns = []string{s.Netns}
	}
	_, err = loader.Load(ctx, e, o)
	return err
}

func (s standard) drop(ctx context.Context) error {
	ns, err := netns.Current()
	if s.Netns != "" {
		ns, err = netns.Named(s.Netns)
	}
	if err != nil {
		return err
	}
	_, err = loader.EndDefaults(ctx, func(d loader.Default) bool { return d.Inode == ns.Inode && d.Kind == s.Kind })
	return err
}

// inUse is what a cgroup uses, or connections to some addresses.
type inUse Use

func (u inUse) place() use.Place {
	return use.Place{Netns: u.Netns, Cgroup: u.Cgroup, To: u.To.Prefix, Dev: u.Dev}
}

// sort tells the two apart that a cgroup may use at the same time.
func (u inUse) sort() string {
	if u.What == use.Multipath {
		return use.Multipath
	}
	return string(catalog.CC)
}

func (u inUse) id() id {
	return id{kindUse, u.Netns, fmt.Sprintf("%s %s %s %s", u.sort(), u.Cgroup, u.To, u.Dev)}
}

func (u inUse) name() string {
	at := u.place()
	at.Netns = "" // which is named with every change
	switch {
	case u.What == use.Multipath:
		return "MPTCP sockets in " + at.String()
	case u.Cgroup != "":
		return "congestion control in " + at.String()
	}
	return "congestion control of " + at.String()
}

func (u inUse) value() string {
	if u.What == use.Multipath {
		return ""
	}
	if e, err := find(u.What, catalog.CC); err == nil {
		return e.Name
	}
	return u.What
}

func (u inUse) fits(there thing) bool { return u.value() == there.value() }

func (u inUse) put(ctx context.Context, _ thing) error {
	if u.What == use.Multipath {
		_, err := use.StartMultipath(ctx, u.place())
		return err
	}
	e, err := find(u.What, catalog.CC)
	if err == nil {
		_, err = use.Start(ctx, e, u.place())
	}
	return err
}

func (u inUse) drop(ctx context.Context) error {
	_, err := use.Remove(ctx, func(o use.Use) bool {
		return o.Place == u.place() && (o.What == use.Multipath) == (u.What == use.Multipath)
	})
	return err
}
