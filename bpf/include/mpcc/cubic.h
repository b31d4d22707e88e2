/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * CUBIC (RFC 9438), as the kernel's tcp_cubic computes it, in integers:
 *
 *   W(t) = C (t - K)^3 + W_max   K = cbrt((W_max - w_0) / C), C = 0.4 packets/s^3, w_0 the window at its begin
 *   per acknowledged segment     1 / cnt, cnt = max(2, floor(w / (W(t + RTT) - w))), 100 w where W is not above w,
 *                                and no more than 20 before the first loss
 *   never slower than Reno       RFC 9438, section 4.3: a packet for every 1.875 w segments
 *   per loss event               w *= 717/1024; W_max is the window then, or (w + 717/1024 w) / 2 if that is
 *                                below the last W_max (fast convergence)
 *
 * RTT is the kernel's windowed minimum. Time stands still while nothing is sent. A curve may be that of several subflows
 * together (whole.h), or be stretched over n subflows, t/n in place of t, as mpCUBIC has it.
 *
 * Deviations from the kernel's: time is counted in ticks of 1024 us, not in jiffies; what a segment adds is worked
 * out anew for each of them, not for each jiffy.
 */
#ifndef MPCC_CUBIC_H
#define MPCC_CUBIC_H

#include "view.h"

#define CUBIC_TICK_SHIFT 10
/* C is 30948501 / 2^56 packets per cubic tick, and 1/C is this. */
#define CUBIC_C_Q56 30948501
#define CUBIC_INVERSE_C 2328306437U
/* 268 seconds or 7,700,000 packets from the plateau; the most that the cube has room for. */
#define CUBIC_MOST_TICKS (1 << 18)
/* Eighteen minutes; later than that, a window of any size is as far above its plateau as it goes. */
#define CUBIC_OLDEST_US (1 << 30)
#define CUBIC_LEAST_CNT 2
/* The largest cnt before the first loss, while nothing is known of the path. */
#define CUBIC_FIRST_CNT 20

/* What a loss leaves of the window, of 1024. */
#define CUBIC_LEFT_Q10 717

static __always_inline __u32 cubic_after_loss(__u32 cwnd)
{
	return (__u64)cwnd * CUBIC_LEFT_Q10 >> 10;
}

/* W_max after a loss at cwnd that leaves after. */
static __always_inline __u32 cubic_last_max(__u32 last_max, __u32 cwnd, __u32 after)
{
	return cwnd < last_max ? ((__u64)cwnd + after) / 2 : cwnd;
}

/* The curve that begins at the window cwnd. */
static __always_inline void begin_curve(struct mpcc_curve *c, __u32 cwnd, __u32 last_max,
					__u32 now_us)
{
	c->began_us = now_us;
	c->origin = last_max > cwnd ? last_max : cwnd;
	c->k = num_to_fixed(num_cbrt(num_mul(num_of(c->origin - cwnd), num_of(CUBIC_INVERSE_C))),
			    0);
	c->part_q10 = 0;
	c->friendly = cwnd;
	c->acked = 0;
}

/* Packets between window and plateau, so many ticks before or after it. */
static __always_inline __u32 cubic_away(__u64 ticks)
{
	if (ticks > CUBIC_MOST_TICKS)
		ticks = CUBIC_MOST_TICKS;
	return CUBIC_C_Q56 * (ticks * ticks * ticks >> 16) >> 40;
}

/* W, so many ticks after the curve's begin. */
static __always_inline __u64 cubic_window(const struct mpcc_curve *c, __u64 ticks)
{
	__u64 away = cubic_away(ticks < c->k ? c->k - ticks : ticks - c->k);

	if (ticks >= c->k)
		return c->origin + away;
	return c->origin > away ? c->origin - away : 0;
}

/* So many acknowledged segments add one packet; target is W(t + RTT). */
static __always_inline __u64 cubic_cnt(__u64 target, __u32 cwnd, __u32 friendly, bool had_loss)
{
	__u64 cnt = target > cwnd ? cwnd / (target - cwnd) : 100ULL * cwnd;

	if (!had_loss && cnt > CUBIC_FIRST_CNT)
		cnt = CUBIC_FIRST_CNT;
	if (friendly > cwnd && cnt > cwnd / (friendly - cwnd))
		cnt = cwnd / (friendly - cwnd);
	return cnt > CUBIC_LEAST_CNT ? cnt : CUBIC_LEAST_CNT;
}

/* A part of 1: all of a subflow's growth. */
#define WHOLE_Q16 (1 << 16)
#define WHOLE_Q10 (1 << 10)

/* The part of Reno's growth for which acked counts, in 2^-10. */
static __always_inline __u32 part_of_acked(const struct mpcc_curve *c)
{
	return c->part_q10 ? c->part_q10 : WHOLE_Q10;
}

/*
 * Segments count for another part of Reno's growth from now on. Segments that were acknowledged before keep what they count
 * for: when a fast sibling leaves, the part may become fifty times as large.
 */
static __always_inline void set_part(struct mpcc_curve *c, __u64 part_q16)
{
	__u32 before = part_of_acked(c), part = part_q16 >> 6 ? part_q16 >> 6 : 1;
	__u64 acked;

	if (part == before)
		return;
	acked = ((__u64)c->acked * before + part / 2) / part;
	c->acked = acked < ~0U ? acked : ~0U;
	c->part_q10 = part & (WHOLE_Q10 - 1);
}

/* Grows friendly, Reno's window, by one packet for per_packet segments. */
static __always_inline void grow_friendly(struct mpcc_curve *c, __u64 per_packet)
{
	__u32 packets;

	if (c->acked <= per_packet || !per_packet)
		return;
	packets = (c->acked - 1) / per_packet;
	c->friendly += packets;
	c->acked -= packets * per_packet;
}

/*
 * Time in which nothing was in flight does not count: the curve's begin moves by the time between the last segment before
 * the pause and the segment that this ACK is for, though not past this segment. As for the kernel, an ACK of all that was
 * in flight begins a pause, however short.
 */
static __always_inline void skip_pause(struct mpcc_flow *flow, const struct tcp_sock *tp)
{
	__u32 now_us = (__u32)tp->tcp_mstamp, rtt_us = tp->rack.rtt_us, quiet_us = flow->quiet_us;
	__u32 since_us = elapsed_us(now_us, quiet_us), sent_us = elapsed_us(now_us, rtt_us);

	if (quiet_us) {
		/* The curve's begin and the last segment are less than 2^31 us apart, however long ago both were. */
		if (flow->curve_subflows && since_us > rtt_us)
			flow->curve.began_us = wrapping_diff(flow->curve.began_us, quiet_us) < 0 ?
						       later_us(flow->curve.began_us,
								since_us - rtt_us) :
						       sent_us;
		flow->quiet_us = 0;
	}
	if (!tp->packets_out)
		flow->quiet_us = sent_us;
}

/*
 * The part of the time over which CUBIC's course leaves the same part of the window as a part p of its growth leaves of
 * Reno's: p^(2/3). At the same losses Reno's mean window goes with p^(1/2), and CUBIC's over a part s of the time with
 * s^(3/4) (RFC 9438, section 5.1, with C s^3 for C). Relative error below 1/800 for parts of 2^-10 and more: on [1/8, 1]
 * 0.1032 + 1.2459 p - 0.3619 p^2 is within 1.3 % of s, and Newton's step squares that; below, (8 p)^(2/3) = 4 p^(2/3).
 */
static __always_inline __u64 part_of_time(__u64 part_q16)
{
	__u64 p = part_q16, s, quarters = 0;

	if (part_q16 >= WHOLE_Q16)
		return part_q16;
	for (int i = 0; i < 3; i++) {
		if (p < WHOLE_Q16 / 8) {
			p <<= 3;
			quarters += 2;
		}
	}
	s = 6763 + (p * (81651 - (p * 23718 >> 16)) >> 16);
	s = (2 * s + (p * p << 16) / (s * s)) / 3;
	return s >> quarters;
}

/* Slows the curve: only this part of the time since the last decision counts. */
static __always_inline void slow_curve(struct mpcc_flow *flow, const struct tcp_sock *tp,
				       __u64 part_q16)
{
	__u32 now_us = (__u32)tp->tcp_mstamp;
	__u32 age_us = elapsed_us(now_us, flow->curve.began_us);
	__u32 since_us = elapsed_us(now_us, flow->decided_us);

	if (part_q16 >= WHOLE_Q16)
		return;
	/* The curve may have begun after the last decision, or a pause may have moved the begin. */
	if (since_us > age_us)
		since_us = age_us;
	age_us -= since_us * (WHOLE_Q16 - part_q16) >> 16;
	flow->curve.began_us = elapsed_us(now_us, age_us);
}

/*
 * The age of a curve, at most CUBIC_OLDEST_US: an older curve's begin is moved up to there, before the 32-bit clock goes
 * round. A silence of nearly a multiple of 2^32 us looks like none and may leave the begin ahead of now: age 0.
 */
static __always_inline __u32 age_of(struct mpcc_curve *c, __u32 now_us)
{
	__s32 age_us = wrapping_diff(now_us, c->began_us);

	if (age_us > CUBIC_OLDEST_US)
		age_us = CUBIC_OLDEST_US;
	if (age_us < 0)
		age_us = 0;
	c->began_us = elapsed_us(now_us, age_us);
	return age_us;
}

/*
 * CUBIC's rule: what an acknowledged segment adds to the window now. Begins a curve unless a curve for one subflow goes
 * on. part_q16 is how much of Reno's growth the hook shift leaves a subflow that is not coupled with its siblings, and
 * time_q16 how much of the course's time.
 */
static __always_inline __s32 cubic_step(struct mpcc_flow *flow, const struct tcp_sock *tp,
					__u64 part_q16, __u64 time_q16)
{
	__u32 cwnd = tp->snd_cwnd, now_us = (__u32)tp->tcp_mstamp;
	struct mpcc_curve curve;
	__u64 t_us;

	if (flow->curve_subflows == 1)
		slow_curve(flow, tp, time_q16);
	curve = flow->curve;
	if (flow->curve_subflows != 1) {
		begin_curve(&curve, cwnd, flow->last_max, now_us);
		flow->curve_subflows = 1;
		flow->in_round = 0;
	}
	set_part(&curve, part_q16);
	/* 8/15: three times the loss, 0.3, over 2 - 0.3. */
	grow_friendly(&curve, ((__u64)cwnd * 15 / 8 << 16) / part_q16);
	t_us = (__u64)age_of(&curve, now_us) + min_rtt_of(tp);
	flow->curve = curve;
	return MPCC_Q29_ONE / cubic_cnt(cubic_window(&curve, t_us >> CUBIC_TICK_SHIFT), cwnd,
					curve.friendly, flow->last_max);
}

#endif
