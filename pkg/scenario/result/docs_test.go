// SPDX-License-Identifier: Apache-2.0

package result

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const formatDoc = "../../../docs/results-format.md"

// sections are the tables of docs/results-format.md by their headings: the first column's keys.
func sections(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(formatDoc)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		found[heading] = []string{}
		for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(body, -1) {
			for _, key := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
				found[heading] = append(found[heading], key[1])
			}
		}
	}
	return found
}

// keys are those of a struct in JSON, embedded ones in their place.
func keys(structure reflect.Type, nested func(reflect.Type)) []string {
	var names []string
	for i := range structure.NumField() {
		f := structure.Field(i)
		if f.Anonymous {
			names = append(names, keys(f.Type, nested)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
		inner := f.Type
		for inner.Kind() == reflect.Slice || inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[time.Time]() {
			nested(inner)
		}
	}
	return names
}

// Every key of every type is documented, and none that there is not.
func TestFormatDoc(t *testing.T) {
	doc := sections(t)
	seen := map[string]bool{"Metrics": true, "Samples": true}
	var check func(reflect.Type)
	check = func(structure reflect.Type) {
		if structure.Name() == "Select" || seen[structure.Name()] {
			return // a claim's to has the claim's own keys
		}
		seen[structure.Name()] = true
		want := keys(structure, check)
		got := slices.Clone(doc[structure.Name()])
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, %s: %s", formatDoc, structure.Name(), diff)
		}
	}
	check(reflect.TypeFor[Result]())
	for heading := range doc {
		if !seen[heading] {
			t.Errorf("%s: %s is no part of the results", formatDoc, heading)
		}
	}
	if diff := cmp.Diff(sampleColumns, doc["Samples"]); diff != "" {
		t.Errorf("%s, Samples: %s", formatDoc, diff)
	}
}

func TestMetricsDoc(t *testing.T) {
	text, err := os.ReadFile(formatDoc)
	if err != nil {
		t.Fatal(err)
	}
	type row struct{ Name, Unit, Of string }
	var got, want []row
	for _, r := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\| ([a-z/]+) \\| .+ \\|$").FindAllStringSubmatch(string(text), -1) {
		got = append(got, row{r[1], strings.Trim(r[2], "–"), r[3]})
	}
	for _, m := range Metrics {
		of, _, _ := strings.Cut(m.Of, " ")
		want = append(want, row{m.Name, m.Unit, of})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s, Metrics: %s", formatDoc, diff)
	}
}
