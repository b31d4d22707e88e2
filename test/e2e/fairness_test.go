// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/mpcc/mpcc/pkg/netlab"
)

// A connection whose two subflows share a bottleneck of 20 Mbit/s and 20 ms with
// somebody's TCP. The queue holds one bandwidth-delay product: 20 Mbit/s·20 ms = 33 frames of
// 1514 bytes, so the bottleneck stays full while windows are halved.
//
// Three equal Reno flows take a third each: a connection of two uncoupled
// subflows gets 2/3. RFC 6356 allows the coupled connection what one TCP would
// get: 1/2. LIA that does not couple would therefore differ from reno by
// chance only; it must differ by half of the 1/6 between the two. Rounds of a
// few dozen loss epochs scatter by some 0.04, their average by half of that:
// 0.6 is further than that from either theory.
func TestSharedBottleneck(t *testing.T) {
	const (
		rate    = 20e6
		rounds  = 3
		settle  = 3 * time.Second // some 7 loss epochs of (33+33)/3/2 round trips of 40 ms
		measure = 8 * time.Second
	)
	load(t, "lia")
	n := newSharedBottleneck(t, netlab.Shape{Rate: rate, Delay: 10 * time.Millisecond, Queue: 33})

	// share is the part of the bottleneck that a connection under cc gets.
	share := func(cc string) float64 {
		c := n.contend(t, cc, "reno")
		defer c.close()
		time.Sleep(settle)
		c.reset()
		time.Sleep(measure)
		multi, single := c.rates()
		t.Logf("%s: %.3f of %.1f Mbit/s", cc, multi/(multi+single), (multi+single)/1e6)
		return multi / (multi + single)
	}
	var reno, lia float64
	for range rounds {
		reno += share("reno") / rounds
		lia += share("lia") / rounds
	}
	t.Logf("on average uncoupled %.3f, lia %.3f", reno, lia)
	if lia > 0.6 || reno-lia < 1./12 {
		t.Errorf("lia gets %.3f of a shared bottleneck, uncoupled subflows %.3f; theory has 1/2 and 2/3", lia, reno)
	}
}
