// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

// What the user says of paths, and what then crosses each link. Both links carry 10 Mbit/s of frames:
//
//	        ┌── 20 ms, "dsl" ──┐
//	client ─┤                  ├─ server
//	        └── 60 ms, "lte" ──┘
const (
	dsl = iota
	lte
)

var preferShapes = [2]lab.Shape{
	{Rate: 10e6, Delay: 10 * time.Millisecond, Queue: 50},
	{Rate: 10e6, Delay: 30 * time.Millisecond, Queue: 80},
}

func newPreferred(t *testing.T) twoPaths {
	t.Helper()
	n := newTwoPaths(t, preferShapes)
	n.schedule(t, "prefer")
	return n
}

// prefer gives one of the client's interfaces a rule.
func (n twoPaths) prefer(t *testing.T, path int, says ...string) {
	t.Helper()
	mpcc(t, append([]string{"path", "set", n.paths[path].Interface(n.client), "--netns", n.client.Namespace()}, says...)...)
}

// both is a connection over both paths, on which nothing has been sent yet but what that takes.
func (n twoPaths) both(t *testing.T) pair {
	t.Helper()
	p := n.connect(t, "", "")
	p.read()
	p.trickle(t, 60e3, 20*time.Millisecond, 200*time.Millisecond)
	p.join(t, 2)
	quiet(t, p.client)
	return p
}

// wire is how many bytes of frames have crossed the links in a direction.
func (n twoPaths) wire(t *testing.T, d lab.Dir) (bytes [2]float64) {
	t.Helper()
	for i, path := range n.paths {
		got, err := path.Received(d)
		if err != nil {
			t.Fatal(err)
		}
		bytes[i] = float64(got)
	}
	return bytes
}

// rates is what crosses the links from now on, in Mbit/s.
func (n twoPaths) rates(t *testing.T, d lab.Dir, during func()) (mbps [2]float64) {
	t.Helper()
	before, start := n.wire(t, d), time.Now()
	during()
	after, took := n.wire(t, d), time.Since(start).Seconds()
	for i := range mbps {
		mbps[i] = (after[i] - before[i]) * 8 / 1e6 / took
	}
	return mbps
}

func during(d time.Duration) func() { return func() { time.Sleep(d) } }

// between fails unless low <= got <= high.
func between(t *testing.T, what string, got, low, high float64) {
	t.Helper()
	t.Logf("%s: %.3g", what, got)
	if !(got >= low && got <= high) {
		t.Errorf("%s: %.3g, want %g to %g", what, got, low, high)
	}
}

// shown is a path as `mpcc path show -j` has it.
type shown struct {
	Path  string
	Used  float64 `json:"used_bytes"`
	Spent bool
}

func (n twoPaths) shown(t *testing.T, path int) shown {
	t.Helper()
	var all struct{ Paths []shown }
	if err := json.Unmarshal(mpcc(t, "path", "show", "-j", "--netns", n.client.Namespace()), &all); err != nil {
		t.Fatal(err)
	}
	for _, s := range all.Paths {
		if s.Path == n.paths[path].Interface(n.client) {
			return s
		}
	}
	t.Fatalf("no rule for path %d: %+v", path, all.Paths)
	return shown{}
}

// The second rank takes what the first one is too full for, and nothing of what the first one can carry, although
// the first one is slower here.
func TestOwnTimePreferRankSpills(t *testing.T) {
	load(t, "sched/prefer")
	n := newPreferred(t)
	n.prefer(t, lte, "--rank", "1")
	n.prefer(t, dsl, "--rank", "2", "--spill")
	p := n.both(t)
	thin := n.rates(t, lab.AtoB, func() { p.trickle(t, 250e3, 20*time.Millisecond, 2*time.Second) })
	between(t, "a thin flow, Mbit/s on rank 1", thin[lte], 1.5, 2.5)
	between(t, "a thin flow, Mbit/s on rank 2", thin[dsl], 0, 0.1)
	p.fill()
	time.Sleep(1500 * time.Millisecond)
	full := n.rates(t, lab.AtoB, during(2*time.Second))
	between(t, "a full flow, Mbit/s on rank 1", full[lte], 8, 10.5)
	between(t, "a full flow, Mbit/s on rank 2", full[dsl], 7, 10.5)
}

// Without --spill the second rank is for when the first one has failed.
func TestOwnTimePreferRankFails(t *testing.T) {
	load(t, "sched/prefer")
	n := newPreferred(t)
	n.prefer(t, lte, "--rank", "2")
	p := n.both(t)
	p.fill()
	time.Sleep(time.Second)
	full := n.rates(t, lab.AtoB, during(2*time.Second))
	between(t, "Mbit/s on rank 1", full[dsl], 8.5, 10.5)
	between(t, "Mbit/s on rank 2", full[lte], 0, 0.1)

	// until waits for half a second in which the paths carry what they should.
	until := func(what string, limit time.Duration, right func(mbps [2]float64) bool) {
		t.Helper()
		start := time.Now()
		if !eventually(limit, func() bool {
			mbps := n.rates(t, lab.AtoB, during(500*time.Millisecond))
			t.Logf("%s: %.3g Mbit/s", what, mbps)
			return right(mbps)
		}) {
			t.Errorf("%s: not within %v", what, limit)
		}
		t.Logf("%s: %v", what, time.Since(start))
	}
	n.lose(t, dsl, preferShapes[dsl], 100, lab.AtoB, lab.BtoA)
	until("cut", 5*time.Second, func(mbps [2]float64) bool { return mbps[lte] > 6 })
	n.lose(t, dsl, preferShapes[dsl], 0, lab.AtoB, lab.BtoA)
	until("back", 30*time.Second, func(mbps [2]float64) bool { return mbps[dsl] > 6 && mbps[lte] < 0.5 })
}

// Shares by weight, of what both paths could carry; of more, each carries what it can.
func TestOwnTimePreferWeights(t *testing.T) {
	load(t, "sched/prefer")
	shares := sideBySide(t, []string{"none", "3 and 1", "1 and 3"}, func(t *testing.T, name string) float64 {
		n := newPreferred(t)
		var weights [2]string
		if _, err := fmt.Sscanf(name, "%s and %s", &weights[dsl], &weights[lte]); err == nil {
			for path, weight := range weights {
				n.prefer(t, path, "--weight", weight)
			}
		}
		p := n.both(t)
		got := n.rates(t, lab.AtoB, func() { p.trickle(t, 250e3, 20*time.Millisecond, 4*time.Second) })
		share := got[lte] / (got[dsl] + got[lte])
		if name == "3 and 1" {
			p.fill()
			time.Sleep(1500 * time.Millisecond)
			full := n.rates(t, lab.AtoB, during(2*time.Second))
			between(t, "full, Mbit/s with a weight of 1", full[lte], 6, 10.5)
		}
		return share
	})
	between(t, "share of the slower path without weights", shares["none"], 0, 0.05)
	between(t, "share of the slower path, a weight of 1 beside 3", shares["3 and 1"], 0.21, 0.29)
	between(t, "share of the slower path, a weight of 3 beside 1", shares["1 and 3"], 0.71, 0.79)
}

// A cap holds beside a path that has none, where all have one, on an only path, and for several connections together.
// Headers and what is sent again are not counted in it: some 6 %.
func TestOwnTimePreferCap(t *testing.T) {
	load(t, "sched/prefer")
	sideBySide(t, []string{"beside", "both", "alone", "two connections"}, func(t *testing.T, name string) (none struct{}) {
		n := newPreferred(t)
		n.prefer(t, lte, "--cap", "2mbit")
		if name == "both" || name == "alone" {
			n.prefer(t, dsl, "--cap", "1mbit")
		}
		var p pair
		if name == "alone" {
			announce(t, n.server, netip.Addr{})
			p = n.connect(t, "", "")
			p.read()
		} else {
			p = n.both(t)
		}
		p.fill()
		if name == "two connections" {
			n.both(t).fill()
		}
		time.Sleep(time.Second)
		got := n.rates(t, lab.AtoB, during(4*time.Second))
		switch name {
		case "beside", "two connections":
			between(t, "Mbit/s without a cap", got[dsl], 8, 10.5)
			between(t, "Mbit/s under 2", got[lte], 1.7, 2.25)
		case "both":
			between(t, "Mbit/s under 1", got[dsl], 0.85, 1.15)
			between(t, "Mbit/s under 2", got[lte], 1.7, 2.25)
		case "alone":
			between(t, "Mbit/s under 1", got[dsl], 0.85, 1.15)
		}
		return none
	})
}

// A path is used until its quota is used up, by all connections together; then it is a backup. What is counted is
// what crossed the link, but for headers and what was sent again.
func TestOwnTimePreferQuota(t *testing.T) {
	const quota = 2e6
	load(t, "sched/prefer")
	n := newPreferred(t)
	n.prefer(t, dsl, "--quota", "2M")
	n.prefer(t, lte, "--rank", "2")
	before := n.wire(t, lab.AtoB)
	for range 2 { // two connections, of which the first one uses less than the quota
		p := n.connect(t, "", "")
		p.transfer(100e3).within(t, 20*time.Second)
		p.join(t, 2)
		p.transfer(1.1e6).within(t, 20*time.Second)
		p.close()
	}
	after := n.wire(t, lab.AtoB)
	carried := [2]float64{after[dsl] - before[dsl], after[lte] - before[lte]}
	between(t, "bytes on the first path", carried[dsl], 0.97*quota, 1.12*quota)
	between(t, "bytes on the second path", carried[lte], 0.8*(2.4e6-quota), 1.3*(2.4e6-quota))
	s := n.shown(t, dsl)
	between(t, "bytes counted for each that crossed the link", s.Used/carried[dsl], 0.9, 1)
	if !s.Spent {
		t.Errorf("it shows %+v", s)
	}
	between(t, "bytes counted for each that crossed the second link", n.shown(t, lte).Used/carried[lte], 0.85, 1)

	// The modem shows less: the path is in use again.
	n.prefer(t, dsl, "--used", "1M")
	p := n.both(t)
	before = n.wire(t, lab.AtoB)
	p.trickle(t, 250e3, 20*time.Millisecond, time.Second)
	after = n.wire(t, lab.AtoB)
	between(t, "bytes on the first path with some of the quota left", after[dsl]-before[dsl], 200e3, 300e3)
}

// An excluded path carries nothing while another is alive, from the moment that this is said, and all if it is alone.
func TestOwnTimePreferExclusion(t *testing.T) {
	load(t, "sched/prefer")
	n := newPreferred(t)
	p := n.both(t)
	p.fill()
	time.Sleep(1500 * time.Millisecond)
	between(t, "Mbit/s before", n.rates(t, lab.AtoB, during(time.Second))[lte], 5, 10.5)
	n.prefer(t, lte, "--exclude")
	time.Sleep(time.Second) // it has a queue to empty
	excluded := n.rates(t, lab.AtoB, during(time.Second))
	between(t, "Mbit/s excluded", excluded[lte], 0, 0.1)
	between(t, "Mbit/s on the other one", excluded[dsl], 8.5, 10.5)
	n.prefer(t, dsl, "--exclude")
	time.Sleep(time.Second)
	between(t, "Mbit/s with both excluded", n.rates(t, lab.AtoB, during(time.Second))[dsl], 7, 10.5)
	mpcc(t, "path", "reset", "--all", "--netns", n.client.Namespace())
	time.Sleep(1500 * time.Millisecond)
	between(t, "Mbit/s without rules", n.rates(t, lab.AtoB, during(time.Second))[lte], 5, 10.5)
}

// With a threshold the second rank takes nothing while the first one's queue is short: 120 kB, of which a new
// connection's window on the first path takes 14 kB at once, and doubles in each round trip of 20 ms. A full flow's queue
// is longer.
func TestOwnTimePreferQueueThreshold(t *testing.T) {
	load(t, "sched/prefer")
	const connections = 4
	bursts := sideBySide(t, []string{"0s", "250ms"}, func(t *testing.T, threshold string) (bytes float64) {
		n := newPreferred(t)
		n.prefer(t, lte, "--rank", "2", "--spill="+threshold)
		var p pair
		for range connections {
			p = n.both(t)
			before := n.wire(t, lab.AtoB)
			p.trickle(t, 240e3, 500*time.Millisecond, time.Millisecond)
			bytes += n.wire(t, lab.AtoB)[lte] - before[lte]
		}
		p.fill()
		time.Sleep(1500 * time.Millisecond)
		full := n.rates(t, lab.AtoB, during(2*time.Second))
		between(t, "a full flow, Mbit/s on rank 1", full[dsl], 8, 10.5)
		between(t, "a full flow, Mbit/s on rank 2", full[lte], 5, 10.5)
		return bytes / connections
	})
	between(t, "bytes of a burst on a second rank that spills at once", bursts["0s"], 10e3, 80e3)
	between(t, "bytes of a burst on a second rank that spills at 250 ms", bursts["250ms"], 0, 1e3)
}

// A server with one interface tells its clients' paths apart by remote address or id; rules may be for some
// connections only, by port, mark or cgroup. A thin flow is on the first path, until that is excluded.
func TestOwnTimePreferTellsApart(t *testing.T) {
	load(t, "sched/prefer")
	for _, by := range []string{"local address", "local id", "port", "mark", "cgroup", "remote address", "remote id"} {
		t.Run(by, func(t *testing.T) {
			n := newPreferred(t)
			if by == "cgroup" {
				enterCgroup(t, "mpcc-other")
				enterCgroup(t, "mpcc-test")
			}
			p, h, dir := n.both(t), n.client, lab.AtoB
			if strings.HasPrefix(by, "remote") {
				p, h, dir = p.reverse(), n.server, lab.BtoA
				p.read()
			}
			exclude := func(path string, more ...string) {
				t.Helper()
				mpcc(t, append([]string{"path", "set", path, "--netns", h.Namespace(), "--exclude"}, more...)...)
			}
			thin := func(what string, at int) {
				t.Helper()
				got := n.rates(t, dir, func() { p.trickle(t, 250e3, 20*time.Millisecond, time.Second) })
				between(t, what+", Mbit/s on the first path", got[dsl], 2*float64(1-at)-0.5, 2*float64(1-at)+0.5)
				between(t, what+", Mbit/s on the second path", got[lte], 2*float64(at)-0.5, 2*float64(at)+0.5)
			}
			iface, port := n.paths[dsl].Interface(h), n.listening(p)
			switch by {
			case "local address":
				exclude("local=" + n.paths[lte].Addr(h).String() + "/24") // too wide, but for the next one
				exclude("local=" + n.paths[lte].Addr(h).String())
				mpcc(t, "path", "set", "local="+n.paths[lte].Addr(h).String(), "--netns", h.Namespace(), "--exclude=false")
				thin("the second one in an excluded prefix", dsl)
				exclude("local=" + n.paths[dsl].Addr(h).String())
			case "local id":
				exclude("local-id=7")
				thin("another id", dsl)
				exclude("local-id=0")
			case "port":
				exclude(iface, "--only", fmt.Sprintf("port=%d", port+1))
				thin("another port", dsl)
				exclude(iface, "--only", fmt.Sprintf("port=%d", port))
			case "mark":
				exclude(iface, "--only", "mark=7")
				thin("without a mark", dsl)
				mark(t, p.client, 7)
			case "cgroup":
				exclude(iface, "--only", "cgroup=mpcc-other")
				thin("another cgroup", dsl)
				exclude(iface, "--only", "cgroup=mpcc-test")
			case "remote address":
				exclude("remote=192.0.2.0/24")
				thin("another prefix", dsl)
				exclude("remote=" + netip.PrefixFrom(n.paths[dsl].Addr(n.client), 30).String())
			case "remote id":
				exclude("remote-id=7")
				thin("another id", dsl)
				exclude("remote-id=0")
			}
			time.Sleep(200 * time.Millisecond)
			thin("excluded", lte)
		})
	}
}

// Rules name paths by IPv6 prefixes, of either end, as well.
func TestOwnTimePreferIPv6(t *testing.T) {
	load(t, "sched/prefer")
	n := newPreferred(t)
	client, server := n.addIPv6(t, 1), n.addIPv6(t, 2)
	announce(t, n.server, server[lte])
	p := connect(t, n.client, n.server, server[dsl], mptcp.Options{}, "")
	p.read()
	p.trickle(t, 60e3, 20*time.Millisecond, 200*time.Millisecond)
	p.join(t, 2)
	for _, step := range []struct {
		what, excluded string
		at             int
	}{
		{"another prefix excluded", "remote=fd00:0:0:9::/64", dsl},
		{"the first path's prefix excluded", "remote=" + netip.PrefixFrom(server[dsl], 64).Masked().String(), lte},
		{"the second path's address excluded", "local=" + client[lte].String(), dsl},
	} {
		mpcc(t, "path", "set", step.excluded, "--netns", n.client.Namespace(), "--exclude")
		time.Sleep(200 * time.Millisecond)
		got := n.rates(t, lab.AtoB, func() { p.trickle(t, 250e3, 20*time.Millisecond, time.Second) })
		between(t, step.what+", Mbit/s where it may go", got[step.at], 1.5, 2.5)
		between(t, step.what+", Mbit/s on the other path", got[1-step.at], 0, 0.2)
		mpcc(t, "path", "reset", step.excluded, "--netns", n.client.Namespace())
	}
}

// addIPv6 gives one end of the paths, which is number 1 or 2, IPv6 addresses.
func (n twoPaths) addIPv6(t *testing.T, end int) (addrs [2]netip.Addr) {
	t.Helper()
	h := [2]*lab.Host{n.client, n.server}[end-1]
	for i, link := range n.paths {
		addrs[i] = netip.MustParseAddr(fmt.Sprintf("fd00:0:0:%d::%d", i+1, end))
		if err := h.Sysctl("net.ipv6.conf."+link.Interface(h)+".disable_ipv6", "0"); err != nil {
			t.Fatal(err)
		}
		out, err := h.Command(t.Context(), "ip", "addr", "add", addrs[i].String()+"/64", "dev", link.Interface(h), "nodad").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return addrs
}

// listening is the port that the connection was made to.
func (n twoPaths) listening(p pair) int { return int(p.listener.Addr().Port()) }

// enterCgroup makes a cgroup and has this process in it until the test ends.
func enterCgroup(t *testing.T, name string) {
	t.Helper()
	const root = "/sys/fs/cgroup"
	enter := func(folder string) {
		if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(root, name)
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		enter(root)
		if err := os.Remove(folder); err != nil {
			t.Error(err)
		}
	})
	enter(folder)
}

func mark(t *testing.T, conn *net.TCPConn, value int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, value) })
		err = errors.Join(err, failed)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Without any scheduler or congestion control of mpcc, a receiver has its peer obey ranks, quotas and exclusion: what
// the server sends keeps off paths that steer has made backups. A quota counts what crosses the interface.
func TestOwnTimeSteerByPaths(t *testing.T) {
	untouched(t)
	n := newTwoPaths(t, preferShapes)
	for i, path := range n.paths {
		if err := path.Set(lab.BtoA, preferShapes[i]); err != nil {
			t.Fatal(err)
		}
	}
	endpoints := []lab.MPTCPEndpoint{{Addr: n.paths[dsl].Addr(n.client)}, {Addr: n.paths[lte].Addr(n.client)}}
	if err := n.client.MPTCP(lab.MPTCPLimits{Subflows: 1, AddAddrAccepted: 1}, endpoints...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mpcc(t, "path", "reset", "--all", "--netns", n.client.Namespace()) })
	p := n.both(t).reverse()
	p.read()
	p.fill()
	time.Sleep(1500 * time.Millisecond)
	free := n.rates(t, lab.BtoA, during(time.Second))
	between(t, "Mbit/s on the first path, freely", free[dsl], 5, 10.5)
	between(t, "Mbit/s on the second path, freely", free[lte], 5, 10.5)

	n.prefer(t, lte, "--rank", "2", "--weight", "3", "--cap", "1mbit", "--spill") // of these, steer enforces the rank
	s := steer(t, n.client, "--paths")
	if c := s.next(t, 0); !c.Backup || c.Interface != n.paths[lte].Interface(n.client) || !strings.Contains(c.Rule, "rank 2") {
		t.Errorf("the change is %+v", c)
	}
	time.Sleep(time.Second)
	ranked := n.rates(t, lab.BtoA, during(time.Second))
	between(t, "Mbit/s on rank 1", ranked[dsl], 8, 10.5)
	between(t, "Mbit/s on rank 2", ranked[lte], 0, 0.1)

	before := n.wire(t, lab.BtoA)
	n.prefer(t, dsl, "--quota", "3M")
	if c := s.next(t, 2); !c.Backup || c.Interface != n.paths[dsl].Interface(n.client) || !strings.Contains(c.Rule, "quota 3M used up") {
		t.Errorf("with a quota the changes are %+v", s.seen(t))
	}
	got := n.wire(t, lab.BtoA)[dsl] - before[dsl]
	between(t, "bytes until the quota was used up", got, 2.9e6, 6e6)                               // it looks once a second, 1.25 MB
	between(t, "bytes counted for each that crossed the link", n.shown(t, dsl).Used/got, 0.8, 1.3) // the second before is counted too
	time.Sleep(time.Second)
	spent := n.rates(t, lab.BtoA, during(time.Second))
	between(t, "Mbit/s with the quota used up", spent[dsl], 0, 0.1)
	between(t, "Mbit/s on rank 2", spent[lte], 5, 10.5)

	n.prefer(t, lte, "--exclude") // comes after a quota that is used up
	if c := s.next(t, 4); !c.Backup || c.Interface != n.paths[lte].Interface(n.client) || !strings.Contains(c.Rule, "excluded") {
		t.Errorf("with an exclusion the changes are %+v", s.seen(t))
	}
	time.Sleep(time.Second)
	excluded := n.rates(t, lab.BtoA, during(time.Second))
	between(t, "Mbit/s on the path with the quota used up", excluded[dsl], 5, 10.5)
	between(t, "Mbit/s on the excluded path", excluded[lte], 0, 0.1)

	s.end(t, syscall.SIGTERM)
	for _, what := range []string{"weight", "cap", "spill"} {
		if said := what + " needs the packet scheduler prefer on the host that sends"; !strings.Contains(s.complaint.String(), said) {
			t.Errorf("it does not say %q: %s", said, s.complaint.String())
		}
	}
	for _, path := range n.paths {
		if f := flags(t, n.client, path); strings.Contains(f, "backup") {
			t.Errorf("it leaves the endpoint %q", f)
		}
	}
	if left := notes(t); len(left) > 0 {
		t.Errorf("it leaves %q", left)
	}
	p.close()
}
