// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"math"

	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// Two paths whose queues hold two bandwidth-delay products and more:
//
//	        ┌── 20 Mbit/s, 20 ms, queue 66 ──┐
//	client ─┤                                ├─ server
//	        └── 20 Mbit/s, 20 ms, queue 66 ──┘
var twin = [2]lab.Shape{
	{Rate: 20e6, Delay: 10 * time.Millisecond, Queue: 66},
	{Rate: 20e6, Delay: 10 * time.Millisecond, Queue: 66},
}

// shows waits until mpcc shows of the client what ok asks for.
func shows(t *testing.T, client *lab.Host, what string, ok func([]live) bool) []live {
	t.Helper()
	var shown []live
	if !eventually(15*time.Second, func() bool {
		shown = readStatus(t).of(client)
		return ok(shown)
	}) {
		t.Fatalf("mpcc does not show %s within 15 s, but %+v", what, shown)
	}
	return shown
}

// linked is LIA's alpha of some subflows (RFC 6356, equation 2).
func linked(subflows []live) float64 {
	var windows, rates, best float64
	for _, f := range subflows {
		w, rtt := float64(f.Cwnd), f.SRTT
		windows += w
		rates += w / rtt
		best = max(best, w/rtt/rtt)
	}
	return windows * best / (rates * rates)
}

// alone tells whether the only subflow that is no backup has alpha 1: the sums
// then hold nothing else.
func alone(subflows []live) bool {
	for _, f := range subflows {
		if !f.Backup {
			return math.Abs(f.Coupling-1) < 1e-6
		}
	}
	return false
}

// A subflow comes and goes while content flows. The paths share nothing, so that only couple=always couples the subflows.
func TestSubflowJoinsAndLeaves(t *testing.T) {
	load(t, "lia", "--set", "couple=always")
	n := newTwoPaths(t, twin)
	second := func(addrs ...netip.Addr) {
		var endpoints []lab.MPTCPEndpoint
		for _, addr := range addrs {
			endpoints = append(endpoints, lab.MPTCPEndpoint{Addr: addr, Subflow: true})
		}
		if err := n.client.MPTCP(lab.MPTCPLimits{Subflows: 1}, endpoints...); err != nil {
			t.Fatal(err)
		}
	}
	announce(t, n.server, netip.Addr{})
	p := n.connect(t, "lia", "")
	x := p.transfer(1 << 40)
	for range 2 {
		shows(t, n.client, "one subflow with alpha 1", func(s []live) bool {
			return len(s) == 1 && alone(s)
		})
		second(n.paths[1].Addr(n.client))
		// Both entries are as old as a round trip may be: the shares of two like
		// paths change little meanwhile, and with them alpha.
		shows(t, n.client, "two subflows with the alpha of their windows and RTTs", func(s []live) bool {
			return len(s) == 2 && s[0].CC == "lia" && s[1].CC == "lia" && s[0].Token == s[1].Token &&
				s[0].Coupling < 0.9 && math.Abs(s[0].Coupling/linked(s)-1) < 0.1
		})
		second() // leaves
	}
	shows(t, n.client, "one subflow with alpha 1", func(s []live) bool { return len(s) == 1 && alone(s) })
	if x.done() {
		t.Errorf("the transfer ended early: %v", (<-x.sent).err)
	}
	sum := readStatus(t).total(n.client, n.paths[1].Interface(n.client), "lia")
	if sum.Opened != 2 || sum.Closed != 2 || sum.BytesAcked == 0 {
		t.Errorf("the second path's total is %+v, want two subflows come and gone, with content", sum)
	}
}

// A subflow that is a backup is not in the coupling, carries no content, and
// is there when it is needed.
func TestBackupSubflow(t *testing.T) {
	load(t, "lia", "--set", "couple=always")
	n := newTwoPaths(t, twin)
	announce(t, n.server, netip.Addr{})
	if err := n.client.MPTCP(lab.MPTCPLimits{Subflows: 1},
		lab.MPTCPEndpoint{Addr: n.paths[1].Addr(n.client), Subflow: true, Backup: true}); err != nil {
		t.Fatal(err)
	}
	p := n.connect(t, "lia", "")
	p.stream()
	p.join(t, 2)
	time.Sleep(2 * time.Second)
	shown := shows(t, n.client, "a backup, and alpha 1 on the other", func(s []live) bool {
		return len(s) == 2 && s[0].Backup != s[1].Backup && alone(s)
	})
	for _, f := range shown {
		if backup := n.path(t, f.Local.Addr()) == 1; f.Backup != backup {
			t.Errorf("%v: backup is %v, want %v", f.Local, f.Backup, backup)
		} else if backup && (f.BytesAcked > 1 || f.Coupling != 0) { // the SYN is one
			t.Errorf("%d bytes over the backup, alpha %f", f.BytesAcked, f.Coupling)
		}
	}

	// The first path swallows everything. After four timeouts (net.mptcp's
	// stale_loss_cnt) the kernel gives it up: the backup takes over, with alpha 1.
	if err := n.paths[0].Set(lab.AtoB, lab.Shape{Loss: 100}); err != nil {
		t.Fatal(err)
	}
	had := p.received.Load()
	if !eventually(20*time.Second, func() bool { return p.received.Load() > had+2e6 }) {
		t.Fatalf("%d bytes in 20 s over the backup, want 2 MB", p.received.Load()-had)
	}
	shows(t, n.client, "alpha 1 on the backup", func(s []live) bool {
		for _, f := range s {
			if f.Backup {
				return math.Abs(f.Coupling-1) < 1e-6
			}
		}
		return false
	})
}

// A connection changes its congestion control while content flows.
func TestSwitchLiveConnection(t *testing.T) {
	const bytes = 30e6
	load(t, "lia", "dts")
	lost := readStatus(t).Lost.Totals
	n := newTwoPaths(t, twin)
	p := n.connect(t, "lia", "")
	x := p.transfer(bytes)
	p.join(t, 2)
	runs := func(cc string) func([]live) bool {
		return func(s []live) bool { return len(s) == 2 && s[0].CC == cc && s[1].CC == cc }
	}
	shows(t, n.client, "two subflows under lia", runs("lia"))
	time.Sleep(time.Second)
	raw, err := p.client.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ctlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "dts")
	})
	if err := errors.Join(ctlErr, err); err != nil {
		t.Fatal(err)
	}
	shows(t, n.client, "two subflows under dts", runs("dts"))
	for local, s := range sockets(t, n.client) {
		if s.CC != "dts" {
			t.Errorf("ss shows %q on the subflow of %v", s.CC, local)
		}
	}
	if x.done() {
		t.Error("the transfer was over before the change could be seen")
	}
	x.wait(t)
	var kernels uint64
	for _, s := range quiet(t, p.client).Subflows {
		kernels += s.TCP.Bytes_acked - 1 // less the SYN
	}
	p.close()
	shows(t, n.client, "nothing", func(s []live) bool { return len(s) == 0 })
	s := readStatus(t)
	var counted, fins, unopened uint64
	for _, cc := range []string{"lia", "dts"} {
		var acked uint64
		for _, path := range n.paths {
			sum := s.total(n.client, path.Interface(n.client), cc)
			if sum.Opened > 1 || sum.Closed != 1 {
				t.Errorf("%s, %s: %d subflows opened and %d closed, want 1", cc, path.Interface(n.client), sum.Opened, sum.Closed)
			}
			unopened += 1 - sum.Opened
			acked += sum.BytesAcked
		}
		if acked < bytes/100 {
			t.Errorf("%d bytes under %s", acked, cc)
		}
		counted += acked
	}
	// The kernel may have no memory at hand for totals, of which it then makes two at once.
	if lost = s.Lost.Totals - lost; unopened > lost {
		t.Errorf("%d subflows are not counted as opened, while status has lost totals %d times: %+v", unopened, lost, s.Totals)
	}
	// Each subflow's FIN counts if it was acknowledged; the ends closed at once.
	if fins = counted - kernels; fins > 2 {
		t.Errorf("the totals have %d bytes acknowledged, the kernel %d", counted, kernels)
	}
}

// One TCP connection by itself is Reno under all three. Four of them, each on a
// path of its own
//
//	sender ── router ── 20 Mbit/s, 40 ms, loses every 250th packet ── receiver
//
// so that loss and not the rate decides: the window saws between W/2 and W with
// 3/8·W² = 250, and 3/4·W = 19 packets in a round trip are 5.8 Mbit/s. Losses
// are the same number of packets apart for all, so chance has little part in
// their goodput: 10 %.
func TestOwnTimeSinglePathIsReno(t *testing.T) {
	load(t, "lia", "olia", "dts", "--set", "paper")
	l := newLab(t)
	names := []string{"reno", "lia", "olia", "dts"}
	var flows []pair
	for _, cc := range names {
		sender, receiver, router := addHost(t, l, "s-"+cc), addHost(t, l, "r-"+cc), addRouter(t, l, "x-"+cc)
		addLink(t, l, sender, router, lab.Shape{})
		path := addLink(t, l, router, receiver, lab.Shape{Rate: 20e6, Delay: 20 * time.Millisecond, Queue: 66})
		route(t, l)
		rules := router.Command(t.Context(), "nft", "-f", "-")
		rules.Stdin = strings.NewReader(`table ip loss { chain forward {
			type filter hook forward priority 0;
			iifname "eth0" numgen inc mod 250 == 125 drop;
		}; }`)
		if out, err := rules.CombinedOutput(); err != nil {
			t.Fatalf("nft: %v: %s", err, out)
		}
		flows = append(flows, connect(t, sender, receiver, path.Addr(receiver), mptcp.Options{CC: cc, TCP: true}, ""))
	}
	for _, p := range flows {
		p.stream()
	}
	time.Sleep(2 * time.Second)
	var from, moved [4]float64
	for i, p := range flows {
		from[i] = float64(p.received.Load())
	}
	time.Sleep(10 * time.Second)
	for i, p := range flows {
		moved[i] = float64(p.received.Load()) - from[i]
		t.Logf("%s: %.2f Mbit/s", names[i], moved[i]*8/10/1e6)
		moves(t, names[i], moved[i]*8/10, 3e6)
		if ratio := moved[i] / moved[0]; math.Abs(ratio-1) > 0.1 {
			t.Errorf("%s moves %.3f of what reno moves", names[i], ratio)
		}
	}
}
