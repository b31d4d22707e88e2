// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mpcc/mpcc/internal/experiment/scenario"
)

// one is a user of a class of its own, over MPTCP unless the class says otherwise.
func one(from, to scenario.Name, class scenario.User) *user {
	if class.Transport == "" {
		class.Transport = scenario.OverMPTCP
	}
	return &user{class: &scenario.Class{User: &class}, member: scenario.Member{From: from, To: to}}
}

func TestDemands(t *testing.T) {
	web := scenario.User{Name: "web", Direction: "down", CC: "olia", Scheduler: "default", Traffic: scenario.Traffic{Kind: scenario.TrafficHTTP}}
	alone := one("c", "d", web)
	got, err := demands([]*user{
		one("a", "b", scenario.User{Direction: "up", CC: "dctcp", Scheduler: "default"}),
		one("a", "b", scenario.User{Direction: "down", CC: "lia", Scheduler: "minrtt"}),
		one("c", "b", scenario.User{Direction: "down", CC: "cubic", Scheduler: "default", Transport: "tcp"}),
		alone,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []*demand{
		{host: "a", scheduler: "default", ecn: true},
		{host: "b", scheduler: "minrtt", accepts: true},
		{host: "c", programs: alone.class.User},
		{host: "d", scheduler: "default", accepts: true, programs: alone.class.User},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(demand{})); diff != "" {
		t.Error(diff)
	}
}

// Users whose needs exclude each other cannot share a host.
func TestDemandsConflict(t *testing.T) {
	web := scenario.User{Name: "web", Direction: "down", Scheduler: "default", Traffic: scenario.Traffic{Kind: scenario.TrafficHTTP}}
	perf := scenario.User{Name: "perf", Direction: "up", Scheduler: "default", Traffic: scenario.Traffic{Kind: scenario.TrafficIperf3}}
	bulk := scenario.User{Name: "bulk", Direction: "up", Scheduler: "minrtt"}
	for want, users := range map[string][]*user{
		"host a is to send by the schedulers minrtt and default; a host has one":          {one("a", "b", bulk), one("a", "c", perf)},
		"host b runs the http of users web, who need it to themselves: give perf another": {one("a", "b", web), one("c", "b", perf)},
	} {
		if _, err := demands(users); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
