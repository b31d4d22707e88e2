/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which siblings a subflow is coupled with: all, or those that share a bottleneck with it. Every socket judges its
 * siblings for itself (bottleneck.h), so two may differ for a moment. Until there is a verdict, a sibling is held for
 * apart if its interface and its remote address both differ, else for shared.
 */
#ifndef MPCC_SHARING_H
#define MPCC_SHARING_H

#include "bottleneck.h"
#include "device.h"
#include "tunable.h"
#include "view.h"

/* An algorithm whose own paper finds shared bottlenecks defines both. */
#ifndef MPCC_COUPLE
#define MPCC_COUPLE COUPLE_ALWAYS
#define MPCC_PAPER_COUPLE "always"
#endif

enum { COUPLE_ALWAYS, COUPLE_SHARED };
TUNABLE_PAPER(couple, MPCC_COUPLE, MPCC_PAPER_COUPLE,
	      "always|shared; couple all subflows, or those behind a common bottleneck");

/* Subflows with a record at a time; those beyond are judged as without a verdict. */
#define MPCC_MAX_DELAYS 16384

/* By the subflow's key in the live map; of this algorithm's sockets only. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MPCC_MAX_DELAYS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct mpcc_delays);
} mpcc_bottlenecks SEC(".maps");

static const struct mpcc_delays no_delays;

static __always_inline struct mpcc_delays *delays_of(const struct tcp_sock *tp)
{
	__u64 id = flow_of(tp)->id;

	return id ? bpf_map_lookup_elem(&mpcc_bottlenecks, &id) : NULL;
}

static __always_inline void forget_delays(__u64 id)
{
	if (couple == COUPLE_SHARED)
		bpf_map_delete_elem(&mpcc_bottlenecks, &id);
}

static __always_inline bool same_remote(const struct tcp_sock *a, const struct tcp_sock *b)
{
	const struct sock_common *x = &a->inet_conn.icsk_inet.sk.__sk_common;
	const struct sock_common *y = &b->inet_conn.icsk_inet.sk.__sk_common;

	if (x->skc_family != y->skc_family)
		return false;
	if (x->skc_family != AF_INET6)
		return x->skc_daddr == y->skc_daddr;
	for (int i = 0; i < 4; i++)
		if (x->skc_v6_daddr.in6_u.u6_addr32[i] != y->skc_v6_daddr.in6_u.u6_addr32[i])
			return false;
	return true;
}

/* What is likely of two subflows before anything is known of their queues. */
static __always_inline bool apart_by_address(const struct tcp_sock *a, const struct tcp_sock *b)
{
	const struct net_device *x = device_of(a), *y = device_of(b);

	return x && y && x->ifindex != y->ifindex && !same_remote(a, b);
}

/* By a verdict: a new one, if it is the sibling's turn, or the last one. */
static __always_inline bool is_apart(struct mpcc_delays *own, const struct tcp_sock *self,
				     const struct tcp_sock *tp, __u32 subflow_id, bool turn)
{
	struct mpcc_delays *theirs;
	__u32 verdict;

	if (tp->inet_conn.icsk_ca_ops != self->inet_conn.icsk_ca_ops)
		return apart_by_address(self, tp);
	theirs = turn ? delays_of(tp) : NULL;
	verdict = theirs ? judge_bottleneck(own, theirs, subflow_id, subflow_id) :
			   last_verdict(own, subflow_id, subflow_id);
	if (verdict == MPCC_UNDECIDED)
		return apart_by_address(self, tp);
	return verdict == MPCC_APART;
}

/*
 * Judges the sibling whose turn it is. Which ones are apart is noted of all anew, so that a number that comes again
 * has no past.
 */
static __always_inline void judge_siblings(const struct tcp_sock *self, struct mpcc_flow *flow,
					   struct mpcc_delays *own)
{
	const struct mptcp_subflow_context *own_ctx = subflow_of(self);
	const struct mptcp_sock *conn = connection_of(own_ctx);
	const struct list_head *next;
	__u32 apart, together, siblings, turn;

	if (!conn)
		return;
	/* Numbers that the verifier does not know, or it would follow every way in which siblings may be judged. */
	apart = together = siblings = mpcc_unknown_zero(own->newest);
	turn = own->siblings ? own->newest / MPCC_JUDGE_EVERY % own->siblings : 0;
	next = conn->conn_list.next;
	for (int i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		const struct mptcp_subflow_context *ctx = subflow_at(conn, next);
		const struct tcp_sock *tp;

		if (!ctx)
			break;
		next = ctx->node.next;
		if (ctx == own_ctx)
			continue;
		tp = bpf_rdonly_cast(ctx->tcp_sock, mpcc_type_id(struct tcp_sock));
		if (!names(tp, ctx))
			continue;
		if (is_apart(own, self, tp, ctx->subflow_id, siblings++ == turn))
			apart |= 1 << (ctx->subflow_id & 15);
		else
			together++;
	}
	own->siblings = siblings;
	flow->apart = apart;
	flow->single = apart && !together;
}

/* Notes the interval that has ended, and from time to time judges. Not inlined: it is off the per-ACK path. */
static __noinline int end_interval(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);
	struct mpcc_delay_sum delays = flow->delays;
	struct mpcc_delays *own;
	__u64 id = flow->id, newest;

	begin_delays(&flow->delays, tp->tcp_mstamp);
	own = delays_of(tp);
	if (!own && id) {
		bpf_map_update_elem(&mpcc_bottlenecks, &id, &no_delays, BPF_NOEXIST);
		own = delays_of(tp);
	}
	if (!own)
		return 0;
	newest = own->newest;
	note_delays(own, &delays, tp->tcp_mstamp, tp->rtt_min.s[0].v);
	if (own->newest / MPCC_JUDGE_EVERY != newest / MPCC_JUDGE_EVERY)
		judge_siblings(tp, flow, own);
	return 0;
}

/* At every ACK. */
static __always_inline void watch_delay(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);

	if (couple != COUPLE_SHARED || !tp->is_mptcp)
		return;
	if (delay_interval_ends(&flow->delays, tp->tcp_mstamp))
		end_interval(sk);
	add_delay(&flow->delays, tp->rack.rtt_us);
}

#endif
