// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Balia, the Balanced Linked Adaptation algorithm (draft-walid-mptcp-congestion-control-04; Peng, Walid,
 * Hwang, Low, IEEE/ACM ToN 2016).
 *
 *   x_r = w_r / rtt_r, y_r = max_k x_k / x_r
 *   per acknowledged segment   w_r += x_r / (rtt_r (sum_k x_k)^2) (1 + y_r) / 2 (4 + y_r) / 5
 *   per loss event             w_r -= w_r / 2 min(y_r, 1.5)
 *
 * Deviations: none in the rule. y_r is a real number, taken at the time of the loss; the reference
 * code rounds it to an integer and uses an older one. No 1/w cap: the rule never exceeds 1/w.
 */
#include "mpcc/cc.h"

struct cc_state {
	struct mpcc_flow flow;
};

struct cc_sum {
	__u32 n;
	struct mpcc_num rate; /* sum x */
	struct mpcc_num fastest; /* max x */
};

TUNABLE_MIN_CWND;

MPCC_GLOBAL int balia_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	struct mpcc_num rate = path_rate(p);

	sum->n++;
	sum->rate = num_add(sum->rate, rate);
	sum->fastest = num_max(sum->fastest, rate);
	return 0;
}

/* The same rule without y: (x + max) (4 x + max) / (10 w X^2). */
MPCC_GLOBAL int balia_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			   const struct mpcc_path *p nonnull)
{
	struct mpcc_num x = path_rate(p);
	struct mpcc_num both = num_mul(num_add(x, sum->fastest),
				       num_add(num_scale(x, 2), sum->fastest));
	struct mpcc_num all = num_mul(num_mul(sum->rate, sum->rate), num_of(10 * (__u64)p->cwnd));

	step->up = num_div(both, all);
	step->down = num_zero();
	return 0;
}

static __always_inline struct mpcc_num slowness(const struct cc_sum *sum, const struct mpcc_path *p)
{
	return num_div(sum->fastest, path_rate(p));
}

MPCC_GLOBAL __u32 balia_after_loss(const struct cc_sum *sum nonnull,
				   const struct mpcc_path *p nonnull)
{
	__u64 y_q30 = num_to_fixed(slowness(sum, p), 30);

	if (y_q30 > 3 << 29)
		y_q30 = 3 << 29;
	/* w (1 - y / 2), y in 2^-30 */
	return p->cwnd * ((2ULL << 30) - y_q30) >> 31;
}

/* y_r */
MPCC_GLOBAL int balia_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
			       const struct mpcc_path *p nonnull)
{
	c->value = slowness(sum, p);
	c->negative = 0;
	return 0;
}

static const struct cc_hooks cc_hooks = {
	.add_path = balia_add,
	.step = balia_step,
	.after_loss = balia_after_loss,
	.floor = low_floor,
	.set_window = keep_window,
	.coupling = balia_coupling,
};

CC_TABLE(balia);
