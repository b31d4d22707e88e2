// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// What a loss takes of the window, by the kernel's own numbers, on two paths
// that lose at random:
//
//	        ┌── 40 ms, 0.2 % lost ──┐
//	client ─┤                       ├─ server
//	        └── 40 ms, 0.2 % lost ──┘
//
// Random losses make the windows wander around sqrt(2/0.002)/2 = 16 packets
// each, and with them y = max x / x_r, from 1 on the path that is the faster
// just then to 2 and more on the other. Balia takes min(y, 1.5)/2 of the
// window: half on the faster path, half to three quarters on the slower. LIA
// takes half.
func TestOwnTimeBaliaDecrease(t *testing.T) {
	// 400 packets a second and path: some 15 losses on each in 20 s.
	const measure, slower, atMost = 20 * time.Second, 4, time.Minute
	load(t, "balia", "lia", "--set", "paper")
	var looks []*lossLook
	for _, cc := range []string{"balia", "lia"} {
		n := newTwoPaths(t, [2]lab.Shape{
			{Delay: 20 * time.Millisecond, Loss: 0.2},
			{Delay: 20 * time.Millisecond, Loss: 0.2},
		})
		p := n.connect(t, cc, "")
		p.stream()
		p.join(t, 2)
		looks = append(looks, &lossLook{pair: p})
	}
	enough := func(l *lossLook) bool { return l.slower >= slower }
	for start := time.Now(); time.Since(start) < measure || !(enough(looks[0]) && enough(looks[1])); {
		for _, l := range looks {
			l.look(t)
		}
		if time.Since(start) > atMost {
			t.Fatalf("after %v too few losses: %v, %v", atMost, looks[0].seen, looks[1].seen)
		}
		time.Sleep(2 * time.Millisecond)
	}

	balia, lia := looks[0].seen, looks[1].seen
	for _, l := range balia {
		if taken := l.before - l.after; taken < l.before/2-2 || taken > l.before*3/4+2 {
			t.Errorf("balia: %.0f packets left of %.0f, which is not between a quarter and half", l.after, l.before)
		}
	}
	taken := map[string]float64{
		"balia": checkLosses(t, "balia", balia, func(y float64) float64 { return min(y, 1.5) / 2 }),
		"lia":   checkLosses(t, "lia", lia, func(float64) float64 { return 0.5 }),
	}
	// Above y = 1.25 the rule takes 0.625 to 0.75, lia's half. Rounding down adds half a packet; a sigma is 0.02.
	if taken["balia"] < 0.62 || taken["lia"] > 0.62 {
		t.Errorf("of the slower path's window balia takes %.3f, lia %.3f", taken["balia"], taken["lia"])
	}
}

// checkLosses compares each loss with the part of the window that the rule
// takes, and returns what was taken where y is above 1.25, on average.
func checkLosses(t *testing.T, cc string, losses []lossEvent, rule func(y float64) float64) float64 {
	t.Helper()
	within, slower, taken := 0, 0, 0.
	for _, l := range losses {
		// The look is some ms older than the loss: a packet of window, an RTT
		// sample. Rounding down is a packet as well.
		if want := l.before * (1 - rule(l.y)); math.Abs(l.after-want) <= 2 {
			within++
		} else {
			t.Logf("%s: %.0f packets left of %.0f at y = %.2f, want %.1f", cc, l.after, l.before, l.y, want)
		}
		if l.y > muchSlower {
			slower++
			taken += 1 - l.after/l.before
		}
	}
	t.Logf("%s: %d of %d losses as the rule has it, %d of them on a much slower path; there %.3f of the window was taken",
		cc, within, len(losses), slower, taken/float64(slower))
	if within*10 < len(losses)*9 {
		t.Errorf("%s: %d of %d losses as the rule has it", cc, within, len(losses))
	}
	return taken / float64(slower)
}

// lossEvent is a loss in congestion avoidance, as the kernel shows it.
type lossEvent struct {
	before, after float64 // window just before the loss, slow start threshold after
	y             float64 // the largest rate of a path over this one's
}

// lossLook finds a connection's losses by looking often.
type lossLook struct {
	pair
	last map[netip.Addr]unix.TCPInfo
	seen []lossEvent

	slower int // of these on a much slower path
}

// muchSlower is the y above which Balia's rule is far from a half.
const muchSlower = 1.25

func (l *lossLook) look(t *testing.T) {
	t.Helper()
	const (
		open     = 0 // TCP_CA_Open
		disorder = 1
		recovery = 3
	)
	info, err := mptcp.ReadInfo(l.client)
	if err != nil {
		t.Fatal(err)
	}
	now, fastest := map[netip.Addr]unix.TCPInfo{}, 0.
	for _, s := range info.Subflows {
		now[s.Local.Addr()] = s.TCP
	}
	rate := func(i unix.TCPInfo) float64 { return float64(i.Snd_cwnd) / float64(i.Rtt) }
	for _, i := range l.last {
		fastest = max(fastest, rate(i))
	}
	for addr, before := range l.last {
		after := now[addr]
		calm := before.Ca_state == open || before.Ca_state == disorder
		if calm && after.Ca_state == recovery && before.Snd_cwnd >= before.Snd_ssthresh {
			y := fastest / rate(before)
			l.seen = append(l.seen, lossEvent{float64(before.Snd_cwnd), float64(after.Snd_ssthresh), y})
			if y > muchSlower {
				l.slower++
			}
		}
	}
	l.last = now
}
