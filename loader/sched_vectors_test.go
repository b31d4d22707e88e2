// SPDX-License-Identifier: Apache-2.0

package loader_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/test/reference/sched"
)

const (
	publishedSchedVectors = publishedVectors + "/sched"
	derivedSchedVectors   = derivedVectors + "/sched"

	// A published number has 6 digits; the arithmetic errs by some 2^-31 for each of some 30 operations.
	printedSched = 1e-5
	fixedSched   = 1e-7
)

// packetSchedulers are the catalog's rows that choose subflows.
func packetSchedulers() []catalog.Entry { return entries(catalog.Sched) }

func scheduler(t *testing.T, name string) sched.Scheduler {
	t.Helper()
	s, err := sched.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func schedVectors(t *testing.T, folder, name string) []sched.Case {
	t.Helper()
	v, err := sched.ReadVectors(filepath.Join(folder, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if v.Scheduler != name {
		t.Fatalf("%s/%s.json is for %q", folder, name, v.Scheduler)
	}
	return v.Cases
}

func decideScene(t *testing.T, ev *loader.Evaluator, scene sched.Scene) loader.Output {
	t.Helper()
	raw, err := json.Marshal(scene)
	if err != nil {
		t.Fatal(err)
	}
	var in loader.Input
	if err := json.Unmarshal(raw, &in); err != nil {
		t.Fatal(err)
	}
	out, err := ev.Eval(in)
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return out
}

// outputOf returns an outcome of the reference in the form in which the bytecode gives it.
func outputOf(t *testing.T, o sched.Outcome) loader.Output {
	t.Helper()
	e, err := o.Expected()
	if err != nil {
		t.Fatal(err)
	}
	out := loader.Output{Connection: loader.Numbers{"waits": o.Waits, "resend": o.Resend, "wait_us": o.Wait, "look_us": o.Look, "repeats": o.Repeats}, Memory: e.Memory}
	for i := range o.Send {
		out.Subflows = append(out.Subflows, loader.Numbers{
			"send": o.Send[i], "rate": o.Rate[i], "cost": o.Cost[i], "objective": o.Objective[i],
		})
	}
	return out
}

// compareSched returns an error that tells the first difference. Objectives may err by precision times their terms,
// rates and costs by precision times themselves; everything else has to be equal.
func compareSched(got loader.Output, want sched.Expect, terms []float64, precision float64) error {
	for i, send := range want.Send {
		if got.Subflows[i]["send"] != send {
			return fmt.Errorf("subflows[%d].send is %v, want %v", i, got.Subflows[i]["send"], send)
		}
	}
	for key, value := range map[string]*float64{"waits": want.Waits, "resend": want.Resend, "wait_us": want.Wait, "look_us": want.Look, "repeats": want.Repeats} {
		if value != nil && got.Connection[key] != *value {
			return fmt.Errorf("connection.%s is %v, want %v", key, got.Connection[key], *value)
		}
	}
	for key, value := range want.Memory {
		if got.Memory[key] != value {
			return fmt.Errorf("memory.%s is %v, want %v", key, got.Memory[key], value)
		}
	}
	for key, list := range map[string][]float64{"rate": want.Rate, "cost": want.Cost, "objective": want.Objective} {
		for i, value := range list {
			size := math.Abs(value)
			if key == "objective" {
				size = max(size, terms[i])
			}
			// Written so that a NaN fails.
			if off := math.Abs(got.Subflows[i][key] - value); !(off <= precision*size) {
				return fmt.Errorf("subflows[%d].%s is %.12g, want %.12g", i, key, got.Subflows[i][key], value)
			}
		}
	}
	return nil
}

// Every scheduler has all its parts: a source, published and derived vectors, a reference.
func TestEverySchedulerIsWhole(t *testing.T) {
	whole(t, packetSchedulers(), map[string][]string{
		"test/reference/sched":           sched.Names(),
		"bpf/sched":                      files(t, "../bpf/sched/*.bpf.c", ".bpf.c"),
		"testdata/vectors/sched":         files(t, publishedSchedVectors+"/*.json", ".json"),
		"testdata/vectors/derived/sched": files(t, derivedSchedVectors+"/*.json", ".json"),
	})
}

func TestEverySchedulerTunableIsTested(t *testing.T) {
	for _, e := range packetSchedulers() {
		changed(t, e, scheduler(t, e.Name).Sets)
	}
}

// The bytecode and the reference against numbers typed from the literature, and the bytecode against the
// reference at the corners.
func TestSchedulerVectors(t *testing.T) {
	for _, e := range packetSchedulers() {
		for _, folder := range []string{publishedSchedVectors, derivedSchedVectors} {
			precision := printedSched
			if folder == derivedSchedVectors {
				precision = fixedSched
			}
			evaluators := map[string]*loader.Evaluator{}
			for _, c := range schedVectors(t, folder, e.Name) {
				set := title("", c.Set)
				if evaluators[set] == nil {
					evaluators[set] = evaluator(t, e, c.Set)
				}
				outcome := scheduler(t, e.Name).Decide(c.Scene, c.Set)
				if err := compareSched(decideScene(t, evaluators[set], c.Scene), c.Expect, outcome.Terms, precision); err != nil {
					t.Errorf("%s/%s: %v", e.Name, c.Name, err)
				}
				if err := compareSched(outputOf(t, outcome), c.Expect, outcome.Terms, precision); err != nil {
					t.Errorf("%s/%s: the reference: %v", e.Name, c.Name, err)
				}
			}
		}
	}
}

// The bytecode against the reference on random connections from the whole valid range.
func TestRandomScenes(t *testing.T) {
	const byDefault, bySet = 10_000, 2_000
	start := *seed
	if start == 0 {
		start = rand.Uint64()
	}
	for _, e := range packetSchedulers() {
		s := scheduler(t, e.Name)
		for i, set := range append([]sched.Tunables{nil}, s.Sets...) {
			scenes := byDefault
			if i > 0 {
				scenes = bySet
			}
			t.Run(title(e.Name, set), func(t *testing.T) {
				t.Logf("repeat with: go test ./loader -run TestRandomScenes -seed %d", start)
				ev := evaluator(t, e, set)
				r := rand.New(rand.NewPCG(start, uint64(i)))
				sends, waits, edges := 0, 0, 0
				for range scenes {
					scene := s.Random(r)
					o := s.Decide(scene, set)
					want, err := o.Expected()
					if err != nil {
						t.Fatal(err)
					}
					got := decideScene(t, ev, scene)
					if err := compareSched(got, want, o.Terms, fixedSched); err != nil {
						if onSchedEdge(s, scene, set, got) {
							edges++
							continue
						}
						t.Fatalf("%v\n%+v", err, scene)
					}
					waits += int(o.Waits)
					if slices.Contains(o.Send, 1) {
						sends++
					}
				}
				t.Logf("%d sent, %d waited, %d on an edge", sends, waits, edges)
				if sends < scenes/10 || edges > 5+scenes/1000 {
					t.Errorf("of %d scenes %d send and %d pass only as near an edge", scenes, sends, edges)
				}
			})
		}
	}
}

// onSchedEdge reports whether the decision would be right for a connection that differs by 1e-8 in one RTT or rate,
// or chose one of two sets whose objectives differ by no more.
func onSchedEdge(s sched.Scheduler, scene sched.Scene, set sched.Tunables, got loader.Output) bool {
	o := s.Decide(scene, set)
	if k, want := int(got.Memory["k"]), int(o.Memory.K); k > 0 && want > 0 && k != want &&
		math.Abs(o.Objective[k-1]-o.Objective[want-1]) <= 1e-8*max(o.Terms[k-1], o.Terms[want-1]) {
		return true
	}
	for i := range scene.Subflows {
		for _, nudge := range []float64{1 - 1e-8, 1 + 1e-8} {
			near := scene
			near.Subflows = slices.Clone(scene.Subflows)
			near.Subflows[i].SRTT *= nudge
			near.Subflows[i].Rate *= nudge
			o := s.Decide(near, set)
			want, err := o.Expected()
			if err == nil && compareSched(got, want, o.Terms, fixedSched) == nil {
				return true
			}
		}
	}
	return false
}

// The checks above fail for a rule that is not the expected one.
func TestWrongSchedulerIsSeen(t *testing.T) {
	for _, wrong := range []struct {
		vectors, run string
		set          sched.Tunables
	}{
		{"minrtt", "cdd", nil},
		{"cdd", "minrtt", nil},
		{"roundrobin", "minrtt", nil},
		{"roundrobin", "roundrobin", sched.Tunables{"num_segments": "2"}},
		{"prefer", "minrtt", nil},
		{"redundant", "minrtt", nil},
		{"earliest", "ecf", nil},
		{"earliest", "blest", nil},
		{"earliest", "minrtt", nil},
		{"blest", "ecf", nil},
		{"blest", "minrtt", nil},
		{"ecf", "blest", nil},
		{"emtcp", "minrtt", nil},
		{"esmptcp", "minrtt", nil},
		{"esmptcp", "esmptcp", sched.Tunables{"lambda_ppm": "1001"}},
	} {
		e, err := catalog.Find("sched/" + wrong.run)
		if err != nil {
			t.Fatal(err)
		}
		ev := evaluator(t, e, wrong.set)
		seen := 0
		for _, c := range schedVectors(t, publishedSchedVectors, wrong.vectors) {
			terms := scheduler(t, wrong.vectors).Decide(c.Scene, nil).Terms
			if c.Set == nil && compareSched(decideScene(t, ev, c.Scene), c.Expect, terms, printedSched) != nil {
				seen++
			}
		}
		if seen == 0 {
			t.Errorf("%s passes the vectors of %s", title(wrong.run, wrong.set), wrong.vectors)
		}
	}
}

// A wait is granted only if an ACK is sure to end it, or the scheduler sets the timer; whatever is usable sends
// otherwise.
func TestNoSceneStalls(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, e := range packetSchedulers() {
		ev, timed := evaluator(t, e, nil), 0
		for range 2_000 {
			scene := scheduler(t, e.Name).Random(r)
			scene.Connection.Outstanding, scene.Connection.Reinject = 0, 0
			out := decideScene(t, ev, scene)
			usable, sends := 0.0, 0.0
			for _, s := range out.Subflows {
				usable += s["usable"]
				sends += s["send"]
			}
			if out.Connection["wait_us"] > 0 {
				timed++
				continue
			}
			if out.Connection["waits"] != 0 || usable > 0 && sends == 0 {
				t.Fatalf("%s waits with nothing outstanding: %+v", e.Name, scene)
			}
		}
		t.Logf("%s: %d waits that the timer ends", e.Name, timed)
		if (timed > 0) != (e.Name == "prefer") {
			t.Errorf("%s: %d waits that the timer ends", e.Name, timed)
		}
	}
}
