/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which siblings a subflow is coupled with: all, or only the siblings behind the subflow's own bottleneck. Of two
 * subflows the one with the lower subflow_id compares the delays (bottleneck.h), and the one with the higher
 * subflow_id adopts the verdict. Without a verdict two subflows are coupled only if both send through the same interface
 * to the same remote address: a missed shared queue leaves the user with what the kernel's uncoupled control carries, a
 * wrong "shared" costs the user most of what the paths carry.
 */
#ifndef MPCC_SHARING_H
#define MPCC_SHARING_H

#include "bottleneck.h"
#include "device.h"
#include "share.h"
#include "tunable.h"
#include "view.h"

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

/* Records of each namespace, by share_slot(). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MPCC_SHARES);
	__type(key, __u32);
	__type(value, __u32);
} mpcc_delays_share SEC(".maps");

static __always_inline __u32 *records_of(__u64 netns_cookie)
{
	__u32 slot = share_slot(netns_cookie);

	return bpf_map_lookup_elem(&mpcc_delays_share, &slot);
}

static const struct mpcc_delays no_delays;

static __always_inline struct mpcc_delays *delays_of(const struct tcp_sock *tp)
{
	__u64 id = flow_of(tp)->id;

	return id ? bpf_map_lookup_elem(&mpcc_bottlenecks, &id) : NULL;
}

/* Makes the subflow's record, unless the namespace has its share. */
static __always_inline struct mpcc_delays *make_delays(const struct tcp_sock *tp)
{
	__u32 *records = records_of(netns_cookie_of(tp));
	__u64 id = flow_of(tp)->id;

	if (!records || !make_entry(&mpcc_bottlenecks, &id, &no_delays, records,
				    MPCC_NAMESPACE_SHARE(MPCC_MAX_DELAYS)))
		return NULL;
	return bpf_map_lookup_elem(&mpcc_bottlenecks, &id);
}

static __always_inline void forget_delays(__u64 id, __u64 netns_cookie)
{
	__u32 *records;

	if (couple != COUPLE_SHARED)
		return;
	records = records_of(netns_cookie);
	if (records)
		drop_entry(&mpcc_bottlenecks, &id, records);
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

/* The same interface and the same remote address. */
static __always_inline bool same_path(const struct tcp_sock *a, const struct tcp_sock *b)
{
	const struct net_device *x = device_of(a), *y = device_of(b);

	return x && y && x->ifindex == y->ifindex && same_remote(a, b);
}

/* A sibling, as seen from the subflow self. */
struct mpcc_sibling {
	const struct tcp_sock *self;
	const struct mptcp_subflow_context *ctx; /* the sibling's */
	__u64 id; /* key of the sibling's record; 0 = no record */
	__u32 subflow_id; /* the sibling's */
	__u32 bit; /* the sibling's number in self's together */
	__u32 place; /* the sibling's; 0 = none yet, or under another congestion control */
	__u32 same_path; /* as self */
	__u32 judged_here; /* by self; otherwise the sibling has the verdict */
	__u32 verdict; /* the sibling's on self, true = coupled; same_path under another congestion control */
};

/*
 * Fills in all but self and ctx. False: ctx is self's, or its socket is gone. A global function, so that the verifier
 * checks it once and not for each of nine subflows.
 */
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
	s->subflow_id = ctx->subflow_id;
	s->bit = bit_of(self, tp, ctx);
	s->place = 0;
	s->same_path = same_path(self, tp);
	s->judged_here = false;
	s->verdict = s->same_path;
	if (!is_alike(self, tp))
		return true;
	s->id = flow_of(tp)->id;
	s->place = flow_of(tp)->place;
	s->judged_here = ctx->subflow_id > own_ctx->subflow_id;
	s->verdict = flow_of(tp)->together >> flow_of(self)->place & 1;
	return true;
}

/*
 * Whether a subflow with the record own is coupled with a sibling that it judges: by a new verdict if it is the sibling's
 * turn, otherwise by the last verdict. own is NULL if the map, or the namespace's share, has no room for a record.
 */
static __always_inline __u32 is_shared(struct mpcc_delays *own, const struct mpcc_sibling *s,
				       bool turn)
{
	const struct mpcc_delays *theirs = NULL;
	__u32 verdict;

	if (!own)
		return s->same_path;
	if (turn)
		theirs = bpf_map_lookup_elem(&mpcc_bottlenecks, &s->id);
	verdict = theirs ? judge_bottleneck(own, theirs, s->subflow_id) :
			   last_verdict(own, s->subflow_id);
	return verdict == MPCC_UNDECIDED ? s->same_path : verdict == MPCC_SHARED;
}

/*
 * Counts the turns of a subflow. The subflow's id spreads the turns of the host's subflows over all intervals; otherwise all
 * subflows would judge in the same interval.
 */
static __always_inline __u64 turns_until(const struct mpcc_flow *flow,
					 const struct mpcc_delays *own, __u64 newest)
{
	return (newest + flow->id) / turn_length(own);
}

/* The lowest place whose bit is not set. */
static __always_inline __u32 free_place(__u32 taken)
{
	for (__u32 place = 1; place < MPCC_MAX_SUBFLOWS; place++)
		if (!(taken >> place & 1))
			return place;
	return MPCC_MAX_SUBFLOWS;
}

/*
 * Compares the delays with those of one sibling, the siblings with a higher subflow_id taking turns, and writes the
 * bits of all siblings in together anew: the bit of a place that has passed from one sibling to another tells nothing of
 * the former sibling. If two subflows have taken the same place at the same time, the one with the higher subflow_id takes
 * another. Not inlined, being off the per-ACK path.
 */
static __noinline int judge_siblings(struct sock *sk)
{
	const struct tcp_sock *self = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(self);
	struct mpcc_delays *own = delays_of(self);
	const struct mptcp_subflow_context *own_ctx = subflow_of(self);
	const struct mptcp_sock *conn = connection_of(own_ctx);
	__u32 together, judged, met, taken, earlier, shared, turn = 0;
	struct mpcc_sibling s = { .self = self };
	const struct list_head *next;
	bool first = !flow->place;

	if (!conn)
		return 0;
	/* Opaque numbers, so that the verifier does not follow every way in which siblings may be judged. */
	together = judged = met = taken = earlier = mpcc_unknown_zero(flow->id);
	if (own && own->siblings)
		turn = turns_until(flow, own, own->newest) % own->siblings;
	next = conn->conn_list.next;
	for (int i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		s.ctx = subflow_at(conn, next);
		if (!s.ctx)
			break;
		next = s.ctx->node.next;
		if (!meet_sibling(&s))
			continue;
		met++;
		if (s.judged_here) {
			shared = is_shared(own, &s, judged++ == turn);
		} else {
			shared = first ? s.same_path : s.verdict;
			earlier |= 1 << (s.place & 15);
		}
		taken |= 1 << (s.place & 15);
		together |= shared << (s.bit & 15);
	}
	if (own) {
		own->siblings = judged;
		own->subflows = met + 1;
	}
	flow->together = together;
	if (first || earlier >> flow->place & 1)
		flow->place = free_place(taken);
	return 0;
}

/*
 * Begins an interval, and notes the interval that has ended, if delays are compared. True: the siblings are to be judged, as
 * at the first ACK. Not inlined either.
 */
static __noinline bool end_interval(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);
	struct mpcc_delay_sum delays = flow->delays;
	struct mpcc_delays *own;
	__u64 id = flow->id, newest = 0;

	begin_delays(&flow->delays, tp->tcp_mstamp);
	if (couple != COUPLE_SHARED || !tp->is_mptcp)
		return false;
	own = delays_of(tp);
	if (!own && id)
		own = make_delays(tp);
	if (own) {
		newest = own->newest;
		note_delays(own, &delays, tp->tcp_mstamp, min_rtt_of(tp));
	}
	return !own || !flow->place ||
	       turns_until(flow, own, own->newest) != turns_until(flow, own, newest);
}

#endif
