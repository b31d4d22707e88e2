// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * NAME: data goes to the subflow whose window has the most room. A rule to begin with: replace it by yours, here and in
 * reference.py.
 *
 *   of the usable subflows, the one with the largest (w_r - in flight_r) mss_r - queued_r
 *
 * w is a window in packets. mpcc's headers do the rest: which subflows are usable, backups, what is sent again, what
 * `mpcc status` shows, `mpcc eval`. sched_hooks.h among them lists all that a scheduler can define.
 */
#include "mpcc/sched.h"

/* `mpcc load ./NAME.bpf.o --set unit=packets` sets it. The text has the words, in the enum's order, and the meaning. */
enum { UNIT_BYTES, UNIT_PACKETS };
TUNABLE(unit, UNIT_BYTES, "bytes|packets; in what room is compared");

/* What is kept of each connection between two decisions, at most 1024 bytes. It is all zero at first. */
struct sched_own {
};

static __always_inline __u64 NAME_room(const struct mpcc_lane *l)
{
	return unit == UNIT_PACKETS && l->mss ? lane_room(l) / l->mss : lane_room(l);
}

/* Of subflow i and the best so far, the one with more room. MPCC_NO_LANE is none. */
MPCC_GLOBAL __u32 NAME_roomier(struct mpcc_scene *s nonnull, __u32 best, __u32 i)
{
	if (!verdict_at(s, i)->usable)
		return best;
	if (best == MPCC_NO_LANE || NAME_room(lane_at(s, i)) > NAME_room(lane_at(s, best)))
		return i;
	return best;
}

/* Marks the subflows that send. scene.h among the headers says what is known of the connection and of each. */
MPCC_GLOBAL int NAME_rule(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	__u32 best = MPCC_NO_LANE;

	for_each_lane(i, s) best = NAME_roomier(s, best, i);
	send_on(s, best);
	return RULE_MARKED;
}

static const struct sched_hooks sched_hooks = {
	.rule = NAME_rule,
};

/* The table that the kernel gets: it knows the scheduler by this name. */
SCHED_TABLE(NAME);
