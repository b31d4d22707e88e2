// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * CDD, the window control of CDD-MPTCP (Tao, Yan, sections 2.1 and 2.2, Algorithm 1): LIA, and every
 * period a cut of the slowest subflow while the paths' delays differ too much for the receive buffer.
 *
 *   theta         (1 - beta) D_max / D_min + beta theta, D the subflows' delays
 *   theta_max     midway between (N-2) tau / d_min + 1 and (N-1) tau / d_min + 1
 *   on the subflow with D_max, each period:
 *     theta > theta_max             w /= theta
 *     theta_0 < theta <= theta_max  w = (w / theta + w) / 2
 *     then, if w < ssthresh         ssthresh = w
 *
 * N is the peer's window in segments; tau = d_min / w_min spaces the fastest path's segments, so that
 * tau / d_min is 1 / w_min.
 *
 * Deviations. D is the smoothed RTT: the paper's one-way delays need the peer's clock, which this host does not know.
 * beta and theta_0 are not published; the values are ours. Theta = theta_max, which the paper leaves open, gets the
 * milder step. The paper's text has the averaging step, and above theta_max only: rule=text, the default. Algorithm 1
 * also cuts where the peer's buffer has room for the paths' difference, and leaves a fifth of DSL and LTE unused.
 * Paths that differ in propagation would be cut for ever, so a slow path without a queue (srtt at most 1.05 of its base
 * RTT, or noise_us above it) is left alone, and no window is cut below 2 packets. No cut in fast recovery, nor in that
 * after a timeout.
 * The base RTT is the kernel's windowed minimum, since a handover to a longer path would otherwise look like a queue
 * for ever; base_rtt=lifetime remembers the smallest of all.
 */
#include "mpcc/cc.h"

enum { RULE_ALGORITHM, RULE_TEXT };
TUNABLE_PAPER(rule, RULE_TEXT, "algorithm",
	      "algorithm|text; cut by Algorithm 1, or as the paper's text has it");
TUNABLE(period_ms, 500, "10..10000 ms; time between two cuts");
TUNABLE(beta_percent, 75, "0..99 percent; weight of the old theta");
TUNABLE_BASE_RTT;
TUNABLE_NOISE;
TUNABLE(theta_0_percent, 150, "100..1000 percent; ratio of delays that is left alone");

struct cc_state {
	struct mpcc_flow flow;
	__u64 next_cut_us; /* tcp_mstamp */
	struct mpcc_num theta; /* 0 = unset */
};

struct cc_sum {
	__u32 n;
	__u32 slowest_us8; /* D_max */
	__u32 fastest_us8; /* D_min */
	__u32 fastest_cwnd; /* w_min, of the fastest; of several, the largest */
	struct lia_sum lia;
};

static __always_inline void cdd_read_private(struct mpcc_path *p, const struct tcp_sock *tp,
					     const struct cc_state *state,
					     const struct cc_state *own)
{
	p->base_rtt_us = base_rtt_of(tp, &state->flow);
	p->theta = state->theta;
	p->peer_window = tp->mss_cache ? tp->snd_wnd / tp->mss_cache : 0;
}

MPCC_GLOBAL int cdd_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	if (p->srtt_us8 > sum->slowest_us8)
		sum->slowest_us8 = p->srtt_us8;
	if (!sum->n || p->srtt_us8 < sum->fastest_us8 ||
	    (p->srtt_us8 == sum->fastest_us8 && p->cwnd > sum->fastest_cwnd)) {
		sum->fastest_us8 = p->srtt_us8;
		sum->fastest_cwnd = p->cwnd;
	}
	sum->n++;
	lia_sum_add(&sum->lia, p);
	return 0;
}

MPCC_GLOBAL int cdd_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			 const struct mpcc_path *p nonnull)
{
	step->up = at_most_reno(lia_increase(&sum->lia), p);
	step->down = num_zero();
	return 0;
}

/* The next theta. */
MPCC_GLOBAL int cdd_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
			     const struct mpcc_path *p nonnull)
{
	struct mpcc_num now = num_div(num_of(sum->slowest_us8), num_of(sum->fastest_us8));

	c->value = now;
	if (p->theta.m)
		c->value = num_add(num_mul(num_div(num_of(100 - beta_percent), num_of(100)), now),
				   num_mul(num_div(num_of(beta_percent), num_of(100)), p->theta));
	c->negative = 0;
	return 0;
}

static __always_inline struct mpcc_num theta_max(const struct cc_sum *sum,
						 const struct mpcc_path *p)
{
	__u64 twice = p->peer_window > 1 ? 2 * (__u64)p->peer_window - 3 : 0;

	return num_add(num_div(num_of(twice), num_of(2 * (__u64)sum->fastest_cwnd)), num_of(1));
}

static __always_inline bool has_queue(const struct mpcc_path *p)
{
	__u64 srtt_us8 = p->srtt_us8;

	return 20 * srtt_us8 > 21 * ((__u64)p->base_rtt_us << 3) &&
	       !is_noise(srtt_us8, p->base_rtt_us);
}

/* This period's cut; the window stays where there is none. */
MPCC_GLOBAL int cdd_set_window(struct mpcc_setting *s nonnull, const struct cc_sum *sum nonnull,
			       const struct mpcc_path *p nonnull)
{
	struct mpcc_coupling c = {};
	struct mpcc_num cut;
	bool above;

	if (sum->n < 2 || p->srtt_us8 < sum->slowest_us8 || p->cwnd <= 2)
		return 0;
	if (!has_queue(p))
		return 0;
	cdd_coupling(&c, sum, p);
	above = num_less(theta_max(sum, p), c.value);
	if (!above && (rule == RULE_TEXT ||
		       !num_less(num_div(num_of(theta_0_percent), num_of(100)), c.value)))
		return 0;
	cut = num_div(num_of(p->cwnd), c.value);
	if (!above || rule == RULE_TEXT)
		cut = num_scale(num_add(cut, num_of(p->cwnd)), -1);
	s->window = num_to_fixed(cut, 0);
	if (s->window < 2)
		s->window = 2;
	if (s->window < s->ssthresh)
		s->ssthresh = s->window;
	return 0;
}

/* Not inlined: the view needs a stack of its own. */
static __noinline int run_period(struct tcp_sock *tp)
{
	struct cc_state *state = state_of(tp);
	struct mpcc_setting setting = { .window = tp->snd_cwnd, .ssthresh = tp->snd_ssthresh };
	struct mpcc_coupling c = {};
	struct cc_view v;

	state->next_cut_us = tp->tcp_mstamp + (__u64)period_ms * 1000;
	/* The peer's buffer is one for all subflows, whatever bottlenecks they share. */
	look_at_subflows(&v, tp, SUMS_OF_ALL);
	if (!v.coupled)
		return 0;
	cdd_set_window(&setting, sum_of(&v), &v.self);
	cdd_coupling(&c, sum_of(&v), &v.self);
	state->theta = c.value;
	tp->snd_cwnd = setting.window;
	tp->snd_ssthresh = setting.ssthresh;
	return 0;
}

/* Not called in fast recovery. After a timeout srtt tells of the timeout, not of the path's delay. */
static __always_inline void cdd_on_ack(struct cc_state *state, struct tcp_sock *tp)
{
	if (!in_loss(tp) && tp->tcp_mstamp >= state->next_cut_us)
		run_period(tp);
}

static const struct cc_hooks cc_hooks = {
	.add_path = cdd_add,
	.step = cdd_step,
	.after_loss = half_window,
	.floor = reno_floor,
	.set_window = cdd_set_window,
	.coupling = cdd_coupling,
	.read_private = cdd_read_private,
	.on_ack = cdd_on_ack,
};

CC_TABLE(cdd);
