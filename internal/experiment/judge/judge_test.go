// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/mpcc/mpcc/internal/experiment/result"
)

func near(t *testing.T, what string, got, want, by float64) {
	t.Helper()
	if math.Abs(got-want) > by {
		t.Errorf("%s is %g, want %g", what, got, want)
	}
}

// A t of ±2.776 with 4 degrees of freedom leaves 0.025 on one side.
func TestPValues(t *testing.T) {
	above := result.Claim{Relation: result.Above, Bound: 1}
	s := Sample{N: 5, Mean: 1 + 2.776445*.1, Error: .1}
	near(t, "above", Test(above, s).Reproduced, .025, 1e-6)
	near(t, "above, contradicted", Test(above, s).Contradicted, .975, 1e-6)
	below := result.Claim{Relation: result.Below, Bound: 1}
	near(t, "below", Test(below, s).Contradicted, .025, 1e-6)
	// Of two one-sided tests the larger p counts: here that against the upper edge, 0.03/0.01407 = 2.132 away, which
	// leaves 0.05 on one side.
	within := result.Claim{Relation: result.Within, Bound: 1, Margin: .05}
	near(t, "within", Test(within, Sample{N: 5, Mean: 1.02, Error: .03 / 2.131847}).Reproduced, .05, 1e-6)
	near(t, "no effect", Test(result.Claim{Relation: result.Above, Bound: 1.3, Negligible: .05},
		Sample{N: 5, Mean: 1.02, Error: .03 / 2.131847}).NoEffect, .05, 1e-6)
	if p := Test(above, Sample{N: 1, Mean: 9}); p != (P{1, 1, 1}) {
		t.Errorf("one repeat has %v", p)
	}
	if p := Test(above, Sample{N: 3, Mean: 1.1}); p.Reproduced != 0 || p.Contradicted != 1 {
		t.Errorf("repeats that do not differ have %v", p)
	}
}

func TestVerdicts(t *testing.T) {
	above := result.Claim{Relation: result.Above, Bound: 1, Negligible: .02}
	within := result.Claim{Relation: result.Within, Bound: 1, Margin: .1}
	for _, c := range []struct {
		claim  result.Claim
		sample Sample
		want   string
	}{
		{above, Sample{5, 1.1, .01}, Reproduced},
		{above, Sample{5, .9, .01}, Contradicted},
		{above, Sample{5, 1.05, .1}, Inconclusive},
		{above, Sample{1, 2, 0}, Inconclusive},
		{above, Sample{50, 1.003, .001}, NoEffect}, // certainly above, and certainly by less than anybody cares for
		{result.Claim{Relation: result.Above, Bound: .97}, Sample{50, 1.003, .001}, Reproduced},
		{within, Sample{5, 1.02, .02}, Reproduced},
		{within, Sample{5, 1.3, .02}, Contradicted},
		{within, Sample{5, .7, .02}, Contradicted},
		{within, Sample{5, 1.09, .02}, Inconclusive},
		{result.Claim{Relation: result.Above, Bound: 1, Untestable: "no delays are published"}, Sample{5, 2, .01}, NotTestable},
	} {
		if got := Decide([]result.Claim{c.claim}, []Sample{c.sample})[0].Verdict; got != c.want {
			t.Errorf("%+v of %+v is %s, want %s", c.sample, c.claim, got, c.want)
		}
	}
}

// What is certain alone may not be among many.
func TestManyClaimsAreCorrected(t *testing.T) {
	claim := result.Claim{Relation: result.Above, Bound: 1}
	edge := Sample{N: 5, Mean: 1 + 2.8*.1, Error: .1} // p = 0.0244
	if got := Decide([]result.Claim{claim}, []Sample{edge})[0].Verdict; got != Reproduced {
		t.Errorf("alone it is %s", got)
	}
	claims, samples := []result.Claim{claim, claim}, []Sample{edge, {5, 1, .1}}
	if got := Decide(claims, samples)[0].Verdict; got != Inconclusive {
		t.Errorf("beside another it is %s", got)
	}
	claims[1].Untestable = "it is not judged" // and so takes nothing from the other
	if got := Decide(claims, samples)[0].Verdict; got != Reproduced {
		t.Errorf("beside one that is not judged it is %s", got)
	}
}

// Holm, A simple sequentially rejective multiple test procedure, 1979: the smallest p times 4, the next times 3, ….
func TestHolm(t *testing.T) {
	got := Holm([]float64{.01, .04, .03, .005})
	if want := []float64{.03, .06, .06, .02}; !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Holm([]float64{.9, .8}); got[0] != 1 || got[1] != 1 {
		t.Errorf("p-values above 1: %v", got)
	}
}

func TestWhole(t *testing.T) {
	for _, c := range []struct {
		at             []string
		want, anywhere string
	}{
		{nil, Inconclusive, Inconclusive},
		{[]string{Reproduced, Reproduced}, Reproduced, Reproduced},
		{[]string{Reproduced, Contradicted}, Contradicted, Reproduced},
		{[]string{Reproduced, Inconclusive}, Inconclusive, Reproduced},
		{[]string{Inconclusive, Contradicted}, Contradicted, Inconclusive},
		{[]string{Contradicted, Contradicted}, Contradicted, Contradicted},
		{[]string{Contradicted, NoEffect}, Contradicted, Contradicted},
		{[]string{NoEffect, NoEffect}, NoEffect, NoEffect},
		{[]string{NoEffect, Reproduced}, Inconclusive, Reproduced},
	} {
		if got := Whole(result.Claim{}, c.at); got != c.want {
			t.Errorf("%v make %s, want %s", c.at, got, c.want)
		}
		if got := Whole(result.Claim{Anywhere: true}, c.at); got != c.anywhere {
			t.Errorf("of a claim that may hold anywhere %v make %s, want %s", c.at, got, c.anywhere)
		}
	}
}

// R's power.t.test(n = 20, delta = 0.5, sd = 1, type = "one.sample") gives 0.5644829; with power = 0.9, delta = 1 it
// gives n = 12.58546.
func TestPower(t *testing.T) {
	claim := func(effect float64) result.Claim {
		return result.Claim{Relation: result.Above, Bound: 1, Plan: &result.Plan{Effect: effect, Spread: 1, Power: .9}}
	}
	near(t, "power", Power(claim(.5), 20, 1), .5644829, 1e-6)
	if n := Repeats(claim(1), 1); n != 13 {
		t.Errorf("%d repeats, want 13", n)
	}
	if n := Repeats(claim(.01), 1); n != MostRepeats+1 {
		t.Errorf("%d repeats for next to nothing", n)
	}
	if few, many := Repeats(claim(1), 1), Repeats(claim(1), 10); many <= few {
		t.Errorf("%d repeats among ten tests, %d alone", many, few)
	}
}

// As many repeats as the plan says tell a claim that is true by as much, as often as the plan says; within a margin
// too, where the power is a bound. The seed is fixed, and four standard deviations of the count are allowed.
func TestPlanHoldsInSimulation(t *testing.T) {
	const trials = 4000
	for name, c := range map[string]result.Claim{
		"above":  {Relation: result.Above, Bound: 1, Plan: &result.Plan{Effect: .1, Spread: .12, Power: .9}},
		"within": {Relation: result.Within, Bound: 1, Margin: .1, Plan: &result.Plan{Spread: .12, Power: .9}},
	} {
		t.Run(name, func(t *testing.T) {
			n := Repeats(c, 1)
			random := rand.New(rand.NewPCG(1, 2))
			told := 0
			for range trials {
				values := make([]float64, n)
				for i := range values {
					values[i] = c.Bound + c.Plan.Effect + c.Plan.Spread*random.NormFloat64()
				}
				mean, deviation := stat.MeanStdDev(values, nil)
				if Decide([]result.Claim{c}, []Sample{{n, mean, stat.StdErr(deviation, float64(n))}})[0].Verdict == Reproduced {
					told++
				}
			}
			power := float64(told) / trials
			if low := .9 - 4*math.Sqrt(.9*.1/trials); power < low || power > .97 {
				t.Errorf("%d repeats tell %.3f", n, power)
			}
		})
	}
}
