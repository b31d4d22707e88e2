// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/pkg/config"
)

func TestGenerated(t *testing.T) {
	t.Chdir("../../..")
	old, err := document.Outdated()
	if err != nil || len(old) > 0 {
		t.Errorf("%q are not what their sources give, %v: run make generate and commit", old, err)
	}
}

// The schema takes what the decoder takes, and refuses what breaks it in itself.
func TestSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../config.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	validate := func(text []byte) error {
		var value any
		if err := yaml.Unmarshal(text, &value); err != nil {
			t.Fatal(err)
		}
		return schema.Validate(value)
	}
	good, err := os.ReadFile("../../../deploy/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("config.yaml", good)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string][]byte{"the example": good, "what is written of it": c.YAML()} {
		if err := validate(text); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for old, broken := range map[string]string{
		"algorithms:":          "algorithm:",
		"name: dts":            "nam: dts",
		"rank: 2":              "rank: 0",
		"subflows: 4":          "subflows: many",
		"address: 192.0.2.10":  "address: wlan0",
		"flags: [subflow":      "flags: [sublow",
		"table: 101":           "table: 0",
		"small_pieces: true":   "small_pieces: 4096",
		"max_series: 500":      "max_series: -1",
		"min_age: 2s":          "min_age: 2",
		"profile: wifi-2012}":  "profil: wifi-2012}",
		"what: dts, cgroup: s": "what: dts, group: s",
	} {
		if !strings.Contains(string(good), old) {
			t.Fatalf("the example has no %q", old)
		}
		text := []byte(strings.Replace(string(good), old, broken, 1))
		if err := validate(text); err == nil {
			t.Errorf("the schema takes %q", broken)
		}
		if _, err := config.Parse("config.yaml", text); err == nil {
			t.Errorf("the decoder takes %q", broken)
		}
	}
}
