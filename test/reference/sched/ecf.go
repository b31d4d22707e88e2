// SPDX-License-Identifier: Apache-2.0

package sched

import "math"

// The lowest RTT s with room, unless waiting for the fastest f completes sooner the k packets that are left:
// rtt_f (max(k, w_f) + w_f) < w_f (rtt_s + delta)(1 + waiting/4), and rtt_s max(k, w_s) >= w_s (2 rtt_f + delta).
func init() {
	register("ecf", Scheduler{Rule: func(d *decision) {
		fast, slow := d.fastest(d.alive), d.fastest(d.usable)
		if slow < 0 || slow == fast || d.Connection.Reinject != 0 {
			d.send(slow)
			return
		}
		f, s := d.Subflows[fast], d.Subflows[slow]
		k := math.Ceil(d.Connection.Unsent / f.MSS)
		delta := max(f.Deviation, s.Deviation)
		waiting := &d.Scene.Memory.Waiting
		switch {
		case f.SRTT*(max(k, f.Cwnd)+f.Cwnd) >= f.Cwnd*(s.SRTT+delta)*(1+*waiting/4):
			*waiting = 0
			d.send(slow)
		case s.SRTT*max(k, s.Cwnd) < s.Cwnd*(2*f.SRTT+delta):
			d.send(slow)
		default:
			*waiting = 1
		}
	}})
}
