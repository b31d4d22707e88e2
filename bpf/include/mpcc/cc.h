/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * All that a congestion control includes. hooks.h says what it has to define.
 *
 * In these every one deviates from its source, since the sources harm their users there; --set paper takes them back:
 *   alone       a connection of one usable subflow is the kernel's CUBIC, not Reno (window.h, cubic.h)
 *   couple      only subflows that share a bottleneck are coupled (sharing.h)
 *   growth      subflows that share a queue grow and lose as one CUBIC, whose growth the rule divides; in the sources each
 *               subflow grows by the rule, and loses by itself (whole.h)
 *   slow_start  ends before the queue overflows (slow_start.h)
 *   response    a loss while the path's queue is short costs little of the window (queue.h)
 *   plain       a connection that is not MPTCP is handed to the kernel's CUBIC (callbacks.h)
 */
#ifndef MPCC_CC_H
#define MPCC_CC_H

#include "callbacks.h"
#include "eval.h"
#include "losses.h"
#include "terms.h"
#include "tunable.h"

/*
 * For an algorithm that gives a path up: with min_cwnd=1 its window may fall to one packet beside other
 * subflows, which costs the path least while it is still probed. But the receiver delays the ACK of a lone
 * packet, so the path seems slow and takes long to come back, and no later packet tells of its loss: it waits for a
 * timeout, and MPTCP sends it again on another path (in scenario A 1.4 to 3 of 100 packets; with 2, at most 0.7).
 * Hence 2 by default. The hook floor is then low_floor.
 */
#define TUNABLE_MIN_CWND                                                                        \
	TUNABLE_PAPER(min_cwnd, 2, "1", "1..2 packets; smallest window beside other subflows"); \
	static __always_inline __u32 low_floor(const struct cc_sum *sum)                        \
	{                                                                                       \
		return sum->n > 1 ? min_cwnd : MPCC_RENO_FLOOR;                                 \
	}

/* For an algorithm that compares a path's RTT with its smallest one. */
#define TUNABLE_BASE_RTT                                                             \
	enum { BASE_LIFETIME, BASE_WINDOW };                                         \
	TUNABLE_PAPER(base_rtt, BASE_WINDOW, "lifetime",                             \
		      "lifetime|window; how long the smallest RTT is remembered");   \
	static __always_inline __u32 base_rtt_of(const struct tcp_sock *tp,          \
						 const struct mpcc_flow *flow)       \
	{                                                                            \
		return base_rtt == BASE_WINDOW ? min_rtt_of(tp) : flow->base_rtt_us; \
	}

/*
 * For an algorithm that takes an RTT above the base RTT for a queue. Hosts delay packets too, and an RTT of some
 * microseconds is mostly that. The default is the least delay that ends a slow start in RFC 9406.
 */
#define TUNABLE_NOISE                                                                             \
	TUNABLE_PAPER(noise_us, 4000, "0",                                                        \
		      "0..10000 us; an RTT at most this much above the base RTT shows no queue"); \
	static __always_inline bool is_noise(__u64 rtt_us8, __u32 base_rtt_us)                    \
	{                                                                                         \
		return rtt_us8 <= ((__u64)base_rtt_us + noise_us) << 3;                           \
	}

#endif
