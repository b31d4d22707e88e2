/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The numbers that every packet scheduler decides on: a connection, its subflows (lanes), and what is decided
 * of each (verdicts). Nothing here knows of sockets: the same scene is filled from a live connection
 * (sched_live.h) and by `mpcc eval` (sched_eval.h). What only one scheduler reads or writes is in its own
 * struct sched_own (sched_hooks.h).
 */
#ifndef MPCC_SCENE_H
#define MPCC_SCENE_H

#include "fixed.h"
#include "path.h"

/* In place of a subflow's index: there is none. */
#define MPCC_NO_LANE MPCC_MAX_LANES

/* One subflow. A field's name ends in its fixed-point format where it has one (fixed.h). */
struct mpcc_lane {
	__u32 subflow_id;
	__u32 srtt_us8; /* smoothed RTT */
	__u32 cwnd; /* packets */
	__u32 in_flight; /* packets */
	__u32 queued; /* bytes handed to it and not yet sent */
	__u32 mss; /* bytes */
	__u8 backup; /* MP_PRIO: use only when nothing else is alive */
	__u8 stale; /* the path manager has given it up for now */
	__u8 closing; /* not established, or on its way out */
	__u8 timed_out; /* in recovery from a retransmission timeout */
	__u8 stalled; /* two timeouts of the connection's, or more, found no progress on it */
	__u8 full; /* its send buffer takes no more */
	__u8 carried; /* has unacknowledged data, which the data to send again may be a part of */
};

/* The connection: what there is to send. */
struct mpcc_demand {
	__u64 now_us;
	__u64 window; /* bytes that the peer still takes */
	__u64 unsent; /* bytes that no subflow has got yet */
	__u64 outstanding; /* bytes sent and not acknowledged */
	__u8 reinject; /* the oldest data is to be sent again */
	__u8 resent; /* all that was outstanding was sent again already, since a subflow stalled */
	__u8 dropped; /* the peer dropped the oldest byte after a subflow-level ACK: no subflow carries that byte */
};

/* What was decided of the connection. */
struct mpcc_outcome {
	__u32 waits; /* there is room, but nothing is sent */
	__u32 resend; /* all that is outstanding is sent again, by decisions on new data; none sends now */
	__u32 repeats; /* number of the subflow whose data goes out again on others, from 1; 0 = none */
};

/* What was decided of one subflow. */
struct mpcc_verdict {
	__u8 alive; /* of those that come first for this decision (sched_decide.h) */
	__u8 usable; /* alive, and with room in its window and send buffer */
	__u8 send;
	__u8 refused; /* usable, but the scheduler waits, or excludes it (esmptcp) */
};

struct mpcc_scene {
	__u32 count; /* of the subflows; places beyond are zero or left over */
	struct mpcc_outcome outcome;
	struct mpcc_demand demand;
	struct mpcc_lane lanes[MPCC_MAX_LANES];
	struct mpcc_verdict verdicts[MPCC_MAX_LANES];
};

/* Subflow i's element of an array. The mask shows the verifier that i is in range. */
#define element_of(array, i) (&(array)[(i) & (MPCC_MAX_LANES - 1)])

static __always_inline struct mpcc_lane *lane_at(struct mpcc_scene *s, __u32 i)
{
	return element_of(s->lanes, i);
}

static __always_inline struct mpcc_verdict *verdict_at(struct mpcc_scene *s, __u32 i)
{
	return element_of(s->verdicts, i);
}

/* Nothing is sent on it: it is given up for now, or not established, or on its way out. */
static __always_inline bool lane_gone(const struct mpcc_lane *l)
{
	return l->closing | l->stale;
}

/* Bytes that the window takes beyond what is queued. */
static __always_inline __u64 lane_room(const struct mpcc_lane *l)
{
	__u64 room;

	if (l->in_flight >= l->cwnd)
		return 0;
	room = (__u64)(l->cwnd - l->in_flight) * l->mss;
	return room > l->queued ? room - l->queued : 0;
}

static __always_inline bool lane_faster(const struct mpcc_lane *a, const struct mpcc_lane *b)
{
	return a->srtt_us8 < b->srtt_us8;
}

/*
 * The compiler unrolls such a loop, and the verifier follows it round by round, with every combination of what the
 * rounds leave in variables. A body of a few branches stands in the loop, and the loop in an MPCC_GLOBAL function if
 * it finds something: its caller then goes on once, for any result. A long body is an MPCC_GLOBAL function itself,
 * whose call costs some twenty instructions a subflow.
 */
#define for_each_lane(i, s)                                      \
	mpcc_unroll for (__u32 i = 0, count_of_##i = (s)->count; \
			 i < MPCC_MAX_LANES && i < count_of_##i; i++)

static __always_inline __u32 fastest_of(struct mpcc_scene *s, bool usable)
{
	__u32 best = MPCC_NO_LANE, least_us8 = 0;

	for_each_lane(i, s)
	{
		const struct mpcc_verdict *v = verdict_at(s, i);
		__u32 srtt_us8 = lane_at(s, i)->srtt_us8;

		if (!(usable ? v->usable : v->alive))
			continue;
		if (best != MPCC_NO_LANE && srtt_us8 >= least_us8)
			continue;
		best = i;
		least_us8 = srtt_us8;
	}
	return best;
}

/* The alive subflow with the lowest RTT, with or without room; MPCC_NO_LANE if there is none. */
MPCC_GLOBAL __u32 fastest_alive(struct mpcc_scene *s nonnull)
{
	return fastest_of(s, false);
}

/* The usable subflow with the lowest RTT; MPCC_NO_LANE if there is none. */
MPCC_GLOBAL __u32 fastest_usable(struct mpcc_scene *s nonnull)
{
	return fastest_of(s, true);
}

/* The longest smoothed RTT. */
MPCC_GLOBAL __u32 longest_srtt_us8(struct mpcc_scene *s nonnull)
{
	__u32 longest_us8 = 0;

	for_each_lane(i, s)
	{
		const struct mpcc_lane *l = lane_at(s, i);

		if (!lane_gone(l) && l->srtt_us8 > longest_us8)
			longest_us8 = l->srtt_us8;
	}
	return longest_us8;
}

/* Bytes that subflow i sends in time_us8: a congestion window for each RTT of subflow i, for 1,024 RTTs at most. */
MPCC_GLOBAL __u64 sent_within(struct mpcc_scene *s nonnull, __u32 i, __u32 time_us8)
{
	const struct mpcc_lane *l = lane_at(s, i);
	__u64 window = (__u64)l->cwnd * l->mss;
	__u64 windows_q10; /* congestion windows sent */

	if (lane_gone(l) || !l->srtt_us8)
		return 0;
	windows_q10 = ((__u64)time_us8 << 10) / l->srtt_us8;
	if (windows_q10 > 1024 << 10)
		windows_q10 = 1024 << 10;
	if (window > 0xffffffff)
		window = 0xffffffff;
	return window * windows_q10 >> 10;
}

/*
 * The size of the send buffer, in bytes, with which the slowest subflow stops no other. Data on the slowest subflow stays in
 * the buffer for the longest RTT, and with that data all that every subflow sends meanwhile. Twice as much, since a loss on
 * the slowest subflow takes another RTT to repair; and half as much again, since poll() reports room to an application only
 * when a third of the buffer is free.
 */
static __always_inline __u64 needed_buffer(struct mpcc_scene *s)
{
	__u32 longest_us8 = longest_srtt_us8(s);
	__u64 bytes = 0;

	for_each_lane(i, s) bytes += sent_within(s, i, longest_us8);
	return 3 * bytes;
}

/* Marks a subflow to send. MPCC_NO_LANE marks none. */
static __always_inline void send_on(struct mpcc_scene *s, __u32 lane)
{
	if (lane >= MPCC_MAX_LANES)
		return;
	verdict_at(s, lane)->send = 1;
	verdict_at(s, lane)->refused = 0;
}

#endif
