// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * ECF, earliest completion first (Lim, Nahum, Towsley, Gibbens, CoNEXT 2017): no data for a slow subflow if
 * the fast one, waited for, is done sooner.
 *
 *   s        the usable subflow with the lowest RTT; f the one with the lowest of all: if s is f, send
 *   k        packets not yet handed to a subflow;  delta the larger of the two RTTs' deviations
 *   if rtt_f (max(k, w_f) + w_f) < w_f (rtt_s + delta) (1 + beta waiting)
 *     wait, waiting = 1     if rtt_s max(k, w_s) >= w_s (2 rtt_f + delta)
 *     send on s             else
 *   send on s, waiting = 0  else
 *
 * beta = 1/4. A deviation is rttvar / 2, as in the authors' code. Products there are of 32 bits and
 * overflow for 100 ms and 43 KB; these do not.
 */
#include "mpcc/scene.h"

static __always_inline __u64 larger(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

MPCC_GLOBAL int sched_rule(struct mpcc_scene *scene nonnull)
{
	__u32 fast = fastest_alive(scene), slow = fastest_usable(scene);
	const struct mpcc_lane *f = lane_at(scene, fast), *s = lane_at(scene, slow);
	__u64 delta = 8 * larger(f->deviation_us, s->deviation_us);
	struct mpcc_num fast_done, slow_done;
	__u64 k;

	if (slow == MPCC_NO_LANE)
		return 0;
	if (slow == fast || fast == MPCC_NO_LANE || scene->demand.reinject || !f->mss) {
		send_on(scene, slow);
		return 0;
	}
	k = (scene->demand.unsent + f->mss - 1) / f->mss;
	fast_done = num_mul(num_of(f->srtt_us8), num_of(larger(k, f->cwnd) + f->cwnd));
	/* Both sides times 4, for beta. */
	slow_done = num_mul(num_mul(num_of(f->cwnd), num_of(s->srtt_us8 + delta)),
			    num_of(scene->memory.waiting ? 5 : 4));
	if (!num_less(num_scale(fast_done, 2), slow_done)) {
		scene->memory.waiting = 0;
		send_on(scene, slow);
		return 0;
	}
	slow_done = num_mul(num_of(s->srtt_us8), num_of(larger(k, s->cwnd)));
	if (num_less(slow_done, num_mul(num_of(s->cwnd), num_of(2ULL * f->srtt_us8 + delta)))) {
		send_on(scene, slow);
		return 0;
	}
	scene->memory.waiting = 1;
	return 0;
}

#include "mpcc/sched.h"
#include "mpcc/sched_eval.h"

SCHEDULER(ecf);
