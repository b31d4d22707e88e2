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
 * Deviation: the kernel hands data over in fragments of up to 32 KiB, and a turn is at least one of them;
 * what is handed over counts, however much it was.
 */
#include "mpcc/scene.h"
#include "mpcc/tunable.h"

TUNABLE(num_segments, 1, "1..255 segments; sent on a subflow before it is the next one's turn");
TUNABLE(cwnd_limited, 1, "off|on; pass over subflows without room");

static __always_inline bool takes_part(const struct mpcc_verdict *v)
{
	return cwnd_limited ? v->usable : v->alive;
}

static __always_inline bool quota_left(const struct mpcc_lane *l)
{
	return l->served < (__u64)num_segments * l->mss;
}

/* Of subflow i and the one found so far, whose turn it is in this round. */
MPCC_GLOBAL __u32 turn_of(struct mpcc_scene *s nonnull, __u32 found, __u32 i)
{
	const struct mpcc_lane *l = lane_at(s, i);

	if (!takes_part(verdict_at(s, i)) || !quota_left(l))
		return found;
	if (found == MPCC_NO_LANE || (l->served && !lane_at(s, found)->served))
		return i;
	return found;
}

/* MPCC_NO_LANE when the round is over. */
static __always_inline __u32 next_in_round(struct mpcc_scene *s)
{
	__u32 found = MPCC_NO_LANE;

	for_each_lane(i) found = turn_of(s, found, i);
	return found;
}

MPCC_GLOBAL int sched_rule(struct mpcc_scene *s nonnull)
{
	__u32 next = next_in_round(s);

	if (next == MPCC_NO_LANE) {
		for_each_lane(i) s->lanes[i].served = 0;
		next = next_in_round(s);
	}
	send_on(s, next);
	return 0;
}

/* A turn is the quota. */
#define sched_burst(lane) ((__u64)num_segments * (lane)->mss)

#include "mpcc/sched.h"
#include "mpcc/sched_eval.h"

SCHEDULER(roundrobin);
