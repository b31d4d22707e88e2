// SPDX-License-Identifier: Apache-2.0

// Package schema writes what documents a language of YAML files from its Go types, their comments and the tags that
// internal/strictyaml checks: a JSON schema, and a table of each type's keys in Markdown.
package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
)

const module = "github.com/mpcc/mpcc"

// Document is what documents a language: a page, in which the tables stand in place of a line, and the schema.
type Document struct {
	Language
	Page                 string
	PageFile, SchemaFile string // from the top of the repository
}

// Main writes the files. It reads the sources' comments, from the top of the repository.
func (d Document) Main() {
	log.SetFlags(0)
	files, err := d.files()
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// Outdated returns which files are not what Main writes.
func (d Document) Outdated() (names []string, err error) {
	files, err := d.files()
	if err != nil {
		return nil, err
	}
	for name, want := range files {
		got, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(got, want) {
			names = append(names, name)
		}
	}
	return names, nil
}

func (d Document) files() (map[string][]byte, error) {
	text, tables, err := d.write()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		d.PageFile:   []byte(strings.Replace(d.Page, "<!-- keys -->\n", tables, 1)),
		d.SchemaFile: text,
	}, nil
}

// Language is a language of files.
type Language struct {
	Root    any      // the type of a whole file
	Title   string   // of the schema
	Folders []string // of the sources with the types' comments
	Map     func(reflect.Type) *jsonschema.Schema
	Texts   map[reflect.Type]Text
	// Expression is the pattern of what may stand in place of any value that varies; "" where nothing does. A key with
	// the tag varies:"no" does not, nor does what is in it.
	Expression string
	// Special refines the schema of a value that the tags do not describe, and tells whether it is one.
	Special func(value *jsonschema.Schema, f reflect.StructField) bool
}

// Text is a type that is written as a text.
type Text struct {
	Shape   string // in words
	Pattern string // "" for any
	Ordered bool   // the tag range is for it
}

// write returns the schema, and the tables. It reads the sources' comments, from the top of the repository.
func (l Language) write() (schema []byte, tables string, err error) {
	r := &jsonschema.Reflector{
		FieldNameTag: "yaml",
		Anonymous:    true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			if text, ok := l.Texts[t]; ok {
				return l.schemaOf(text)
			}
			if l.Map != nil {
				return l.Map(t)
			}
			return nil
		},
	}
	for _, folder := range l.Folders {
		if err := r.AddGoComments(module, folder); err != nil {
			return nil, "", err
		}
	}
	if len(r.CommentMap) == 0 {
		return nil, "", fmt.Errorf("no comments in %s: run at the top of the repository", strings.Join(l.Folders, ", "))
	}
	root := r.Reflect(l.Root)
	root.Title = l.Title
	var out strings.Builder
	l.describe(root, reflect.TypeOf(l.Root).Elem(), &out, l.Expression != "", map[string]bool{})
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err = enc.Encode(root)
	return text.Bytes(), out.String(), err
}

func (l Language) schemaOf(text Text) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string", Pattern: text.Pattern}
	if s.Pattern != "" && l.Expression != "" {
		s.Pattern += "|" + l.Expression
	}
	return s
}

// describe adds to the schema what the tags say, and writes a table of each type's keys.
func (l Language) describe(schema *jsonschema.Schema, t reflect.Type, out *strings.Builder, varying bool,
	done map[string]bool) {
	if done[t.Name()] {
		return
	}
	done[t.Name()] = true
	definition := schema.Definitions[t.Name()]
	fmt.Fprintf(out, "### %s\n\n%s\n\n| key | shape | default | meaning |\n|---|---|---|---|\n",
		t.Name(), sentence(definition.Description, t.Name()))
	definition.Description = sentence(definition.Description, t.Name())
	var inner []func()
	for _, f := range reflect.VisibleFields(t) {
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "-" || options == "inline" || !f.IsExported() {
			continue
		}
		property, ok := definition.Properties.Get(key)
		if !ok {
			log.Fatalf("%s.%s is not in the schema", t.Name(), key)
		}
		varies := f.Tag.Get("varies") != "no" && varying
		property.Description = strings.Join(strings.Fields(property.Description), " ")
		shape := l.shapeOf(f.Type, f.Tag)
		if element := l.structOf(f.Type); element != nil {
			inner = append(inner, func() { l.describe(schema, element, out, varies, done) })
		}
		meaning := strings.ReplaceAll(property.Description, "|", `\|`)
		l.refine(property, f, varies)
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
func (l Language) structOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if _, text := l.Texts[t]; t.Kind() == reflect.Struct && !text {
		return t
	}
	return nil
}

// shapeOf says in words what a key takes.
func (l Language) shapeOf(t reflect.Type, tag reflect.StructTag) string {
	text, isText := l.Texts[t]
	switch kind := t.Kind(); {
	case isText:
	case kind == reflect.Pointer:
		return l.shapeOf(t.Elem(), tag)
	case kind == reflect.Slice:
		return "list of " + l.shapeOf(t.Elem(), tag)
	case kind == reflect.Map:
		return "names with values"
	case kind == reflect.Struct:
		return fmt.Sprintf("[%s](#%s)", t.Name(), strings.ToLower(t.Name()))
	}
	if words := tag.Get("oneof"); words != "" {
		return "`" + strings.ReplaceAll(words, "|", "`, `") + "`"
	}
	shape := text.Shape
	if shape == "" {
		shape = map[reflect.Kind]string{
			reflect.String: "text", reflect.Bool: "`true`, `false`", reflect.Int: "whole number",
			reflect.Uint16: "whole number", reflect.Uint32: "whole number", reflect.Uint64: "whole number",
			reflect.Float64: "number",
		}[t.Kind()]
	}
	if low, high, has := strings.Cut(tag.Get("range"), ".."); has {
		shape += fmt.Sprintf(", %s to %s", low, high)
	}
	return shape
}

// refine tells the schema what the tags say of one key.
func (l Language) refine(p *jsonschema.Schema, f reflect.StructField, varies bool) {
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
	case l.Special != nil && l.Special(value, f):
	case f.Tag.Get("oneof") != "":
		for _, w := range strings.Split(f.Tag.Get("oneof"), "|") {
			value.Enum = append(value.Enum, w)
		}
	case ranged && !l.Texts[t].Ordered:
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
			AnyOf: []*jsonschema.Schema{&simple, {Type: "string", Pattern: l.Expression}}}
	}
}
