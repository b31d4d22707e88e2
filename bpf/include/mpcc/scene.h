/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The numbers a packet scheduler works on, and the rules that all share. Nothing here knows of sockets:
 * the same scene is set from a live connection (sched.h) and by `mpcc eval` (sched_eval.h).
 *
 * A scheduler defines, before including sched.h,
 *   sched_rule(scene)   marks the subflows that send (verdicts[].send), of those that may (.usable)
 *
 * Which subflows may: established, neither stale nor closing, not in recovery from a timeout, with room
 * in the congestion window for more than what they have queued, and memory for it. Backups only if no
 * other subflow is alive, that is, but for room. Retransmissions go to subflows that have nothing
 * unacknowledged, since the data to send again may be a part of that, and to others if there is none.
 *
 * A rule that marks nothing waits. That is granted only if an ACK is sure to come that ends it: data of
 * the connection is outstanding, and a subflow that is alive and has no room has packets in flight.
 * Otherwise the fastest usable subflow sends. The connection's own timer ends a wait at the latest.
 */
#ifndef MPCC_SCENE_H
#define MPCC_SCENE_H

#include "fixed.h"
#include "path.h"

#define MPCC_NO_LANE MPCC_MAX_SUBFLOWS
/* The threshold before the first loss, as the kernel has it. */
#define MPCC_NO_SSTHRESH 0x7fffffff

/* One subflow. A field's name ends in its fixed-point format where it has one (fixed.h). */
struct mpcc_lane {
	__u64 rate; /* bytes per second delivered; 0 = not measured */
	__u64 served; /* bytes handed to it in this round (roundrobin) */
	struct mpcc_num loss; /* part of what it sent that was lost */
	__u32 subflow_id;
	__u32 srtt_us8; /* smoothed RTT */
	__u32 min_srtt_us8; /* the smallest and largest so far (blest) */
	__u32 max_srtt_us8;
	__u32 deviation_us; /* of the RTT (ecf) */
	__u32 cwnd; /* packets */
	__u32 ssthresh; /* packets; 2^31-1 before the first loss */
	__u32 in_flight; /* packets */
	__u32 queued; /* bytes handed to it and not yet sent */
	__u32 mss; /* bytes */
	__u32 up_uw_per_mbps; /* the interface's energy profile; 0 without one (emtcp, esmptcp) */
	__u32 base_uw;
	__u8 allowed; /* in the set last chosen (esmptcp) */
	__u8 backup; /* MP_PRIO: use only when nothing else is alive */
	__u8 stale; /* the path manager has given it up for now */
	__u8 closing; /* not established, or on its way out */
	__u8 timed_out; /* in recovery from a retransmission timeout */
	__u8 full; /* its send buffer takes no more */
	__u8 carried; /* the data to send again may be a part of what it has unacknowledged */
};

/* The connection. */
struct mpcc_demand {
	__u64 now_us;
	__u64 window; /* bytes that the peer still takes */
	__u64 unsent; /* bytes that no subflow has got yet */
	__u64 outstanding; /* bytes sent and not acknowledged */
	__u8 reinject; /* the oldest data is to be sent again */
	__u8 copying; /* what is to be sent was sent once already (redundant) */
	__u8 copied; /* and so was the oldest of what is outstanding (redundant) */
	__u8 early; /* the timer went off before a timeout was due (redundant) */
	__u8 more; /* the application has filled its buffer: how much there is is not known */
};

/* What a scheduler keeps of a connection. */
struct mpcc_memory {
	__u64 lambda_at_us; /* of the last change of lambda (blest) */
	__u64 chosen_us; /* of the last choice (esmptcp) */
	__u64 changes; /* of the set (esmptcp) */
	__u64 copied_to; /* data sequence number up to which there are copies (redundant) */
	__u64 oldest; /* data sequence number of the oldest outstanding byte (redundant) */
	__u64 progress_us; /* since then (redundant) */
	__u32 lambda_percent; /* 0 = unset (blest) */
	__u32 reinjections; /* since the last change of lambda (blest) */
	__u32 k; /* size of the set; 0 = none chosen yet (esmptcp) */
	__u32 alive; /* the subflows it was chosen from, a bit for each (esmptcp) */
	__u32 leader; /* the subflow that new data goes to, as subflow_id (redundant) */
	__u8 waiting; /* (ecf) */
};

/* What was decided of a subflow. */
struct mpcc_verdict {
	struct mpcc_num rate; /* Mbit/s expected (esmptcp) */
	struct mpcc_num cost; /* mJ per Mbit (emtcp, esmptcp) */
	struct mpcc_coupling
		objective; /* O_k of the first k subflows, here k = position in the list + 1 */
	__u32 rank; /* place in the order by cost, from 1; 0 = none (esmptcp) */
	__u8 alive;
	__u8 usable;
	__u8 send;
	__u8 refused; /* usable, but the scheduler waits */
};

struct mpcc_scene {
	__u32 count;
	__u32 resend; /* send all that is outstanding again (redundant) */
	__u32 waits; /* there is room, but nothing is sent */
	__u32 pad;
	struct mpcc_demand demand;
	struct mpcc_memory memory;
	struct mpcc_lane lanes[MPCC_MAX_SUBFLOWS];
	struct mpcc_verdict verdicts[MPCC_MAX_SUBFLOWS];
};

/* Bytes that the window takes beyond what is queued. */
static __always_inline __u64 lane_room(const struct mpcc_lane *l)
{
	__u64 room;

	if (l->in_flight >= l->cwnd)
		return 0;
	room = (__u64)(l->cwnd - l->in_flight) * l->mss;
	return room > l->queued ? room - l->queued : 0;
}

static __always_inline bool lane_alive(const struct mpcc_lane *l)
{
	return !(l->closing | l->stale | l->timed_out);
}

/* A lane comes before another of the same or a longer RTT. */
static __always_inline bool lane_faster(const struct mpcc_lane *a, const struct mpcc_lane *b)
{
	return a->srtt_us8 < b->srtt_us8;
}

static __always_inline struct mpcc_lane *lane_at(struct mpcc_scene *s, __u32 i)
{
	return &s->lanes[i & (MPCC_MAX_SUBFLOWS - 1)];
}

static __always_inline struct mpcc_verdict *verdict_at(struct mpcc_scene *s, __u32 i)
{
	return &s->verdicts[i & (MPCC_MAX_SUBFLOWS - 1)];
}

/* The alive subflow with the lowest RTT, with or without room; MPCC_NO_LANE if there is none. */
MPCC_PURE __u32 fastest_alive(struct mpcc_scene *s nonnull)
{
	__u32 best = MPCC_NO_LANE;

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
		if (i < s->count && s->verdicts[i].alive &&
		    (best == MPCC_NO_LANE || lane_faster(&s->lanes[i], lane_at(s, best))))
			best = i;
	return best;
}

/* The usable subflow with the lowest RTT; MPCC_NO_LANE if there is none. */
MPCC_PURE __u32 fastest_usable(struct mpcc_scene *s nonnull)
{
	__u32 best = MPCC_NO_LANE;

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
		if (i < s->count && s->verdicts[i].usable &&
		    (best == MPCC_NO_LANE || lane_faster(&s->lanes[i], lane_at(s, best))))
			best = i;
	return best;
}

static __always_inline void send_on(struct mpcc_scene *s, __u32 lane)
{
	if (lane < MPCC_MAX_SUBFLOWS)
		verdict_at(s, lane)->send = 1;
}

/* Who is alive, of the others or, if none is, of the backups. */
static __always_inline void mark_alive(struct mpcc_scene *s)
{
	bool backups = true;

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
		if (i < s->count && lane_alive(&s->lanes[i]) && !s->lanes[i].backup)
			backups = false;
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
		s->verdicts[i].alive = i < s->count && lane_alive(&s->lanes[i]) &&
				       !!s->lanes[i].backup == backups;
}

/* Who may send. Of a retransmission's subflows one alone that carried the data leaves it to TCP. */
static __always_inline void mark_usable(struct mpcc_scene *s)
{
	__u32 carried = 0, idle = 0;

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		struct mpcc_lane *l = &s->lanes[i];
		struct mpcc_verdict *v = &s->verdicts[i];

		v->usable = v->alive && !l->full && lane_room(l);
		carried += i < s->count && l->carried;
		idle += v->usable && !l->carried;
	}
	if (!s->demand.reinject)
		return;
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
		if (s->lanes[i].carried && (idle || carried < 2))
			s->verdicts[i].usable = 0;
}

MPCC_PURE int sched_mark(struct mpcc_scene *s nonnull)
{
	s->resend = 0;
	s->waits = 0;
	__builtin_memset(s->verdicts, 0, sizeof(s->verdicts));
	mark_alive(s);
	mark_usable(s);
	return 0;
}

/* Grants a wait, or ends it; see above. */
MPCC_PURE int sched_guard(struct mpcc_scene *s nonnull)
{
	bool sends = false, room = false, in_flight = false;

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		const struct mpcc_lane *l = &s->lanes[i];
		struct mpcc_verdict *v = &s->verdicts[i];

		if (!v->usable)
			v->send = 0;
		sends |= v->send;
		room |= v->usable;
		in_flight |= v->alive && !lane_room(l) && (l->in_flight || l->queued);
	}
	if (sends || !room || s->resend)
		return 0;
	if (!s->demand.reinject && !(s->demand.outstanding && in_flight)) {
		send_on(s, fastest_usable(s));
		return 0;
	}
	s->waits = 1;
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
		s->verdicts[i].refused = s->verdicts[i].usable;
	return 0;
}

int sched_rule(struct mpcc_scene *s nonnull);

/* The whole decision. */
static __always_inline void sched_decide(struct mpcc_scene *s)
{
	sched_mark(s);
	sched_rule(s);
	sched_guard(s);
}

#endif
