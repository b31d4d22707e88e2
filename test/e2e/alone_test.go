// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// dialled connects over the first path and returns the congestion control that the kernel says it runs.
func dialled(t *testing.T, n twoPaths, o mptcp.Options) string {
	t.Helper()
	p := connect(t, n.client, n.server, n.paths[0].Addr(n.server), o, "")
	p.transfer(1e6).wait(t)
	runs, err := mptcp.CongestionControl(p.client)
	if err != nil {
		t.Fatal(err)
	}
	shown := readStatus(t).of(n.client)
	if own := runs == o.CC; own != (len(shown) == 1) {
		t.Errorf("it runs %s, mpcc shows %+v", runs, shown)
	}
	p.close()
	shows(t, n.client, "nothing", func(s []live) bool { return len(s) == 0 })
	return runs
}

// Plain TCP under a loaded algorithm is the kernel's CUBIC, and mpcc has nothing of it; MPTCP is the algorithm's,
// and so is plain TCP with plain=own.
func TestPlainTCPIsTheKernels(t *testing.T) {
	load(t, "lia")
	n := newTwoPaths(t, twin)
	announce(t, n.server, netip.Addr{})
	for _, c := range []struct {
		options mptcp.Options
		set     []string
		want    string
	}{
		{mptcp.Options{CC: "lia", TCP: true}, nil, "cubic"},
		{mptcp.Options{CC: "lia"}, nil, "lia"},
		{mptcp.Options{CC: "lia", TCP: true}, []string{"--set", "plain=own"}, "lia"},
		{mptcp.Options{CC: "lia", TCP: true}, []string{"--set", "paper"}, "lia"},
	} {
		if c.set != nil {
			mpcc(t, append([]string{"switch", "lia"}, c.set...)...)
		}
		if runs := dialled(t, n, c.options); runs != c.want {
			t.Errorf("with %v, plain TCP %v: it runs %s, want %s", c.set, c.options.TCP, runs, c.want)
		}
	}
}

// The second of two subflows leaves, with its address. What the first has then is a window that grows by the rules of
// one subflow from where it is. CUBIC grows fastest right after a loss, by 3 C K^2 = 13 packets a second on this path
// of 17 packets and a queue of 30: 6 in half a second; wVegas beside its sibling adds one a round trip, of 32 ms and
// more when its packets wait in the queue: 16. A curve that went on for one subflow, or its whole time booked
// at once, would take the window to the hundreds within milliseconds. Slow start does not count: wVegas may just have
// halved its window to drain the queue, and regains it up to ssthresh.
func TestOwnTimeWindowStaysWhenASiblingLeaves(t *testing.T) {
	const (
		settle = 10 * time.Second // to the first losses: until then CUBIC grows by a twentieth an RTT
		watch  = 3 * time.Second
		span   = 500 * time.Millisecond
		most   = 16 // packets in a span
	)
	type look struct {
		at        time.Time
		cwnd      uint32
		slowStart bool
	}
	// Two at a time, for the VM's one CPU: one that follows a curve, one that adds steps; one that sets its window
	// itself each RTT, and one whose steps may be negative.
	for _, ccs := range [][]string{{"mpcubic", "lia"}, {"wvegas", "olia"}} {
		t.Run(strings.Join(ccs, "+"), func(t *testing.T) {
			load(t, ccs...)
			shape := lab.Shape{Rate: 10e6, Delay: 10 * time.Millisecond, Queue: 30}
			nets, flows, looks := map[string]twoPaths{}, map[string]pair{}, map[string][]look{}
			for _, cc := range ccs {
				nets[cc] = newTwoPaths(t, [2]lab.Shape{shape, shape})
				flows[cc] = nets[cc].connect(t, cc, "")
				flows[cc].stream()
				flows[cc].join(t, 2)
			}
			time.Sleep(settle)
			left := make(chan error, len(ccs))
			go func() {
				for _, cc := range ccs {
					left <- nets[cc].client.MPTCP(lab.MPTCPLimits{Subflows: 1})
				}
			}()
			for end := time.Now().Add(watch); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				for _, cc := range ccs {
					info, err := mptcp.ReadInfo(flows[cc].client)
					if err != nil {
						t.Fatal(err)
					}
					for _, s := range info.Subflows {
						if nets[cc].path(t, s.Local.Addr()) == 0 {
							looks[cc] = append(looks[cc], look{time.Now(), s.TCP.Snd_cwnd, s.TCP.Snd_cwnd < s.TCP.Snd_ssthresh})
						}
					}
				}
			}
			for _, cc := range ccs {
				if err := <-left; err != nil {
					t.Fatal(err)
				}
				if n := inUse(t, flows[cc].client); n != 1 {
					t.Fatalf("%s: %d subflows, want 1", cc, n)
				}
				risen, from := uint32(0), 0
				for to, l := range looks[cc] {
					if l.slowStart {
						from = to + 1
						continue
					}
					for l.at.Sub(looks[cc][from].at) > span {
						from++
					}
					for _, earlier := range looks[cc][from:to] {
						risen = max(risen, l.cwnd-min(l.cwnd, earlier.cwnd))
					}
				}
				if slices.IndexFunc(looks[cc], func(l look) bool { return !l.slowStart }) < 0 {
					t.Errorf("%s: in slow start all the time", cc)
				}
				t.Logf("%s: %d looks, from %d to %d packets, %d more within %v at most", cc, len(looks[cc]),
					looks[cc][0].cwnd, looks[cc][len(looks[cc])-1].cwnd, risen, span)
				if risen > most {
					t.Errorf("%s: the window grew by %d packets within %v, want %d at most", cc, risen, span, most)
				}
			}
		})
	}
}

// tcpInfo reads what the kernel tells of a TCP connection.
func tcpInfo(t *testing.T, conn *net.TCPConn) (info *unix.TCPInfo) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ctlErr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err := errors.Join(ctlErr, err); err != nil {
		t.Fatal(err)
	}
	return info
}

// wVegas by its own rules on an idle path of 20 Mbit/s and 20 ms, which holds 33 packets, beside the kernel's cubic on
// another: nearly the same goodput, and the alpha of 10 packets in the queue where cubic fills 100. With the paper's
// bound for draining (drain=any) it had half of cubic's.
func TestOwnTimeWVegasAlone(t *testing.T) {
	const (
		settle  = 5 * time.Second
		measure = 15 * time.Second
		frame   = 1514 * 8 / 20e6 // seconds
	)
	load(t, "wvegas", "--set", "alone=own", "--set", "plain=own")
	ccs := []string{"cubic", "wvegas"}
	flows := map[string]pair{}
	for _, cc := range ccs {
		l := newLab(t)
		client, server := addHost(t, l, "client-"+cc), addHost(t, l, "server-"+cc)
		path := addLink(t, l, client, server, lab.Shape{Rate: 20e6, Delay: 10 * time.Millisecond, Queue: 100})
		route(t, l)
		flows[cc] = connect(t, client, server, path.Addr(server), mptcp.Options{CC: cc, TCP: true}, "")
		flows[cc].stream()
	}
	time.Sleep(settle)
	before := map[string]int64{}
	for _, cc := range ccs {
		before[cc] = flows[cc].received.Load()
	}
	queued, looks := map[string]float64{}, 0
	for start := time.Now(); time.Since(start) < measure; time.Sleep(50 * time.Millisecond) {
		looks++
		for _, cc := range ccs {
			info := tcpInfo(t, flows[cc].client)
			queued[cc] += float64(info.Rtt-info.Min_rtt) / 1e6 / frame
		}
	}
	moved := map[string]float64{}
	for _, cc := range ccs {
		moved[cc] = float64(flows[cc].received.Load() - before[cc])
		t.Logf("%s: %.1f Mbit/s, %.1f packets wait on average", cc, moved[cc]*8/measure.Seconds()/1e6, queued[cc]/float64(looks))
	}
	moves(t, "cubic", moved["cubic"]*8/measure.Seconds(), 15e6)
	if moved["wvegas"] < 0.95*moved["cubic"] {
		t.Errorf("wvegas moves %.3f of what cubic moves, want 0.95", moved["wvegas"]/moved["cubic"])
	}
	if mean := queued["wvegas"] / float64(looks); mean > 15 {
		t.Errorf("%.1f packets wait in wvegas' queue on average, want 15 at most", mean)
	}
}
