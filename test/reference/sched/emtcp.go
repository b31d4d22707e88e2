// SPDX-License-Identifier: Apache-2.0

package sched

// The lowest energy per bit, slope + base / rate, of those with room, the rate being the window per RTT; of
// equals the lowest RTT.
func init() {
	register("emtcp", Scheduler{Rule: func(d *decision) {
		best := -1
		for i, s := range d.Subflows {
			if !d.alive[i] {
				continue
			}
			d.Cost[i] = s.cost(s.windowRate())
			if d.usable[i] && (best < 0 || d.Cost[i] < d.Cost[best] ||
				d.Cost[i] == d.Cost[best] && s.SRTT < d.Subflows[best].SRTT) {
				best = i
			}
		}
		d.send(best)
	}})
}

// windowRate is the window per RTT, in Mbit/s.
func (s Subflow) windowRate() float64 { return s.Cwnd * s.MSS * 8 / s.SRTT }

// power is slope * rate + base in mW, for a rate in Mbit/s.
func (s Subflow) power(rate float64) float64 { return (s.Slope*rate + s.Base) / 1000 }

// cost is mJ per Mbit at that rate.
func (s Subflow) cost(rate float64) float64 { return s.power(rate) / rate }
