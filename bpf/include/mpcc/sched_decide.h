/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A packet scheduler's decision: what all schedulers have in common, around the rule of each.
 *
 * Before the rule: which subflows may send. New data goes to those that come first of what is there, in the
 * order of enum lane_class: while an established subflow is no backup, no backup gets any, not even when all
 * others recover from timeouts. The kernel's own scheduler does the same: a path that is cut for a moment costs
 * nothing on a metered one, and one that is dead becomes stale. Those may send that have memory to send from,
 * and room in the congestion window for more than what they have queued.
 *
 * Retransmissions go to subflows that have nothing unacknowledged, since the data to send again may be a part
 * of that. Where there is none, they go to those that make progress. A subflow is stalled once two timeouts of the
 * connection's have found no progress on it: while others make progress, all that is outstanding is then sent
 * again, once. Sent in pieces of the oldest data, what a dead path holds would keep the connection waiting for
 * long, and what others send meanwhile would go out a second time when the kernel gives the path up. Nothing is
 * sent again on a subflow that recovers from a timeout, nor on a backup unless all subflows with unacknowledged
 * data are stalled, as in the kernel.
 *
 * Data that the peer dropped after a subflow-level ACK is retransmitted by no subflow. All outstanding data is then sent
 * again: the kernel would send one fragment at each timeout of the connection, for minutes.
 *
 * After the rule: one that marks nothing waits. That is granted only if an ACK is sure to come that ends the
 * wait: data of the connection is outstanding, and a subflow that is alive and has no room, or whose send buffer
 * is full, has packets in flight. Otherwise the fastest usable subflow sends. The connection's own timer ends a wait
 * at the latest; a rule that returns RULE_TIMED means that one.
 */
#ifndef MPCC_SCHED_DECIDE_H
#define MPCC_SCHED_DECIDE_H

#include "sched_hooks.h"

/* A bit for each, so that those of all subflows together tell which are there. */
enum lane_class {
	GONE = 0, /* stale, or closing */
	FIRST_CHOICE = 1,
	FIRST_CHOICE_TIMED_OUT = 2,
	BACKUP = 4,
	BACKUP_TIMED_OUT = 8,
};

static __always_inline __u32 class_of(const struct mpcc_lane *l)
{
	return lane_gone(l) ? GONE : FIRST_CHOICE << (2 * l->backup + l->timed_out);
}

/* Bits of what asks_backup() tells of a subflow. */
enum { LANE_RETRANSMITS = 1, LANE_STANDS_BY = 2 };

/* Whether a subflow is a usable backup, or makes backups needless: what it sends, or has sent, may get through. */
MPCC_GLOBAL __u32 asks_backup(struct mpcc_scene *s nonnull, __u32 i)
{
	const struct mpcc_lane *l = lane_at(s, i);
	__u32 class = class_of(l);

	if (l->carried && !l->closing)
		return l->stalled ? 0 : LANE_RETRANSMITS;
	if (class == FIRST_CHOICE)
		return LANE_RETRANSMITS;
	return class == BACKUP ? LANE_STANDS_BY : 0;
}

/* Notes each subflow's class, for now in the place of alive. The bits of all of them. */
static __always_inline int note_classes(struct mpcc_scene *s)
{
	int classes = 0;

	for_each_lane(i, s)
	{
		__u32 class = class_of(lane_at(s, i));

		s->verdicts[i].alive = class;
		classes |= class;
	}
	return classes;
}

/* The class that sends again. */
static __always_inline __u32 class_to_retransmit(struct mpcc_scene *s)
{
	__u32 bits = 0;

	for_each_lane(i, s) bits |= asks_backup(s, i);
	return bits == LANE_STANDS_BY ? BACKUP : FIRST_CHOICE;
}

/*
 * In recovery from a timeout a window has no room, and the connection's timer, which finds dead subflows, does
 * not run while nothing is outstanding: then such a subflow gets data for the timer's sake.
 */
static __always_inline bool starts_timer(const struct mpcc_scene *s, const struct mpcc_lane *l)
{
	return l->timed_out && !s->demand.outstanding && !s->demand.reinject;
}

/* Marks a subflow whose class is noted. */
static __always_inline void mark_lane(struct mpcc_scene *s, __u32 i, __u32 class)
{
	struct mpcc_verdict *v = verdict_at(s, i);
	const struct mpcc_lane *l = lane_at(s, i);

	v->alive = !!(v->alive & class);
	v->usable = v->alive && !l->full && (lane_room(l) || starts_timer(s, l));
}

/* Bits of what carries() tells of a subflow. */
enum { LANE_IDLE = 1, LANE_STALLED = 2, LANE_BUSY = 4 };

MPCC_GLOBAL __u32 carries(struct mpcc_scene *s nonnull, __u32 i)
{
	const struct mpcc_verdict *v = verdict_at(s, i);
	const struct mpcc_lane *l = lane_at(s, i);

	if (!l->carried)
		return v->usable ? LANE_IDLE : 0;
	if (l->stalled)
		return LANE_STALLED;
	return v->alive ? LANE_BUSY : 0;
}

/* Keeps a retransmission off a subflow that may have carried the data; if others are stalled, only off those. */
MPCC_GLOBAL int spare_lane(struct mpcc_scene *s nonnull, __u32 i, __u32 others_stalled)
{
	const struct mpcc_lane *l = lane_at(s, i);

	if (l->carried && (l->stalled || !others_stalled))
		verdict_at(s, i)->usable = 0;
	return 0;
}

/* Marks who may send. */
static __always_inline void mark_usable(struct mpcc_scene *s, bool reinject)
{
	__u32 class, bits = 0;
	int classes;

	s->outcome.waits = 0;
	s->outcome.resend = 0;
	s->outcome.repeats = 0;
	__builtin_memset(s->verdicts, 0, sizeof(s->verdicts));
	classes = note_classes(s);
	/* For new data, the lowest bit of those that are there. */
	class = reinject ? class_to_retransmit(s) : classes & -classes;
	for_each_lane(i, s) mark_lane(s, i, class);
	if (!reinject)
		return;
	for_each_lane(i, s) bits |= carries(s, i);
	s->outcome.resend = s->demand.dropped ||
			    (class == FIRST_CHOICE && bits == (LANE_STALLED | LANE_BUSY) &&
			     !s->demand.resent);
	for_each_lane(i, s) spare_lane(s, i, !(bits & LANE_IDLE) && bits & LANE_STALLED);
}

/* Takes the mark off what may not send. Whether something sends. */
static __always_inline bool sends_some(struct mpcc_scene *s)
{
	__u32 sends = 0;

	for_each_lane(i, s)
	{
		s->verdicts[i].send &= s->verdicts[i].usable;
		sends |= s->verdicts[i].send;
	}
	return sends;
}

/* Bits of what may_end() tells of a subflow that does not send. */
enum { LANE_HAS_ROOM = 1, LANE_ACKS_COME = 2 };

MPCC_GLOBAL __u32 may_end(struct mpcc_scene *s nonnull, __u32 i)
{
	const struct mpcc_lane *l = lane_at(s, i);
	const struct mpcc_verdict *v = verdict_at(s, i);

	if (v->usable)
		return LANE_HAS_ROOM;
	return v->alive && (l->full || !lane_room(l)) && (l->in_flight || l->queued) ?
		       LANE_ACKS_COME :
		       0;
}

/* Where the rule marked nothing that is usable: grants the wait, or has the fastest subflow send. */
MPCC_GLOBAL int guard_wait(struct mpcc_scene *s nonnull, int ruled)
{
	__u32 bits = 0;

	for_each_lane(i, s) bits |= may_end(s, i);
	if (!(bits & LANE_HAS_ROOM) || ruled == RULE_DEFERS)
		return 0;
	if (!s->demand.reinject && ruled != RULE_TIMED &&
	    !(s->demand.outstanding && bits & LANE_ACKS_COME)) {
		send_on(s, fastest_usable(s));
		return 0;
	}
	s->outcome.waits = 1;
	for_each_lane(i, s) s->verdicts[i].refused = s->verdicts[i].usable;
	return 0;
}

/* The whole decision. reinject is s->demand.reinject, which a caller may know when it is compiled. */
static __always_inline void sched_decide(struct mpcc_scene *s, struct sched_own *own, bool reinject)
{
	int ruled;

	require_sched_rule();
	mark_usable(s, reinject);
	if (reinject && s->outcome.resend)
		return;
	ruled = sched_hooks.rule(s, own);
	if (!sends_some(s))
		guard_wait(s, ruled);
}

#endif
