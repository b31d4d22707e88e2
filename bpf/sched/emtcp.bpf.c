// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * emtcp, low energy first, after eMTCP. Reconstruction: of the paper's scheduler only this much is known.
 *
 *   of the subflows with room in their window, the one with the lowest energy per bit, slope + base / rate;
 *   of several, the one with the lowest RTT
 *
 * So a dearer interface sends only while the windows of all cheaper ones are full. The rate is w MSS / RTT;
 * the profile that of the interface (`mpcc energy set`), its uplink slope, since this is the sender. An
 * interface without a profile costs nothing; without any profile this is minrtt.
 */
#include "mpcc/cost.h"

static __always_inline bool cheaper(struct mpcc_scene *s, __u32 a, __u32 b)
{
	struct mpcc_num cost_a = verdict_at(s, a)->cost, cost_b = verdict_at(s, b)->cost;

	if (!num_equal(cost_a, cost_b))
		return num_less(cost_a, cost_b);
	return lane_faster(lane_at(s, a), lane_at(s, b));
}

MPCC_GLOBAL __u32 cheaper_of(struct mpcc_scene *s nonnull, __u32 best, __u32 i)
{
	const struct mpcc_lane *l = lane_at(s, i);
	struct mpcc_verdict *v = verdict_at(s, i);

	if (v->alive)
		v->cost = cost_of(l, window_rate(l));
	if (!v->usable)
		return best;
	return best == MPCC_NO_LANE || cheaper(s, i, best) ? i : best;
}

MPCC_GLOBAL int sched_rule(struct mpcc_scene *s nonnull)
{
	__u32 best = MPCC_NO_LANE;

	for_each_lane(i) best = cheaper_of(s, best, i);
	send_on(s, best);
	return 0;
}

#include "mpcc/sched.h"
#include "mpcc/sched_eval.h"

SCHEDULER(emtcp);
