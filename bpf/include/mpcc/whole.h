/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Subflows that share a queue grow and lose as one CUBIC connection. The fair share of a connection with such subflows is
 * the rate of one TCP connection under CUBIC in the place of the subflows, by the way with the shortest RTT:
 *
 *   the window of the whole      W = rtt_min sum_k w_k / rtt_k, k in the group; rtt_min is the shortest RTT
 *   per loss event               each subflow keeps 717/1024 of its window, whichever of them has lost; once per RTT
 *   of a loss without a queue    none of that (queue.h); the one subflow keeps 15/16 of its window, and begins a new curve
 *   random (queue.h)             one more after a loss without a queue; one less after any other, unless the queue was full
 *   per acknowledged segment     w_r += 1 / cnt g_r / x_r X / (rtt_min sum_k g_k / rtt_k), at most 1/2
 *
 * cnt is CUBIC's (cubic.h) for the window W, x_k = w_k / rtt_k, X is the sum of all x, and g is what the algorithm's rule
 * adds for an acknowledged segment. So W grows as CUBIC has it, and the rule says how the growth of a second is divided
 * among the subflows. In the papers a subflow loses when it is hit itself, which is the more often the more it sends; here
 * it loses when any is. With the rule's part of each segment's growth, windows would stay in whatever proportion they are,
 * until one subflow has all; so a subflow that sends more has less of each segment.
 *
 * The papers' rules grow less the more subflows there are, and leave each subflow its own loss: fair if losses are as
 * frequent as packets. Behind a queue that overflows they are not. Who grows slowly is seldom hit, and windows of few
 * packets then have 1.3 to 1.7 times one connection's share; a long overflow hits all subflows at once, and the connection
 * has less than one has. As one CUBIC a connection under LIA has 1.02 of one TCP's share, 0.93 to 1.17 in eight cases of
 * ten, and the others have 0.94 of what they have beside one TCP (geometric means, simulated: mpcc's scenario shares, 30
 * lines of 10 to 100 Mbit/s, RTTs of 5 to 200 ms, queues of 0.2 to 5 bandwidth-delay products and at least 20 packets, two
 * to four subflows, one to five others).
 *
 * A subflow answers the loss of a sibling when it next looks at its siblings: an RTT later, and where RTTs are short as late
 * as 6 ms for each subflow of the group (view.h).
 *
 * A subflow by itself loses little for a packet while the queue is short (queue.h). Here the queue has to be empty, as
 * far as the subflow can tell: the other connections behind the queue are under the kernel's CUBIC, to which every loss
 * is congestion.
 */
#ifndef MPCC_WHOLE_H
#define MPCC_WHOLE_H

#include "queue.h"

/* The window of the whole, packets. */
static __always_inline __u32 whole_window(const struct mpcc_whole *whole)
{
	return at_most_packets((whole->rate_q36 * whole->shortest_us8 + (1ULL << 35)) >> 36);
}

/*
 * Of a subflow's acknowledged segments, so many come with all those for which Reno adds a packet to the whole's window W,
 * which are 8/15 of W's: 15/8 W x_r / X = 15/8 w_r rtt_min / rtt_r. 8/15 is three times the loss, 0.3, over 2 - 0.3.
 */
static __always_inline __u32 segments_of_reno(const struct mpcc_whole *whole,
					      const struct mpcc_path *p)
{
	__u64 window = at_most_packets(p->cwnd);

	return window * 15 * whole->shortest_us8 / (8ULL * p->srtt_us8);
}

static __always_inline __u64 at_most(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

/*
 * What an acknowledged segment adds to the window of p, in 2^-29 packets, where the rule adds step_q29, more than 0, and
 * CUBIC a packet to the window of the whole for cnt segments. A subflow whose step is not known counts as if it had the same
 * one. No more than 1/2.
 */
static __always_inline __u32 divide_step(const struct mpcc_whole *whole, const struct mpcc_path *p,
					 __u32 step_q29, __u64 cnt)
{
	__u64 own_q36 = rate_of_path(p), rate_q36 = whole->rate_q36;
	__u64 ratio_q16, steps_q20;

	/* X / x_r */
	ratio_q16 = rate_q36 >> 40 ? rate_q36 / ((own_q36 >> 16) + 1) :
				     (rate_q36 << 16) / (own_q36 + 1);
	/* rtt_min sum_k g_k / rtt_k, over g_r */
	steps_q20 = (whole->others_q60 * whole->shortest_us8 >> 40) +
		    (whole->parts_q60 * whole->shortest_us8 / step_q29 >> 11);
	return at_most((at_most(ratio_q16, ~0U >> 1) << 33) /
			       (at_most(steps_q20 + 1, ~0U) * at_most(cnt, ~0U >> 1)),
		       MPCC_Q29_ONE / 2);
}

/*
 * The whole after a loss event of a sibling: all windows are cut, the sibling's window for the second time, as the sibling
 * has cut that window already. So a subflow that answers a sibling's loss goes on from a lower window and a lower plateau
 * than one CUBIC would. With the sibling's window before the loss, a connection would have 1.3 times one TCP's share.
 */
static __always_inline void shrink_whole(struct mpcc_whole *whole)
{
	whole->rate_q36 -= (whole->rate_q36 >> 10) * (WHOLE_Q10 - CUBIC_LEFT_Q10);
}

/*
 * Whether the window was cut, for a loss of whichever subflow, less than the group's longest RTT before the newest ACK: the
 * losses of one event come to light over that time. A curve that begins at the curve's plateau has not begun with a cut.
 */
static __always_inline bool was_cut_of_late(const struct cc_view *v, const struct mpcc_flow *flow,
					    const struct tcp_sock *tp)
{
	if (!flow->whole)
		return false;
	if (!flow->curve_subflows)
		return true;
	return flow->curve.k &&
	       elapsed_us((__u32)tp->tcp_mstamp, flow->curve.began_us) < v->whole.longest_us8 >> 3;
}

/* A loss event: the fraction that was earned before it is void, and so are the decision and the curve. */
static __always_inline void void_decision(struct mpcc_flow *flow)
{
	flow->credit_q29 = 0;
	flow->decided = 0;
	flow->curve_subflows = 0;
	flow->in_round = 0;
}

/* A loss event of the whole: what is remembered, and what stays of this window, with its fraction. */
static __always_inline __u32 cut_window(struct mpcc_flow *flow, const struct tcp_sock *tp,
					__u32 window)
{
	__u64 left_q29 = (((__s64)tp->snd_cwnd * MPCC_Q29_ONE + flow->credit_q29) >> 10) *
			 CUBIC_LEFT_Q10;
	__u32 left = left_q29 >> 29;

	void_decision(flow);
	flow->last_max = flow->whole ?
				 cubic_last_max(flow->last_max, window, cubic_after_loss(window)) :
				 window;
	flow->whole = 1;
	if (left < MPCC_RENO_FLOOR)
		return MPCC_RENO_FLOOR;
	flow->credit_q29 = left_q29 & (MPCC_Q29_ONE - 1);
	return left;
}

/* A loss that is no event of the whole. The present window of the whole is the new curve's plateau. */
static __always_inline void keep_whole(struct mpcc_flow *flow, const struct tcp_sock *tp,
				       __u32 window)
{
	if (flow->curve_subflows)
		begin_curve(&flow->curve, window, window, (__u32)tp->tcp_mstamp);
	flow->decided = 0;
	flow->lost = 0;
}

/*
 * The window after a loss event of this subflow. If the window was cut of late for a sibling, the losses are the same
 * event's, and the window stays.
 */
static __always_inline __u32 answer_own_loss(const struct cc_view *v, struct tcp_sock *tp,
					     bool congestion)
{
	struct mpcc_flow *flow = flow_of(tp);
	__u32 window = whole_window(&v->whole), cwnd = tp->snd_cwnd;
	__u32 left = (__u64)cwnd * QUEUE_LEFT_SHORT_Q10 >> 10;

	if (!flow->lost && was_cut_of_late(v, flow, tp))
		return cwnd;
	if (!congestion && met_no_queue(&flow->queue, tp) && left > cubic_after_loss(cwnd)) {
		keep_whole(flow, tp, window);
		count_random(flow);
		return left;
	}
	if (!congestion && flow->random)
		flow->random--;
	flow->lost = 1;
	flow->answered = v->losing;
	return cut_window(flow, tp, window);
}

/* Cuts the window if siblings have lost since the last look. If it was cut of late, the losses are the same event's. */
static __always_inline void answer_siblings(struct cc_view *v, struct tcp_sock *tp)
{
	struct mpcc_flow *flow = flow_of(tp);

	if (v->losing > flow->answered && !was_cut_of_late(v, flow, tp)) {
		tp->snd_cwnd = cut_window(flow, tp, whole_window(&v->whole));
		tp->snd_ssthresh = tp->snd_cwnd;
		flow->lost = 0;
		v->self.cwnd = tp->snd_cwnd;
		shrink_whole(&v->whole);
	}
	flow->answered = v->losing;
}

/* A subflow that leaves the group goes on from its own window. */
static __always_inline void leave_whole(struct mpcc_flow *flow, const struct tcp_sock *tp)
{
	flow->whole = 0;
	flow->trial = 0;
	flow->curve_subflows = 0;
	flow->last_max = at_most_packets(tp->snd_cwnd);
}

/*
 * Turns the rule's step into what an acknowledged segment adds to the window: the rule's part of what CUBIC adds to the
 * window of the whole. Where the rule shrinks the window, its step holds. Not inlined, for the stack's sake.
 */
static __noinline int divide_growth(struct sock *sk, const struct cc_view *v)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);
	const struct mpcc_whole *whole = &v->whole;
	__u32 now_us = (__u32)tp->tcp_mstamp, window = whole_window(whole);
	__s32 step_q29 = flow->step_q29;
	struct mpcc_curve curve;
	__u64 part_q10, t_us, cnt;

	if (flow->curve_subflows != v->grouped || !flow->whole) {
		if (!flow->whole)
			flow->last_max = 0;
		begin_curve(&flow->curve, window, flow->last_max, now_us);
		flow->whole = 1;
		flow->curve_subflows = v->grouped;
		flow->in_round = 0;
	}
	curve = flow->curve;
	part_q10 = step_q29 > 0 ? (__u64)step_q29 * tp->snd_cwnd >> 19 : 0;
	curve.part_q10 = part_q10 < 1 ? 1 : part_q10 < WHOLE_Q10 ? part_q10 : WHOLE_Q10 - 1;
	grow_friendly(&curve, segments_of_reno(whole, &v->self));
	t_us = (__u64)age_of(&curve, now_us) + (whole->shortest_us8 >> 3);
	flow->curve = curve;
	if (step_q29 <= 0)
		return 0;
	cnt = cubic_cnt(cubic_window(&curve, t_us >> CUBIC_TICK_SHIFT), window, curve.friendly,
			true);
	flow->step_q29 = divide_step(whole, &v->self, step_q29, cnt);
	return 0;
}

#endif
