/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a decision to the congestion window: the rule, CUBIC or Reno, and the window's fraction of a packet. */
#ifndef MPCC_WINDOW_H
#define MPCC_WINDOW_H

#include "cubic.h"
#include "queue.h"
#include "slow_start.h"
#include "tunable.h"
#include "view.h"
#include "whole.h"

/* Most papers' rules come to Reno for an only subflow; an algorithm whose paper has another rule defines this. */
#ifndef MPCC_PAPER_ALONE
#define MPCC_PAPER_ALONE "reno"
#endif

/* What grows a window: CUBIC, Reno, or the algorithm's rule, which couples subflows. */
enum cc_rule { RULE_CUBIC, RULE_RENO, RULE_COUPLED };
TUNABLE_PAPER(alone, RULE_CUBIC, MPCC_PAPER_ALONE,
	      "cubic|reno|own; the control of a connection with one usable subflow");

/* Whether a coupled subflow keeps a curve: that of the whole, or the algorithm's own course. */
static __always_inline bool keeps_curve(void)
{
#ifdef MPCC_OWN_COURSE
	return true;
#else
	return are_one_cubic();
#endif
}

/* Whether a subflow alone at its bottleneck takes the sums of all subflows: the hook shift needs them. */
static __always_inline bool alone_sees_all(void)
{
	return cc_hooks.shift && alone != RULE_COUPLED;
}

static __always_inline bool sees_all(const struct tcp_sock *tp)
{
	return !flow_of(tp)->together && alone_sees_all();
}

/* Takes the sums of the subflow's group, or those over all subflows where the hook shift needs them. */
static __always_inline void look(struct cc_view *v, const struct tcp_sock *tp, __u8 sums_over_all)
{
	look_at_subflows(v, tp, sees_all(tp) ? sums_over_all : SUMS_OF_GROUP);
}

#define MPCC_PART_RTTS 16

/*
 * Whether a subflow alone at its bottleneck keeps what it has from the sums over all subflows. before_us is when that was
 * asked last: the siblings are looked at anew once a bit of the clock has turned since that counts for about
 * MPCC_PART_RTTS. So a look comes after half as many RTTs or more, seldom after more than as many, and there is no time of a
 * look to remember.
 */
static __always_inline bool sums_stand(const struct tcp_sock *tp, __u32 before_us)
{
	__u32 turned_us = (__u32)tp->tcp_mstamp ^ before_us;

	return sees_all(tp) && turned_us / MPCC_PART_RTTS < tp->srtt_us >> 3;
}

/*
 * Which rule grows the window: the algorithm's beside subflows of the same group, else what alone= says. A subflow that does
 * not count has no sums for the algorithm's rule.
 */
static __always_inline __u8 rule_for(const struct cc_view *v)
{
	if (!v->coupled)
		return alone == RULE_COUPLED ? RULE_RENO : alone;
	return v->grouped > 1 ? RULE_COUPLED : alone;
}

/* The factor, at most 1, that the hook shift puts on the growth of a subflow alone at its bottleneck. */
static __always_inline struct mpcc_num part_of_growth(struct cc_view *v)
{
	struct mpcc_num part = num_of(1);

	if (cc_hooks.shift && v->coupled && v->counting > 1)
		cc_hooks.shift(&part, sum_of(v), &v->self);
	return part;
}

/* part_of_growth() in 2^-16, as a curve keeps it: a multiple of 2^-10, at least one. */
static __always_inline __u64 part_q16(struct cc_view *v)
{
	__u64 part_q10 = (num_to_fixed(part_of_growth(v), 11) + 1) >> 1;

	return (part_q10 ? part_q10 : 1) << 6;
}

/* 1 / w (RFC 5681): a packet per window. */
MPCC_GLOBAL int reno_step(struct mpcc_step *step nonnull, const struct mpcc_path *p nonnull)
{
	step->up = num_inverse(p->cwnd);
	step->down = num_zero();
	return 0;
}

/* The same on a socket, as the credit counts it. */
static __always_inline __s64 reno_step_q29(const struct tcp_sock *tp)
{
	return MPCC_Q29_ONE / tp->snd_cwnd;
}

/* CUBIC's, epoch_us after it lost a part of last_max, or from the window on. */
MPCC_GLOBAL int cubic_step_given(struct mpcc_step *step nonnull, const struct mpcc_path *p nonnull)
{
	__u64 packets = num_to_fixed(p->last_max, 0);
	__u32 last_max = packets < ~0U ? packets : ~0U;
	struct mpcc_curve c;

	begin_curve(&c, last_max ? cubic_after_loss(last_max) : p->cwnd, last_max, 0);
	step->up = num_inverse(
		cubic_cnt(cubic_window(&c, (p->epoch_us + p->base_rtt_us) >> CUBIC_TICK_SHIFT),
			  p->cwnd, 0, last_max));
	step->down = num_zero();
	return 0;
}

/* For given numbers. A backup beside usable subflows, or a subflow without an RTT sample, is not coupled. */
static __always_inline void decide_step(struct mpcc_step *step, struct cc_view *v)
{
	__u8 rule = rule_for(v);

	if (rule == RULE_COUPLED)
		cc_hooks.step(step, sum_of(v), &v->self);
	else if (rule == RULE_RENO)
		reno_step(step, &v->self);
	else
		cubic_step_given(step, &v->self);
	if (rule != RULE_COUPLED)
		step->up = num_mul(step->up, part_of_growth(v));
}

static __always_inline __u32 decide_floor(struct cc_view *v)
{
	return rule_for(v) == RULE_COUPLED ? cc_hooks.floor(sum_of(v)) : MPCC_RENO_FLOOR;
}

static __always_inline __u32 decide_after_loss(struct cc_view *v)
{
	__u8 rule = rule_for(v);
	__u32 floor = decide_floor(v);
	__u32 w = v->self.cwnd / 2;

	if (rule == RULE_COUPLED) {
		w = are_one_cubic() ? cubic_after_loss(v->self.cwnd) :
				      cc_hooks.after_loss(sum_of(v), &v->self);
	} else if (rule == RULE_CUBIC) {
		w = cubic_after_loss(v->self.cwnd);
	}
	return w < floor ? floor : w;
}

static __always_inline void decide_window(struct mpcc_setting *s, struct cc_view *v)
{
	s->window = v->self.cwnd;
	s->ssthresh = v->self.ssthresh;
	if (rule_for(v) == RULE_COUPLED)
		cc_hooks.set_window(s, sum_of(v), &v->self);
}

/* Of a subflow that does not count: 0. */
static __always_inline void decide_coupling(struct mpcc_coupling *c, struct cc_view *v)
{
	if (v->coupled)
		cc_hooks.coupling(c, sum_of(v), &v->self);
}

/* A window that is not used up says nothing about the path and must not grow. */
static __always_inline bool is_cwnd_limited(const struct tcp_sock *tp)
{
	if (mpcc_bits(tp, is_cwnd_limited))
		return true;
	return in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* The most that a step may move a window, just below 4 packets per segment; no rule asks for that much. */
#define MPCC_MOST_STEP_Q29 (4LL * MPCC_Q29_ONE - 1)

/* A step as the credit counts it. */
static __always_inline __s32 q29_of(const struct mpcc_step *step)
{
	__s64 inc = (__s64)num_to_fixed(step->up, 29) - (__s64)num_to_fixed(step->down, 29);

	if (inc > MPCC_MOST_STEP_Q29)
		return MPCC_MOST_STEP_Q29;
	if (inc < -MPCC_MOST_STEP_Q29)
		return -MPCC_MOST_STEP_Q29;
	return inc;
}

/*
 * Adds so many steps to the credit, the fraction of a packet that the window is short of or ahead of, and
 * moves its whole packets to the window. The window stays in [floor, snd_cwnd_clamp]; where it would leave
 * that, the rest of the credit is void. acked is at most 65535.
 */
static __always_inline void apply_steps(struct tcp_sock *tp, struct mpcc_flow *flow, __s32 step_q29,
					__u32 acked, __u32 floor)
{
	__s64 credit = flow->credit_q29 + (__s64)step_q29 * acked;

	if (credit >= MPCC_Q29_ONE || credit <= -MPCC_Q29_ONE) {
		__s64 whole = credit >= 0 ? credit >> 29 : -(-credit >> 29);
		__s64 next = (__s64)tp->snd_cwnd + whole;

		credit -= whole * MPCC_Q29_ONE;
		if (next < floor || next > tp->snd_cwnd_clamp) {
			next = next < floor ? floor : tp->snd_cwnd_clamp;
			credit = 0;
		}
		tp->snd_cwnd = next;
		flow->moved = 1;
	}
	flow->credit_q29 = credit;
}

/* A decision that reads the siblings, or by Reno, stands at least so long. */
#define MPCC_DECISION_MIN_US 100
/*
 * A decision on CUBIC's course that reads no siblings stands for MPCC_CUBIC_US where the window has moved since: a decision
 * at the first of many ACKs that come together would else hold for all of them, and carry the window past the course. Where
 * the window has not moved, a decision stands for half an RTT, and like the kernel's no longer than MPCC_CUBIC_MOST_US.
 */
#define MPCC_CUBIC_US 1024
#define MPCC_CUBIC_MOST_US 31250

/*
 * For how long a decision stands, unless a loss comes first. After a look at the siblings until the next look is due
 * (looks_every_us). A step along mpCUBIC's curve stands for half an RTT: stretched over n subflows the curve is n times as
 * slow, and its clock ticks every 2n ms. So the siblings, whose sockets may lie in another core's cache, are not read at
 * every ACK; what they do is noticed that much later.
 */
static __always_inline __u32 stands_for(const struct tcp_sock *tp, const struct mpcc_flow *flow)
{
	__u32 rtt_us = tp->srtt_us >> 3, subflows = flow->curve_subflows;
	__u32 for_us = looks_every_us(tp), least_us = MPCC_DECISION_MIN_US;

	if (subflows > 1 && !are_one_cubic()) {
		for_us = rtt_us / 2;
		least_us = 2 * subflows * MPCC_CUBIC_US;
	} else if (subflows == 1 && !flow->looked) {
		for_us = flow->moved ? 0 : rtt_us / 2;
		if (for_us > MPCC_CUBIC_MOST_US)
			for_us = MPCC_CUBIC_MOST_US;
		least_us = MPCC_CUBIC_US;
	}
	return for_us > least_us ? for_us : least_us;
}

/* While the RTT is no shorter than MPCC_CUBIC_US, no decision stands for less: cheaper to tell than stands_for(). */
static __always_inline bool decision_stands(const struct tcp_sock *tp, const struct mpcc_flow *flow)
{
	__u32 since_us = elapsed_us((__u32)tp->tcp_mstamp, flow->decided_us);

	if (!flow->decided)
		return false;
	return (since_us < MPCC_CUBIC_US && tp->srtt_us >> 3 >= MPCC_CUBIC_US) ||
	       since_us < stands_for(tp, flow);
}

static __always_inline void track_rtt(const struct tcp_sock *tp, struct mpcc_flow *flow)
{
	/* The kernel's minimum of raw samples forgets after tcp_min_rtt_wlen; ours does not. */
	__u32 rtt_us = min_rtt_of(tp);

	if (rtt_us && (!flow->base_rtt_us || rtt_us < flow->base_rtt_us))
		flow->base_rtt_us = rtt_us;
}

/*
 * Whether a decision reads the siblings. A subflow that is coupled with no sibling is uncoupled whatever the siblings do,
 * and only the hook shift compares that subflow with the siblings. The algorithm's rule takes sums even for an only subflow.
 */
static __always_inline bool asks_siblings(const struct tcp_sock *tp, const struct mpcc_flow *flow)
{
	return alone == RULE_COUPLED ||
	       ((flow->together || cc_hooks.shift) && !is_only_subflow(tp));
}

/* Whether a subflow alone at its bottleneck keeps the part of CUBIC's growth that the hook shift has left it. */
static __always_inline bool part_stands(const struct tcp_sock *tp, const struct mpcc_flow *flow)
{
	return sums_stand(tp, flow->decided_us) && alone == RULE_CUBIC && flow->curve_subflows == 1;
}

/* The step of the algorithm's rule on a socket. */
static __always_inline __s32 step_by_rule(struct cc_view *v, struct tcp_sock *tp)
{
	struct mpcc_step step = {};

	if (cc_hooks.follow)
		cc_hooks.follow(&step, v, tp);
	else
		cc_hooks.step(&step, sum_of(v), &v->self);
	return q29_of(&step);
}

/*
 * Has a subflow grow by no less than its part of what the queue allows for a window, its own or the whole's (queue.h). Not
 * inlined, for the stack's sake.
 */
static __noinline int grow_by_queue(struct sock *sk, __u64 part_q16, __u32 window)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);
	__s32 step_q29 = step_by_queue(flow, tp, window) * part_q16 >> 16;

	if (flow->step_q29 < step_q29)
		flow->step_q29 = step_q29;
	return 0;
}

/*
 * Decides how the window grows until the next decision. When the rule changes, the window stays, with its fraction: only
 * what the next segments add changes, and a curve begins at the present window. Not inlined: the stacks of decide() and
 * refresh() would not fit on top of each other.
 */
static __noinline int decide(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);
	bool stands = part_stands(tp, flow);
	__u64 part = WHOLE_Q16;
	struct cc_view v;
	__u8 rule = alone;

	track_rtt(tp, flow);
	flow->floor = MPCC_RENO_FLOOR;
	if (stands)
		part = part_of_acked(&flow->curve) << 6;
	flow->looked = !stands && asks_siblings(tp, flow);
	if (flow->looked) {
		look(&v, tp, SUMS_FOR_SHIFT);
		rule = rule_for(&v);
		flow->floor = decide_floor(&v);
		if (rule != RULE_COUPLED)
			part = part_q16(&v);
	}
	flow->uncoupled = rule != RULE_COUPLED;
	if (flow->uncoupled && flow->whole)
		leave_whole(flow, tp);
	if (rule == RULE_CUBIC) {
		flow->step_q29 = cubic_step(flow, tp, part, part_of_time(part));
		grow_by_queue(sk, part, tp->snd_cwnd);
	} else if (rule == RULE_RENO) {
		flow->step_q29 = reno_step_q29(tp) * part >> 16;
		grow_by_queue(sk, part, tp->snd_cwnd);
	} else {
		if (are_one_cubic())
			answer_siblings(&v, tp);
		flow->step_q29 = step_by_rule(&v, tp);
		if (are_one_cubic()) {
			divide_growth(sk, &v);
			if (flow->step_q29 > 0)
				grow_by_queue(sk, WHOLE_Q16, whole_window(&v.whole));
		}
	}
	if (rule == RULE_RENO || (rule == RULE_COUPLED && !keeps_curve()))
		flow->curve_subflows = 0;
	flow->started = 1;
	flow->decided = 1;
	flow->moved = 0;
	flow->decided_us = (__u32)tp->tcp_mstamp;
	return 0;
}

/*
 * The window after a loss event, and what is remembered of the event. A window that stays was not too much: the largest of
 * them is what the path is known to carry. Not inlined, for the stack's sake as above.
 */
static __noinline __u32 answer_loss(struct sock *sk, bool congestion)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);
	__u32 after, least, last_max, cwnd = tp->snd_cwnd;
	struct cc_view v;

	look(&v, tp, SUMS_FOR_SHIFT);
	if (are_one_cubic() && rule_for(&v) == RULE_COUPLED)
		return answer_own_loss(&v, tp, congestion);
	if (flow->whole)
		leave_whole(flow, tp);
	least = left_by_queue(flow, tp, congestion);
	after = decide_after_loss(&v);
	if (after < least)
		after = least;
	last_max = flow->last_max;
	if (least < cwnd)
		last_max = cubic_last_max(last_max, cwnd, after);
	else if (last_max < cwnd)
		last_max = cwnd;
	flow->last_max = at_most_packets(last_max);
	void_decision(flow);
	return after;
}

/* What of acked segments is left for congestion avoidance; 0: nothing, or the window is not used up. */
static __always_inline __u32 after_slow_start(struct tcp_sock *tp, __u32 acked)
{
	if (!is_cwnd_limited(tp))
		return 0;
	return in_slow_start(tp) ? tcp_slow_start(tp, acked) : acked;
}

/* Slow start, then the steps of CUBIC, Reno or the rule. */
static __always_inline void grow_by_rule(struct sock *sk, __u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);

	skip_pause(flow, tp);
	if (in_slow_start(tp))
		watch_slow_start(sk, flow);
	acked = after_slow_start(tp, acked);
	if (!acked)
		return;
	/* 2^31 * 2^16 stays in 63 bits. */
	if (acked > 65535)
		acked = 65535;
	if (flow->curve_subflows)
		flow->curve.acked += acked;
	if (!decision_stands(tp, flow))
		decide(sk);
	apply_steps(tp, flow, flow->step_q29, acked, flow->floor);
}

#endif
