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
#include "mpcc/linked.h"
#include "mpcc/prices.h"
#include "mpcc/state.h"

struct cc_state {
	struct mpcc_flow flow;
};

struct cc_sum {
	__u32 n;
	__u32 pad;
	struct price_sum prices;
	struct linked_sum linked;
};

static __always_inline void cc_private(struct mpcc_path *p, const struct tcp_sock *tp,
				       const struct cc_state *state, const struct cc_state *own)
{
	p->price_pj = state->flow.price_pj;
}
#define cc_private cc_private

MPCC_PURE int cc_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	sum->n++;
	price_add(&sum->prices, p);
	linked_add(&sum->linked, p);
	return 0;
}

static __always_inline struct mpcc_num energy_weight(const struct cc_sum *sum,
						     const struct mpcc_path *p)
{
	if (sum->prices.unpriced)
		return num_of(1);
	return num_div(num_of(sum->prices.cheapest_pj), num_of(p->price_pj));
}

MPCC_PURE int cc_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
		      const struct mpcc_path *p nonnull)
{
	struct mpcc_num weighted = num_mul(linked_increase(&sum->linked), energy_weight(sum, p));

	step->up = num_min(weighted, num_inverse(p->cwnd));
	step->down = num_zero();
	return 0;
}

/* min e / e_r */
MPCC_PURE int cc_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
			  const struct mpcc_path *p nonnull)
{
	c->value = energy_weight(sum, p);
	c->negative = 0;
	return 0;
}

#include "mpcc/coupled.h"
#include "mpcc/eval.h"

COUPLED_OPS(emreno);
