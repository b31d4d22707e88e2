// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

const module = "mpcc_sched"

// withSchedulers gives the kernel a type of packet schedulers until the test ends.
func withSchedulers(t *testing.T) {
	t.Helper()
	must(t, "modprobe", module)
	t.Cleanup(func() { withoutSchedulers(t) })
}

// withoutSchedulers removes the module, if it is there. Nothing may hold it any more.
func withoutSchedulers(t *testing.T) {
	t.Helper()
	var out []byte
	if !eventually(untilFreed, func() bool {
		if _, err := os.Stat("/sys/module/" + module); err != nil {
			return true
		}
		var err error
		out, err = exec.Command("rmmod", module).CombinedOutput()
		return err == nil
	}) {
		t.Errorf("the module stays: %s", out)
	}
}

// schedulers picks a host's connections under packet schedulers.
func schedulers(t *testing.T, h *lab.Host) (found []connection) {
	t.Helper()
	for _, c := range readStatus(t).Connections {
		if c.Netns == h.Namespace() {
			found = append(found, c)
		}
	}
	return found
}

func handed(c connection) (bytes uint64) {
	for _, f := range c.Subflows {
		bytes += f.Bytes
	}
	return bytes
}

// A scheduler's programs stay with a connection through switch and unload, while it goes on undisturbed
// and status shows what it does:
//
//	        ┌── 1 Mbit/s, 20 ms ──┐
//	client ─┤                     ├─ server
//	        └── 1 Mbit/s, 20 ms ──┘
func TestSchedulerUnderTraffic(t *testing.T) {
	withSchedulers(t)
	untouched(t)
	earlier := structOps(t)["minrtt"]
	n := newTwoPaths(t, [2]lab.Shape{narrow, narrow})
	where := n.client.Namespace()
	prints(t, `^maps: .*\nminrtt: loaded\nminrtt: default of `+where+`\n$`, "load", "minrtt", "--default", "--netns", where)
	prints(t, `(?m)^minrtt is the default of network namespace `+where+` \(was default\)$`, "status")
	p := n.connect(t, "", "")
	x := p.transfer(longTransfer)
	p.join(t, 2)
	var shown connection
	if !eventually(10*time.Second, func() bool {
		if all := schedulers(t, n.client); len(all) == 1 {
			shown = all[0]
		}
		return len(shown.Subflows) == 2 && shown.Subflows[1].Chosen > 0
	}) {
		t.Fatalf("status does not show two subflows in use: %+v", shown)
	}
	checkScheduled(t, n, shown)

	prints(t, `^minrtt: switched; live connections keep the programs they have\n$`, "switch", "minrtt")
	programs(t, "minrtt", earlier, 2)
	later := n.connect(t, "", "")
	later.stream()
	later.join(t, 2)
	// The server's ends have sent nothing, and the namespace has the kernel's own.
	prints(t, `^minrtt: the default of network namespace `+where+` is default again\n`+
		`minrtt: unloaded; 2 live connections keep its programs until they close\n$`, "unload", "minrtt")
	programs(t, "minrtt", earlier, 2)
	before := schedulers(t, n.client)
	if !eventually(10*time.Second, func() bool {
		now := schedulers(t, n.client)
		return len(now) == 2 && handed(now[0]) > handed(before[0]) && handed(now[1]) > handed(before[1])
	}) {
		t.Error("the live state stands still after unload")
	}
	prints(t, `^nothing loaded\n`, "status")
	third := n.connect(t, "", "")
	third.transfer(1 << 10).wait(t)
	if all := schedulers(t, n.client); len(all) != 2 {
		t.Errorf("%d connections under minrtt after it was unloaded, want the 2 from before", len(all))
	}
	third.close()

	later.close()
	programs(t, "minrtt", earlier, 1)
	select {
	case end := <-x.sent:
		t.Fatalf("the transfer ended while there was still something to try: %+v", end)
	default:
	}
	n.widen(t)
	x.wait(t)
	checkBytes(t, n, p)
	p.close()
	programs(t, "minrtt", earlier, 0)
	// Any later command of mpcc removes maps that are no longer in use.
	if out, err := exec.Command(os.Getenv("MPCC_BIN"), "unload", "minrtt").CombinedOutput(); err == nil {
		t.Errorf("unloaded twice: %s", out)
	}
}

// A decision looks at eight subflows. Of a connection with nine, the most that the kernel makes, status shows
// these and tells of the other.
func TestSchedulerOfNineSubflows(t *testing.T) {
	load(t, "sched/minrtt")
	l := newLab(t)
	n := twoPaths{client: addHost(t, l, "client"), server: addHost(t, l, "server")}
	n.paths[0] = addLink(t, l, n.client, n.server, lab.Shape{Rate: 20e6, Delay: 5 * time.Millisecond, Queue: 100})
	addrs, err := n.paths[0].AddAddrs(n.client, 8)
	if err != nil {
		t.Fatal(err)
	}
	route(t, l)
	var endpoints []lab.MPTCPEndpoint
	for _, addr := range addrs {
		endpoints = append(endpoints, lab.MPTCPEndpoint{Addr: addr, Subflow: true})
	}
	limits := lab.MPTCPLimits{Subflows: 8}
	if err := errors.Join(n.server.MPTCP(limits), n.client.MPTCP(limits, endpoints...)); err != nil {
		t.Fatal(err)
	}
	n.schedule(t, "minrtt")
	p := n.connect(t, "", "")
	defer p.close()
	p.stream()
	p.join(t, 9)
	var shown []connection
	if !eventually(10*time.Second, func() bool {
		shown = schedulers(t, n.client)
		return len(shown) == 1 && len(shown[0].Subflows) == 8 && shown[0].LeftOut == 1
	}) {
		t.Errorf("status shows %+v, want one connection with 8 subflows and 1 left out", shown)
	}
}

// checkScheduled compares what names a connection and its subflows with what the kernel shows.
func checkScheduled(t *testing.T, n twoPaths, c connection) {
	t.Helper()
	share := 0.0
	for _, k := range sockets(t, n.client) {
		found := false
		for _, f := range c.Subflows {
			if f.LocalID == k.LocalID && f.RemoteID == k.RemoteID {
				found = true
				share += f.Share
				if link := n.paths[n.path(t, k.Local.Addr())]; f.Interface != link.Interface(n.client) || !f.Allowed || f.Backup {
					t.Errorf("subflow %+v, want one of %s", f, link.Interface(n.client))
				}
			}
		}
		if !found || c.Token != fmt.Sprintf("%08x", k.Token) || c.Scheduler != "minrtt" {
			t.Errorf("%+v in ss; mpcc shows %+v", k, c)
		}
	}
	if math.Abs(share-1) > 1e-9 {
		t.Errorf("the subflows' shares add up to %g", share)
	}
	prints(t, `(?m)^`+c.Token+` +1 +minrtt +`+n.paths[0].Interface(n.client)+` +\d+ +[0-9.]+ % `, "status")
}

// checkBytes compares what the scheduler says it handed to each subflow with what the kernel had sent and
// seen acknowledged when the connection came to rest. A last decision shows what came of those before it.
// The kernel counts the SYN as a byte.
func checkBytes(t *testing.T, n twoPaths, p pair) {
	t.Helper()
	rest := quiet(t, p.client)
	if _, err := p.client.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(p.server, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	all := schedulers(t, n.client)
	if len(all) != 1 || len(all[0].Subflows) != len(rest.Subflows) {
		t.Fatalf("connections %+v, want one with %d subflows", all, len(rest.Subflows))
	}
	for _, f := range all[0].Subflows {
		for _, k := range rest.Subflows {
			if k.ID == f.SubflowID && f.Bytes != k.TCP.Bytes_acked-1 {
				t.Errorf("subflow %d was handed %d bytes, the kernel has sent %d on it", f.SubflowID, f.Bytes, k.TCP.Bytes_acked-1)
			}
		}
		if f.Chosen == 0 || f.Chosen > all[0].Decisions || f.Share < 0.3 {
			t.Errorf("subflow %+v, of %d decisions on two equal paths", f, all[0].Decisions)
		}
	}
}

// A name that two kinds have, on the command line.
func TestOneKernelTwoAlgorithmsOfOneName(t *testing.T) {
	withSchedulers(t)
	untouched(t)
	out, err := exec.Command(os.Getenv("MPCC_BIN"), "load", "cdd").CombinedOutput()
	if want := `mpcc: "cdd" is more than one algorithm; say cc/cdd or sched/cdd` + "\n"; err == nil || string(out) != want {
		t.Errorf("load cdd: %v, %q", err, out)
	}
	for _, id := range []string{"cc/cdd", "sched/cdd"} {
		prints(t, "^(maps: .*\n)?"+id+": loaded\n$", "load", id)
	}
	n := newTwoPaths(t, [2]lab.Shape{})
	mpcc(t, "load", "sched/cdd", "--default", "--netns", n.client.Namespace())
	p := n.connect(t, "cdd", "")
	p.transfer(1 << 20).wait(t)
	if got, err := mptcp.CongestionControl(p.client); err != nil || got != "cdd" {
		t.Errorf("the connection runs %q: %v", got, err)
	}
	if all := schedulers(t, n.client); len(all) != 1 || all[0].Scheduler != "cdd" {
		t.Errorf("connections %+v", all)
	}
	text := string(mpcc(t, "status"))
	for _, want := range []string{"cc/cdd loaded\n", "sched/cdd loaded\n", "sched/cdd is the default of network namespace "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	p.close()
	mpcc(t, "unload", "--all")
}
