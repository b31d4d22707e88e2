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
#include "mpcc/sched.h"

struct sched_own {
	struct {
		__u8 waiting;
	} memory;
	struct {
		__u32 deviation_us; /* of the RTT */
	} lanes[MPCC_MAX_LANES];
};

static __always_inline __u64 larger(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

/* delta, in us8 */
static __always_inline __u64 larger_deviation(struct sched_own *own, __u32 a, __u32 b)
{
	return 8 * larger(element_of(own->lanes, a)->deviation_us,
			  element_of(own->lanes, b)->deviation_us);
}

MPCC_GLOBAL int ecf_rule(struct mpcc_scene *scene nonnull, struct sched_own *own nonnull)
{
	__u32 fast = fastest_alive(scene), slow = fastest_usable(scene);
	const struct mpcc_lane *f = lane_at(scene, fast), *s = lane_at(scene, slow);
	__u64 delta = larger_deviation(own, fast, slow);
	__u64 k;

	if (slow == MPCC_NO_LANE)
		return RULE_MARKED;
	if (slow == fast || fast == MPCC_NO_LANE || scene->demand.reinject || !f->mss) {
		send_on(scene, slow);
		return RULE_MARKED;
	}
	k = (scene->demand.unsent + f->mss - 1) / f->mss;
	/* Both sides times 4, for beta. */
	if (!product_less(4ULL * f->srtt_us8, larger(k, f->cwnd) + f->cwnd,
			  (own->memory.waiting ? 5ULL : 4ULL) * f->cwnd, s->srtt_us8 + delta)) {
		own->memory.waiting = 0;
		send_on(scene, slow);
		return RULE_MARKED;
	}
	if (product_less(s->srtt_us8, larger(k, s->cwnd), s->cwnd, 2ULL * f->srtt_us8 + delta)) {
		send_on(scene, slow);
		return RULE_MARKED;
	}
	own->memory.waiting = 1;
	return RULE_MARKED;
}

static __always_inline void ecf_read_subflow(struct sched_own *own, __u32 i,
					     const struct tcp_sock *tp)
{
	element_of(own->lanes, i)->deviation_us = tp->rttvar_us >> 1;
}

static const struct sched_hooks sched_hooks = {
	.rule = ecf_rule,
	.read_subflow = ecf_read_subflow,
};

SCHED_TABLE(ecf);
