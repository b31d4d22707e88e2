// SPDX-License-Identifier: Apache-2.0

// Command scenarios writes docs/scenarios.md and docs/scenario.schema.json from the types of internal/experiment/scenario:
// their comments, and the tags that the decoder checks.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

//go:embed page.md
var page string

const (
	pageFile   = "docs/scenarios.md"
	schemaFile = "docs/scenario.schema.json"
	module     = "github.com/mpcc/mpcc"
)

func main() {
	log.SetFlags(0)
	files, err := generate()
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// generate gives each file's text. It reads the sources' comments, from the top of the repository.
func generate() (map[string][]byte, error) {
	schema, err := reflectSchema()
	if err != nil {
		return nil, err
	}
	var tables strings.Builder
	describe(schema, reflect.TypeFor[scenario.Scenario](), &tables, false, map[string]bool{})
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(schema); err != nil {
		return nil, err
	}
	return map[string][]byte{
		pageFile:   []byte(strings.Replace(page, "<!-- keys -->\n", tables.String(), 1)),
		schemaFile: text.Bytes(),
	}, nil
}

// expression is a value that the sweep computes.
const expression = `\$\(`

// units are what the types with a unit are written like.
var units = map[reflect.Type]string{
	reflect.TypeFor[scenario.Rate]():     "bit/s|kbit/s|Mbit/s|Gbit/s",
	reflect.TypeFor[scenario.Duration](): "ns|us|ms|s|min|h",
	reflect.TypeFor[scenario.Size]():     "B|KB|KiB|MB|MiB|GB|GiB|TB",
	reflect.TypeFor[scenario.Percent]():  "%",
}

func reflectSchema() (*jsonschema.Schema, error) {
	r := &jsonschema.Reflector{
		FieldNameTag: "yaml",
		Anonymous:    true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			if words := units[t]; words != "" {
				return &jsonschema.Schema{Type: "string", Pattern: `^[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)? ?(` + words + `)$|` + expression}
			}
			if t == reflect.TypeFor[result.Point]() {
				return &jsonschema.Schema{Type: "object", AdditionalProperties: word()}
			}
			return nil
		},
	}
	for _, folder := range []string{"internal/experiment/scenario", "internal/experiment/result"} {
		if err := r.AddGoComments(module, folder); err != nil {
			return nil, err
		}
	}
	if len(r.CommentMap) == 0 {
		return nil, fmt.Errorf("no comments in internal/experiment/scenario: run at the top of the repository")
	}
	schema := r.Reflect(&scenario.Scenario{})
	schema.Title = "Scenario of mpcc run"
	return schema, nil
}

// word is a value of the sweep.
func word() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}}}
}

// describe adds to the schema what the tags say, and writes a table of each type's keys.
func describe(schema *jsonschema.Schema, t reflect.Type, out *strings.Builder, varying bool, done map[string]bool) {
	if done[t.Name()] {
		return
	}
	done[t.Name()] = true
	definition := schema.Definitions[t.Name()]
	fmt.Fprintf(out, "### %s\n\n%s\n\n| key | shape | default | meaning |\n|---|---|---|---|\n", t.Name(), sentence(definition.Description, t.Name()))
	definition.Description = sentence(definition.Description, t.Name())
	var inner []func()
	for _, f := range reflect.VisibleFields(t) {
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "-" || options == "inline" {
			continue
		}
		property, ok := definition.Properties.Get(key)
		if !ok {
			log.Fatalf("%s.%s is not in the schema", t.Name(), key)
		}
		varies := f.Tag.Get("varies") != "no" && (varying || t == reflect.TypeFor[scenario.Scenario]())
		property.Description = strings.Join(strings.Fields(property.Description), " ")
		shape := shapeOf(f.Type, f.Tag)
		if element := structOf(f.Type); element != nil {
			inner = append(inner, func() { describe(schema, element, out, varies, done) })
		}
		meaning := strings.ReplaceAll(property.Description, "|", `\|`)
		refine(property, f, varies)
		need := f.Tag.Get("default")
		switch {
		case need != "":
			need = "`" + need + "`"
		case options != "omitempty":
			need = "needed"
		}
		fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", key, shape, need, meaning)
	}
	out.WriteString("\n")
	for _, f := range inner {
		f()
	}
}

// sentence is a type's comment without the type's name in front.
func sentence(comment, name string) string {
	text := strings.TrimPrefix(strings.Join(strings.Fields(comment), " "), name+" ")
	for _, verb := range []string{"is ", "are "} {
		text = strings.TrimPrefix(text, verb)
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// structOf is the struct that a field holds, itself, by pointer or in a list; nil where it holds none.
func structOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		return t
	}
	return nil
}

// shapeOf says in words what a key takes.
func shapeOf(t reflect.Type, tag reflect.StructTag) string {
	switch t.Kind() {
	case reflect.Pointer:
		return shapeOf(t.Elem(), tag)
	case reflect.Slice:
		return "list of " + shapeOf(t.Elem(), tag)
	case reflect.Map:
		return "variables with values"
	case reflect.Struct:
		return fmt.Sprintf("[%s](#%s)", t.Name(), strings.ToLower(t.Name()))
	}
	if words := tag.Get("oneof"); words != "" {
		return "`" + strings.ReplaceAll(words, "|", "`, `") + "`"
	}
	shape := map[reflect.Type]string{
		reflect.TypeFor[scenario.Rate]():     "rate",
		reflect.TypeFor[scenario.Duration](): "duration",
		reflect.TypeFor[scenario.Size]():     "size",
		reflect.TypeFor[scenario.Percent]():  "percent",
		reflect.TypeFor[scenario.Name]():     "name",
		reflect.TypeFor[scenario.LinkName](): "name, up to 15",
		reflect.TypeFor[scenario.Variable](): "variable",
	}[t]
	if shape == "" {
		shape = map[reflect.Kind]string{
			reflect.String: "text", reflect.Bool: "`true`, `false`", reflect.Int: "whole number", reflect.Uint64: "whole number",
			reflect.Float64: "number",
		}[t.Kind()]
	}
	if low, high, has := strings.Cut(tag.Get("range"), ".."); has {
		shape += fmt.Sprintf(", %s to %s", low, high)
	}
	return shape
}

// refine tells the schema what the tags say of one key.
func refine(p *jsonschema.Schema, f reflect.StructField, varies bool) {
	value := p
	t := f.Type
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			value = value.Items
		}
		t = t.Elem()
	}
	low, high, ranged := strings.Cut(f.Tag.Get("range"), "..")
	switch {
	case f.Name == "Values" || f.Name == "Quick":
		if t.Kind() == reflect.String {
			*value = *word()
		}
	case f.Tag.Get("oneof") != "":
		for _, w := range strings.Split(f.Tag.Get("oneof"), "|") {
			value.Enum = append(value.Enum, w)
		}
	case ranged && units[t] == "":
		value.Minimum, value.Maximum = json.Number(low), json.Number(high)
	case ranged:
		p.Description += fmt.Sprintf(" From %s to %s.", low, high)
	}
	if text := f.Tag.Get("default"); text != "" && f.Type.Kind() != reflect.Slice {
		p.Default = text
		if slices.Contains([]string{"integer", "number", "boolean"}, value.Type) {
			p.Default = json.RawMessage(text)
		}
	}
	// A string may be an expression as it is, where nothing says what it may be.
	if plain := slices.Contains([]string{"integer", "number", "boolean"}, value.Type) || value.Enum != nil; varies && plain {
		simple := *value
		simple.Description, simple.Default = "", nil
		*value = jsonschema.Schema{Description: value.Description, Default: value.Default,
			AnyOf: []*jsonschema.Schema{&simple, {Type: "string", Pattern: expression}}}
	}
}
