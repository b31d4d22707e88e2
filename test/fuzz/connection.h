/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A connection for congestion controls to walk. Include after the algorithm. */
#ifndef FUZZ_CONNECTION_H
#define FUZZ_CONNECTION_H

#include "native.h"

struct connection {
	struct tcp_sock subflows[MPCC_MAX_SUBFLOWS];
	struct mptcp_subflow_context contexts[MPCC_MAX_SUBFLOWS];
	struct dst_entry routes[MPCC_MAX_SUBFLOWS];
	struct mptcp_sock sock;
};

static struct connection connection;
static struct net_device interfaces[] = { { .ifindex = 1 }, { .ifindex = 2 }, { .ifindex = 3 } };

/* Sets the tunables so that no decision depends on the time or on a socket's past. */
static inline void decide_at_once(void)
{
	couple = COUPLE_ALWAYS;
	response = RESPONSE_STANDARD;
	growth = GROWTH_BY_RULE;
}

/* Leaves the subflows in the connection whose bits are set. */
static inline void link_only(__u32 bits)
{
	struct list_head *last = &connection.sock.conn_list;

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
		if (bits & 1 << i)
			last = last->next = &connection.contexts[i].node;
	last->next = &connection.sock.conn_list;
}

/* Joins so many established subflows, with ids from 1 on, whose congestion control decides at once. All else is zero. */
static inline void join(__u32 count, const struct tcp_congestion_ops *ops)
{
	decide_at_once();
	memset(&connection, 0, sizeof(connection));
	for (__u32 i = 0; i < count; i++) {
		struct tcp_sock *tp = &connection.subflows[i];
		struct mptcp_subflow_context *ctx = &connection.contexts[i];

		tp->is_mptcp = true;
		tp->is_cwnd_limited = 1;
		tp->snd_cwnd_clamp = ~0U;
		tp->inet_conn.icsk_ulp_data = ctx;
		tp->inet_conn.icsk_ca_ops = ops;
		tp->inet_conn.icsk_inet.sk.__sk_common.skc_state = TCP_ESTABLISHED;
		flow_of(tp)->together = MPCC_ALL_TOGETHER;
		ctx->subflow_id = i + 1;
		ctx->tcp_sock = (struct sock *)tp;
		ctx->conn = (struct sock *)&connection.sock;
	}
	link_only((1 << count) - 1);
}

/* Gives subflow i a route over an interface. */
static inline void set_interface(__u32 i, __u32 interface)
{
	connection.routes[i].dev = &interfaces[interface];
	connection.subflows[i].inet_conn.icsk_inet.sk.sk_dst_cache = &connection.routes[i];
}

/* Joins so many subflows over one interface on CUBIC's course: past slow start, with data in flight. */
static inline void join_grown(__u32 count, const struct tcp_congestion_ops *ops)
{
	join(count, ops);
	couple = COUPLE_SHARED;
	growth = GROWTH_CUBIC;
	for (__u32 i = 0; i < count; i++) {
		connection.subflows[i].snd_ssthresh = 2;
		connection.subflows[i].packets_out = 1;
		connection.subflows[i].tcp_mstamp = 1000000;
		set_interface(i, 0);
	}
}

/* The path has had one RTT from the first sample to the newest. */
static inline void set_rtt(struct tcp_sock *tp, __u32 rtt_us)
{
	tp->srtt_us = rtt_us << 3;
	tp->rtt_min.s[0].v = rtt_us;
	tp->rack.rtt_us = rtt_us;
}

/* Gives subflow i a window, and a path whose RTT is base_us without the queue. */
static inline void set_path(__u32 i, __u32 cwnd, __u32 base_us, __u32 queue_us)
{
	struct tcp_sock *tp = &connection.subflows[i];

	tp->snd_cwnd = cwnd;
	set_rtt(tp, base_us + queue_us);
	tp->rtt_min.s[0].v = base_us;
}

/* A step is rounded to 2^-29 packets, and else wrong by so large a part at most. */
static inline void require_step(const struct tcp_sock *tp, double want, double tolerance,
				const char *what)
{
	double step = __builtin_ldexp(flow_of(tp)->step_q29, -29);

	require(__builtin_fabs(step - want) <= tolerance * want + 0x1p-29,
		"%s: %g a segment, want %g", what, step, want);
}

static inline struct cc_state *private_of(struct tcp_sock *tp)
{
	return (struct cc_state *)tp->inet_conn.icsk_ca_priv;
}

/* Calls a program as the kernel does: each argument has 64 bits. */
#define CALL(program, ...) program((unsigned long long[]){ __VA_ARGS__ })
#define ARG(pointer) ((unsigned long)(pointer))

#endif
