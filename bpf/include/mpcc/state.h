/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What every congestion control keeps in a socket (icsk_ca_priv). */
#ifndef MPCC_STATE_H
#define MPCC_STATE_H

#include "bottleneck.h"
#include "fixed.h"

/* One RTT of slow start (slow_start.h). */
struct mpcc_round {
	__u32 began_us;
	__u32 end; /* snd_nxt when it began */
	__u32 last_ack_us; /* when the last ACK of a close train came */
	__u32 min_rtt_us; /* of its samples */
	__u32 base_rtt_us; /* of all rounds' */
};

/* CUBIC's course in congestion avoidance (cubic.h). */
struct mpcc_curve {
	__u32 began_us;
	__u32 origin; /* packets; the plateau */
	__u32 k : 22; /* ticks from its begin to the plateau */
	__u32 part_q10 : 10; /* the part of Reno's growth that the subflow has; 0 = all */
	__u32 friendly; /* packets that Reno would have by now */
	__u32 acked; /* segments that friendly has not seen */
};

/* Times of 16 bits and less are in units of 1024 us. */
#define MPCC_COARSE_SHIFT 10

/* What is known of the path's queue (queue.h), delays in its units. */
struct mpcc_queue {
	__u16 mean; /* of the RTTs of the last rounds; 0 = none yet */
	__u16 began : 15; /* when this round did */
	__u16 lossy : 1; /* the last event was a loss, and not congestion (is_congestion) */
	__u16 least; /* m_0, the mean without a queue */
	__u16 longest; /* d_m */
	__u16 peak; /* the longest RTT */
};

/* The most packets of a window: mpcc_flow's last_max holds so many, and no TCP connection comes near. */
#define MPCC_MOST_PACKETS ((1U << 23) - 1)

static __always_inline __u32 at_most_packets(__u64 window)
{
	return window < MPCC_MOST_PACKETS ? window : MPCC_MOST_PACKETS;
}

/*
 * The head of every algorithm's struct cc_state. Times are low bits of tcp_mstamp. Those of 32 are compared by how
 * long ago they were (elapsed_us), so that a silence of any length makes none of them lie ahead.
 */
struct mpcc_flow {
	__u64 id; /* key of the live state in the map; 0 = has none */
	__s32 credit_q29; /* fraction of a packet earned and not yet in snd_cwnd */
	__s32 step_q29; /* the decision: packets per acknowledged segment */
	__u32 decided_us; /* when the decision was made */
	__u32 base_rtt_us : 26; /* smallest RTT seen, 67 s at most; 0 = unset */
	__u32 whole : 1; /* last_max, and a curve, are of the whole group (whole.h) */
	__u32 lost : 1; /* the last loss event of the whole began here */
	__u32 answered : 4; /* siblings whose losses are no news (whole.h) */
	__u32 price_pj; /* energy per bit at the present rate; 0 = the interface has no profile */
	__u32 last_max : 23; /* CUBIC's memory of the last loss, packets; 0 = none, or a timeout since */
	__u32 trial : 1; /* the last loss began a trial (queue.h) */
	__u32 random : 2; /* how sure losses are random (queue.h): 0 = not at all */
	__u32 gap : 6; /* packets between two losses, as gap_of() has them, if the first one left the window; 0 = not known */
	__u32 quiet_us; /* when the last segment left, if nothing is in flight; 0 otherwise */
	union {
		struct mpcc_round round;
		struct mpcc_curve curve;
	};
	struct mpcc_queue queue;
	__u16 refreshed; /* when the live state was */
	struct mpcc_delay_sum delays; /* of RTTs, where the bottleneck is asked for */
	__u16 together : 12; /* the siblings coupled with this subflow, a bit each (bit_of) */
	__u16 place : 4; /* this subflow's bit in its siblings' together; 0 = none yet (sharing.h) */
	__u8 curve_subflows : 4; /* the union holds a curve for so many subflows; 0 = none */
	__u8 samples : 4; /* of RTT in the round */
	__u8 in_round : 1; /* the union holds a round */
	__u8 decided : 1; /* a decision stands */
	__u8 uncoupled : 1; /* the decision: by CUBIC or Reno, not by the algorithm's rule */
	__u8 floor : 2; /* the decision: smallest window, packets */
	__u8 started : 1; /* slow start has ended since the connection's begin or the last timeout */
	__u8 moved : 1; /* the window has changed since the decision */
	__u8 looked : 1; /* the decision took a look at the siblings (window.h) */
};

#define MPCC_PRIVATE_BYTES 104

/* How far a is after b, of numbers that wrap at 2^32. */
static __always_inline __s32 wrapping_diff(__u32 a, __u32 b)
{
	return (__s32)((__s64)a - b);
}

/* The time by_us after then_us. */
static __always_inline __u32 later_us(__u32 then_us, __u32 by_us)
{
	return (__u32)((__u64)then_us + by_us);
}

/* From one time to a later one; of more than 71 minutes, what is over whole 2^32 us. */
static __always_inline __u32 elapsed_us(__u32 now_us, __u32 then_us)
{
	return (__u32)wrapping_diff(now_us, then_us);
}

#endif
