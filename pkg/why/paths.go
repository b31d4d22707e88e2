// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/mpcc/mpcc/internal/figures"
)

// paths judges which paths are held down, where the network or the scheduler limits the connection.
func (v *view) paths(c *Connection, alive []int) (found []Finding) {
	all := 0.0
	for _, i := range alive {
		all += c.allows(i)
	}
	for _, i := range alive {
		// By what its window allows as well: where the scheduler has queued much on a slow path, the others wait for it, and
		// shares become even.
		part := c.share(i) * float64(len(alive))
		if part < heldShare || part < evenShare && c.allows(i)*float64(len(alive)) < heldShare*all {
			found = append(found, v.held(c, i, alive, all))
		}
	}
	if len(found) > 0 {
		return found
	}
	first := &c.Subflows[alive[0]]
	if c.Opener && first.Device != "" && !slices.ContainsFunc(alive, func(i int) bool { return c.Subflows[i].Device != first.Device }) {
		return []Finding{v.finding("shared-interface", words{"interface": first.Device}, "ip route get shows the same interface for all subflows", c.carried())}
	}
	for n, i := range alive {
		for _, j := range alive[n+1:] {
			a, b := &c.Subflows[i], &c.Subflows[j]
			if r, slope, moved := c.alike(i, j); r > sharedCorrelation && slope > sharedSlope && slope < 1/sharedSlope {
				return []Finding{v.finding("shared-bottleneck", nil, fmt.Sprintf(
					"the RTTs from %v and %v rise and fall together, by %s: correlation %.2f", a.Local.Addr(), b.Local.Addr(), span(moved), r),
					c.carried())}
			}
		}
	}
	return nil
}

// unexplained says whether a finding on a path that carries little names no cause outside mpcc and the path itself.
func unexplained(f Finding) bool { return f.Cause == "path-rate" || f.Cause == "scheduler" }

// heldUp finds the subflow whose unacknowledged data takes much longer to arrive than the data of any other subflow. While the
// send buffer is full, the other subflows wait for that data. Under the scheduler earliest there is no such finding: earliest has
// sent that data again on another subflow, if the data arrives sooner there.
func (v *view) heldUp(c *Connection, alive []int) (Finding, bool) {
	slow, most, second := 0, time.Duration(0), time.Duration(0)
	for _, i := range alive {
		switch d := c.takes(i, v.Interval); {
		case d > most:
			slow, most, second = i, d, most
		case d > second:
			second = d
		}
	}
	if most < late*second || c.Scheduler == "earliest" {
		return Finding{}, false
	}
	return v.finding("held-up", v.words(c, &c.Subflows[slow]), v.carriedBy(c, slow), fmt.Sprintf(
		"the %s that lie there take %s at that rate; on the other paths %s at most", figures.Size(c.holds(slow)), span(most), span(second))), true
}

// held says what holds a path down that carries little.
func (v *view) held(c *Connection, i int, alive []int, all float64) Finding {
	s := &c.Subflows[i]
	w := v.words(c, s)
	evidence := []string{v.carriedBy(c, i), fmt.Sprintf("its window allows %s, all windows %s", figures.BitRate(c.allows(i)), figures.BitRate(all))}
	least, cheapest, fastest := math.Inf(1), math.Inf(1), time.Duration(math.MaxInt64)
	for _, j := range alive {
		if o := &c.Subflows[j]; j != i {
			least = min(least, o.loss())
			fastest = min(fastest, o.MinRTT)
			if o.PerMB != nil {
				cheapest = min(cheapest, *o.PerMB)
			}
		}
	}
	full := 0
	for k := range c.Looks {
		if c.Looks[k].full(i) {
			full++
		}
	}
	of := fmt.Sprintf("in %d of %d looks", full, len(c.Looks))
	if s.Refused > 0 {
		evidence = append(evidence, fmt.Sprintf("the scheduler %s found room there %d times and did not use it", c.Scheduler, s.Refused))
	}
	if s.Coupling != nil {
		evidence = append(evidence, fmt.Sprintf("%s has a coupling of %s", s.CC, figures.Coupling(*s.Coupling)))
	}
	switch {
	case s.Rule != "":
		return v.finding("path-rule", w, evidence...)
	case s.Priced && s.PerMB != nil && *s.PerMB > dear*cheapest:
		return v.finding("energy-price", w, append(evidence, fmt.Sprintf("%.3g J/MB there, %.3g J/MB on the cheapest path", *s.PerMB, cheapest))...)
	case s.loss() > lossy && s.loss() > 2*least && c.meanRTT(i)-s.MinRTT < max(s.MinRTT, queued) &&
		math.Sqrt(s.loss()/max(least, lossy/10)) > float64(s.MinRTT)/float64(fastest): // a rate goes as 1 / (RTT sqrt(loss))
		return v.finding("loss", w, append(evidence, fmt.Sprintf("%d of %d segments sent again, %.2g %%; %.2g %% elsewhere",
			s.Retransmitted, s.Segments, 100*s.loss(), 100*least))...)
	case s.MinRTT > farRTT*fastest:
		return v.finding("rtt", w, append(evidence, fmt.Sprintf("its RTT is at least %s, %s elsewhere", span(s.MinRTT), span(fastest)), "its window is full "+of)...)
	case 2*full < len(c.Looks):
		return v.finding("scheduler", w, append(evidence, "its window is full only "+of)...)
	}
	return v.finding("path-rate", w, append(evidence, fmt.Sprintf("its window is full %s, with an RTT of %s, at least %s", of, span(s.RTT), span(s.MinRTT)))...)
}
