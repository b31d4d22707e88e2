/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The coupled view: a connection's subflows as plain numbers, folded into the algorithm's sums.
 *
 * Include after the algorithm has defined
 *   struct cc_sum                                   what it sums over the subflows; zero = empty
 *   struct cc_state                                 its private state, a struct mpcc_flow flow first
 *   cc_add(sum, path)                               takes one subflow into the sums
 * and, where it has one, with "#define cc_private cc_private",
 *   cc_private(path, tp, state, own)                fills the path's fields that come from a subflow's
 *                                                   private state, seen from the one with the state own
 *
 * Which subflows count: established, with an RTT sample, not stale and not closing; backups only if
 * nothing else is usable. The socket's own subflow counts, and those of the first eight in the
 * connection's list; what is beyond is left out and counted (struct mpcc_counter_set).
 *
 * The list is walked on every decision, without a lock: a sibling's numbers are a snapshot that may be
 * an ACK old, which only perturbs one increase. Loads through bpf_rdonly_cast are fault-safe, and the
 * programs run inside an RCU read section, which is what the kernel frees subflow contexts after.
 */
#ifndef MPCC_COUPLING_H
#define MPCC_COUPLING_H

#include "path.h"
#include "state.h"

_Static_assert(sizeof(struct cc_state) <= MPCC_PRIVATE_BYTES, "icsk_ca_priv is full");
_Static_assert(__builtin_offsetof(struct cc_state, flow) == 0, "struct mpcc_flow comes first");

#ifndef cc_private
#define cc_private(path, tp, state, own) ((void)(own))
#endif

static __always_inline void path_of(struct mpcc_path *p, const struct tcp_sock *tp)
{
	__u8 state = tp->inet_conn.icsk_inet.sk.__sk_common.skc_state;

	p->cwnd = tp->snd_cwnd;
	p->ssthresh = tp->snd_ssthresh;
	p->srtt_us8 = tp->srtt_us;
	p->closing = state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT;
}

/* The peer's wish and our own count alike, as they do for the kernel's scheduler. */
static __always_inline bool is_backup(const struct mptcp_subflow_context *ctx)
{
	return mpcc_bits(ctx, backup) || mpcc_bits(ctx, request_bkup);
}

static __always_inline void path_of_subflow(struct mpcc_path *p,
					    const struct mptcp_subflow_context *ctx)
{
	p->backup = is_backup(ctx);
	p->stale = mpcc_bits(ctx, stale);
	p->closing |= mpcc_bits(ctx, closing);
	p->subflow_id = ctx->subflow_id;
}

static __always_inline const struct mptcp_subflow_context *subflow_of(const struct tcp_sock *tp)
{
	if (!tp->is_mptcp)
		return NULL;
	return bpf_rdonly_cast(tp->inet_conn.icsk_ulp_data,
			       mpcc_type_id(struct mptcp_subflow_context));
}

/* The connection a subflow belongs to; NULL while the kernel has not linked the two yet. */
static __always_inline const struct mptcp_sock *
connection_of(const struct mptcp_subflow_context *ctx)
{
	const struct sock *conn = ctx ? ctx->conn : NULL;

	return conn ? bpf_rdonly_cast(conn, mpcc_type_id(struct mptcp_sock)) : NULL;
}

static __always_inline void path_of_sibling(struct mpcc_path *p, const struct tcp_sock *self,
					    const struct cc_state *own,
					    const struct mptcp_subflow_context *ctx)
{
	const struct tcp_sock *tp = bpf_rdonly_cast(ctx->tcp_sock, mpcc_type_id(struct tcp_sock));

	path_of(p, tp);
	path_of_subflow(p, ctx);
	if (tp->inet_conn.icsk_ca_ops == self->inet_conn.icsk_ca_ops)
		cc_private(p, tp, (const struct cc_state *)tp->inet_conn.icsk_ca_priv, own);
}

/* Not one that a path can have. */
#define MPCC_ANY_GROUP (1ULL << 32)

/* 1 if a subflow counts among the (backups) or the others; it goes into the sums if it is of the group. */
MPCC_PURE __u32 take(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull, __u32 backups,
		     __u64 group)
{
	if (!path_usable(p) || p->backup != backups)
		return 0;
	if (group == MPCC_ANY_GROUP || group == p->group)
		cc_add(sum, p);
	return 1;
}

struct mpcc_view {
	struct mpcc_path self;
	struct cc_sum sum;
	__u32 counting; /* the connection's subflows that count, of whatever group */
	__u32 coupled; /* the own subflow is one of them */
	__u32 left_out; /* the connection has more subflows than a decision looks at */
};

static __always_inline void take_siblings(struct mpcc_view *v, const struct tcp_sock *self,
					  const struct cc_state *state,
					  const struct mptcp_sock *conn, __u32 backups, __u64 group)
{
	const struct list_head *head = &conn->conn_list;
	const struct list_head *node = head->next;

	for (int i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		const struct mptcp_subflow_context *ctx;
		struct mpcc_path p = {};

		if (!node || node == head)
			return;
		ctx = bpf_rdonly_cast((const char *)node -
					      mpcc_offset(struct mptcp_subflow_context, node),
				      mpcc_type_id(struct mptcp_subflow_context));
		node = ctx->node.next;
		if ((void *)ctx == self->inet_conn.icsk_ulp_data)
			continue;
		path_of_sibling(&p, self, state, ctx);
		v->counting += take(&v->sum, &p, backups, group);
	}
	v->left_out = node && node != head;
}

/* The view of a subflow on its own group, which is 0, or on all. */
static __always_inline void view_of_group(struct mpcc_view *v, const struct tcp_sock *tp,
					  const struct cc_state *state, __u64 group)
{
	const struct mptcp_subflow_context *own = subflow_of(tp);
	const struct mptcp_sock *conn = connection_of(own);

	__builtin_memset(v, 0, sizeof(*v));
	path_of(&v->self, tp);
	if (own)
		path_of_subflow(&v->self, own);
	cc_private(&v->self, tp, state, state);

	v->counting = v->coupled = take(&v->sum, &v->self, false, group);
	if (conn)
		take_siblings(v, tp, state, conn, false, group);
	if (v->counting)
		return;
	v->counting = v->coupled = take(&v->sum, &v->self, true, group);
	if (conn)
		take_siblings(v, tp, state, conn, true, group);
}

static __always_inline void view_of(struct mpcc_view *v, const struct tcp_sock *tp,
				    const struct cc_state *state)
{
	view_of_group(v, tp, state, 0);
}

#endif
