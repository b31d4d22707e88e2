// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/mpcc/mpcc/internal/figures"
)

// receiving judges a connection on which the peer sends.
func (v *view) receiving(c *Connection, usable []int) (found []Finding) {
	full := 0
	for _, l := range c.Looks {
		if float64(l.Memory.Received) > bufferFull/2*float64(l.Memory.ReceiveBuffer) {
			full++
		}
	}
	if 2*full > len(c.Looks) {
		last := c.Looks[len(c.Looks)-1].Memory
		return []Finding{v.finding("reads-slowly", nil, fmt.Sprintf("%s wait in a receive buffer of %s, in %d of %d looks",
			figures.Size(uint64(last.Received)), figures.Size(uint64(last.ReceiveBuffer)), full, len(c.Looks)))}
	}
	if len(c.active()) < 2 {
		return nil
	}
	for _, i := range usable {
		if s := &c.Subflows[i]; !s.backup() && c.share(i) < heldShare/float64(len(usable)) {
			found = append(found, v.finding("peer-decides", v.words(c, s), v.carriedBy(c, i)))
		}
	}
	return found
}

// limit is what holds a connection back at a moment.
type limit int

const (
	byNetwork limit = iota // windows of subflows are full
	byApplication
	bySendBuffer
	byReceiver
)

// limitAt tells what holds the connection back in a look; alive are the subflows that could send.
func (c *Connection) limitAt(l *Look, alive []int) limit {
	full, there, window, windows, segment := 0, 0, l.window(), uint64(0), uint64(1)
	for _, i := range alive {
		s := l.Subflows[i]
		if !s.There {
			continue
		}
		there++
		if l.full(i) {
			full++
		}
		segment = max(segment, uint64(s.SegBytes))
		windows += uint64(s.Cwnd * s.SegBytes)
	}
	switch {
	case l.Unsent > 0 && l.Flight+2*segment > window && window < windows:
		return byReceiver
	case there > 0 && full == there, l.Unsent > 0:
		return byNetwork // or a subflow has room that is not used
	case float64(l.Memory.Queued) > bufferFull*float64(l.Memory.SendBuffer):
		return bySendBuffer
	case full > 0 && l.Memory.Queued > 0 && float64(l.Memory.Queued) > bufferFull/2*float64(l.Memory.SendBuffer):
		return byNetwork
	}
	return byApplication
}

// sending judges a connection on which this host sends.
func (v *view) sending(c *Connection, alive []int) []Finding {
	if len(alive) < 2 {
		return nil // blocked has said why
	}
	sum := uint64(0)
	for _, i := range alive {
		sum += c.Subflows[i].Acked
	}
	if c.Acked == 0 && sum == 0 && slices.IndexFunc(c.Looks, func(l Look) bool { return l.Unsent+l.Flight > 0 }) < 0 {
		return []Finding{v.finding("idle", nil, "nothing sent and nothing received in "+span(v.Interval))}
	}
	// The kernel's own scheduler copies too, but only what a path holds up: then that path is the cause.
	if c.Scheduler != "" && c.Acked > 0 && float64(sum) > copies*float64(c.Acked) {
		w := words{}
		return []Finding{v.finding("redundant", w, fmt.Sprintf("the subflows carried %s of %s of content", figures.Size(sum), figures.Size(c.Acked)))}
	}
	var looks [byReceiver + 1]int
	for i := range c.Looks {
		looks[c.limitAt(&c.Looks[i], alive)]++
	}
	of := func(l limit) string { return fmt.Sprintf("in %d of %d looks", looks[l], len(c.Looks)) }
	worst := byNetwork
	for l := range looks {
		if looks[l] > looks[worst] {
			worst = limit(l)
		}
	}
	rate := figures.BitRate(float64(c.Acked) / v.Interval.Seconds())
	w := words{"remote": c.Remote.Addr().String(), "bytes": fmt.Sprint(c.needs(alive))}
	longest := time.Duration(0)
	for _, i := range alive {
		longest = max(longest, c.Subflows[i].RTT)
	}
	buffer := uint64(c.Looks[len(c.Looks)-1].Memory.SendBuffer)
	// Windows of this size need less than a large buffer: only what a slow path delivers late fills the rest.
	large := buffer > overhead*c.windows(alive)
	product := fmt.Sprintf("%s at an RTT of up to %s", rate, span(longest))
	switch worst {
	case byApplication:
		return []Finding{v.finding("application", w, "windows have room and nothing waits to be sent, "+of(worst), rate)}
	case bySendBuffer:
		seen := fmt.Sprintf("the send buffer of %s is full while windows have room, %s", figures.Size(buffer), of(worst))
		if large {
			if found := v.pathsOrHeldUp(c, alive); len(found) > 0 {
				found[0].Evidence = append(found[0].Evidence, seen)
				return found
			}
		}
		return []Finding{v.finding("send-buffer", w, seen, product)}
	case byReceiver:
		flight, window := c.meanFlight()
		seen := fmt.Sprintf("the peer's window is full, %s: %s of at most %s are on their way", of(worst), figures.Size(flight), figures.Size(window))
		if 2*flight < window || window == 0 {
			return []Finding{v.finding("peer-reads-slowly", w, seen, rate)}
		}
		return []Finding{v.finding("receive-buffer", w, seen, product)}
	}
	if large && float64(looks[bySendBuffer]) >= oftenFull*float64(len(c.Looks)) {
		return v.pathsOrHeldUp(c, alive)
	}
	return v.paths(c, alive)
}

// pathsOrHeldUp says what holds the paths down. Where that is no cause outside mpcc and the path itself, a path that holds
// up the others is the first finding.
func (v *view) pathsOrHeldUp(c *Connection, alive []int) []Finding {
	found := v.paths(c, alive)
	known := slices.DeleteFunc(slices.Clone(found), unexplained)
	if slow, ok := v.heldUp(c, alive); ok && (len(found) == 0 || len(known) < len(found)) {
		return append([]Finding{slow}, known...)
	}
	return found
}

// windows are the congestion windows together, in bytes.
func (c *Connection) windows(alive []int) (bytes uint64) {
	for _, i := range alive {
		last := c.Looks[len(c.Looks)-1].Subflows[i]
		bytes += uint64(last.Cwnd * last.SegBytes)
	}
	return bytes
}

// needs is a buffer in which all windows have room twice, as a power of 2, and no less than what kernels have.
func (c *Connection) needs(alive []int) int {
	return max(4<<20, 1<<bits.Len64(2*overhead*c.windows(alive)))
}

// meanFlight is what was on its way on average, and the peer's largest window.
func (c *Connection) meanFlight() (flight, window uint64) {
	for i := range c.Looks {
		l := &c.Looks[i]
		flight += l.Flight / uint64(len(c.Looks))
		window = max(window, l.window())
	}
	return flight, window
}
