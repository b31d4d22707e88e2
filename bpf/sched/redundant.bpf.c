// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * redundant: every byte on several subflows, for the sake of delay and loss, not of rate (mptcp_redundant of
 * the MPTCP kernel v0.9x).
 *
 *   new data       on the subflow with the lowest RTT, the leader, as its window takes it
 *   all of it      once more on the others, as their windows take it: the whole of what is outstanding if
 *                  it fits there, else the oldest fragment of it, again and again
 *
 * The leader stays until it dies or another's RTT is below 3/4 of its own. Backups get no copies, only what a
 * timeout sends again.
 *
 * Deviations. In the original each subflow has a cursor of its own into what the connection sends. The
 * stock kernel has one cursor, and several subflows chosen at once share the data between them. So copies
 * are made by sending again: after each decision the connection's timer is set to go off at the next tick
 * (1 to 4 ms), and then moves the cursor back, or has the oldest fragment sent on the other subflows. What
 * is acknowledged by then is not copied. A third subflow gets copies of oldest fragments only, and kernels
 * with a scheduler type of their own copy at timeouts only: they have no such cursor to move.
 */
#include "mpcc/sched.h"
#include "mpcc/sched_patience.h"

struct redundant_memory {
	__u64 copied_to; /* data sequence number up to which there are copies */
	struct sched_progress progress;
	__u32 leader; /* the subflow that new data goes to, as subflow_id */
};

struct redundant_demand {
	__u8 copying; /* what is to be sent was sent once already */
	__u8 copied; /* and so was the oldest of what is outstanding */
	__u8 early; /* the timer went off before a timeout was due */
};

struct sched_own {
	struct redundant_demand demand;
	struct redundant_memory memory;
};

/* Subflow i, if it is the leader so far and still may be; else what was found. */
MPCC_GLOBAL __u32 leader_of(struct mpcc_scene *s nonnull, const struct redundant_memory *m nonnull,
			    __u32 found, __u32 i, __u32 fastest)
{
	const struct mpcc_lane *l = lane_at(s, i);

	if (!verdict_at(s, i)->alive || l->subflow_id != m->leader)
		return found;
	return 4ULL * lane_at(s, fastest)->srtt_us8 >= 3ULL * l->srtt_us8 ? i : found;
}

/* The subflow that new data goes to; MPCC_NO_LANE when none is alive. */
static __always_inline __u32 choose_leader(struct mpcc_scene *s, struct redundant_memory *m)
{
	__u32 fastest = fastest_alive(s), leader = fastest;

	for_each_lane(i, s) leader = leader_of(s, m, leader, i, fastest);
	if (leader != MPCC_NO_LANE)
		m->leader = lane_at(s, leader)->subflow_id;
	return leader;
}

/* Bytes that the window of a subflow takes, if it is neither the leader nor a backup. */
MPCC_GLOBAL __u64 room_beside(struct mpcc_scene *s nonnull, __u32 i, __u32 leader)
{
	const struct mpcc_lane *l = lane_at(s, i);

	return i != leader && verdict_at(s, i)->alive && !l->full && !l->backup ? lane_room(l) : 0;
}

/* 1 if a dead subflow held unacknowledged data: then all subflows that can send the data again. */
MPCC_GLOBAL __u32 has_died(struct mpcc_scene *s nonnull, __u32 i)
{
	return i < s->count && lane_at(s, i)->carried && !verdict_at(s, i)->alive;
}

/* Marks a subflow to send a copy, also one that carried the data. 1 if it can. */
MPCC_GLOBAL __u32 copy_on(struct mpcc_scene *s nonnull, __u32 i, __u32 backups)
{
	const struct mpcc_lane *l = lane_at(s, i);
	struct mpcc_verdict *v = verdict_at(s, i);

	v->usable = v->alive && !l->full && lane_room(l) && (backups || !l->backup);
	v->send = v->usable;
	return v->send;
}

MPCC_GLOBAL int redundant_rule(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	__u32 leader = choose_leader(s, &own->memory), died = 0;
	__u64 room = 0;

	if (s->demand.reinject || own->demand.copying) {
		for_each_lane(i, s)
		{
			room += room_beside(s, i, leader);
			died |= has_died(s, i);
		}
	}
	if (!s->demand.reinject && !room) {
		send_on(s, leader);
		return RULE_MARKED;
	}
	if (s->demand.reinject && !died) {
		if (own->demand.copied)
			return RULE_MARKED;
		s->outcome.resend = room && s->demand.outstanding <= room;
		if (s->outcome.resend)
			return RULE_DEFERS;
	}
	for_each_lane(i, s)
	{
		if (i == leader && !died)
			continue;
		if (copy_on(s, i, s->demand.reinject && !own->demand.early) && !s->demand.reinject)
			return RULE_MARKED;
	}
	return RULE_MARKED;
}

static __always_inline void redundant_read_connection(struct sched_own *own,
						      const struct mpcc_scene *s,
						      const struct mptcp_sock *msk)
{
	struct redundant_memory *m = &own->memory;

	/* The first decision: nothing has been copied, whatever number the connection began with. */
	if (!m->progress.progress_us)
		m->copied_to = msk->snd_una;
	own->demand.early = is_early(&m->progress, s, msk);
	own->demand.copying = (__s64)(m->copied_to - sched_next_seq(msk)) > 0;
	own->demand.copied = own->demand.early && (__s64)(m->copied_to - msk->snd_una) > 0;
}

/* The kernel sets the timer anew as long as some of the burst is left, so none is to be left. */
static __always_inline __u64 redundant_burst(const struct sched_own *own, const struct mpcc_lane *l)
{
	return 1;
}

/* Has the timer go off at the next tick, for the copies. */
static __always_inline int redundant_after_send(struct sched_own *own, const struct mpcc_scene *s,
						struct mptcp_sock *msk, int scheduled)
{
	if (s->count > 1)
		sched_set_timeout(msk, 1);
	return scheduled;
}

/* Notes up to where there are copies now. */
static __always_inline int redundant_after_retrans(struct sched_own *own,
						   const struct mpcc_scene *s,
						   struct mptcp_sock *msk, int scheduled)
{
	if (!scheduled)
		own->memory.copied_to = msk->snd_una + 1;
	if (s->outcome.resend)
		own->memory.copied_to = msk->snd_nxt;
	return end_timeout(&own->memory.progress, s, own->demand.early, scheduled);
}

static const struct sched_hooks sched_hooks = {
	.rule = redundant_rule,
	.read_connection = redundant_read_connection,
	.burst = redundant_burst,
	.after_send = redundant_after_send,
	.after_retrans = redundant_after_retrans,
};

SCHED_TABLE(redundant);
