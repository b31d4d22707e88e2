// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/internal/experiment/published"
	"github.com/mpcc/mpcc/internal/experiment/result"
)

// File is a scenario file without a mistake.
type File struct {
	*Scenario // at its first point; what varies with the sweep is in Runs
	text      []byte
	path      string
	root      *yaml.Node
}

// Run is one repeat at one point.
type Run struct {
	Point    result.Point
	Repeat   int // from 0
	Seed     uint64
	Scenario *Scenario // with the point's values in place
}

// Names lists the experiments that mpcc brings.
func Names() []string {
	entries, err := published.Files.ReadDir(".")
	if err != nil {
		panic("scenario: " + err.Error())
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".yaml")
	}
	return names
}

// Load reads one of Names, or the file at a path, which has a / or ends with .yaml.
func Load(name string) (*File, error) {
	if strings.Contains(name, "/") || strings.HasSuffix(name, ".yaml") {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return Parse(name, text)
	}
	text, err := published.Files.ReadFile(name + ".yaml")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no scenario %s: there are %s; write ./%[1]s for a file of your own",
			name, strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, err
	}
	return Parse(name+".yaml", text)
}

// Limits of a file, so that a slip does not fill the memory or take a year.
const (
	maxText   = 1 << 20
	maxPoints = 1000
)

// Parse reads and checks a scenario at all points of its sweep. The error has a line for each
// problem, with its place; path is what it calls the file.
func Parse(path string, text []byte) (*File, error) {
	root, err := parseYAML(path, text)
	if err != nil {
		return nil, err
	}
	f := &File{text: text, path: path, root: root}
	d, first := f.decode(nil)
	if len(d.problems) == 0 {
		d.sweep(first)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	all := append(points(first.Sweep, false), points(first.Sweep, true)...)
	measured := map[string][]string{}
	for _, point := range all {
		at, s := f.decode(environment(first.Sweep, point))
		if len(at.problems) == 0 {
			at.check(s)
		}
		// Other points would mostly say the same again.
		if err := at.err(); err != nil {
			return nil, err
		}
		s.measured(measured)
		if f.Scenario == nil {
			f.Scenario = s
		}
	}
	d.expect(first, measured)
	return f, d.err()
}

var yamlPlace = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?`)

func parseYAML(path string, text []byte) (*yaml.Node, error) {
	fail := func(line int, format string, args ...any) error {
		return problems{{path, line, 1, fmt.Sprintf(format, args...)}}
	}
	if len(text) > maxText {
		return nil, fail(1, "the file is above %d bytes: no scenario needs that", maxText)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var root, second yaml.Node
	err := dec.Decode(&root)
	if errors.Is(err, io.EOF) {
		return nil, fail(1, "the file is empty: docs/scenarios.md has an example")
	}
	if err == nil {
		if err = dec.Decode(&second); errors.Is(err, io.EOF) {
			return root.Content[0], nil
		}
		if err == nil {
			return nil, fail(second.Line, "a second document begins: one file holds one scenario")
		}
	}
	line := 1
	if m := yamlPlace.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
		line, _ = strconv.Atoi(m[1])
	}
	// The library's lines are those where it began to look.
	return nil, fail(line, "no YAML, here or further down: %s", yamlPlace.ReplaceAllString(err.Error(), ""))
}

// decode reads the file with the variables of env. With nil, only what does not vary is read.
func (f *File) decode(env map[string]any) (*decoder, *Scenario) {
	d := &decoder{file: f.path, env: env, fixed: env == nil, left: maxNodes, nodes: map[any]*yaml.Node{}}
	s := &Scenario{}
	d.decode(f.root, reflect.ValueOf(s).Elem(), "the scenario", "")
	for i := range s.Links {
		s.Links[i].Place = d.place(&s.Links[i])
	}
	for i := range s.Generate {
		s.Generate[i].Place = d.place(&s.Generate[i])
	}
	return d, s
}

// values of an axis in the full or the short form.
func (a Axis) values(quick bool) []string {
	if quick && a.Quick != nil {
		return a.Quick
	}
	return a.Values
}

// points lists every combination of the axes' values; the last axis varies first.
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

// environment is a point as expressions see it. A variable is a number only if all its values are, so that
// comparing it with a word is never comparing a number.
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

// Axes lists what varies, as results do.
func (f *File) Axes(quick bool) []result.Axis {
	axes := []result.Axis{}
	for _, a := range f.Sweep {
		axes = append(axes, result.Axis{Name: string(a.Name), Values: a.values(quick)})
	}
	return axes
}

// Runs lists every repeat of every point, repeats last.
func (f *File) Runs(quick bool) []Run {
	var runs []Run
	for _, point := range points(f.Sweep, quick) {
		d, s := f.decode(environment(f.Sweep, point))
		if err := d.err(); err != nil {
			panic("scenario: what Parse took is refused: " + err.Error())
		}
		if quick {
			s.shorten()
		}
		for i := range s.Repeats {
			runs = append(runs, Run{Point: point, Repeat: i, Seed: repeatSeed(s.Seed, i), Scenario: s})
		}
	}
	return runs
}

// repeatSeed gives every repeat numbers of its own.
func repeatSeed(seed uint64, repeat int) uint64 {
	return rand.New(rand.NewPCG(seed, uint64(repeat))).Uint64()
}

// shorten puts the short form in place.
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

// YAML is the file's text, with what Set changed.
func (f *File) YAML() string { return string(f.text) }

// Set gives a variable of the sweep other values, in the short form too.
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

// entry is a mapping's value, aliases followed; an empty node where it has none.
func entry(mapping *yaml.Node, key string) *yaml.Node {
	mapping = target(mapping)
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return target(mapping.Content[i+1])
		}
	}
	return &yaml.Node{}
}
