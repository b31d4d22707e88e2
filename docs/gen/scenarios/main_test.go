// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

func TestGenerated(t *testing.T) {
	t.Chdir("../../..")
	old, err := document.Outdated()
	if err != nil || len(old) > 0 {
		t.Errorf("%q are not what their sources give, %v: run make generate and commit", old, err)
	}
}

// example is the page's own.
func example(t *testing.T) string {
	_, after, _ := strings.Cut(page, "```yaml\n")
	text, _, found := strings.Cut(after, "```")
	if !found {
		t.Fatal("the page has no example")
	}
	return text
}

func TestExample(t *testing.T) {
	if _, err := scenario.Parse("example.yaml", []byte(example(t))); err != nil {
		t.Error(err)
	}
}

// The schema takes what the decoder takes, and refuses what breaks it in itself.
func TestSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../scenario.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	validate := func(text string) error {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		return schema.Validate(value)
	}
	for _, name := range scenario.Names() {
		f, err := scenario.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(f.YAML()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := example(t)
	if err := validate(good); err != nil {
		t.Errorf("the page's example: %v", err)
	}
	for old, broken := range map[string]string{
		"title: One":          "titel: One",
		"title: One user, ":   "#",
		"20 Mbit/s":           "20 Mbps",
		"repeats: 3":          "repeats: 0",
		"traffic: bulk":       "traffic: much",
		"direction: down":     "direction: sideways",
		"loss: 1 %":           "loss: 1",
		"bound: 0.95":         "bound: much",
		"from: phone, ":       "",
		"between: [core, ":    "between: [[core], ",
		"is: above":           "is: near",
		"{packets: 200}":      "{packets: 0}",
		"values: [lia, olia]": "values: lia",
	} {
		if !strings.Contains(good, old) {
			t.Fatalf("the example has no %q", old)
		}
		if err := validate(strings.Replace(good, old, broken, 1)); err == nil {
			t.Errorf("the schema takes %q", broken)
		}
	}
}
