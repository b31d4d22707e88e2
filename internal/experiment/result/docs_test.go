// SPDX-License-Identifier: Apache-2.0

package result

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mpcc/mpcc/test/keydoc"
)

const formatDoc = "../../../docs/results-format.md"

// The page documents every key of every type, and no other.
func TestFormatDoc(t *testing.T) {
	// A claim's to has the claim's own keys.
	keydoc.Check(t, formatDoc, reflect.TypeFor[Result](), []reflect.Type{reflect.TypeFor[Select]()}, "Metrics", "Samples", "Repeats")
	if diff := cmp.Diff(sampleColumns, keydoc.Sections(t, formatDoc)["Samples"]); diff != "" {
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
