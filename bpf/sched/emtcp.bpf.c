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

static __always_inline bool cheaper(const struct mpcc_scene *s, __u32 a, __u32 b)
{
	struct mpcc_num cost_a = s->verdicts[a].cost;
	struct mpcc_num cost_b = s->verdicts[b & (MPCC_MAX_SUBFLOWS - 1)].cost;

	if (!num_equal(cost_a, cost_b))
		return num_less(cost_a, cost_b);
	return lane_faster(&s->lanes[a], &s->lanes[b & (MPCC_MAX_SUBFLOWS - 1)]);
}

MPCC_PURE int sched_rule(struct mpcc_scene *s nonnull)
{
	__u32 best = MPCC_NO_LANE;

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		if (i >= s->count)
			break;
		s->verdicts[i].cost = cost_of(&s->lanes[i], window_rate(&s->lanes[i]));
		if (s->verdicts[i].usable && (best == MPCC_NO_LANE || cheaper(s, i, best)))
			best = i;
	}
	send_on(s, best);
	return 0;
}

#include "mpcc/sched.h"
#include "mpcc/sched_eval.h"

SCHEDULER(emtcp);
