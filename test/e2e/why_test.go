// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/why"
)

// provoked is a cause that a test brings about, and what mpcc why made of it.
type provoked struct{ what, want, got, mend string }

// confusion prints what was provoked and what was found, and fails where these differ.
func confusion(t *testing.T, all []provoked) {
	t.Helper()
	var table strings.Builder
	right := 0
	for _, p := range all {
		mark := "wrong"
		if p.got == p.want {
			mark = "right"
			right++
		} else {
			t.Errorf("%s: found %q, provoked %q", p.what, p.got, p.want)
		}
		fmt.Fprintf(&table, "%-50s %-22s %-22s %s\n", p.what, p.want, p.got, mark)
	}
	t.Logf("%d of %d right\n%-50s %-22s %s\n%s", right, len(all), "PROVOKED", "CAUSE", "FOUND", table.String())
}

// explained is what why makes of a connection, or, where that is not MPTCP, of all. Where that is not the cause that was
// provoked, it logs what why says, and the evidence.
func explained(t *testing.T, what, want string, h *lab.Host, conn net.Conn, interval time.Duration) provoked {
	t.Helper()
	e, err := why.Gather(t.Context(), why.Options{Netns: h.Namespace(), Interval: interval})
	if err != nil {
		t.Fatal(err)
	}
	r := why.Judge(e)
	findings := r.Host
	for _, c := range r.Connections {
		if c.Local.String() == conn.LocalAddr().String() {
			findings = c.Findings
		}
	}
	p := provoked{what: what, want: want, got: "silent"}
	if len(findings) > 0 {
		p.got, p.mend = findings[0].Cause, findings[0].Mend
	}
	for _, f := range findings {
		if p.got != want {
			t.Logf("%s: %s\n    %s\n    mend: %s", what, f.Says, strings.Join(f.Evidence, "\n    "), f.Mend)
		}
		if strings.ContainsAny(f.Says+f.Mend, "{}") || f.Says == "" || len(f.Evidence) == 0 {
			t.Errorf("not in whole words: %+v", f)
		}
	}
	if p.got != want {
		t.Logf("the evidence: %+v", e)
	}
	return p
}

const shortLook, longLook = 500 * time.Millisecond, 2 * time.Second

// even is 10 Mbit/s and 20 ms, with a queue of two bandwidth-delay products.
var even = lab.Shape{Rate: 10e6, Delay: 10 * time.Millisecond, Queue: 35}

// filter has a host's firewall take rules for what it receives.
func filter(t *testing.T, h *lab.Host, rules ...string) {
	t.Helper()
	cmd := h.Command(t.Context(), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader("table inet why { chain in { type filter hook input priority -150; policy accept;\n" +
		strings.Join(rules, "\n") + "\n}\n}\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func (n twoPaths) ip(t *testing.T, args ...string) {
	t.Helper()
	must(t, "ip", append([]string{"-n", n.client.Namespace()}, args...)...)
}

// subflowEndpoint has the client open subflows from its address on the second path.
func (n twoPaths) subflowEndpoint(t *testing.T) {
	t.Helper()
	n.manage(t, lab.MPTCPLimits{Subflows: 1}, lab.MPTCPEndpoint{Addr: n.paths[1].Addr(n.client), Subflow: true})
}

// manage tells the client's path manager, and has the server announce nothing.
func (n twoPaths) manage(t *testing.T, limits lab.MPTCPLimits, endpoints ...lab.MPTCPEndpoint) {
	t.Helper()
	announce(t, n.server, netip.Addr{})
	if err := n.client.MPTCP(limits, endpoints...); err != nil {
		t.Fatal(err)
	}
}

// begun is a connection over the first path on which some data has been acknowledged.
func (n twoPaths) begun(t *testing.T) pair {
	t.Helper()
	p := n.connect(t, "", "")
	p.read()
	p.trickle(t, 50e3, 20*time.Millisecond, 200*time.Millisecond)
	time.Sleep(200 * time.Millisecond) // for the join, or what becomes of it
	return p
}

// filled is a connection that sends all it can over both paths, for as long as it takes to fill them.
func (n twoPaths) filled(t *testing.T, o mptcp.Options) pair {
	t.Helper()
	p := connect(t, n.client, n.server, n.paths[0].Addr(n.server), o, "")
	p.stream()
	p.join(t, 2)
	time.Sleep(1500 * time.Millisecond)
	return p
}

// drip lets the client send 100 kB/s until close.
func (p pair) drip() {
	go func() {
		for piece := make([]byte, 2000); ; time.Sleep(20 * time.Millisecond) {
			if _, err := p.client.Write(piece); err != nil {
				return
			}
		}
	}()
}

// plain is a connection to a server that is, at either end, MPTCP or TCP. It is the client's end.
func (n twoPaths) plain(t *testing.T, client, server bool) net.Conn {
	t.Helper()
	var ln net.Listener
	err := n.server.Do(func() (err error) {
		var lc net.ListenConfig
		lc.SetMultipathTCP(server)
		ln, err = lc.Listen(t.Context(), "tcp4", "0.0.0.0:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	var conn net.Conn
	err = n.client.Do(func() (err error) {
		var d net.Dialer
		d.SetMultipathTCP(client)
		port := uint16(ln.Addr().(*net.TCPAddr).Port)
		conn, err = d.DialContext(t.Context(), "tcp4", netip.AddrPortFrom(n.paths[0].Addr(n.server), port).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	for range 10 {
		if _, err := conn.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return conn
}

// Each cause is provoked on a network of its own, with nothing of mpcc loaded:
//
//	        ┌── 10 Mbit/s, 20 ms ──┐
//	client ─┤                      ├─ server
//	        └── 10 Mbit/s, 20 ms ──┘
//
// A middlebox is what the server's firewall does to packets that come.
func TestOwnTimeWhy(t *testing.T) {
	var all []provoked
	note := func(what, want string, h *lab.Host, conn net.Conn, interval time.Duration) (mend string) {
		t.Helper()
		all = append(all, explained(t, what, want, h, conn, interval))
		return all[len(all)-1].mend
	}
	each := func(name string, shapes [2]lab.Shape, provoke func(t *testing.T, n twoPaths)) {
		t.Run(name, func(t *testing.T) { provoke(t, newTwoPaths(t, shapes)) })
	}
	both := [2]lab.Shape{even, even}

	each("settings", both, func(t *testing.T, n twoPaths) {
		second := n.paths[1].Addr(n.client)
		n.subflowEndpoint(t) // and not by announcing, which would acknowledge data
		p := n.connect(t, "", "")
		note("nothing sent yet", "no-data-yet", n.client, p.client, shortLook)
		p.close()

		n.manage(t, lab.MPTCPLimits{Subflows: 0}, lab.MPTCPEndpoint{Addr: second, Subflow: true})
		p = n.begun(t)
		note("limit of 0 subflows", "limit-subflows", n.client, p.client, shortLook)
		note("the other end of it", "peer-opens-none", n.server, p.server, shortLook)
		p.close()

		n.manage(t, lab.MPTCPLimits{Subflows: 1})
		p = n.begun(t)
		mend := note("no endpoint", "no-endpoint", n.client, p.client, shortLook)
		// The command mends it, in the connection that is there. Its subflow is bound to the interface: answers must not
		// come by the other one, as the lab has it.
		must(t, "ip", "-n", n.server.Namespace(), "rule", "add", "to", second.String(), "prio", "10", "lookup", "main")
		must(t, "sh", "-c", mend)
		p.join(t, 2)
		p.close()

		n.manage(t, lab.MPTCPLimits{Subflows: 1}, lab.MPTCPEndpoint{Addr: second, Signal: true})
		p = n.begun(t)
		mend = note("endpoint that is only announced", "endpoint-not-subflow", n.client, p.client, shortLook)
		must(t, "sh", "-c", mend)
		p.join(t, 2)
		p.close()

		n.manage(t, lab.MPTCPLimits{Subflows: 1})
		announce(t, n.server, n.paths[1].Addr(n.server))
		p = n.begun(t)
		note("limit of 0 announced addresses", "limit-add-addr", n.client, p.client, shortLook)
		p.close()

		if err := n.client.Sysctl("net.mptcp.pm_type", "1"); err != nil {
			t.Fatal(err)
		}
		p = n.begun(t)
		note("a userspace path manager that does nothing", "userspace-pm", n.client, p.client, shortLook)
		p.close()
	})
	each("TCP", both, func(t *testing.T, n twoPaths) {
		conn := n.plain(t, false, true)
		note("the application has a TCP socket", "plain-tcp", n.client, conn, shortLook)
		note("what an MPTCP listener sees of it", "peer-without-mptcp", n.server, conn, shortLook)
		conn.Close()
		note("the server has a TCP socket", "peer-without-mptcp", n.client, n.plain(t, true, false), shortLook)
	})
	each("disabled", both, func(t *testing.T, n twoPaths) {
		if err := n.client.Sysctl("net.mptcp.enabled", "0"); err != nil {
			t.Fatal(err)
		}
		note("MPTCP disabled", "mptcp-disabled", n.client, n.plain(t, true, true), shortLook)
	})
	each("stripped at once", both, func(t *testing.T, n twoPaths) {
		filter(t, n.server, "tcp option mptcp exists reset tcp option mptcp")
		note("a middlebox strips all options", "peer-without-mptcp", n.client, n.plain(t, true, true), shortLook)
	})
	each("stripped later", both, func(t *testing.T, n twoPaths) {
		filter(t, n.server, "tcp flags & syn == 0 tcp option mptcp exists reset tcp option mptcp")
		note("a middlebox strips options after the handshake", "options-stripped", n.client, n.plain(t, true, true), shortLook)
	})
	each("dropped", both, func(t *testing.T, n twoPaths) {
		filter(t, n.server, "tcp flags & syn == syn tcp option mptcp exists drop")
		note("a middlebox drops SYNs with MPTCP", "syn-blocked", n.client, n.plain(t, true, true), shortLook)
	})
	each("changed", both, func(t *testing.T, n twoPaths) {
		n.manage(t, lab.MPTCPLimits{})
		for _, h := range []*lab.Host{n.client, n.server} {
			if err := h.Sysctl("net.mptcp.checksum_enabled", "1"); err != nil {
				t.Fatal(err)
			}
		}
		p := n.begun(t)
		tc := []string{"-n", n.client.Namespace()}
		dev := n.paths[0].Interface(n.client)
		must(t, "tc", append(tc, "qdisc", "add", "dev", dev, "clsact")...)
		must(t, "tc", append(tc, strings.Fields("filter add dev "+dev+" egress protocol ip u32 match u16 0x0400 0xfc00 at 2 "+
			"action pedit munge offset 148 u8 invert pipe csum tcp")...)...)
		p.trickle(t, 70e3, 20*time.Millisecond, 200*time.Millisecond)
		note("a middlebox changes content", "checksum-failed", n.client, p.client, shortLook)
	})
	each("one address", both, func(t *testing.T, n twoPaths) {
		n.manage(t, lab.MPTCPLimits{Subflows: 1})
		n.ip(t, "addr", "flush", "dev", n.paths[1].Interface(n.client))
		note("a host with one address", "no-second-address", n.client, n.begun(t).client, shortLook)
	})
	each("refused", both, func(t *testing.T, n twoPaths) {
		n.subflowEndpoint(t)
		if err := n.server.MPTCP(lab.MPTCPLimits{}); err != nil {
			t.Fatal(err)
		}
		note("limit of 0 subflows at the peer", "join-refused", n.client, n.begun(t).client, shortLook)
	})
	for what, c := range map[string]struct{ verdict, want string }{
		"a firewall drops joins":        {"drop", "join-blocked"},
		"a firewall resets joins":       {"reject with tcp reset", "join-reset"},
		"a middlebox strips join's SYN": {"tcp option mptcp exists reset tcp option mptcp", "join-stripped"},
	} {
		each(what, both, func(t *testing.T, n twoPaths) {
			n.subflowEndpoint(t)
			filter(t, n.server, "iifname "+n.paths[1].Interface(n.server)+" ip protocol tcp "+c.verdict)
			note(what, c.want, n.client, n.begun(t).client, shortLook)
		})
	}
	each("routes", both, func(t *testing.T, n twoPaths) {
		n.subflowEndpoint(t)
		second := n.paths[1].Addr(n.client).String()
		n.ip(t, "rule", "add", "from", second, "prio", "10", "unreachable")
		p := n.begun(t)
		note("no route from the second address", "no-route", n.client, p.client, shortLook)
		p.close()
		n.ip(t, "rule", "del", "prio", "10")
		n.ip(t, "rule", "add", "from", second, "prio", "10", "lookup", "main")
		p = n.begun(t)
		note("both leave by one interface: no source route", "source-route", n.client, p.client, shortLook)
		p.close()
		n.ip(t, "link", "set", n.paths[1].Interface(n.client), "down")
		p = n.begun(t)
		note("the second link is down", "link-down", n.client, p.client, shortLook)
		p.close()
	})

	// Paths that differ: with queues filled in step, they would look as one.
	each("load", [2]lab.Shape{even, {Rate: 8e6, Delay: 15 * time.Millisecond, Queue: 25}}, func(t *testing.T, n twoPaths) {
		p := n.filled(t, mptcp.Options{})
		note("nothing is wrong", "aggregating", n.client, p.client, longLook)
		note("the receiver of that", "aggregating", n.server, p.server, longLook)
		p.close()
		p = n.begun(t)
		p.join(t, 2)
		note("an application that sends nothing", "idle", n.client, p.client, shortLook)
		p.drip()
		note("an application that sends little", "application", n.client, p.client, longLook)
		p.close()
	})
	each("one interface", both, func(t *testing.T, n twoPaths) {
		more, err := n.paths[0].AddAddrs(n.client, 1)
		if err != nil {
			t.Fatal(err)
		}
		n.manage(t, lab.MPTCPLimits{Subflows: 1}, lab.MPTCPEndpoint{Addr: more[0], Subflow: true})
		note("two addresses of one interface", "shared-interface", n.client, n.filled(t, mptcp.Options{}).client, longLook)
	})
	each("backup", both, func(t *testing.T, n twoPaths) {
		n.manage(t, lab.MPTCPLimits{Subflows: 1}, lab.MPTCPEndpoint{Addr: n.paths[1].Addr(n.client), Subflow: true, Backup: true})
		p := n.filled(t, mptcp.Options{})
		must(t, "sh", "-c", note("a backup", "backup", n.client, p.client, shortLook))
		time.Sleep(time.Second) // the windows grow
		note("a backup that the command has put in use", "aggregating", n.client, p.client, longLook)
	})
	each("dead", both, func(t *testing.T, n twoPaths) {
		p := n.filled(t, mptcp.Options{})
		n.lose(t, 1, even, 100, lab.AtoB, lab.BtoA)
		time.Sleep(3 * time.Second)
		note("a path that has died", "path-dead", n.client, p.client, shortLook)
	})
	buffers := [2]lab.Shape{{Rate: 10e6, Delay: 25 * time.Millisecond, Queue: 40}, {Rate: 10e6, Delay: 25 * time.Millisecond, Queue: 40}}
	each("send buffer", buffers, func(t *testing.T, n twoPaths) {
		note("a small send buffer", "send-buffer", n.client, n.filled(t, mptcp.Options{SendBuffer: 16 << 10}).client, longLook)
	})
	each("receive buffer", buffers, func(t *testing.T, n twoPaths) {
		if err := n.server.Sysctl("net.ipv4.tcp_rmem", "4096 32768 32768"); err != nil {
			t.Fatal(err)
		}
		note("a small receive buffer", "receive-buffer", n.client, n.filled(t, mptcp.Options{}).client, longLook)
	})
	each("slow reader", both, func(t *testing.T, n twoPaths) {
		p := n.connect(t, "", "")
		p.fill()
		go func() {
			for piece := make([]byte, 2000); ; time.Sleep(20 * time.Millisecond) {
				if _, err := p.server.Read(piece); err != nil {
					return
				}
			}
		}()
		p.join(t, 2)
		time.Sleep(8 * time.Second) // until its buffer is full
		note("an application that reads slowly", "peer-reads-slowly", n.client, p.client, longLook)
		note("the other end of it", "reads-slowly", n.server, p.server, longLook)
	})
	each("loss", [2]lab.Shape{even, {Rate: 10e6, Delay: 10 * time.Millisecond, Queue: 35, Loss: 4}}, func(t *testing.T, n twoPaths) {
		p := n.filled(t, mptcp.Options{})
		time.Sleep(2 * time.Second)
		note("a path that loses 4 %", "loss", n.client, p.client, 2*longLook)
		note("the other end of it", "peer-decides", n.server, p.server, 2*longLook)
	})
	each("RTT", [2]lab.Shape{{Delay: 5 * time.Millisecond, Loss: 1}, {Delay: 100 * time.Millisecond, Loss: 1}}, func(t *testing.T, n twoPaths) {
		p := n.filled(t, mptcp.Options{})
		time.Sleep(3 * time.Second)
		note("a path of 200 ms beside one of 10, both lossy", "rtt", n.client, p.client, 2*longLook)
	})
	each("slow link", [2]lab.Shape{even, {Rate: 1e6, Delay: 10 * time.Millisecond, Queue: 10}}, func(t *testing.T, n twoPaths) {
		note("a path of 1 Mbit/s beside one of 10", "path-rate", n.client, n.filled(t, mptcp.Options{}).client, 2*longLook)
	})
	each("slowing down", [2]lab.Shape{even, even}, func(t *testing.T, n twoPaths) {
		p := n.filled(t, mptcp.Options{})
		time.Sleep(2 * time.Second)
		slow := even
		slow.Rate = 0.1e6
		if err := n.paths[1].Set(lab.AtoB, slow); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		note("a path that slows down to 0.1 Mbit/s beside one of 10", "held-up", n.client, p.client, longLook)
	})
	t.Run("shared bottleneck", func(t *testing.T) {
		n := newSharedBottleneck(t, even)
		p := connect(t, n.client, n.server, n.bottleneck.Addr(n.server), mptcp.Options{}, "")
		p.stream()
		p.join(t, 2)
		time.Sleep(2 * time.Second)
		note("a shared bottleneck", "shared-bottleneck", n.client, p.client, 4*longLook)
	})
	confusion(t, all)
}

// What mpcc's own programs do is told where they are loaded.
func TestOwnTimeWhyLoaded(t *testing.T) {
	load(t, "emreno", "sched/prefer", "sched/redundant", "sched/esmptcp", "--set", "paper")
	var all []provoked
	t.Run("prices", func(t *testing.T) {
		shape := lab.Shape{Delay: 15 * time.Millisecond, Loss: 0.7}
		n := newTwoPaths(t, [2]lab.Shape{shape, shape})
		n.price(t, 100, 1600)
		p := n.filled(t, mptcp.Options{CC: "emreno"})
		time.Sleep(6 * time.Second)
		all = append(all, explained(t, "a dear path", "energy-price", n.client, p.client, 2*longLook))
	})
	t.Run("redundant", func(t *testing.T) {
		n := newTwoPaths(t, [2]lab.Shape{even, even})
		n.schedule(t, "redundant")
		p := n.begun(t)
		p.join(t, 2)
		p.drip()
		all = append(all, explained(t, "the redundant scheduler", "redundant", n.client, p.client, longLook))
	})
	t.Run("subset", func(t *testing.T) {
		n := newTwoPaths(t, [2]lab.Shape{even, even})
		n.price(t, 100, 16000)
		n.schedule(t, "esmptcp")
		p := n.filled(t, mptcp.Options{})
		all = append(all, explained(t, "a path that the scheduler does not choose", "scheduler", n.client, p.client, longLook))
	})
	t.Run("rules", func(t *testing.T) {
		n := newPreferred(t)
		n.prefer(t, lte, "--exclude")
		p := n.filled(t, mptcp.Options{})
		all = append(all, explained(t, "a path excluded by the user", "path-rule", n.client, p.client, longLook))

		// The command says the same.
		info, err := mptcp.ReadInfo(p.client)
		if err != nil {
			t.Fatal(err)
		}
		var r why.Report
		token := fmt.Sprintf("%08x", info.Token)
		text := mpcc(t, "why", token, "--netns", n.client.Namespace(), "--interval", "1s", "-j")
		if err := json.Unmarshal(text, &r); err == nil {
			t.Error("the report is not meant to be read back: durations have units there")
		}
		if !strings.Contains(string(text), `"cause": "path-rule"`) || !strings.Contains(string(text), `"token": "`+token+`"`) {
			t.Errorf("mpcc why says\n%s", text)
		}
	})
	confusion(t, all)
}
