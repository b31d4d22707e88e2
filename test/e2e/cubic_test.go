// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/mpcc/mpcc/pkg/netlab"
)

// Two subflows against one CUBIC TCP at the bottleneck of the mpCUBIC paper,
// 25 Mbit/s and 100 ms, with a queue of one bandwidth-delay product:
// 25 Mbit/s·100 ms = 206 frames. The paper has 120 s and a ratio of 0.98; here
// are fewer loss epochs, of some 7 s each, hence a wider margin. Two subflows
// under plain CUBIC, which the paper has at 1.47, say what no coupling is.
func TestMPCubicFairness(t *testing.T) {
	const (
		settle  = 5 * time.Second
		measure = 40 * time.Second
	)
	load(t, "mpcubic")
	ratio := map[string]float64{}
	contests := map[string]*contest{}
	for _, cc := range []string{"mpcubic", "cubic"} {
		n := newSharedBottleneck(t, netlab.Shape{Rate: 25e6, Delay: 50 * time.Millisecond, Queue: 206})
		contests[cc] = n.contend(t, cc, "cubic")
	}
	time.Sleep(settle)
	for _, c := range contests {
		c.reset()
	}
	time.Sleep(measure)
	for cc, c := range contests {
		multi, single := c.rates()
		ratio[cc] = multi / single
		t.Logf("%s: %.1f against %.1f Mbit/s, ratio %.2f", cc, multi/1e6, single/1e6, ratio[cc])
	}
	if ratio["mpcubic"] < 0.6 || ratio["mpcubic"] > 1.4 || ratio["mpcubic"] > 0.9*ratio["cubic"] {
		t.Errorf("mpcubic takes %.2f times what one CUBIC flow gets, two CUBIC subflows %.2f",
			ratio["mpcubic"], ratio["cubic"])
	}
}
