/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which siblings a subflow is coupled with: all, or those that share a bottleneck with it. Of two siblings the one with
 * the lower number judges (bottleneck.h), and the other takes its verdict. Without a verdict they are coupled only if
 * they leave by the same interface to the same address: a shared queue that is missed leaves the user with what the
 * kernel would do, a false one costs him most of what his paths carry.
 */
#ifndef MPCC_SHARING_H
#define MPCC_SHARING_H

#include "bottleneck.h"
#include "device.h"
#include "tunable.h"
#include "view.h"

/* An algorithm whose own paper finds shared bottlenecks defines this. */
#ifndef MPCC_PAPER_COUPLE
#define MPCC_PAPER_COUPLE "always"
#endif

enum { COUPLE_ALWAYS, COUPLE_SHARED };
TUNABLE_PAPER(couple, COUPLE_SHARED, MPCC_PAPER_COUPLE,
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

/* What is known of two subflows before anything is of their queues. */
static __always_inline bool same_path(const struct tcp_sock *a, const struct tcp_sock *b)
{
	const struct net_device *x = device_of(a), *y = device_of(b);

	return x && y && x->ifindex == y->ifindex && same_remote(a, b);
}

/* What a subflow sees of a sibling that it is to judge. */
struct mpcc_sibling {
	const struct tcp_sock *self; /* whose sibling */
	const struct mptcp_subflow_context *ctx; /* of the sibling */
	__u64 id; /* key of its record; 0 = it has none, or is gone */
	__u32 subflow_id;
	__u32 bit; /* its number in a subflow's together */
	__u32 place; /* as a bit; that of one with a higher number LATER_PLACE times that; 0 = under another control */
	__u32 path; /* it has the same */
	__u32 says; /* that it is coupled with the subflow */
};

/* Among bits of places, the first of those of siblings with higher numbers. */
#define LATER_PLACE (1U << 16)

/* Reads the sibling. Verified once, instead of for each of nine; false: it is gone, or the subflow itself. */
MPCC_GLOBAL __u32 meet_sibling(struct mpcc_sibling *s nonnull)
{
	const struct tcp_sock *self = bpf_rdonly_cast(s->self, mpcc_type_id(struct tcp_sock));
	const struct mptcp_subflow_context *own_ctx = subflow_of(self), *ctx;
	const struct tcp_sock *tp;

	ctx = bpf_rdonly_cast(s->ctx, mpcc_type_id(struct mptcp_subflow_context));
	tp = bpf_rdonly_cast(ctx->tcp_sock, mpcc_type_id(struct tcp_sock));
	if (!own_ctx || ctx == own_ctx || !is_socket_of(tp, ctx))
		return false;
	s->id = 0;
	s->place = 0;
	s->says = 0;
	s->subflow_id = ctx->subflow_id;
	s->bit = bit_of(self, tp, ctx);
	s->path = same_path(self, tp);
	if (!is_alike(self, tp))
		return true;
	s->id = flow_of(tp)->id;
	s->place = 1 << flow_of(tp)->place;
	if (ctx->subflow_id > own_ctx->subflow_id)
		s->place *= LATER_PLACE;
	s->says = flow_of(tp)->together >> flow_of(self)->place & 1;
	return true;
}

/* By a verdict: a new one, if it is the sibling's turn, or the last one. own is NULL where there is no room for it. */
static __always_inline __u32 is_shared(struct mpcc_delays *own, const struct mpcc_sibling *s,
				       bool turn)
{
	const struct mpcc_delays *theirs = NULL;
	__u32 verdict;

	if (!own)
		return s->path;
	if (turn)
		theirs = bpf_map_lookup_elem(&mpcc_bottlenecks, &s->id);
	verdict = theirs ? judge_bottleneck(own, theirs, s->subflow_id) :
			   last_verdict(own, s->subflow_id);
	return verdict == MPCC_UNDECIDED ? s->path : verdict == MPCC_SHARED;
}

/* Siblings judge at different times, or all would in the same interval of the host's one clock. */
static __always_inline __u64 time_to_judge(const struct mpcc_flow *flow, __u64 newest)
{
	return (newest + flow->id) / MPCC_JUDGE_EVERY;
}

/* The lowest place that none of these siblings has. */
static __always_inline __u32 free_place(__u32 taken)
{
	for (__u32 place = 1; place < MPCC_MAX_SUBFLOWS; place++)
		if (!(taken >> place & 1))
			return place;
	return MPCC_MAX_SUBFLOWS;
}

/*
 * Judges the sibling whose turn it is, of those with higher numbers. Which ones are together is noted of all anew, so
 * that a place that is taken again has no past. Of two subflows that took one place at the same time the later moves. Not
 * inlined, as end_interval(): it is off the per-ACK path.
 */
static __noinline int judge_siblings(struct sock *sk)
{
	const struct tcp_sock *self = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(self);
	struct mpcc_delays *own = delays_of(self);
	const struct mptcp_subflow_context *own_ctx = subflow_of(self);
	const struct mptcp_sock *conn = connection_of(own_ctx);
	__u32 together, higher, places, shared, turn = 0;
	struct mpcc_sibling s = { .self = self };
	const struct list_head *next;
	bool first = !flow->place;

	if (!conn)
		return 0;
	/* Numbers that the verifier does not know, or it would follow every way in which siblings may be judged. */
	together = higher = places = mpcc_unknown_zero(flow->id);
	if (own && own->siblings)
		turn = time_to_judge(flow, own->newest) % own->siblings;
	next = conn->conn_list.next;
	for (int i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		s.ctx = subflow_at(conn, next);
		if (!s.ctx)
			break;
		next = s.ctx->node.next;
		if (!meet_sibling(&s))
			continue;
		if (s.place >= LATER_PLACE)
			shared = is_shared(own, &s, higher++ == turn);
		else
			shared = first || !s.place ? s.path : s.says;
		places |= s.place;
		together |= shared << (s.bit & 15);
	}
	if (own)
		own->siblings = higher;
	flow->together = together;
	if (first || places >> flow->place & 1)
		flow->place = free_place(places | places / LATER_PLACE);
	return 0;
}

/* Notes the interval that has ended. True at the first ACK, and when it is time to judge. */
static __noinline bool end_interval(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);
	struct mpcc_delay_sum delays = flow->delays;
	struct mpcc_delays *own;
	__u64 id = flow->id, newest = 0;

	begin_delays(&flow->delays, tp->tcp_mstamp);
	own = delays_of(tp);
	if (!own && id) {
		bpf_map_update_elem(&mpcc_bottlenecks, &id, &no_delays, BPF_NOEXIST);
		own = delays_of(tp);
	}
	if (own) {
		newest = own->newest;
		note_delays(own, &delays, tp->tcp_mstamp, min_rtt_of(tp));
	}
	return !own || !flow->place ||
	       time_to_judge(flow, own->newest) != time_to_judge(flow, newest);
}

/* At every ACK. */
static __always_inline void watch_delay(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);

	if (couple != COUPLE_SHARED || !tp->is_mptcp)
		return;
	if (delay_interval_ends(&flow->delays, tp->tcp_mstamp) && end_interval(sk))
		judge_siblings(sk);
	if (!in_loss(tp))
		add_delay(&flow->delays, tp->rack.rtt_us);
}

#endif
