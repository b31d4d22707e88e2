// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// outage is what a scheduler made of a path that carried nothing for a while.
type outage struct {
	spare float64       // bytes sent over the other path
	gap   time.Duration // the longest time in which nothing arrived in order
	took  time.Duration // of all, from the cut on
}

// forGood is a cut that does not end.
const forGood = time.Duration(0)

// cutFirst has a client stream, cuts its first path for a while, 500 ms after the second has joined, and looks on until
// so many bytes more have arrived.
func (n twoPaths) cutFirst(t *testing.T, p pair, shape lab.Shape, length time.Duration, bytes int64) (o outage) {
	t.Helper()
	p.stream() // the second subflow comes once content has been acknowledged
	p.join(t, 2)
	time.Sleep(500 * time.Millisecond)
	n.lose(t, 0, shape, 100, lab.AtoB)
	cut := time.Now()
	healed := make(chan error, 1)
	go func() {
		if length == forGood {
			healed <- nil
			return
		}
		time.Sleep(length)
		healed <- n.paths[0].Set(lab.AtoB, shape)
	}()
	begin := p.received.Load()
	had, since := begin, time.Now()
	for deadline := cut.Add(length + 40*time.Second); had < begin+bytes; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d bytes arrived by 40 s after the cut of %v", had-begin, bytes, length)
		}
		if now := p.received.Load(); now > had {
			had, since = now, time.Now()
		}
		o.gap = max(o.gap, time.Since(since))
	}
	o.took = time.Since(cut)
	info, err := mptcp.ReadInfo(p.client)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range info.Subflows {
		if n.path(t, s.Local.Addr()) == 1 {
			o.spare = float64(s.TCP.Bytes_sent)
		}
	}
	if err := <-healed; err != nil {
		t.Fatal(err)
	}
	return o
}

// String has the same words for every cut and scheduler, so that runs can be compared line by line.
func (o outage) String() string {
	return fmt.Sprintf("%.0f kB over the other path, longest gap %v, %v in all", o.spare/1e3, o.gap.Round(time.Millisecond),
		o.took.Round(time.Millisecond))
}

func TestOwnTimeCutPaths(t *testing.T) {
	ids := listed(t, "sched/")
	load(t, ids...)
	schedulers := append(names(ids), "default")
	t.Run("backups", func(t *testing.T) { backupsAreSpared(t, schedulers) })
	t.Run("failover", func(t *testing.T) { failOver(t, schedulers) })
}

// No scheduler sends more over a backup than the kernel's own does, while the path before it is cut for a moment or
// for long, and none stands still until TCP's third timeout, 1.75 s after the cut and more:
//
//	        ┌── 10 Mbit/s, 20 ms ──────────┐
//	client ─┤                              ├─ server
//	        └── 10 Mbit/s, 40 ms, backup ──┘
func backupsAreSpared(t *testing.T, schedulers []string) {
	lengths := []time.Duration{300 * time.Millisecond, 500 * time.Millisecond, time.Second, 10 * time.Second}
	cuts := slices.Repeat(lengths, 3)
	got := sideBySide(t, schedulers, func(t *testing.T, scheduler string) []outage {
		shapes := [2]lab.Shape{
			{Rate: 10e6, Delay: 10 * time.Millisecond, Queue: 30},
			{Rate: 10e6, Delay: 20 * time.Millisecond, Queue: 50},
		}
		n := newTwoPaths(t, shapes)
		announce(t, n.server, netip.Addr{})
		if err := n.client.MPTCP(lab.MPTCPLimits{Subflows: 1},
			lab.MPTCPEndpoint{Addr: n.paths[1].Addr(n.client), Subflow: true, Backup: true}); err != nil {
			t.Fatal(err)
		}
		n.schedule(t, scheduler)
		var outages []outage
		for _, length := range cuts {
			p := n.connect(t, "", "")
			o := n.cutFirst(t, p, shapes[0], length, 3e6)
			p.close()
			t.Logf("backup, %s, a cut of %v: %v", scheduler, length, o)
			outages = append(outages, o)
		}
		return outages
	})
	// How often the connection's timer goes off hangs on what TCP's timers were about when the path was cut, for the
	// kernel's own too: now and then all of the 3 MB goes over the backup, as TCP tries the path again later. So the cuts are
	// made three times and summed up: such a connection adds 0.13 to the ratio of two sums. Who stays on the backup for a
	// second longer after each cut has twice as much there. A gap may be two timeouts of the connection's and a round trip.
	// Each is what was left of the path's timer when it was set: half a second and a little more where that had doubled
	// once.
	total := func(outages []outage) (bytes float64) {
		for _, o := range outages {
			bytes += o.spare
		}
		return bytes
	}
	own := total(got["default"])
	for _, scheduler := range schedulers {
		over := total(got[scheduler])
		t.Logf("backup, %s: %.0f kB over the backup after all cuts, %.2f of the kernel's own", scheduler, over/1e3, over/own)
		if over > 1.3*own {
			t.Errorf("%s: %.0f kB over the backup, the kernel's own %.0f", scheduler, over/1e3, own/1e3)
		}
		for i, o := range got[scheduler] {
			if o.gap > 1400*time.Millisecond {
				t.Errorf("%s, a cut of %v: a gap of %v", scheduler, cuts[i], o.gap)
			}
		}
	}
}

// A path dies without a word. The kernel gives it up after five timeouts of the connection's, which are a quarter of a
// second here, but for a first one of half a second and more if TCP's timer had doubled when it was set; it then sends
// again what is outstanding: no gap is longer than 2 s. The other path takes 3.2 s for 4 MB, and 1.3 s for what goes
// twice, so that all is done 6 s after the cut. (The kernel's own scheduler, too.)
//
//	        ┌── 20 Mbit/s, 20 ms, dead after 0.5 s ──┐
//	client ─┤                                        ├─ server
//	        └── 10 Mbit/s, 60 ms ────────────────────┘
func failOver(t *testing.T, schedulers []string) {
	got := sideBySide(t, schedulers, func(t *testing.T, scheduler string) outage {
		shapes := [2]lab.Shape{
			{Rate: 20e6, Delay: 10 * time.Millisecond, Queue: 60},
			{Rate: 10e6, Delay: 30 * time.Millisecond, Queue: 60},
		}
		n := newTwoPaths(t, shapes)
		n.schedule(t, scheduler)
		o := n.cutFirst(t, n.connect(t, "", ""), shapes[0], forGood, 4e6)
		t.Logf("failover, %s: %v", scheduler, o)
		return o
	})
	for scheduler, o := range got {
		if o.gap > 2*time.Second || o.took > 6*time.Second {
			t.Errorf("%s: a gap of %v, done %v after the cut", scheduler, o.gap, o.took)
		}
	}
}
