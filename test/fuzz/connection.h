/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A connection for the BPF sources to walk. Include after the algorithm. */
#ifndef FUZZ_CONNECTION_H
#define FUZZ_CONNECTION_H

#include "native.h"

struct connection {
	struct tcp_sock subflows[MPCC_MAX_SUBFLOWS];
	struct mptcp_subflow_context contexts[MPCC_MAX_SUBFLOWS];
	struct mptcp_sock sock;
};

/* What depends on time, and on what a socket has seen before, is left out. */
static inline void decide_at_once(void)
{
	couple = COUPLE_ALWAYS;
	response = RESPONSE_STANDARD;
#ifndef MPCC_OWN_COURSE
	growth = GROWTH_RENO;
#endif
}

/* So many established subflows under a congestion control that decides at once, their ids from 1 on, the rest zero. */
static inline void join(struct connection *c, __u32 count, const struct tcp_congestion_ops *ops)
{
	struct list_head *last = &c->sock.conn_list;

	decide_at_once();
	memset(c, 0, sizeof(*c));
	for (__u32 i = 0; i < count; i++) {
		struct tcp_sock *tp = &c->subflows[i];
		struct mptcp_subflow_context *ctx = &c->contexts[i];

		tp->is_mptcp = true;
		tp->is_cwnd_limited = 1;
		tp->snd_cwnd_clamp = ~0U;
		tp->inet_conn.icsk_ulp_data = ctx;
		tp->inet_conn.icsk_ca_ops = ops;
		tp->inet_conn.icsk_inet.sk.__sk_common.skc_state = TCP_ESTABLISHED;
		flow_of(tp)->together = MPCC_ALL_TOGETHER;
		ctx->subflow_id = i + 1;
		ctx->tcp_sock = (struct sock *)tp;
		ctx->conn = (struct sock *)&c->sock;
		last = last->next = &ctx->node;
	}
	last->next = &c->sock.conn_list;
}

/* Leaves those in the connection whose bit is set. */
static inline void link_only(struct connection *c, __u32 bits)
{
	struct list_head *last = &c->sock.conn_list;

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
		if (bits & 1 << i)
			last = last->next = &c->contexts[i].node;
	last->next = &c->sock.conn_list;
}

static inline struct cc_state *private_of(struct tcp_sock *tp)
{
	return (struct cc_state *)tp->inet_conn.icsk_ca_priv;
}

/* Calls a program as the kernel does, with its arguments in 64 bits each. */
#define CALL(program, ...) program((unsigned long long[]){ __VA_ARGS__ })
#define ARG(pointer) ((unsigned long)(pointer))

#endif
