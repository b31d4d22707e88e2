// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"maps"
	"math"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/checked"
)

// schedule makes the connections to come of both hosts use a scheduler; "default" is the kernel's own.
func (n twoPaths) schedule(t *testing.T, name string) {
	t.Helper()
	for _, h := range []*lab.Host{n.client, n.server} {
		if err := h.Sysctl("net.mptcp.scheduler", name); err != nil {
			t.Fatal(err)
		}
	}
}

// lose has a path drop so many percent of what it carries, in the directions given.
func (n twoPaths) lose(t *testing.T, path int, shape lab.Shape, percent float64, dirs ...lab.Dir) {
	t.Helper()
	shape.Loss = percent
	for _, d := range dirs {
		if err := n.paths[path].Set(d, shape); err != nil {
			t.Fatal(err)
		}
	}
}

// reverse is the connection seen from the server's end.
func (p pair) reverse() pair {
	return pair{client: p.server, server: p.client, listener: p.listener, received: p.received}
}

// within waits for the transfer, but no longer.
func (x transfer) within(t *testing.T, limit time.Duration) checked.Result {
	t.Helper()
	if !eventually(limit, x.done) {
		t.Fatalf("the transfer has not ended after %v", limit)
	}
	return x.wait(t)
}

// Every scheduler moves content both ways at once, unharmed and without a stall, over paths that lose 2 %
// and over paths of which one after the other is cut for a second:
//
//	        ┌── 10 Mbit/s, 10 ms ──┐
//	client ─┤                      ├─ server
//	        └── 10 Mbit/s, 30 ms ──┘
//
// At 2 % loss a Reno flow has 10 Mbit/s on the first path and 3 on the second, so 0.3 MB take half a second. 2 MB
// take 0.8 s of both paths, and longer with the cuts. The kernel takes a path for dead after some timeouts
// that double from 0.2 s, so a stall is what lasts many seconds more.
func TestSchedulersNeverStall(t *testing.T) {
	ids := listed(t, "sched/")
	load(t, ids...)
	sideBySide(t, append(names(ids), "default"), neverStalls)
	t.Run("without SACK", func(t *testing.T) { sideBySide(t, append(names(ids), "default"), endsWithoutSACK) })
}

// neverStalls returns how long the transfers took, in seconds.
func neverStalls(t *testing.T, scheduler string) (seconds [2]float64) {
	const limit = 5 * time.Minute // a stall has no end; a busy machine takes its time
	shapes := [2]lab.Shape{
		{Rate: 10e6, Delay: 5 * time.Millisecond, Queue: 30},
		{Rate: 10e6, Delay: 15 * time.Millisecond, Queue: 50},
	}
	n := newTwoPaths(t, shapes)
	n.schedule(t, scheduler)
	lose := func(path int, percent float64) { n.lose(t, path, shapes[path], percent, lab.AtoB, lab.BtoA) }
	there, back := n.connect(t, "", ""), n.connect(t, "", "").reverse()
	both := func(bytes int64, meanwhile func()) float64 {
		start := time.Now()
		under := []transfer{there.transfer(bytes), back.transfer(bytes)}
		meanwhile()
		for _, x := range under {
			x.within(t, limit)
		}
		return time.Since(start).Seconds()
	}
	lose(0, 2)
	lose(1, 2)
	lossy := both(3e5, func() {})
	lose(0, 0)
	lose(1, 0)
	cut := both(2e6, func() {
		for path := range n.paths {
			time.Sleep(300 * time.Millisecond)
			lose(path, 100)
			time.Sleep(time.Second)
			lose(path, 0)
		}
	})
	t.Logf("%.1f s with losses, %.1f s with cuts", lossy, cut)
	return [2]float64{lossy, cut}
}

// Without SACK a socket stays in recovery from a timeout (CA_Loss) until something beyond it is acknowledged, also when
// nothing is outstanding: who sends nothing then never leaves it. One path of 10 Mbit/s and 20 ms, cut for 700 ms; the same
// path with a loss of 3 %; then two paths that lose 3 %. 1 MB takes 0.8 s of one path, and a Reno flow at 3 % has 4 Mbit/s
// of the first path, but for timeouts, and 2.5 Mbit/s of the second. How long timeouts take is chance; a transfer that
// hangs does not end.
func endsWithoutSACK(t *testing.T, scheduler string) (none struct{}) {
	const limit = 5 * time.Minute
	shapes := [2]lab.Shape{
		{Rate: 10e6, Delay: 10 * time.Millisecond, Queue: 30},
		{Rate: 10e6, Delay: 15 * time.Millisecond, Queue: 50},
	}
	n := newTwoPaths(t, shapes)
	n.schedule(t, scheduler)
	for _, h := range []*lab.Host{n.client, n.server} {
		if err := h.Sysctl("net.ipv4.tcp_sack", "0"); err != nil {
			t.Fatal(err)
		}
	}
	lose := func(path int, percent float64) { n.lose(t, path, shapes[path], percent, lab.AtoB) }
	announce(t, n.server, netip.Addr{})
	p := n.connect(t, "", "")
	start := time.Now()
	x := p.transfer(1e6)
	time.Sleep(200 * time.Millisecond)
	lose(0, 100)
	time.Sleep(700 * time.Millisecond)
	lose(0, 0)
	x.within(t, limit)
	cut := time.Since(start)
	p.close()

	p = n.connect(t, "", "")
	lose(0, 3)
	start = time.Now()
	p.transfer(1e6).within(t, limit)
	lossy := time.Since(start)
	lose(0, 0)
	p.close()

	announce(t, n.server, n.paths[1].Addr(n.server))
	p = n.connect(t, "", "")
	p.join(t, 2)
	lose(0, 3)
	lose(1, 3)
	start = time.Now()
	p.transfer(1e6).within(t, limit)
	t.Logf("%.1f s with a cut, %.1f s with losses on one path, %.1f s with losses on two", cut.Seconds(), lossy.Seconds(),
		time.Since(start).Seconds())
	return none
}

// Under mpcc's schedulers the send buffer holds what all subflows send in the longest RTT; under the kernel's scheduler the
// buffer is the sum of what each subflow needs by itself. A size that the application has set stays. The first path carries
// 2 MB in the second path's RTT of 800 ms; the kernel's buffer for both is less than half of that.
func TestOwnTimeSendBuffer(t *testing.T) {
	load(t, "minrtt")
	shapes := [2]lab.Shape{
		{Rate: 20e6, Delay: 5 * time.Millisecond, Queue: 40},
		{Rate: 1e6, Delay: 400 * time.Millisecond, Queue: 20},
	}
	const asked = 100 << 10
	for _, c := range []struct {
		scheduler   string
		asks, holds bool
	}{{"minrtt", false, true}, {"default", false, false}, {"minrtt", true, false}} {
		n := newTwoPaths(t, shapes)
		n.schedule(t, c.scheduler)
		p := n.connect(t, "", "")
		if c.asks {
			if err := p.client.SetWriteBuffer(asked); err != nil {
				t.Fatal(err)
			}
		}
		p.stream()
		p.join(t, 2)
		time.Sleep(2 * time.Second) // slow start
		readings, least, most := []float64(nil), math.MaxInt, 0
		for i := range 400 {
			if i%40 == 0 {
				readings = append(readings, sentInLongestRTT(t, n.client))
			}
			buffer := sendBuffer(t, p.client)
			least, most = min(least, buffer), max(most, buffer)
			time.Sleep(5 * time.Millisecond)
		}
		slices.Sort(readings)
		needed := readings[len(readings)/2] // for some round trips after a pause a window is small beside the RTT
		t.Logf("%s: subflows send %.0f bytes in the longest RTT, the buffer holds %d to %d", c.scheduler, needed, least, most)
		if holds := float64(least) >= needed; holds != c.holds {
			t.Errorf("%s: %.0f bytes are needed, at times the buffer holds %d", c.scheduler, needed, least)
		}
		if c.asks && (least != 2*asked || most != 2*asked) { // the kernel doubles it
			t.Errorf("%s: the application asked for %d bytes and has %d to %d", c.scheduler, asked, least, most)
		}
		p.close()
	}
}

// The first path slows down to 0.1 Mbit/s, at which the 60 packets in its queue take 7 s. earliest sends these packets
// again on the second path, which carries 1.2 MB/s, so that the stream goes on. minrtt does not send them again: some 20 kB
// arrive in each second then.
func TestOwnTimeStrandedDataGoesOutAgain(t *testing.T) {
	load(t, "earliest")
	shapes := [2]lab.Shape{
		{Rate: 20e6, Delay: 8 * time.Millisecond, Queue: 60},
		{Rate: 10e6, Delay: 30 * time.Millisecond, Queue: 100},
	}
	n := newTwoPaths(t, shapes)
	n.schedule(t, "earliest")
	p := n.connect(t, "", "")
	p.stream()
	p.join(t, 2)
	time.Sleep(3 * time.Second)
	slow := shapes[0]
	slow.Rate = 0.1e6
	if err := n.paths[0].Set(lab.AtoB, slow); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	before := p.received.Load()
	time.Sleep(4 * time.Second)
	bytes := p.received.Load() - before
	t.Logf("from 1 s to 5 s after the first path has slowed down %.2f MB arrive", float64(bytes)/1e6)
	if bytes < 2e6 {
		t.Errorf("from 1 s to 5 s after one path has slowed down %.2f MB arrive, where the other one carries 4.8", float64(bytes)/1e6)
	}
	shown := schedulers(t, n.client)
	if len(shown) != 1 || len(shown[0].Subflows) != 2 {
		t.Fatalf("status shows %+v", shown)
	}
	first, second := shown[0].Subflows[0], shown[0].Subflows[1]
	if shown[0].Repeats == 0 || first.Repeated != shown[0].Repeats || second.Repeated != 0 {
		t.Errorf("status shows %d repeats, %d and %d of the subflows' data; the first path alone is slow", shown[0].Repeats,
			first.Repeated, second.Repeated)
	}
	if first.Arrival == nil || second.Arrival == nil || first.Held == nil || first.Rate == nil || second.Rate == nil {
		t.Fatalf("status shows no arrival, or no rate: %+v", shown)
	}
	if *first.Rate >= *second.Rate {
		t.Errorf("status expects %.2f Mbit/s on the slow path and %.2f on the other", *first.Rate, *second.Rate)
	}
	if *first.Arrival <= *second.Arrival || *first.Held == 0 {
		t.Errorf("status expects data on the slow path after %v µs, on the other after %v µs; the slow one holds %d bytes", *first.Arrival,
			*second.Arrival, *first.Held)
	}
}

// sentInLongestRTT is how many bytes the windows of a host's subflows send in the longest of their RTTs, as ss shows them.
func sentInLongestRTT(t *testing.T, h *lab.Host) (bytes float64) {
	t.Helper()
	all := slices.Collect(maps.Values(sockets(t, h)))
	longest := 0.
	for _, s := range all {
		longest = max(longest, s.RTT.Seconds())
	}
	for _, s := range all {
		mss, err := strconv.Atoi(s.Fields["mss"])
		if err != nil {
			t.Fatal(err)
		}
		bytes += float64(s.CwndPkts*mss) * longest / s.RTT.Seconds()
	}
	return bytes
}

// sendBuffer is the size of an MPTCP connection's send buffer.
func sendBuffer(t *testing.T, conn *net.TCPConn) (bytes int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if control := raw.Control(func(fd uintptr) {
		bytes, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
	}); control != nil || err != nil {
		t.Fatal(control, err)
	}
	return bytes
}

// read has the server read all that comes.
func (p pair) read() {
	go func() {
		content := make([]byte, 64<<10)
		for {
			n, err := p.server.Read(content)
			p.received.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
}

// trickle writes so many bytes per second, a piece at a time, and waits until all have arrived.
func (p pair) trickle(t *testing.T, rate float64, every, length time.Duration) (bytes float64) {
	t.Helper()
	piece := make([]byte, int(rate*every.Seconds()))
	due := p.received.Load()
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(every) {
		if _, err := p.client.Write(piece); err != nil {
			t.Fatal(err)
		}
		due += int64(len(piece))
		bytes += float64(len(piece))
	}
	if !eventually(10*time.Second, func() bool { return p.received.Load() >= due }) {
		t.Fatalf("%d of %d bytes arrived in 10 s", p.received.Load(), due)
	}
	return bytes
}

// byPath is what each path has carried of the client's content, copies included.
func (n twoPaths) byPath(t *testing.T, p pair) (bytes [2]float64) {
	t.Helper()
	info, err := mptcp.ReadInfo(p.client)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range info.Subflows {
		bytes[n.path(t, s.Local.Addr())] += float64(s.TCP.Bytes_acked)
	}
	return bytes
}

// price sets what an interface of the client takes, in mW/Mbps, and nothing beside.
func (n twoPaths) price(t *testing.T, slopes ...int) {
	t.Helper()
	for i, slope := range slopes {
		mpcc(t, "energy", "set", n.paths[i].Interface(n.client), "--netns", n.client.Namespace(),
			"--uplink", strconv.Itoa(slope), "--downlink", "0", "--base", "0")
	}
}

// What tells the schedulers apart when there is less to send than the paths take, half a Mbit/s:
//
//	        ┌── 20 Mbit/s, 60 ms ──┐
//	client ─┤                      ├─ server
//	        └── 20 Mbit/s, 20 ms ──┘
//
// Each piece of 1.25 kB is a packet, and a window takes ten, as many as come in 200 ms. So minrtt uses the second path
// alone; emtcp the cheaper one, whichever that is; round robin each for every second piece, which the kernel's own does
// not; redundant sends all on both.
func TestOwnTimeSchedulersOnThinFlows(t *testing.T) {
	const rate, every, length = 62.5e3, 20 * time.Millisecond, 3 * time.Second
	load(t, "sched/minrtt", "sched/redundant", "sched/emtcp")
	mpcc(t, "load", "sched/roundrobin", "--set", "num_segments=1")
	// carried is the slow path's share of what was carried, and how often a byte was.
	type carried struct{ share, copies float64 }
	runs := []string{
		"default", "minrtt", "roundrobin", "emtcp, slow path dear", "emtcp, fast path dear",
		"redundant", "redundant again", "redundant once more", // connections begin with sequence numbers of their own
	}
	got := sideBySide(t, runs, func(t *testing.T, name string) carried {
		n := newTwoPaths(t, [2]lab.Shape{
			{Rate: 20e6, Delay: 30 * time.Millisecond, Queue: 200},
			{Rate: 20e6, Delay: 10 * time.Millisecond, Queue: 200},
		})
		switch name {
		case "emtcp, slow path dear":
			n.price(t, 800, 100)
		case "emtcp, fast path dear":
			n.price(t, 100, 800)
		}
		n.schedule(t, regexp.MustCompile(`^\w+`).FindString(name))
		p := n.connect(t, "", "")
		p.read()
		p.trickle(t, rate, every, 300*time.Millisecond)
		p.join(t, 2)
		quiet(t, p.client)
		before := n.byPath(t, p)
		bytes := p.trickle(t, rate, every, length)
		quiet(t, p.client)
		after := n.byPath(t, p)
		slow, fast := after[0]-before[0], after[1]-before[1]
		c := carried{slow / (slow + fast), (slow + fast) / bytes}
		t.Logf("%.0f %% over the slow path, each byte %.2f times", 100*c.share, c.copies)
		return c
	})
	if single := got["default"].copies; single > 1.1 {
		t.Errorf("the kernel's own sends each byte %.2f times", single)
	}
	if share := got["minrtt"].share; share > 0.1 {
		t.Errorf("minrtt: %.0f %% over the slow path", 100*share)
	}
	if share := got["roundrobin"].share; math.Abs(share-0.5) > 0.05 {
		t.Errorf("round robin: %.0f %% over the slow path", 100*share)
	}
	for name, c := range got {
		if strings.HasPrefix(name, "redundant") && c.copies < 1.5 {
			t.Errorf("%s: each byte %.2f times", name, c.copies)
		}
	}
	if share := got["emtcp, slow path dear"].share; share > 0.1 {
		t.Errorf("emtcp: %.0f %% over the slow path, the dear one", 100*share)
	}
	if share := got["emtcp, fast path dear"].share; share < 0.9 {
		t.Errorf("emtcp: %.0f %% over the slow path, the cheap one", 100*share)
	}
}

// Trains of small packets, each shorter than the slow path's RTT: while the fast path acknowledges, nothing comes back
// over the slow one. Redundant has the connection's timer go off at each tick for its copies, and yet the kernel must
// not take the slow path for dead.
//
//	        ┌── 20 Mbit/s, 240 ms ──┐
//	client ─┤                       ├─ server
//	        └── 20 Mbit/s, 40 ms ───┘
func TestRedundantKeepsSlowPaths(t *testing.T) {
	const trains, rate, every, length = 10, 62.5e3, 10 * time.Millisecond, 200 * time.Millisecond
	load(t, "sched/redundant")
	n := newTwoPaths(t, [2]lab.Shape{
		{Rate: 20e6, Delay: 120 * time.Millisecond, Queue: 200},
		{Rate: 20e6, Delay: 20 * time.Millisecond, Queue: 200},
	})
	n.schedule(t, "redundant")
	p := n.connect(t, "", "")
	p.read()
	p.trickle(t, rate, every, length)
	p.join(t, 2)
	quiet(t, p.client)
	before := n.byPath(t, p)
	for range trains {
		p.trickle(t, rate, every, length)
		quiet(t, p.client)
	}
	if after := n.byPath(t, p); after[0]-before[0] < 5*rate*every.Seconds() {
		t.Errorf("the slow path carried %.0f bytes of copies: the test has shown nothing", after[0]-before[0])
	}
	if stale := counted(t, n.client, "MPTcpExtSubflowStale"); stale > 0 {
		t.Errorf("the kernel took a path for dead %d times", stale)
	}
}

// counted is one of the kernel's counters in a host's namespace.
func counted(t *testing.T, h *lab.Host, name string) int {
	t.Helper()
	out, err := h.Command(t.Context(), "nstat", "-asz", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(out), name)
	count, err := strconv.Atoi(strings.Fields(rest + " ?")[0])
	if err != nil {
		t.Fatalf("nstat says %q of %s", out, name)
	}
	return count
}

// A small receive buffer, and a second path so slow that it blocks the first:
//
//	        ┌── 20 Mbit/s, 20 ms ──┐
//	client ─┤                      ├─ server, receive buffer of 100 kB
//	        └── 1 Mbit/s, 200 ms ──┘
//
// 2 MB take 0.8 s of the first path. Each packet on the second one holds up what the first one sends in
// 200 ms and more, 0.5 MB, of which the buffer takes a part only. The kernel's own hands it bursts of up to
// 64 kB, half a second each; BLEST and ECF wait for the fast one. The send buffer is small as well: with 2 MB to send ECF
// finds now and then, rightly by its rule, that the first path would take longer than a packet on the second one.
func TestOwnTimeSchedulersOnASmallBuffer(t *testing.T) {
	const bytes = 2e6
	load(t, "sched/blest", "sched/ecf")
	took := sideBySide(t, []string{"default", "blest", "ecf"}, func(t *testing.T, name string) float64 {
		n := newTwoPaths(t, [2]lab.Shape{
			{Rate: 20e6, Delay: 10 * time.Millisecond, Queue: 60},
			{Rate: 1e6, Delay: 100 * time.Millisecond, Queue: 60},
		})
		if err := n.server.Sysctl("net.ipv4.tcp_rmem", "4096 100000 100000"); err != nil {
			t.Fatal(err)
		}
		if err := n.client.Sysctl("net.ipv4.tcp_wmem", "4096 16384 131072"); err != nil {
			t.Fatal(err)
		}
		n.schedule(t, name)
		p := n.connect(t, "", "")
		p.transfer(50e3).within(t, 20*time.Second)
		p.join(t, 2)
		took := p.transfer(bytes).within(t, 60*time.Second).Duration.Seconds()
		carried := n.byPath(t, p)
		t.Logf("%.2f s, %.1f %% over the slow path", took, 100*carried[1]/(carried[0]+carried[1]))
		return took
	})
	for _, name := range []string{"blest", "ecf"} {
		if took[name] > 0.7*took["default"] {
			t.Errorf("%s took %.2f s, the kernel's own %.2f s", name, took[name], took["default"])
		}
	}
}

// CDD keeps the congestion coefficients level, unacknowledged packets over window, where there is less to
// send than the paths take: 3 Mbit/s in pieces of a packet or two. That is 5 packets on the way of the first
// path alone, of a window of 10, and so minrtt leaves the second one idle. cdd has as many on both.
//
//	        ┌── 20 Mbit/s, 20 ms ──┐
//	client ─┤                      ├─ server
//	        └── 20 Mbit/s, 40 ms ──┘
func TestOwnTimeCDDKeepsCoefficientsLevel(t *testing.T) {
	const rate, every = 375e3, 5 * time.Millisecond
	load(t, "sched/cdd", "sched/minrtt")
	// The difference of the coefficients' means over their sum.
	apart := sideBySide(t, []string{"default", "minrtt", "cdd"}, func(t *testing.T, name string) float64 {
		n := newTwoPaths(t, [2]lab.Shape{
			{Rate: 20e6, Delay: 10 * time.Millisecond, Queue: 100},
			{Rate: 20e6, Delay: 20 * time.Millisecond, Queue: 100},
		})
		n.schedule(t, name)
		p := n.connect(t, "", "")
		p.read()
		p.trickle(t, rate, every, 300*time.Millisecond)
		p.join(t, 2)
		end := make(chan struct{})
		var gamma [2]float64
		looks := 0
		go func() {
			defer close(end)
			p.trickle(t, rate, every, 3*time.Second)
		}()
		for running := true; running; looks++ {
			info, err := mptcp.ReadInfo(p.client)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range info.Subflows {
				gamma[n.path(t, s.Local.Addr())] += float64(s.TCP.Unacked) / float64(s.TCP.Snd_cwnd)
			}
			select {
			case <-end:
				running = false
			case <-time.After(7 * time.Millisecond):
			}
		}
		t.Logf("mean coefficients %.2f and %.2f", gamma[0]/float64(looks), gamma[1]/float64(looks))
		return math.Abs(gamma[0]-gamma[1]) / (gamma[0] + gamma[1])
	})
	if apart["cdd"] > 0.4 || apart["cdd"] > 0.5*apart["minrtt"] {
		t.Errorf("the coefficients differ by %.2f of their sum under cdd, %.2f under minrtt, %.2f under the kernel's own",
			apart["cdd"], apart["minrtt"], apart["default"])
	}
}

// ES-MPTCP's set: both paths for a short transfer, the cheaper one for a long one, whichever that is, and
// both where energy costs nothing.
//
//	        ┌── 20 Mbit/s, 20 ms ──┐
//	client ─┤                      ├─ server
//	        └── 20 Mbit/s, 20 ms ──┘
//
// The second path adds 6 Mbit/s by its first window, and 20 at most. It raises the energy per Mbit from 100
// to 150 mJ. With 0.001 a mJ that weighs 2 Mbit/s for the 4 MB (34 Mbit) that a send buffer holds, and 42 for
// 100 MiB: the set is both paths for the one, one for the other.
func TestOwnTimeESMPTCPChooses(t *testing.T) {
	// A transfer whose end is not known is taken for one of that size.
	load(t, "sched/esmptcp", "--set", "size_kib=102400")
	type outcome struct {
		set    [2]bool    // the paths in the set at the end
		shares [2]float64 // each one's part of what was carried in the last second
	}
	run := func(t *testing.T, name string) (o outcome) {
		n := newTwoPaths(t, [2]lab.Shape{
			{Rate: 20e6, Delay: 10 * time.Millisecond, Queue: 60},
			{Rate: 20e6, Delay: 10 * time.Millisecond, Queue: 60},
		})
		switch {
		case strings.HasSuffix(name, "path 0 dear"):
			n.price(t, 200, 100)
		case strings.HasSuffix(name, "path 1 dear"):
			n.price(t, 100, 200)
		}
		n.schedule(t, "esmptcp")
		p := n.connect(t, "", "")
		p.stream()
		p.join(t, 2)
		time.Sleep(1500 * time.Millisecond)
		before := n.byPath(t, p)
		time.Sleep(time.Second)
		after := n.byPath(t, p)
		shown := schedulers(t, n.client)
		if len(shown) != 1 || len(shown[0].Subflows) != 2 {
			t.Fatalf("status shows %+v", shown)
		}
		for _, f := range shown[0].Subflows {
			for i, path := range n.paths {
				if path.Interface(n.client) == f.Interface {
					o.set[i] = f.Allowed
					o.shares[i] = (after[i] - before[i]) / (after[0] + after[1] - before[0] - before[1])
				}
			}
		}
		t.Logf("set %v, shares %.2f", o.set, o.shares)
		return o
	}
	long := sideBySide(t, []string{"100 MiB", "100 MiB, path 0 dear", "100 MiB, path 1 dear"}, run)
	mpcc(t, "switch", "sched/esmptcp", "--set", "size_kib=1024")
	small := sideBySide(t, []string{"1 MiB, path 1 dear"}, run)
	for what, o := range map[string]outcome{"100 MiB": long["100 MiB"], "1 MiB": small["1 MiB, path 1 dear"]} {
		if o.set != [2]bool{true, true} || min(o.shares[0], o.shares[1]) < 0.2 {
			t.Errorf("%s: set %v, shares %.2f", what, o.set, o.shares)
		}
	}
	for dear, what := range []string{"100 MiB, path 0 dear", "100 MiB, path 1 dear"} {
		if o := long[what]; o.set[dear] || !o.set[1-dear] || o.shares[dear] > 0.1 {
			t.Errorf("%s: set %v, shares %.2f", what, o.set, o.shares)
		}
	}
}

// ES-MPTCP learns of a path outside the set that has become better.
//
//	        ┌── 5 Mbit/s, 20 ms, 100 mW/Mbps ──────────────────┐
//	client ─┤                                                  ├─ server
//	        └── 0.5, later 20 Mbit/s, 20 ms, 500 mW, any rate ─┘
//
// A Mbit costs 100 mJ on the first path, and on the second one 1000, later 25. With 0.001 a mJ and 100 MiB the set is
// the first path alone, O_1 = 5 - 84 = -79 and O_2 = 5.5 - 153; later the second one, O_1 = 20 - 21, O_2 = 25 - 34.
func TestOwnTimeESMPTCPTriesAgain(t *testing.T) {
	load(t, "sched/esmptcp", "--set", "size_kib=102400", "--set", "probe_s=2")
	slow := lab.Shape{Rate: 5e5, Delay: 10 * time.Millisecond, Queue: 10}
	n := newTwoPaths(t, [2]lab.Shape{{Rate: 5e6, Delay: 10 * time.Millisecond, Queue: 30}, slow})
	for i, args := range [][]string{{"--uplink", "100", "--base", "0"}, {"--uplink", "0", "--base", "500"}} {
		mpcc(t, append([]string{"energy", "set", n.paths[i].Interface(n.client), "--netns", n.client.Namespace(),
			"--downlink", "0"}, args...)...)
	}
	n.schedule(t, "esmptcp")
	p := n.connect(t, "", "")
	p.stream()
	p.join(t, 2)
	ok := eventually(30*time.Second, func() bool {
		before := n.byPath(t, p)
		time.Sleep(time.Second)
		return n.byPath(t, p)[1]-before[1] < 5e5/8/4
	})
	if !ok {
		t.Fatalf("the slow path stays in the set: %+v", schedulers(t, n.client))
	}
	before := n.byPath(t, p)
	time.Sleep(5 * time.Second)
	after := n.byPath(t, p)
	tried := after[1] - before[1]
	t.Logf("in 5 s the slow path was tried with %.0f bytes", tried)
	const trial = 1<<17 + 1<<16 // with the burst that ends it
	if tried == 0 || tried > 3*trial {
		t.Errorf("in 5 s the path outside the set was tried with %.0f bytes", tried)
	}
	fast := slow
	fast.Rate, fast.Queue = 20e6, 60
	if err := n.paths[1].Set(lab.AtoB, fast); err != nil {
		t.Fatal(err)
	}
	start := n.byPath(t, p)[1]
	// Thirty trials would be 6 MB.
	if !eventually(time.Minute, func() bool { return n.byPath(t, p)[1]-start > 10e6 }) {
		t.Errorf("the path that has become fast has carried %.0f bytes in a minute: %+v", n.byPath(t, p)[1]-start, schedulers(t, n.client))
	}
}
