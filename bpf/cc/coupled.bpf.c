// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Coupled, the fully coupled control (Kelly, Voice 2005; Han et al. 2006; "COUPLED" in Wischik et al.,
 * NSDI 2011).
 *
 *   W = sum_k w_k
 *   variant=b   per acknowledged segment  w_r += w_r / W^2         per loss event  w_r /= 2
 *   variant=a   per acknowledged segment  w_r += min(1/W, 1/w_r)   per loss event  w_r -= W / 2
 *
 * Both settle at the same total, with all traffic on the least lossy paths; b (the model in Zhao, Liu,
 * Wang, On Energy-Efficient Congestion Control for Multipath TCP, section IV) is the smoother one, a
 * is the one of the NSDI paper and empties a subflow in one loss when it holds half the total or less.
 * Round-trip times are ignored, as the rule assumes them equal.
 */
#include "mpcc/cc.h"

enum { VARIANT_A, VARIANT_B };
TUNABLE(variant, VARIANT_B, "a|b; 1/W and -W/2, or w/W^2 and -w/2");

struct cc_state {
	struct mpcc_flow flow;
};

struct cc_sum {
	__u32 n;
	__u64 cwnd; /* W */
};

TUNABLE_MIN_CWND;

MPCC_GLOBAL int coupled_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	sum->n++;
	sum->cwnd += p->cwnd;
	return 0;
}

MPCC_GLOBAL int coupled_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			     const struct mpcc_path *p nonnull)
{
	struct mpcc_num per_total = num_inverse(sum->cwnd);

	/* W is no less than w_r, so variant a's cap 1/w_r is met by itself. */
	if (variant == VARIANT_A)
		step->up = per_total;
	else
		step->up = num_mul(num_mul(per_total, per_total), num_of(p->cwnd));
	step->down = num_zero();
	return 0;
}

MPCC_GLOBAL __u32 coupled_after_loss(const struct cc_sum *sum nonnull,
				     const struct mpcc_path *p nonnull)
{
	__u64 twice = 2 * (__u64)p->cwnd;

	if (variant == VARIANT_B)
		return p->cwnd / 2;
	return twice > sum->cwnd ? (twice - sum->cwnd) / 2 : 0;
}

/* w_r / W */
MPCC_GLOBAL int coupled_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
				 const struct mpcc_path *p nonnull)
{
	c->value = num_div(num_of(p->cwnd), num_of(sum->cwnd));
	c->negative = 0;
	return 0;
}

static const struct cc_hooks cc_hooks = {
	.add_path = coupled_add,
	.step = coupled_step,
	.after_loss = coupled_after_loss,
	.floor = low_floor,
	.set_window = keep_window,
	.coupling = coupled_coupling,
};

CC_TABLE(coupled);
