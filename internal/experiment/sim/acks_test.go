// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

const nowhere = `TUNABLES
phases: {measure: 10 s}
hosts: [{name: sender}, {name: receiver}]
routers: [core]
links:
  - {name: path1, between: [sender, core], loss: 100 %}
  - {name: path2, between: [sender, core], loss: 100 %}
  - {name: lan, between: [core, receiver]}
users:
  - {name: sender, from: sender, to: receiver, via: path1, transport: TRANSPORT, cc: CC, traffic: bulk}
`

// Sockets that are told by ACKs what the kernel's were told have the kernel's windows after each of them. test/acks says
// what is in the files; make acks records them.
func TestWindowsAsInKernel(t *testing.T) {
	for _, cc := range []string{"reno", "cubic", "lia"} {
		t.Run(cc, func(t *testing.T) { newReplay(t, cc).run() })
	}
}

// replay is a connection that is told ACKs of the kernel's.
type replay struct {
	*testing.T
	sim     *Simulation
	conn    *connection
	sockets []*socket
	began   int64 // when it was by the kernel's clock, in whole ticks
	acks    int
}

func newReplay(t *testing.T, cc string) *replay {
	transport, tunables := "tcp", ""
	if cc != "reno" && cc != "cubic" {
		// The record was made with these, as make acks says. With couple=shared windows also depend on when, within an interval of the host's clock, the connection began.
		transport, tunables = "mptcp", "tunables: [couple=always, growth=reno, response=standard]"
	}
	s := start(t, strings.NewReplacer("TRANSPORT", transport, "CC", cc, "TUNABLES", tunables).Replace(nowhere), 1)
	u := s.Users[0]
	s.stop(u.timer)
	u.conn = s.connect(u, math.MaxUint64)
	u.conn.joined, u.conn.edge = true, math.MaxInt64
	return &replay{T: t, sim: s, conn: u.conn}
}

func (r *replay) run() {
	f, err := os.Open("testdata/acks/" + r.conn.user.Class.CC + ".gz")
	if err != nil {
		r.Fatal(err)
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		r.Fatal(err)
	}
	lines := bufio.NewScanner(text)
	for lines.Scan() && !r.Failed() {
		if rest, ok := strings.CutPrefix(lines.Text(), "subflow "); ok {
			r.open(strings.Fields(rest))
		} else {
			told, was, _ := strings.Cut(lines.Text(), " | ")
			r.ack(strings.Fields(told), strings.Fields(was))
		}
	}
	if err := lines.Err(); err != nil {
		r.Fatal(err)
	}
	if r.acks < 1000 {
		r.Errorf("only %d ACKs", r.acks)
	}
}

func (r *replay) number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		r.Fatal(err)
	}
	return n
}

// working is how long the kernel takes about, from when it notes an ACK until it reads its clock of ticks.
const working = 10_000 // ns

// until goes on to a time of the kernel's, or to a tick that comes before the kernel reads its clock. It says whether it
// is that.
func (r *replay) until(at int64) (ticked bool) {
	if r.began == 0 {
		r.began = (at/jiffy - 10) * jiffy
	}
	if ticked = at%jiffy > jiffy-working; ticked {
		at = (at/jiffy + 1) * jiffy
	}
	until(r, r.sim, time.Duration(at-r.began))
	return ticked
}

// open opens a subflow: its number, when that was, the RTT and what is sent at once.
func (r *replay) open(f []string) {
	r.until(r.number(f[1]))
	u := r.conn.user
	local := u.local
	if len(r.sockets) > 0 {
		at, err := r.sim.network.interfaceOf("sender", "path2")
		if err != nil {
			r.Fatal(err)
		}
		local = r.sim.network.place(at, 0)
	}
	k := r.sim.newSocket(r.conn, local, u.remote, len(r.sockets) == 0)
	k.locked = true // segments come from the file alone
	r.sockets = append(r.sockets, k)
	k.estimate(r.number(f[2]))
	k.establish()
	r.queue(f[3:])
	k.push(false)
}

// queue queues what the kernel has sent for the first time.
func (r *replay) queue(sent []string) {
	for _, s := range sent {
		var number, size int
		if _, err := fmt.Sscanf(s, "%d:%d", &number, &size); err != nil {
			r.Fatal(err)
		}
		k := r.sockets[number-1]
		k.afterIdle()
		k.add(r.conn.next, size)
		r.conn.next += uint64(size)
		r.conn.sentTo = r.conn.next
	}
}

// ack tells a subflow an ACK, and compares the socket with what it was then.
func (r *replay) ack(told, was []string) {
	r.acks++
	ticked := r.until(r.number(told[1]))
	k := r.sockets[r.number(told[0])-1]
	for i, v := range []uint32{k.Cwnd, k.currentSsthresh(), k.next} {
		if want := uint32(r.number(was[i])); v != want {
			r.Errorf("ACK %d, subflow %s: %s is %d, and %d in the kernel", r.acks, told[0], []string{"window", "threshold", "next segment"}[i], v, want)
		}
	}
	p := packet{ack: uint32(r.number(told[2])), edge: uint64(r.number(told[3])), stamp: r.number(told[4]) - r.began/1e6}
	for i, s := range told[5:] {
		b := &p.blocks[i]
		if _, err := fmt.Sscanf(s, "%d-%d", &b.low, &b.high); err != nil {
			r.Fatal(err)
		}
		p.sacks++
	}
	p.duplicate = p.sacks > 0 && (p.blocks[0].high <= p.ack || p.sacks > 1 && p.blocks[0].low >= p.blocks[1].low && p.blocks[0].high <= p.blocks[1].high)
	r.queue(was[4:])
	stamp := k.retransStamp
	k.acknowledged(&p)
	if ticked && stamp == 0 && k.retransStamp > 0 {
		k.retransStamp-- // timestamps are of the time that was noted
	}
	for _, k := range r.sockets {
		k.push(false)
	}
}
