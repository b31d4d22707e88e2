// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * roundrobin: the subflows in turn (mptcp_rr of the MPTCP kernel v0.9x).
 *
 *   each subflow has a quota of num_segments
 *   send on   one whose quota has begun and is not used up; else one that has not begun; when all have
 *             used theirs up, a new round begins
 *
 * cwnd_limited=on looks at the subflows with room only. Off is the strict turn: it waits for a subflow
 * without room, so the slowest one sets the pace.
 *
 * Deviations. The kernel hands data over in fragments of up to 32 KiB, and a turn is at least one of them;
 * what is handed over counts, however much it was. A turn is of 45 segments, which the kernel's own scheduler
 * sends at most before it decides anew: with one segment, as in the original, each fragment is a decision of its
 * own, which takes 3 to 5 % off what a host sends at its processor's limit.
 */
#include "mpcc/sched.h"

TUNABLE_PAPER(num_segments, 45, "1",
	      "1..255 segments; sent on a subflow before it is the next one's turn");
TUNABLE(cwnd_limited, 1, "off|on; pass over subflows without room");

struct sched_own {
	struct {
		__u64 served; /* bytes handed to it in this round */
	} lanes[MPCC_MAX_LANES];
	__u32 counted_to[MPCC_MAX_LANES]; /* the subflow's write_seq up to which served counts */
};

static __always_inline bool takes_part(const struct mpcc_verdict *v)
{
	return cwnd_limited ? v->usable : v->alive;
}

/* Bytes. */
static __always_inline __u64 quota_of(const struct mpcc_lane *l)
{
	return (__u64)num_segments * l->mss;
}

/* The subflow whose turn it is; MPCC_NO_LANE when the round is over. */
MPCC_GLOBAL __u32 next_in_round(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	__u32 found = MPCC_NO_LANE;

	for_each_lane(i, s)
	{
		__u64 served = own->lanes[i].served;

		if (!takes_part(&s->verdicts[i]) || served >= quota_of(&s->lanes[i]))
			continue;
		if (served)
			return i;
		if (found == MPCC_NO_LANE)
			found = i;
	}
	return found;
}

static __always_inline int roundrobin_rule(struct mpcc_scene *s, struct sched_own *own)
{
	__u32 next = next_in_round(s, own);

	if (next == MPCC_NO_LANE) {
		__builtin_memset(own->lanes, 0, sizeof(own->lanes));
		next = next_in_round(s, own);
	}
	send_on(s, next);
	return RULE_MARKED;
}

static __always_inline void roundrobin_start_subflow(struct sched_own *own, __u32 i,
						     const struct tcp_sock *tp)
{
	element_of(own->lanes, i)->served = 0;
	*element_of(own->counted_to, i) = tp->write_seq;
}

static __always_inline void roundrobin_read_subflow(struct sched_own *own, __u32 i,
						    const struct tcp_sock *tp)
{
	__u32 *counted_to = element_of(own->counted_to, i);

	element_of(own->lanes, i)->served += tp->write_seq - *counted_to;
	*counted_to = tp->write_seq;
}

static __always_inline __u64 roundrobin_burst(const struct sched_own *own,
					      const struct mpcc_lane *l)
{
	return quota_of(l);
}

static const struct sched_hooks sched_hooks = {
	.rule = roundrobin_rule,
	.start_subflow = roundrobin_start_subflow,
	.read_subflow = roundrobin_read_subflow,
	.burst = roundrobin_burst,
};

SCHED_TABLE(roundrobin);
