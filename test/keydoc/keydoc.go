// SPDX-License-Identifier: Apache-2.0

// Package keydoc compares a page that documents JSON with the Go types that it is written from. Each type
// has a heading of the second level with its name, and a table whose first column holds its keys.
package keydoc

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

// Sections returns the keys in the tables of a page, by heading.
func Sections(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
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

// Check fails the test if the keys of root, or of a type in it, are not those that the page has, or if a heading is
// neither one of these types nor one of others. The types in known are documented elsewhere.
func Check(t *testing.T, path string, root reflect.Type, known []reflect.Type, others ...string) {
	t.Helper()
	doc := Sections(t, path)
	seen := map[string]bool{}
	var check func(reflect.Type)
	check = func(structure reflect.Type) {
		if seen[structure.Name()] || slices.Contains(known, structure) {
			return
		}
		seen[structure.Name()] = true
		want, got := keys(structure, check), slices.Clone(doc[structure.Name()])
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, %s: %s", path, structure.Name(), diff)
		}
	}
	check(root)
	for heading := range doc {
		if !seen[heading] && !slices.Contains(others, heading) {
			t.Errorf("%s: there is no %s", path, heading)
		}
	}
}

// keys are those of a struct in JSON, embedded ones in their place.
func keys(structure reflect.Type, nested func(reflect.Type)) []string {
	var names []string
	for i := range structure.NumField() {
		f := structure.Field(i)
		if !f.IsExported() {
			continue
		}
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
