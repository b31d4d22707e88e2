// SPDX-License-Identifier: Apache-2.0

// Command scenarios writes docs/scenarios.md and docs/scenario.schema.json from the types of internal/experiment/scenario:
// their comments, and the tags that the decoder checks.
package main

import (
	_ "embed"
	"reflect"

	"github.com/invopop/jsonschema"

	"github.com/mpcc/mpcc/docs/gen/schema"
	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

//go:embed page.md
var page string

var document = schema.Document{
	Language: language, Page: page, PageFile: "docs/scenarios.md", SchemaFile: "docs/scenario.schema.json",
}

func main() { document.Main() }

var language = schema.Language{
	Root: &scenario.Scenario{}, Title: "Scenario of mpcc run",
	Folders: []string{"internal/experiment/scenario", "internal/experiment/result"},
	Map: func(t reflect.Type) *jsonschema.Schema {
		if t == reflect.TypeFor[result.Point]() {
			return &jsonschema.Schema{Type: "object", AdditionalProperties: word()}
		}
		return nil
	},
	Texts: map[reflect.Type]schema.Text{
		reflect.TypeFor[scenario.Rate]():     unit("rate", "bit/s|kbit/s|Mbit/s|Gbit/s"),
		reflect.TypeFor[scenario.Duration](): unit("duration", "ns|us|ms|s|min|h"),
		reflect.TypeFor[scenario.Size]():     unit("size", "B|KB|KiB|MB|MiB|GB|GiB|TB"),
		reflect.TypeFor[scenario.Percent]():  unit("percent", "%"),
		reflect.TypeFor[scenario.Name]():     {Shape: "name"},
		reflect.TypeFor[scenario.LinkName](): {Shape: "name, up to 15"},
		reflect.TypeFor[scenario.Variable](): {Shape: "variable"},
	},
	Expression: `\$\(`,
	Special: func(value *jsonschema.Schema, f reflect.StructField) bool {
		if f.Name != "Values" && f.Name != "Quick" {
			return false
		}
		if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.String {
			*value = *word()
		}
		return true
	},
}

// unit is a figure with one of some units.
func unit(shape, words string) schema.Text {
	return schema.Text{Shape: shape, Pattern: `^[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)? ?(` + words + `)$`, Ordered: true}
}

// word is a value of the sweep.
func word() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}}}
}
