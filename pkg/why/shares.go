// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mpcc/mpcc/internal/figures"
	"github.com/mpcc/mpcc/pkg/telemetry"
)

// allows is what a subflow's congestion window would let it send, in bytes per second, on average.
func (c *Connection) allows(i int) (rate float64) {
	for _, l := range c.Looks {
		if s := l.Subflows[i]; s.RTT > 0 {
			rate += float64(s.Cwnd*s.SegBytes) / s.RTT.Seconds() / float64(len(c.Looks))
		}
	}
	return rate
}

// holds is how many bytes were given to subflow i and are not acknowledged, as the mean of all looks.
func (c *Connection) holds(i int) (bytes uint64) {
	for _, l := range c.Looks {
		s := l.Subflows[i]
		bytes += uint64(s.Flight*s.SegBytes) + s.Unsent
	}
	return bytes / uint64(len(c.Looks))
}

// takes is how long the bytes that subflow i holds take to be acknowledged at the subflow's rate in the interval.
func (c *Connection) takes(i int, interval time.Duration) time.Duration {
	segment := uint64(c.Looks[len(c.Looks)-1].Subflows[i].SegBytes)
	return time.Duration(float64(c.holds(i)) / float64(max(c.Subflows[i].Acked, segment, 1)) * float64(interval))
}

func (c *Connection) meanRTT(i int) (mean time.Duration) {
	for _, l := range c.Looks {
		mean += l.Subflows[i].RTT / time.Duration(len(c.Looks))
	}
	return mean
}

// loss is the part of segments that were sent again.
func (s *Subflow) loss() float64 {
	if s.Segments == 0 {
		return 0
	}
	return float64(s.Retransmitted) / float64(s.Segments)
}

// alike correlates the steps of two subflows' RTTs from look to look. The slope is of the smaller steps over the
// larger ones as they are spread; moved is how much the first one's RTT varied.
func (c *Connection) alike(i, j int) (r, slope float64, moved time.Duration) {
	var n, sx, sy, sxx, syy, sxy float64
	var low, high time.Duration = math.MaxInt64, 0
	for k := 1; k < len(c.Looks); k++ {
		was, is := c.Looks[k-1].Subflows, c.Looks[k].Subflows
		if !was[i].There || !was[j].There || !is[i].There || !is[j].There {
			continue
		}
		x, y := float64(is[i].RTT-was[i].RTT), float64(is[j].RTT-was[j].RTT)
		n, sx, sy, sxx, syy, sxy = n+1, sx+x, sy+y, sxx+x*x, syy+y*y, sxy+x*y
		low, high = min(low, is[i].RTT), max(high, is[i].RTT)
	}
	vx, vy := n*sxx-sx*sx, n*syy-sy*sy
	if n < 8 || vx <= 0 || vy <= 0 || high-low < time.Millisecond {
		return 0, 0, 0
	}
	return (n*sxy - sx*sy) / math.Sqrt(vx*vy), math.Sqrt(vy / vx), high - low
}

// active are the subflows that are in use, as opposed to backups.
func (c *Connection) active() []int {
	return slices.DeleteFunc(c.usable(), func(i int) bool { return c.Subflows[i].backup() })
}

// bytes is what a subflow carried in the direction in which there was more.
func (c *Connection) bytes(i int) uint64 {
	if c.Received > c.Acked {
		return c.Subflows[i].Received
	}
	return c.Subflows[i].Acked
}

func (c *Connection) share(i int) float64 {
	sum := uint64(0)
	for j := range c.Subflows {
		sum += c.bytes(j)
	}
	if sum == 0 {
		return 0
	}
	return float64(c.bytes(i)) / float64(sum)
}

func (c *Connection) shares() []Share {
	all := []Share{}
	for i := range c.Subflows {
		s := &c.Subflows[i]
		all = append(all, Share{
			Local: s.Local, Remote: s.Remote, Interface: s.Interface, Backup: s.backup(), Joining: s.Joining,
			Bytes: c.bytes(i), Share: c.share(i), RTT: telemetry.Micros(s.RTT), MinRTT: telemetry.Micros(s.MinRTT),
		})
	}
	return all
}

// carried says what each subflow carries: "2 subflows carry 61 % and 39 %".
func (c *Connection) carried() string {
	var parts []string
	usable := c.usable()
	for _, i := range usable {
		parts = append(parts, fmt.Sprintf("%.0f %%", 100*c.share(i)))
	}
	last := len(parts) - 1
	return fmt.Sprintf("%s carry %s and %s", many(len(usable), "subflow"), strings.Join(parts[:last], ", "), parts[last])
}

func (v *view) carriedBy(c *Connection, i int) string {
	return fmt.Sprintf("it carried %s in %s, %.1f %% of all", figures.Size(c.bytes(i)), span(v.Interval), 100*c.share(i))
}

// rates says how fast each subflow was.
func (v *view) rates(c *Connection, usable []int) (all []string) {
	for _, i := range usable {
		s := &c.Subflows[i]
		all = append(all, fmt.Sprintf("%v > %v by %s: %s, RTT %s", s.Local.Addr(), s.Remote.Addr(), s.Interface,
			figures.BitRate(float64(c.bytes(i))/v.Interval.Seconds()), span(s.RTT)))
	}
	return all
}

func span(d time.Duration) string { return figures.RTT(telemetry.Micros(d)) }
