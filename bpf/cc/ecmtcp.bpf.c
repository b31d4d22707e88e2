// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * ecMTCP, the energy-aware coupled control (Le, Hong, Razzaque, Lee, Jung, IEEE Communications Letters
 * 16(2), 2012). Reconstruction: the letter's formula could not be read.
 *
 *   per acknowledged segment   w_r += min(alpha / W s_r, 1 / w_r)
 *   s_r                        price_h / price_r, kept to [1/8, 8]; h has the largest rate w / rtt (of
 *                              several, the one with most losses, then the dearest)
 *   price_r                    p_r e_r
 *   per loss event             w_r /= 2
 *
 * alpha is LIA's (lia.bpf.c). p_r is the loss rate, estimated as 1 / l_r with l_r the smoothed bytes
 * between losses (gain 1/8) or the bytes since the last one, whichever is more. A path without a loss yet is taken to
 * lose no more than h does, or a joining subflow would grow at an eighth until its first loss; no_loss=counted
 * estimates from its few bytes all the same. e_r is the energy per
 * bit of the path's interface at its present rate, slope + base / rate, from the energy profiles;
 * without a profile on every path in use e_r = 1.
 *
 * Zhao, Liu, Wang (On Energy-Efficient Congestion Control for Multipath TCP, section IV) give s_r as
 * p_r / p_h: ratio=literal. That drives every path to the same window, whatever its loss, against the
 * letter's abstract (from more to less congested, from dear to cheap paths); hence the inverse.
 *
 * A subflow that shares no bottleneck with a sibling grows by min e / e_r of its growth alone; its losses do not count. If
 * it grew more slowly for the losses of its path, the path would stay unused, and no other path would lose less.
 */
#include "mpcc/cc.h"

enum { RATIO_INVERSE, RATIO_LITERAL };
enum { NO_LOSS_ALIKE, NO_LOSS_COUNTED };
TUNABLE_PAPER(no_loss, NO_LOSS_ALIKE, "counted",
	      "alike|counted; loss rate of a path without a loss yet: that of path h, or one in "
	      "its bytes so far");
TUNABLE(ratio, RATIO_INVERSE, "inverse|literal; increase by price_h/price_r or by p_r/p_h");

struct cc_state {
	struct mpcc_flow flow;
	struct mpcc_losses losses;
};

struct cc_sum {
	__u32 n;
	struct price_sum prices;
	struct lia_sum lia;
	struct mpcc_num fastest; /* max w / rtt, of path h */
	__u64 fastest_interval; /* bytes, l_h */
	__u32 fastest_price_pj; /* e_h */
	__u32 unused; /* subflows that have had nothing acknowledged */
};

/* Smoothed with gain 1/8, from the first interval on. */
static __always_inline __u64 ecmtcp_between(const struct mpcc_losses *l)
{
	if (!l->last)
		return l->before;
	return l->before ? l->before - l->before / 8 + l->last / 8 : l->last;
}

static __always_inline void ecmtcp_read_private(struct mpcc_path *p, const struct tcp_sock *tp,
						const struct cc_state *state,
						const struct cc_state *own)
{
	path_losses(p, tp, &state->losses, ecmtcp_between(&state->losses));
	p->price_pj = state->flow.price_pj;
}

/* Whether p is path h rather than the one taken for it so far. */
static __always_inline bool is_fastest(const struct cc_sum *sum, const struct mpcc_path *p,
				       struct mpcc_num rate)
{
	if (!num_equal(rate, sum->fastest))
		return num_less(sum->fastest, rate);
	if (loss_interval(p) != sum->fastest_interval)
		return loss_interval(p) < sum->fastest_interval;
	return p->price_pj > sum->fastest_price_pj;
}

MPCC_GLOBAL int ecmtcp_add_to_shift(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	price_sum_add(&sum->prices, p);
	return 0;
}

MPCC_GLOBAL int ecmtcp_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	struct mpcc_num rate = lia_sum_add(&sum->lia, p);

	if (!sum->n || is_fastest(sum, p, rate)) {
		sum->fastest = rate;
		sum->fastest_interval = loss_interval(p);
		sum->fastest_price_pj = p->price_pj;
	}
	sum->n++;
	ecmtcp_add_to_shift(sum, p);
	sum->unused += !loss_interval(p);
	return 0;
}

/* s_r; 1 while a path has nothing to estimate its loss rate from. */
static __always_inline struct mpcc_num ecmtcp_shift(const struct cc_sum *sum,
						    const struct mpcc_path *p)
{
	__u64 interval = loss_interval(p);
	struct mpcc_num s;

	if (sum->unused)
		return num_of(1);
	if (no_loss == NO_LOSS_ALIKE && !p->bytes_between_losses &&
	    interval < sum->fastest_interval)
		interval = sum->fastest_interval;
	if (ratio == RATIO_LITERAL)
		return num_div(num_of(sum->fastest_interval), num_of(interval));
	s = num_div(num_of(interval), num_of(sum->fastest_interval));
	s = num_mul(s, price_ratio(&sum->prices, sum->fastest_price_pj, p->price_pj));
	return num_max(num_min(s, num_of(8)), num_scale(num_of(1), -3));
}

MPCC_GLOBAL int ecmtcp_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			    const struct mpcc_path *p nonnull)
{
	struct mpcc_num shifted = num_mul(lia_increase(&sum->lia), ecmtcp_shift(sum, p));

	step->up = at_most_reno(shifted, p);
	step->down = num_zero();
	return 0;
}

/* min e / e_r */
MPCC_GLOBAL int ecmtcp_part(struct mpcc_num *part nonnull, const struct cc_sum *sum nonnull,
			    const struct mpcc_path *p nonnull)
{
	*part = cheapness(&sum->prices, p);
	return 0;
}

/* s_r */
MPCC_GLOBAL int ecmtcp_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
				const struct mpcc_path *p nonnull)
{
	c->value = ecmtcp_shift(sum, p);
	c->negative = 0;
	return 0;
}

static __always_inline void ecmtcp_on_loss(struct cc_state *state, struct tcp_sock *tp)
{
	count_loss(&state->losses, tp, ecmtcp_between(&state->losses));
}

static __always_inline void ecmtcp_on_undo(struct cc_state *state)
{
	undo_loss(&state->losses);
}

static const struct cc_hooks cc_hooks = {
	.add_path = ecmtcp_add,
	.step = ecmtcp_step,
	.after_loss = half_window,
	.floor = reno_floor,
	.set_window = keep_window,
	.coupling = ecmtcp_coupling,
	.shift = ecmtcp_part,
	.add_to_shift = ecmtcp_add_to_shift,
	.read_private = ecmtcp_read_private,
	.on_loss = ecmtcp_on_loss,
	.on_undo = ecmtcp_on_undo,
};

CC_TABLE(ecmtcp);
