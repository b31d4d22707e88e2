/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Subflows from which a packet scheduler chooses, without retransmissions. Include after the scheduler. */
#ifndef FUZZ_SUBFLOWS_H
#define FUZZ_SUBFLOWS_H

#include "native.h"

#define MOST_SUBFLOWS 10 /* more than a scene holds */

static struct net net = { .net_cookie = 1 };
static struct mptcp_sock msk = { .sk.icsk_inet.sk.__sk_common.skc_net.net = &net };
static struct tcp_sock socks[MOST_SUBFLOWS];
static struct mptcp_subflow_context contexts[MOST_SUBFLOWS];
static bool closed[MOST_SUBFLOWS];
static __u32 count;
static __u32 scheduled; /* a bit for each subflow that is to send */

int sched_iter_new(struct sched_iter *it, struct mptcp_sock *sock)
{
	it->opaque[0] = 0;
	return 0;
}

struct mptcp_xsched_subflow *sched_iter_next(struct sched_iter *it)
{
	struct mptcp_xsched_subflow *given = (void *)&it->opaque[2];
	__u64 i = it->opaque[0]++;

	if (i >= count)
		return NULL;
	given->context = &contexts[i];
	given->socket = &socks[i];
	return given;
}

void sched_iter_destroy(struct sched_iter *it)
{
}

bool sched_active(struct mptcp_subflow_context *subflow)
{
	return !closed[subflow - contexts];
}

void sched_set_scheduled(struct mptcp_subflow_context *subflow, bool on)
{
	require(on, "subflow %ld", subflow - contexts);
	scheduled |= 1U << (subflow - contexts);
}

void sched_grow_buffer(struct mptcp_sock *sock, __u64 bytes)
{
}

bool sched_resend(struct mptcp_sock *sock)
{
	abort();
}

bool sched_carries(struct mptcp_subflow_context *subflow, __u64 seq)
{
	abort();
}

bool sched_resend_of(struct mptcp_sock *sock, struct mptcp_subflow_context *subflow)
{
	abort();
}

#endif
