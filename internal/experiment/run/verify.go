// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/mpcc/mpcc/internal/experiment/lab"
	"github.com/mpcc/mpcc/internal/experiment/result"
)

// Before users send, each direction of a link is measured with datagrams: small
// ones show delay and loss, and more full frames than can pass show the rate.
const (
	smallPayload = 32
	fullFrame    = 1514
	headers      = 14 + 20 + 8 // Ethernet, IPv4, UDP

	attempts  = 3                    // a busy machine may spoil one
	atOnce    = 60e6                 // bit/s: links of so much in all are measured side by side
	longest   = 2 * time.Second      // that small packets are sent
	wantLost  = 25                   // packets that should be lost, for their share to be known to a fifth
	lateSlack = 4 * time.Millisecond // by which a delay may be off because the machine is busy
)

// errUnbelievable is wrapped where a link is not what was asked.
var errUnbelievable = errors.New("no result would be believable")

// direction is one direction of a link.
type direction struct {
	name     string
	link     *lab.Link
	dir      lab.Dir
	from, to *lab.Host
	shape    lab.Shape
}

func (d *direction) shaped() bool {
	return d.shape.Rate > 0 || d.shape.Delay > 0 || d.shape.Loss > 0
}

// asked returns what the direction was to be.
func (d *direction) asked() result.Quality {
	var q result.Quality
	if d.shape.Rate > 0 {
		rate := float64(d.shape.Rate)
		q.Rate = &rate
	}
	if d.shape.Delay > 0 {
		q.Delay = pointer(milliseconds(d.shape.Delay))
	}
	if d.shape.Loss > 0 {
		q.Loss = pointer(d.shape.Loss / 100)
	}
	return q
}

func pointer[T any](v T) *T { return &v }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// verify measures all directions, and fails if one is not what was asked.
func verify(ctx context.Context, all []*direction) ([]result.Quality, error) {
	measured := make([]result.Quality, len(all))
	failed := make([]error, len(all))
	for first := 0; first < len(all); {
		// As many at once as the machine can carry.
		last, sum := first, 0.0
		for last < len(all) && (last == first || last-first < 4 && sum+float64(all[last].shape.Rate) < atOnce) {
			sum += float64(all[last].shape.Rate)
			last++
		}
		var wait sync.WaitGroup
		for i := first; i < last; i++ {
			wait.Go(func() { measured[i], failed[i] = all[i].verify(ctx) })
		}
		wait.Wait()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, err := range failed[first:last] {
			if err != nil {
				return nil, err
			}
		}
		first = last
	}
	return measured, nil
}

func (d *direction) verify(ctx context.Context) (q result.Quality, err error) {
	for i := range attempts {
		time.Sleep(time.Duration(i) * 200 * time.Millisecond) // it may be less busy then
		if q, err = d.measure(ctx); err == nil {
			err = d.compare(q)
		}
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("link %s, %s to %s: %w", d.name, d.from.Name(), d.to.Name(), err)
	}
	return q, err
}

// compare fails if what was measured is not what was asked.
func (d *direction) compare(q result.Quality) error {
	var wrong []string
	// The rate is seen over a few frames, one of which may come late; a busy machine delivers late.
	if q.Rate != nil {
		if asked := float64(d.shape.Rate); *q.Rate < 0.9*asked || *q.Rate > 1.05*asked {
			wrong = append(wrong, fmt.Sprintf("%.3g of %.3g Mbit/s", *q.Rate/1e6, asked/1e6))
		}
	}
	if q.Delay != nil {
		asked := milliseconds(d.shape.Delay)
		slack := milliseconds(lateSlack) + 0.05*asked + milliseconds(d.shape.Jitter)/2
		if math.Abs(*q.Delay-asked) > slack {
			wrong = append(wrong, fmt.Sprintf("a delay of %.3g ms instead of %.3g", *q.Delay, asked))
		}
	}
	if q.Loss != nil {
		asked, n := d.shape.Loss/100, float64(d.smallPackets())
		if sigma := math.Sqrt(asked * (1 - asked) / n); math.Abs(*q.Loss-asked) > 4*sigma+0.5/n {
			wrong = append(wrong, fmt.Sprintf("a loss of %.3g %% instead of %.3g", 100**q.Loss, 100*asked))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("it gives %s: %w; let the machine be idle, or ask less of it",
			strings.Join(wrong, ", "), errUnbelievable)
	}
	return nil
}

// smallPackets returns how many packets delay and loss are measured with.
func (d *direction) smallPackets() int {
	if d.shape.Loss == 0 {
		return 20
	}
	n := math.Min(wantLost/(d.shape.Loss/100), 5000)
	return int(max(50, min(n, float64(longest)/float64(d.smallGap()))))
}

// smallGap returns the time between small packets, which take a quarter of the rate at most.
func (d *direction) smallGap() time.Duration {
	if d.shape.Loss == 0 {
		return d.apart()
	}
	if d.shape.Rate == 0 {
		return 100 * time.Microsecond
	}
	return max(100*time.Microsecond, frames(4, smallPayload+headers, d.shape.Rate))
}

// apart returns the time between packets of which none waits for the one before, which is delayed by jitter.
func (d *direction) apart() time.Duration { return max(3*time.Millisecond, 2*d.shape.Jitter) }

// frames returns how long n frames of so many bytes take at a rate.
func frames(n, bytes int, rate uint64) time.Duration {
	return time.Duration(float64(n*bytes*8) / float64(rate) * float64(time.Second))
}

// arrival is one datagram that arrived.
type arrival struct {
	sent, at time.Time
}

func (a arrival) delay() time.Duration { return a.at.Sub(a.sent) }

func (d *direction) measure(ctx context.Context) (q result.Quality, err error) {
	p, err := d.open()
	if err != nil {
		return q, err
	}
	defer p.close()
	n := d.smallPackets()
	if d.shape.Delay > 0 || d.shape.Loss > 0 {
		small, err := p.send(ctx, n, smallPayload, d.smallGap(), d.shape.Delay+d.shape.Jitter)
		if err != nil {
			return q, err
		}
		q.Loss = pointer(1 - float64(len(small))/float64(n))
		if d.shape.Loss == 0 && *q.Loss == 0 {
			q.Loss = nil // none was asked for, and none is there
		}
		if d.shape.Jitter > 0 && d.smallGap() < d.apart() {
			if small, err = p.send(ctx, 20, smallPayload, d.apart(), d.shape.Delay+d.shape.Jitter); err != nil {
				return q, err
			}
		}
		if d.shape.Delay > 0 && len(small) > 0 {
			slices.SortFunc(small, func(a, b arrival) int { return cmp.Compare(a.delay(), b.delay()) })
			// The machine can only add to a delay: the shortest is nearest. With jitter it is the median.
			delay := small[0].delay()
			if d.shape.Jitter > 0 {
				delay = small[len(small)/2].delay()
			}
			if d.shape.Rate > 0 {
				delay -= frames(1, smallPayload+headers, d.shape.Rate)
			}
			q.Delay = pointer(milliseconds(delay))
		}
	}
	if d.shape.Rate == 0 || d.shape.Loss >= 50 {
		return q, nil
	}
	q.Rate, err = d.measureRate(ctx, p)
	return q, err
}

// measureRate sends more full frames than can pass, and counts what comes out by
// the interface's counter: reading the frames would limit a slow machine.
func (d *direction) measureRate(ctx context.Context, p prober) (*float64, error) {
	gap := frames(1, fullFrame, d.shape.Rate) * 2 / 3 // one and a half times the rate
	took := max(300*time.Millisecond, 60*gap)
	messages := make([]ipv4.Message, 32)
	for i := range messages {
		messages[i].Buffers = [][]byte{make([]byte, fullFrame-headers)}
	}
	out := ipv4.NewPacketConn(p.out)
	begin := time.Now()
	var from, to counted
	var err error
	for sent := 0; ctx.Err() == nil; {
		now := time.Now()
		// Only the second half counts, from the time at which it can have arrived: frames of
		// the first may have passed at once, out of a bucket of tokens.
		if from.at.IsZero() {
			if now.Sub(begin)-d.shape.Delay-d.shape.Jitter > took/2 {
				if from, err = d.received(); err != nil {
					return nil, err
				}
			}
		} else if now.Sub(from.at) > took/2 {
			if to, err = d.received(); err != nil {
				return nil, err
			}
			break
		}
		due := int(now.Sub(begin)/gap) - sent
		if due < 1 {
			time.Sleep(min(gap, time.Millisecond))
			continue
		}
		n, err := out.WriteBatch(messages[:min(due, len(messages))], 0)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return nil, err
		}
		sent += max(n, 1) // an error means that the sender's own queue dropped a frame
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return pointer(float64(to.bytes-from.bytes) * 8 / to.at.Sub(from.at).Seconds()), nil
}

// counted is how many bytes had come out at a time.
type counted struct {
	at    time.Time
	bytes uint64
}

func (d *direction) received() (c counted, err error) {
	before := time.Now()
	c.bytes, err = d.link.Received(d.dir)
	c.at = before.Add(time.Since(before) / 2)
	return c, err
}

// prober sends datagrams over one direction.
type prober struct {
	in, out *net.UDPConn
}

func (d *direction) open() (p prober, err error) {
	addr := netip.AddrPortFrom(d.link.Addr(d.to), 0)
	err = d.to.Do(func() (err error) {
		p.in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
		return err
	})
	if err != nil {
		return p, err
	}
	err = d.from.Do(func() (err error) {
		local := net.UDPAddrFromAddrPort(netip.AddrPortFrom(d.link.Addr(d.from), 0))
		p.out, err = net.DialUDP("udp4", local, p.in.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		return p, errors.Join(err, p.in.Close())
	}
	// Buffers with room for all of it: the sockets should drop nothing.
	const room = 16 << 20
	if err := errors.Join(setsockopt(p.out, unix.SO_SNDBUFFORCE, room), setsockopt(p.in, unix.SO_RCVBUFFORCE, room)); err != nil {
		p.close()
		return p, err
	}
	return p, nil
}

func (p prober) close() {
	p.in.Close()
	p.out.Close()
}

func setsockopt(conn *net.UDPConn, option, value int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, value) })
	return errors.Join(err, set)
}

// send sends n datagrams, a gap apart on average, and returns those that arrive
// until grace after the last. When it is late it sends some without a gap, but not
// so many that a queue overflows.
func (p prober) send(ctx context.Context, n, payload int, gap, grace time.Duration) ([]arrival, error) {
	begin := time.Now()
	collected := make(chan []arrival, 1)
	if err := p.in.SetReadDeadline(begin.Add(longest * 10)); err != nil {
		return nil, err
	}
	go func() {
		var got []arrival
		buf := make([]byte, fullFrame)
		for len(got) < n {
			size, err := p.in.Read(buf)
			if err != nil {
				break
			}
			// The kernel's timestamps would be more exact. But to switch them on the kernel
			// patches its own code, which an emulated processor does not always survive.
			at := time.Now()
			if size == payload && binary.BigEndian.Uint64(buf[8:]) == uint64(begin.UnixNano()) {
				got = append(got, arrival{begin.Add(time.Duration(binary.BigEndian.Uint64(buf))), at})
			}
		}
		collected <- got
	}()
	buf := make([]byte, payload)
	binary.BigEndian.PutUint64(buf[8:], uint64(begin.UnixNano()))
	turn := begin
	for range n {
		if wait := time.Until(turn); wait > 200*time.Microsecond {
			time.Sleep(wait)
		} else if late := 10 * gap; -wait > late {
			turn = turn.Add(-wait - late)
		}
		turn = turn.Add(gap)
		if ctx.Err() != nil {
			break
		}
		binary.BigEndian.PutUint64(buf, uint64(time.Since(begin)))
		// An error means that the sender's own queue dropped a frame.
		if _, err := p.out.Write(buf); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return nil, err
		}
	}
	if err := p.in.SetReadDeadline(time.Now().Add(grace + 100*time.Millisecond)); err != nil {
		return nil, err
	}
	return <-collected, ctx.Err()
}
