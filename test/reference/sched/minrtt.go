// SPDX-License-Identifier: Apache-2.0

package sched

// The lowest RTT of those with room.
func init() {
	register("minrtt", Scheduler{Rule: func(d *decision) { d.send(d.fastest(d.usable)) }})
}
