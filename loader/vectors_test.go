// SPDX-License-Identifier: Apache-2.0

package loader_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/loader"
	"github.com/mpcc/mpcc/test/reference"
)

const (
	publishedVectors = "../testdata/vectors"
	derivedVectors   = publishedVectors + "/derived"
)

// printed is how far the 8 digits of a published number may be off.
const printed = 1e-6

// congestionControls are the catalog's rows with a window rule.
func congestionControls() []catalog.Entry { return entries(catalog.CC) }

func entries(kind catalog.Kind) []catalog.Entry {
	return slices.DeleteFunc(slices.Clone(catalog.Entries), func(e catalog.Entry) bool { return e.Kind != kind })
}

// evaluator evaluates the algorithm as its source has it, but for the tunables in set.
func evaluator(t *testing.T, e catalog.Entry, set reference.Tunables) *loader.Evaluator {
	t.Helper()
	values := reference.Tunables{loader.Paper: ""}
	maps.Copy(values, set)
	ev, err := loader.NewEvaluator(e, values)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ev.Close)
	return ev
}

func algorithm(t *testing.T, name string) reference.Algorithm {
	t.Helper()
	a, err := reference.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func vectors(t *testing.T, folder, name string) []reference.Case {
	t.Helper()
	v, err := reference.ReadVectors(filepath.Join(folder, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if v.Algorithm != name {
		t.Fatalf("%s/%s.json is for %q", folder, name, v.Algorithm)
	}
	return v.Cases
}

func run(t *testing.T, ev *loader.Evaluator, subflows []reference.Subflow) []loader.Numbers {
	t.Helper()
	raw, err := json.Marshal(subflows)
	if err != nil {
		t.Fatal(err)
	}
	var paths []loader.Numbers
	if err := json.Unmarshal(raw, &paths); err != nil {
		t.Fatal(err)
	}
	got, err := ev.Eval(loader.Input{Subflows: paths})
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return got.Subflows
}

// terms are the sizes of the terms that increases and couplings are sums of. Terms may cancel, so errors are taken
// relative to these.
type terms struct{ increase, coupling []float64 }

// results returns the numbers themselves as terms, for rules in which nothing cancels.
func results(want reference.Expect) terms {
	return terms{magnitudes(want.Increase), magnitudes(want.Coupling)}
}

// expected is what the reference decides.
func expected(decisions []reference.Decision) (want reference.Expect, of terms) {
	for _, d := range decisions {
		want.Increase = append(want.Increase, d.Up-d.Down)
		want.AfterLoss = append(want.AfterLoss, d.AfterLoss)
		want.Coupling = append(want.Coupling, d.Coupling)
		want.Window = append(want.Window, d.Window)
		want.Ssthresh = append(want.Ssthresh, d.Ssthresh)
		of.increase = append(of.increase, cmp.Or(d.IncreaseTerms, d.Up+d.Down))
		of.coupling = append(of.coupling, cmp.Or(d.CouplingTerms, math.Abs(d.Coupling)))
	}
	return want, of
}

func magnitudes(list []float64) []float64 {
	sizes := make([]float64, len(list))
	for i, x := range list {
		sizes[i] = math.Abs(x)
	}
	return sizes
}

// compare returns the largest relative error, and an error if that is above the precision or a whole number
// differs.
func compare(got []loader.Numbers, want reference.Expect, of terms, precision float64) (worst float64, err error) {
	check := func(key string, want, sizes []float64) {
		for i, w := range want {
			off := math.Abs(got[i][key] - w)
			if sizes != nil && off != 0 {
				off /= sizes[i]
			}
			// Written so that a NaN fails.
			if !(off <= precision) && err == nil {
				err = fmt.Errorf("subflows[%d].%s is %.12g, want %.12g (off by %.2g)", i, key, got[i][key], w, off)
			}
			worst = max(worst, off)
		}
	}
	check("after_loss", want.AfterLoss, nil)
	check("window", want.Window, nil)
	check("ssthresh", want.Ssthresh, nil)
	check("coupling", want.Coupling, of.coupling)
	check("increase", want.Increase, of.increase)
	return worst, err
}

// Every algorithm has all its parts: a source, published and derived vectors, a reference.
func TestEveryAlgorithmIsWhole(t *testing.T) {
	whole(t, congestionControls(), map[string][]string{
		"test/reference":           reference.Names(),
		"bpf/cc":                   files(t, "../bpf/cc/*.bpf.c", ".bpf.c"),
		"testdata/vectors":         files(t, publishedVectors+"/*.json", ".json"),
		"testdata/vectors/derived": files(t, derivedVectors+"/*.json", ".json"),
	})
}

// whole fails the test if a part is there for other names than those in the catalog.
func whole(t *testing.T, catalogued []catalog.Entry, parts map[string][]string) {
	t.Helper()
	var rows []string
	for _, e := range catalogued {
		rows = append(rows, e.Name)
	}
	if len(rows) == 0 {
		t.Fatal("the catalog has none at all")
	}
	for part, names := range parts {
		if !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(rows))) {
			t.Errorf("%s has %v, the catalog %v", part, names, rows)
		}
	}
}

// files names those of a pattern, without their suffix.
func files(t *testing.T, pattern, suffix string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(p), suffix))
	}
	return names
}

func TestEveryTunableIsTested(t *testing.T) {
	// These say what becomes of a socket, and are in no decision on given numbers.
	ofSockets := []string{
		"compete",    // what it has seen of its queue: test/fuzz/wvegas_rounds.c
		"couple",     // which siblings it is in a group with: test/fuzz/eval.c has the groups, test/e2e the verdicts
		"growth",     // what the rule divides, in time: test/fuzz/whole.c
		"plain",      // who controls it: test/fuzz/live.c
		"response",   // what it has seen of its path's queue: test/fuzz/queue.c
		"slow_start", // test/fuzz/slow_start.c
	}
	for _, e := range congestionControls() {
		changed(t, e, algorithm(t, e.Name).Sets, ofSockets...)
	}
}

// changed fails where no set has another value for a tunable than the algorithm's source, but for those exempt.
func changed(t *testing.T, e catalog.Entry, sets []reference.Tunables, exempt ...string) {
	t.Helper()
	tunables, err := loader.Tunables(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, tunable := range tunables {
		if slices.Contains(exempt, tunable.Name) {
			continue
		}
		if !slices.ContainsFunc(sets, func(set reference.Tunables) bool {
			value, ok := set[tunable.Name]
			return ok && value != cmp.Or(tunable.Paper, tunable.Default)
		}) {
			t.Errorf("the reference of %s has no set that changes %s", e.ID(), tunable.Name)
		}
	}
}

// The bytecode against numbers typed from the literature's formulas.
func TestPublishedVectors(t *testing.T) {
	for _, e := range congestionControls() {
		a := algorithm(t, e.Name)
		evaluators := map[string]*loader.Evaluator{}
		for _, c := range vectors(t, publishedVectors, e.Name) {
			set := title("", c.Set)
			if evaluators[set] == nil {
				evaluators[set] = evaluator(t, e, c.Set)
			}
			t.Run(e.Name+"/"+c.Name, func(t *testing.T) {
				got := run(t, evaluators[set], c.Subflows)
				_, of := expected(a.Decide(c.Subflows, c.Set))
				if _, err := compare(got, c.Expect, of, max(a.Precision, printed)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// The reference against the same numbers.
func TestReferenceOnPublishedVectors(t *testing.T) {
	for _, name := range reference.Names() {
		a := algorithm(t, name)
		for _, c := range vectors(t, publishedVectors, name) {
			want, _ := expected(a.Decide(c.Subflows, c.Set))
			got := make([]loader.Numbers, len(c.Subflows))
			for i := range got {
				got[i] = loader.Numbers{
					"increase": want.Increase[i], "after_loss": want.AfterLoss[i], "coupling": want.Coupling[i],
					"window": want.Window[i], "ssthresh": want.Ssthresh[i],
				}
			}
			if _, err := compare(got, c.Expect, results(c.Expect), printed); err != nil {
				t.Errorf("%s/%s: %v", name, c.Name, err)
			}
		}
	}
}

// The bytecode against the reference at the corners of the valid range.
func TestDerivedVectors(t *testing.T) {
	for _, e := range congestionControls() {
		t.Run(e.Name, func(t *testing.T) {
			a := algorithm(t, e.Name)
			worst := 0.0
			evaluators := map[string]*loader.Evaluator{}
			for _, c := range vectors(t, derivedVectors, e.Name) {
				set := title("", c.Set)
				if evaluators[set] == nil {
					evaluators[set] = evaluator(t, e, c.Set)
				}
				_, of := expected(a.Decide(c.Subflows, c.Set))
				off, err := compare(run(t, evaluators[set], c.Subflows), c.Expect, of, a.Precision)
				if err != nil {
					t.Errorf("%s: %v", title(c.Name, c.Set), err)
				}
				worst = max(worst, off)
			}
			t.Logf("largest relative error %.2g", worst)
		})
	}
}

var seed = flag.Uint64("seed", 1, "seed of the random connections; 0 = a new one")

// The bytecode against the reference on random connections from the whole valid range.
func TestRandomConnections(t *testing.T) {
	const byDefault, bySet = 20_000, 2_000
	start := *seed
	if start == 0 {
		start = rand.Uint64()
	}
	for _, e := range congestionControls() {
		a := algorithm(t, e.Name)
		for i, set := range append([]reference.Tunables{nil}, a.Sets...) {
			connections := byDefault
			if i > 0 {
				connections = bySet
			}
			t.Run(title(e.Name, set), func(t *testing.T) {
				t.Logf("repeat with: go test ./loader -run TestRandomConnections -seed %d", start)
				onRandomConnections(t, e, set, rand.New(rand.NewPCG(start, uint64(i))), connections)
			})
		}
	}
}

func title(name string, set reference.Tunables) string {
	for _, key := range slices.Sorted(maps.Keys(set)) {
		name += " " + key + "=" + set[key]
	}
	return name
}

func onRandomConnections(t *testing.T, e catalog.Entry, set reference.Tunables, r *rand.Rand, connections int) {
	a := algorithm(t, e.Name)
	ev := evaluator(t, e, set)
	worst, edges := 0.0, 0
	for range connections {
		subflows := a.Random(r)
		decisions := a.Decide(subflows, set)
		want, of := expected(decisions)
		got := run(t, ev, subflows)
		off, err := compare(got, want, of, a.Precision)
		if err != nil && onEdge(a, subflows, set, got) {
			edges++
			continue
		}
		if err != nil {
			t.Fatalf("%v\n%+v", err, subflows)
		}
		worst = max(worst, off)
		for i, d := range decisions {
			for key, want := range map[string]bool{"coupled": d.Counts, "alone": d.Alone} {
				if (got[i][key] != 0) != want {
					t.Fatalf("subflows[%d].%s is %v, want %v\n%+v", i, key, got[i][key], want, subflows)
				}
			}
		}
	}
	t.Logf("%d connections, largest relative error %.2g, %d on an edge", connections, worst, edges)
	if most := 5 + connections/1000; edges > most {
		t.Errorf("%d of %d connections pass only as near an edge; %d may", edges, connections, most)
	}
}

// onEdge reports whether the decision would be right for a connection that differs by 1e-8 in one RTT or theta, or with a
// rounding that comes out to the other side. Where a rule compares two quantities that are equal within that, fixed
// point may take either side.
func onEdge(a reference.Algorithm, subflows []reference.Subflow, set reference.Tunables, got []loader.Numbers) bool {
	decisions := a.Decide(subflows, set)
	for i, d := range decisions {
		if d.NearUp != 0 && math.Abs(got[i]["increase"]-d.NearUp) < math.Abs(got[i]["increase"]-d.Up) {
			decisions[i].Up = d.NearUp
		}
	}
	want, of := expected(decisions)
	if _, err := compare(got, want, of, a.Precision); err == nil {
		return true
	}
	for i := range subflows {
		for _, nudge := range []float64{1 - 1e-8, 1 + 1e-8} {
			byRTT, byTheta := slices.Clone(subflows), slices.Clone(subflows)
			byRTT[i].SRTT *= nudge
			byTheta[i].Theta *= nudge
			for _, near := range [][]reference.Subflow{byRTT, byTheta} {
				want, of := expected(a.Decide(near, set))
				if _, err := compare(got, want, of, a.Precision); err == nil {
					return true
				}
			}
		}
	}
	return false
}

// The checks above fail for a rule that is not the expected one.
func TestWrongRuleIsSeen(t *testing.T) {
	for _, wrong := range []struct {
		folder, vectors, run string
		set                  reference.Tunables
	}{
		{publishedVectors, "olia", "olia", reference.Tunables{"metric": "square"}},
		{derivedVectors, "olia", "olia", reference.Tunables{"min_cwnd": "2"}},
		{derivedVectors, "dts", "dts", reference.Tunables{"cap": "on"}},
		{publishedVectors, "lia", "olia", nil},
		{publishedVectors, "olia", "lia", nil},
		{publishedVectors, "dts", "olia", nil},
		{publishedVectors, "lia", "dts", nil},
		{publishedVectors, "balia", "lia", nil},
		{derivedVectors, "balia", "balia", reference.Tunables{"min_cwnd": "2"}},
		{publishedVectors, "ewtcp", "ewtcp", reference.Tunables{"weight": "fair"}},
		{publishedVectors, "coupled", "coupled", reference.Tunables{"variant": "a"}},
		{publishedVectors, "dwc", "lia", nil},
		{publishedVectors, "ecmtcp", "ecmtcp", reference.Tunables{"ratio": "literal"}},
		{publishedVectors, "ecmtcp", "emreno", nil},
		{publishedVectors, "emreno", "lia", nil},
		{derivedVectors, "dtsx", "dts", nil},
		{derivedVectors, "dtsx", "dtsx", reference.Tunables{"q_target_us": "5001"}},
		{publishedVectors, "cdd", "lia", nil},
		{publishedVectors, "cdd", "cdd", reference.Tunables{"rule": "text"}},
		{derivedVectors, "cdd", "cdd", reference.Tunables{"noise_us": "10000"}},
		{derivedVectors, "cdd", "cdd", reference.Tunables{"theta_0_percent": "151"}},
		{publishedVectors, "wvegas", "lia", nil},
		{publishedVectors, "wvegas", "wvegas", reference.Tunables{"drain": "alpha"}},
		{publishedVectors, "wvegas", "wvegas", reference.Tunables{"noise_us": "10000"}},
		{publishedVectors, "mpcubic", "mpcubic", reference.Tunables{"mode": "literal"}},
		{publishedVectors, "ecmtcp", "ecmtcp", reference.Tunables{"alone": "cubic"}},
		{derivedVectors, "ecmtcp", "ecmtcp", reference.Tunables{"no_loss": "alike"}},
		{derivedVectors, "dtsx", "dtsx", reference.Tunables{"p1_percent": "1"}},
		{derivedVectors, "dtsx", "dtsx", reference.Tunables{"p2_percent": "1"}},
		{publishedVectors, "mpcubic", "mpcubic", reference.Tunables{"beta_percent": "21"}},
	} {
		e, err := catalog.Find("cc/" + wrong.run)
		if err != nil {
			t.Fatal(err)
		}
		ev := evaluator(t, e, wrong.set)
		seen := 0
		for _, c := range vectors(t, wrong.folder, wrong.vectors) {
			if c.Set != nil {
				continue
			}
			_, err := compare(run(t, ev, c.Subflows), c.Expect, results(c.Expect), 1e-3)
			if err != nil {
				seen++
			}
		}
		if seen == 0 {
			t.Errorf("%s passes the vectors of %s", title(wrong.run, wrong.set), wrong.vectors)
		}
	}
}

func TestCompareSeesSmallDifferences(t *testing.T) {
	right := loader.Numbers{"increase": -0.001, "after_loss": 10, "coupling": -0.5, "window": 20, "ssthresh": 15}
	want := reference.Expect{
		Increase: []float64{-0.001}, AfterLoss: []float64{10}, Coupling: []float64{-0.5},
		Window: []float64{20}, Ssthresh: []float64{15},
	}
	off := func(key string, value float64) loader.Numbers {
		d := maps.Clone(right)
		d[key] = value
		return d
	}
	for _, c := range []struct {
		got  loader.Numbers
		pass bool
	}{
		{right, true},
		{off("increase", -0.0010000005), true},
		{off("increase", -0.001002), false},
		{off("increase", 0.001), false},
		{off("increase", math.NaN()), false},
		{off("after_loss", 11), false},
		{off("window", 21), false},
		{off("ssthresh", 14), false},
		{off("coupling", 0.5), false},
		{off("coupling", 0), false},
	} {
		_, err := compare([]loader.Numbers{c.got}, want, results(want), 1e-3)
		if (err == nil) != c.pass {
			t.Errorf("%v: %v", c.got, err)
		}
	}
}
