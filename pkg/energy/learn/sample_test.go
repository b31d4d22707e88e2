// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// readings has one every 50 ms; moved says how many bytes were sent before each.
func readings(moved ...uint64) Traffic {
	t := Traffic{{At: noon, Received: 1e6}}
	for i, n := range moved {
		last := t[len(t)-1]
		t = append(t, Reading{noon.Add(time.Duration(i+1) * lookEvery), last.Sent + n, last.Received})
	}
	return t
}

// A short pause does not end the activity, a long one does and is no part of it; a stray packet is none.
func TestActivity(t *testing.T) {
	const d = 1500
	traffic := readings(0, 66, d, d, 0, 0, 0, d /* 150 ms */, 0, 0, 0, 0, chatter /* 200 ms */, 0, chatter-1, 0)
	want := []float64{0, 0, 0, 0.5, 1, 1, 1, 1, 0.5, 0, 0, 0, 0, 0.5, 0, 0, 0}
	if diff := cmp.Diff(want, traffic.active()); diff != "" {
		t.Error(diff)
	}
}

func TestSamplesOfReadings(t *testing.T) {
	// 12,500 bytes in 50 ms are 2 Mbit/s. The last interval is not complete.
	traffic := readings(0, 0, 12500, 12500, 12500, 12500, 12500, 12500, 0, 0, 0, 0, 0)
	// 4 W for 100 ms, then 10 W until the meter ends.
	power := Power{{noon, 7}, {noon.Add(100 * time.Millisecond), 7.4}, {noon.Add(500 * time.Millisecond), 11.4}}
	const d = 200 * time.Millisecond
	want := []Sample{
		{Duration: d, Watts: 7, Sent: 1, Active: 0.375, Idle: 0},
		{Duration: d, Watts: 10, Sent: 2, Active: 0.875, Idle: 0},
	}
	if diff := cmp.Diff(want, traffic.Samples(power, d), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Error(diff)
	}
	// Of the third one the meter has a half only. With a meter that goes on:
	power = append(power, Point{noon.Add(time.Second), 11.4})
	want = append(want, Sample{Duration: d, Watts: 5, Idle: 200 * time.Millisecond})
	if diff := cmp.Diff(want, traffic.Samples(power, d), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Error(diff)
	}
	if got := (Traffic{}).Samples(power, d); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}

// A late reading makes a longer sample, and none a shorter one.
func TestLateReading(t *testing.T) {
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	traffic := Traffic{{At: at(0)}, {At: at(90)}, {At: at(350)}, {At: at(400)}, {At: at(449)}, {At: at(450)}}
	var got []time.Duration
	for _, s := range traffic.Samples(Power{{at(0), 0}, {at(1000), 1}}, 100*time.Millisecond) {
		got = append(got, s.Duration)
	}
	if diff := cmp.Diff([]time.Duration{350 * time.Millisecond, 100 * time.Millisecond}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWithoutTails(t *testing.T) {
	const s = time.Second
	var samples []Sample
	for _, idle := range []time.Duration{0, s / 2, 3 * s / 2, 5 * s / 2, 7 * s / 2, 0} {
		samples = append(samples, Sample{Duration: s, Idle: idle})
	}
	left := func(tail time.Duration) (idle []time.Duration) {
		for _, s := range WithoutTails(samples, tail) {
			idle = append(idle, s.Idle)
		}
		return idle
	}
	if got := left(0); len(got) != len(samples) {
		t.Errorf("no tail leaves %v", got)
	}
	// The tail ends 2 s after the data: 2.5 s after them half a second of the sample's was at rest.
	if diff := cmp.Diff([]time.Duration{0, 7 * s / 2, 0}, left(2*s)); diff != "" {
		t.Error(diff)
	}
}

func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		begin := time.Now()
		var looks, meter uint64
		traffic, power, err := Record(ctx, Watched{
			Interval: 2 * lookEvery,
			Counters: func() (uint64, uint64, error) {
				if looks++; looks == 8 {
					end()
				}
				return 1000 * looks, 7, nil
			},
			Joules: func() (float64, error) { meter++; return float64(meter), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(traffic) != 8 || traffic[7] != (Reading{begin.Add(7 * lookEvery), 8000, 7}) {
			t.Errorf("traffic %v", traffic)
		}
		var want Power // with the first look and then with every second one
		for i := range 4 {
			want = append(want, Point{begin.Add(time.Duration(2*i) * lookEvery), float64(i + 1)})
		}
		if diff := cmp.Diff(want, power); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRecordStopsAtAnError(t *testing.T) {
	fault := errors.New("gone")
	still := func() (uint64, uint64, error) { return 0, 0, nil }
	for name, test := range map[string]struct {
		Watched
		want error
	}{
		"counters": {Watched{Counters: func() (uint64, uint64, error) { return 0, 0, fault }}, fault},
		"meter":    {Watched{Counters: still, Joules: func() (float64, error) { return 0, fault }}, fault},
	} {
		test.Interval = lookEvery
		if _, _, err := Record(t.Context(), test.Watched); !errors.Is(err, test.want) {
			t.Errorf("%s: error %v, want %v", name, err, test.want)
		}
	}
	sent := uint64(100)
	_, _, err := Record(t.Context(), Watched{Interval: lookEvery, Counters: func() (uint64, uint64, error) { sent--; return sent, 0, nil }})
	if !errors.Is(err, ErrCountersFell) {
		t.Errorf("error %v, want %v", err, ErrCountersFell)
	}
}
