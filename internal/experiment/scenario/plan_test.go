// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/mpcc/mpcc/internal/experiment/judge"
	"github.com/mpcc/mpcc/internal/experiment/result"
)

// planned is good with a claim about cc lia and olia, at n 2, and one about every point.
func planned(plan, everywhere string) string {
	return strings.Replace(good, "  figures:\n", `    - text: OLIA has more
      source: here
      metric: goodput
      of: phone
      at: {n: 2, cc: olia}
      to: {metric: goodput, of: phone, at: {cc: lia}}
      is: above
      bound: 1
`+plan+everywhere+"  figures:\n", 1)
}

// As many repeats as the plan needs are run at both points that the claim compares, the file's own number elsewhere,
// and the short form's in the short form. Each claim is a test at each of its points: here one, and four of loss.
func TestPlannedRepeats(t *testing.T) {
	f, err := Parse("try.yaml", []byte(planned("      plan: {effect: 0.1, spread: 0.1, source: a guess}\n", "")))
	if err != nil {
		t.Fatal(err)
	}
	n := judge.Repeats(f.Expect.Claims[1], 1+4)
	if alone := judge.Repeats(f.Expect.Claims[1], 1); n <= alone || f.Expect.Claims[1].Plan.Power != .9 {
		t.Fatalf("%d repeats among five tests, %d alone, power %v", n, alone, f.Expect.Claims[1].Plan.Power)
	}
	got := map[string]int{}
	for _, r := range f.Runs(false) {
		got[fmt.Sprintf("n %s cc %s: %d planned", r.Point["n"], r.Point["cc"], r.Planned)]++
	}
	want := map[string]int{
		fmt.Sprintf("n 2 cc lia: %d planned", n): n, fmt.Sprintf("n 2 cc olia: %d planned", n): n,
		"n 4 cc lia: 0 planned": 2, "n 4 cc olia: 0 planned": 2,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, r := range f.Runs(true) {
		if r.Repeat > 0 && r.Scenario.Repeats != 2 {
			t.Errorf("the short form has %d repeats at %v", r.Scenario.Repeats, r.Point)
		}
	}
	less, err := f.Set("cc", "lia")
	if err != nil {
		t.Fatal(err)
	}
	if runs := less.Runs(false); len(runs) != 4 {
		t.Errorf("without OLIA there is nothing to plan for, but %d runs", len(runs))
	}
}

func TestBadPlans(t *testing.T) {
	for _, c := range []struct{ plan, everywhere, want string }{
		{"      plan: {effect: 0.1, spread: 0, source: a guess}\n", "", "the spread is a standard deviation, above 0"},
		{"      plan: {spread: 0.1, source: a guess}\n", "", "above and below need an effect"},
		{"      plan: {effect: 0.1, spread: 0.1}\n", "", "source"},
		{"      plan: {effect: 0.1, spread: 0.1, source: a guess, power: 0.5}\n", "", "0.9"},
		{"      plan: {effect: 0.001, spread: 1, source: a guess}\n", "", "1000 repeats are not enough to tell the claim"},
		{"      plan: {effect: 0.01, spread: 0.1, source: a guess}\n      negligible: 0.05\n", "", "the effect is below what is negligible"},
		{"      plan: {effect: 0.1, spread: 0.1, source: a guess}\n      untestable: delays\n", "", "leave one of the two"},
		{"", "    - {text: a, source: b, metric: goodput, of: phone, is: above, bound: 1, negligible: 0.1}\n", "give the claim a to"},
		{"", "    - {text: a, source: b, metric: goodput, of: phone, is: within, bound: 1, margin: 0.1, plan: {effect: 1, spread: 1, source: c}}\n", "within takes its margin"},
	} {
		_, err := Parse("try.yaml", []byte(planned(c.plan, c.everywhere)))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s%s: error %v, want %q in one line", c.plan, c.everywhere, err, c.want)
		}
	}
}

// The power of the class' own host, by the profile's line; none for hosts without a profile.
func TestHostPower(t *testing.T) {
	text := strings.Replace(good, "{name: user, mptcp:", "{name: user, energy: {host: i7-3770, scale: 100}, mptcp:", 1)
	f, err := Parse("try.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	network := f.Runs(false)[0].Network()
	got := map[Name]*result.HostPower{}
	for i := range network.Classes {
		got[network.Classes[i].Name] = network.HostPower(&network.Classes[i])
	}
	if p := got["phone"]; p == nil || p.Profile != "i7-3770" || p.Scale != 100 || p.Base <= 0 || p.Slope <= 0 {
		t.Errorf("phone's host has %+v", p)
	}
	if got["cross"] != nil {
		t.Errorf("cross' host has %+v", got["cross"])
	}
	if _, err := Parse("try.yaml", []byte(strings.Replace(text, "i7-3770", "i8", 1))); err == nil || !strings.Contains(err.Error(), `no host profile "i8"`) {
		t.Errorf("error %v", err)
	}
}
