/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The callbacks that are the same for every algorithm: a subflow comes, goes, and takes a loss back. */
#ifndef MPCC_LIFE_H
#define MPCC_LIFE_H

#include "cc.h"

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

SEC("struct_ops")
__u32 BPF_PROG(mpcc_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

#endif
