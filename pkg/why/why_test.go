// SPDX-License-Identifier: Apache-2.0

package why

import (
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/keydoc"
)

const ms = time.Millisecond

var (
	near, far = netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("10.0.2.1")
	server    = netip.MustParseAddrPort("10.0.9.9:443")
)

// well is a host with two paths, and a connection that fills both.
func well() *Evidence {
	e := &Evidence{
		Interval: 2 * time.Second, Enabled: true, Limits: mptcp.Limits{Subflows: 2, AddAddrAccepted: 2},
		Endpoints: []mptcp.Endpoint{{ID: 1, Addr: far, Flags: mptcp.EndpointSubflow}},
		Counters:  map[string]uint64{},
		Addresses: []Address{{near, "eth0", true}, {far, "wlan0", true}},
	}
	c := Connection{
		Opener: true, Acked: 2e6, Connection: mptcp.Connection{
			Token: 0xf3fd52c2, Local: netip.AddrPortFrom(near, 4000), Remote: server, PeerSpeaks: true,
			ExtraSubflows: 1, MaxExtraSubflows: 2, BytesSent: 1e7, BytesAcked: 1e7,
		},
		Devices: map[netip.Addr]string{near: "eth0", far: "wlan0"},
	}
	for i, a := range e.Addresses {
		c.Subflows = append(c.Subflows, Subflow{
			Ends: mptcp.Ends{Local: netip.AddrPortFrom(a.Addr, uint16(4000+i)), Remote: server},
			SubflowState: mptcp.SubflowState{
				Token: c.Token, LocalID: uint8(i), Flags: mptcp.SubflowFullyEstablished | mptcp.SubflowConnected,
			},
			CC: "cubic", Established: true, Interface: a.Interface, Up: true, Device: a.Interface,
			RTT: 30 * ms, MinRTT: 20 * ms, Acked: 1e6, Segments: 700,
		})
	}
	c.Subflows[0].Flags |= mptcp.SubflowAskedCapable
	for k := range 20 {
		c.Looks = append(c.Looks, Look{
			Unsent: 100e3, Flight: 80e3, Memory: mptcp.Memory{Queued: 200e3, SendBuffer: 210e3, ReceiveBuffer: 131072},
			Subflows: []SubflowLook{
				{There: true, Window: 1e6, Cwnd: 30, Flight: 30, SegBytes: 1448, RTT: 30*ms + time.Duration(k*k%7)*ms},
				{There: true, Window: 1e6, Cwnd: 30, Flight: 30, SegBytes: 1448, RTT: 30*ms + time.Duration(k*k%5)*ms},
			},
		})
	}
	e.Connections = []Connection{c}
	return e
}

func (e *Evidence) each(change func(*Look)) {
	for i := range e.Connections[0].Looks {
		change(&e.Connections[0].Looks[i])
	}
}

// alone leaves the first subflow.
func (e *Evidence) alone() *Connection {
	c := &e.Connections[0]
	c.Subflows = c.Subflows[:1]
	c.ExtraSubflows = 0
	e.each(func(l *Look) { l.Subflows = l.Subflows[:1] })
	return c
}

// little has the second subflow carry less than its part.
func (e *Evidence) little() *Subflow {
	s := &e.Connections[0].Subflows[1]
	s.Acked, s.Segments = 100e3, 70
	return s
}

func ptr[T any](v T) *T { return &v }

// sight is something to see, and the cause that it is.
type sight struct {
	what, want string
	change     func(e *Evidence)
}

var cases = []sight{
	{"nothing is wrong", "aggregating", func(*Evidence) {}},
	{"a path with half the rate of the other", "aggregating", func(e *Evidence) { e.Connections[0].Subflows[1].Acked = 5e5 }},
	{"a backup beside two that carry", "aggregating", func(e *Evidence) {
		c := &e.Connections[0]
		third := c.Subflows[1]
		third.Flags |= mptcp.SubflowBackup
		third.Acked = 0
		c.Subflows = append(c.Subflows, third)
		e.each(func(l *Look) { l.Subflows = append(l.Subflows, SubflowLook{}) })
	}},
	{"receiving on both", "aggregating", func(e *Evidence) {
		c := &e.Connections[0]
		c.Acked, c.Received = 0, 2e6
		c.Subflows[0].Received, c.Subflows[1].Received = 1e6, 9e5
	}},

	{"disabled", "mptcp-disabled", func(e *Evidence) { e.Enabled, e.Connections = false, nil }},
	{"nothing there", "no-connections", func(e *Evidence) { e.Connections = nil }},
	{"TCP sockets", "plain-tcp", func(e *Evidence) { e.PlainTCP = []mptcp.Ends{e.Connections[0].Subflows[0].Ends}; e.Connections = nil }},
	{"TCP at an MPTCP listener", "peer-without-mptcp", func(e *Evidence) { e.FellBack = []mptcp.Ends{e.Connections[0].Subflows[0].Ends}; e.Connections = nil }},

	{"a server without MPTCP", "peer-without-mptcp", func(e *Evidence) { c := e.alone(); c.Fallback, c.PeerSpeaks = true, false }},
	{"SYNs that vanish", "syn-blocked", func(e *Evidence) {
		c := e.alone()
		c.Fallback, c.PeerSpeaks, e.Counters["MPCapableSYNTXDrop"] = true, false, 1
	}},
	{"options that vanish", "options-stripped", func(e *Evidence) { e.alone().Fallback = true }},
	{"content that changes", "checksum-failed", func(e *Evidence) { e.alone().Fallback, e.Counters["MPFailRx"] = true, 1 }},

	{"nothing acknowledged", "no-data-yet", func(e *Evidence) { e.alone().Subflows[0].Flags &^= mptcp.SubflowFullyEstablished }},
	{"a program's path manager", "userspace-pm", func(e *Evidence) { e.UserspacePM, e.alone().MaxExtraSubflows = true, 0 }},
	{"a limit of 0", "limit-subflows", func(e *Evidence) { e.Limits.Subflows = 0; e.alone() }},
	{"an announced address and a limit of 0", "limit-add-addr", func(e *Evidence) {
		e.alone()
		e.Endpoints, e.Limits.AddAddrAccepted, e.Counters["AddAddr"] = nil, 0, 1
	}},
	{"an endpoint that is announced", "endpoint-not-subflow", func(e *Evidence) { e.alone(); e.Endpoints[0].Flags = mptcp.EndpointSignal }},
	{"no endpoint", "no-endpoint", func(e *Evidence) { e.alone(); e.Endpoints = nil }},
	{"an endpoint of the other family", "no-endpoint", func(e *Evidence) { e.alone(); e.Endpoints[0].Addr = netip.MustParseAddr("2001:db8::1") }},
	{"no address", "no-second-address", func(e *Evidence) { e.alone(); e.Endpoints, e.Addresses = nil, e.Addresses[:1] }},
	{"an address that is down, and no endpoint", "no-second-address", func(e *Evidence) { e.alone(); e.Endpoints, e.Addresses[1].Up = nil, false }},
	{"an endpoint that is down", "link-down", func(e *Evidence) { e.alone(); e.Addresses[1].Up = false }},
	{"a subflow that is down", "link-down", func(e *Evidence) { e.Connections[0].Subflows[1].Up = false }},
	{"no route", "no-route", func(e *Evidence) { e.alone().Devices[far] = "" }},
	{"a route by the other link, alone", "source-route", func(e *Evidence) { e.alone().Devices[far] = "eth0" }},
	{"a route by the other link", "source-route", func(e *Evidence) { e.Connections[0].Subflows[1].Device = "eth0" }},
	{"a join without answer", "join-blocked", func(e *Evidence) {
		s := &e.Connections[0].Subflows[1]
		s.Established, s.Joining, s.Timeouts = false, true, 3
	}},
	{"a join without answer and route", "source-route", func(e *Evidence) {
		c := &e.Connections[0]
		c.Subflows[1].Established, c.Subflows[1].Joining, c.Devices[far] = false, true, "eth0"
	}},
	{"a join that the peer ended", "join-refused", func(e *Evidence) {
		e.alone()
		e.Counters["MPJoinSynTx"], e.Counters["MPJoinSynAckRx"], e.Counters["MPRstTx"] = 1, 1, 1
	}},
	{"the same before Linux 6.12", "join-refused", func(e *Evidence) { e.alone(); e.Counters["MPJoinSynAckRx"] = 1 }},
	{"a join that this side ended", "join-stripped", func(e *Evidence) {
		e.alone()
		e.Counters["MPJoinSynTx"], e.Counters["MPRstTx"] = 1, 1
	}},
	{"a wrong HMAC", "join-stripped", func(e *Evidence) { e.alone(); e.Counters["MPJoinSynAckHMacFailure"] = 1 }},
	{"a join that was reset", "join-reset", func(e *Evidence) { e.alone(); e.Counters["MPJoinSynTx"] = 1 }},
	{"an announced address that was reset", "join-reset", func(e *Evidence) {
		e.alone().AddrsAccepted, e.Endpoints, e.Counters["MPJoinSynTx"] = 1, nil, 1
	}},
	{"the peer's connection", "peer-opens-none", func(e *Evidence) { e.alone().Opener = false }},

	{"timeouts", "path-dead", func(e *Evidence) {
		s := &e.Connections[0].Subflows[1]
		s.Timeouts, s.SinceAck = 3, 4*time.Second
	}},
	{"one timeout that a later packet has mended", "aggregating", func(e *Evidence) { e.Connections[0].Subflows[1].Timeouts = 1 }},
	{"a backup", "backup", func(e *Evidence) { e.Connections[0].Subflows[1].Flags |= mptcp.SubflowBackup }},
	{"a backup of the peer", "backup", func(e *Evidence) { e.Connections[0].Subflows[1].Flags |= mptcp.SubflowPeerBackup }},
	{"copies", "redundant", func(e *Evidence) { e.Connections[0].Acked, e.Connections[0].Scheduler = 1e6, "redundant" }},
	{"copies of the kernel's own scheduler", "aggregating", func(e *Evidence) { e.Connections[0].Acked = 1e6 }},
	{"nothing", "idle", func(e *Evidence) {
		c := &e.Connections[0]
		c.Acked, c.Subflows[0].Acked, c.Subflows[1].Acked = 0, 0, 0
		e.each(func(l *Look) { l.Unsent, l.Flight = 0, 0 })
	}},
	{"windows that are not used", "application", func(e *Evidence) {
		e.each(func(l *Look) {
			l.Unsent, l.Flight, l.Memory.Queued = 0, 2000, 4000
			l.Subflows[0].Flight, l.Subflows[1].Flight = 1, 1
		})
	}},
	{"a buffer of 64 kB", "send-buffer", func(e *Evidence) {
		e.each(func(l *Look) {
			l.Unsent, l.Flight, l.Memory.Queued, l.Memory.SendBuffer = 0, 30e3, 60e3, 64e3
			l.Subflows[0].Flight, l.Subflows[1].Flight = 10, 10
		})
	}},
	{"a buffer that waits for a far path", "rtt", func(e *Evidence) {
		s := e.little()
		s.RTT, s.MinRTT = 201*ms, 200*ms
		e.each(func(l *Look) {
			l.Unsent, l.Flight, l.Memory.Queued, l.Memory.SendBuffer = 0, 500e3, 1e6, 1e6
			l.Subflows[0].Flight = 10
		})
	}},
	{"a window of 30 kB", "receive-buffer", func(e *Evidence) {
		e.each(func(l *Look) {
			l.Flight, l.Subflows[0].Window, l.Subflows[1].Window = 29e3, 30e3, 30e3
			l.Subflows[0].Flight, l.Subflows[1].Flight = 10, 10
		})
	}},
	{"no window", "peer-reads-slowly", func(e *Evidence) {
		e.each(func(l *Look) {
			l.Flight, l.Subflows[0].Window = 0, 0
			l.Subflows[0].Flight, l.Subflows[0].Unsent, l.Subflows[1].Flight = 0, 1448, 0
			l.Subflows[1].SinceAck = time.Second // when there was one
		})
	}},
	{"a full receive buffer", "reads-slowly", func(e *Evidence) {
		e.Connections[0].Acked, e.Connections[0].Received = 0, 2e6
		e.each(func(l *Look) { l.Memory.Received = 120e3 })
	}},
	{"a rule", "path-rule", func(e *Evidence) { s := e.little(); s.Rule, s.RulePath = "excluded", "wlan0" }},
	{"a price", "energy-price", func(e *Evidence) {
		s := e.little()
		s.Priced, s.PerMB, s.Coupling, e.Connections[0].Subflows[0].PerMB = true, ptr(4.0), ptr(0.1), ptr(1.0)
	}},
	{"a price that is the same everywhere", "path-rate", func(e *Evidence) {
		s := e.little()
		s.Priced, s.PerMB, e.Connections[0].Subflows[0].PerMB = true, ptr(1.0), ptr(1.0)
	}},
	{"a dear path for which the others wait", "energy-price", func(e *Evidence) {
		c := &e.Connections[0]
		c.Subflows[1].Priced, c.Subflows[1].PerMB, c.Subflows[0].PerMB = true, ptr(4.0), ptr(1.0)
		e.each(func(l *Look) {
			l.Unsent, l.Flight, l.Memory.Queued, l.Memory.SendBuffer = 0, 15e5, 15e5, 19e5
			l.Subflows[0].Flight, l.Subflows[1].Cwnd, l.Subflows[1].Flight, l.Subflows[1].Unsent = 0, 2, 2, 1448
		})
	}},
	{"a path that has slowed down, for which the others wait", "held-up", slowedDown},
	{"the same before its RTT has grown", "held-up", func(e *Evidence) {
		slowedDown(e)
		e.each(func(l *Look) { l.Subflows[1].RTT = 30 * ms })
	}},
	{"the same under earliest, which has sent again what it can", "path-rate", func(e *Evidence) {
		slowedDown(e)
		e.Connections[0].Scheduler = "earliest"
	}},
	{"the same in 5 of 20 looks", "held-up", func(e *Evidence) { slowedDown(e); e.sendsIn(15) }},
	{"the same in 4 of 20 looks", "path-rate", func(e *Evidence) { slowedDown(e); e.sendsIn(16) }},
	{"a thin path, where the others wait in 9 of 20 looks", "path-rate", func(e *Evidence) {
		slowedDown(e)
		e.sendsIn(11)
		c := &e.Connections[0]
		c.Subflows[1].Acked = 300e3
		for k := range 11 {
			c.Looks[k].Subflows[0].Unsent = 40e3
		}
	}},
	{"a small buffer beside a full path", "send-buffer", func(e *Evidence) {
		slowedDown(e)
		e.each(func(l *Look) { l.Memory.Queued, l.Memory.SendBuffer = 60e3, 64e3 })
	}},
	{"loss", "loss", func(e *Evidence) { e.little().Retransmitted = 3 }},
	{"loss on a short path, with jitter", "loss", func(e *Evidence) {
		s := e.little()
		s.Retransmitted, s.MinRTT = 3, ms
		e.each(func(l *Look) { l.Subflows[1].RTT = 9 * ms })
	}},
	{"a queue that overflows", "path-rate", func(e *Evidence) {
		e.little().Retransmitted = 3
		e.each(func(l *Look) { l.Subflows[1].RTT = 100 * ms })
	}},
	{"a long way", "rtt", func(e *Evidence) { s := e.little(); s.RTT, s.MinRTT = 201*ms, 200*ms }},
	{"a long way with some loss", "rtt", func(e *Evidence) { s := e.little(); s.RTT, s.MinRTT, s.Retransmitted = 201*ms, 200*ms, 3 }},
	{"room that is not used", "scheduler", func(e *Evidence) {
		e.little().Refused = 5
		e.each(func(l *Look) { l.Subflows[1].Flight = 0 })
	}},
	{"a full slow path", "path-rate", func(e *Evidence) { e.little() }},
	{"a common queue", "shared-bottleneck", func(e *Evidence) {
		e.each(func(l *Look) { l.Subflows[1].RTT = l.Subflows[0].RTT + 40*ms })
	}},
	{"a common interface", "shared-interface", func(e *Evidence) {
		e.Connections[0].Subflows[1].Device, e.Connections[0].Subflows[1].Interface = "eth0", "eth0"
	}},
	{"little received on a path", "peer-decides", func(e *Evidence) {
		c := &e.Connections[0]
		c.Acked, c.Received, c.Subflows[0].Received, c.Subflows[1].Received = 0, 2e6, 19e5, 1e5
	}},
}

// slowedDown has 30 packets on the second path, of which 10 arrive in a second: the send buffer is full, and the first path
// waits.
func slowedDown(e *Evidence) {
	e.little().Acked = 30e3
	e.each(func(l *Look) {
		l.Unsent, l.Flight, l.Memory.Queued, l.Memory.SendBuffer = 0, 100e3, 190e3, 200e3
		l.Subflows[0].Flight, l.Subflows[1].RTT = 2, 2000*ms
	})
}

// sendsIn has the first path send in so many looks from the first one.
func (e *Evidence) sendsIn(looks int) {
	for k := range looks {
		l := &e.Connections[0].Looks[k]
		l.Unsent, l.Subflows[0].Flight = 100e3, 30
	}
}

// The finding held-up on the second path hides no finding on the third path.
func TestHeldUpBesideALossyPath(t *testing.T) {
	e := well()
	c := &e.Connections[0]
	c.Subflows = append(c.Subflows, c.Subflows[1])
	e.each(func(l *Look) { l.Subflows = append(l.Subflows, l.Subflows[1]) })
	slowedDown(e)
	lossy := &c.Subflows[2]
	lossy.Acked, lossy.Segments, lossy.Retransmitted = 200e3, 140, 6
	e.each(func(l *Look) { l.Memory.Queued, l.Memory.SendBuffer = 380e3, 400e3 })
	var got []string
	for _, f := range Judge(e).Connections[0].Findings {
		got = append(got, f.Cause)
	}
	if want := []string{"held-up", "loss"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestJudge(t *testing.T) {
	for _, c := range cases {
		t.Run(c.what, func(t *testing.T) {
			e := well()
			c.change(e)
			r := Judge(e)
			findings := r.Host
			if len(r.Connections) > 0 {
				findings = r.Connections[0].Findings
			}
			if len(findings) == 0 {
				t.Fatal("it is silent")
			}
			if findings[0].Cause != c.want {
				t.Errorf("found %+v, want %s", findings, c.want)
			}
			for _, f := range findings {
				if len(f.Evidence) == 0 || strings.ContainsAny(f.Says+f.Mend, "{}") {
					t.Errorf("not in whole words: %+v", f)
				}
				if !f.OK && f.Mend == "" {
					t.Errorf("nothing mends it: %+v", f)
				}
			}
		})
	}
}

// Each cause is found in some case.
func TestEveryCauseIsFound(t *testing.T) {
	for _, cause := range Causes {
		if !slices.ContainsFunc(cases, func(c sight) bool { return c.want == cause.Name }) {
			t.Errorf("no case finds %s", cause.Name)
		}
	}
}

// What holds for the host comes first, also beside connections that are well.
func TestHost(t *testing.T) {
	e := well()
	e.Limits = mptcp.Limits{}
	e.Counters["AddAddr"], e.Counters["DataCsumErr"], e.Counters["MPCapableFallbackSYNACK"] = 2, 1, 3
	var got []string
	for _, f := range Judge(e).Host {
		got = append(got, f.Cause)
	}
	if want := []string{"limit-subflows", "limit-add-addr", "peer-without-mptcp", "checksum-failed"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

// Commands of remedies are for the namespace that was looked at, but for those that the peer needs.
func TestRemedyInNamespace(t *testing.T) {
	for mend, want := range map[string]string{
		"ip mptcp limits set subflows 2":                  "ip -n phone mptcp limits set subflows 2",
		"sysctl -w net.mptcp.enabled=1":                   "ip netns exec phone sysctl -w net.mptcp.enabled=1",
		"ip rule add x; ip route add y":                   "ip -n phone rule add x; ip -n phone route add y",
		"ping -I a b; ip link set c up":                   "ip netns exec phone ping -I a b; ip -n phone link set c up",
		"mpcc path reset wlan0":                           "mpcc path reset --netns phone wlan0",
		"mpcc load lia --default":                         "mpcc load lia --default --netns phone",
		"at the peer: sysctl -w x=1":                      "at the peer: sysctl -w x=1",
		"sysctl -w x=1; at the peer: ip mptcp limits set": "ip netns exec phone sysctl -w x=1; at the peer: ip mptcp limits set",
		"at the peer: ip mptcp limits set":                "at the peer: ip mptcp limits set",
	} {
		if got := inside("phone", mend); got != want {
			t.Errorf("%q became %q, want %q", mend, got, want)
		}
	}
}

// The page has the causes, each once and in their order, and the keys of the JSON.
func TestPage(t *testing.T) {
	const page = "../../docs/why.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, c := range Causes {
		want = append(want, c.Name)
	}
	_, table, _ := strings.Cut(string(text), "\n## Causes\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		got = append(got, row[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s has the causes\n%v, the table in cause.go\n%v", page, got, want)
	}
	others := []string{}
	for heading := range keydoc.Sections(t, page) {
		if !slices.Contains([]string{"Report", "Verdict", "Finding", "Share"}, heading) {
			others = append(others, heading)
		}
	}
	keydoc.Check(t, page, reflect.TypeFor[Report](), []reflect.Type{reflect.TypeFor[netip.AddrPort]()}, others...)
}
