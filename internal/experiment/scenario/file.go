// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/internal/experiment/conditions"
	"github.com/mpcc/mpcc/internal/experiment/own"
	"github.com/mpcc/mpcc/internal/experiment/published"
	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/nearest"
	"github.com/mpcc/mpcc/internal/strictyaml"
)

// File is a scenario file that has been checked.
type File struct {
	*Scenario // at the first point of its sweep; Runs has it at all of them
	text      []byte
	path      string
	root      *yaml.Node
	planned   map[string]int // repeats, by the point as text: see plan
}

// Run is one repeat at one point.
type Run struct {
	Point    result.Point
	Repeat   int // from 0
	Planned  int // repeats of the point in the full form, where a claim that is judged there plans them; else 0
	Seed     uint64
	Scenario *Scenario // with the point's values in place of $(…)
}

// brought are the folders of the experiments that mpcc brings.
var brought = []embed.FS{published.Files, own.Files, conditions.Files}

// Names returns the names of the experiments that mpcc brings.
func Names() []string {
	var names []string
	for _, folder := range brought {
		names = append(names, namesIn(folder)...)
	}
	slices.Sort(names)
	return names
}

func namesIn(folder embed.FS) []string {
	entries, err := folder.ReadDir(".")
	if err != nil {
		panic("scenario: " + err.Error())
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".yaml")
	}
	return names
}

// Load reads one of Names, or the file at a path: that has a / in it or ends with .yaml.
func Load(name string) (*File, error) {
	if strings.Contains(name, "/") || strings.HasSuffix(name, ".yaml") {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return Parse(name, text)
	}
	var text []byte
	err := fs.ErrNotExist
	for _, folder := range brought {
		if text, err = folder.ReadFile(name + ".yaml"); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		if near := nearest.Name(name, Names()); near != "" {
			return nil, fmt.Errorf("no scenario %s: did you mean %s? Write ./%[1]s for a file of your own", name, near)
		}
		return nil, fmt.Errorf("no scenario %s: there are %s; write ./%[1]s for a file of your own",
			name, strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, err
	}
	return Parse(name+".yaml", text)
}

// maxPoints is a limit: a slip should not have a run take a year.
const maxPoints = 1000

// Parse reads and checks a scenario at all points of its sweep. The error has a line for each
// problem, with its place; path is what it calls the file.
func Parse(path string, text []byte) (*File, error) {
	root, err := parseYAML(path, text)
	if err != nil {
		return nil, err
	}
	if len(entry(root, "traces").Content) > 0 {
		if err := inline(path, root); err != nil {
			return nil, err
		}
		if text, err = yaml.Marshal(root); err != nil {
			return nil, err
		}
	}
	f := &File{text: text, path: path, root: root}
	d, first := f.decode(nil)
	if d.Err() == nil {
		d.sweep(first)
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	all := append(points(first.Sweep, false), points(first.Sweep, true)...)
	measured := map[string][]string{}
	given := settings{}
	for _, point := range all {
		at, s := f.decode(environment(first.Sweep, point))
		if at.Err() == nil {
			at.check(s)
		}
		// Other points would mostly have the same problems.
		if err := at.Err(); err != nil {
			return nil, err
		}
		s.measured(measured)
		given.add(at, s)
		if f.Scenario == nil {
			f.Scenario = s
		}
	}
	d.expect(first, measured, sync.OnceValue(func() map[string][]string { return f.leftOut(first.Sweep, all) }))
	f.planned = d.plan(first)
	given.check(d)
	return f, d.Err()
}

func parseYAML(path string, text []byte) (*yaml.Node, error) {
	root, err := strictyaml.Root(path, text)
	if root == nil && err == nil {
		err = strictyaml.Problems{{File: path, Line: 1, Column: 1, Text: "the file is empty: docs/scenarios.md has an example"}}
	}
	return root, err
}

// leftOut returns what metrics could be of in entries that are at none of these points of the sweep: classes, links and
// class/interface.
func (f *File) leftOut(axes []Axis, all []result.Point) map[string][]string {
	users, links := map[int]bool{}, map[int]bool{} // that are at some point
	whole := &Scenario{}
	for _, point := range all {
		d := newDecoder(f.path, environment(axes, point))
		d.whole = true
		whole = &Scenario{}
		d.Decode(f.root, whole, "the scenario")
		for i, u := range whole.Users {
			users[i] = users[i] || u.When == nil || *u.When
		}
		for i, l := range whole.Links {
			links[i] = links[i] || l.When == nil || *l.When
		}
	}
	out := map[string][]string{}
	for i, l := range whole.Links {
		if !links[i] {
			out[result.OfLink] = append(out[result.OfLink], string(l.Name), string(l.Name)+"-back")
		}
	}
	for i, u := range whole.Users {
		if users[i] {
			continue
		}
		out[result.OfClass] = append(out[result.OfClass], string(u.Name))
		for _, l := range whole.Links {
			out[result.OfInterface] = append(out[result.OfInterface], string(u.Name)+"/"+string(l.Name))
		}
	}
	return out
}

// decode reads the file with the variables of env. If that is nil, only what cannot vary is read.
func (f *File) decode(env map[string]any) (*decoder, *Scenario) {
	d := newDecoder(f.path, env)
	s := &Scenario{}
	d.Decode(f.root, s, "the scenario")
	for i := range s.Links {
		s.Links[i].Place = d.Place(&s.Links[i])
	}
	for i := range s.Generate {
		s.Generate[i].Place = d.Place(&s.Generate[i])
	}
	s.setRates()
	return d, s
}

// values returns those of the full or of the short form.
func (a Axis) values(quick bool) []string {
	if quick && a.Quick != nil {
		return a.Quick
	}
	return a.Values
}

// points returns every combination of the axes' values; the last axis varies fastest.
func points(axes []Axis, quick bool) []result.Point {
	all := []result.Point{{}}
	for _, a := range axes {
		var longer []result.Point
		for _, p := range all {
			for _, v := range a.values(quick) {
				q := result.Point{string(a.Name): v}
				for name, value := range p {
					q[name] = value
				}
				longer = append(longer, q)
			}
		}
		all = longer
	}
	return all
}

// environment returns a point's variables as expressions see them. A variable is a number only if all its values
// are: a comparison with a word is then right at all points.
func environment(axes []Axis, point result.Point) map[string]any {
	env := map[string]any{}
	for _, a := range axes {
		value := point[string(a.Name)]
		env[string(a.Name)] = variable(value)
		for _, other := range append(a.Values, a.Quick...) {
			if _, word := variable(other).(string); word {
				env[string(a.Name)] = value
			}
		}
	}
	return env
}

// Axes returns the sweep as results have it.
func (f *File) Axes(quick bool) []result.Axis {
	axes := []result.Axis{}
	for _, a := range f.Sweep {
		axes = append(axes, result.Axis{Name: string(a.Name), Values: a.values(quick)})
	}
	return axes
}

// Runs returns every repeat of every point; repeats of a point follow each other.
func (f *File) Runs(quick bool) []Run {
	var runs []Run
	for _, point := range points(f.Sweep, quick) {
		d, s := f.decode(environment(f.Sweep, point))
		if err := d.Err(); err != nil {
			panic("scenario: what Parse took is refused: " + err.Error())
		}
		planned := f.planned[fmt.Sprint(point)]
		s.Repeats = max(s.Repeats, planned)
		if quick {
			s.shorten()
		}
		for i := range s.Repeats {
			runs = append(runs, Run{Point: point, Repeat: i, Planned: planned, Seed: repeatSeed(s.Seed, i), Scenario: s})
		}
	}
	return runs
}

// repeatSeed returns a seed for each repeat.
func repeatSeed(seed uint64, repeat int) uint64 {
	return rand.New(rand.NewPCG(seed, uint64(repeat))).Uint64()
}

// shorten makes the scenario its short form.
func (s *Scenario) shorten() {
	if s.Quick.Warmup != nil {
		s.Phases.Warmup = *s.Quick.Warmup
	}
	if s.Quick.Measure != nil {
		s.Phases.Measure = *s.Quick.Measure
	}
	if s.Quick.Repeats != nil {
		s.Repeats = *s.Quick.Repeats
	}
}

// YAML returns the file's text, with what Set has changed.
func (f *File) YAML() string { return string(f.text) }

// Set returns the file with other values of a variable of the sweep, in the short form too.
func (f *File) Set(name string, values ...string) (*File, error) {
	root, err := parseYAML(f.path, f.text)
	if err != nil {
		return nil, err
	}
	for _, axis := range entry(root, "sweep").Content {
		if entry(axis, "name").Value != name {
			continue
		}
		for _, key := range []string{"values", "quick"} {
			list := entry(axis, key)
			list.Content = nil
			for _, v := range values {
				list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: v})
			}
		}
		text, err := yaml.Marshal(root)
		if err != nil {
			return nil, err
		}
		return Parse(f.path, text)
	}
	names := make([]string, len(f.Sweep))
	for i, a := range f.Sweep {
		names[i] = string(a.Name)
	}
	return nil, fmt.Errorf("%s has no variable %s: it has %s", f.path, name, strings.Join(names, ", "))
}

// entry returns the value of a mapping's key, with aliases followed; an empty node if the key is not there.
func entry(mapping *yaml.Node, key string) *yaml.Node {
	mapping = strictyaml.Target(mapping)
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return strictyaml.Target(mapping.Content[i+1])
		}
	}
	return &yaml.Node{}
}
