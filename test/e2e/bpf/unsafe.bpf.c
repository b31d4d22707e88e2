// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A congestion control that the verifier refuses: it reads through a number made a pointer. */
#include "mpcc/compat.h"

extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;

SEC("struct_ops")
void BPF_PROG(unsafe_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	tcp_reno_cong_avoid(sk, *(volatile __u32 *)(long)ack, acked);
}

SEC("struct_ops")
__u32 BPF_PROG(unsafe_ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(unsafe_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC(".struct_ops.link")
struct tcp_congestion_ops unsafe = {
	.cong_avoid = (void *)unsafe_cong_avoid,
	.ssthresh = (void *)unsafe_ssthresh,
	.undo_cwnd = (void *)unsafe_undo_cwnd,
	.name = "unsafe",
};
