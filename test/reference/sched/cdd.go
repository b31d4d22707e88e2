// SPDX-License-Identifier: Apache-2.0

package sched

import "math"

// The smallest gamma = unacknowledged packets over the window, those that wait in the subflow included; of
// equals, the lowest RTT.
func init() {
	register("cdd", Scheduler{Rule: func(d *decision) {
		gamma := func(s Subflow) float64 { return (s.InFlight + math.Ceil(s.Queued/s.MSS)) / s.Cwnd }
		least := d.least(d.usable, gamma)
		if least < 0 {
			return
		}
		tied := make([]bool, len(d.Subflows))
		for i, s := range d.Subflows {
			tied[i] = d.usable[i] && gamma(s) == gamma(d.Subflows[least])
		}
		d.send(d.fastest(tied))
	}})
}
