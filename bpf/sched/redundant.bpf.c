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

/* The subflow that new data goes to. */
MPCC_PURE __u32 choose_leader(struct mpcc_scene *s nonnull)
{
	__u32 fastest = fastest_alive(s);

	if (fastest == MPCC_NO_LANE)
		return MPCC_NO_LANE;
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		const struct mpcc_lane *l = &s->lanes[i];

		if (!s->verdicts[i].alive || l->subflow_id != s->memory.leader)
			continue;
		if (4ULL * lane_at(s, fastest)->srtt_us8 >= 3ULL * l->srtt_us8)
			return i;
	}
	s->memory.leader = lane_at(s, fastest)->subflow_id;
	return fastest;
}

/* Bytes that the windows of all but the leader take; 0 if it is alone. */
MPCC_PURE __u64 room_beside(struct mpcc_scene *s nonnull, __u32 leader)
{
	__u64 room = 0;

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
		if (i != leader && s->verdicts[i].alive && !s->lanes[i].full)
			room += lane_room(&s->lanes[i]);
	return room;
}

/* Data may have died with a subflow: then all that can sends it again. */
MPCC_PURE __u32 data_is_lost(struct mpcc_scene *s nonnull)
{
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
		if (i < s->count && s->lanes[i].carried && !s->verdicts[i].alive)
			return 1;
	return 0;
}

MPCC_PURE int sched_rule(struct mpcc_scene *s nonnull)
{
	__u32 leader = choose_leader(s);
	__u64 room = room_beside(s, leader);
	bool lost = data_is_lost(s);

	if (!s->demand.reinject && (!s->demand.copying || !room)) {
		send_on(s, leader);
		return 0;
	}
	if (s->demand.reinject && !lost) {
		if (s->demand.copied)
			return 0;
		s->resend = room && s->demand.outstanding <= room;
		if (s->resend)
			return 0;
	}
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		struct mpcc_verdict *v = &s->verdicts[i];

		v->usable = v->alive && !s->lanes[i].full && lane_room(&s->lanes[i]);
		if (!v->usable || (i == leader && !lost))
			continue;
		v->send = 1;
		if (!s->demand.reinject)
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

	if (m->oldest != msk->snd_una || !s->demand.outstanding)
		m->progress_us = s->demand.now_us;
	m->oldest = msk->snd_una;
	s->demand.early = s->demand.now_us - m->progress_us < patience_us(s);
	s->demand.copying = (__s64)(m->copied_to - sched_next_seq(msk)) > 0;
	s->demand.copied = s->demand.early && (__s64)(m->copied_to - msk->snd_una) > 0;
}
#define sched_look look

/* After a decision to send, the timer goes off at once, for the copies. */
static __always_inline int answer(struct mptcp_sock *msk, struct mpcc_scene *s, int result)
{
	if (!s->demand.reinject) {
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
