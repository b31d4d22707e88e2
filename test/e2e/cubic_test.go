// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// Two subflows against one CUBIC TCP over the round trip of the mpCUBIC paper,
// 100 ms, and an eighth of its rate, 3 Mbit/s, with a queue of one bandwidth-delay
// product: 3 Mbit/s·100 ms = 25 frames. Two subflows under plain CUBIC would take
// twice what one does (the paper: 1.47); under mpCUBIC it has 0.98.
//
// That is over 120 s with some 17 loss epochs. Smaller windows lose each 3 s or so,
// and the ratio differs by a sixth from one network and minute to the next: by
// a twelfth on average over four of them, and the bounds are more than three times that
// away.
func TestOwnTimeMPCubicFairness(t *testing.T) {
	const (
		settle  = 5 * time.Second
		measure = 60 * time.Second
	)
	load(t, "mpcubic", "--set", "paper")
	var contests []*contest
	for range 4 {
		n := newSharedBottleneck(t, lab.Shape{Rate: 3e6, Delay: 50 * time.Millisecond, Queue: 25})
		contests = append(contests, n.contend(t, "mpcubic", "cubic"))
	}
	time.Sleep(settle)
	for _, c := range contests {
		c.reset()
	}
	time.Sleep(measure)
	var multi, single float64
	for _, c := range contests {
		m, s := c.rates()
		moves(t, "a network", m+s, 2e6)
		t.Logf("%.1f against %.1f Mbit/s, ratio %.2f", m/1e6, s/1e6, m/s)
		multi, single = multi+m, single+s
	}
	if ratio := multi / single; ratio < 0.7 || ratio > 1.3 {
		t.Errorf("mpcubic takes %.2f times what one CUBIC flow gets", ratio)
	}
}
