// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * LIA, the Linked Increases Algorithm (RFC 6356, section 3, equations (1) and (2)).
 *
 *   per acknowledged segment   w_r += min(alpha / W, 1 / w_r)
 *   alpha                      W * max_k(w_k / rtt_k^2) / (sum_k w_k / rtt_k)^2,  W = sum_k w_k
 *   per loss event             w_r /= 2
 *
 * w in packets, rtt smoothed. Segments are counted, not ACKs. With one subflow alpha is 1: Reno.
 * Deviations: none in the rule; the window is counted in packets, so subflows with unequal MSS are
 * treated as equal, as the RFC does.
 */
#include "mpcc/cc.h"

struct cc_state {
	struct mpcc_flow flow;
};

struct cc_sum {
	__u32 n;
	__u64 cwnd; /* W */
	struct lia_sum lia;
};

MPCC_GLOBAL int lia_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	sum->n++;
	sum->cwnd += p->cwnd;
	lia_sum_add(&sum->lia, p);
	return 0;
}

MPCC_GLOBAL int lia_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			 const struct mpcc_path *p nonnull)
{
	step->up = at_most_reno(lia_increase(&sum->lia), p);
	step->down = num_zero();
	return 0;
}

/* alpha */
MPCC_GLOBAL int lia_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
			     const struct mpcc_path *p nonnull)
{
	c->value = num_mul(lia_increase(&sum->lia), num_of(sum->cwnd));
	c->negative = 0;
	return 0;
}

static const struct cc_hooks cc_hooks = {
	.add_path = lia_add,
	.step = lia_step,
	.after_loss = half_window,
	.floor = reno_floor,
	.set_window = keep_window,
	.coupling = lia_coupling,
};

CC_TABLE(lia);
