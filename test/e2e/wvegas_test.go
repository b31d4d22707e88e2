// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// The queues of two paths that carry nobody else's traffic:
//
//	        ┌── 2 Mbit/s, 100 ms, queue 100 ──┐
//	client ─┤                                 ├─ server
//	        └── 2 Mbit/s, 100 ms, queue 100 ──┘
//
// A path holds 17 packets, its queue 100. LIA halves the 117 when they are
// full: 41 or more wait on each path at any time, 82 on both. wVegas lets
// alpha_r packets wait on path r, sum alpha_r = 10, give or take one for each
// path by which a window may stand off. The bound is twice those 10, and a
// quarter of what LIA has. To drain a queue wVegas halves its window: that costs
// a few round trips each time, but less than 0.3 of the rate.
//
// A packet takes 6 ms, so that what a busy machine adds to an RTT is not taken
// for a queue.
func TestOwnTimeWVegasQueue(t *testing.T) {
	const (
		rate    = 2e6
		frame   = 1514 * 8 / rate // seconds
		settle  = 6 * time.Second
		measure = 8 * time.Second
	)
	load(t, "wvegas", "lia", "--set", "paper")
	type flow struct {
		pair
		queued []float64 // packets on both paths
		before int64
		rate   float64 // bit/s of content
	}
	flows := map[string]*flow{}
	for _, cc := range []string{"wvegas", "lia"} {
		shape := lab.Shape{Rate: rate, Delay: 50 * time.Millisecond, Queue: 100}
		f := &flow{pair: newTwoPaths(t, [2]lab.Shape{shape, shape}).connect(t, cc, "")}
		f.stream()
		f.join(t, 2)
		flows[cc] = f
	}
	time.Sleep(settle)
	for _, f := range flows {
		f.before = f.received.Load()
	}
	start := time.Now()
	for time.Since(start) < measure {
		for _, f := range flows {
			info, err := mptcp.ReadInfo(f.client)
			if err != nil {
				t.Fatal(err)
			}
			queued := 0.
			for _, s := range info.Subflows {
				queued += float64(s.TCP.Rtt-s.TCP.Min_rtt) / 1e6 / frame
			}
			f.queued = append(f.queued, queued)
		}
		time.Sleep(50 * time.Millisecond)
	}
	median := map[string]float64{}
	for cc, f := range flows {
		f.rate = float64(f.received.Load()-f.before) * 8 / time.Since(start).Seconds()
		slices.Sort(f.queued)
		median[cc] = f.queued[len(f.queued)/2]
		t.Logf("%s: %.1f packets wait, most of the time %.1f to %.1f; %.1f Mbit/s", cc, median[cc],
			f.queued[len(f.queued)/10], f.queued[len(f.queued)*9/10], f.rate/1e6)
		moves(t, cc, f.rate, rate)
	}
	if median["wvegas"] > 20 || median["wvegas"] > median["lia"]/4 {
		t.Errorf("%.1f packets wait under wvegas, %.1f under lia", median["wvegas"], median["lia"])
	}
	if flows["wvegas"].rate < 0.7*flows["lia"].rate {
		t.Errorf("wvegas has %.1f Mbit/s, lia %.1f", flows["wvegas"].rate/1e6, flows["lia"].rate/1e6)
	}
}
