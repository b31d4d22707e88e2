// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
)

// noSetting is an entry of Tunables that sets nothing: what an axis has beside others.
const noSetting = "default"

// tunablesOf has the tunables of each algorithm, by its ID.
var tunablesOf = sync.OnceValues(func() (map[string][]loader.Tunable, error) {
	all := map[string][]loader.Tunable{}
	for _, e := range catalog.Entries {
		var err error
		if all[e.ID()], err = loader.Tunables(e); err != nil {
			return nil, err
		}
	}
	return all, nil
})

// Algorithms returns those of mpcc that the user's connections run.
func (u *User) Algorithms() []catalog.Entry {
	var all []catalog.Entry
	for _, e := range catalog.Entries {
		if e.Kind == catalog.CC && e.Name == u.CC && u.Transport != OverUDP || e.Kind == catalog.Sched && e.Name == u.Scheduler {
			all = append(all, e)
		}
	}
	return all
}

// algorithms returns those of all users, each once.
func (s *Scenario) algorithms() []catalog.Entry {
	var all []catalog.Entry
	for i := range s.Users {
		for _, e := range s.Users[i].Algorithms() {
			if !slices.ContainsFunc(all, func(a catalog.Entry) bool { return a.ID() == e.ID() }) {
				all = append(all, e)
			}
		}
	}
	return all
}

// Settings returns what the algorithm's tunables are set to, by name; the others have their defaults.
func (s *Scenario) Settings(e catalog.Entry) (map[string]string, error) {
	if len(s.Tunables) == 0 {
		return nil, nil
	}
	set := map[string]string{}
	all, err := tunablesOf()
	if err != nil {
		return nil, err
	}
	for _, t := range all[e.ID()] {
		if t.Paper != "" && slices.Contains(s.Tunables, loader.Paper) {
			set[t.Name] = t.Paper
		}
		for _, text := range s.Tunables {
			if name, value, given := strings.Cut(text, "="); given && name == t.Name {
				set[name] = value
			}
		}
	}
	return set, nil
}

// tunables reports settings that are none, and values that an algorithm of the users cannot be given.
func (d *decoder) tunables(s *Scenario) {
	seen := map[string]bool{}
	for i := range s.Tunables {
		entry := &s.Tunables[i]
		name, value, given := strings.Cut(*entry, "=")
		switch {
		case !given && name != loader.Paper && name != noSetting, given && (name == "" || name == loader.Paper):
			d.At(entry, "tunables: %q is no setting: use %s, name=value or %s", *entry, loader.Paper, noSetting)
			continue
		case seen[name]:
			d.At(entry, "tunables: %s is there twice: leave one", name)
		}
		seen[name] = true
		if !given {
			continue
		}
		all, err := tunablesOf()
		if err != nil {
			d.At(entry, "%v", err)
			return
		}
		for _, e := range s.algorithms() {
			k := slices.IndexFunc(all[e.ID()], func(t loader.Tunable) bool { return t.Name == name })
			if k < 0 {
				continue
			}
			if err := loader.CheckTunables(e, map[string]string{name: value}); err != nil {
				d.At(entry, "tunables: %s of %s is not %q: use %s", name, e, value, all[e.ID()][k].Range())
			}
		}
	}
}

// settings are the entries name=value of Tunables at all points. Each has to be for some algorithm at one of them.
type settings map[settingKey]*setting

type settingKey struct {
	place *yaml.Node
	name  string
}

type setting struct {
	algorithms map[string]bool // those that the users run where the entry is given
	tunables   map[string]bool // that these have
}

func (all settings) add(d *decoder, s *Scenario) {
	known, err := tunablesOf()
	for i := range s.Tunables {
		name, _, given := strings.Cut(s.Tunables[i], "=")
		if !given || err != nil {
			continue
		}
		key := settingKey{d.Node(&s.Tunables[i]), name}
		if all[key] == nil {
			all[key] = &setting{algorithms: map[string]bool{}, tunables: map[string]bool{}}
		}
		for _, e := range s.algorithms() {
			all[key].algorithms[e.String()] = true
			for _, t := range known[e.ID()] {
				all[key].tunables[t.Name] = true
			}
		}
	}
}

func (all settings) check(d *decoder) {
	for key, s := range all {
		// With the kernel's own algorithms alone, which the command line may ask for, nothing is set.
		if len(s.algorithms) > 0 && !s.tunables[key.name] {
			d.Problem(key.place, "tunables: none of %s has a tunable %s: there are %s",
				list(slices.Sorted(maps.Keys(s.algorithms))), key.name, list(slices.Sorted(maps.Keys(s.tunables))))
		}
	}
}
