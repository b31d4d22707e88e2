// SPDX-License-Identifier: Apache-2.0

package energy

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

// The published: 15 % more from 200 to 1000 Mbit/s. Two points lie on their line.
func TestHostIsFittedToItsPoints(t *testing.T) {
	h, err := FindHost("i7-3770")
	if err != nil {
		t.Fatal(err)
	}
	at := func(mbps float64) float64 { return h.Base + h.Slope*mbps }
	if low, high := at(200), at(1000); math.Abs(high/low-1.15) > 1e-9 || h.Residual > 1e-9 {
		t.Errorf("power goes from %g to %g, residual %g", low, high, h.Residual)
	}
	if _, err := FindHost("i8"); err == nil || !strings.Contains(err.Error(), "i7-3770") {
		t.Errorf("error %v", err)
	}
}

// 1, 2, 2 at 0, 100, 200: the line 7/6 + x/200, from which the middle one is 1/3 away.
func TestHostResidual(t *testing.T) {
	hosts, err := parseHosts([]byte("hosts: [{name: a, source: me, points: [{mbps: 0, power: 1}, {mbps: 100, power: 2}, {mbps: 200, power: 2}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	if h := hosts[0]; math.Abs(h.Base-7./6) > 1e-9 || math.Abs(h.Slope-1./200) > 1e-9 || math.Abs(h.Residual-1./3) > 1e-9 {
		t.Errorf("%+v", h)
	}
	for _, text := range []string{
		"hosts: [{name: a, source: me, points: [{mbps: 0, power: 1}]}]",
		"hosts: [{name: a, points: [{mbps: 0, power: 1}, {mbps: 1, power: 2}]}]",
		"hosts: [{name: a, source: me, points: [{mbps: 0, power: 3}, {mbps: 1, power: 2}]}]",
		"hosts: [{name: a, watts: 3}]",
	} {
		if _, err := parseHosts([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// The page has the profiles as they are fitted.
func TestHostsDoc(t *testing.T) {
	page, err := os.ReadFile("../../docs/energy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range BuiltinHosts() {
		var points []string
		for _, p := range h.Points {
			points = append(points, fmt.Sprintf("%g: %g", p.Rate, p.Power))
		}
		want := fmt.Sprintf("| %s | %s | %s | %.4g | %.4g | %.2g | %s |", h.Name, strings.Join(points, ", "), h.RelativeTo,
			h.Base, h.Slope, math.Round(1e9*h.Residual)/1e9, strings.Join(h.Missing, ", "))
		if !strings.Contains(string(page), want) {
			t.Errorf("docs/energy.md has no line %s", want)
		}
	}
}

// 803.9 mW for 8.09 s, then 601.3 mW for 0.82 s, then nothing.
func TestTailJoules(t *testing.T) {
	p, err := Find(Builtin(), "3g-2012")
	if err != nil {
		t.Fatal(err)
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	for _, c := range []struct{ from, to, want float64 }{
		{0, 1, .8039}, {0, 8.09, .8039 * 8.09}, {8, 8.5, .8039*.09 + .6013*.41}, {0, 100, .8039*8.09 + .6013*.82}, {20, 30, 0},
	} {
		if got := p.TailJoules(seconds(c.from), seconds(c.to)); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("from %g to %g s it is %g J, want %g", c.from, c.to, got, c.want)
		}
	}
}
