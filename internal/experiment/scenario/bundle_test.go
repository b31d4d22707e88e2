// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mpcc/mpcc/internal/experiment/result"
)

// A bundle of a brought scenario, with what Set has changed, comes back as it was.
func TestBundleRoundTrip(t *testing.T) {
	file, err := Load("scenario-c")
	if err != nil {
		t.Fatal(err)
	}
	if file, err = file.Set("n1", "5"); err != nil {
		t.Fatal(err)
	}
	want := NewBundle(&result.Result{Tool: "v1", Kernel: "6.12.0", Machine: "VM", Seed: 7, Quick: true,
		Scenario: result.Scenario{YAML: file.YAML()}}, "6.12", 3)
	text, err := want.Text()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "c"+BundleSuffix)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	got, again, err := ReadBundle(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(file.YAML(), again.YAML()); diff != "" {
		t.Error(diff)
	}
	for text, wanted := range map[string]string{
		"- a":                                  "is no bundle",
		"format: mpcc bundle\nversion: 2":      "version 2, not",
		"format: mpcc bundle\nversion: 1":      "the file is empty",
		"format: mpcc results\nversion: 1\na:": `is "mpcc results"`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadBundle(path); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%q: error %v, want %s", text, err, wanted)
		}
	}
}
