// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// problem is one thing wrong in a file.
type problem struct {
	File         string
	Line, Column int
	Text         string // what, and how to mend it
}

func (p problem) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// problems are all that is wrong in a file, in its order.
type problems []problem

func (p problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

// decoder turns YAML into values by their struct tags, and remembers where in the file each comes from.
type decoder struct {
	file     string
	problems problems
	env      map[string]any // the variables; nil where $(…) is not for
	fixed    bool           // decode only the keys that no variable may change
	left     int            // nodes that may still be read: aliases of aliases multiply
	nodes    map[any]*yaml.Node
}

const maxNodes = 100_000

func (d *decoder) problem(n *yaml.Node, format string, args ...any) {
	p := problem{d.file, n.Line, n.Column, fmt.Sprintf(format, args...)}
	if !slices.Contains(d.problems, p) {
		d.problems = append(d.problems, p)
	}
}

// at reports a problem at the place of the value that field points to, or of the mapping that lacks it.
func (d *decoder) at(field any, format string, args ...any) {
	d.problem(d.nodes[field], format, args...)
}

// place returns where in the file the value that field points to is.
func (d *decoder) place(field any) string {
	n := d.nodes[field]
	return fmt.Sprintf("%s:%d:%d", d.file, n.Line, n.Column)
}

func (d *decoder) err() error {
	if len(d.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(d.problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.problems
}

// decode sets v to what n says. Problems call it what.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, what string, tag reflect.StructTag) {
	d.nodes[v.Addr().Interface()] = n
	if d.left--; d.left < 0 {
		if d.left == -1 {
			d.problem(n, "more than %d values: aliases of aliases multiply", maxNodes)
		}
		return
	}
	n = target(n)
	_, text := v.Addr().Interface().(encoding.TextUnmarshaler)
	switch kind := v.Kind(); {
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
			d.scalar(n, v, what, tag, text)
		}
	}
}

func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func (d *decoder) is(n *yaml.Node, kind yaml.Kind, what, noun string) bool {
	switch {
	case n.Tag == "!!null":
		d.problem(n, "%s is empty: leave the key out, or fill it in", what)
	case n.Kind != kind:
		d.problem(n, "%s is not %s", what, noun)
	default:
		return true
	}
	return false
}

// pairs visits the keys of a mapping, and reports those that are there twice.
func (d *decoder) pairs(n *yaml.Node, visit func(key, value *yaml.Node)) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.problem(key, "a key is not a single word")
		case seen[key.Value]:
			d.problem(key, "key %s is there twice: leave one", key.Value)
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
		if key == "-" || options == "inline" {
			continue
		}
		all = append(all, field{StructField: f, key: key,
			needed: options != "omitempty" && f.Tag.Get("default") == ""})
	}
	return all
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, what string) {
	known := fields(v.Type())
	given := map[string]bool{}
	for _, f := range known {
		// A problem with a key that is left out belongs to the mapping.
		d.nodes[v.FieldByIndex(f.Index).Addr().Interface()] = n
		if text := f.Tag.Get("default"); text != "" && v.FieldByIndex(f.Index).Kind() != reflect.Slice {
			if err := set(v.FieldByIndex(f.Index), text); err != nil {
				panic(fmt.Sprintf("scenario: default of %s: %v", f.key, err))
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
			d.problem(key, "unknown key %s in %s: use %s", key.Value, what, strings.Join(keys, ", "))
			return
		}
		given[key.Value] = true
		f := known[i]
		if f.Tag.Get("varies") == "no" {
			env := d.env
			d.env = nil
			defer func() { d.env = env }()
		} else if d.fixed && v.Type() == reflect.TypeFor[Scenario]() {
			return
		}
		d.decode(value, v.FieldByIndex(f.Index), key.Value, f.Tag)
	})
	for _, f := range known {
		if !given[f.key] {
			if f.needed {
				d.problem(n, "%s lacks %s", what, f.key)
			}
			if text := f.Tag.Get("default"); text != "" && v.FieldByIndex(f.Index).Kind() == reflect.Slice {
				v.FieldByIndex(f.Index).Set(reflect.ValueOf([]string{text}))
			}
		}
	}
}

func (d *decoder) dictionary(n *yaml.Node, v reflect.Value, what string) {
	v.Set(reflect.MakeMap(v.Type()))
	d.pairs(n, func(key, value *yaml.Node) {
		element := reflect.New(v.Type().Elem()).Elem()
		d.decode(value, element, what+"."+key.Value, "")
		v.SetMapIndex(reflect.ValueOf(key.Value), element)
	})
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, what string, tag reflect.StructTag) {
	var there []*yaml.Node
	for _, c := range n.Content {
		if d.wanted(target(c), v.Type().Elem()) {
			there = append(there, c)
		}
	}
	// It has its final size from the beginning: nodes knows elements by their addresses.
	v.Set(reflect.MakeSlice(v.Type(), len(there), len(there)))
	for i, c := range there {
		d.decode(c, v.Index(i), "an entry of "+what, tag)
	}
}

// wanted says whether an entry of a list is to be kept: its when is not false.
func (d *decoder) wanted(n *yaml.Node, t reflect.Type) bool {
	if t.Kind() != reflect.Struct || n.Kind != yaml.MappingNode {
		return true
	}
	if _, has := t.FieldByName("When"); !has {
		return true
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if value := target(n.Content[i+1]); n.Content[i].Value == "when" && value.Kind == yaml.ScalarNode {
			// An expression that is wrong is reported when the entry is decoded.
			text, err := d.expand(value.Value)
			return err != nil || text != "false"
		}
	}
	return true
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, what string, tag reflect.StructTag, text bool) {
	value, err := d.expand(n.Value)
	if err == nil {
		err = set(v, value)
	}
	if err == nil {
		err = within(v, value, tag)
	}
	if err != nil {
		d.problem(n, "%s: %v", what, err)
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
	case reflect.Uint64:
		u, err := strconv.ParseUint(text, 10, 64)
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
		panic("scenario: no way to decode a " + v.Type().String())
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
			panic("scenario: range " + bound + ": " + err.Error())
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
