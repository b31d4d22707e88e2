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
 *   n = 1          CUBIC: W(t) = C (t - K)^3 + w_loss, K = cbrt(0.3 w_loss / C), w *= 0.7, and never
 *                  less than Reno would have (RFC 9438, section 4.3)
 *   per acknowledged segment  w += (W(t + RTT) - w) / w, no less than 0 and no more than w / 2 an RTT
 *
 * The paper gives equation (13) for two subflows and does not say whether its Wmax is the connection's,
 * as the derivation needs (derived), or the subflow's own, as the described change of the kernel has it
 * (literal); D_n is the extension to n subflows that are K seconds apart. From six subflows on the
 * derived decrease leaves nothing: D is taken for five.
 *
 * The default is the mode that is nearer to the paper's own measurement (table 1: 25 Mbit/s, 100 ms, two
 * subflows against one CUBIC flow, 120 s: 11.7 / 12.0 Mbit/s, ratio 0.98). On Linux 6.12, two runs each
 * with a drop-tail queue of 206 packets: derived 10.2 / 12.8 and 12.1 / 11.4, ratios 0.80 and 1.06;
 * literal 9.0 / 14.3 and 7.5 / 16.0, ratios 0.62 and 0.47; two plain CUBIC subflows 1.81 and 2.11.
 *
 * Fast convergence (RFC 9438, section 4.7) is on. After a timeout the first curve starts at the plateau.
 * Time stands still while the window is not used up. K is a cube root to a relative 2^-20, t is in
 * microseconds. No HyStart: slow start is RFC 5681's.
 */
#include "mpcc/cc.h"

enum { MODE_DERIVED, MODE_LITERAL };
TUNABLE(mode, MODE_DERIVED, "derived|literal; Wmax of the connection, or of the subflow");
TUNABLE(beta_percent, 20, "5..50 percent; what the connection loses at a loss event");

#define CUBIC_BETA_PERCENT 30
#define MAX_DERIVED 5
/* An ACK this much later than the last one ended a pause, not an RTT. */
#define PAUSE_RTTS 2

/* C (t/n - K)^3 + origin: K seconds of stretched time to the plateau. */
struct curve {
	struct mpcc_num origin; /* packets; 0 = not begun */
	struct mpcc_num k; /* s */
};

struct cc_state {
	struct mpcc_flow flow;
	struct curve curve;
	struct mpcc_num friendly; /* what Reno would have by now; n = 1 only */
	__u64 epoch_us; /* since the curve's start, without pauses */
	__u32 last_ack_us; /* low bits of tcp_mstamp */
	__u32 acked; /* segments not yet in friendly */
	__u32 last_max; /* packets at the last loss; 0 = none, or a timeout since */
	__u32 cwnd_at_loss; /* the same before fast convergence; 0 = none */
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

/* What of the window is left after a loss: 1 - D beta, and 0 where D beta is more than 1. */
static __always_inline struct fraction left_after_loss(__u32 n)
{
	struct fraction d = share_divisor(n);
	__u32 lost = d.above / 100 * beta_percent;

	if (n < 2 || mode == MODE_LITERAL)
		return (struct fraction){ 100 - CUBIC_BETA_PERCENT, 100 };
	return (struct fraction){ d.below > lost ? d.below - lost : 0, d.below };
}

static __always_inline struct mpcc_num scale_by(struct mpcc_num x, struct fraction f)
{
	return num_div(num_mul(x, num_of(f.above)), num_of(f.below));
}

/* The curve from w0 up to the plateau at w_loss, for a subflow that is at w0. */
static __always_inline struct curve curve_of(struct mpcc_num w_loss, struct mpcc_num w0)
{
	return (struct curve){
		.origin = w_loss,
		.k = num_cbrt(num_div(num_sub(w_loss, w0), cubic_c())),
	};
}

/* W, t microseconds into the curve. */
static __always_inline struct mpcc_num window_at(const struct curve *c, __u64 t_us, __u32 n)
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
	return literal ? scale_by(w, (struct fraction){ d.below, d.above }) : w;
}

/* The increase per segment that makes up for what the window lacks of the target, over one RTT. */
MPCC_GLOBAL int step_to(struct mpcc_step *step nonnull, const struct curve *c nonnull, __u64 t_us,
			__u32 cwnd, __u32 n)
{
	struct mpcc_num w = num_of(cwnd);
	struct mpcc_num missing = num_sub(window_at(c, t_us, n), w);

	step->up = num_min(num_div(missing, w), num_scale(num_of(1), -1));
	step->down = num_zero();
	return 0;
}

/* For given numbers: the curve that follows a loss at last_max. */
static __always_inline struct curve given_curve(const struct cc_sum *sum, const struct mpcc_path *p)
{
	struct mpcc_num w_loss = p->last_max.m ? p->last_max : num_of(p->cwnd);
	struct mpcc_num w0 = w_loss;

	if (p->last_max.m)
		w0 = scale_by(w_loss, left_after_loss(sum->n));
	return curve_of(w_loss, w0);
}

MPCC_GLOBAL int mpcubic_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			     const struct mpcc_path *p nonnull)
{
	struct curve c = given_curve(sum, p);

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
	struct curve curve = given_curve(sum, p);

	c->value = window_at(&curve, p->epoch_us, sum->n);
	c->negative = 0;
	return 0;
}

static __always_inline void mpcubic_read_private(struct mpcc_path *p, const struct tcp_sock *tp,
						 const struct cc_state *state,
						 const struct cc_state *own)
{
	p->last_max = num_of(state->last_max);
	p->epoch_us = state->epoch_us;
}

static __always_inline void end_curve(struct cc_state *state)
{
	state->curve.origin = num_zero();
	state->epoch_us = 0;
}

static __always_inline void begin_curve(struct cc_state *state, const struct tcp_sock *tp)
{
	struct mpcc_num w0 = num_of(tp->snd_cwnd), w_loss = num_of(state->last_max);

	/* Above the old plateau, or with none, the curve starts at its own. */
	if (num_less(w_loss, w0))
		w_loss = w0;
	state->curve = curve_of(w_loss, w0);
	state->friendly = w0;
	state->acked = 0;
}

/* RFC 9438, section 4.3: a = 3 (1 - 0.7) / (1 + 0.7), and 1 once the window of the last loss is back. */
static __always_inline void track_reno(struct cc_state *state, const struct tcp_sock *tp)
{
	struct mpcc_num a = num_div(num_of(9), num_of(17));

	if (!num_less(state->friendly, num_of(state->cwnd_at_loss)))
		a = num_of(1);
	state->friendly = num_add(state->friendly,
				  num_div(num_mul(a, num_of(state->acked)), num_of(tp->snd_cwnd)));
	state->acked = 0;
}

/* How many subflows there are. Not inlined, for the stack's sake. */
static __noinline int count_subflows(struct sock *sk)
{
	struct cc_view v;

	look(&v, tcp_sk(sk));
	return v.coupled ? sum_of(&v)->n : 1;
}

static __noinline int decide_curve(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct cc_state *state = state_of(tp);
	struct mpcc_step step = {};
	struct curve curve;
	__u32 n = count_subflows(sk);

	track_rtt(tp, &state->flow);
	if (!state->curve.origin.m)
		begin_curve(state, tp);
	curve = state->curve;
	step_to(&step, &curve, state->epoch_us + (tp->srtt_us >> 3), tp->snd_cwnd, n);
	if (n == 1) {
		struct mpcc_num w = num_of(tp->snd_cwnd);

		track_reno(state, tp);
		step.up = num_max(step.up, num_div(num_sub(state->friendly, w), w));
	}
	state->flow.step_q40 = q40_of(&step);
	note_decision(tp, &state->flow);
	return 0;
}

/* Time in which the window is not used up, or no ACK comes, does not count. */
static __always_inline void advance_epoch(struct cc_state *state, const struct tcp_sock *tp)
{
	__u32 now = (__u32)tp->tcp_mstamp, gap = (__u32)wrapping_diff(now, state->last_ack_us);

	if (state->curve.origin.m && is_cwnd_limited(tp) && gap <= PAUSE_RTTS * (tp->srtt_us >> 3))
		state->epoch_us += gap;
	state->last_ack_us = now;
}

static __always_inline void mpcubic_grow(struct sock *sk, __u32 ack, __u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct cc_state *state = state_of(tp);

	advance_epoch(state, tp);
	acked = after_slow_start(tp, acked);
	if (!acked)
		return;
	state->acked += acked;
	if (!decision_stands(tp, &state->flow))
		decide_curve(sk);
	apply_steps(tp, &state->flow, state->flow.step_q40, acked, MPCC_RENO_FLOOR);
}

static __always_inline __u32 mpcubic_ssthresh(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct cc_state *state = state_of(tp);
	__u32 cwnd = tp->snd_cwnd, after;
	struct cc_view v;

	look(&v, tp);
	if (!v.coupled)
		sum_of(&v)->n = 1;
	after = mpcubic_after_loss(sum_of(&v), &v.self);
	end_curve(state);
	/* Fast convergence: a loss below the last one's window means that others want a share. */
	state->last_max = cwnd < state->last_max ? (cwnd + after) / 2 : cwnd;
	state->cwnd_at_loss = cwnd;
	return after < MPCC_RENO_FLOOR ? MPCC_RENO_FLOOR : after;
}

static __always_inline void mpcubic_on_state(struct sock *sk, __u8 new_state)
{
	struct cc_state *state = state_of(tcp_sk(sk));

	if (new_state != TCP_CA_Loss)
		return;
	end_curve(state);
	state->last_max = 0;
}

static const struct cc_hooks cc_hooks = {
	.add_path = mpcubic_add,
	.step = mpcubic_step,
	.after_loss = mpcubic_after_loss,
	.floor = reno_floor,
	.set_window = keep_window,
	.coupling = mpcubic_coupling,
	.read_private = mpcubic_read_private,
	.grow = mpcubic_grow,
	.ssthresh = mpcubic_ssthresh,
	.on_state = mpcubic_on_state,
};

CC_TABLE(mpcubic);
