// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The kernel's Reno with one callback that does nothing: the time seen for it is what measuring adds. */
#include "mpcc/kernel.h"

extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;

SEC("struct_ops")
void BPF_PROG(empty_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
}

SEC("struct_ops")
void BPF_PROG(empty_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

SEC("struct_ops")
__u32 BPF_PROG(empty_ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(empty_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC(".struct_ops.link")
struct tcp_congestion_ops bpf_empty = {
	.cong_avoid = (void *)empty_cong_avoid,
	.ssthresh = (void *)empty_ssthresh,
	.pkts_acked = (void *)empty_pkts_acked,
	.undo_cwnd = (void *)empty_undo_cwnd,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "bpf_empty",
};
