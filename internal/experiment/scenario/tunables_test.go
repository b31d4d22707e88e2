// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"maps"
	"strings"
	"testing"

	"github.com/mpcc/mpcc/bpf/catalog"
)

// olia and dts have a tunable of the same name whose default is not the paper's, cubic is the kernel's own.
const tuned = `name: try
title: A try
source: nobody
sweep:
  - {name: cc, values: [olia, dts, cubic]}
  - {name: tuning, values: [paper, default, metric=square, min_cwnd=1]}
phases: {measure: 10 s}
tunables: [$(tuning)]
hosts: [{name: user}, {name: server}]
links: [{name: lan, between: [user, server]}]
users: [{name: phone, from: user, to: server, cc: $(cc), traffic: bulk}]
`

func TestTunables(t *testing.T) {
	f, err := Parse("try.yaml", []byte(tuned))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]string{
		"olia paper":          {"min_cwnd": "1"},
		"olia default":        {},
		"olia metric=square":  {"metric": "square"},
		"olia min_cwnd=1":     {"min_cwnd": "1"},
		"dts paper":           {"min_cwnd": "1", "base_rtt": "lifetime"},
		"dts default":         {},
		"dts metric=square":   {},
		"dts min_cwnd=1":      {"min_cwnd": "1"},
		"cubic paper":         nil,
		"cubic default":       nil,
		"cubic metric=square": nil,
		"cubic min_cwnd=1":    nil,
	}
	for _, r := range f.Runs(false) {
		point := r.Point["cc"] + " " + r.Point["tuning"]
		checkSettings(t, r.Scenario, point, want[point])
		delete(want, point)
	}
	if len(want) > 0 {
		t.Errorf("no run at %v", want)
	}
}

// checkSettings fails the test unless the scenario's one user runs an algorithm of mpcc with these settings, or none
// where they are nil.
func checkSettings(t *testing.T, s *Scenario, point string, want map[string]string) {
	t.Helper()
	algorithms := s.Users[0].Algorithms()
	if len(algorithms) == 0 && want == nil {
		return
	}
	if len(algorithms) != 1 || algorithms[0].Kind != catalog.CC {
		t.Errorf("at %s the user runs %v", point, algorithms)
		return
	}
	got, err := s.Settings(algorithms[0])
	if err != nil {
		t.Fatal(err)
	}
	// What other algorithms' authors add to a paper's values is not of interest here.
	for name := range got {
		if _, ok := want[name]; !ok && strings.HasSuffix(point, "paper") {
			delete(got, name)
		}
	}
	if want == nil || !maps.Equal(got, want) {
		t.Errorf("at %s the settings are %v, not %v", point, got, want)
	}
}

// A value beside paper wins over it, in either order.
func TestTunablesBesidePaper(t *testing.T) {
	for _, list := range []string{"[paper, min_cwnd=2]", "[min_cwnd=2, paper]"} {
		text := strings.Replace(tuned, "[$(tuning)]", list, 1)
		f, err := Parse("try.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range f.Runs(false) {
			if r.Point["cc"] == "dts" {
				checkSettings(t, r.Scenario, "dts and paper", map[string]string{"min_cwnd": "2", "base_rtt": "lifetime"})
			}
		}
	}
}

// The command line may leave only algorithms of the kernel, which have no tunables.
func TestTunablesOfNoAlgorithm(t *testing.T) {
	text := strings.Replace(tuned, "[$(tuning)]", "[min_cwnd=1]", 1)
	f, err := Parse("try.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Set("cc", "cubic"); err != nil {
		t.Error(err)
	}
	if _, err := f.Set("cc", "cubic", "ewtcp"); err == nil {
		t.Error("ewtcp takes min_cwnd")
	}
}
