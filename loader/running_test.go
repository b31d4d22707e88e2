// SPDX-License-Identifier: Apache-2.0

package loader_test

import (
	"maps"
	"testing"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/test/loaded"
	"github.com/mpcc/mpcc/test/said"
)

// The kernel says which tunables run, after a switch too.
func TestRunning(t *testing.T) {
	set := map[string]string{"min_cwnd": "1"}
	dts := loaded.DTS(t, set)
	same := func(set map[string]string) {
		t.Helper()
		want, err := loader.Values(dts, set)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range set {
			if want[name] != value {
				t.Fatalf("%s of the values is %q, not %q", name, want[name], value)
			}
		}
		if got, err := loader.Running(dts); err != nil || !maps.Equal(got, want) {
			t.Errorf("%v runs, %v; want %v", got, err, want)
		}
	}
	same(set)
	set["plain"] = "own"
	if err := loader.Switch(t.Context(), dts, loader.SwitchOptions{Set: set}); err != nil {
		t.Fatal(err)
	}
	same(set)

	olia, err := catalog.Find("olia")
	if err != nil {
		t.Fatal(err)
	}
	_, err = loader.Running(olia)
	said.InALine(t, err, "olia is not loaded")
}
