// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// What energy prices do, on two like paths that lose at random:
//
//	        ┌── 30 ms, 0.7 % lost ──┐
//	client ─┤                       ├─ server
//	        └── 30 ms, 0.7 % lost ──┘
//
// Without profiles each control is its unpriced form, and says so: the weight of
// emreno is 1, which makes it LIA, the price of dtsx with k2 = 0 is 0, which
// makes it DTS, and `mpcc status` names the interfaces.
//
// Then a bit costs 8 times as much on one path. LIA's windows follow the loss
// rates, so each path carries half of the bytes. Under emreno the dear path's
// increase is an eighth, and its window too, but no less than 2 of some 17
// packets; ecmtcp's price is the loss rate times the energy, with the same
// factor. Under dtsx the price acts on the dear path like 2·8·k1 = 1.6 % more
// loss, on the other one like 0.2 %, and DTS leaves the path that loses more.
// Each subflow estimates its own loss rate, and the estimates wander: the dear
// path may carry up to a third of the bytes. That costs (2 + 8)/3 a bit where
// LIA pays (1 + 8)/2: 0.74 of it; as LIA's half wanders too, up to 0.85 passes.
// Shares are measured once with each path as the dear one, over 16 s and
// some 50 losses on a path: they differ by 0.5 and more then, and have to by 0.3.
//
// The floor of dtsx is 2 packets here: a single one waits for the receiver's
// delayed ACK, which looks like a queue, and DTS would not find back.
func TestOwnTimePrices(t *testing.T) {
	const (
		settle  = 4 * time.Second
		shift   = 16 * time.Second // some 500 round trips
		measure = 16 * time.Second // some 50 losses on each path
		cheap   = 100              // mW/Mbps
		dear    = 800
	)
	controls := []string{"lia", "emreno", "ecmtcp", "dtsx"}
	priced := controls[1:]
	load(t, append(controls, "--set", "paper")...)
	mpcc(t, "switch", "dtsx", "--set", "paper", "--set", "k2_ppm=0", "--set", "min_cwnd=2")
	nets, streams := map[string]twoPaths{}, map[string]pair{}
	for _, cc := range controls {
		shape := lab.Shape{Delay: 15 * time.Millisecond, Loss: 0.7}
		nets[cc] = newTwoPaths(t, [2]lab.Shape{shape, shape})
	}
	for _, cc := range controls {
		streams[cc] = nets[cc].connect(t, cc, "")
		streams[cc].stream()
		streams[cc].join(t, 2)
	}
	price := func(dearPath int) {
		t.Helper()
		for _, n := range nets {
			for i, path := range n.paths {
				slope := cheap
				if i == dearPath {
					slope = dear
				}
				mpcc(t, "energy", "set", path.Interface(n.client), "--netns", n.client.Namespace(),
					"--uplink", strconv.Itoa(slope), "--downlink", "0", "--base", "0")
			}
		}
	}
	spent := func(cc string) (joules float64) {
		n := nets[cc]
		for _, path := range n.paths {
			joules += readStatus(t).total(n.client, path.Interface(n.client), cc).Joules
		}
		return joules
	}
	// watch measures what part of each stream goes over the second path. It adds
	// up what a MB costs.
	cost := map[string]float64{}
	watch := func(what string) map[string]float64 {
		t.Helper()
		before, share, joules := map[string][2]float64{}, map[string]float64{}, map[string]float64{}
		for cc, n := range nets {
			before[cc], joules[cc] = n.byPath(t, streams[cc]), spent(cc)
		}
		start := time.Now()
		time.Sleep(measure)
		for _, cc := range controls {
			after := nets[cc].byPath(t, streams[cc])
			first, second := after[0]-before[cc][0], after[1]-before[cc][1]
			share[cc] = second / (first + second)
			perMB := (spent(cc) - joules[cc]) / (first + second) * 1e6
			cost[cc] += perMB / 2
			t.Logf("%s: %s has %.2f Mbit/s, %.3f of it on the second path, for %.2f J a MB", what, cc,
				(first+second)*8/1e6/time.Since(start).Seconds(), share[cc], perMB)
		}
		return share
	}

	time.Sleep(settle)
	checkUnpriced(t, nets, priced)
	price(1)
	time.Sleep(settle)
	// A subflow of two packets that lost both waits for its timeout, twice as long each time.
	if !eventually(10*time.Second, func() bool { return len(readStatus(t).Unpriced) == 0 }) {
		t.Errorf("with a profile on each path status shows as unpriced %v", readStatus(t).Unpriced)
	}
	secondDear := watch("second path dear")
	price(0)
	time.Sleep(shift)
	firstDear := watch("first path dear")
	for _, cc := range priced {
		if firstDear[cc]-secondDear[cc] < 0.3 {
			t.Errorf("%s has %.3f of a stream on the second path while it is dear, %.3f when the first is", cc,
				secondDear[cc], firstDear[cc])
		}
	}
	for _, cc := range priced {
		if cost[cc] > 0.85*cost["lia"] {
			t.Errorf("%s spends %.2f J on a MB, lia %.2f", cc, cost[cc], cost["lia"])
		}
	}
}

// checkUnpriced checks what status shows of priced controls without a profile
// on any of their paths.
func checkUnpriced(t *testing.T, nets map[string]twoPaths, priced []string) {
	t.Helper()
	var want []unpriced
	for _, cc := range priced {
		n := nets[cc]
		for _, path := range n.paths {
			want = append(want, unpriced{cc, n.client.Namespace(), path.Interface(n.client)})
		}
	}
	s := readStatus(t)
	for _, u := range want {
		if len(s.Unpriced) != len(want) || !slices.Contains(s.Unpriced, u) {
			t.Fatalf("status shows as unpriced %v, want %v", s.Unpriced, want)
		}
	}
	text := string(mpcc(t, "status"))
	for _, u := range want {
		line := u.Algorithm + ": no energy profile for " + u.Interface + " in netns " + u.Netns
		if strings.Count(text, line) != 1 {
			t.Errorf("no line %q in:\n%s", line, text)
		}
	}
	for cc, alone := range map[string]float64{"emreno": 1, "dtsx": 0} {
		for _, f := range s.of(nets[cc].client) {
			if f.Coupling != alone {
				t.Errorf("%s without prices has a coupling of %v", cc, f.Coupling)
			}
		}
	}
}
