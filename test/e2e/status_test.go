// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// What mpcc shows of a connection, beside what the kernel's own tools show:
//
//	        ┌── 20 Mbit/s, 60 ms, queue 100 ──┐
//	client ─┤                                 ├─ server
//	        └── 10 Mbit/s, 80 ms, queue 66 ───┘
//
// With the paper's LIA a hundred packets and more grow by one in a round trip at most: seconds pass between two losses, also
// where a look takes one.
func TestStatus(t *testing.T) {
	load(t, "lia", "--set", "paper")
	n := newTwoPaths(t, [2]lab.Shape{
		{Rate: 20e6, Delay: 30 * time.Millisecond, Queue: 100},
		{Rate: 10e6, Delay: 40 * time.Millisecond, Queue: 66},
	})
	p := n.connect(t, "lia", "lia")
	p.join(t, 2)

	t.Run("identity", func(t *testing.T) { checkIdentity(t, n, p) })
	t.Run("moving", func(t *testing.T) { checkMoving(t, n, p) })
	t.Run("resting", func(t *testing.T) { checkResting(t, n, p) })
	t.Run("totals", func(t *testing.T) { checkTotals(t, n, p) })
}

// checkIdentity compares what names a subflow, at both ends, before any content
// was sent: the tokens differ between the ends, and each end's ids are its own.
func checkIdentity(t *testing.T, n twoPaths, p pair) {
	s := readStatus(t)
	for _, end := range []struct {
		host *lab.Host
		conn *net.TCPConn
	}{{n.client, p.client}, {n.server, p.server}} {
		info, err := mptcp.ReadInfo(end.conn)
		if err != nil {
			t.Fatal(err)
		}
		ids := map[netip.AddrPort]uint32{}
		for _, sub := range info.Subflows {
			ids[sub.Local] = sub.ID
		}
		kernels := sockets(t, end.host)
		shown := s.of(end.host)
		if len(shown) != 2 || len(kernels) != 2 || len(ids) != 2 {
			t.Fatalf("%s: mpcc shows %d subflows, ss %d, the kernel's MPTCP_FULL_INFO %d; want 2",
				end.host.Name(), len(shown), len(kernels), len(ids))
		}
		for _, f := range shown {
			k, id := kernels[f.Local], ids[f.Local]
			got := fmt.Sprintln(f.Token, f.SubflowID, f.LocalID, f.RemoteID, f.Local, f.Remote, f.CC, f.Backup)
			want := fmt.Sprintln(fmt.Sprintf("%08x", k.Token), id, k.LocalID, k.RemoteID, k.Local, k.Remote, "lia", false)
			if got != want {
				t.Errorf("%s: mpcc shows %swhere the kernel has %s", end.host.Name(), got, want)
			}
			link := n.paths[0]
			if f.Local.Addr() == n.paths[1].Addr(end.host) {
				link = n.paths[1]
			}
			if f.Interface != link.Interface(end.host) {
				t.Errorf("%s: the subflow of %v on %q, want %q", end.host.Name(), f.Local, f.Interface, link.Interface(end.host))
			}
			if f.Ssthresh != nil || k.SSThreshPkts != 0 {
				t.Errorf("%s: ssthresh %v, in ss %d, before any loss", end.host.Name(), *f.Ssthresh, k.SSThreshPkts)
			}
		}
	}
}

// refreshMin is the shortest time between two refreshes of a subflow.
const refreshMin = 100 * time.Millisecond

// checkMoving compares the numbers that move, while content flows. What mpcc shows was true at the subflow's last refresh, a
// round trip or 100 ms before its last ACK; ss is asked before and after. While nothing is lost, and past slow start, that
// bounds it from both sides: the window only grows, by a packet in a round trip at most, as the paper's LIA adds at most 1/w
// per segment; acknowledged bytes only grow, by a window in a round trip. Two round trips fit between two refreshes. (The
// smoothed RTT can follow a burst up and down again within one: checkResting compares it.) Looks between which something was
// lost, or nothing moved, do not count, nor do the first round trips after a recovery, as the last refresh may have been in
// the midst of it.
func checkMoving(t *testing.T, n twoPaths, p pair) {
	const want = 5
	compared := map[int]int{} // looks, by path
	x := p.transfer(10e6)
	for deadline := time.Now().Add(5 * time.Minute); compared[0] < want || compared[1] < want; {
		if time.Now().After(deadline) {
			t.Fatalf("only %v undisturbed looks in 5 minutes, want %d on each path", compared, want)
		}
		if x.done() {
			x.wait(t)
			x = p.transfer(10e6)
		}
		before := sockets(t, n.client)
		shown := readStatus(t).of(n.client)
		after := sockets(t, n.client)
		for _, f := range shown {
			k0, k1 := before[f.Local], after[f.Local]
			if k0.SSThreshPkts == 0 || k0.SSThreshPkts != k1.SSThreshPkts ||
				k0.BytesRetrans != k1.BytesRetrans || k1.CwndPkts < k0.CwndPkts || k0.BytesAcked == k1.BytesAcked ||
				f.Ssthresh == nil || *f.Ssthresh != k0.SSThreshPkts || f.Cwnd < *f.Ssthresh {
				continue
			}
			every := max(refreshMin, time.Duration(f.SRTT)*time.Microsecond)
			rounds := 1 + int(every/k0.MinRTT)
			if k0.CwndPkts <= k0.SSThreshPkts+rounds {
				continue
			}
			path := n.path(t, f.Local.Addr())
			compared[path]++
			// A packet less for each round trip since the last refresh, and one for its fraction.
			if f.Cwnd < k0.CwndPkts-rounds-1 || f.Cwnd > k1.CwndPkts {
				t.Errorf("path %d: window %d, in ss %d before and %d after", path, f.Cwnd, k0.CwndPkts, k1.CwndPkts)
			}
			if windows := uint64((rounds + 1) * (f.Cwnd + rounds) * 1500); f.BytesAcked+windows < k0.BytesAcked || f.BytesAcked > k1.BytesAcked {
				t.Errorf("path %d: %d bytes acknowledged, in ss %d before and %d after", path, f.BytesAcked, k0.BytesAcked, k1.BytesAcked)
			}
		}
	}
	x.wait(t)
}

// checkResting compares all numbers exactly. A lone byte's ACK finds a refresh
// due, which shows what the ACK has changed; after it nothing changes. Of two
// bytes, 5 ms apart, the second takes the other path, because the first is still
// on its way; the kernel's count of acknowledged bytes tells whether it did.
func checkResting(t *testing.T, n twoPaths, p pair) {
	const want = 3
	compared := map[int]int{}
	for range 30 {
		time.Sleep(200 * time.Millisecond) // longer than a round trip, or a refresh is not due
		before := quiet(t, p.client)
		for range 2 {
			if _, err := p.client.Write([]byte{0}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		if _, err := io.ReadFull(p.server, make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
		after := quiet(t, p.client)
		shown, kernels := readStatus(t).of(n.client), sockets(t, n.client)
		for i, sub := range after.Subflows {
			if sub.TCP.Bytes_acked != before.Subflows[i].TCP.Bytes_acked+1 {
				continue
			}
			path := n.path(t, sub.Local.Addr())
			compared[path]++
			k := kernels[sub.Local]
			want := fmt.Sprintf("window %d, ssthresh %d, srtt %d us, base RTT %d us, acknowledged %d",
				k.CwndPkts, k.SSThreshPkts, k.RTT.Round(time.Microsecond).Microseconds(),
				k.MinRTT.Round(time.Microsecond).Microseconds(), k.BytesAcked)
			got := "nothing"
			for _, f := range shown {
				if f.Local == sub.Local && f.Ssthresh != nil {
					got = fmt.Sprintf("window %d, ssthresh %d, srtt %d us, base RTT %d us, acknowledged %d",
						f.Cwnd, *f.Ssthresh, int(f.SRTT), int(f.BaseRTT), f.BytesAcked)
				}
			}
			if got != want {
				t.Errorf("path %d: mpcc shows %s; ss has %s", path, got, want)
			}
		}
		if compared[0] >= want && compared[1] >= want {
			return
		}
	}
	t.Errorf("compared %v times by path, want %d", compared, want)
}

// quiet waits until the kernel has seen everything acknowledged.
func quiet(t *testing.T, conn *net.TCPConn) mptcp.Info {
	t.Helper()
	var info mptcp.Info
	ok := eventually(10*time.Second, func() bool {
		var err error
		if info, err = mptcp.ReadInfo(conn); err != nil {
			t.Fatal(err)
		}
		for _, s := range info.Subflows {
			if s.TCP.Unacked > 0 || s.TCP.Notsent_bytes > 0 {
				return false
			}
		}
		return len(info.Subflows) == 2
	})
	if !ok {
		t.Fatalf("not quiet after 10 s: %+v", info)
	}
	return info
}

// checkTotals closes the connection and compares what stays of it. The client's
// totals are what the kernel had counted as acknowledged when all of it was: the
// kernel counts the SYN, which was acknowledged before the congestion control
// came to the socket, and so is not in the totals; in its place there is the FIN
// of the end. Of what arrived the server's totals have all, and the FIN too
// where it comes before the kernel replaces the socket by a mere TIME_WAIT.
func checkTotals(t *testing.T, n twoPaths, p pair) {
	sent, arrived := quiet(t, p.client), quiet(t, p.server)

	if err := p.client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := p.server.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("%d bytes and %v where the end should be", n, err)
	}
	p.close()
	var s status
	if !eventually(10*time.Second, func() bool { s = readStatus(t); return len(s.Subflows) == 0 }) {
		t.Fatalf("still live 10 s after the close: %+v", s.Subflows)
	}
	if s.Lost.Subflows+s.Lost.Totals+s.Lost.Siblings > 0 {
		t.Errorf("not recorded: %+v", s.Lost)
	}
	for _, sub := range sent.Subflows {
		got := s.total(n.client, n.paths[n.path(t, sub.Local.Addr())].Interface(n.client), "lia")
		if got.BytesAcked != sub.TCP.Bytes_acked || got.Opened != 1 || got.Closed != 1 {
			t.Errorf("client, %v: the total is %+v, want %d bytes acknowledged", sub.Local, got, sub.TCP.Bytes_acked)
		}
	}
	for _, sub := range arrived.Subflows {
		got := s.total(n.server, n.paths[n.path(t, sub.Remote.Addr())].Interface(n.server), "lia")
		if fin := got.BytesReceived - sub.TCP.Bytes_received; fin > 1 || got.Opened != 1 || got.Closed != 1 {
			t.Errorf("server, %v: the total is %+v, want %d bytes received", sub.Local, got, sub.TCP.Bytes_received)
		}
	}
}

// A listener, what it has accepted and what was connected keep the scheduler that they were made with.
func TestOutdatedSockets(t *testing.T) {
	load(t, "sched/minrtt")
	n := newTwoPaths(t, [2]lab.Shape{})
	outdatedNow := func(when string, want ...outdated) {
		t.Helper()
		got := readStatus(t).Outdated
		slices.SortFunc(got, func(a, b outdated) int { return strings.Compare(a.Netns+a.Listens, b.Netns+b.Listens) })
		if !slices.Equal(got, want) {
			t.Errorf("%s: outdated are %+v, want %+v", when, got, want)
		}
	}
	p := n.connect(t, "", "")
	outdatedNow("without a default")
	n.schedule(t, "minrtt")
	at := p.listener.Addr().String()
	client := outdated{PID: os.Getpid(), Netns: n.client.Namespace(), Scheduler: "default", Connections: 1}
	server, listener := client, client
	server.Netns, listener.Netns = n.server.Namespace(), n.server.Namespace()
	listener.Connections, listener.Listens = 0, at
	outdatedNow("made before", client, server, listener)
	q := n.connect(t, "", "")
	outdatedNow("and others after", client, server, listener)
	text := string(mpcc(t, "status"))
	for _, line := range []string{
		fmt.Sprintf("e2e.test (process %d) in netns %s: a connection keeps scheduler default\n", client.PID, client.Netns),
		fmt.Sprintf("e2e.test (process %d) in netns %s listens at %s with scheduler default, and so has what it accepts; restart it for the default\n",
			client.PID, listener.Netns, at),
	} {
		if !strings.Contains(text, line) {
			t.Errorf("status lacks %q: %s", line, text)
		}
	}
	n.schedule(t, "default")
	outdatedNow("the kernel's own by default")
	n.schedule(t, "minrtt")
	p.close()
	outdatedNow("ended")
	q.close()
}
