// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mpcc/mpcc/pkg/energy"
)

// truth is an interface and what else its meter sees, in W and W per Mbit/s.
type truth struct{ rest, base, up, down float64 }

func (w truth) watts(active, sent, received float64) float64 {
	return w.rest + w.base*active + w.up*sent + w.down*received
}

var phone = truth{rest: 2.5, base: 1.288, up: 0.43839, down: 0.05197}

// steps is a minute of samples at each of these rates, in Mbit/s: up, then down with acknowledgements, with rest
// between them.
func steps(w truth, noise func() float64) []Sample {
	var samples []Sample
	add := func(active, sent, received float64) {
		for range 20 {
			samples = append(samples, Sample{
				Duration: time.Second, Sent: sent, Received: received, Active: active,
				Watts: w.watts(active, sent, received) + noise(),
			})
		}
	}
	for _, rate := range []float64{1, 4, 8} {
		add(1, rate, 0.02*rate)
		add(0, 0, 0)
	}
	for _, rate := range []float64{2, 10, 30} {
		add(1, 0.02*rate, rate)
		add(0, 0, 0)
	}
	return samples
}

func silence() float64 { return 0 }

func white(seed uint64, deviation float64) func() float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	return func() float64 { return deviation * r.NormFloat64() }
}

// slow is noise of which each value keeps so much of the one before, as of other load that comes and goes.
func slow(seed uint64, deviation, keeps float64) func() float64 {
	next, last := white(seed, deviation*math.Sqrt(1-keeps*keeps)), 0.
	return func() float64 { last = keeps*last + next(); return last }
}

func TestFitWithoutNoise(t *testing.T) {
	r, err := Fit(steps(phone, silence))
	if err != nil {
		t.Fatal(err)
	}
	want := energy.Profile{Name: "phone", Uplink: new(438.39), Downlink: new(51.97), Base: new(1288.), Source: "a formula"}
	if diff := cmp.Diff(want, r.Profile("phone", "a formula"), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Error(diff)
	}
	if math.Abs(r.Rest.Value-2500) > 1e-6 || r.R2 < 1-1e-12 || r.Residual > 1e-9 || r.Samples != 240 || r.Fresh != 12 || r.Seconds != 240 {
		t.Errorf("%+v", r)
	}
}

// The stated error is the real one: the 95 % interval has the truth in it in 95 % of many measurements.
func TestErrorsAreTrue(t *testing.T) {
	const seeds = 400
	for _, test := range []struct {
		name  string
		truth truth
		noise func(seed uint64) func() float64
		most  float64 // how often the interval may hold
	}{
		{"white", phone, func(seed uint64) func() float64 { return white(seed, 0.2) }, 0.99},
		{"slow", phone, func(seed uint64) func() float64 { return slow(seed, 0.2, 0.6) }, 0.99},
		// A figure of 0 is never below, so that its interval holds more often.
		{"without base", truth{rest: 20, up: 0.01, down: 0.01}, func(seed uint64) func() float64 { return white(seed, 0.2) }, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			held := map[string]int{}
			for seed := range uint64(seeds) {
				r, err := Fit(steps(test.truth, test.noise(seed)))
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				for name, f := range map[string]struct {
					Figure
					truth float64
				}{
					"uplink": {*r.Uplink, test.truth.up}, "downlink": {*r.Downlink, test.truth.down},
					"base": {r.Base, test.truth.base}, "rest": {r.Rest, test.truth.rest},
				} {
					if name != "rest" && f.Value < 0 {
						t.Errorf("seed %d: %s is %g", seed, name, f.Value)
					}
					if f.Low <= 1e3*f.truth && 1e3*f.truth <= f.High {
						held[name]++
					}
				}
			}
			for name, n := range held {
				t.Logf("%s: %d of %d", name, n, seeds)
				if share := float64(n) / seeds; share < 0.90 || share > test.most {
					t.Errorf("the interval of %s has the truth in it %d times in %d", name, n, seeds)
				}
			}
			if len(held) != 4 {
				t.Errorf("held: %v", held)
			}
		})
	}
}

// With the bound at 0 the squares are least among all profiles that keep it: no step from there makes them less.
func TestNoFigureBelowZero(t *testing.T) {
	samples := steps(truth{rest: 5, base: 0.5, up: 0, down: 0.02}, white(7, 0.3))
	squares := func(r *Result, base, up, down, rest float64) (sum float64) {
		w := truth{r.Rest.Value/1e3 + rest, r.Base.Value/1e3 + base, r.Uplink.Value/1e3 + up, r.Downlink.Value/1e3 + down}
		if w.base < 0 || w.up < 0 || w.down < 0 {
			return math.Inf(1)
		}
		for _, s := range samples {
			d := s.Watts - w.watts(s.Active, s.Sent, s.Received)
			sum += d * d
		}
		return sum
	}
	bound := 0
	for seed := range uint64(20) {
		samples = steps(truth{rest: 5, base: 0.5, up: 0, down: 0.02}, white(seed, 0.3))
		r, err := Fit(samples)
		if err != nil {
			t.Fatal(err)
		}
		if r.Uplink.Value == 0 {
			bound++
			if r.Uplink.Low != 0 || r.Uplink.High <= 0 {
				t.Errorf("seed %d: %+v", seed, r.Uplink)
			}
		}
		best := squares(r, 0, 0, 0, 0)
		random := rand.New(rand.NewPCG(seed, 2))
		for range 300 {
			step := func(size float64) float64 { return size * random.NormFloat64() }
			if got := squares(r, step(0.01), step(0.001), step(0.001), step(0.01)); got < best*(1-1e-12) {
				t.Fatalf("seed %d: squares %g, another profile has %g", seed, best, got)
			}
		}
	}
	if bound == 0 || bound == 20 {
		t.Errorf("%d of 20 were at the bound: this tests one case only", bound)
	}
}

// A direction that had only acknowledgements gets no figure.
func TestOneDirection(t *testing.T) {
	samples := slices.DeleteFunc(steps(phone, white(1, 0.05)), func(s Sample) bool { return s.Received > s.Sent })
	r, err := Fit(samples)
	if err != nil {
		t.Fatal(err)
	}
	if r.Downlink != nil || r.Uplink == nil {
		t.Errorf("uplink %v, downlink %v", r.Uplink, r.Downlink)
	}
	p := r.Profile("up", "a formula")
	if err := p.Complete(); err == nil || !strings.Contains(err.Error(), "downlink_mw_per_mbps") {
		t.Errorf("error %v", err)
	}
}

// A gauge that has a new figure every 5 s, the mean since the one before, is seen to be slow. The figures are then off by
// more than chance, but by no more than its delay is of a step.
func TestSlowMeter(t *testing.T) {
	const every = 5
	samples := steps(phone, white(1, 0.02))
	var sum, shown float64
	for i := range samples {
		if sum += samples[i].Watts; (i+1)%every == 0 {
			shown, sum = sum/every, 0
		}
		samples[i].Watts = shown
	}
	r, err := Fit(samples[every:])
	if err != nil {
		t.Fatal(err)
	}
	if n := len(samples); r.Fresh < n/every/2 || r.Fresh > n/every {
		t.Errorf("%d fresh samples of %d", r.Fresh, n)
	}
	if r.Independent > float64(len(samples))/every {
		t.Errorf("%g independent samples of %d", r.Independent, len(samples))
	}
	if off := r.Uplink.Value/438.39 - 1; math.Abs(off) > every/20. {
		t.Errorf("uplink %+v", r.Uplink)
	}
}

func TestFitRefuses(t *testing.T) {
	all := func(f func(s *Sample)) []Sample {
		samples := steps(phone, white(1, 0.2))
		for i := range samples {
			f(&samples[i])
		}
		return samples
	}
	alternating := func(sent, received func(i int) float64) []Sample {
		var samples []Sample
		noise := white(3, 0.1)
		for i := range 60 {
			s := Sample{Duration: time.Second}
			if i%2 == 1 {
				s.Active, s.Sent, s.Received = 1, sent(i), received(i)
			}
			s.Watts = phone.watts(s.Active, s.Sent, s.Received) + noise()
			samples = append(samples, s)
		}
		return samples
	}
	constant := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	rising := func(i int) float64 { return float64(i) }
	for name, test := range map[string]struct {
		samples []Sample
		want    string
	}{
		"none":      {nil, "it takes 20 samples at least, not 0: measure longer"},
		"few":       {steps(phone, silence)[:19], "it takes 20 samples at least, not 19: "},
		"no data":   {all(func(s *Sample) { s.Active, s.Sent, s.Received = 0, 0, 0 }), "no data moved: "},
		"short":     {steps(phone, silence)[16:40], "data moved in 4 samples only, it takes 5"},
		"no rest":   {all(func(s *Sample) { s.Active = 1 }), "the interface was at rest in 0 samples only, it takes 5: "},
		"blind":     {all(func(s *Sample) { s.Watts = 7.25 }), "the meter showed 7.25 W all the time: "},
		"one rate":  {alternating(constant(12), constant(0)), "it sent 12 Mbit/s all the time that it was active: let the rate vary from idle to full, e.g. with iperf3 -b"},
		"one down":  {alternating(constant(0), constant(30)), "it received 30 Mbit/s all the time that it was active: "},
		"both ways": {alternating(rising, rising), "what it received followed what it sent all the time: let it send and receive at different times"},
		"two rates": {alternating(func(i int) float64 { return float64(i % 4 / 3 * 9) }, func(i int) float64 { return float64(i % 4 % 3 * 5) }),
			"rates and activity rose and fell together: "},
		"falling": {all(func(s *Sample) {
			s.Watts = 9 - 0.1*s.Sent + 0.1*s.Received + s.Active + (s.Watts - phone.watts(s.Active, s.Sent, s.Received))
		}),
			"the power fell by "},
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := Fit(test.samples); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v, error %v; want %q", r, err, test.want)
			}
		})
	}
}

func TestRoundedToItsError(t *testing.T) {
	for _, test := range []struct{ value, deviation, want float64 }{
		{283.1712, 1.234, 283.2}, {283.1712, 0.01234, 283.171}, {283.1712, 45, 283}, {283.1712, 4500, 283}, {0.1234567891, 0, 0.123457},
	} {
		if got := *rounded(&Figure{Value: test.value, Error: test.deviation}); got != test.want {
			t.Errorf("%g ± %g is %g, want %g", test.value, test.deviation, got, test.want)
		}
	}
}
