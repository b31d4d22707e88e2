// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// DWC on paths that share nothing. It is made for paths that lose at random, each independently:
//
//	        ┌── 60 ms, 1 % lost ──┐
//	client ─┤                     ├─ server
//	        └── 80 ms, 1 % lost ──┘
//
// A window has sqrt(2/0.01) = 14 packets there, whatever the other path carries. Uncoupled subflows have one each;
// LIA has one flow's rate on the better path in all, 4/7 of that. DWC sees that the subflows lose apart after two
// or three losses, of which there are two a second, and has then what uncoupled ones have.
//
// Three networks for each control, side by side, make some 250 losses in 25 s. A rate goes by 1/sqrt(losses), so
// chance moves it by 3 % and the ratio of two by 5 %: three times that is left to it.
//
// Two more networks have queues:
//
//	        ┌── 4 Mbit/s, 10 ms, queue 7 ───┐
//	client ─┤                               ├─ server
//	        └── 4 Mbit/s, 50 ms, queue 17 ──┘
//
// Subflows that share a bottleneck are apart in a tenth of the looks. These are more often, though a queue that is
// long by chance at the other's loss shows as congestion: the bound is a fifth.
func TestOwnTimeDWCDisjoint(t *testing.T) {
	const (
		repeats = 3
		settle  = 5 * time.Second
		measure = 25 * time.Second
	)
	load(t, "lia", "dwc", "--set", "paper")
	var queued []twoPaths
	for range 2 {
		n := newTwoPaths(t, [2]lab.Shape{
			{Rate: 4e6, Delay: 5 * time.Millisecond, Queue: 7},
			{Rate: 4e6, Delay: 25 * time.Millisecond, Queue: 17},
		})
		n.connect(t, "dwc", "").stream()
		queued = append(queued, n)
	}
	streams, before := map[string][]pair{}, map[string]int64{}
	for range repeats {
		for _, cc := range []string{"reno", "lia", "dwc"} {
			p := newTwoPaths(t, [2]lab.Shape{
				{Delay: 30 * time.Millisecond, Loss: 1},
				{Delay: 40 * time.Millisecond, Loss: 1},
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
		time.Sleep(measure / 25)
		s := readStatus(t)
		for _, n := range queued {
			for _, f := range s.of(n.client) {
				looks++
				if f.Coupling == 1 {
					apart++
				}
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
		t.Errorf("lia has %.2f Mbit/s, dwc %.2f: these paths do not tell the two apart", rate["lia"]/1e6, rate["dwc"]/1e6)
	}
	if apart*5 < looks {
		t.Errorf("dwc has its subflows apart in %d of %d looks", apart, looks)
	}
}
