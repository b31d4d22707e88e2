// SPDX-License-Identifier: Apache-2.0

package choose

import (
	"math"
	"strings"
	"testing"

	"github.com/mpcc/mpcc/bpf/catalog"
)

// Every cell has figures of the kernel's own and of all controls, and all figures are of a cell.
func TestCells(t *testing.T) {
	for _, r := range Rows {
		for _, c := range r.Cells {
			for _, e := range catalog.Entries {
				if e.Kind == catalog.CC && Find(c.Name, c.Metric, Contestant{e.Name, "default", "default"}) == nil {
					t.Errorf("nothing is known of %s in %s", e.Name, c.Name)
				}
			}
			f := Find(c.Name, c.Metric, Kernel)
			if f == nil || f.Ratio != 1 {
				t.Errorf("the kernel's own is %+v in %s", f, c.Name)
			}
		}
	}
	for _, f := range Figures() {
		if FindCell(f.Cell); f.Repeats < 10 || f.Mean < 0 || f.Low > f.Ratio || f.Ratio > f.High {
			t.Errorf("%s in %s: %d repeats, %v, %v of %v to %v", f.Contestant, f.Cell, f.Repeats, f.Mean, f.Ratio, f.Low, f.High)
		}
	}
}

// What is recommended keeps the promise of the page, and a trade says what it costs if it does not.
func TestRecommended(t *testing.T) {
	for i := range Rows {
		r := &Rows[i]
		a := r.Advice()
		keeps := func(c Contestant) bool {
			for _, cell := range r.Cells {
				for _, metric := range []string{Goodput, Completion} {
					if f := Find(cell.Name, metric, c); f != nil && f.Gain().Low < 0.98 {
						return false
					}
				}
			}
			return true
		}
		if !a.Nothing() && (!keeps(a.Load) || len(a.Gains) == 0 || a.Load.Kernels()) {
			t.Errorf("%s: %s is recommended", r.Name, a.Load)
		}
		for _, trade := range a.Trades {
			if !trade.Gain.Gain().Better() || trade.Cost != nil && trade.Cost.Gain().High >= 1 {
				t.Errorf("%s: %s gains %+v at %+v", r.Name, trade.Load, trade.Gain, trade.Cost)
			}
		}
	}
}

func TestGain(t *testing.T) {
	for _, c := range []struct {
		metric              string
		ratio, low, high    float64
		better, worse, safe bool
	}{
		{Goodput, 1.05, 1.03, 1.07, true, false, true},
		{Goodput, 1.05, 1.01, 1.09, false, false, true},
		{Goodput, 0.99, 0.97, 1.01, false, false, false},
		{Goodput, 0.95, 0.93, 0.97, false, true, false},
		{Others, 1.3, 1.2, 1.4, true, false, true},
		{Completion, 0.9, 0.85, 0.95, true, false, true},
		{RTT, 1.2, 1.1, 1.3, false, true, false},
		{Energy, 1, 1, 1, false, false, true},
	} {
		f := Figure{Metric: c.metric, Ratio: c.ratio, Low: c.low, High: c.high}
		g := f.Gain()
		if g.Better() != c.better || g.Worse() != c.worse || g.Safe() != c.safe || g.Low > g.High {
			t.Errorf("%+v gains %+v: better %v, worse %v, safe %v", c, g, g.Better(), g.Worse(), g.Safe())
		}
	}
	if math.Abs((&Figure{Metric: RTT, Ratio: 0.5, Low: 0.4, High: 0.6}).Gain().Ratio-2) > 1e-9 {
		t.Error("half the RTT is not twice as good")
	}
}

func TestParse(t *testing.T) {
	head := strings.Join(Columns, ",") + "\n"
	all, err := Parse([]byte(head + "train,lia,default,default,goodput,30,20,0.9,0.8,1,v1\n"))
	if err != nil || len(all) != 1 || all[0] != (Figure{"train", Goodput, Contestant{"lia", "default", "default"}, 30, 20, 0.9, 0.8, 1, "v1"}) {
		t.Errorf("%+v, %v", all, err)
	}
	for _, text := range []string{"", "cell\n", head + "train,lia,default,default,goodput,many,20,0.9,0.8,1,v1\n", head + "train,lia,default,default,goodput,30,x,0.9,0.8,1,v1\n"} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestContestant(t *testing.T) {
	if got := (Contestant{"lia", "ecf", "paper"}).String(); got != "lia + ecf --set paper" {
		t.Error(got)
	}
}
