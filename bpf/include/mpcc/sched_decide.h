/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A packet scheduler's decision: what all schedulers have in common, around the rule of each.
 *
 * Before the rule: which subflows may send. Those that are established, neither stale nor closing, not in
 * recovery from a timeout, with memory to send from, and with room in the congestion window for more than
 * what they have queued. Backups only if no other subflow is alive, that is, but for room and memory.
 * Retransmissions go to subflows that have nothing unacknowledged, since the data to send again may be a
 * part of that, and to others if there is none.
 *
 * After the rule: one that marks nothing waits. That is granted only if an ACK is sure to come that ends the
 * wait: data of the connection is outstanding, and a subflow that is alive and has no room has packets in
 * flight. Otherwise the fastest usable subflow sends. The connection's own timer ends a wait at the latest.
 */
#ifndef MPCC_SCHED_DECIDE_H
#define MPCC_SCHED_DECIDE_H

#include "sched_hooks.h"

static __always_inline bool lane_alive(const struct mpcc_lane *l)
{
	return !(l->closing | l->stale | l->timed_out);
}

/* 1 for an alive subflow that is no backup. */
MPCC_GLOBAL __u32 is_first_choice(struct mpcc_scene *s nonnull, __u32 i)
{
	return i < s->count && lane_alive(lane_at(s, i)) && !lane_at(s, i)->backup;
}

/* Bits of what mark_lane() tells of a subflow. */
enum { LANE_CARRIED = 1, LANE_IDLE = 2 };

MPCC_GLOBAL __u32 mark_lane(struct mpcc_scene *s nonnull, __u32 i, __u32 backups)
{
	struct mpcc_verdict *v = verdict_at(s, i);
	struct mpcc_lane *l = lane_at(s, i);

	if (i >= s->count)
		return 0;
	v->alive = lane_alive(l) && !!l->backup == backups;
	v->usable = v->alive && !l->full && lane_room(l);
	if (l->carried)
		return LANE_CARRIED;
	return v->usable ? LANE_IDLE : 0;
}

/* Keeps a retransmission off a subflow that may have carried the data. */
MPCC_GLOBAL int spare_lane(struct mpcc_scene *s nonnull, __u32 i)
{
	if (lane_at(s, i)->carried)
		verdict_at(s, i)->usable = 0;
	return 0;
}

/* Marks who may send. */
static __always_inline void mark_usable(struct mpcc_scene *s)
{
	__u32 first_choices = 0, carried = 0, idle = 0;

	s->outcome.waits = 0;
	__builtin_memset(s->verdicts, 0, sizeof(s->verdicts));
	for_each_lane(i) first_choices += is_first_choice(s, i);
	for_each_lane(i)
	{
		__u32 bits = mark_lane(s, i, !first_choices);

		carried += bits & LANE_CARRIED;
		idle += bits & LANE_IDLE;
	}
	if (!s->demand.reinject)
		return;
	/* Any of several may have carried the data. What a single one carried, its own TCP sends again. */
	if (!idle && carried > 1)
		return;
	for_each_lane(i) spare_lane(s, i);
}

/* Bits of what check_lane() tells of a subflow. */
enum { LANE_SENDS = 1, LANE_HAS_ROOM = 2, LANE_ACKS_COME = 4 };

MPCC_GLOBAL __u32 check_lane(struct mpcc_scene *s nonnull, __u32 i)
{
	const struct mpcc_lane *l = lane_at(s, i);
	struct mpcc_verdict *v = verdict_at(s, i);

	if (!v->usable)
		v->send = 0;
	if (v->send)
		return LANE_SENDS | LANE_HAS_ROOM;
	if (v->usable)
		return LANE_HAS_ROOM;
	return v->alive && !lane_room(l) && (l->in_flight || l->queued) ? LANE_ACKS_COME : 0;
}

/* Where the rule marked nothing that is usable: grants the wait, or has the fastest subflow send. */
static __always_inline void guard_wait(struct mpcc_scene *s, int ruled)
{
	__u32 bits = 0;

	for_each_lane(i) bits |= check_lane(s, i);
	if (bits & LANE_SENDS || !(bits & LANE_HAS_ROOM) || ruled == RULE_DEFERS)
		return;
	if (!s->demand.reinject && !(s->demand.outstanding && bits & LANE_ACKS_COME)) {
		send_on(s, fastest_usable(s));
		return;
	}
	s->outcome.waits = 1;
	for_each_lane(i) s->verdicts[i].refused = s->verdicts[i].usable;
}

/* The whole decision. */
MPCC_GLOBAL int sched_decide(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	require_sched_rule();
	mark_usable(s);
	guard_wait(s, sched_hooks.rule(s, own));
	return 0;
}

#endif
