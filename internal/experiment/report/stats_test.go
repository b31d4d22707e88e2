// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > within {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// The table of Student's t, two-sided 95 %, as textbooks print it.
func TestEstimate(t *testing.T) {
	for n, table := range map[int]float64{2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 10: 2.262, 11: 2.228, 30: 2.045} {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(i + 1)
		}
		// 1 to n: mean (n+1)/2, variance n(n+1)/12.
		e := estimate(values)
		half := table * math.Sqrt(float64(n+1)/12)
		near(t, "mean", e.Mean, float64(n+1)/2, 1e-12)
		near(t, "low", *e.Low, e.Mean-half, half*3e-4)
		near(t, "high", *e.High, e.Mean+half, half*3e-4)
		if e.N != n {
			t.Errorf("n is %d, not %d", e.N, n)
		}
	}
	for _, values := range [][]float64{nil, {7}} {
		if e := estimate(values); e.N != len(values) || e.Low != nil || e.High != nil {
			t.Errorf("%v: an interval of less than two values: %+v", values, e)
		}
	}
	if e := estimate([]float64{3, 3, 3}); *e.Low != 3 || *e.High != 3 {
		t.Errorf("three equal values: %v to %v", *e.Low, *e.High)
	}
}

func TestBoxed(t *testing.T) {
	for _, c := range []struct {
		values                    []float64
		low, q1, median, q3, high float64
		outliers                  []float64
	}{
		{[]float64{4, 1, 3, 2}, 1, 1.75, 2.5, 3.25, 4, nil},
		{[]float64{5}, 5, 5, 5, 5, 5, nil},
		{[]float64{1, 2}, 1, 1.25, 1.5, 1.75, 2, nil},
		// The fences are 3.25 - 6.75 and 7.75 + 6.75.
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 30}, 1, 3.25, 5.5, 7.75, 9, []float64{30}},
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 14.5}, 1, 3.25, 5.5, 7.75, 14.5, nil},
		{[]float64{-50, 10, 11, 12, 13, 14, 15, 99}, 10, 10.75, 12.5, 14.25, 15, []float64{-50, 99}},
	} {
		b := boxed(c.values)
		for what, pair := range map[string][2]float64{"low": {b.Low, c.low}, "q1": {b.Q1, c.q1}, "median": {b.Median, c.median},
			"q3": {b.Q3, c.q3}, "high": {b.High, c.high}} {
			near(t, what, pair[0], pair[1], 1e-12)
		}
		if !slices.Equal(b.Outliers, c.outliers) || b.N != len(c.values) {
			t.Errorf("%v: outliers %v of %d, want %v", c.values, b.Outliers, b.N, c.outliers)
		}
	}
}

func TestBoxedProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for range 1000 {
		values := make([]float64, 1+random.IntN(40))
		for i := range values {
			values[i] = math.Exp(3 * random.NormFloat64())
		}
		b := boxed(values)
		if !slices.IsSorted([]float64{b.Low, b.Q1, b.Median, b.Q3, b.High}) {
			t.Fatalf("%v: %+v is not in order", values, b)
		}
		inside := 0
		for _, v := range values {
			if v >= b.Low && v <= b.High {
				inside++
			}
		}
		if inside+len(b.Outliers) != len(values) {
			t.Fatalf("%v: %d inside, %d outliers", values, inside, len(b.Outliers))
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 10: "10", 1.296: "1.30", .0123456: "0.0123", 123.456: "123", 98765.4: "98765", -.5: "-0.500",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is written %s, not %s", v, got, want)
		}
	}
	low, high := .95, 1.05
	for want, e := range map[string]Estimate{"-": {}, "1.25": {N: 1, Mean: 1.25}, "1.00 ± 0.05": {N: 3, Mean: 1, Low: &low, High: &high}} {
		if e.String() != want {
			t.Errorf("%+v is written %s, not %s", e, e, want)
		}
	}
	for v, want := range map[float64]string{-.001: "0 %", .114: "+11 %", -.136: "-14 %"} {
		if got := percent(v); got != want {
			t.Errorf("%v is written %s, not %s", v, got, want)
		}
	}
}
