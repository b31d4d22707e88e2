// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"flag"
	"math"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
)

var jumping = flag.Duration("jumping", 3*time.Minute, "TestOwnTimeJumpingPath: how long")

// Each second the first path has another rate, of 0.2 to 50 Mbit/s, and another RTT, of 5 to 500 ms. Under earliest the
// stream goes on meanwhile, with all that the second path carries: no pause is longer than the longest timeout that a
// subflow had, and every byte is right.
//
//	        ┌── jumps ──────────────┐
//	client ─┤                       ├─ server
//	        └── 10 Mbit/s, 30 ms ───┘
func TestOwnTimeJumpingPath(t *testing.T) {
	const steady = 10e6
	load(t, "earliest")
	random := rand.New(rand.NewPCG(1, 0))
	between := func(low, high float64) float64 { return low * math.Pow(high/low, random.Float64()) }
	jump := func() lab.Shape {
		return lab.Shape{Rate: uint64(between(0.2e6, 50e6)), Delay: time.Duration(between(5, 500) / 2 * 1e6), Queue: 100}
	}
	n := newTwoPaths(t, [2]lab.Shape{jump(), {Rate: steady, Delay: 30 * time.Millisecond, Queue: 100}})
	n.schedule(t, "earliest")
	p := n.connect(t, "", "")
	arrived := p.verified()
	p.join(t, 2)

	timeout, jumps := time.Duration(0), 0
	end := time.Now().Add(*jumping)
	for next := time.Now(); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		info, err := mptcp.ReadInfo(p.client)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range info.Subflows {
			timeout = max(timeout, time.Duration(s.TCP.Rto)*time.Microsecond)
		}
		if time.Now().Before(next) {
			continue
		}
		next = next.Add(time.Second)
		shape := jump()
		for _, way := range []lab.Dir{lab.AtoB, lab.BtoA} {
			if err := n.paths[0].Set(way, shape); err != nil {
				t.Fatalf("after %d jumps: %v", jumps, err)
			}
		}
		jumps++
	}
	p.close()
	got := <-arrived
	rate := float64(got.bytes) * 8 / jumping.Seconds()
	t.Logf("%d jumps: %.1f Mbit/s, longest pause %v, longest timeout %v", jumps, rate/1e6, got.pause, timeout)
	if got.wrong {
		t.Errorf("after %d bytes there is one that was not sent", got.bytes)
	}
	if got.pause > timeout {
		t.Errorf("nothing arrives for %v, where the longest timeout is %v", got.pause, timeout)
	}
	if rate < 0.9*steady {
		t.Errorf("%.1f Mbit/s arrive, where the steady path alone carries %.1f", rate/1e6, steady/1e6)
	}
}

// arrival is what has come of a stream.
type arrival struct {
	bytes int64
	pause time.Duration // the longest between two reads
	wrong bool          // it ended at a byte that was not sent
}

// verified streams pseudo-random content from the client until close, and compares what arrives.
func (p pair) verified() <-chan arrival {
	stream := func() *rand.ChaCha8 { return rand.NewChaCha8([32]byte{}) }
	go func(c net.Conn) {
		content, source := make([]byte, 64<<10), stream()
		for {
			_, _ = source.Read(content) // never fails
			if _, err := c.Write(content); err != nil {
				return
			}
		}
	}(p.client)
	done := make(chan arrival, 1)
	go func(c net.Conn) {
		var a arrival
		content, want, source := make([]byte, 64<<10), make([]byte, 64<<10), stream()
		for last := time.Now(); ; {
			n, err := c.Read(content)
			if err != nil {
				done <- a
				return
			}
			a.pause, last = max(a.pause, time.Since(last)), time.Now()
			_, _ = source.Read(want[:n])
			if a.wrong = !bytes.Equal(content[:n], want[:n]); a.wrong {
				done <- a
				return
			}
			a.bytes += int64(n)
		}
	}(p.server)
	return done
}
