// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// The set-up of the CDD paper, a receive buffer of some 100 segments, on paths
// whose delays come apart as the slower one's long queue fills:
//
//	        ┌── 4 Mbit/s, 20 ms, queue 10 ───┐
//	client ─┤                                ├─ server
//	        └── 2 Mbit/s, 40 ms, queue 100 ──┘
//
// LIA fills whatever there is: packets of the slower path take up to
// 40 ms + 100·6 ms, and what the faster path brings meanwhile waits for them in
// the receive buffer, until that stops the faster path too. CDD cuts the slower
// path's window each 0.5 s while its delay is more than 1.5 times the other's
// and it has a queue: what waits is then what the faster path brings in the few
// tens of ms between the paths.
//
// Under CDD half as many bytes wait as under LIA. The median over 20 s differs by a fifth from one network to the
// next, the mean of four networks over 30 s by a twelfth. The bound, three quarters of LIA's, is three times that away
// from what either of them has.
func TestOwnTimeCDDOutOfOrder(t *testing.T) {
	const (
		repeats = 4
		settle  = 5 * time.Second
		measure = 30 * time.Second
		buffer  = 100 * 1448
	)
	load(t, "cc/cdd", "lia", "--set", "paper")
	type flow struct {
		pair
		cc      string
		waiting []float64 // bytes out of order, at the receiver
		before  int64
	}
	var flows []*flow
	for range repeats {
		for _, cc := range []string{"cdd", "lia"} {
			n := newTwoPaths(t, [2]lab.Shape{
				{Rate: 4e6, Delay: 10 * time.Millisecond, Queue: 10},
				{Rate: 2e6, Delay: 20 * time.Millisecond, Queue: 100},
			})
			// The kernel offers about half of a receive buffer as window.
			if err := n.server.Sysctl("net.ipv4.tcp_rmem", "4096 131072 "+strconv.Itoa(2*buffer)); err != nil {
				t.Fatal(err)
			}
			f := &flow{pair: n.connect(t, cc, ""), cc: cc}
			f.stream()
			f.join(t, 2)
			flows = append(flows, f)
		}
	}
	time.Sleep(settle)
	for _, f := range flows {
		f.before = f.received.Load()
	}
	start := time.Now()
	for ; time.Since(start) < measure; time.Sleep(150 * time.Millisecond) {
		for _, f := range flows {
			info, err := mptcp.ReadInfo(f.server)
			if err != nil {
				t.Fatal(err)
			}
			sent, err := mptcp.ReadInfo(f.client)
			if err != nil {
				t.Fatal(err)
			}
			// The connection counts what came in order, subflows all, and what
			// was sent on both twice.
			waiting := -float64(info.BytesReceived) - float64(sent.BytesRetrans)
			for _, s := range info.Subflows {
				waiting += float64(s.TCP.Bytes_received)
			}
			f.waiting = append(f.waiting, waiting)
		}
	}
	waiting, rate := map[string]float64{}, map[string]float64{} // on average
	for _, f := range flows {
		bits := float64(f.received.Load()-f.before) * 8 / time.Since(start).Seconds()
		slices.Sort(f.waiting)
		median := f.waiting[len(f.waiting)/2]
		t.Logf("%s: %.0f bytes wait, most of the time %.0f to %.0f; %.2f Mbit/s", f.cc, median,
			f.waiting[len(f.waiting)/10], f.waiting[len(f.waiting)*9/10], bits/1e6)
		moves(t, f.cc, bits, 3e6)
		waiting[f.cc] += median / repeats
		rate[f.cc] += bits / repeats
	}
	if waiting["cdd"] > 0.75*waiting["lia"] {
		t.Errorf("%.0f bytes wait out of order under cdd, %.0f under lia", waiting["cdd"], waiting["lia"])
	}
	if rate["cdd"] < 0.9*rate["lia"] {
		t.Errorf("cdd has %.2f Mbit/s, lia %.2f", rate["cdd"]/1e6, rate["lia"]/1e6)
	}
}
