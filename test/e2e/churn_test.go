// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/checked"
	"github.com/mpcc/mpcc/test/loaded"
	"github.com/mpcc/mpcc/test/verified"
)

func TestVerifyChurn(t *testing.T) {
	r := verified.Record{Row: "connections", State: verified.Failed}
	if t.Run("connections", func(t *testing.T) { r.Figures = churn(t, 20_000) }) {
		r.State = verified.Passed
	}
	keep(t, verified.Table{r})
}

// churn opens and closes connections of up to four subflows, some at a time, under four congestion controls that are
// switched in turn, while links go down and up. Every byte arrives; in the end nothing is left of it.
// Endpoints stay: when they are removed under traffic Linux 6.18 delivers other bytes than were sent in one of some 2,000
// connections, also under its own cubic with nothing of mpcc's. Links that go down may do so too, more seldom.
//
//	        ┌── links[0] ──┐
//	        ├── links[1] ──┤
//	client ─┤              ├─ server    the first link stays; of the others one is down, mostly
//	        ├── links[2] ──┤
//	        └── links[3] ──┘
func churn(t *testing.T, connections int) map[string]float64 {
	const (
		atOnce = 8
		length = 32 << 10
	)
	loaded.Turn(t)
	complaints := kernelComplaints(t)
	untouched(t)
	objects := bpfObjects(t)
	t.Cleanup(func() {
		var now map[string]int
		if !eventually(time.Minute, func() bool {
			now = bpfObjects(t)
			return now["BPF maps"] <= objects["BPF maps"] && now["BPF programs"] <= objects["BPF programs"]
		}) {
			t.Errorf("the kernel has %v, had %v", now, objects)
		}
		if now := kernelComplaints(t); now != complaints {
			t.Errorf("the kernel has complained: %d times in all, %d before", now, complaints)
		}
	})
	ccs := verified.ChurnControls
	load(t, ccs...)
	l := newLab(t)
	client, server := addHost(t, l, "client"), addHost(t, l, "server")
	var links [4]*lab.Link
	var endpoints []lab.MPTCPEndpoint
	for i := range links {
		links[i] = addLink(t, l, client, server, lab.Shape{})
		if i > 0 {
			endpoints = append(endpoints, lab.MPTCPEndpoint{Addr: links[i].Addr(client), Subflow: true})
		}
	}
	limits := lab.MPTCPLimits{Subflows: 3}
	if err := errors.Join(l.Route(), server.MPTCP(limits), client.MPTCP(limits, endpoints...)); err != nil {
		t.Fatal(err)
	}
	files := openFiles(t)
	var listener *mptcp.Listener
	if err := server.Do(func() (err error) {
		listener, err = mptcp.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), 0), "reno")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept(t.Context())
			if err != nil {
				return // closed
			}
			running.Go(func() {
				defer conn.Close()
				_, err := checked.Receive(conn)
				if err == nil {
					_, err = checked.Receive(conn)
				}
				if err != nil {
					t.Errorf("server: %v", err)
				}
			})
		}
	})

	// What goes on beside the connections.
	ended := make(chan struct{})
	changes, switches := 0, 0
	var changing sync.WaitGroup
	changing.Go(func() {
		down := 0
		for {
			select {
			case <-ended:
				return
			case <-time.After(100 * time.Millisecond):
			}
			var err error
			if down > 0 {
				err = links[down].Up()
			}
			down = 1 + changes%3
			if err = errors.Join(err, links[down].Down()); err != nil {
				t.Error(err)
				return
			}
			changes++
		}
	})
	changing.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Second):
			}
			if out, err := exec.Command(os.Getenv("MPCC_BIN"), "switch", ccs[switches%len(ccs)]).CombinedOutput(); err != nil {
				t.Errorf("switch: %v: %s", err, out)
				return
			}
			switches++
		}
	})

	port := listener.Addr().Port()
	one := func(i int) error {
		var conn *net.TCPConn
		err := client.Do(func() (err error) {
			conn, err = mptcp.Dial(t.Context(), netip.AddrPortFrom(links[0].Addr(server), port), mptcp.Options{CC: ccs[i%len(ccs)]})
			return err
		})
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := checked.Send(conn, checked.Transfer{Bytes: length, Seed: uint64(i)}); err != nil {
			return err
		}
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if info, err := mptcp.ReadInfo(conn); err != nil {
				return err
			} else if len(info.Subflows) > 1 {
				break
			}
		}
		_, err = checked.Send(conn, checked.Transfer{Bytes: rand.Int64N(2 * length), Seed: uint64(i)})
		return err
	}
	var next atomic.Int64
	start := time.Now()
	var sending sync.WaitGroup
	for range atOnce {
		sending.Go(func() {
			for i := int(next.Add(1)); i <= connections && !t.Failed(); i = int(next.Add(1)) {
				if err := one(i); err != nil {
					t.Errorf("connection %d: %v", i, err)
				}
			}
		})
	}
	sending.Wait()
	took := time.Since(start)
	close(ended)
	changing.Wait()
	for _, link := range links[1:] {
		if err := link.Up(); err != nil { // what is closing there has to get through
			t.Error(err)
		}
	}
	listener.Close()
	running.Wait()

	var s status
	if !eventually(2*time.Minute, func() bool { s = readStatus(t); return len(s.of(client))+len(s.of(server)) == 0 }) {
		t.Errorf("%d live subflows are left", len(s.of(client))+len(s.of(server)))
	}
	var opened, closed uint64
	for _, sum := range s.Totals {
		if sum.Netns == client.Namespace() {
			opened, closed = opened+sum.Opened, closed+sum.Closed
		}
	}
	if opened != closed || s.Lost.Subflows != 0 {
		t.Errorf("%d subflows were opened, %d closed, %d not recorded", opened, closed, s.Lost.Subflows)
	}
	if opened < uint64(connections)*3/2 {
		t.Errorf("%d connections had %d subflows in all", connections, opened)
	}
	for _, h := range []*lab.Host{client, server} {
		left := ""
		if !eventually(2*time.Minute, func() bool { left = socketsLeft(t, h); return left == "" }) {
			t.Errorf("sockets are left on %s: %s", h.Name(), left)
		}
	}
	if now := openFiles(t); now > files {
		t.Errorf("%d files are open, %d were before", now, files)
	}
	t.Logf("%d connections with %d subflows in %v, %d changes of links, %d switches", connections, opened, took.Round(time.Second), changes, switches)
	return map[string]float64{
		"connections": float64(connections), "subflows": float64(opened), "changes": float64(changes), "switches": float64(switches), "seconds": took.Seconds(),
	}
}

// socketsLeft names what a host's kernel still has of sockets of TCP and MPTCP.
func socketsLeft(t *testing.T, h *lab.Host) (left string) {
	t.Helper()
	var text []byte
	if err := h.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/protocols")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if (words[0] == "TCP" || words[0] == "MPTCP") && words[2] != "0" {
			left += fmt.Sprintf("%s of %s ", words[2], words[0])
		}
	}
	return left
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// bpfObjects counts what the kernel has.
func bpfObjects(t *testing.T) map[string]int {
	t.Helper()
	use := map[string]int{}
	count := func(kind string, next func(uint32) (uint32, error)) {
		id, err := next(0)
		for ; err == nil; id, err = next(id) {
			use[kind]++
		}
		if !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	count("BPF maps", func(id uint32) (uint32, error) {
		next, err := ebpf.MapGetNextID(ebpf.MapID(id))
		return uint32(next), err
	})
	count("BPF programs", func(id uint32) (uint32, error) {
		next, err := ebpf.ProgramGetNextID(ebpf.ProgramID(id))
		return uint32(next), err
	})
	return use
}

// kernelComplaint is as in internal/vm, which looks at a VM's console.
var kernelComplaint = regexp.MustCompile(`WARNING:|BUG:|Oops|general protection|rcu: INFO`)

// kernelComplaints counts the complaints in the kernel's log.
func kernelComplaints(t *testing.T) int {
	t.Helper()
	size, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil)
	if err != nil {
		t.Fatal(err)
	}
	log := make([]byte, size)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, log)
	if err != nil {
		t.Fatal(err)
	}
	return len(kernelComplaint.FindAll(log[:n], -1))
}
