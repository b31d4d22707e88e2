// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * BLEST, blocking estimation (Ferlin, Alay, Mehani, Boreli, IFIP Networking 2016; mptcp_blest of the MPTCP
 * kernel v0.95): no data for a slow subflow that would hold up the fast one for want of receive window.
 *
 *   s          the usable subflow with the lowest RTT; f the one with the lowest of all: if s is f, send
 *   linger     max(srtt_s, min_s + (max_s - min_s) (inflight_s + 1) / w_s), how long a packet stays on s
 *   n          floor(linger / mean(min_f, max_f)) + 1, rounds that f does meanwhile
 *   packets_f  w_f (2^n - 1) in initial slow start, n at most 16
 *              (c + floor((n - 1) / 2)) n else, c = max(w_f, ssthresh_f + 1)
 *   wait       if packets_f MSS lambda > window - (MSS + inflight_s MSS), else send on s
 *   lambda     1.2, of 1.0 .. 1.3: + 0.04 if the connection had to send data again since the last change,
 *              else - 0.01, at most once per min_s
 *
 * min and max are those of the smoothed RTT so far. The window is the connection's, from the oldest
 * unacknowledged byte on.
 */
#include "mpcc/sched.h"

#define LAMBDA_START 120
#define LAMBDA_LEAST 100
#define LAMBDA_MOST 130
/* The kernel's slow-start threshold before the first loss. */
#define NO_SSTHRESH 0x7fffffff
#define MOST_SLOW_START_ROUNDS 16

struct blest_lane {
	__u32 min_srtt_us8; /* the smallest and largest smoothed RTT so far */
	__u32 max_srtt_us8;
	__u32 ssthresh; /* packets */
};

struct blest_memory {
	__u64 lambda_at_us; /* of the last change of lambda */
	__u32 lambda_percent; /* 0 = unset */
	__u32 reinjections; /* since that change */
};

struct sched_own {
	struct blest_memory memory;
	struct blest_lane lanes[MPCC_MAX_LANES];
};

MPCC_GLOBAL int adapt_lambda(struct blest_memory *m nonnull, __u64 now_us, __u32 min_srtt_us8)
{
	if (!m->lambda_percent) {
		m->lambda_percent = LAMBDA_START;
		m->lambda_at_us = now_us;
		m->reinjections = 0;
	}
	if (now_us - m->lambda_at_us < min_srtt_us8 >> 3)
		return 0;
	if (m->reinjections)
		m->lambda_percent += 4;
	else
		m->lambda_percent -= 1;
	if (m->lambda_percent > LAMBDA_MOST)
		m->lambda_percent = LAMBDA_MOST;
	if (m->lambda_percent < LAMBDA_LEAST)
		m->lambda_percent = LAMBDA_LEAST;
	m->reinjections = 0;
	m->lambda_at_us = now_us;
	return 0;
}

/* How long a packet stays on a subflow, in us8. */
static __always_inline __u64 linger_of(const struct mpcc_lane *s, const struct blest_lane *rtts)
{
	__u64 min = rtts->min_srtt_us8, max = rtts->max_srtt_us8;
	__u64 spread = max > min ? max - min : 0;
	__u64 ahead = (__u64)s->in_flight + 1;
	__u64 linger = min;

	if (ahead < s->cwnd)
		linger += spread * ahead / s->cwnd;
	else
		linger += spread;
	return linger > s->srtt_us8 ? linger : s->srtt_us8;
}

/* What the fast subflow sends meanwhile, in packets. */
static __always_inline struct mpcc_num
sent_meanwhile(const struct mpcc_lane *f, const struct blest_lane *own, __u64 linger_us8)
{
	__u64 mean = ((__u64)own->min_srtt_us8 + own->max_srtt_us8) / 2;
	__u64 n = mean ? linger_us8 / mean + 1 : 1;
	__u64 c = f->cwnd;

	if (own->ssthresh >= NO_SSTHRESH) {
		if (n > MOST_SLOW_START_ROUNDS)
			n = MOST_SLOW_START_ROUNDS;
		return num_mul(num_of(c), num_of((1ULL << n) - 1));
	}
	if (c < (__u64)own->ssthresh + 1)
		c = (__u64)own->ssthresh + 1;
	return num_mul(num_of(c + (n - 1) / 2), num_of(n));
}

MPCC_GLOBAL int blest_rule(struct mpcc_scene *scene nonnull, struct sched_own *own nonnull)
{
	__u32 fast = fastest_alive(scene), slow = fastest_usable(scene);
	const struct mpcc_lane *f = lane_at(scene, fast), *s = lane_at(scene, slow);
	const struct blest_lane *f_own = element_of(own->lanes, fast);
	const struct blest_lane *s_own = element_of(own->lanes, slow);
	struct mpcc_num needed;
	__u64 window, taken;

	if (slow == MPCC_NO_LANE)
		return RULE_MARKED;
	if (slow == fast || fast == MPCC_NO_LANE || scene->demand.reinject) {
		send_on(scene, slow);
		return RULE_MARKED;
	}
	adapt_lambda(&own->memory, scene->demand.now_us, s_own->min_srtt_us8);
	needed = num_mul(num_mul(sent_meanwhile(f, f_own, linger_of(s, s_own)), num_of(f->mss)),
			 num_div(num_of(own->memory.lambda_percent), num_of(100)));
	window = scene->demand.window + scene->demand.outstanding;
	taken = ((__u64)s->in_flight + 1) * s->mss;
	if (num_less(num_of(window > taken ? window - taken : 0), needed))
		return RULE_MARKED;
	send_on(scene, slow);
	return RULE_MARKED;
}

static __always_inline void blest_start_subflow(struct sched_own *own, __u32 i,
						const struct tcp_sock *tp)
{
	struct blest_lane *l = element_of(own->lanes, i);

	l->min_srtt_us8 = 0;
	l->max_srtt_us8 = 0;
}

static __always_inline void blest_read_subflow(struct sched_own *own, __u32 i,
					       const struct tcp_sock *tp)
{
	struct blest_lane *l = element_of(own->lanes, i);
	__u32 srtt_us8 = tp->srtt_us;

	if (!l->min_srtt_us8 || srtt_us8 < l->min_srtt_us8)
		l->min_srtt_us8 = srtt_us8;
	if (srtt_us8 > l->max_srtt_us8)
		l->max_srtt_us8 = srtt_us8;
	l->ssthresh = tp->snd_ssthresh;
}

static __always_inline int blest_after_retrans(struct sched_own *own, const struct mpcc_scene *s,
					       struct mptcp_sock *msk, int scheduled)
{
	if (!scheduled)
		own->memory.reinjections++;
	return scheduled;
}

static const struct sched_hooks sched_hooks = {
	.rule = blest_rule,
	.start_subflow = blest_start_subflow,
	.read_subflow = blest_read_subflow,
	.after_retrans = blest_after_retrans,
};

SCHED_TABLE(blest);
