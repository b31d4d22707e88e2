// SPDX-License-Identifier: Apache-2.0

package sched

import "math"

// The lowest RTT s with room, unless the fastest f would meanwhile fill lambda times the window that is
// left. Meanwhile is linger = max(srtt_s, min_s + (max_s - min_s)(inflight_s + 1)/w_s), in which f does
// n = floor(linger / mean(min_f, max_f)) + 1 rounds: w_f (2^n - 1) packets in initial slow start, n up to 16,
// else (c + floor((n-1)/2)) n with c = max(w_f, ssthresh_f + 1). lambda starts at 1.2 and moves within
// 1.0..1.3, up by 0.04 after reinjections, else down by 0.01, at most once per min_s.
func init() {
	register("blest", Scheduler{Rule: func(d *decision) {
		fast, slow := d.fastest(d.alive), d.fastest(d.usable)
		if slow < 0 || slow == fast || d.Connection.Reinject != 0 {
			d.send(slow)
			return
		}
		f, s := d.Subflows[fast], d.Subflows[slow]
		m := &d.Scene.Memory
		if m.Lambda == 0 {
			m.Lambda, m.LambdaAt, m.Reinjections = 120, d.Connection.Now, 0
		}
		if d.Connection.Now-m.LambdaAt >= math.Floor(s.MinSRTT) {
			step := -1.0
			if m.Reinjections > 0 {
				step = 4
			}
			m.Lambda = min(max(m.Lambda+step, 100), 130)
			m.LambdaAt, m.Reinjections = d.Connection.Now, 0
		}
		// In eighths of a microsecond, rounded down as the integers of the published code.
		ahead := min(1, (s.InFlight+1)/s.Cwnd)
		linger := max(8*s.SRTT, 8*s.MinSRTT+math.Floor(8*max(0, s.MaxSRTT-s.MinSRTT)*ahead+1e-9))
		mean := math.Floor((8*f.MinSRTT + 8*f.MaxSRTT) / 2)
		n := math.Floor(linger/mean) + 1
		packets := 0.0
		if f.Ssthresh >= noThreshold {
			packets = f.Cwnd * (math.Exp2(min(n, 16)) - 1)
		} else {
			packets = (max(f.Cwnd, f.Ssthresh+1) + math.Floor((n-1)/2)) * n
		}
		window := d.Connection.Window + d.Connection.Outstanding
		if packets*f.MSS*m.Lambda/100 <= max(0, window-(s.InFlight+1)*s.MSS) {
			d.send(slow)
		}
	}})
}
