// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// DWC on paths that share nothing. What it is for are paths that lose at random, each by itself:
//
//	        ┌── 60 ms, 0.5 % lost ──┐
//	client ─┤                       ├─ server
//	        └── 80 ms, 0.5 % lost ──┘
//
// A window has sqrt(2/0.005) = 20 packets there, whatever the path carries beside. Uncoupled subflows have one
// each; LIA has one flow's rate on the better path in all, 4/7 of that. DWC sees that the subflows lose apart
// after two or three losses, each a second, and has then what uncoupled ones have.
//
// Three networks for each control, side by side, make some 250 losses in 40 s. A rate goes by 1/sqrt(losses), so
// chance moves it by 3 % and the ratio of two by 5 %: three times that is left to it.
//
// Subflows that share a bottleneck are apart in a tenth of the looks. On paths with a queue each
//
//	        ┌── 10 Mbit/s, 10 ms, queue 17 ──┐
//	client ─┤                                ├─ server
//	        └── 10 Mbit/s, 50 ms, queue 41 ──┘
//
// the slower one has a loss in some five seconds, the first together with the other path's start, and needs two
// that say so: the bound is a third.
func TestOwnTimeDWCDisjoint(t *testing.T) {
	const (
		repeats = 3
		settle  = 5 * time.Second
		measure = 40 * time.Second
	)
	load(t, "lia", "dwc")
	queues := newTwoPaths(t, [2]lab.Shape{
		{Rate: 10e6, Delay: 5 * time.Millisecond, Queue: 17},
		{Rate: 10e6, Delay: 25 * time.Millisecond, Queue: 41},
	})
	queues.connect(t, "dwc", "").stream()
	streams, before := map[string][]pair{}, map[string]int64{}
	for range repeats {
		for _, cc := range []string{"reno", "lia", "dwc"} {
			p := newTwoPaths(t, [2]lab.Shape{
				{Delay: 30 * time.Millisecond, Loss: 0.5},
				{Delay: 40 * time.Millisecond, Loss: 0.5},
			}).connect(t, cc, "")
			p.stream()
			p.join(t, 2)
			streams[cc] = append(streams[cc], p)
		}
	}
	received := func(cc string) (bytes int64) {
		for _, p := range streams[cc] {
			bytes += p.received.Load()
		}
		return bytes
	}
	time.Sleep(settle)
	for cc := range streams {
		before[cc] = received(cc)
	}
	apart, looks := 0, 0
	start := time.Now()
	for time.Since(start) < measure {
		time.Sleep(measure / 60)
		for _, f := range readStatus(t).of(queues.client) {
			looks++
			if f.Coupling == 1 {
				apart++
			}
		}
	}
	rate := map[string]float64{}
	for cc := range streams {
		rate[cc] = float64(received(cc)-before[cc]) * 8 / time.Since(start).Seconds() / repeats
	}
	t.Logf("%.2f Mbit/s under reno, %.2f under lia, %.2f under dwc; apart in %d of %d looks",
		rate["reno"]/1e6, rate["lia"]/1e6, rate["dwc"]/1e6, apart, looks)
	if rate["dwc"] < 0.85*rate["reno"] {
		t.Errorf("dwc has %.2f Mbit/s, reno %.2f", rate["dwc"]/1e6, rate["reno"]/1e6)
	}
	if rate["lia"] > 0.8*rate["dwc"] {
		t.Errorf("lia has %.2f Mbit/s, dwc %.2f: the paths tell them not apart", rate["lia"]/1e6, rate["dwc"]/1e6)
	}
	if apart*3 < looks {
		t.Errorf("dwc has its subflows apart in %d of %d looks", apart, looks)
	}
}
