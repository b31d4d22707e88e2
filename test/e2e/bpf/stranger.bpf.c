// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A congestion control as somebody else may bring it: Reno, in tables that are not meant for links, with a table that
 * no kernel takes beside it, a program that is in no table, and a map of its own. Of mpcc's headers it uses the
 * kernel's types alone.
 */
#include "mpcc/compat.h"

extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} opened SEC(".maps");

SEC("struct_ops")
void BPF_PROG(stranger_init, struct sock *sk)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&opened, &zero);

	if (count)
		__sync_fetch_and_add(count, 1);
}

SEC("struct_ops")
void BPF_PROG(another_init, struct sock *sk)
{
}

SEC("struct_ops")
void BPF_PROG(stranger_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

SEC("struct_ops")
__u32 BPF_PROG(stranger_ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(stranger_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC("tracepoint/sock/inet_sock_set_state")
int in_no_table(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC(".struct_ops")
struct tcp_congestion_ops reno_of_strangers = {
	.init = (void *)stranger_init,
	.cong_avoid = (void *)stranger_cong_avoid,
	.ssthresh = (void *)stranger_ssthresh,
	.undo_cwnd = (void *)stranger_undo_cwnd,
	.name = "stranger",
};

SEC(".struct_ops")
struct tcp_congestion_ops incomplete = {
	.init = (void *)another_init,
	.name = "incomplete",
};
