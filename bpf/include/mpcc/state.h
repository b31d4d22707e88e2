/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What every congestion control keeps in a socket (icsk_ca_priv). */
#ifndef MPCC_STATE_H
#define MPCC_STATE_H

#include "fixed.h"

/* The head of every algorithm's struct cc_state. */
struct mpcc_flow {
	__u64 id; /* key of the live state in the map; 0 = has none */
	__s64 credit_q40; /* fraction of a packet earned and not yet in snd_cwnd */
	__u64 refresh_at_us; /* tcp_mstamp from which the live state may be refreshed */
	__s64 step_q40; /* the decision: packets per acknowledged segment */
	__u32 floor; /* the decision: smallest window, packets */
	__u32 decided; /* 0 = none stands */
	__u32 decided_until_us; /* low bits of the tcp_mstamp to which it stands */
	__u32 base_rtt_us; /* smallest RTT seen; 0 = unset */
	__u32 losses; /* loss events */
	__u32 price_pj; /* energy per bit at the present rate; 0 = the interface has no profile */
};

#define MPCC_PRIVATE_BYTES 104

/* How far a is after b, of numbers that wrap at 2^32. */
static __always_inline __s32 wrapping_diff(__u32 a, __u32 b)
{
	return (__s32)((__s64)a - b);
}

#endif
