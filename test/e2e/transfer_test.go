// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/lab"
)

// listed names what mpcc list shows of a kind, cc/ or sched/, with the kind before each name: all that the catalog has.
func listed(t *testing.T, kind string) (ids []string) {
	t.Helper()
	for line := range strings.Lines(string(mpcc(t, "list"))) {
		if name := strings.Fields(line)[0]; strings.HasPrefix(name, kind) {
			ids = append(ids, name)
		}
	}
	var want []string
	for _, e := range catalog.Entries {
		if strings.HasPrefix(e.ID(), kind) {
			want = append(want, e.ID())
		}
	}
	if diff := cmp.Diff(want, ids); diff != "" || len(ids) == 0 {
		t.Fatalf("mpcc list shows %q of %s (-catalog +list):\n%s", ids, kind, diff)
	}
	return ids
}

// 4 MB over two paths under every algorithm there is, each on a network of its own:
//
//	        ┌── 6 Mbit/s, 30 ms, queue 15 ──┐
//	client ─┤                               ├─ server
//	        └── 3 Mbit/s, 90 ms, queue 22 ──┘
//
// Each queue holds one bandwidth-delay product, so that a window still fills
// its path when it was halved. Full paths share the content 2:1. How full they
// get depends on the machine as well; a path must carry half its part at least.
// CDD alone is free to leave the slower path, whose delay is three times the
// other's: it cuts it whenever that has a queue of a few packets.
func TestTransfer(t *testing.T) {
	ids := listed(t, "cc/")
	load(t, ids...)
	sideBySide(t, names(ids), carries)
}

func carries(t *testing.T, cc string) struct{} {
	const (
		bytes = 4e6
		rate0 = 6e6
		rate1 = 3e6
		part1 = float64(rate1) / (rate0 + rate1)
	)
	n := newTwoPaths(t, [2]lab.Shape{
		{Rate: rate0, Delay: 15 * time.Millisecond, Queue: 15},
		{Rate: rate1, Delay: 45 * time.Millisecond, Queue: 22},
	})
	p := n.connect(t, cc, "")
	x := p.transfer(bytes)
	p.join(t, 2)
	looks := 0
	for ; !x.done(); looks++ { // seldom: under emulation ss takes longer than the content
		subflows := sockets(t, n.client)
		for local, s := range subflows {
			if s.CC != cc {
				t.Errorf("ss shows %q on the subflow of %v", s.CC, local)
			}
		}
		if len(subflows) != 2 {
			t.Errorf("ss shows %d subflows", len(subflows))
		}
		time.Sleep(3 * time.Second)
	}
	if looks == 0 {
		t.Error("the transfer was over before ss could look at it")
	}
	sent := x.wait(t)
	carried := n.byPath(t, p)
	share := carried[1] / (carried[0] + carried[1])
	t.Logf("%.1f Mbit/s, %.0f %% of it over the slower path", sent.Rate()/1e6, 100*share)
	if share < part1/2 && cc != "cdd" || 1-share < (1-part1)/2 {
		t.Errorf("%.0f %% over the slower path, where full paths make it %.0f %%", 100*share, 100*part1)
	}
	return struct{}{}
}
