// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * redundant: every byte on several subflows, for the sake of delay and loss, not of rate (mptcp_redundant of
 * the MPTCP kernel v0.9x).
 *
 *   new data       on the subflow with the lowest RTT, the leader, as its window takes it
 *   all of it      once more on the others, as their windows take it: the whole of what is outstanding if
 *                  it fits there, else the oldest fragment of it, again and again
 *
 * The leader stays until it dies or another's RTT is below 3/4 of its own.
 *
 * Deviations. In the original each subflow has a cursor of its own into what the connection sends. The
 * stock kernel has one cursor, and several subflows chosen at once share the data between them. So copies
 * are made by sending again: after each decision the connection's timer is set to go off at the next tick
 * (1 to 4 ms), and then moves the cursor back, or has the oldest fragment sent on the other subflows. What
 * is acknowledged by then is not copied. A third subflow gets copies of oldest fragments only, and kernels
 * with a scheduler type of their own copy at timeouts only: they have no such cursor to move.
 */
#include "mpcc/scene.h"

/* Subflow i, if it is the leader so far and still may be; else what was found. */
MPCC_GLOBAL __u32 leader_of(struct mpcc_scene *s nonnull, __u32 found, __u32 i, __u32 fastest)
{
	const struct mpcc_lane *l = lane_at(s, i);

	if (!verdict_at(s, i)->alive || l->subflow_id != s->memory.leader)
		return found;
	return 4ULL * lane_at(s, fastest)->srtt_us8 >= 3ULL * l->srtt_us8 ? i : found;
}

/* The subflow that new data goes to; MPCC_NO_LANE when none is alive. */
static __always_inline __u32 choose_leader(struct mpcc_scene *s)
{
	__u32 fastest = fastest_alive(s), leader = fastest;

	for_each_lane(i) leader = leader_of(s, leader, i, fastest);
	if (leader != MPCC_NO_LANE)
		s->memory.leader = lane_at(s, leader)->subflow_id;
	return leader;
}

/* Bytes that the window of a subflow takes, if it is not the leader. */
MPCC_GLOBAL __u64 room_beside(struct mpcc_scene *s nonnull, __u32 i, __u32 leader)
{
	const struct mpcc_lane *l = lane_at(s, i);

	return i != leader && verdict_at(s, i)->alive && !l->full ? lane_room(l) : 0;
}

/* 1 if data may have died with a subflow: then all that can send it again. */
MPCC_GLOBAL __u32 has_died(struct mpcc_scene *s nonnull, __u32 i)
{
	return i < s->count && lane_at(s, i)->carried && !verdict_at(s, i)->alive;
}

MPCC_GLOBAL __u32 copy_on(struct mpcc_scene *s nonnull, __u32 i)
{
	const struct mpcc_lane *l = lane_at(s, i);
	struct mpcc_verdict *v = verdict_at(s, i);

	v->usable = v->alive && !l->full && lane_room(l);
	v->send = v->usable;
	return v->send;
}

MPCC_GLOBAL int sched_rule(struct mpcc_scene *s nonnull)
{
	__u32 leader = choose_leader(s), died = 0;
	__u64 room = 0;

	for_each_lane(i)
	{
		room += room_beside(s, i, leader);
		died |= has_died(s, i);
	}
	if (!s->demand.reinject && (!s->demand.copying || !room)) {
		send_on(s, leader);
		return 0;
	}
	if (s->demand.reinject && !died) {
		if (s->demand.copied)
			return 0;
		s->resend = room && s->demand.outstanding <= room;
		if (s->resend)
			return 0;
	}
	for_each_lane(i)
	{
		if (i == leader && !died)
			continue;
		if (copy_on(s, i) && !s->demand.reinject)
			return 0;
	}
	return 0;
}

#include "mpcc/sched_kernel.h"

/* A timeout is due when the oldest byte has not been acknowledged for so long. */
static __always_inline __u64 patience_us(const struct mpcc_scene *s)
{
	__u32 slowest_us8 = 0;

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
		if (i < s->count && s->lanes[i].srtt_us8 > slowest_us8)
			slowest_us8 = s->lanes[i].srtt_us8;
	return 200000 + (slowest_us8 >> 2);
}

static __always_inline void look(struct mptcp_sock *msk, struct mpcc_scene *s)
{
	struct mpcc_memory *m = &s->memory;

	/* The first look. Sequence numbers begin anywhere. */
	if (!m->progress_us)
		m->copied_to = msk->snd_una;
	if (m->oldest != msk->snd_una || !s->demand.outstanding)
		m->progress_us = s->demand.now_us;
	m->oldest = msk->snd_una;
	s->demand.early = s->demand.now_us - m->progress_us < patience_us(s);
	s->demand.copying = (__s64)(m->copied_to - sched_next_seq(msk)) > 0;
	s->demand.copied = s->demand.early && (__s64)(m->copied_to - msk->snd_una) > 0;
}
#define sched_look look

/* After a decision to send, the timer goes off at once, for the copies. */
static __always_inline int answer(struct mptcp_sock *msk, struct mpcc_scene *s, bool reinject,
				  int result)
{
	if (!reinject) {
		if (s->count > 1)
			sched_set_timeout(msk, 1);
		return result;
	}
	if (!result)
		s->memory.copied_to = msk->snd_una + 1;
	if (s->resend && sched_resend(msk))
		s->memory.copied_to = msk->snd_nxt;
	return s->demand.early ? SCHED_EARLY : result;
}
#define sched_answer answer

/* The timer is computed anew where burst is left over: let none be. */
#define sched_burst(lane) 1

#include "mpcc/sched.h"
#include "mpcc/sched_eval.h"

SCHEDULER(redundant);
