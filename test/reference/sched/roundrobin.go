// SPDX-License-Identifier: Apache-2.0

package sched

// A quota of num_segments for each in turn: one whose quota has begun, else one that has not, else a new
// round. With cwnd_limited=off those without room have their turn too, and the scheduler waits for them.
func init() {
	register("roundrobin", Scheduler{
		Sets: []Tunables{{"num_segments": "2"}, {"cwnd_limited": "off"}},
		Rule: func(d *decision) {
			part := d.usable
			if d.set["cwnd_limited"] == "off" {
				part = d.alive
			}
			quota := d.set.Number("num_segments", 1)
			turn := func() int {
				found := -1
				for i, s := range d.Subflows {
					switch {
					case !part[i] || s.Served >= quota*s.MSS:
					case s.Served > 0:
						return i
					case found < 0:
						found = i
					}
				}
				return found
			}
			next := turn()
			if next < 0 {
				for i := range d.Subflows {
					d.Subflows[i].Served = 0
				}
				next = turn()
			}
			d.send(next)
		},
	})
}
