// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

//go:embed oracle.o
var oracleObject []byte

// oracleResult is struct oracle_result of oracle.bpf.c: mpcc's CUBIC against the kernel's on a connection.
type oracleResult struct {
	ACKs, SumPackets, SumPPM         uint64
	RTTs, EqualRTTs                  uint64
	MostPackets                      uint32
	Losses, Marks                    uint32
	Undos, MostAfterUndo             uint32
	MostAfterLoss, MostLastMax       uint32
	BegunAnew                        uint32
	LeftSlowStart, OursLeftSlowStart uint32
	LeftAt, OursLeftAt               uint32
}

// responseStandard is the tunable's second word. By default ours responds to losses as the kernel's CUBIC does not.
const responseStandard = uint32(1)

// attachOracle offers the congestion control "oracle" until the test ends. Its map has the results by local address.
func attachOracle(t *testing.T) *ebpf.Map {
	t.Helper()
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(oracleObject))
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var ops *btf.Struct
	if err := kernel.TypeByName("tcp_congestion_ops", &ops); err != nil {
		t.Fatal(err)
	}
	// The kernel's CUBIC hears of the end of a pause by the one or the other.
	absent := "oracle_tx_start"
	if slices.ContainsFunc(ops.Members, func(m btf.Member) bool { return m.Name == "cwnd_event_tx_start" }) {
		absent = "oracle_cwnd_event"
	}
	for name := range spec.Programs {
		if !strings.HasPrefix(name, "oracle_") || name == absent {
			delete(spec.Programs, name)
		}
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	if err := spec.Variables["response"].Set(responseStandard); err != nil {
		t.Fatal(err)
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	l, err := link.AttachStructOps(link.StructOpsOptions{Map: coll.Maps["oracle"]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return coll.Maps["oracles"]
}

// readOracle returns the result of the connection.
func readOracle(t *testing.T, results *ebpf.Map, conn *net.TCPConn) (r oracleResult) {
	t.Helper()
	local := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().As4()
	value := make([]byte, results.ValueSize())
	if err := results.Lookup(local, value); err != nil {
		t.Fatal(err)
	}
	if err := binary.Read(bytes.NewReader(value), binary.NativeEndian, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// On a connection of one subflow mpcc does as the kernel's CUBIC. oracle.bpf.c says how they are compared: the
// kernel's controls the connection, ours gets the same ACKs and starts from the same state at each loss event and
// pause.
//
// What is left between them: the kernel works its step out once a jiffy, of 4 ms, at most, and not for 31 ms where the
// window stands; ours once a millisecond. Each rounds time as it counts it. So the window is a packet ahead or behind
// for a while; the mean tells a wrong rule. Where packets overtake each other one ACK stands for many, and what each rounds
// adds up to 0.4 to 1.3 % of the window: there only loss events and those taken back are compared.
func TestOwnTimeAloneIsTheKernelsCubic(t *testing.T) {
	const (
		meanApart = 0.015 // of the window; twice C has 0.027 and 0.056 in two conditions, no Reno region 0.06 and 0.13
		// ACKs: two samples of an RTT show a long queue to ours, which ends slow start by one rule more than the kernel's
		// (slow_start.h), where the kernel waits for nine.
		slowStartSooner = 7
		slowStartLater  = 1 // what each rounds
	)
	for name, r := range besideTheKernelsCubic(t, 30*time.Second) {
		if sooner := int(r.LeftAt) - int(r.OursLeftAt); sooner > slowStartSooner || sooner < -slowStartLater {
			t.Errorf("%s: left slow start at %d packets after %d ACKs, the kernel at %d after %d",
				name, r.OursLeftSlowStart, r.OursLeftAt, r.LeftSlowStart, r.LeftAt)
		}
		if mean := float64(r.SumPPM) / float64(r.ACKs) / 1e6; mean > meanApart && name != reordering {
			t.Errorf("%s: apart by %.4f of the window on average, want at most %g", name, mean, meanApart)
		}
	}
}

// In real time a busy machine holds ACKs up, which then come together, and stops the sender: the windows may be hundreds
// of packets apart until the next loss, and two RTTs that are long for that reason end our slow start. What is remembered
// and left at loss events depends on nothing of that. With the other kernel the test above checks it too.
func TestNewKernelLossesAreTheKernelsCubic(t *testing.T) { besideTheKernelsCubic(t, 30*time.Second) }

// reordering is the condition under which packets overtake each other.
const reordering = "reordering"

// besideTheKernelsCubic checks what has to be the same to the packet.
func besideTheKernelsCubic(t *testing.T, lasts time.Duration) map[string]oracleResult {
	const (
		equalRTTs = 0.95 // the others are of ACKs for segments out of order
		leastACKs = 1000
	)
	conditions := map[string]struct {
		shape lab.Shape
		send  func(*net.TCPConn)
	}{
		// Reno's region: an RTT of 44 ms at most.
		"short queue": {shape: lab.Shape{Rate: 20e6, Delay: 10 * time.Millisecond, Queue: 40}, send: sendAll},
		// The cube's: the path and its queue hold 565 packets.
		"deep queue":  {shape: lab.Shape{Rate: 20e6, Delay: 50 * time.Millisecond, Queue: 400}, send: sendAll},
		"random loss": {shape: lab.Shape{Rate: 20e6, Delay: 20 * time.Millisecond, Queue: 200, Loss: 0.1}, send: sendAll},
		"pauses":      {shape: lab.Shape{Rate: 20e6, Delay: 20 * time.Millisecond, Queue: 100}, send: sendWithPauses},
		"ECN": {
			shape: lab.Shape{Rate: 20e6, Delay: 20 * time.Millisecond, RED: &lab.RED{Min: 20, Max: 400, Prob: 0.1, ECN: true}},
			send:  sendAll,
		},
		// The kernel takes a loss event back once it learns that packets were late: by more than a quarter of the smallest
		// RTT, for which it waits.
		reordering: {
			shape: lab.Shape{Rate: 20e6, Delay: 20 * time.Millisecond, Jitter: 15 * time.Millisecond, Reorder: true, Queue: 200},
			send:  sendAll,
		},
	}
	results := attachOracle(t)
	l := newLab(t)
	client, server := addHost(t, l, "client"), addHost(t, l, "server")
	links := map[string]*lab.Link{}
	var names []string
	for name, c := range conditions {
		links[name] = addLink(t, l, client, server, c.shape)
		names = append(names, name)
	}
	route(t, l)
	for _, h := range []*lab.Host{client, server} {
		if err := h.Sysctl("net.ipv4.tcp_ecn", "1"); err != nil {
			t.Fatal(err)
		}
	}
	return sideBySide(t, names, func(t *testing.T, name string) oracleResult {
		p := connect(t, client, server, links[name].Addr(server), mptcp.Options{CC: "oracle", TCP: true}, "")
		p.drain()
		go conditions[name].send(p.client)
		// Ten times as long on a machine that is busy.
		var r oracleResult
		proves := func() bool {
			return r.ACKs >= leastACKs && r.Losses >= 2 && (name != "ECN" || r.Marks > 0) && (name != reordering || r.Undos > 0)
		}
		for end := time.Now().Add(10 * lasts); !proves() && time.Now().Before(end); {
			time.Sleep(lasts)
			r = readOracle(t, results, p.client)
		}
		acks := float64(r.ACKs)
		t.Logf("%s: %d ACKs; apart by %d packets at most, by %.3f packets and %.3f %% on average; "+
			"begun anew %d times and at %d loss events, %d of them marks, where apart by %d packets and %d of memory; "+
			"%d taken back, then apart by %d packets; "+
			"slow start left at %d packets after %d ACKs, ours at %d after %d; %d of %d RTTs equal",
			name, r.ACKs, r.MostPackets, float64(r.SumPackets)/acks, float64(r.SumPPM)/acks/1e4,
			r.BegunAnew, r.Losses, r.Marks, r.MostAfterLoss, r.MostLastMax, r.Undos, r.MostAfterUndo,
			r.LeftSlowStart, r.LeftAt, r.OursLeftSlowStart, r.OursLeftAt, r.EqualRTTs, r.RTTs)
		if !proves() {
			t.Fatalf("%d ACKs and %d loss events, with %d marks and %d taken back, prove nothing", r.ACKs, r.Losses, r.Marks, r.Undos)
		}
		if r.MostAfterUndo > 0 {
			t.Errorf("%d packets apart after a loss event was taken back", r.MostAfterUndo)
		}
		if r.MostAfterLoss > 0 || r.MostLastMax > 0 {
			t.Errorf("%d packets apart after a loss event and %d in what is remembered of it", r.MostAfterLoss, r.MostLastMax)
		}
		if name != reordering && float64(r.EqualRTTs) < equalRTTs*float64(r.RTTs) {
			t.Errorf("%d of %d RTTs equal", r.EqualRTTs, r.RTTs)
		}
		return r
	})
}

// sendAll sends as much as it can until close.
func sendAll(conn *net.TCPConn) {
	content := make([]byte, 256<<10)
	for {
		if _, err := conn.Write(content); err != nil {
			return
		}
	}
}

// sendWithPauses sends for 4 s as much as it can, for 3 s some 5 Mbit/s, and nothing for 2 s, until close.
func sendWithPauses(conn *net.TCPConn) {
	content := make([]byte, 16<<10)
	phase := func(lasts, every time.Duration) (err error) {
		for begun := time.Now(); err == nil && time.Since(begun) < lasts; time.Sleep(every) {
			_, err = conn.Write(content)
		}
		return err
	}
	for phase(4*time.Second, 0) == nil && phase(3*time.Second, 26*time.Millisecond) == nil {
		time.Sleep(2 * time.Second)
	}
}
