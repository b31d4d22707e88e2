// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/conditions"
	"github.com/mpcc/mpcc/internal/experiment/own"
	"github.com/mpcc/mpcc/internal/experiment/published"
	"github.com/mpcc/mpcc/internal/experiment/result"
)

// cites is a place in a paper, or a formula.
var cites = regexp.MustCompile(`\b(tables?|figs?|section) [0-9IVX]|[=/·]`)

// Every experiment is there, runs at all its points in full and short form, cites a place for each claim, and claims
// nothing about a point at which it does not run.
func TestPublished(t *testing.T) {
	want := []string{"datacenter", "delay-difference", "four-nics", "mpcubic-fairness", "power", "scenario-a", "scenario-b",
		"scenario-c", "shared-bottlenecks", "traffic-shift", "wifi-4g", "wlan-3g", "wlan-wlan"}
	if got := namesIn(published.Files); !slices.Equal(got, want) {
		t.Errorf("there are %v, not %v", got, want)
	}
	for _, name := range want {
		t.Run(name, func(t *testing.T) {
			f := brings(t, name)
			if !cites.MatchString(f.Source) {
				t.Errorf("source %q names no place in a paper", f.Source)
			}
			if set := slices.DeleteFunc(slices.Clone(f.Tunables), func(t string) bool { return t == noSetting }); !slices.Equal(set, []string{"paper"}) {
				t.Errorf("its tunables are %v, not the paper's", f.Tunables)
			}
			judged(t, f)
			for _, axis := range []Variable{"cc", "scheduler", "tuning"} {
				if !slices.Contains(f.variables(), axis) {
					t.Errorf("its sweep has no %s", axis)
				}
			}
			expected(t, f)
			known(t, f)
		})
	}
}

// Its own compare every congestion control with the kernel's CUBIC, with the defaults.
func TestOwn(t *testing.T) {
	claiming := []string{"household", "plain"}
	if got, want := namesIn(own.Files), slices.Sorted(slices.Values(append(claiming, "drawn", "households", "queues", "shares", "slow-path"))); !slices.Equal(got, want) {
		t.Errorf("there are %v, not %v", got, want)
	}
	for _, name := range claiming {
		t.Run(name, func(t *testing.T) {
			f := brings(t, name)
			expected(t, f)
			known(t, f)
			var all, claimed []string
			for _, e := range catalog.Entries {
				if e.Kind == catalog.CC {
					all = append(all, e.Name)
				}
			}
			for _, c := range f.Expect.Claims {
				claimed = append(claimed, c.At["cc"])
			}
			run := map[string]bool{}
			for _, r := range f.Runs(false) {
				run[r.Scenario.Users[0].CC] = true
				if set := r.Scenario.Tunables; !slices.Equal(set, []string{"default"}) {
					t.Errorf("at %v it sets %v", r.Point, set)
				}
			}
			slices.Sort(all)
			slices.Sort(claimed)
			if !slices.Equal(claimed, all) {
				t.Errorf("it claims something of %v; there are %v", claimed, all)
			}
			if with := slices.Sorted(maps.Keys(run)); !slices.Equal(with, slices.Sorted(slices.Values(append(all, "cubic")))) {
				t.Errorf("it runs with %v, not with cubic and %v", with, all)
			}
		})
	}
}

// A queue of each kind and each AQM is tried.
func TestQueues(t *testing.T) {
	f := brings(t, "queues")
	expected(t, f)
	known(t, f)
	managed := map[string]bool{}
	for _, r := range f.Runs(false) {
		managed[r.Scenario.Links[1].Queue.AQM] = true
	}
	if got, want := slices.Sorted(maps.Keys(managed)), []string{"", "codel", "fq_codel", "pie"}; !slices.Equal(got, want) {
		t.Errorf("queues are managed by %q, not by %q", got, want)
	}
}

// Every packet scheduler, and the kernel's own, is compared where one path holds up the other.
func TestSlowPath(t *testing.T) {
	f := brings(t, "slow-path")
	expected(t, f)
	known(t, f)
	want, run := []string{"default"}, map[string]bool{}
	for _, e := range catalog.Entries {
		if e.Kind == catalog.Sched {
			want = append(want, e.Name)
		}
	}
	for _, r := range f.Runs(false) {
		run[r.Scenario.Users[0].Scheduler] = true
	}
	if with := slices.Sorted(maps.Keys(run)); !slices.Equal(with, slices.Sorted(slices.Values(want))) {
		t.Errorf("it runs with %v, not with %v", with, want)
	}
}

// make verify has a table of the households, with every congestion control.
func TestHouseholds(t *testing.T) {
	f := brings(t, "households")
	known(t, f)
	want := []string{"cubic", "reno"}
	for _, e := range catalog.Entries {
		if e.Kind == catalog.CC {
			want = append(want, e.Name)
		}
	}
	slices.Sort(want)
	homes := map[string]map[string]bool{}
	for _, r := range f.Runs(false) {
		home := r.Point["home"]
		if homes[home] == nil {
			homes[home] = map[string]bool{}
		}
		homes[home][r.Scenario.Users[0].CC] = true
	}
	if len(homes) < 12 {
		t.Errorf("there are %d homes", len(homes))
	}
	for home, run := range homes {
		if _, err := f.Set("home", home); err != nil {
			t.Errorf("%s alone: %v", home, err)
		}
		if with := slices.Sorted(maps.Keys(run)); !slices.Equal(with, want) {
			t.Errorf("%s runs with %v, not with %v", home, with, want)
		}
	}
}

// Those that algorithms are compared by run every congestion control, with the kernel's own beside them.
func TestConditions(t *testing.T) {
	all := []string{"cubic", "reno"}
	for _, e := range catalog.Entries {
		if e.Kind == catalog.CC {
			all = append(all, e.Name)
		}
	}
	slices.Sort(all)
	for _, name := range namesIn(conditions.Files) {
		t.Run(name, func(t *testing.T) {
			f := brings(t, name)
			if f.Repeats != 30 {
				t.Errorf("it has %d repeats", f.Repeats)
			}
			known(t, f)
			run := map[string]bool{}
			for _, r := range f.Runs(false) {
				if cc := r.Point["cc"]; cc != "none" {
					run[r.Scenario.Users[0].CC] = true
				}
			}
			if with := slices.Sorted(maps.Keys(run)); !slices.Equal(with, all) {
				t.Errorf("it runs with %v, not with %v", with, all)
			}
		})
	}
}

// brings loads an experiment by its name, and looks at what all of them have: the name, and a short form that is short.
func brings(t *testing.T, name string) *File {
	t.Helper()
	f, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(f.Name) != name {
		t.Errorf("it is called %s", f.Name)
	}
	short := time.Duration(0)
	for _, r := range f.Runs(true) {
		short += r.Scenario.Phases.Warmup.Std() + r.Scenario.Phases.Measure.Std()
		if n := r.Network(); len(n.Hosts)+len(n.Routers) > 40 {
			t.Errorf("the short form has %d hosts and routers at %v", len(n.Hosts)+len(n.Routers), r.Point)
		}
	}
	if short > 90*time.Second {
		t.Errorf("the short form takes up to %v", short)
	}
	return f
}

func expected(t *testing.T, f *File) {
	all := points(f.Sweep, false)
	runs := func(p result.Select) {
		for axis, value := range p.At {
			if !slices.ContainsFunc(all, func(q result.Point) bool { return q[axis] == value }) {
				t.Errorf("%s of %s is expected at %s %s, where it does not run", p.Metric, p.Of, axis, value)
			}
		}
	}
	for _, v := range f.Expect.Values {
		runs(v.Select)
		if !cites.MatchString(v.Source) {
			t.Errorf("%s of %s at %v: source %q names neither a place nor a formula", v.Metric, v.Of, v.At, v.Source)
		}
	}
	if len(f.Expect.Claims) == 0 || len(f.Expect.Figures) == 0 {
		t.Error("it has no claims or no figures")
	}
	for _, c := range f.Expect.Claims {
		runs(c.Select)
		if c.To != nil {
			runs(*c.To)
		}
		if !cites.MatchString(c.Source) {
			t.Errorf("claim %q: source %q names no place", c.Text, c.Source)
		}
	}
	for _, g := range f.Expect.Figures {
		runs(g.Select)
	}
}

// judged checks that every claim can be told, or says why it cannot, and that the set-ups stand beside each other.
func judged(t *testing.T, f *File) {
	for _, c := range f.Expect.Claims {
		if (c.Plan == nil) == (c.Untestable == "") {
			t.Errorf("claim %q has no plan, and does not say why it is not testable", c.Text)
		}
	}
	if f.Setup.Published == "" || f.Setup.Ours == "" {
		t.Error("it does not set the published set-up beside its own")
	}
}

// known checks that algorithms are mpcc's or the kernel's own.
func known(t *testing.T, f *File) {
	kernels := map[catalog.Kind][]string{catalog.CC: {"reno", "cubic", "dctcp"}, catalog.Sched: {"default"}}
	is := func(kind catalog.Kind, name string) {
		if !slices.Contains(kernels[kind], name) && !slices.ContainsFunc(catalog.Entries, func(e catalog.Entry) bool {
			return e.Kind == kind && e.Name == name
		}) {
			t.Errorf("no %s %s", kind.Noun(), name)
		}
	}
	for _, r := range f.Runs(false) {
		for _, u := range r.Scenario.Users {
			is(catalog.CC, u.CC)
			is(catalog.Sched, u.Scheduler)
		}
	}
}

// The generated networks have as many hosts, switches and links as the papers count.
func TestGenerated(t *testing.T) {
	f, err := Load("datacenter")
	if err != nil {
		t.Fatal(err)
	}
	links := map[string]int{"fattree": 128 * 3, "vl2": 128 + 2*32 + 32*16, "bcube": 128 * 3}
	for _, r := range f.Runs(false) {
		n, topology := r.Network(), r.Point["topology"]
		if len(n.Hosts) != 128 || len(n.Routers) != 80 || len(n.Links) != links[topology] {
			t.Fatalf("%s has %d hosts, %d switches and %d links", topology, len(n.Hosts), len(n.Routers), len(n.Links))
		}
		degree := map[Name]int{}
		for _, l := range n.Links {
			degree[l.Between[0]]++
			degree[l.Between[1]]++
		}
		for _, s := range n.Routers {
			kind := strings.Split(string(s), "-")[1]
			if want := map[string]int{
				"fattree edge": 8, "fattree agg": 8, "fattree core": 8, "vl2 tor": 4 + 2, "vl2 agg": 2 + 16, "vl2 int": 32,
				"bcube level0": 8, "bcube level1": 4, "bcube level2": 4,
			}[topology+" "+kind]; degree[s] != want {
				t.Fatalf("%s: switch %s has %d ports, not %d", topology, s, degree[s], want)
			}
		}
		for _, h := range n.Hosts {
			if want := map[string]int{"fattree": 1, "vl2": 1, "bcube": 3}[topology]; degree[h.Name] != want {
				t.Fatalf("%s: host %s has %d interfaces", topology, h.Name, degree[h.Name])
			}
			if h.Forwards != (topology == "bcube") {
				t.Fatalf("%s: host %s relays: %v", topology, h.Name, h.Forwards)
			}
		}
		sent, received := map[Name]int{}, map[Name]int{}
		for _, m := range n.Classes[0].Members {
			if m.From == m.To {
				t.Fatalf("%s sends to itself", m.From)
			}
			sent[m.From]++
			received[m.To]++
		}
		if len(sent) != 128 || len(received) != 128 {
			t.Fatalf("%d hosts send and %d receive, not all 128", len(sent), len(received))
		}
	}
}

// In BCube hosts that share a switch differ in one digit.
func TestBCube(t *testing.T) {
	b := &builder{kinds: map[Name][]Name{}}
	b.bcube(Generate{Name: "h"}, []int{2, 3})
	behind := map[Name][]Name{}
	for _, l := range b.Links {
		behind[l.Between[1]] = append(behind[l.Between[1]], l.Between[0])
	}
	want := map[Name][]Name{
		"h-level0-0": {"h-0", "h-1"}, "h-level0-1": {"h-2", "h-3"}, "h-level0-2": {"h-4", "h-5"},
		"h-level1-0": {"h-0", "h-2", "h-4"}, "h-level1-1": {"h-1", "h-3", "h-5"},
	}
	if fmt.Sprint(behind) != fmt.Sprint(want) {
		t.Errorf("hosts behind switches are %v, not %v", behind, want)
	}
}

// Kinds of hosts expand to one of each, with links, endpoints and users.
func TestKinds(t *testing.T) {
	f, err := Load("four-nics")
	if err != nil {
		t.Fatal(err)
	}
	n := f.Runs(true)[0].Network()
	if h := n.Hosts[3]; h.Name != "server-1" || h.Count != nil || len(h.MPTCP.Endpoints) != 3 || h.MPTCP.Endpoints[2].Link != "far4" {
		t.Errorf("the last host is %+v", h)
	}
	if l := n.Links[3]; l.Name != "nic2-1" || l.Interface != "nic2" || l.Between[0] != "subnet2" || l.Between[1] != "client-1" {
		t.Errorf("the fourth link is %+v", l)
	}
	again, other := f.Runs(true)[1].Network(), f.Runs(false)[1].Network()
	if fmt.Sprint(n.Classes[0].Members) != fmt.Sprint(again.Classes[0].Members) {
		t.Error("the same seed gives other pairs")
	}
	if repeat := f.Runs(false)[0].Network(); fmt.Sprint(repeat.Classes[0].Members) == fmt.Sprint(other.Classes[0].Members) {
		t.Error("another repeat gives the same pairs")
	}
}

// The thresholds of paper 4 are for 10 Mbit/s, and grow with the rate.
func TestRED(t *testing.T) {
	f, err := Load("scenario-c")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range f.Runs(false) {
		for _, l := range r.Network().Links {
			if l.Queue.RED == nil {
				continue
			}
			got, factor := l.Queue.RED.For(l.Rate), float64(l.Rate)/10e6
			want := RED{Min: 25 * factor, Max: 50 * factor, Probability: 0.1, End: 100 * factor}
			if got != want {
				t.Errorf("%s at %v: %+v, not %+v", l.Name, l.Rate, got, want)
			}
		}
	}
}

// The figures called theory solve the equations that their sources quote, and are those the paper rounds.
func TestTheory(t *testing.T) {
	for n1, ratio := range map[string]float64{"10": 1, "30": 3} {
		at := result.Point{"n1": n1, "cc": "lia"}
		z := root(func(z float64) float64 { return ratio*z/(2*z+1) + math.Sqrt(z) - 1 })
		solves(t, "scenario-a", "type2", at, math.Sqrt(z))
		x := root(func(x float64) float64 { return ratio*x + (1+x)*math.Sqrt(x) - 1 })
		solves(t, "scenario-c", "multi", at, 1+x)
		solves(t, "scenario-c", "single", at, (1+x)*math.Sqrt(x))
	}
	single := result.Point{"red": "single", "cc": "lia"}
	b2 := root(func(b float64) float64 { return b + (1.8+b)*math.Sqrt(b/1.8) - 2.4 })
	solves(t, "scenario-b", "blue", single, 1.8+b2)
	solves(t, "scenario-b", "red", single, 4.2-1.8-b2)
}

// Scenario B after red's upgrade.
func TestTheoryOfTwoMultipathClasses(t *testing.T) {
	// p is T's loss by X's, q = √(2/pX)/rtt. Blue shares q as 1/pX to 1/pT, red (its best path T) as
	// 1/pT to 1/(pX+pT), of q/√p; X carries b1 and r2, 1.8 a pair of users, T all
	// but b1, 2.4.
	shares := func(p, q float64) (b1, b2, r1, r2 float64) {
		blue, red := q*math.Max(1, 1/math.Sqrt(p)), q/math.Sqrt(p)
		b1, r1 = blue*p/(p+1), red*(1+p)/(1+2*p)
		return b1, blue - b1, r1, red - r1
	}
	p := root(func(p float64) float64 {
		q := root(func(q float64) float64 { b1, _, _, r2 := shares(p+0.01, q); return b1 + r2 - 1.8 })
		_, b2, r1, r2 := shares(p+0.01, q)
		return 2.4 - b2 - r1 - r2
	}) + 0.01
	q := root(func(q float64) float64 { b1, _, _, r2 := shares(p, q); return b1 + r2 - 1.8 })
	b1, b2, r1, r2 := shares(p, q)
	multi := result.Point{"red": "multi", "cc": "lia"}
	solves(t, "scenario-b", "blue", multi, b1+b2)
	solves(t, "scenario-b", "red", multi, r1+r2)
}

// root is that of a rising function between 0 and 3.
func root(f func(float64) float64) float64 {
	low, high := 0.0, 3.0
	for range 60 {
		if mid := (low + high) / 2; f(mid) < 0 {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// solves wants a scenario's theoretical goodput to be what its equation gives.
func solves(t *testing.T, name, of string, at result.Point, want float64) {
	t.Helper()
	f, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range f.Expect.Values {
		if v.Kind == result.Theory && v.Of == of && v.Metric == "goodput" && fmt.Sprint(v.At) == fmt.Sprint(at) {
			if math.Abs(v.Value-want) > 0.0006 {
				t.Errorf("%s, %s at %v: %v in the file, %v by the equation", name, of, at, v.Value, want)
			}
			return
		}
	}
	t.Errorf("%s has no theory of %s at %v", name, of, at)
}
