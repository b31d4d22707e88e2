// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"net"
	"net/netip"
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

// The second of two subflows leaves seconds after a loss, with its address. What the first has then is a window that
// grows by the rules of one subflow from where it is: half a packet more for each RTT is what CUBIC adds there, and 5
// packets in 10 RTTs are far from the hundreds to which a curve that went on for one subflow would take it.
func TestOwnTimeWindowStaysWhenASiblingLeaves(t *testing.T) {
	const rounds = 10
	ccs := []string{"mpcubic", "lia"}
	load(t, ccs...)
	type flow struct {
		pair
		net twoPaths
	}
	var flows []flow
	for _, cc := range ccs {
		n := newTwoPaths(t, [2]lab.Shape{
			{Rate: 20e6, Delay: 10 * time.Millisecond, Queue: 60},
			{Rate: 20e6, Delay: 10 * time.Millisecond, Queue: 60},
		})
		p := n.connect(t, cc, "")
		p.stream()
		p.join(t, 2)
		flows = append(flows, flow{p, n})
	}
	window := func(f flow) (cwnd uint32, srtt time.Duration) {
		info, err := mptcp.ReadInfo(f.client)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range info.Subflows {
			if f.net.path(t, s.Local.Addr()) == 0 {
				return s.TCP.Snd_cwnd, time.Duration(s.TCP.Rtt) * time.Microsecond
			}
		}
		t.Fatal("the first subflow is gone")
		return 0, 0
	}
	time.Sleep(6 * time.Second)
	for i, f := range flows {
		before, srtt := window(f)
		if err := f.net.client.MPTCP(lab.MPTCPLimits{Subflows: 1}); err != nil {
			t.Fatal(err)
		}
		highest := before
		for end := time.Now().Add(rounds * srtt); time.Now().Before(end); time.Sleep(srtt / 4) {
			cwnd, _ := window(f)
			highest = max(highest, cwnd)
		}
		t.Logf("%s: from %d to %d packets in %d RTTs of %v", ccs[i], before, highest, rounds, srtt)
		if highest > before+10 {
			t.Errorf("%s: the window went from %d to %d packets in %d RTTs of %v", ccs[i], before, highest, rounds, srtt)
		}
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
	if moved["wvegas"] < 0.95*moved["cubic"] {
		t.Errorf("wvegas moves %.3f of what cubic moves, want 0.95", moved["wvegas"]/moved["cubic"])
	}
	if mean := queued["wvegas"] / float64(looks); mean > 15 {
		t.Errorf("%.1f packets wait in wvegas' queue on average, want 15 at most", mean)
	}
}
