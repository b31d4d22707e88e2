// SPDX-License-Identifier: Apache-2.0

// Package strictyaml reads YAML files that people write: nothing in them goes unnoticed, and each thing that is wrong is
// told with its place and how to mend it.
//
// Structs say by their tags what a key is:
//
//	yaml:"key"            the key; without ",omitempty", and without a default, it is needed
//	default:"text"        what it is where it is left out
//	range:"low..high"     the numbers that it may be
//	oneof:"one|another"   the words that it may be
package strictyaml

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/internal/nearest"
)

// Problem is one thing wrong in a file.
type Problem struct {
	File         string
	Line, Column int
	Text         string // what, and how to mend it
}

func (p Problem) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// Problems are all that is wrong in a file, in its order.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

const maxText = 1 << 20 // bytes: a slip should not fill the memory

var yamlPlace = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?`)

// Root returns the one document of a text, nil where there is none. Errors, which are Problems, call the text file.
func Root(file string, text []byte) (*yaml.Node, error) {
	fail := func(line int, format string, args ...any) error {
		return Problems{{file, line, 1, fmt.Sprintf(format, args...)}}
	}
	if len(text) > maxText {
		return nil, fail(1, "the file is above %d bytes: none needs that", maxText)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var root, second yaml.Node
	err := dec.Decode(&root)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err == nil {
		if err = dec.Decode(&second); errors.Is(err, io.EOF) {
			return root.Content[0], nil
		}
		if err == nil {
			return nil, fail(second.Line, "a second document begins: a file holds one")
		}
	}
	line := 1
	if m := yamlPlace.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
		line, _ = strconv.Atoi(m[1])
	}
	// The line that the library names is that at which it began to look.
	return nil, fail(line, "no YAML, here or further down: %s", yamlPlace.ReplaceAllString(err.Error(), ""))
}

// Decoder turns YAML into values by their struct tags, and remembers where in the file each comes from.
type Decoder struct {
	Hooks
	file     string
	problems Problems
	left     int // nodes that may still be read: aliases of aliases multiply
	nodes    map[any]*yaml.Node
}

// Hooks are what a language adds to YAML. Each may be nil.
type Hooks struct {
	Expand func(text string) (string, error)                  // what is read in place of a single value
	Wanted func(entry *yaml.Node, t reflect.Type) bool        // whether an entry of a list, of type t, is to be kept
	Key    func(of reflect.Type, f reflect.StructField) Keyed // asked before a key of a struct is read
}

// Keyed is what becomes of a key.
type Keyed struct {
	Skip  bool   // it is not read
	After func() // called once it is read
}

const maxNodes = 100_000

// New returns a decoder whose problems call the file so.
func New(file string, h Hooks) *Decoder {
	return &Decoder{Hooks: h, file: file, left: maxNodes, nodes: map[any]*yaml.Node{}}
}

// Decode sets what into points to. Problems call it what.
func (d *Decoder) Decode(n *yaml.Node, into any, what string) {
	d.decode(n, reflect.ValueOf(into).Elem(), what, "")
}

// Problem reports a problem at a node.
func (d *Decoder) Problem(n *yaml.Node, format string, args ...any) {
	p := Problem{d.file, n.Line, n.Column, fmt.Sprintf(format, args...)}
	if !slices.Contains(d.problems, p) {
		d.problems = append(d.problems, p)
	}
}

// At reports a problem at the place of the value that field points to, or of the mapping that lacks it.
func (d *Decoder) At(field any, format string, args ...any) {
	d.Problem(d.nodes[field], format, args...)
}

// Node returns what the value that field points to was read from, or the mapping that lacks it.
func (d *Decoder) Node(field any) *yaml.Node { return d.nodes[field] }

// Place returns where in the file the value that field points to is.
func (d *Decoder) Place(field any) string {
	n := d.nodes[field]
	return fmt.Sprintf("%s:%d:%d", d.file, n.Line, n.Column)
}

// Err returns the Problems that there are, in the file's order; nil without any.
func (d *Decoder) Err() error {
	if len(d.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.problems
}

// decode sets v to what n says. Problems call it what.
func (d *Decoder) decode(n *yaml.Node, v reflect.Value, what string, tag reflect.StructTag) {
	d.nodes[v.Addr().Interface()] = n
	if d.left--; d.left < 0 {
		if d.left == -1 {
			d.Problem(n, "more than %d values: aliases of aliases multiply", maxNodes)
		}
		return
	}
	n = Target(n)
	_, text := v.Addr().Interface().(encoding.TextUnmarshaler)
	switch kind := v.Kind(); {
	case text:
		if d.is(n, yaml.ScalarNode, what, "a single value") {
			d.scalar(n, v, what, tag)
		}
	case kind == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, v.Elem(), what, tag)
	case kind == reflect.Struct:
		if d.is(n, yaml.MappingNode, what, "a mapping of keys") {
			d.mapping(n, v, what)
		}
	case kind == reflect.Map:
		if d.is(n, yaml.MappingNode, what, "a mapping of keys") {
			d.dictionary(n, v, what)
		}
	case kind == reflect.Slice:
		if d.is(n, yaml.SequenceNode, what, "a list") {
			d.list(n, v, what, tag)
		}
	default:
		if d.is(n, yaml.ScalarNode, what, "a single value") {
			d.scalar(n, v, what, tag)
		}
	}
}

// Target follows an alias.
func Target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func (d *Decoder) is(n *yaml.Node, kind yaml.Kind, what, noun string) bool {
	switch {
	case n.Tag == "!!null":
		d.Problem(n, "%s is empty: leave the key out, or fill it in", what)
	case n.Kind != kind:
		d.Problem(n, "%s is not %s", what, noun)
	default:
		return true
	}
	return false
}

// pairs visits the keys of a mapping, and reports those that are there twice.
func (d *Decoder) pairs(n *yaml.Node, visit func(key, value *yaml.Node)) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.Problem(key, "a key is not a single word")
		case seen[key.Value]:
			d.Problem(key, "key %s is there twice: leave one", key.Value)
		default:
			seen[key.Value] = true
			visit(key, n.Content[i+1])
		}
	}
}

// field is one key of a struct.
type field struct {
	reflect.StructField
	key    string
	needed bool
}

// fields returns the keys of a struct, those of inlined structs in their place.
func fields(t reflect.Type) []field {
	var all []field
	for _, f := range reflect.VisibleFields(t) {
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "-" || options == "inline" || !f.IsExported() {
			continue
		}
		all = append(all, field{StructField: f, key: key,
			needed: options != "omitempty" && f.Tag.Get("default") == ""})
	}
	return all
}

func (d *Decoder) mapping(n *yaml.Node, v reflect.Value, what string) {
	known := fields(v.Type())
	given := map[string]bool{}
	for _, f := range known {
		// A problem with a key that is left out belongs to the mapping.
		d.nodes[v.FieldByIndex(f.Index).Addr().Interface()] = n
		if text := f.Tag.Get("default"); text != "" && v.FieldByIndex(f.Index).Kind() != reflect.Slice {
			if err := set(v.FieldByIndex(f.Index), text); err != nil {
				panic(fmt.Sprintf("strictyaml: default of %s: %v", f.key, err))
			}
		}
	}
	d.pairs(n, func(key, value *yaml.Node) {
		i := slices.IndexFunc(known, func(f field) bool { return f.key == key.Value })
		if i < 0 {
			keys := make([]string, len(known))
			for i, f := range known {
				keys[i] = f.key
			}
			if near := nearest.Name(key.Value, keys); near != "" {
				d.Problem(key, "unknown key %s in %s: did you mean %s?", key.Value, what, near)
				return
			}
			d.Problem(key, "unknown key %s in %s: use %s", key.Value, what, strings.Join(keys, ", "))
			return
		}
		given[key.Value] = true
		f := known[i]
		if d.Key != nil {
			keyed := d.Key(v.Type(), f.StructField)
			if keyed.Skip {
				return
			}
			if keyed.After != nil {
				defer keyed.After()
			}
		}
		d.decode(value, v.FieldByIndex(f.Index), key.Value, f.Tag)
	})
	for _, f := range known {
		if !given[f.key] {
			if f.needed {
				d.Problem(n, "%s lacks %s", what, f.key)
			}
			if text := f.Tag.Get("default"); text != "" && v.FieldByIndex(f.Index).Kind() == reflect.Slice {
				v.FieldByIndex(f.Index).Set(reflect.ValueOf([]string{text}))
			}
		}
	}
}

func (d *Decoder) dictionary(n *yaml.Node, v reflect.Value, what string) {
	v.Set(reflect.MakeMap(v.Type()))
	d.pairs(n, func(key, value *yaml.Node) {
		element := reflect.New(v.Type().Elem()).Elem()
		d.decode(value, element, what+"."+key.Value, "")
		v.SetMapIndex(reflect.ValueOf(key.Value), element)
	})
}

func (d *Decoder) list(n *yaml.Node, v reflect.Value, what string, tag reflect.StructTag) {
	var there []*yaml.Node
	for _, c := range n.Content {
		if d.Wanted == nil || d.Wanted(Target(c), v.Type().Elem()) {
			there = append(there, c)
		}
	}
	// It has its final size from the beginning: nodes knows elements by their addresses.
	v.Set(reflect.MakeSlice(v.Type(), len(there), len(there)))
	for i, c := range there {
		d.decode(c, v.Index(i), "an entry of "+what, tag)
	}
}

func (d *Decoder) scalar(n *yaml.Node, v reflect.Value, what string, tag reflect.StructTag) {
	value, err := n.Value, error(nil)
	if d.Expand != nil {
		value, err = d.Expand(value)
	}
	if err == nil {
		err = set(v, value)
	}
	if err == nil {
		err = within(v, value, tag)
	}
	if err != nil {
		d.Problem(n, "%s: %v", what, err)
	}
}

// set sets v to what text says.
func set(v reflect.Value, text string) error {
	if t, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return t.UnmarshalText([]byte(text))
	}
	wrong := func(noun string) error { return fmt.Errorf("%q is not %s", text, noun) }
	switch v.Kind() {
	case reflect.String:
		if strings.TrimSpace(text) == "" {
			return errors.New("nothing is given: leave the key out, or fill it in")
		}
		v.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return wrong("true or false")
		}
		v.SetBool(text == "true")
	case reflect.Int:
		i, err := strconv.Atoi(text)
		if err != nil {
			return wrong("a whole number")
		}
		v.SetInt(int64(i))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		u, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("%s is above %d", text, ^uint64(0)>>(64-v.Type().Bits()))
		}
		if err != nil {
			return wrong("a whole number from 0 on")
		}
		v.SetUint(u)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f-f != 0 {
			return wrong("a number")
		}
		v.SetFloat(f)
	default:
		panic("strictyaml: no way to decode a " + v.Type().String())
	}
	return nil
}

// within checks v against the tags range and oneof.
func within(v reflect.Value, text string, tag reflect.StructTag) error {
	if words := tag.Get("oneof"); words != "" && !slices.Contains(strings.Split(words, "|"), text) {
		return fmt.Errorf("%q is not one of %s", text, strings.ReplaceAll(words, "|", ", "))
	}
	low, high, has := strings.Cut(tag.Get("range"), "..")
	if !has {
		return nil
	}
	bounds := [2]reflect.Value{}
	for i, bound := range []string{low, high} {
		bounds[i] = reflect.New(v.Type()).Elem()
		if err := set(bounds[i], bound); err != nil {
			panic("strictyaml: range " + bound + ": " + err.Error())
		}
	}
	if number(v) < number(bounds[0]) || number(v) > number(bounds[1]) {
		return fmt.Errorf("%s is not from %s to %s", text, low, high)
	}
	return nil
}

func number(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	}
	return v.Float()
}
