// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The paper's interfaces (its table 2), at a rate in Mbit/s.
func wlan(rate float64) Path   { return Path{Rate: rate, Slope: 137, Base: 132.9} }
func threeG(rate float64) Path { return Path{Rate: rate, Slope: 122.1, Base: 817.9} }

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-5*math.Abs(want) }

func TestObjective(t *testing.T) {
	for _, v := range []struct {
		name         string
		wlan, threeG float64 // Mbit/s
		file         float64 // KB of 1024 bytes
		o1, o2       float64 // λ = 1
		k            int
		m1, m2       float64 // λ = 0.001
		mk           int
	}{
		{"ES1", 6.607, 5, 16, -13.9864, -16.2455, 1, 6.58641, 11.5791, 2},
		{"ES2", 6.607, 5, 800, -1023.06, -1381.02, 1, 5.57733, 10.2144, 2},
		{"ES3", 6.607, 5, 1024, -1311.37, -1770.95, 1, 5.28902, 9.82444, 2},
		{"ES4", 6.607, 5, 20000, -25735.1, -34804.0, 1, -19.1347, -23.2086, 1},
		{"ES5", 20, 4, 16, 1.17216, 1.1760, 2, 19.9812, 23.9772, 2},
		{"ES6", 2, 5, 600, -997.997, -1281.70, 1, 1.0, 5.7113, 2},
	} {
		paths := []Path{threeG(v.threeG), wlan(v.wlan)} // not in their order
		check := func(lambda, o1, o2 float64, k int) {
			t.Helper()
			o := Objective{Lambda: lambda, Size: v.file * 1024 * 8 / 1e6}
			c := o.Choose(paths)
			// The published values have six digits at most.
			round := func(got, want float64) bool { return math.Abs(got-want) <= 1e-5*math.Abs(want)+5e-5*lambda }
			if !slices.Equal(c.Order, []int{1, 0}) || !round(c.O[0], o1) || !round(c.O[1], o2) || c.K != k {
				t.Errorf("%s, λ = %g: %+v, want O %g, %g and k = %d", v.name, lambda, c, o1, o2, k)
			}
		}
		check(1, v.o1, v.o2, v.k)
		check(0.001, v.m1, v.m2, v.mk)
	}
}

func TestCost(t *testing.T) {
	for _, v := range []struct {
		path Path
		want float64
	}{
		{wlan(0.5), 402.8}, {wlan(1), 269.9}, {wlan(2), 203.45}, {wlan(6.607), 157.115}, {wlan(25), 142.316},
		{threeG(1), 940}, {threeG(5), 285.68},
	} {
		if got := v.path.Cost(); !near(got, v.want) {
			t.Errorf("%+v costs %g mJ/Mbit, want %g", v.path, got, v.want)
		}
	}
	// Below this rate the first is the dearer one.
	o := Objective{Lambda: 0.001, Size: 1}
	for _, v := range []struct {
		rate  float64
		order []int
	}{{0.8938, []int{1, 0}}, {0.8939, []int{0, 1}}} {
		if c := o.Choose([]Path{wlan(v.rate), threeG(5)}); !slices.Equal(c.Order, v.order) {
			t.Errorf("at %g Mbit/s the order is %v, want %v", v.rate, c.Order, v.order)
		}
	}
}

// Whatever the paths: the mean cost grows with k, so that no k above the best is cheaper; and what k says is the
// best of the prefixes.
func TestInvariants(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	between := func(low, high float64) float64 { return low * math.Pow(high/low, r.Float64()) }
	for range 2000 {
		n := 1 + r.IntN(8)
		var paths []Path
		for range n {
			paths = append(paths, Path{between(0.01, 1000), between(1, 4000), between(1, 4000)})
		}

		o := Objective{between(1e-5, 1), between(0.01, 1e5)}
		c := o.Choose(paths)
		mean := 0.
		for k := range n {
			if k > 0 && paths[c.Order[k]].Cost() < paths[c.Order[k-1]].Cost() {
				t.Fatalf("%v are not sorted by cost: %v", paths, c.Order)
			}
			rate, power := 0., 0.
			for _, i := range c.Order[:k+1] {
				rate += paths[i].Rate
				power += paths[i].Rate * paths[i].Cost()
			}
			if power/rate < mean*(1-1e-12) {
				t.Fatalf("%v: the mean cost falls at k = %d", paths, k+1)
			}
			mean = power / rate
			if want := rate - o.Lambda*o.Size*mean; math.Abs(c.O[k]-want) > 1e-9*(rate+o.Lambda*o.Size*mean) {
				t.Fatalf("%v: O is %g at k = %d, want %g", paths, c.O[k], k+1, want)
			}
			if c.O[k] > c.O[c.K-1] {
				t.Fatalf("%v: k = %d is better than %d: %v", paths, k+1, c.K, c.O)
			}
		}
	}
}

func TestWorthwhile(t *testing.T) {
	for _, v := range []struct {
		now, then float64
		want      bool
	}{
		{10, 10.49, false}, {10, 10.51, true}, {-10, -9.51, false}, {-10, -9.49, true},
		{1, -1, false}, {math.Inf(-1), -1e9, true},
	} {
		if got := worthwhile(v.now, v.then); got != v.want {
			t.Errorf("from O = %g to %g: %v, want %v", v.now, v.then, got, v.want)
		}
	}
}
