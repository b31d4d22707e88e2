// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * EWTCP, Equally-Weighted TCP (Honda et al., PFLDNeT 2009).
 *
 *   per acknowledged segment   w_r += a / w_r
 *   per loss event             w_r /= 2
 *   weight=sqrt                a = 1 / sqrt(n)
 *   weight=fair                a = 1 / n^2
 *
 * Each of the n subflows runs alone with the same weight. sqrt is the weight of the model in Zhao, Liu, Wang (On
 * Energy-Efficient Congestion Control for Multipath TCP, section IV), which --set paper gives; at a bottleneck that all
 * subflows share it takes n / n^(1/4) times what one TCP takes. fair, the default, takes as much as one TCP, which was the
 * original's aim.
 */
#include "mpcc/cc.h"

enum { WEIGHT_SQRT, WEIGHT_FAIR };
TUNABLE_PAPER(weight, WEIGHT_FAIR, "sqrt",
	      "sqrt|fair; weight of each of n subflows: 1/sqrt(n) or 1/n^2");

struct cc_state {
	struct mpcc_flow flow;
};

struct cc_sum {
	__u32 n;
};

/* 1 / sqrt(n) in units of 2^-32, n = 1 .. 9: as many as a view can take. */
static const __u64 inverse_sqrt_q32[] = {
	4294967296, 4294967296, 3037000500, 2479700525, 2147483648,
	1920767767, 1753413056, 1623345051, 1518500250, 1431655765,
};

MPCC_GLOBAL int ewtcp_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	sum->n++;
	return 0;
}

static __always_inline struct mpcc_num subflow_weight(const struct cc_sum *sum)
{
	__u32 n = sum->n;

	if (weight == WEIGHT_FAIR)
		return num_inverse((__u64)n * n);
	if (n > 9)
		n = 9;
	return num_scale(num_of(inverse_sqrt_q32[n]), -32);
}

MPCC_GLOBAL int ewtcp_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			   const struct mpcc_path *p nonnull)
{
	step->up = num_div(subflow_weight(sum), num_of(p->cwnd));
	step->down = num_zero();
	return 0;
}

/* a */
MPCC_GLOBAL int ewtcp_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
			       const struct mpcc_path *p nonnull)
{
	c->value = subflow_weight(sum);
	c->negative = 0;
	return 0;
}

static const struct cc_hooks cc_hooks = {
	.add_path = ewtcp_add,
	.step = ewtcp_step,
	.after_loss = half_window,
	.floor = reno_floor,
	.set_window = keep_window,
	.coupling = ewtcp_coupling,
};

CC_TABLE(ewtcp);
