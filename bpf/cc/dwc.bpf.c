// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * DWC, Dynamic Window Coupling (Hassayoun, Iyengar, Ros, ICNP 2011). Reconstruction: only the abstract
 * and the increase, as Zhao, Liu, Wang give it (On Energy-Efficient Congestion Control for Multipath
 * TCP, section IV), could be read.
 *
 *   per acknowledged segment   w_r += min(rtt_r / (|G| min_k rtt_k sum_k w_k), 1 / w_r), k in G
 *   per loss event             w_r /= 2
 *   G                          the subflows that share a bottleneck with r, r among them; alone: Reno
 *
 * Without the 1/w cap the published increase exceeds a packet per ACK on unequal RTTs.
 *
 * The paper finds shared bottlenecks by loss and delay together, in a way that could not be read. G is what the
 * detector of all controls finds (bottleneck.h), by delay.
 */
#define MPCC_PAPER_COUPLE "shared"
#include "mpcc/cc.h"

struct cc_state {
	struct mpcc_flow flow;
};

struct cc_sum {
	__u32 n;
	__u32 shortest_us8; /* min rtt */
	__u64 cwnd; /* sum w */
};

MPCC_GLOBAL int dwc_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	if (!sum->n || p->srtt_us8 < sum->shortest_us8)
		sum->shortest_us8 = p->srtt_us8;
	sum->n++;
	sum->cwnd += p->cwnd;
	return 0;
}

MPCC_GLOBAL int dwc_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			 const struct mpcc_path *p nonnull)
{
	struct mpcc_num group = num_mul(num_of(sum->n * sum->cwnd), num_of(sum->shortest_us8));

	step->up = num_min(num_div(num_of(p->srtt_us8), group), num_inverse(p->cwnd));
	step->down = num_zero();
	return 0;
}

/* |G| */
MPCC_GLOBAL int dwc_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
			     const struct mpcc_path *p nonnull)
{
	c->value = num_of(sum->n);
	c->negative = 0;
	return 0;
}

static const struct cc_hooks cc_hooks = {
	.add_path = dwc_add,
	.step = dwc_step,
	.after_loss = half_window,
	.floor = reno_floor,
	.set_window = keep_window,
	.coupling = dwc_coupling,
};

CC_TABLE(dwc);
