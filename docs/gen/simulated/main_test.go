// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"
)

// A short form of the comparison: the same seeds give the same figures, so that a figure of these which is neither
// within 5 % of the kernel's nor within the kernel's interval has been changed by somebody.
func TestNearTheKernel(t *testing.T) {
	if err := os.Chdir("../../.."); err != nil {
		t.Fatal(err)
	}
	for _, e := range []experiment{
		{"scenario-c", []string{"cc=lia", "n1=10"}},
		{"delay-difference", []string{"cc=lia", "scheduler=default", "delay=20,100"}},
		{"power", []string{"mbps=50", "subflows=1", "rtt=20,200"}},
	} {
		figures, err := e.simulate(4)
		if err != nil {
			t.Fatal(err)
		}
		all, err := pairs(figures)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) < 2 {
			t.Errorf("%s: only %d figures have one of the kernel beside them", e.name, len(all))
		}
		for _, p := range all {
			t.Logf("%s, %s, %s: %.4g ± %.2g, in the kernel %.4g ± %.2g",
				p.scenario, p.of, p.at, p.mean, (p.high-p.low)/2, p.kernel.Mean, (*p.kernel.High-*p.kernel.Low)/2)
			if !p.near() {
				t.Errorf("%s, %s, %s: %.4g, and in the kernel %.4g from %.4g to %.4g",
					p.scenario, p.of, p.at, p.mean, p.kernel.Mean, *p.kernel.Low, *p.kernel.High)
			}
		}
	}
}

// Kolmogorov's distance is the greatest of that between two distributions.
func TestKolmogorov(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want float64
	}{
		{[]float64{1, 2, 3}, []float64{3, 1, 2}, 0},
		{[]float64{1, 2}, []float64{3, 4}, 1},
		{[]float64{1, 2, 3, 4}, []float64{1, 2, 5, 6}, 0.5},
		{[]float64{2}, []float64{1, 2, 2, 3}, 0.25},
	} {
		if got := kolmogorov(c.a, c.b); got != c.want {
			t.Errorf("%v and %v: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
