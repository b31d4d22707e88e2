// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Extended DTS (Zhao, Liu, Wang, "On Energy-Efficient Congestion Control for Multipath TCP", section V,
 * equations (6)-(9)): DTS with a price on each path.
 *
 *   per acknowledged segment   w_r += d_r - d_r sigma_r - w_r kappa u_r
 *   d_r                        eps_r (w_r / RTT_r^2) / (sum_k w_k / RTT_k)^2
 *   sigma_r                    p1 (1 - min_k e_k / e_r) + p2 [RTT_r - baseRTT_r > q_target]
 *   kappa u_r                  k1 e_r / min_k e_k + k2 [RTT_r - baseRTT_r > q_target]
 *   per loss event             w_r /= 2
 *
 * eps is that of DTS (dts.bpf.c lists the deviations there), by default over the largest of the connection's.
 *
 * Deviations: the paper's u_r counts switch links and queues, which a host cannot see, and gives no
 * constants. The first term here is the energy per bit e_r of the path's interface relative to the
 * cheapest one, from the energy profiles; without a profile on every path in use it is 0. The second
 * term takes a queueing delay above q_target for the queue. With one subflow there is nowhere to shift to. Nor is there
 * where the queues of all subflows are above q_target: then no subflow pays for its queue, unless epsilon=printed, as the
 * paper has it.
 *
 * The paper's price grows with the window and not with what the window earns: growth ends where w_r kappa = d_r, so on
 * one path out of several with the same RTT, d_r <= 1 / w_r, no window passes sqrt(1 / kappa) packets, 32 at kappa
 * = 1000 ppm, however fast the path is. By default, therefore, k1 = k2 = 0, and a path pays with a share sigma_r of
 * its increase, which leaves the fastest path as large a window as its losses do. --set paper has kappa alone.
 */
#include "mpcc/cc.h"
#include "mpcc/epsilon.h"

TUNABLE_PAPER(p1_percent, 50, "0",
	      "0..50 percent; share of its increase that a path far dearer than the cheapest pays");
TUNABLE_PAPER(p2_percent, 50, "0",
	      "0..50 percent; share of its increase that a path with a queue above q_target pays");
TUNABLE_PAPER(k1_ppm, 0, "1000",
	      "0..100000 ppm; price of the cheapest path's energy, per packet of window and ACK");
TUNABLE_PAPER(k2_ppm, 0, "1000",
	      "0..100000 ppm; price of a queue above q_target, per packet of window and ACK");
TUNABLE(q_target_us, 5000, "0..10000000 us; queueing delay that costs nothing");
TUNABLE_BASE_RTT;

struct cc_state {
	struct mpcc_flow flow;
};

struct cc_sum {
	__u32 n;
	__u32 queues; /* subflows with a queue above q_target */
	struct price_sum prices;
	__u64 divisor_q42; /* of eps */
	struct mpcc_num rate; /* sum w / rtt */
};

TUNABLE_MIN_CWND;

static __always_inline void dtsx_read_private(struct mpcc_path *p, const struct tcp_sock *tp,
					      const struct cc_state *state,
					      const struct cc_state *own)
{
	p->base_rtt_us = base_rtt_of(tp, &state->flow);
	p->price_pj = state->flow.price_pj;
}

static __always_inline bool has_queue(const struct mpcc_path *p)
{
	return p->base_rtt_us && p->srtt_us8 > ((__u64)p->base_rtt_us + q_target_us) << 3;
}

MPCC_GLOBAL int dtsx_add_to_shift(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	sum->n++;
	sum->divisor_q42 = epsilon_divisor_q42(sum->divisor_q42, p);
	price_sum_add(&sum->prices, p);
	sum->queues += has_queue(p);
	return 0;
}

MPCC_GLOBAL int dtsx_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	dtsx_add_to_shift(sum, p);
	sum->rate = num_add(sum->rate, path_rate(p));
	return 0;
}

static __always_inline bool pays_for_queue(const struct cc_sum *sum, const struct mpcc_path *p)
{
	return has_queue(p) && (epsilon == EPSILON_PRINTED || sum->queues < sum->n);
}

/* kappa u_r */
MPCC_GLOBAL int path_price(struct mpcc_num *price nonnull, const struct cc_sum *sum nonnull,
			   const struct mpcc_path *p nonnull)
{
	struct mpcc_num ppm = num_zero();

	if (!sum->prices.unpriced)
		ppm = num_mul(num_of(k1_ppm),
			      price_ratio(&sum->prices, p->price_pj, sum->prices.cheapest_pj));
	if (pays_for_queue(sum, p))
		ppm = num_add(ppm, num_of(k2_ppm));
	*price = num_div(ppm, num_of(1000000));
	return 0;
}

/* sigma_r; 1 - min_k e_k / e_r is 0 without prices */
MPCC_GLOBAL int path_share(struct mpcc_num *share nonnull, const struct cc_sum *sum nonnull,
			   const struct mpcc_path *p nonnull)
{
	struct mpcc_num dearness = num_sub(num_of(1), cheapness(&sum->prices, p));
	struct mpcc_num percent = num_mul(num_of(p1_percent), dearness);

	if (pays_for_queue(sum, p))
		percent = num_add(percent, num_of(p2_percent));
	*share = num_div(percent, num_of(100));
	return 0;
}

/* d_r */
static __always_inline struct mpcc_num dts_increase(const struct cc_sum *sum,
						    const struct mpcc_path *p)
{
	return num_mul(coupled_epsilon(sum->n, sum->divisor_q42, p),
		       resource_pooling_increase(sum->rate, p));
}

MPCC_GLOBAL int dtsx_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			  const struct mpcc_path *p nonnull)
{
	struct mpcc_num up = dts_increase(sum, p), share = num_zero(), price = num_zero();

	step->up = up;
	step->down = num_zero();
	if (sum->n < 2)
		return 0;
	path_share(&share, sum, p);
	path_price(&price, sum, p);
	step->down = num_add(num_mul(share, up), num_mul(price, num_of(p->cwnd)));
	return 0;
}

/* eps_r (1 - sigma_r), at most 1; kappa u_r, where there is one, is per packet and ACK */
MPCC_GLOBAL int dtsx_shift(struct mpcc_num *part nonnull, const struct cc_sum *sum nonnull,
			   const struct mpcc_path *p nonnull)
{
	struct mpcc_num eps = num_min(coupled_epsilon(sum->n, sum->divisor_q42, p), num_of(1));
	struct mpcc_num window = num_of(p->cwnd), share = num_zero(), price = num_zero();

	path_share(&share, sum, p);
	path_price(&price, sum, p);
	/* Of the growth alone, taken for Reno's 1 / w. */
	price = num_mul(price, num_mul(window, window));
	*part = num_sub(num_mul(eps, num_sub(num_of(1), share)), price);
	return 0;
}

/* What it pays per packet of window: kappa u_r + d_r sigma_r / w_r */
MPCC_GLOBAL int dtsx_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
			      const struct mpcc_path *p nonnull)
{
	struct mpcc_num share = num_zero(), price = num_zero(), paid;

	c->value = num_zero();
	c->negative = 0;
	if (sum->n < 2)
		return 0;
	path_share(&share, sum, p);
	path_price(&price, sum, p);
	paid = num_mul(share, dts_increase(sum, p));
	c->value = num_add(price, num_div(paid, num_of(p->cwnd)));
	return 0;
}

static const struct cc_hooks cc_hooks = {
	.add_path = dtsx_add,
	.step = dtsx_step,
	.after_loss = half_window,
	.floor = low_floor,
	.set_window = keep_window,
	.coupling = dtsx_coupling,
	.shift = dtsx_shift,
	.add_to_shift = dtsx_add_to_shift,
	.read_private = dtsx_read_private,
};

CC_TABLE(dtsx);
