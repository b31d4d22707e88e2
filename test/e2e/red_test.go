// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// RED's queue settles where its chance of a drop is what has to be dropped, or
// half of that, as drops are spaced evenly:
//
//	chance   0 ... 0.1 ......... 1
//	queue   20     40           80
//
// Of 1.1 times the rate 0.09 has to go, which is on the first rise; of twice the
// rate half has to, which is on the second.
func TestOwnTimeRED(t *testing.T) {
	const rate = 10e6
	red := lab.RED{Min: 20, Max: 40, Prob: 0.1, End: 80}
	w := newWire(t, lab.LinkOpts{AtoB: lab.Shape{Rate: rate, RED: &red}})
	for _, test := range []struct {
		load        float64
		least, most float64 // packets
	}{{1.1, 20, 40}, {2, 40, 80}} {
		before := stats(t, w)
		backlog := 0.0
		samples := 0
		flood(t, w, test.load*rate, 3*time.Second, func(at time.Duration) {
			if at > time.Second { // the bucket is empty, the queue has settled
				backlog += float64(stats(t, w).Backlog)
				samples++
			}
		})
		after := stats(t, w)
		dropped := float64(after.Dropped-before.Dropped) / float64(after.Dropped-before.Dropped+after.Sent-before.Sent)
		backlog /= float64(samples)
		t.Logf("at %.1f times the rate %.3f dropped, %.1f packets wait", test.load, dropped, backlog)
		if backlog < test.least || backlog > test.most {
			t.Errorf("at %.1f times the rate %.1f packets wait, want %.0f to %.0f", test.load, backlog, test.least, test.most)
		}
		if after.Marked != 0 {
			t.Errorf("%d packets marked without ECN", after.Marked)
		}
	}
}

func stats(t *testing.T, w wire) lab.QueueStats {
	t.Helper()
	q, err := w.link.Stats(lab.AtoB)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// flood sends full frames at so many bit/s, and looks every 10 ms.
func flood(t *testing.T, w wire, rate float64, d time.Duration, look func(at time.Duration)) {
	t.Helper()
	var out *net.UDPConn
	err := w.left.Do(func() (err error) {
		out, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.link.Addr(w.right), 9)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := out.SetWriteBuffer(8 << 20); err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, 1514-14-20-8)
	start, sent := time.Now(), 0.0
	for at := time.Duration(0); at < d; at = time.Since(start) {
		for ; sent < rate*at.Seconds(); sent += 1514 * 8 {
			_, _ = out.Write(payload) // an error tells of a drop, or that nobody listens there
		}
		look(at)
		time.Sleep(10 * time.Millisecond)
	}
}

// With ECN a TCP that knows it is marked instead of dropped.
func TestOwnTimeREDMarks(t *testing.T) {
	red := lab.RED{Min: 10, Max: 30, Prob: 0.1, End: 90, ECN: true}
	shape := lab.Shape{Rate: 10e6, RED: &red, Delay: 10 * time.Millisecond}
	w := newWire(t, lab.LinkOpts{AtoB: shape, BtoA: lab.Shape{Delay: 10 * time.Millisecond}})
	for _, h := range []*lab.Host{w.left, w.right} {
		if err := h.Sysctl("net.ipv4.tcp_ecn", "1"); err != nil {
			t.Fatal(err)
		}
	}
	p := connect(t, w.left, w.right, w.link.Addr(w.right), mptcp.Options{CC: "reno", TCP: true}, "")
	p.stream()
	time.Sleep(5 * time.Second)
	q := stats(t, w)
	t.Logf("%+v", q)
	// Slow start may run beyond the end of the curve once.
	if q.Marked == 0 || q.Dropped > q.Marked || q.Dropped > 100 {
		t.Errorf("%d packets marked, %d dropped, of %d", q.Marked, q.Dropped, q.Sent)
	}
}

// A managed queue drops packets long before its limit. Without a manager a tenth too much for four seconds leaves 330 packets
// waiting, and none dropped.
func TestOwnTimeAQM(t *testing.T) {
	const rate, limit = 10e6, 1000
	for aqm, managed := range map[string]bool{"": false, "codel": true, "fq_codel": true, "pie": true} {
		w := newWire(t, lab.LinkOpts{AtoB: lab.Shape{Rate: rate, Queue: limit, AQM: aqm}})
		flood(t, w, 1.1*rate, 4*time.Second, func(time.Duration) {})
		q := stats(t, w)
		t.Logf("%q: %+v", aqm, q)
		if managed != (q.Dropped > 0) || managed != (q.Backlog < 200) {
			t.Errorf("managed by %q, %d packets are dropped, and %d wait", aqm, q.Dropped, q.Backlog)
		}
	}
}
