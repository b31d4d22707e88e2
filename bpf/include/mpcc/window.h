/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a decision to the congestion window: the rule or Reno's, and the window's fraction of a packet. */
#ifndef MPCC_WINDOW_H
#define MPCC_WINDOW_H

#include "view.h"

/* 1 / w, the rule of a subflow on its own (RFC 5681): a packet per window. */
MPCC_GLOBAL int reno_step(struct mpcc_step *step nonnull, const struct mpcc_path *p nonnull)
{
	step->up = num_inverse(p->cwnd);
	step->down = num_zero();
	return 0;
}

/* The rule is for subflows that count; one without an RTT sample, or a backup beside usable ones, is Reno. */
static __always_inline void decide_step(struct mpcc_step *step, struct cc_view *v)
{
	if (v->coupled)
		cc_hooks.step(step, sum_of(v), &v->self);
	else
		reno_step(step, &v->self);
}

static __always_inline __u32 decide_floor(struct cc_view *v)
{
	return v->coupled ? cc_hooks.floor(sum_of(v)) : MPCC_RENO_FLOOR;
}

static __always_inline __u32 decide_after_loss(struct cc_view *v)
{
	__u32 floor = decide_floor(v);
	__u32 w = v->self.cwnd / 2;

	if (v->coupled)
		w = cc_hooks.after_loss(sum_of(v), &v->self);
	return w < floor ? floor : w;
}

static __always_inline void decide_window(struct mpcc_setting *s, struct cc_view *v)
{
	s->window = v->self.cwnd;
	s->ssthresh = v->self.ssthresh;
	if (v->coupled)
		cc_hooks.set_window(s, sum_of(v), &v->self);
}

/* Of a subflow that does not count: 0. */
static __always_inline void decide_coupling(struct mpcc_coupling *c, struct cc_view *v)
{
	if (v->coupled)
		cc_hooks.coupling(c, sum_of(v), &v->self);
}

static __always_inline bool in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

/* A window that is not used up says nothing about the path and must not grow. */
static __always_inline bool is_cwnd_limited(const struct tcp_sock *tp)
{
	if (mpcc_bits(tp, is_cwnd_limited))
		return true;
	return in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* The most that a step may move a window, in packets per segment; no rule asks for that much. */
#define MPCC_MOST_STEP_Q40 (32 * MPCC_Q40_ONE)

/* A step as the credit counts it. */
static __always_inline __s64 q40_of(const struct mpcc_step *step)
{
	__s64 inc = (__s64)num_to_fixed(step->up, 40) - (__s64)num_to_fixed(step->down, 40);

	if (inc > MPCC_MOST_STEP_Q40)
		return MPCC_MOST_STEP_Q40;
	if (inc < -MPCC_MOST_STEP_Q40)
		return -MPCC_MOST_STEP_Q40;
	return inc;
}

/*
 * Adds so many steps to the credit, the fraction of a packet that the window is short of or ahead of, and
 * moves its whole packets to the window. The window stays in [floor, snd_cwnd_clamp]; where it would leave
 * that, the rest of the credit is void.
 */
static __always_inline void apply_steps(struct tcp_sock *tp, struct mpcc_flow *flow, __s64 step_q40,
					__u32 acked, __u32 floor)
{
	__u32 cwnd = tp->snd_cwnd;
	__s64 credit, whole;

	/* 2^45 * 2^16 stays in 63 bits. */
	if (acked > 65535)
		acked = 65535;

	credit = flow->credit_q40 + step_q40 * acked;
	whole = credit >= 0 ? credit >> 40 : -(-credit >> 40);
	if (whole) {
		__s64 next = (__s64)cwnd + whole;

		credit -= whole * MPCC_Q40_ONE;
		if (next < floor || next > tp->snd_cwnd_clamp) {
			next = next < floor ? floor : tp->snd_cwnd_clamp;
			credit = 0;
		}
		tp->snd_cwnd = next;
	}
	flow->credit_q40 = credit;
}

/* A loss event: the fraction that was earned before it is void, and so is the decision. */
static __always_inline void void_decision(struct mpcc_flow *flow)
{
	flow->credit_q40 = 0;
	flow->decided = 0;
}

/*
 * A decision stands for half an RTT, unless a loss comes first. So the siblings, whose sockets may lie in
 * another core's cache, are not read at every ACK; what they do is noticed that much later.
 */
static __always_inline bool decision_stands(const struct tcp_sock *tp, const struct mpcc_flow *flow)
{
	return flow->decided && wrapping_diff(flow->decided_until_us, (__u32)tp->tcp_mstamp) > 0;
}

static __always_inline void note_decision(const struct tcp_sock *tp, struct mpcc_flow *flow)
{
	flow->decided = 1;
	flow->decided_until_us = (__u32)(tp->tcp_mstamp + (tp->srtt_us >> 4));
}

static __always_inline void track_rtt(const struct tcp_sock *tp, struct mpcc_flow *flow)
{
	/* The kernel's minimum of raw samples forgets after tcp_min_rtt_wlen; ours does not. */
	__u32 rtt_us = tp->rtt_min.s[0].v;

	if (rtt_us && rtt_us != ~0U && (!flow->base_rtt_us || rtt_us < flow->base_rtt_us))
		flow->base_rtt_us = rtt_us;
}

/* Decides for the next half RTT. Not inlined: its stack and refresh()'s would not fit on top of each other. */
static __noinline int decide(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);
	struct mpcc_step step = {};
	struct cc_view v;

	track_rtt(tp, flow);
	look(&v, tp);
	decide_step(&step, &v);
	flow->step_q40 = q40_of(&step);
	flow->floor = decide_floor(&v);
	note_decision(tp, flow);
	return 0;
}

/* Not inlined, for the stack's sake as above. */
static __noinline __u32 window_after_loss(struct sock *sk)
{
	struct cc_view v;

	look(&v, tcp_sk(sk));
	return decide_after_loss(&v);
}

/* What of acked segments is left for congestion avoidance; 0: nothing, or the window is not used up. */
static __always_inline __u32 after_slow_start(struct tcp_sock *tp, __u32 acked)
{
	if (!is_cwnd_limited(tp))
		return 0;
	return in_slow_start(tp) ? tcp_slow_start(tp, acked) : acked;
}

/* Slow start as the kernel has it (RFC 5681), then the rule's steps. */
static __always_inline void grow_by_rule(struct sock *sk, __u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);

	acked = after_slow_start(tp, acked);
	if (!acked)
		return;
	if (!decision_stands(tp, flow))
		decide(sk);
	apply_steps(tp, flow, flow->step_q40, acked, flow->floor);
}

#endif
