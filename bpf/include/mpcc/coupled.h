/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The callbacks of an algorithm that is a rule "so much per acknowledged segment, so much after a
 * loss". Slow start, recovery and undo are the kernel's (RFC 5681). Include last before the ops table,
 * after what cc.h asks for, and
 *   cc_step(sum, path)            what one acknowledged segment adds in congestion avoidance
 *   cc_after_loss(sum, path)      the window after a loss event, before rounding and floor
 *   cc_floor(sum)                 the smallest window, in packets
 *   cc_on_loss(state, tp)         its own bookkeeping at a loss event
 *
 * A subflow that does not count (no RTT sample yet, or a backup beside usable ones) runs Reno.
 */
#ifndef MPCC_COUPLED_H
#define MPCC_COUPLED_H

#include "cc.h"

#define MPCC_RENO_FLOOR 2

static __always_inline void decide_step(struct mpcc_step *step, const struct mpcc_view *v)
{
	if (v->coupled)
		cc_step(step, &v->sum, &v->self);
	else
		step_reno(step, &v->self);
}

static __always_inline __u32 decide_floor(const struct mpcc_view *v)
{
	return v->coupled ? cc_floor(&v->sum) : MPCC_RENO_FLOOR;
}

static __always_inline __u32 decide_after_loss(const struct mpcc_view *v)
{
	__u32 floor = decide_floor(v);
	__u32 w = v->self.cwnd / 2;

	if (v->coupled)
		w = cc_after_loss(&v->sum, &v->self);
	return w < floor ? floor : w;
}

SEC("struct_ops")
void BPF_PROG(mpcc_init, struct sock *sk)
{
	flow_init(sk);
}

SEC("struct_ops")
void BPF_PROG(mpcc_release, struct sock *sk)
{
	flow_release(sk);
}

/* Congestion avoidance. Not inlined: its stack and refresh()'s would not fit on top of each other. */
static __noinline int advance(struct sock *sk, __u32 acked)
{
	struct cc_state *state = state_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_step step = {};
	struct mpcc_view v;

	view_of(&v, tp, state);
	decide_step(&step, &v);
	apply_step(tp, &state->flow, &step, acked, decide_floor(&v));
	return 0;
}

SEC("struct_ops")
void BPF_PROG(mpcc_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct cc_state *state = state_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	track_base_rtt(tp, &state->flow);
	refresh_if_due(sk, state);
	if (!is_cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	advance(sk, acked);
}

SEC("struct_ops")
__u32 BPF_PROG(mpcc_ssthresh, struct sock *sk)
{
	struct cc_state *state = state_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_view v;

	flow_loss(&state->flow);
	cc_on_loss(state, tp);
	view_of(&v, tp, state);
	return decide_after_loss(&v);
}

SEC("struct_ops")
void BPF_PROG(mpcc_set_state, struct sock *sk, __u8 new_state)
{
	/* No ACK comes while a path is dead: show its window when the timeout closes it. */
	if (new_state == TCP_CA_Loss)
		refresh(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(mpcc_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

/* The whole of such an algorithm's table. One object holds one: the library matches programs by member. */
#define COUPLED_OPS(algorithm)                          \
	char LICENSE[] SEC("license") = "Dual BSD/GPL"; \
	SEC(".struct_ops.link")                         \
	struct tcp_congestion_ops algorithm = {         \
		.init = (void *)mpcc_init,              \
		.release = (void *)mpcc_release,        \
		.cong_avoid = (void *)mpcc_cong_avoid,  \
		.ssthresh = (void *)mpcc_ssthresh,      \
		.set_state = (void *)mpcc_set_state,    \
		.undo_cwnd = (void *)mpcc_undo_cwnd,    \
		.flags = TCP_CONG_NON_RESTRICTED,       \
		.name = #algorithm,                     \
	};                                              \
	_Static_assert(sizeof(#algorithm) <= 16, "the kernel's names are shorter")

#endif
