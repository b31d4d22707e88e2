// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/experiment/result"
	"github.com/mpcc/mpcc/test/hosts"
)

// wire is a link of 20 Mbit/s between two hosts.
func wire(t *testing.T) *direction {
	t.Helper()
	l, all := hosts.New(t, "a", "b")
	a, b := all[0], all[1]
	shape := lab.Shape{Rate: 20e6}
	k, err := l.Link(a, b, lab.LinkOpts{AtoB: shape})
	if err != nil {
		t.Fatal(err)
	}
	return &direction{name: "wire", link: k, dir: lab.AtoB, from: a, to: b, shape: shape}
}

// A link that is what was asked for passes; the error of any other says what it gives.
func TestVerify(t *testing.T) {
	d := wire(t)
	q, err := verify(t.Context(), []*direction{d})
	if err != nil {
		t.Fatal(err)
	}
	if *q[0].Rate < 18e6 || *q[0].Rate > 21e6 || q[0].Delay != nil || q[0].Loss != nil {
		t.Errorf("measured %+v", q[0])
	}
	for want, asked := range map[string]lab.Shape{
		" of 30 Mbit/s:":               {Rate: 30e6},
		" of 2 Mbit/s:":                {Rate: 2e6},
		" ms instead of 50:":           {Rate: 20e6, Delay: 50 * time.Millisecond},
		" a loss of 0 % instead of 2:": {Rate: 20e6, Loss: 2},
	} {
		d.shape = asked
		_, err := verify(t.Context(), []*direction{d})
		if err == nil || !strings.HasPrefix(err.Error(), "link wire, a to b: it gives ") ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one line with %q", err, want)
		}
	}
}

// Directions that are what was asked for, or differ from it in one thing.
func TestCompare(t *testing.T) {
	d := &direction{shape: lab.Shape{Rate: 10e6, Delay: 100 * time.Millisecond, Loss: 1}}
	for _, test := range []struct {
		rate, delay, loss float64
		good              bool
	}{
		{10e6, 100, 0.01, true},
		{9.2e6, 104, 0.012, true},
		{8.9e6, 100, 0.01, false},
		{10.6e6, 100, 0.01, false},
		{10e6, 90, 0.01, false},
		{10e6, 110, 0.01, false},
		{10e6, 100, 0, false},
		{10e6, 100, 0.03, false},
	} {
		err := d.compare(result.Quality{Rate: &test.rate, Delay: &test.delay, Loss: &test.loss})
		if (err == nil) != test.good {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
