// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * mpCUBIC (Kato et al., WorldCIST 2020, sections 3 and 4, equations (9)-(13)), over CUBIC (RFC 9438).
 *
 * With n subflows, t seconds after the loss at window w_loss, C = 0.4:
 *
 *   mode=derived   W(t) = C (t/n - K)^3 + w_loss,  K = cbrt(D beta w_loss / C)
 *                  per loss event  w *= 1 - D beta
 *                  D = n / (1 + beta (n-1)^2 / (4n)); beta is the fraction that the total loses
 *   mode=literal   W(t) = (n C (t/n - K)^3 + w_loss) / D,  K = cbrt(0.3 w_loss / C)
 *                  per loss event  w *= 0.7
 *   n = 1          CUBIC: W(t) = C (t - K)^3 + w_loss, K = cbrt(0.3 w_loss / C), w *= 0.7
 *   per acknowledged segment  w += (W(t + RTT) - w) / w, no less than 0 and no more than w / 2 an RTT
 *
 * The paper gives equation (13) for two subflows and does not say whether its Wmax is the connection's,
 * as the derivation needs (derived), or the subflow's own, as the described change of the kernel has it
 * (literal); D_n is the extension to n subflows that are K seconds apart.
 *
 * The default is the mode that is nearer to the paper's own measurement (table 1: 25 Mbit/s, 100 ms, two
 * subflows against one CUBIC flow, 120 s: 11.7 / 12.0 Mbit/s, ratio 0.98). On Linux 6.12, two runs each
 * with a drop-tail queue of 206 packets: derived 10.2 / 12.8 and 12.1 / 11.4, ratios 0.80 and 1.06;
 * literal 9.0 / 14.3 and 7.5 / 16.0, ratios 0.62 and 0.47; two plain CUBIC subflows 1.81 and 2.11.
 *
 * Deviations.
 *  1. A connection of one subflow is the kernel's CUBIC (cubic.h), unless alone=own asks for this file's.
 *  2. Subflows that share a queue are one CUBIC, whose growth is divided evenly (whole.h), unless growth=own asks for this
 *     file's curves. The paper's D is for losses that meet one subflow at a time; a queue that overflows meets
 *     several subflows at once.
 *  3. For D n counts as 5 at most: D beta grows with n until, from six subflows on, nothing would be left.
 *  4. A curve is for the n it began with. When a subflow comes or goes, a new one begins at the present window: the
 *     old one's t/n and K would have the window jump, or stand still for the age of the curve.
 *  5. Beside siblings too it is never slower than Reno (RFC 9438, section 4.3), of which each subflow gets an n-th:
 *     a = 3 b / (2 - b) / n^2 packets per window, b = 1 - left the part lost. The paper has no such region, and small
 *     windows on short paths would wait seconds for the cube.
 *  6. Before its first loss a subflow grows by a packet for CUBIC_FIRST_CNT segments at least, as the kernel's CUBIC does:
 *     slow start has ended long before the queue is full, and the course would begin there as if that were the plateau.
 *
 * Fast convergence (RFC 9438, section 4.7) is on. After a timeout the first curve starts at the plateau.
 * Time stands still while nothing is sent. K is a whole number of ticks of 1024 us.
 *
 * begin_curve(), grow_friendly() and age_of() are cubic.h's; window_at() and step_to() are not cubic_window() and
 * cubic_cnt(). The paper's W is in fractions of a packet, grows by nothing where W is not above w, and in mode=literal has
 * n C / D for C. The kernel's CUBIC counts W in whole packets, and adds a hundredth of Reno's step at least.
 */
#define MPCC_PAPER_ALONE "own"
#define MPCC_OWN_COURSE
#include "mpcc/cc.h"

enum { MODE_DERIVED, MODE_LITERAL };
TUNABLE(mode, MODE_DERIVED, "derived|literal; Wmax of the connection, or of the subflow");
TUNABLE(beta_percent, 20, "5..50 percent; what the connection loses at a loss event");

#define CUBIC_BETA_PERCENT 30
#define MAX_DERIVED 5

struct cc_state {
	struct mpcc_flow flow;
};

struct cc_sum {
	__u32 n;
};

MPCC_GLOBAL int mpcubic_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	sum->n++;
	return 0;
}

/* C, packets per cubic second */
static __always_inline struct mpcc_num cubic_c(void)
{
	return num_div(num_of(2), num_of(5));
}

struct fraction {
	__u32 above, below;
};

/* D, 400 n^2 / (400 n + beta (n-1)^2) with beta in percent. */
static __always_inline struct fraction share_divisor(__u32 n)
{
	__u32 m = n > MAX_DERIVED ? MAX_DERIVED : n;

	return (struct fraction){ 400 * m * m, 400 * m + beta_percent * (m - 1) * (m - 1) };
}

/* What of the window is left after a loss: 1 - D beta, or nothing. */
static __always_inline struct fraction left_after_loss(__u32 n)
{
	struct fraction d = share_divisor(n);
	__u32 lost = d.above / 100 * beta_percent;
	__u32 left = d.below > lost ? d.below - lost : 0;

	if (n < 2 || mode == MODE_LITERAL)
		return (struct fraction){ 100 - CUBIC_BETA_PERCENT, 100 };
	return (struct fraction){ left, d.below };
}

static __always_inline struct mpcc_num scale_by(struct mpcc_num x, struct fraction f)
{
	return num_div(num_mul(x, num_of(f.above)), num_of(f.below));
}

/* C (t/n - K)^3 + origin: K seconds of stretched time to the plateau. */
struct course {
	struct mpcc_num origin; /* packets */
	struct mpcc_num k; /* s */
};

/* W, t microseconds into the course. */
MPCC_GLOBAL int window_at(struct mpcc_num *window nonnull, const struct course *c nonnull,
			  __u64 t_us, __u32 n)
{
	struct mpcc_num t = num_div(num_of(t_us), num_of((__u64)n * 1000000));
	struct mpcc_num w = c->origin, cube, factor = cubic_c();
	bool before = num_less(t, c->k);
	struct mpcc_num away = before ? num_sub(c->k, t) : num_sub(t, c->k);
	bool literal = n > 1 && mode == MODE_LITERAL;
	struct fraction d = share_divisor(n);

	if (literal)
		factor = num_mul(factor, num_of(n));
	cube = num_mul(factor, num_mul(away, num_mul(away, away)));
	w = before ? num_sub(w, cube) : num_add(w, cube);
	*window = literal ? scale_by(w, (struct fraction){ d.below, d.above }) : w;
	return 0;
}

/* The increase per segment that makes up for what the window lacks of the target, over one RTT. */
MPCC_GLOBAL int step_to(struct mpcc_step *step nonnull, const struct course *c nonnull, __u64 t_us,
			__u32 cwnd, __u32 n)
{
	struct mpcc_num w = num_of(cwnd), target = num_zero();

	window_at(&target, c, t_us, n);
	step->up = num_min(num_div(num_sub(target, w), w), num_scale(num_of(1), -1));
	step->down = num_zero();
	return 0;
}

/* For given numbers: the course that follows a loss at last_max. */
MPCC_GLOBAL int given_course(struct course *c nonnull, const struct cc_sum *sum nonnull,
			     const struct mpcc_path *p nonnull)
{
	struct mpcc_num w_loss = p->last_max.m ? p->last_max : num_of(p->cwnd);
	struct mpcc_num w0 = w_loss;

	if (p->last_max.m)
		w0 = scale_by(w_loss, left_after_loss(sum->n));
	c->origin = w_loss;
	c->k = num_cbrt(num_div(num_sub(w_loss, w0), cubic_c()));
	return 0;
}

MPCC_GLOBAL int mpcubic_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			     const struct mpcc_path *p nonnull)
{
	struct course c = {};

	given_course(&c, sum, p);
	return step_to(step, &c, p->epoch_us + (p->srtt_us8 >> 3), p->cwnd, sum->n);
}

MPCC_GLOBAL __u32 mpcubic_after_loss(const struct cc_sum *sum nonnull,
				     const struct mpcc_path *p nonnull)
{
	struct fraction left = left_after_loss(sum->n);

	return (__u64)p->cwnd * left.above / left.below;
}

/* W(t) */
MPCC_GLOBAL int mpcubic_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
				 const struct mpcc_path *p nonnull)
{
	struct course course = {};

	given_course(&course, sum, p);
	c->negative = 0;
	return window_at(&c->value, &course, p->epoch_us, sum->n);
}

/* A function, or the verifier would follow the conversion's branches for each subflow of a view. */
MPCC_GLOBAL int to_number(struct mpcc_num *number nonnull, __u32 packets)
{
	*number = num_of(packets);
	return 0;
}

static __always_inline void mpcubic_read_private(struct mpcc_path *p, const struct tcp_sock *tp,
						 const struct cc_state *state,
						 const struct cc_state *own)
{
	const struct mpcc_flow *flow = &state->flow;

	to_number(&p->last_max, flow->last_max);
	if (flow->curve_subflows)
		p->epoch_us = elapsed_us((__u32)tp->tcp_mstamp, flow->curve.began_us);
}

/* Segments for which a subflow's part of Reno adds a packet: w / a. */
static __always_inline __u64 reno_segments(__u32 cwnd, __u32 n)
{
	struct fraction left = left_after_loss(n);
	__u64 lost = left.below - left.above;

	return (__u64)cwnd * n * n * (2 * left.below - lost) / (3 * lost);
}

/* The same step as mpcubic_step's, on the curve that the socket is in. */
static __always_inline void follow_curve(struct mpcc_step *step, struct cc_view *v,
					 struct tcp_sock *tp)
{
	struct mpcc_flow *flow = flow_of(tp);
	struct mpcc_curve curve = flow->curve;
	__u32 n = sum_of(v)->n, cwnd = tp->snd_cwnd, now_us = (__u32)tp->tcp_mstamp;
	struct mpcc_num w = num_of(cwnd);
	struct course course;
	__u64 t_us;

	if (flow->curve_subflows != n) {
		begin_curve(&curve, cwnd, flow->last_max, now_us);
		flow->curve_subflows = n;
		flow->in_round = 0;
	}
	grow_friendly(&curve, reno_segments(cwnd, n));
	t_us = (__u64)age_of(&curve, now_us) + (tp->srtt_us >> 3);
	flow->curve = curve;
	course.origin = num_of(curve.origin);
	course.k = num_div(num_of((__u64)curve.k << CUBIC_TICK_SHIFT), num_of(1000000));
	step_to(step, &course, t_us, cwnd, n);
	if (!flow->last_max)
		step->up = num_max(step->up, num_inverse(CUBIC_FIRST_CNT));
	if (curve.friendly > cwnd)
		step->up = num_max(step->up, num_min(num_div(num_of(curve.friendly - cwnd), w),
						     num_scale(num_of(1), -1)));
}

static __always_inline void mpcubic_follow(struct mpcc_step *step, struct cc_view *v,
					   struct tcp_sock *tp)
{
	/* An even part. */
	if (are_one_cubic())
		step->up = num_inverse(tp->snd_cwnd);
	else
		follow_curve(step, v, tp);
}

static const struct cc_hooks cc_hooks = {
	.add_path = mpcubic_add,
	.step = mpcubic_step,
	.after_loss = mpcubic_after_loss,
	.floor = reno_floor,
	.set_window = keep_window,
	.coupling = mpcubic_coupling,
	.read_private = mpcubic_read_private,
	.follow = mpcubic_follow,
};

CC_TABLE(mpcubic);
