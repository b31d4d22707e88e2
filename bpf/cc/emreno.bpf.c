// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Energy-weighted LIA, inspired by emReno (Pham), of which one sentence is published (quoted in ES-MPTCP,
 * Electronics 2022, 11(3), 490): the increase is inversely proportional to the path's energy use.
 *
 *   per acknowledged segment   w_r += min(alpha / W min_k e_k / e_r, 1 / w_r)
 *   per loss event             w_r /= 2
 *
 * alpha is LIA's (lia.bpf.c). e_r is the energy per bit of the path's interface at its present rate,
 * slope + base / rate, from the energy profiles; without a profile on every path in use this is LIA.
 * All but the sentence is ours.
 */
#include "mpcc/cc.h"

struct cc_state {
	struct mpcc_flow flow;
};

struct cc_sum {
	__u32 n;
	__u32 pad;
	struct price_sum prices;
	struct lia_sum lia;
};

static __always_inline void emreno_read_private(struct mpcc_path *p, const struct tcp_sock *tp,
						const struct cc_state *state,
						const struct cc_state *own)
{
	p->price_pj = state->flow.price_pj;
}

MPCC_GLOBAL int emreno_add_to_shift(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	price_sum_add(&sum->prices, p);
	return 0;
}

MPCC_GLOBAL int emreno_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	sum->n++;
	emreno_add_to_shift(sum, p);
	lia_sum_add(&sum->lia, p);
	return 0;
}

MPCC_GLOBAL int emreno_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			    const struct mpcc_path *p nonnull)
{
	struct mpcc_num weighted = num_mul(lia_increase(&sum->lia), cheapness(&sum->prices, p));

	step->up = at_most_reno(weighted, p);
	step->down = num_zero();
	return 0;
}

/* min e / e_r */
MPCC_GLOBAL int emreno_shift(struct mpcc_num *part nonnull, const struct cc_sum *sum nonnull,
			     const struct mpcc_path *p nonnull)
{
	*part = cheapness(&sum->prices, p);
	return 0;
}

/* min e / e_r */
MPCC_GLOBAL int emreno_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
				const struct mpcc_path *p nonnull)
{
	c->value = cheapness(&sum->prices, p);
	c->negative = 0;
	return 0;
}

static const struct cc_hooks cc_hooks = {
	.add_path = emreno_add,
	.step = emreno_step,
	.after_loss = half_window,
	.floor = reno_floor,
	.set_window = keep_window,
	.coupling = emreno_coupling,
	.shift = emreno_shift,
	.add_to_shift = emreno_add_to_shift,
	.read_private = emreno_read_private,
};

CC_TABLE(emreno);
