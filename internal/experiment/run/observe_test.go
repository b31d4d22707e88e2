// SPDX-License-Identifier: Apache-2.0

package run

import (
	"math"
	"testing"
	"time"

	"github.com/mpcc/mpcc/pkg/energy"
)

// An interface that moves 1 MB in 2 s, pauses for 3 s, of which the tail lasts one, and moves 1 MB in 1 s. Nothing is
// spent before the first byte.
func TestMeter(t *testing.T) {
	slope, base, tail := 100.0, 1000.0, 500.0
	m := meter{profile: &energy.Profile{Downlink: &slope, Base: &base, Tail: []energy.Tail{{Power: &tail, Seconds: 1}}}}
	for _, step := range []struct {
		bytes uint64
		since time.Duration
	}{
		{0, 5 * time.Second}, {1e6, 2 * time.Second}, {0, 700 * time.Millisecond}, {0, 2300 * time.Millisecond}, {1e6, time.Second},
	} {
		m.add(step.bytes, step.since)
	}
	// 16 Mbit at 100 mW per Mbit/s, 3 s of 1 W, 1 s of 0.5 W.
	if got := m.joules(false); math.Abs(got-(1.6+3+.5)) > 1e-9 {
		t.Errorf("%g J", got)
	}
}

// A machine with less than 3 % to spare may have been what limited the run.
func TestBusy(t *testing.T) {
	for idle, want := range map[uint64]int{0: 1, 29: 1, 31: 0, 1000: 0} {
		if got := busy(cpuTime{idle: 5, all: 10}, cpuTime{idle: 5 + idle, all: 1010}); len(got) != want {
			t.Errorf("with %d of 1000 idle there are the faults %q", idle, got)
		}
	}
	if got := busy(cpuTime{}, cpuTime{}); got != nil {
		t.Errorf("of no time there are the faults %q", got)
	}
}
