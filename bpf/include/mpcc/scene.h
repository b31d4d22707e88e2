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
	__u64 size; /* bytes that it was made for (esmptcp) */
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
	__u8 refused; /* usable, but the scheduler waits, or keeps it out of the set (esmptcp) */
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

/*
 * What is done for each subflow is a function of its own, from here on: the verifier checks it once, for
 * any i, and need not follow what it makes of one subflow together with what it makes of the next.
 */
#define for_each_lane(i) for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)

/* The faster of subflow i and the best so far, of those that are usable or at least alive. */
MPCC_GLOBAL __u32 faster_of(struct mpcc_scene *s nonnull, __u32 best, __u32 i, __u32 usable)
{
	const struct mpcc_verdict *v = verdict_at(s, i);

	if (!(usable ? v->usable : v->alive))
		return best;
	if (best == MPCC_NO_LANE || lane_faster(lane_at(s, i), lane_at(s, best)))
		return i;
	return best;
}

/* The alive subflow with the lowest RTT, with or without room; MPCC_NO_LANE if there is none. */
static __always_inline __u32 fastest_alive(struct mpcc_scene *s)
{
	__u32 best = MPCC_NO_LANE;

	for_each_lane(i) best = faster_of(s, best, i, false);
	return best;
}

/* The usable subflow with the lowest RTT; MPCC_NO_LANE if there is none. */
static __always_inline __u32 fastest_usable(struct mpcc_scene *s)
{
	__u32 best = MPCC_NO_LANE;

	for_each_lane(i) best = faster_of(s, best, i, true);
	return best;
}

static __always_inline void send_on(struct mpcc_scene *s, __u32 lane)
{
	if (lane >= MPCC_MAX_SUBFLOWS)
		return;
	verdict_at(s, lane)->send = 1;
	verdict_at(s, lane)->refused = 0;
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

/* A retransmission is not for a subflow that carried the data, if others can do it. */
MPCC_GLOBAL int spare_lane(struct mpcc_scene *s nonnull, __u32 i)
{
	if (lane_at(s, i)->carried)
		verdict_at(s, i)->usable = 0;
	return 0;
}

/* Who may send. Of a connection's only busy subflow TCP takes care itself. */
static __always_inline void sched_mark(struct mpcc_scene *s)
{
	__u32 first_choices = 0, carried = 0, idle = 0;

	s->resend = 0;
	s->waits = 0;
	__builtin_memset(s->verdicts, 0, sizeof(s->verdicts));
	for_each_lane(i) first_choices += is_first_choice(s, i);
	for_each_lane(i)
	{
		__u32 bits = mark_lane(s, i, !first_choices);

		carried += bits & LANE_CARRIED;
		idle += bits & LANE_IDLE;
	}
	if (!s->demand.reinject || (!idle && carried > 1))
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

/* Grants a wait, or ends it; see above. */
static __always_inline void sched_guard(struct mpcc_scene *s)
{
	__u32 bits = 0;

	for_each_lane(i) bits |= check_lane(s, i);
	if (bits & LANE_SENDS || !(bits & LANE_HAS_ROOM) || s->resend)
		return;
	if (!s->demand.reinject && !(s->demand.outstanding && bits & LANE_ACKS_COME)) {
		send_on(s, fastest_usable(s));
		return;
	}
	s->waits = 1;
	for_each_lane(i) s->verdicts[i].refused = s->verdicts[i].usable;
}

int sched_rule(struct mpcc_scene *s nonnull);

/* The whole decision. */
MPCC_GLOBAL int sched_decide(struct mpcc_scene *s nonnull)
{
	sched_mark(s);
	sched_rule(s);
	sched_guard(s);
	return 0;
}

#endif
