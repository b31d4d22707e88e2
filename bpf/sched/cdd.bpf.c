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
 * Deviations. The delay is the smoothed RTT: one-way delays need the peer's clock, which this host does not know. The
 * kernel does not say which subflow carried the data: every one with unacknowledged data may have.
 */
#include "mpcc/sched.h"

/* Nothing beside the scene. */
struct sched_own {
};

/* gamma_r = packets / window */
struct congestion {
	__u64 packets; /* unacknowledged; neither has more than 32 bits */
	__u64 window;
	__u32 srtt_us8;
};

static __always_inline struct congestion congestion_of(const struct mpcc_lane *l)
{
	__u64 queued = l->mss ? (l->queued + (__u64)l->mss - 1) / l->mss : 0;
	__u64 packets = l->in_flight + queued;

	/* Without a window nothing is congested. */
	if (!l->cwnd)
		return (struct congestion){ 0, 1, l->srtt_us8 };
	return (struct congestion){ packets < ~0U ? packets : ~0U, l->cwnd, l->srtt_us8 };
}

static __always_inline bool less_congested(const struct congestion *a, const struct congestion *b)
{
	__u64 left = a->packets * b->window, right = b->packets * a->window;

	return left != right ? left < right : a->srtt_us8 < b->srtt_us8;
}

/* The least congested subflow so far. */
struct least_congested {
	struct congestion congestion;
	__u32 lane;
};

/* Takes subflow i if it is less congested. */
MPCC_GLOBAL int compare(struct least_congested *least nonnull, struct mpcc_scene *s nonnull,
			__u32 i)
{
	struct congestion c = congestion_of(lane_at(s, i));

	if (least->lane != MPCC_NO_LANE && !less_congested(&c, &least->congestion))
		return 0;
	least->congestion = c;
	least->lane = i;
	return 0;
}

MPCC_GLOBAL int cdd_rule(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	struct least_congested least = { .lane = MPCC_NO_LANE };

	for_each_lane(i, s)
	{
		if (s->verdicts[i].usable)
			compare(&least, s, i);
	}
	send_on(s, least.lane);
	return RULE_MARKED;
}

static const struct sched_hooks sched_hooks = {
	.rule = cdd_rule,
};

SCHED_TABLE(cdd);
