// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * CDD, the packet scheduler of CDD-MPTCP (Tao, Yan, section 2.3): the least congested subflow first.
 *
 *   gamma_r       unacknowledged packets / w_r, the congestion coefficient
 *   send on       the smallest gamma_r; of several, the smallest delay; gamma_r >= 1 has no room
 *   send again    not on the subflow that carried the data, unless it is the only one
 *
 * Packets handed to a subflow that wait there to be sent count as unacknowledged: the kernel hands them
 * over in fragments of up to 32 KiB.
 *
 * Deviations. The delay is the smoothed RTT: one-way delays need timestamps that MPTCP does not carry. The
 * kernel does not say which subflow carried the data: every one with unacknowledged data may have.
 */
#include "mpcc/sched.h"

/* Nothing beside the scene. */
struct sched_own {
};

static __always_inline struct mpcc_num gamma_of(const struct mpcc_lane *l)
{
	__u64 queued = l->mss ? (l->queued + (__u64)l->mss - 1) / l->mss : 0;

	return num_div(num_of(l->in_flight + queued), num_of(l->cwnd));
}

static __always_inline bool less_congested(const struct mpcc_lane *a, const struct mpcc_lane *b)
{
	struct mpcc_num gamma_a = gamma_of(a), gamma_b = gamma_of(b);

	if (!num_equal(gamma_a, gamma_b))
		return num_less(gamma_a, gamma_b);
	return lane_faster(a, b);
}

/* The less congested of subflow i and the best so far, of those that are usable. */
MPCC_GLOBAL __u32 less_congested_of(struct mpcc_scene *s nonnull, __u32 best, __u32 i)
{
	if (!verdict_at(s, i)->usable)
		return best;
	if (best == MPCC_NO_LANE || less_congested(lane_at(s, i), lane_at(s, best)))
		return i;
	return best;
}

MPCC_GLOBAL int cdd_rule(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	__u32 best = MPCC_NO_LANE;

	for_each_lane(i) best = less_congested_of(s, best, i);
	send_on(s, best);
	return RULE_MARKED;
}

static const struct sched_hooks sched_hooks = {
	.rule = cdd_rule,
};

SCHED_TABLE(cdd);
