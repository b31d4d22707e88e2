// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * DTS, Delay-based Traffic Shifting (Zhao, Liu, Wang, "On Energy-Efficient Congestion Control for
 * Multipath TCP", section V, Algorithm 1).
 *
 *   eps_r                      2 / (1 + exp(-10 (baseRTT_r / RTT_r - 1/2)))
 *   per acknowledged segment   w_r += eps_r (w_r / RTT_r^2) / (sum_k w_k / RTT_k)^2
 *   per loss event             w_r /= 2
 *
 * RTT is the smoothed RTT, baseRTT the smallest sample seen.
 *
 * Deviations from the printed Algorithm 1, which cannot work as it stands:
 *  1. base_rtt starts unset, not at 0, where it would stay.
 *  2. eps is the exact logistic, from a table (relative error 2e-4); the printed Taylor line has an
 *     outer factor that belongs to its first two terms only, and even mended it has a pole at ratio 0.25.
 *  3. The ratio is not rounded to an integer, which would leave 0 and 1.
 *  4. psi * eps is c * eps with c = 1, as the text has it, not eps^2.
 *  5. With one subflow eps is 1 (Reno); the rule would give 1.987 / w.
 *  6. eps is over the largest of the connection's (epsilon.h); epsilon=printed is the paper's.
 * base_rtt=lifetime remembers the smallest sample of the connection's life, as Algorithm 1 does; once the
 * path has become longer, eps stays small for good. By default baseRTT is the kernel's windowed minimum
 * (net.ipv4.tcp_min_rtt_wlen, in seconds).
 *
 * A path that was given up comes back slowly, as the rule has it: from w0 to w1 packets beside a window W, with equal
 * RTTs and no queues, in (w1 - w0 + 2 W ln(w1/w0) + W^2 (1/w0 - 1/w1)) / eps RTTs. From 2 to 50 beside 100 these
 * are 5,600 (eps is 1); as the paper has it, from min_cwnd=1 and with an eps of 1.987, 5,400.
 */
#include "mpcc/cc.h"
#include "mpcc/epsilon.h"

TUNABLE_BASE_RTT;
TUNABLE(cap, 0, "off|on; never grow faster than 1/w, as LIA does");

struct cc_state {
	struct mpcc_flow flow;
};

struct cc_sum {
	__u32 n;
	__u32 pad;
	__u64 divisor_q42; /* of eps */
	struct mpcc_num rate; /* sum w / rtt */
};

TUNABLE_MIN_CWND;

static __always_inline void dts_read_private(struct mpcc_path *p, const struct tcp_sock *tp,
					     const struct cc_state *state,
					     const struct cc_state *own)
{
	p->base_rtt_us = base_rtt_of(tp, &state->flow);
}

MPCC_GLOBAL int dts_add_to_shift(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	sum->n++;
	sum->divisor_q42 = epsilon_divisor_q42(sum->divisor_q42, p);
	return 0;
}

MPCC_GLOBAL int dts_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	dts_add_to_shift(sum, p);
	sum->rate = num_add(sum->rate, path_rate(p));
	return 0;
}

MPCC_GLOBAL int dts_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			 const struct mpcc_path *p nonnull)
{
	step->up = num_mul(coupled_epsilon(sum->n, sum->divisor_q42, p),
			   resource_pooling_increase(sum->rate, p));
	if (cap)
		step->up = at_most_reno(step->up, p);
	step->down = num_zero();
	return 0;
}

/* eps_r, and 1 where it is more */
MPCC_GLOBAL int dts_shift(struct mpcc_num *part nonnull, const struct cc_sum *sum nonnull,
			  const struct mpcc_path *p nonnull)
{
	*part = num_min(coupled_epsilon(sum->n, sum->divisor_q42, p), num_of(1));
	return 0;
}

/* eps_r */
MPCC_GLOBAL int dts_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
			     const struct mpcc_path *p nonnull)
{
	c->value = coupled_epsilon(sum->n, sum->divisor_q42, p);
	c->negative = 0;
	return 0;
}

static const struct cc_hooks cc_hooks = {
	.add_path = dts_add,
	.step = dts_step,
	.after_loss = half_window,
	.floor = low_floor,
	.set_window = keep_window,
	.coupling = dts_coupling,
	.shift = dts_shift,
	.add_to_shift = dts_add_to_shift,
	.read_private = dts_read_private,
};

CC_TABLE(dts);
