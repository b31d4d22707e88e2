// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Extended DTS (Zhao, Liu, Wang, "On Energy-Efficient Congestion Control for Multipath TCP", section V,
 * equations (6)-(9)): DTS with a price on each path.
 *
 *   per acknowledged segment   w_r += eps_r (w_r / RTT_r^2) / (sum_k w_k / RTT_k)^2 - w_r kappa u_r
 *   kappa u_r                  k1 e_r / min_k e_k + k2 [RTT_r - baseRTT_r > q_target]
 *   per loss event             w_r /= 2
 *
 * eps is that of DTS (dts.bpf.c lists the deviations there).
 *
 * Deviations: the paper's u_r counts switch links and queues, which a host cannot see, and gives no
 * constants. The first term here is the energy per bit e_r of the path's interface relative to the
 * cheapest one, from the energy profiles; without a profile on every path in use it is 0. The second
 * term takes a queueing delay above q_target for the queue. k1 and k2 are ours; useful values are of
 * the order of the loss rate. With one subflow there is nowhere to shift to: Reno.
 */
#include "mpcc/cc.h"

TUNABLE(k1_ppm, 1000,
	"0..100000 ppm; price of the cheapest path's energy, per packet of window and ACK");
TUNABLE(k2_ppm, 1000,
	"0..100000 ppm; price of a queue above q_target, per packet of window and ACK");
TUNABLE(q_target_us, 5000, "0..10000000 us; queueing delay that costs nothing");

struct cc_state {
	struct mpcc_flow flow;
};

struct cc_sum {
	__u32 n;
	__u32 pad;
	struct price_sum prices;
	struct mpcc_num rate; /* sum w / rtt */
};

TUNABLE_MIN_CWND;

static __always_inline void dtsx_read_private(struct mpcc_path *p, const struct tcp_sock *tp,
					      const struct cc_state *state,
					      const struct cc_state *own)
{
	p->base_rtt_us = state->flow.base_rtt_us;
	p->price_pj = state->flow.price_pj;
}

MPCC_GLOBAL int dtsx_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	sum->n++;
	price_sum_add(&sum->prices, p);
	sum->rate = num_add(sum->rate, path_rate(p));
	return 0;
}

/* kappa u_r */
static __always_inline struct mpcc_num path_price(const struct cc_sum *sum,
						  const struct mpcc_path *p)
{
	__u64 limit_us8 = ((__u64)p->base_rtt_us + q_target_us) << 3;
	struct mpcc_num ppm = num_zero();

	if (!sum->prices.unpriced)
		ppm = num_mul(num_of(k1_ppm),
			      price_ratio(&sum->prices, p->price_pj, sum->prices.cheapest_pj));
	if (p->base_rtt_us && p->srtt_us8 > limit_us8)
		ppm = num_add(ppm, num_of(k2_ppm));
	return num_div(ppm, num_of(1000000));
}

MPCC_GLOBAL int dtsx_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			  const struct mpcc_path *p nonnull)
{
	step->up = resource_pooling_increase(sum->rate, p);
	step->down = num_zero();
	if (sum->n > 1) {
		step->up = num_mul(path_epsilon(p), step->up);
		step->down = num_mul(path_price(sum, p), num_of(p->cwnd));
	}
	return 0;
}

/* kappa u_r */
MPCC_GLOBAL int dtsx_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
			      const struct mpcc_path *p nonnull)
{
	c->value = sum->n > 1 ? path_price(sum, p) : num_zero();
	c->negative = 0;
	return 0;
}

static const struct cc_hooks cc_hooks = {
	.add_path = dtsx_add,
	.step = dtsx_step,
	.after_loss = half_window,
	.floor = low_floor,
	.set_window = keep_window,
	.coupling = dtsx_coupling,
	.read_private = dtsx_read_private,
};

CC_TABLE(dtsx);
