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
#include "mpcc/sched.h"

struct sched_own {
	struct uplink_profile lanes[MPCC_MAX_LANES];
	struct {
		struct mpcc_num cost; /* mJ per Mbit */
	} verdicts[MPCC_MAX_LANES];
};

static __always_inline bool cheaper(struct mpcc_scene *s, struct sched_own *own, __u32 a, __u32 b)
{
	struct mpcc_num cost_a = element_of(own->verdicts, a)->cost;
	struct mpcc_num cost_b = element_of(own->verdicts, b)->cost;

	if (!num_equal(cost_a, cost_b))
		return num_less(cost_a, cost_b);
	return lane_faster(lane_at(s, a), lane_at(s, b));
}

MPCC_GLOBAL int compute_cost(struct mpcc_scene *s nonnull, struct sched_own *own nonnull, __u32 i)
{
	element_of(own->verdicts, i)->cost = cost_of(element_of(own->lanes, i),
						     window_rate(lane_at(s, i)));
	return 0;
}

static __always_inline void find_cost(struct mpcc_scene *s, struct sched_own *own, __u32 i)
{
	own->verdicts[i].cost = num_zero();
	if (s->verdicts[i].alive && has_profile(&own->lanes[i]))
		compute_cost(s, own, i);
}

/* The cheaper of subflow i and the best so far, of those that are usable. */
MPCC_GLOBAL __u32 cheaper_of(struct mpcc_scene *s nonnull, struct sched_own *own nonnull,
			     __u32 best, __u32 i)
{
	if (!verdict_at(s, i)->usable)
		return best;
	return best == MPCC_NO_LANE || cheaper(s, own, i, best) ? i : best;
}

MPCC_GLOBAL int emtcp_rule(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	__u32 best = MPCC_NO_LANE;

	for_each_lane(i, s) find_cost(s, own, i);
	for_each_lane(i, s) best = cheaper_of(s, own, best, i);
	send_on(s, best);
	return RULE_MARKED;
}

static __always_inline void emtcp_look_up_subflow(struct sched_own *own, __u32 i,
						  const struct tcp_sock *tp)
{
	read_uplink_profile(element_of(own->lanes, i), tp);
}

static __always_inline void emtcp_show_subflow(struct mpcc_sched_subflow *shown,
					       const struct sched_own *own,
					       const struct mpcc_scene *s, __u32 i)
{
	struct mpcc_num cost = element_of(own->verdicts, i)->cost;

	if (cost.m)
		shown->cost = cost;
}

static const struct sched_hooks sched_hooks = {
	.rule = emtcp_rule,
	.look_up_subflow = emtcp_look_up_subflow,
	.show_subflow = emtcp_show_subflow,
};

SCHED_TABLE(emtcp);
