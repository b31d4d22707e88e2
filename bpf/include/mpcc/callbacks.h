/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The programs that the kernel calls, the same for every algorithm: they keep the live state and call the
 * hooks. Recovery and undo are the kernel's own.
 */
#ifndef MPCC_CALLBACKS_H
#define MPCC_CALLBACKS_H

#include "live.h"

enum { PLAIN_KERNEL, PLAIN_OWN };
TUNABLE_PAPER(plain, PLAIN_KERNEL, "own",
	      "kernel|own; who controls connections that are not MPTCP: the kernel's CUBIC, or the "
	      "algorithm");

/* Gives a plain TCP socket to the kernel's CUBIC. False: it is MPTCP's, or stays because the kernel has no cubic. */
static __always_inline bool hand_over(struct sock *sk)
{
	char cubic[] = "cubic";

	if (plain != PLAIN_KERNEL || tcp_sk(sk)->is_mptcp)
		return false;
	return !bpf_setsockopt(sk, IPPROTO_TCP, TCP_CONGESTION, cubic, sizeof(cubic));
}

static __always_inline void control_init(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	__builtin_memset(tp->inet_conn.icsk_ca_priv, 0, MPCC_PRIVATE_BYTES);
	if (couple == COUPLE_ALWAYS)
		flow_of(tp)->together = MPCC_ALL_TOGETHER;
}

static __always_inline void control_ack(struct sock *sk, __u32 ack, __u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);
	__u32 rtt_us = newest_rtt(tp);

	/* The live state and the siblings are looked at once an interval at most. */
	if (delay_interval_ends(&flow->delays, tp->tcp_mstamp)) {
		refresh_if_due(sk);
		if (end_interval(sk))
			judge_siblings(sk);
	}
	if (rtt_us) {
		add_delay(&flow->delays, rtt_us);
		watch_queue(flow, tp, rtt_us);
	}
	if (cc_hooks.on_ack)
		cc_hooks.on_ack(state_of(tp), tp);
	if (cc_hooks.grow)
		cc_hooks.grow(sk, ack, acked);
	else
		grow_by_rule(sk, acked);
}

/* The slow start threshold after a loss event. CUBIC's memory is kept beside siblings too, for when they leave. */
static __always_inline __u32 control_loss(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);
	bool congestion = is_congestion(&flow->queue, tp);
	__u32 after;

	if (cc_hooks.on_loss)
		cc_hooks.on_loss(state_of(tp), tp);
	after = answer_loss(sk, congestion);
	doubt_queue(&flow->queue, tp, congestion);
	return after;
}

static __always_inline void control_state(struct sock *sk, __u8 new_state)
{
	struct mpcc_flow *flow = flow_of(tcp_sk(sk));

	if (cc_hooks.on_state)
		cc_hooks.on_state(sk, new_state);
	if (new_state != TCP_CA_Loss)
		return;
	void_decision(flow);
	/* The whole has not timed out. */
	if (!flow->whole)
		flow->last_max = 0;
	flow->trial = 0;
	flow->started = 0;
}

/* The window after the kernel has found that what it took for lost was late. */
static __always_inline __u32 control_undo(struct sock *sk)
{
	if (cc_hooks.on_undo)
		cc_hooks.on_undo(state_of(tcp_sk(sk)));
	flow_of(tcp_sk(sk))->trial = 0;
	return tcp_reno_undo_cwnd(sk);
}

SEC("struct_ops")
void BPF_PROG(mpcc_init, struct sock *sk)
{
	if (hand_over(sk))
		return;
	control_init(sk);
	open_flow(sk);
	refresh(sk);
}

SEC("struct_ops")
void BPF_PROG(mpcc_release, struct sock *sk)
{
	refresh(sk);
	close_flow(sk);
}

SEC("struct_ops")
void BPF_PROG(mpcc_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	require_rule();
	control_ack(sk, ack, acked);
}

SEC("struct_ops")
__u32 BPF_PROG(mpcc_ssthresh, struct sock *sk)
{
	book_loss(sk);
	return control_loss(sk);
}

SEC("struct_ops")
void BPF_PROG(mpcc_set_state, struct sock *sk, __u8 new_state)
{
	control_state(sk, new_state);
	/* No ACK comes while a path is dead: show its window when the timeout closes it. */
	if (new_state == TCP_CA_Loss)
		refresh(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(mpcc_undo_cwnd, struct sock *sk)
{
	return control_undo(sk);
}

/*
 * The algorithm's table, under the name that the kernel is to know it by, and the callbacks that only this
 * algorithm has. One object holds one table: the library matches programs by member.
 */
#define CC_TABLE(algorithm, ...)                                                                  \
	_Static_assert(sizeof(struct cc_state) <= MPCC_PRIVATE_BYTES, "icsk_ca_priv is full");    \
	_Static_assert(__builtin_offsetof(struct cc_state, flow) == 0, "mpcc_flow comes first");  \
	_Static_assert(sizeof(struct cc_sum) <= CC_SUM_BYTES, "a view has no room for the sums"); \
	_Static_assert(sizeof(#algorithm) <= 16, "the kernel's names are shorter");               \
	char LICENSE[] SEC("license") = "Dual BSD/GPL";                                           \
	SEC(".struct_ops.link")                                                                   \
	struct tcp_congestion_ops algorithm = { .init = (void *)mpcc_init,                        \
						.release = (void *)mpcc_release,                  \
						.cong_avoid = (void *)mpcc_cong_avoid,            \
						.ssthresh = (void *)mpcc_ssthresh,                \
						.set_state = (void *)mpcc_set_state,              \
						.undo_cwnd = (void *)mpcc_undo_cwnd,              \
						.flags = TCP_CONG_NON_RESTRICTED,                 \
						.name = #algorithm,                               \
						__VA_ARGS__ }

#endif
