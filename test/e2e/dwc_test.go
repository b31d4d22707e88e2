// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// DWC on paths that share nothing and are unlike:
//
//	        ┌── 10 Mbit/s, 10 ms, queue 17 ──┐
//	client ─┤                                ├─ server
//	        └── 10 Mbit/s, 50 ms, queue 41 ──┘
//
// The queues hold two bandwidth-delay products and one. Who sees that the subflows lose apart treats each
// as Reno does, and has what two uncoupled Reno subflows have; DWC may lose a
// twentieth while it finds out. Each goodput is that of a connection's first
// 10 s, with its start; the controls run side by side.
//
// Subflows that share a bottleneck are apart in a tenth of the looks. Here the
// slower path has a loss in some five seconds, the first together with the other
// path's start, and needs two that say so: the bound is a third.
func TestDWCDisjoint(t *testing.T) {
	const (
		rounds   = 3
		transfer = 10 * time.Second
	)
	load(t, "lia", "dwc")
	controls := []string{"reno", "lia", "dwc"}
	nets := map[string]twoPaths{}
	for _, cc := range controls {
		nets[cc] = newTwoPaths(t, [2]lab.Shape{
			{Rate: 10e6, Delay: 5 * time.Millisecond, Queue: 17},
			{Rate: 10e6, Delay: 25 * time.Millisecond, Queue: 41},
		})
	}
	rate := map[string]float64{}
	apart, looks := 0, 0
	for range rounds {
		streams, begin := map[string]pair{}, map[string]time.Time{}
		for _, cc := range controls {
			streams[cc] = nets[cc].connect(t, cc, "")
			defer streams[cc].close()
			begin[cc] = time.Now()
			streams[cc].stream()
		}
		for _, cc := range controls {
			for time.Since(begin[cc]) < transfer {
				time.Sleep(transfer / 50)
				if time.Since(begin["dwc"]) < transfer/5 {
					continue
				}
				for _, f := range readStatus(t).of(nets["dwc"].client) {
					looks++
					if f.Coupling == 1 {
						apart++
					}
				}
			}
			r := float64(streams[cc].received.Load()) * 8 / time.Since(begin[cc]).Seconds()
			rate[cc] += r / rounds
			t.Logf("%s: %.2f Mbit/s", cc, r/1e6)
		}
		for _, p := range streams {
			p.close()
		}
	}
	t.Logf("on average %.2f Mbit/s under reno, %.2f under lia, %.2f under dwc, its subflows apart in %d of %d looks",
		rate["reno"]/1e6, rate["lia"]/1e6, rate["dwc"]/1e6, apart, looks)
	if rate["dwc"] < 0.95*rate["reno"] {
		t.Errorf("dwc has %.2f Mbit/s, reno %.2f", rate["dwc"]/1e6, rate["reno"]/1e6)
	}
	if apart*3 < looks {
		t.Errorf("dwc has its subflows apart in %d of %d looks", apart, looks)
	}
}
