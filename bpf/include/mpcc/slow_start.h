/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * HyStart, the end of slow start before the queue overflows (Ha, Rhee, Computer Networks 55(9), 2011), as the
 * kernel's CUBIC has it: from 16 packets on, slow start ends where it is
 *   when the ACKs of one RTT, each at most 2 ms after the one before, have come for half the smallest RTT, or
 *   when the smallest RTT of nine or more samples of this RTT is above the smallest of all by an eighth of it, at
 *   least 4 ms and at most 16, or
 *   when that of two or more samples is above twice the smallest of all by 16 ms.
 * Rounds are counted from the first ACK on. The smallest RTT is that of data: a SYN is shorter than a segment, and on
 * a slow link so much faster that data would seem to queue at once.
 *
 * Deviations. The first sign is not looked for below 1 ms of RTT: there the pauses of a CPU look like a train of
 * ACKs, and the kernel's CUBIC leaves slow start for nothing. The samples are those of ACKs that may raise the
 * window, so that no second callback is needed for each ACK. The kernel has no third sign. Where a host sends many
 * packets as one, an RTT has fewer than nine samples while the queue already holds more than the path does, and the
 * window goes on to many times that. 16 MB over 10 and 3 Mbit/s without delay (the kernel's simult_flows.sh; 40 times
 * each) took 11.93 s under LIA and up to 13.2 without the third sign, 11.60 and up to 11.7 with it; 11.75 and up to
 * 12.7 under the kernel's CUBIC.
 */
#ifndef MPCC_SLOW_START_H
#define MPCC_SLOW_START_H

#include "tunable.h"
#include "view.h"

enum { SLOW_START_HYSTART, SLOW_START_STANDARD };
TUNABLE_PAPER(slow_start, SLOW_START_HYSTART, "standard",
	      "hystart|standard; slow start ends before the queue overflows, or at a loss");

#define HYSTART_LEAST_CWND 16
#define HYSTART_TRAIN_GAP_US 2000
#define HYSTART_TRAIN_LEAST_RTT_US 1000
#define HYSTART_SAMPLES 8

/* By how much the RTT has to rise above the smallest RTT to show a queue, and not jitter. */
#define LEAST_RISE_US 4000
#define MOST_RISE_US 16000
static __always_inline __u32 rise_of_queue(__u32 base_us)
{
	__u32 rise = base_us >> 3;

	if (rise < LEAST_RISE_US)
		return LEAST_RISE_US;
	return rise < MOST_RISE_US ? rise : MOST_RISE_US;
}

static __always_inline bool in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

static __always_inline void begin_round(struct mpcc_flow *flow, const struct tcp_sock *tp)
{
	flow->round.began_us = (__u32)tp->tcp_mstamp;
	flow->round.last_ack_us = (__u32)tp->tcp_mstamp;
	flow->round.end = tp->snd_nxt;
	flow->round.min_rtt_us = ~0U;
	flow->samples = 0;
	flow->in_round = 1;
}

/* The time that four of the largest bursts take to leave: by so much the last ACK of a train may be late. */
static __always_inline __u32 burst_us(const struct sock *sk)
{
	__u64 rate = sk->sk_pacing_rate, us;

	if (!rate)
		return 0;
	us = (__u64)sk->sk_gso_max_size * 4 * 1000000 / rate;
	return us < 1000 ? us : 1000;
}

/* Whether the ACKs of this RTT have come for as long as the path alone takes. */
static __always_inline bool sees_train(const struct sock *sk, struct mpcc_flow *flow, __u32 now_us,
				       __u32 base_us)
{
	__u32 longest = base_us + burst_us(sk);

	if (base_us < HYSTART_TRAIN_LEAST_RTT_US)
		return false;
	if (elapsed_us(now_us, flow->round.last_ack_us) > HYSTART_TRAIN_GAP_US)
		return false;
	flow->round.last_ack_us = now_us;
	/* Paced packets may have taken half an RTT to leave. */
	if (!sk->sk_pacing_status)
		longest /= 2;
	return elapsed_us(now_us, flow->round.began_us) > longest;
}

static __always_inline bool sees_delay(struct mpcc_flow *flow, __u32 rtt_us, __u32 base_us)
{
	__u64 rise_us = rise_of_queue(base_us);

	if (rtt_us < flow->round.min_rtt_us)
		flow->round.min_rtt_us = rtt_us;
	if (flow->samples < HYSTART_SAMPLES) {
		rise_us = (__u64)base_us + MOST_RISE_US;
		if (!flow->samples++)
			return false;
	}
	return flow->round.min_rtt_us > base_us + rise_us;
}

/*
 * At an ACK in slow start: ends slow start if the queue builds up. Once slow start has ended, a slow start after a pause
 * goes up to that ssthresh.
 */
static __always_inline void watch_slow_start(struct sock *sk, struct mpcc_flow *flow)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u32 rtt_us = newest_rtt(tp), base_us;
	bool train, delay;

	if (slow_start == SLOW_START_STANDARD || flow->started || !rtt_us)
		return;
	if (!flow->in_round)
		flow->round.base_rtt_us = ~0U;
	if (!flow->in_round || wrapping_diff(tp->snd_una, flow->round.end) > 0)
		begin_round(flow, tp);
	if (rtt_us < flow->round.base_rtt_us)
		flow->round.base_rtt_us = rtt_us;
	base_us = flow->round.base_rtt_us;
	if (tp->snd_cwnd < HYSTART_LEAST_CWND)
		return;
	train = sees_train(sk, flow, (__u32)tp->tcp_mstamp, base_us);
	delay = sees_delay(flow, rtt_us, base_us);
	if (!train && !delay)
		return;
	tp->snd_ssthresh = tp->snd_cwnd;
	flow->started = 1;
}

#endif
