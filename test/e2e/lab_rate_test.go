// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/pkg/mptcp"
	"github.com/mpcc/mpcc/test/checked"
)

// goodput moves content by one TCP connection to right, or back to left, and returns its rate in bit/s.
func (w wire) goodput(t *testing.T, d lab.Dir, bytes int64) float64 {
	t.Helper()
	if d == lab.BtoA {
		w.left, w.right = w.right, w.left
	}
	conn, received := w.connect(t, mptcp.Options{TCP: true})
	sent, err := checked.Send(conn, checked.Transfer{Bytes: bytes, Fast: true}) // a hash would be slower than the link
	if err := errors.Join(err, <-received); err != nil {
		t.Fatal(err)
	}
	return sent.Rate()
}

func TestOwnTimeNetlabRate(t *testing.T) {
	w := newWire(t, lab.LinkOpts{AtoB: lab.Shape{Rate: 20e6}, BtoA: lab.Shape{Rate: 40e6}})
	gives := func(what string, d lab.Dir, bytes int64, rate float64) {
		t.Helper()
		got := w.goodput(t, d, bytes)
		t.Logf("%s: %.2f Mbit/s of content at %.0f Mbit/s", what, got/1e6, rate/1e6)
		// A full frame of 1514 bytes carries 1448 (with timestamps) or 1460 bytes of content.
		if got < rate*1448/1514*0.95 || got > rate*1460/1514*1.01 {
			t.Errorf("%s: %.2f Mbit/s of content over a link of %.0f", what, got/1e6, rate/1e6)
		}
	}
	gives("there", lab.AtoB, 3<<20, 20e6)
	q, err := w.link.Stats(lab.AtoB)
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := w.link.Received(lab.AtoB)
	if err != nil {
		t.Fatal(err)
	}
	if size := bytes / q.Sent; size < 1400 || size > 1514 {
		t.Errorf("a packet has %d bytes on average: TCP hands over more than frames", size)
	}
	gives("back", lab.BtoA, 6<<20, 40e6)

	if err := w.link.Set(lab.AtoB, lab.Shape{Rate: 10e6}); err != nil {
		t.Fatal(err)
	}
	gives("there, now slower", lab.AtoB, 2<<20, 10e6)
	gives("back, as before", lab.BtoA, 6<<20, 40e6)

	if err := w.link.Set(lab.AtoB, lab.Shape{}); err != nil {
		t.Fatal(err)
	}
	if got := w.goodput(t, lab.AtoB, 16<<20); got < 100e6 {
		t.Errorf("there, unlimited: %.1f Mbit/s", got/1e6)
	}
}

// The queue keeps as much of a burst as fits into it.
func TestOwnTimeNetlabQueue(t *testing.T) {
	const queue = 30
	w := newWire(t, lab.LinkOpts{AtoB: lab.Shape{Rate: 1e6, Queue: queue}})
	// Two frames pass at once, and one leaves every 12 ms while the burst comes.
	if n, _ := w.burst(t, 300, 1514); n < queue || n > queue+6 {
		t.Errorf("%d frames of a burst passed a queue of %d", n, queue)
	}
	if err := w.link.Set(lab.AtoB, lab.Shape{Rate: 1e6, Queue: 2 * queue}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if n, _ := w.burst(t, 300, 1514); n < 2*queue || n > 2*queue+6 {
		t.Errorf("%d frames of a burst passed a queue of %d", n, 2*queue)
	}
}

// A queue in bytes keeps ten times as many small frames.
func TestOwnTimeNetlabQueueBytes(t *testing.T) {
	const rate, queue, bucket = 1e6, 30 * 1514, 1e6 / 8 / 20
	w := newWire(t, lab.LinkOpts{AtoB: lab.Shape{Rate: rate, QueueBytes: queue}})
	for _, frame := range []int{1514, 151} {
		sent := 3 * queue / frame
		n, took := w.burst(t, sent, frame)
		// The bucket passes at once, and some leave while the burst comes.
		least, most := (queue+bucket)/frame-1, (queue+bucket+int(rate/8*took.Seconds()))/frame+2
		if n < least || n > most {
			t.Errorf("%d frames of %d bytes passed a queue of %d bytes, want %d to %d", n, frame, queue, least, most)
		}
		q, err := w.link.Stats(lab.AtoB)
		if err != nil {
			t.Fatal(err)
		}
		if q.Dropped < uint64(sent-most) || q.Backlog != 0 {
			t.Errorf("%d of %d frames arrived, and the queue tells of %+v", n, sent, q)
		}
	}
	if _, err := w.link.Stats(lab.BtoA); err == nil || !strings.Contains(err.Error(), "has no queue: give it a rate") {
		t.Errorf("statistics of a link without a queue: %v", err)
	}
}

// burst sends n frames of so many bytes to right at once, and counts those that arrive.
func (w wire) burst(t *testing.T, n, frame int) (arrived int, took time.Duration) {
	t.Helper()
	var in, out *net.UDPConn
	err := w.right.Do(func() (err error) {
		in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.link.Addr(w.right), 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	err = w.left.Do(func() (err error) {
		out, err = net.DialUDP("udp4", nil, in.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	// Room for all of it, so that the sender does not wait for the queue.
	raw, err := out.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20)
	})
	if err := errors.Join(err, setErr); err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, frame-14-20-8)
	began := time.Now()
	for range n {
		// An error means that the queue dropped a frame.
		if _, err := out.Write(payload); err != nil && !errors.Is(err, unix.ENOBUFS) {
			t.Fatal(err)
		}
	}
	took = time.Since(began)
	for {
		if err := in.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Read(payload); errors.Is(err, os.ErrDeadlineExceeded) {
			return arrived, took
		} else if err != nil {
			t.Fatal(err)
		}
		arrived++
	}
}
