// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * OLIA, the Opportunistic Linked Increases Algorithm (draft-khalili-mptcp-congestion-control-05,
 * equations (2)-(4); Khalili et al., CoNEXT 2012).
 *
 *   per acknowledged segment   w_r += (w_r / rtt_r^2) / (sum_k w_k / rtt_k)^2 + alpha_r / w_r
 *   l_r                        bytes acknowledged since the last loss or between the last two,
 *                              whichever is more
 *   M, B, C                    the subflows with the largest w; with the best l_r / rtt_r^2; B minus M
 *   alpha_r                    1 / (n |C|) in C; -1 / (n |M|) in M if C is not empty; else 0
 *   per loss event             w_r /= 2
 *
 * Deviations: the draft's text leaves the metric of B open. l / rtt^2 ranks paths by the rate TCP
 * would get on them (sqrt(2 l) / rtt) and is the authors' own code; l^2 / rtt is offered as
 * metric=square. A sibling under another congestion control counts in the sums and in M, but has no l
 * and so never is best.
 */
#include "mpcc/cc.h"

enum { METRIC_RATE, METRIC_SQUARE };
TUNABLE(metric, METRIC_RATE, "rate|square; best paths by l/rtt^2 or by l^2/rtt");

struct cc_state {
	struct mpcc_flow flow;
	struct mpcc_losses losses;
};

struct cc_sum {
	__u32 n;
	__u32 max_cwnd;
	__u32 in_max; /* |M| */
	__u32 in_best; /* |B| */
	__u32 in_both; /* |B and M| */
	struct mpcc_num rate; /* sum w / rtt */
	struct mpcc_num best; /* the metric of B */
};

TUNABLE_MIN_CWND;

/* OLIA does not average. */
static __always_inline __u64 olia_between(const struct mpcc_losses *l)
{
	return l->last ? l->last : l->before;
}

static __always_inline void olia_read_private(struct mpcc_path *p, const struct tcp_sock *tp,
					      const struct cc_state *state,
					      const struct cc_state *own)
{
	path_losses(p, tp, &state->losses, olia_between(&state->losses));
}

/* Which path TCP would be fastest on, by the bytes it carries from loss to loss. */
static __always_inline struct mpcc_num quality(const struct mpcc_path *p)
{
	__u64 l = loss_interval(p);
	struct mpcc_num rtt = num_of(p->srtt_us8), per_rtt = num_div(num_of(l), rtt);

	if (metric == METRIC_SQUARE)
		return num_mul(per_rtt, num_of(l));
	return num_div(per_rtt, rtt);
}

MPCC_GLOBAL int olia_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	struct mpcc_num q = quality(p);
	bool best, max;

	sum->rate = num_add(sum->rate, path_rate(p));
	if (p->cwnd > sum->max_cwnd) {
		sum->max_cwnd = p->cwnd;
		sum->in_max = 0;
		sum->in_both = 0;
	}
	if (!sum->n || num_less(sum->best, q)) {
		sum->best = q;
		sum->in_best = 0;
		sum->in_both = 0;
	}
	max = p->cwnd == sum->max_cwnd;
	best = num_equal(q, sum->best);
	sum->in_max += max;
	sum->in_best += best;
	sum->in_both += max && best;
	sum->n++;
	return 0;
}

/* |alpha_r|. Its sign is 1 where it is 1 / (n |C|), -1 where it is 1 / (n |M|), and 0 where alpha_r is 0. */
static __always_inline struct mpcc_num alpha(const struct cc_sum *sum, const struct mpcc_path *p,
					     int *sign)
{
	__u32 collected = sum->in_best - sum->in_both;
	bool max = p->cwnd == sum->max_cwnd;

	*sign = 0;
	if (!collected)
		return num_zero();
	if (max) {
		*sign = -1;
		return num_inverse((__u64)sum->n * sum->in_max);
	}
	if (!num_equal(quality(p), sum->best))
		return num_zero();
	*sign = 1;
	return num_inverse((__u64)sum->n * collected);
}

MPCC_GLOBAL int olia_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			  const struct mpcc_path *p nonnull)
{
	struct mpcc_num alpha_per_window;
	int sign;

	alpha_per_window = num_div(alpha(sum, p, &sign), num_of(p->cwnd));
	step->up = resource_pooling_increase(sum->rate, p);
	step->down = num_zero();
	if (sign > 0)
		step->up = num_add(step->up, alpha_per_window);
	else
		step->down = alpha_per_window;
	return 0;
}

/* alpha_r */
MPCC_GLOBAL int olia_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
			      const struct mpcc_path *p nonnull)
{
	int sign;

	c->value = alpha(sum, p, &sign);
	c->negative = sign < 0;
	return 0;
}

static __always_inline void olia_on_loss(struct cc_state *state, struct tcp_sock *tp)
{
	count_loss(&state->losses, tp, olia_between(&state->losses));
}

static __always_inline void olia_on_undo(struct cc_state *state)
{
	undo_loss(&state->losses);
}

static const struct cc_hooks cc_hooks = {
	.add_path = olia_add,
	.step = olia_step,
	.after_loss = half_window,
	.floor = low_floor,
	.set_window = keep_window,
	.coupling = olia_coupling,
	.read_private = olia_read_private,
	.on_loss = olia_on_loss,
	.on_undo = olia_on_undo,
};

CC_TABLE(olia);
