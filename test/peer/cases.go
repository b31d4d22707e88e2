// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/pkg/telemetry"
	"github.com/mpcc/mpcc/test/hosts"
)

// world is a host, whose connections run a congestion control of mpcc, and the wire to it.
type world struct {
	*testing.T
	h    *lab.Host
	w    *Wire
	cc   string
	conn *net.TCPConn // the host's end
	c    *Connection  // the peer's
}

// deed is what a peer that is not Linux may do.
type deed struct {
	name string
	run  func(*world)
}

var deeds = []deed{
	{"handshake", handshake},
	{"checksum", checksummed},
	{"wrong checksum on the only subflow", wrongChecksum},
	{"wrong checksum on one of two subflows", wrongChecksumOfTwo},
	{"MP_FAIL", failed},
	{"MP_PRIO", prioritized},
	{"options taken out of the SYN/ACK", plainFromSYN},
	{"options taken out after the SYN/ACK", plainFromACK},
	{"ADD_ADDR", announced},
	{"REMOVE_ADDR", removed},
	{"MP_JOIN refused", refused},
	{"MP_FASTCLOSE", fastClosed},
	{"reset of a subflow", subflowReset},
}

// scheduled are deeds with which the host copes only under a packet scheduler of mpcc.
var scheduled = []deed{
	{"data thrown away", thrownAway},
}

// Run has a peer do its deeds, with the host's connections under a congestion control of mpcc that is loaded. For each there
// is a host of its own, which prepare makes ready.
func Run(t *testing.T, cc string, prepare func(*lab.Host) error) { run(t, deeds, cc, prepare) }

// RunScheduled has a peer do also what a host copes with under a packet scheduler of mpcc, which prepare gives it.
func RunScheduled(t *testing.T, cc string, prepare func(*lab.Host) error) {
	run(t, slices.Concat(deeds, scheduled), cc, prepare)
}

func run(t *testing.T, deeds []deed, cc string, prepare func(*lab.Host) error) {
	for _, d := range deeds {
		t.Run(d.name, func(t *testing.T) {
			_, all := hosts.New(t, "host")
			h := all[0]
			err := errors.Join(h.MPTCP(lab.MPTCPLimits{Subflows: 2, AddAddrAccepted: 2}), prepare(h))
			if err != nil {
				t.Fatal(err)
			}
			w := &world{t, h, NewWire(t, h), cc, nil, nil}
			d.run(w)
			if w.conn != nil {
				w.conn.Close()
			}
			w.sees("nothing any more", func(live []telemetry.Subflow) bool { return len(live) == 0 })
		})
	}
}

// accept has the peer connect to the host.
func (w *world) accept(checksum, plain bool) *Connection {
	w.Helper()
	var listener *mptcp.Listener
	if err := w.h.Do(func() (err error) {
		listener, err = mptcp.Listen(netip.AddrPortFrom(Host, 0), w.cc)
		return err
	}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { listener.Close() })
	c := w.w.Connect(listener.Addr().Port(), checksum, plain)
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	if plain {
		// What tells the host is data without a mapping.
		c.Subflows[0].Write([]byte{0})
	}
	conn, err := listener.Accept(ctx)
	if err != nil {
		w.Fatal(err)
	}
	w.has(conn, c)
	if plain {
		w.read([]byte{0})
	}
	return c
}

// has makes a connection the world's.
func (w *world) has(conn *net.TCPConn, c *Connection) {
	w.Helper()
	if err := conn.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		w.Fatal(err)
	}
	w.conn, w.c = conn, c
	w.Cleanup(func() { conn.Close() })
}

// content is pseudo-random, the same for the same length.
func content(length int) []byte {
	b := make([]byte, length)
	_, _ = rand.NewChaCha8([32]byte{byte(length)}).Read(b) // never fails
	return b
}

// read has the host read what the peer has sent.
func (w *world) read(want []byte) {
	w.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(w.conn, got); err != nil || !bytes.Equal(got, want) {
		w.Fatalf("the host reads %d bytes, %v, unlike what was sent", len(got), err)
	}
}

// up has the peer send to the host.
func (w *world) up(f *Subflow, length int) {
	w.Helper()
	data := content(length)
	f.Write(data)
	w.read(data)
}

// down has the host send to the peer, beside what the peer does meanwhile.
func (w *world) down(c *Connection, length int, meanwhile func()) {
	w.Helper()
	data := content(length)
	known := len(c.Received) // before the host says more
	sent := make(chan error, 1)
	go func() {
		_, err := w.conn.Write(data)
		sent <- err
	}()
	meanwhile()
	if got := c.Read(known + length)[known:]; !bytes.Equal(got, data) {
		w.Fatalf("the peer got other bytes than the host has sent: %d of them", len(got))
	}
	if err := <-sent; err != nil {
		w.Fatal(err)
	}
}

func nothing() {}

// live returns what mpcc's maps have of the host.
func (w *world) live() []telemetry.Subflow {
	w.Helper()
	snap, err := telemetry.Take(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	var live []telemetry.Subflow
	for _, f := range snap.Subflows {
		if f.NetnsName == w.h.Namespace() {
			live = append(live, f)
		}
	}
	return live
}

// sees waits until mpcc's maps have what is wanted.
func (w *world) sees(what string, wanted func([]telemetry.Subflow) bool) {
	w.Helper()
	var live []telemetry.Subflow
	for end := time.Now().Add(patience); time.Now().Before(end); w.c.Quiet(20 * time.Millisecond) {
		if live = w.live(); wanted(live) {
			return
		}
	}
	w.Errorf("mpcc shows %+v, want %s", live, what)
}

// runs wants the maps to have so many subflows, all under the congestion control.
func (w *world) runs(subflows int) {
	w.Helper()
	w.sees(fmt.Sprintf("%d subflows under %s", subflows, w.cc), func(live []telemetry.Subflow) bool {
		for _, f := range live {
			if f.CC != w.cc {
				return false
			}
		}
		return len(live) == subflows
	})
}

// counts waits until the kernel's counters of MPTCP have these values.
func (w *world) counts(want map[string]uint64) {
	w.Helper()
	var counters map[string]uint64
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := w.h.Do(func() (err error) {
			counters, err = mptcp.Counters()
			return err
		}); err != nil {
			w.Fatal(err)
		}
		same := true
		for name, n := range want {
			same = same && counters[name] == n
		}
		if same {
			return
		}
	}
	for name, n := range want {
		if counters[name] != n {
			w.Errorf("the kernel counts %d %s, want %d", counters[name], name, n)
		}
	}
}

func handshake(w *world) {
	c := w.accept(false, false)
	w.up(c.Subflows[0], 1000)
	w.down(c, 1<<16, nothing)
	w.runs(1)
	w.counts(map[string]uint64{"MPCapableSYNRX": 1, "MPCapableACKRX": 1, "MPCapableFallbackACK": 0})
	c.Kill()
}

// withChecksums has the host use checksums.
func (w *world) withChecksums() {
	w.Helper()
	if err := w.h.Sysctl("net.mptcp.checksum_enabled", "1"); err != nil {
		w.Fatal(err)
	}
}

func checksummed(w *world) {
	w.withChecksums()
	c := w.accept(true, false)
	w.up(c.Subflows[0], 1000)
	w.up(c.Subflows[0], 999)
	w.down(c, 999, func() {
		s := c.Await("data", func(s *Segment) bool { return len(s.Payload) == 999 })
		o := s.Option(DSS)
		// The last 16 bytes are the numbers, the length and the checksum, whose number of data is in full where it has 8 bytes.
		if o == nil || o[1]&0x08 == 0 || len(o) < 18 {
			w.Fatalf("the host maps without a checksum, or with short numbers: %v", s)
		}
		m := o[len(o)-16:]
		if got, want := binary.BigEndian.Uint16(m[14:]), checksum(m[:14], s.Payload); got != want {
			w.Errorf("the host's checksum is %04x, want %04x", got, want)
		}
	})
	w.runs(1)
	w.counts(map[string]uint64{"DataCsumErr": 0, "MPFailTx": 0})
	c.Kill()
}

// The host tells from which byte on data was broken, and both go on with plain TCP on the only subflow.
func wrongChecksum(w *world) {
	w.withChecksums()
	c := w.accept(true, false)
	f := c.Subflows[0]
	w.up(f, 1000)
	broken := c.number
	f.WriteWrong(content(500))
	fail := c.Await("MP_FAIL", func(s *Segment) bool { return s.Option(Fail) != nil }).Option(Fail)
	if from := binary.BigEndian.Uint64(fail[2:]); from != broken {
		w.Errorf("the host calls data broken from byte %d on, want %d", from, broken)
	}
	f.Fail(uint64(len(c.Received)))
	w.read(content(500)) // the kernel hands it on: TCP's checksum was right
	c.Plain = true
	w.up(f, 700)
	w.down(c, 3000, nothing)
	w.counts(map[string]uint64{"DataCsumErr": 1, "MPFailTx": 1})
	c.Kill()
}

// With another subflow there the host gives up the one that breaks data.
func wrongChecksumOfTwo(w *world) {
	w.withChecksums()
	c := w.accept(true, false)
	w.up(c.Subflows[0], 1000)
	second := c.Join(Addr[1], 2, false)
	w.runs(2)
	was := c.number
	second.WriteWrong(content(500))
	c.Await("reset", func(s *Segment) bool { return s.RST && s.To == second.Local })
	c.number = was // it has to come once more
	w.up(c.Subflows[0], 500)
	w.down(c, 1<<16, nothing)
	w.counts(map[string]uint64{"DataCsumErr": 1, "MPFailTx": 1})
	c.Kill()
}

// The peer's MP_FAIL on the only subflow makes the host go on with plain TCP.
func failed(w *world) {
	c := w.accept(false, false)
	f := c.Subflows[0]
	w.up(f, 1000)
	w.down(c, 2000, nothing)
	f.Fail(uint64(len(c.Received)))
	c.Await("MP_FAIL in answer", func(s *Segment) bool { return s.Option(Fail) != nil })
	c.Plain = true
	// The first data has the mapping without an end, for whose option a whole segment has no room: Linux 6.18 would send that
	// again and again, too long for the link.
	w.down(c, 1000, nothing)
	w.down(c, 1<<16, nothing)
	w.up(f, 700)
	w.counts(map[string]uint64{"MPFailRx": 1, "MPFailTx": 1, "InfiniteMapTx": 1})
	c.Kill()
}

// A subflow that the peer makes a backup carries nothing until it is the last, and mpcc knows what it is.
func prioritized(w *world) {
	c := w.accept(false, false)
	w.up(c.Subflows[0], 1000)
	second := c.Join(Addr[1], 2, false)
	w.runs(2)
	second.Prio(true)
	w.counts(map[string]uint64{"MPPrioRx": 1})
	was := second.Ack
	w.down(c, 1<<17, nothing)
	if second.Ack != was {
		w.Errorf("the backup carried %d bytes", second.Ack-was)
	}
	c.Subflows[0].Kill()
	// mpcc looks once in a round trip while something is acknowledged.
	backup := func(want bool) func([]telemetry.Subflow) bool {
		return func(live []telemetry.Subflow) bool {
			w.down(c, 1<<12, nothing)
			return len(live) == 1 && live[0].Remote == second.Local && live[0].Backup == want && live[0].BytesSent > 0
		}
	}
	w.sees("the second subflow as a backup", backup(true))
	second.Prio(false)
	w.counts(map[string]uint64{"MPPrioRx": 2})
	w.sees("it as no backup", backup(false))
	c.Kill()
}

func plainFromSYN(w *world) {
	dialled := make(chan error, 1)
	var conn *net.TCPConn
	go func() {
		dialled <- w.h.Do(func() (err error) {
			conn, err = mptcp.Dial(w.Context(), netip.AddrPortFrom(Addr[0], 5001), mptcp.Options{CC: w.cc})
			return err
		})
	}()
	c := w.w.Accept(true)
	if err := <-dialled; err != nil {
		w.Fatal(err)
	}
	w.has(conn, c)
	w.down(c, 1<<16, nothing)
	w.up(c.Subflows[0], 1000)
	w.counts(map[string]uint64{"MPCapableSYNTX": 1, "MPCapableSYNACKRX": 0})
	c.Kill()
}

func plainFromACK(w *world) {
	c := w.accept(false, true)
	w.up(c.Subflows[0], 1000)
	w.down(c, 1<<16, nothing)
	w.counts(map[string]uint64{"MPCapableSYNRX": 1, "MPCapableFallbackACK": 1})
	c.Kill()
}

// The host joins an address that the peer proves to be its own, no other.
func announced(w *world) {
	c := w.accept(false, false)
	w.up(c.Subflows[0], 1000)
	c.Subflows[0].AddAddr(3, Addr[1], true)
	w.up(c.Subflows[0], 900) // what was sent before has been looked at when this is there
	c.Subflows[0].AddAddr(2, Addr[1], false)
	echo := c.Await("echo of ADD_ADDR", func(s *Segment) bool {
		if o := s.Option(AddAddr); o != nil && o[1] == 3 {
			w.Errorf("the host takes an address without proof: %v", s)
		}
		return s.Option(AddAddr) != nil
	}).Option(AddAddr)
	if echo[0]&1 == 0 || echo[1] != 2 {
		w.Errorf("no echo of what was announced: %x", echo)
	}
	second := c.AcceptJoin(Addr[1], 2)
	w.runs(2)
	was := second.Ack
	w.down(c, 1<<18, nothing)
	if second.Ack == was {
		w.Error("the subflow carries nothing")
	}
	w.counts(map[string]uint64{"AddAddr": 1, "EchoAddTx": 1, "MPJoinSynAckRx": 1})
	c.Kill()
}

func removed(w *world) {
	c := w.accept(false, false)
	w.up(c.Subflows[0], 1000)
	second := c.Join(Addr[1], 2, false)
	w.runs(2)
	c.Subflows[0].RemoveAddr(2)
	c.Await("end of the subflow", func(s *Segment) bool { return s.To == second.Local && (s.RST || s.FIN) })
	w.down(c, 1<<16, nothing)
	w.runs(1)
	w.counts(map[string]uint64{"RmAddr": 1})
	c.Kill()
}

func refused(w *world) {
	c := w.accept(false, false)
	w.up(c.Subflows[0], 1000)
	if answer := c.JoinUnknown(Addr[1]); !answer.RST {
		w.Errorf("the host takes a subflow of no connection: %v", answer)
	}
	forger := c.Join(Addr[1], 2, true)
	c.Await("reset of the forger", func(s *Segment) bool { return s.RST && s.To == forger.Local })
	w.down(c, 1<<16, nothing)
	w.runs(1)
	w.counts(map[string]uint64{"MPJoinNoTokenFound": 1, "MPJoinAckHMacFailure": 1})
	c.Kill()
}

func fastClosed(w *world) {
	c := w.accept(false, false)
	w.up(c.Subflows[0], 1000)
	second := c.Join(Addr[1], 2, false)
	w.runs(2)
	c.Subflows[0].FastClose()
	if _, err := w.conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		w.Errorf("the host reads with %v, want a reset", err)
	}
	c.Await("reset of the other subflow", func(s *Segment) bool { return s.RST && s.To == second.Local })
	w.counts(map[string]uint64{"MPFastcloseRx": 1})
}

// What a subflow has taken with it comes again on the other.
func subflowReset(w *world) {
	c := w.accept(false, false)
	w.up(c.Subflows[0], 1000)
	second := c.Join(Addr[1], 2, false)
	w.runs(2)
	second.Deaf = true
	w.down(c, 1<<18, func() {
		c.Await("data on the second subflow", func(s *Segment) bool { return s.To == second.Local && len(s.Payload) > 0 })
		second.Kill()
	})
	w.runs(1)
	c.Kill()
}

// The peer sends subflow-level ACKs, but no new DATA_ACK. The host sends all outstanding data again, not the oldest fragment only.
func thrownAway(w *world) {
	c := w.accept(false, false)
	w.up(c.Subflows[0], 1000)
	c.Subflows[0].Forgetful = true
	w.down(c, 1<<17, func() {
		const window = 60000 // of the 65,535 bytes that the peer takes
		c.Await("all of it again", func(*Segment) bool {
			return len(c.Thrown) >= window && !slices.ContainsFunc(c.Thrown[:window], func(times int) bool { return times < 2 })
		})
		c.Subflows[0].Forgetful = false
	})
	c.Kill()
}
