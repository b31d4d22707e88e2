// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// What LIA, the weights of EWTCP and the groups of DWC take at a shared bottleneck
// of 4 Mbit/s, 60 ms and a queue of one bandwidth-delay product, 20 frames,
// from one reno flow, each in a network of its own at the same time.
//
// A flow that grows by a/w per ACK and halves at a loss has w = sqrt(2a/p): two
// of them take 2·sqrt(a) times one TCP. Uncoupled (a = 1) they have 2/3 of the
// bottleneck, ewtcp with a = 1/sqrt(2) has 1.68/2.68 = 0.63, with a = 1/4 half;
// so has lia, which RFC 6356 allows what one TCP would get. dwc groups the two, which
// have the same RTT: 1/2 as well; it may take a tenth more than lia, as it lets
// them go at times.
func TestOwnTimeSharesOfABottleneck(t *testing.T) {
	const (
		settle  = 3 * time.Second
		measure = 30 * time.Second
	)
	load(t, "lia", "ewtcp", "dwc", "--set", "paper")
	variants := []struct{ name, cc, weight string }{
		{"reno", "reno", ""}, {"lia", "lia", ""}, {"reno", "reno", ""}, {"lia", "lia", ""}, {"lia", "lia", ""}, {"lia", "lia", ""},
		{"dwc", "dwc", ""},
		{"sqrt", "ewtcp", "sqrt"}, {"sqrt", "ewtcp", "sqrt"}, {"sqrt", "ewtcp", "sqrt"}, {"sqrt", "ewtcp", "sqrt"},
		{"fair", "ewtcp", "fair"}, {"fair", "ewtcp", "fair"}, {"fair", "ewtcp", "fair"}, {"fair", "ewtcp", "fair"},
	}
	var nets []sharedBottleneck
	for range variants {
		nets = append(nets, newSharedBottleneck(t, lab.Shape{Rate: 4e6, Delay: 30 * time.Millisecond, Queue: 20}))
	}
	contests := make([]*contest, len(variants))
	weight := ""
	for i, v := range variants {
		if v.weight != weight {
			mpcc(t, "switch", v.cc, "--set", "paper", "--set", "weight="+v.weight)
			weight = v.weight
		}
		contests[i] = nets[i].contend(t, v.cc, "reno")
	}
	time.Sleep(settle)
	for _, c := range contests {
		c.reset()
	}
	grouped, looks := 0, 0
	for start := time.Now(); time.Since(start) < measure; time.Sleep(measure / 24) {
		for _, f := range readStatus(t).Subflows {
			if f.CC == "dwc" {
				looks++
				if f.Coupling == 2 {
					grouped++
				}
			}
		}
	}
	shares := map[string][]float64{}
	for i, c := range contests {
		multi, single := c.rates()
		moves(t, variants[i].name, multi+single, 3e6)
		shares[variants[i].name] = append(shares[variants[i].name], multi/(multi+single))
		t.Logf("%s: %.3f of %.1f Mbit/s", variants[i].name, multi/(multi+single), (multi+single)/1e6)
	}
	share := map[string]float64{}
	for name, all := range shares {
		share[name] = stat.Mean(all, nil)
	}
	t.Logf("on average uncoupled %.3f, lia %.3f, dwc %.3f, ewtcp sqrt %.3f and fair %.3f; dwc has its subflows in one group in %d of %d looks",
		share["reno"], share["lia"], share["dwc"], share["sqrt"], share["fair"], grouped, looks)
	// By chance a network's share in 30 s is off by 0.055 with lia, by 0.035 with the others (one sigma), and so the mean
	// of four by 0.028 and 0.018. The bounds are four sigma from what there is: differences of 0.17 and 0.12, by theory 1/6
	// and 0.13. LIA that does not couple would be reno.
	if share["lia"] > 0.6 || share["reno"]-share["lia"] < 0.03 {
		t.Errorf("lia takes %.3f, uncoupled subflows %.3f; theory has 1/2 and 2/3", share["lia"], share["reno"])
	}
	if share["sqrt"] < share["fair"]+0.02 {
		t.Errorf("ewtcp takes %.3f with weight=sqrt and %.3f with weight=fair; theory has 0.63 and 1/2", share["sqrt"], share["fair"])
	}
	// Above is the middle of 1/2 and 2/3.
	if share["fair"] < 0.39 || share["fair"] > 7./12 {
		t.Errorf("ewtcp takes %.3f with weight=fair; theory has 1/2", share["fair"])
	}
	if share["dwc"] > share["lia"]+0.12 {
		t.Errorf("dwc takes %.3f, lia %.3f", share["dwc"], share["lia"])
	}
	if grouped*4 < looks*3 {
		t.Errorf("dwc has its subflows in one group in %d of %d looks", grouped, looks)
	}
}
