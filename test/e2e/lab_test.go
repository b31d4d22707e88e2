// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mpcc/mpcc/bpf/catalog"
	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/checked"
	"github.com/mpcc/mpcc/test/hosts"
	"github.com/mpcc/mpcc/test/ss"
)

// mpcc runs a command of mpcc as a user would and returns what it printed.
func mpcc(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(os.Getenv("MPCC_BIN"), args...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("mpcc %s: %v: %s", strings.Join(args, " "), err, complaint.Bytes())
	}
	return out
}

// load loads algorithms, with arguments as mpcc load takes them, until the test
// ends, which must leave the machine as it was: call it before anything else is
// made. Packet schedulers get the module that they need.
func load(t *testing.T, args ...string) {
	t.Helper()
	if slices.ContainsFunc(args, isScheduler) {
		withSchedulers(t)
	}
	before := traces(t)
	t.Cleanup(func() {
		mpcc(t, "unload", "--all")
		var after map[string]string
		gone := eventually(10*time.Second, func() bool {
			after = traces(t)
			return maps.Equal(after, before)
		})
		if !gone {
			t.Errorf("left behind: before %v, after %v", before, after)
		}
	})
	mpcc(t, append([]string{"load"}, args...)...)
}

// isScheduler says whether an argument names a packet scheduler.
func isScheduler(arg string) bool {
	entry, err := catalog.Find(arg)
	return err == nil && entry.Kind == catalog.Sched
}

// traces is everything on the machine that mpcc and the tests may touch.
func traces(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{
		"/sys/fs/bpf/*", "/run/netns/*", "/run/mpcc/defaults.json*", "/run/mpcc/.defaults.json*", "/run/mpcc/lab/*", "/run/mpcc/pieces", "/run/mpcc/*applied.json*", "/var/lib/mpcc/*pending.json*", "/sys/class/net/*",
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			found[path] = "there"
		}
	}
	settings, err := filepath.Glob("/proc/sys/net/mptcp/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(settings,
		"/proc/sys/net/core/high_order_alloc_disable",
		"/proc/sys/net/ipv4/tcp_congestion_control",
		"/proc/sys/net/ipv4/tcp_available_congestion_control",
		"/proc/sys/net/ipv4/tcp_allowed_congestion_control") {
		value, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found[path] = strings.TrimSpace(string(value))
	}
	return found
}

// names are the algorithms' names without their kinds.
func names(ids []string) (names []string) {
	for _, id := range ids {
		_, name, _ := strings.Cut(id, "/")
		names = append(names, name)
	}
	return names
}

// sideBySide runs a subtest for each name at the same time, as most of what they do is to wait for a network,
// and returns what each has measured.
func sideBySide[T any](t *testing.T, names []string, measure func(t *testing.T, name string) T) map[string]T {
	t.Helper()
	var running sync.WaitGroup
	var mu sync.Mutex
	measured := map[string]T{}
	for _, name := range names {
		running.Go(func() {
			t.Run(name, func(t *testing.T) {
				m := measure(t, name)
				mu.Lock()
				defer mu.Unlock()
				measured[name] = m
			})
		})
	}
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return measured
}

// eventually waits until the condition holds, and returns false if that takes too long. On the machine itself, which may
// do much else, that is ten times as long as in a VM.
func eventually(timeout time.Duration, what func() bool) bool {
	if os.Getenv("MPCC_KERNEL") == "" {
		timeout *= 10
	}
	for deadline := time.Now().Add(timeout); !what(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// untilFreed is longer than the kernel keeps what a closed socket holds: one whose last packets are lost when its
// network is taken down waits for TCP's eight retransmissions, which take 102 s at least and 51 s more at most.
const untilFreed = 4 * time.Minute

// status is `mpcc status -j`, as far as the tests read it.
type status struct {
	Subflows    []live
	Totals      []total
	Connections []connection
	Unpriced    []unpriced
	Outdated    []outdated
	Lost        struct{ Subflows, Totals, Siblings uint64 }
}

type outdated struct {
	PID         int
	Netns       string `json:"netns_name"`
	Scheduler   string
	Listens     string
	Connections int
}

type unpriced struct {
	Algorithm string
	Netns     string `json:"netns_name"`
	Interface string
}

type live struct {
	Token         string
	SubflowID     uint32 `json:"subflow_id"`
	LocalID       uint8  `json:"local_id"`
	RemoteID      uint8  `json:"remote_id"`
	CC            string
	Netns         string `json:"netns_name"`
	Interface     string
	Local, Remote netip.AddrPort
	Backup        bool
	Cwnd          int     `json:"cwnd_packets"`
	Ssthresh      *int    `json:"ssthresh_packets"`
	SRTT          float64 `json:"srtt_us"`
	BaseRTT       float64 `json:"base_rtt_us"`
	BytesAcked    uint64  `json:"bytes_acked"`
	BytesReceived uint64  `json:"bytes_received"`
	Retrans       uint64  `json:"segments_retransmitted"`
	Coupling      float64
	Updated       float64 `json:"updated_seconds_ago"`
}

// connection is one under a packet scheduler.
type connection struct {
	Token     string
	Scheduler string
	Netns     string `json:"netns_name"`
	Decisions uint64
	Repeats   uint64
	LeftOut   uint32 `json:"subflows_left_out"`
	Subflows  []scheduled
}

type scheduled struct {
	SubflowID uint32 `json:"subflow_id"`
	LocalID   uint8  `json:"local_id"`
	RemoteID  uint8  `json:"remote_id"`
	Interface string
	Backup    bool
	Allowed   bool
	Bytes     uint64
	Share     float64
	Chosen    uint64
	Repeated  uint64
	Arrival   *float64 `json:"expected_arrival_us"`
	Held      *uint64  `json:"held_bytes"`
	Rate      *float64 `json:"expected_rate_mbit_per_second"`
}

type total struct {
	CC            string
	Netns         string `json:"netns_name"`
	Interface     string
	Opened        uint64  `json:"subflows_opened"`
	Closed        uint64  `json:"subflows_closed"`
	BytesAcked    uint64  `json:"bytes_acked"`
	BytesReceived uint64  `json:"bytes_received"`
	Joules        float64 `json:"energy_joules"`
}

func readStatus(t *testing.T) status {
	t.Helper()
	var s status
	if err := json.Unmarshal(mpcc(t, "status", "-j"), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// of picks the live subflows of a host.
func (s status) of(h *lab.Host) []live {
	return slices.DeleteFunc(slices.Clone(s.Subflows), func(f live) bool { return f.Netns != h.Namespace() })
}

// total picks a host's total; nothing has been counted where there is none.
func (s status) total(h *lab.Host, iface, cc string) total {
	for _, sum := range s.Totals {
		if sum.Netns == h.Namespace() && sum.Interface == iface && sum.CC == cc {
			return sum
		}
	}
	return total{}
}

func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	l, _ := hosts.New(t)
	return l
}

func addHost(t *testing.T, l *lab.Lab, name string) *lab.Host {
	t.Helper()
	h, err := l.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func addRouter(t *testing.T, l *lab.Lab, name string) *lab.Host {
	t.Helper()
	h, err := l.Router(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// addLink links from and to. There it has the shape, back only its delay.
func addLink(t *testing.T, l *lab.Lab, from, to *lab.Host, there lab.Shape) *lab.Link {
	t.Helper()
	link, err := l.Link(from, to, lab.LinkOpts{AtoB: there, BtoA: lab.Shape{Delay: there.Delay}})
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// netem says why this kernel has none, without which links have no delay and no loss.
var netem = sync.OnceValue(func() error { return lab.Has("netem") })

// route ends the making of a lab.
func route(t *testing.T, l *lab.Lab) {
	t.Helper()
	if err := l.Route(); err != nil {
		t.Fatal(err)
	}
	if err := netem(); err != nil {
		t.Fatal(err)
	}
}

// announce makes h announce an address to its MPTCP peers, or none with the
// zero address; peers that accept join it by a second subflow.
func announce(t *testing.T, h *lab.Host, addr netip.Addr) {
	t.Helper()
	var endpoints []lab.MPTCPEndpoint
	if addr.IsValid() {
		endpoints = append(endpoints, lab.MPTCPEndpoint{Addr: addr, Signal: true})
	}
	if err := h.MPTCP(lab.MPTCPLimits{Subflows: 1}, endpoints...); err != nil {
		t.Fatal(err)
	}
}

// accept makes h join an address that its peer announces.
func accept(t *testing.T, h *lab.Host) {
	t.Helper()
	if err := h.MPTCP(lab.MPTCPLimits{Subflows: 1, AddAddrAccepted: 1}); err != nil {
		t.Fatal(err)
	}
}

// twoPaths is
//
//	        ┌── paths[0] ──┐
//	client ─┤              ├─ server
//	        └── paths[1] ──┘
type twoPaths struct {
	client, server *lab.Host
	paths          [2]*lab.Link
}

// newTwoPaths shapes the way from client to server. Connections of the client
// to paths[0] get a second subflow over paths[1].
func newTwoPaths(t *testing.T, shapes [2]lab.Shape) twoPaths {
	t.Helper()
	l := newLab(t)
	n := twoPaths{client: addHost(t, l, "client"), server: addHost(t, l, "server")}
	for i, shape := range shapes {
		n.paths[i] = addLink(t, l, n.client, n.server, shape)
	}
	if shapes != ([2]lab.Shape{}) {
		route(t, l)
	} else if err := l.Route(); err != nil {
		t.Fatal(err)
	}
	accept(t, n.client)
	announce(t, n.server, n.paths[1].Addr(n.server))
	return n
}

// connect opens an MPTCP connection over paths[0] under cc; the server's end
// is under serverCC.
func (n twoPaths) connect(t *testing.T, cc, serverCC string) pair {
	t.Helper()
	return connect(t, n.client, n.server, n.paths[0].Addr(n.server), mptcp.Options{CC: cc}, serverCC)
}

// path is the number of the path that a subflow of the client takes.
func (n twoPaths) path(t *testing.T, clientAddr netip.Addr) int {
	t.Helper()
	for i, link := range n.paths {
		if link.Addr(n.client) == clientAddr {
			return i
		}
	}
	t.Fatalf("a subflow from %v, which is not on the paths", clientAddr)
	return 0
}

// pair is a connection's two ends.
type pair struct {
	client, server *net.TCPConn
	listener       *mptcp.Listener // takes further subflows
	received       *atomic.Int64   // bytes, by the server of a stream
}

// connect connects from and to.
func connect(t *testing.T, from, to *lab.Host, addr netip.Addr, o mptcp.Options, serverCC string) pair {
	t.Helper()
	return connectFrom(t, anywhere, anywhere, from, to, addr, o, serverCC)
}

func anywhere(f func()) { f() }

// connectFrom is connect, where the sockets of either end are made by functions that inFrom and inTo run.
func connectFrom(t *testing.T, inFrom, inTo func(func()), from, to *lab.Host, addr netip.Addr, o mptcp.Options, serverCC string) pair {
	t.Helper()
	p := pair{received: new(atomic.Int64)}
	inTo(func() {
		err := to.Do(func() (err error) {
			// On all addresses, for the subflows to come.
			all := netip.IPv4Unspecified()
			if addr.Is6() {
				all = netip.IPv6Unspecified()
			}
			p.listener, err = mptcp.Listen(netip.AddrPortFrom(all, 0), serverCC)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { p.listener.Close() })
	accepted := make(chan error, 1)
	go func() {
		var err error
		p.server, err = p.listener.Accept(t.Context())
		accepted <- err
	}()
	inFrom(func() {
		err := from.Do(func() (err error) {
			p.client, err = mptcp.Dial(t.Context(), netip.AddrPortFrom(addr, p.listener.Addr().Port()), o)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

// close ends the connection, at once if content is on its way.
func (p pair) close() {
	_ = p.server.Close() // content that still arrives is answered with a reset
	_ = p.client.Close()
	_ = p.listener.Close()
}

// stream lets the client send as much as it can until close.
func (p pair) stream() {
	p.fill()
	p.drain()
}

// fill is stream without a reader.
func (p pair) fill() {
	go func() {
		content := make([]byte, 256<<10)
		for {
			if _, err := p.client.Write(content); err != nil {
				return
			}
		}
	}()
}

// drain lets the server read until close.
func (p pair) drain() {
	go func() {
		content := make([]byte, 256<<10)
		for {
			n, err := p.server.Read(content)
			p.received.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
}

// join waits until n subflows are in use at both ends.
func (p pair) join(t *testing.T, n int) {
	t.Helper()
	ok := eventually(10*time.Second, func() bool { return inUse(t, p.client) == n && inUse(t, p.server) == n })
	if !ok {
		t.Fatalf("%d subflows at the client and %d at the server after 10 s, want %d", inUse(t, p.client), inUse(t, p.server), n)
	}
}

// inUse counts a connection's established subflows.
func inUse(t *testing.T, conn *net.TCPConn) int {
	t.Helper()
	info, err := mptcp.ReadInfo(conn)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range info.Subflows {
		if s.TCP.State == 1 { // TCP_ESTABLISHED
			n++
		}
	}
	return n
}

// transfer is a checked transfer that is under way.
type transfer struct {
	sent, received chan outcome
}

type outcome struct {
	checked.Result
	err error
}

// transfer starts to send so many bytes of checked content.
func (p pair) transfer(bytes int64) transfer {
	x := transfer{make(chan outcome, 1), make(chan outcome, 1)}
	go func() {
		r, err := checked.Send(p.client, checked.Transfer{Bytes: bytes, Seed: 1})
		x.sent <- outcome{r, err}
	}()
	go func() {
		r, err := checked.Receive(p.server)
		x.received <- outcome{r, err}
	}()
	return x
}

// wait waits until all of it has arrived, unharmed.
func (x transfer) wait(t *testing.T) checked.Result {
	t.Helper()
	sent, received := <-x.sent, <-x.received
	if err := errors.Join(sent.err, received.err); err != nil {
		t.Fatal(err)
	}
	if sent.SHA256 != received.SHA256 || sent.Bytes != received.Bytes {
		t.Fatalf("sent %d bytes with SHA-256 %x, received %d with %x", sent.Bytes, sent.SHA256, received.Bytes, received.SHA256)
	}
	return sent.Result
}

// moves fails the test if a flow moves less than its network is sure to carry: a comparison with it would show nothing.
func moves(t *testing.T, flow string, rate, least float64) {
	t.Helper()
	if !(rate >= least) {
		t.Fatalf("%s moves %.3f Mbit/s, want %.3f at least: there is nothing to compare", flow, rate/1e6, least/1e6)
	}
}

// done tells whether the transfer has ended.
func (x transfer) done() bool { return len(x.sent) > 0 }

// sockets is what ss shows of a host's TCP connections: each subflow, by its
// own addresses.
func sockets(t *testing.T, h *lab.Host) map[netip.AddrPort]ss.Socket {
	t.Helper()
	all, err := ss.Sockets(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	found := map[netip.AddrPort]ss.Socket{}
	for _, s := range all {
		if s.Proto == "tcp" && s.State == "ESTAB" {
			found[s.Local] = s
		}
	}
	return found
}
