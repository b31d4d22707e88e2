/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The callbacks of an algorithm that is a rule "so much per acknowledged segment, so much after a
 * loss". Slow start, recovery and undo are the kernel's (RFC 5681). Include last before the ops table,
 * after what decide.h asks for and, where the algorithm has them, with "#define cc_on_loss cc_on_loss",
 *   cc_on_loss(state, tp)         its own bookkeeping at a loss event
 *   cc_on_ack(state, tp)          and at an ACK, before the window grows
 */
#ifndef MPCC_COUPLED_H
#define MPCC_COUPLED_H

#include "decide.h"
#include "life.h"

#ifndef cc_on_loss
#define cc_on_loss(state, tp)
#endif
#ifndef cc_on_ack
#define cc_on_ack(state, tp)
#endif

/* Not inlined: its stack and refresh()'s would not fit on top of each other. */
static __noinline int decide(struct sock *sk)
{
	struct cc_state *state = state_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_step step = {};
	struct mpcc_view v;

	track_rtt(tp, &state->flow);
	view_of(&v, tp, state);
	decide_step(&step, &v);
	state->flow.step_q40 = q40_of(&step);
	state->flow.floor = decide_floor(&v);
	note_decision(tp, &state->flow);
	return 0;
}

SEC("struct_ops")
void BPF_PROG(mpcc_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct cc_state *state = state_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	refresh_if_due(sk, state);
	cc_on_ack(state, tp);
	if (!is_cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	if (!decision_stands(tp, &state->flow))
		decide(sk);
	apply_step(tp, &state->flow, state->flow.step_q40, acked, state->flow.floor);
}

/* Not inlined: its stack and cc_on_loss()'s would not fit on top of each other. */
static __noinline __u32 window_after_loss(struct sock *sk)
{
	struct mpcc_view v;

	view_of(&v, tcp_sk(sk), state_of(sk));
	return decide_after_loss(&v);
}

SEC("struct_ops")
__u32 BPF_PROG(mpcc_ssthresh, struct sock *sk)
{
	struct cc_state *state = state_of(sk);

	flow_loss(&state->flow);
	cc_on_loss(state, tcp_sk(sk));
	return window_after_loss(sk);
}

SEC("struct_ops")
void BPF_PROG(mpcc_set_state, struct sock *sk, __u8 new_state)
{
	/* No ACK comes while a path is dead: show its window when the timeout closes it. */
	if (new_state == TCP_CA_Loss)
		refresh(sk);
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
