// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"reflect"

	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/internal/strictyaml"
)

// decoder reads a scenario with the variables of its sweep.
type decoder struct {
	*strictyaml.Decoder
	env   map[string]any // the variables; nil where $(…) is not for
	fixed bool           // decode only the keys that no variable may change
	whole bool           // decode entries of lists whose when is false too
}

// newDecoder returns a decoder with these variables or, without any, for what cannot vary.
func newDecoder(file string, env map[string]any) *decoder {
	d := &decoder{env: env, fixed: env == nil}
	d.Decoder = strictyaml.New(file, strictyaml.Hooks{Expand: d.expand, Wanted: d.wanted, Key: d.key})
	return d
}

// key keeps variables from keys that cannot vary, and skips the others where these alone are decoded.
func (d *decoder) key(of reflect.Type, f reflect.StructField) strictyaml.Keyed {
	if f.Tag.Get("varies") == "no" {
		env := d.env
		d.env = nil
		return strictyaml.Keyed{After: func() { d.env = env }}
	}
	return strictyaml.Keyed{Skip: d.fixed && of == reflect.TypeFor[Scenario]()}
}

// wanted says whether an entry of a list is to be kept: its when is not false.
func (d *decoder) wanted(n *yaml.Node, t reflect.Type) bool {
	if d.whole || t.Kind() != reflect.Struct || n.Kind != yaml.MappingNode {
		return true
	}
	if _, has := t.FieldByName("When"); !has {
		return true
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if value := strictyaml.Target(n.Content[i+1]); n.Content[i].Value == "when" && value.Kind == yaml.ScalarNode {
			// An expression that is wrong is reported when the entry is decoded.
			text, err := d.expand(value.Value)
			return err != nil || text != "false"
		}
	}
	return true
}
