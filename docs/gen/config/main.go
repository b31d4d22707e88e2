// SPDX-License-Identifier: Apache-2.0

// Command config writes docs/config.md and docs/config.schema.json from the types of pkg/config: their comments, and the
// tags that the decoder checks.
package main

import (
	_ "embed"
	"reflect"

	"github.com/invopop/jsonschema"

	"github.com/mpcc/mpcc/docs/gen/schema"
	"github.com/mpcc/mpcc/pkg/config"
	"github.com/mpcc/mpcc/pkg/paths"
)

//go:embed page.md
var page string

var document = schema.Document{
	Language: language, Page: page, PageFile: "docs/config.md", SchemaFile: "docs/config.schema.json",
}

func main() { document.Main() }

var language = schema.Language{
	Root: &config.Config{}, Title: "Configuration of mpcc",
	Folders: []string{"pkg/config", "pkg/paths"},
	Texts: map[reflect.Type]schema.Text{
		reflect.TypeFor[config.Addr]():     {Shape: "address", Pattern: `^[0-9a-fA-F.:]+$`},
		reflect.TypeFor[config.Prefix]():   {Shape: "address or prefix", Pattern: `^([0-9a-fA-F.:]+(/[0-9]+)?|default)$`},
		reflect.TypeFor[config.Duration](): {Shape: "time, such as `1s`", Pattern: `^([0-9.]+(ns|us|ms|s|m|h))+$`},
		reflect.TypeFor[paths.Path]():      {Shape: "PATH of `mpcc path set`"},
		reflect.TypeFor[paths.Only]():      {Shape: "as `--only` of it"},
		reflect.TypeFor[paths.Spill]():     {Shape: "as `--spill` of it"},
		reflect.TypeFor[paths.Rate]():      {Shape: "as `--cap` of it"},
		reflect.TypeFor[paths.Quota]():     {Shape: "as `--quota` of it"},
	},
	Special: func(value *jsonschema.Schema, f reflect.StructField) bool {
		if f.Name != "Set" {
			return false
		}
		// A tunable is a word or a number.
		value.AdditionalProperties = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}}}
		return true
	},
}
