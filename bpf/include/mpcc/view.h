/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The coupled view: a connection's subflows as plain numbers, added up in the algorithm's sums.
 *
 * Which subflows count: established, with an RTT sample, not stale and not closing; backups only if
 * nothing else is usable. That is looked at for all nine subflows which the kernel allows.
 *
 * The list is walked at every decision, without a lock: a sibling's numbers are a snapshot that may be an
 * ACK old, which only perturbs one increase. Loads through bpf_rdonly_cast are fault-safe, and the
 * programs run inside an RCU read section, which is what the kernel frees subflow contexts after. A sibling's
 * socket may be freed earlier, and its memory be another connection's by now: a sibling counts only while the socket's
 * ulp_data points to the sibling's context.
 */
#ifndef MPCC_VIEW_H
#define MPCC_VIEW_H

#include "hooks.h"
#include "terms.h"
#include "tunable.h"

/* An algorithm whose own paper finds shared bottlenecks defines this. */
#ifndef MPCC_PAPER_COUPLE
#define MPCC_PAPER_COUPLE "always"
#endif

enum { COUPLE_ALWAYS, COUPLE_SHARED };
TUNABLE_PAPER(couple, COUPLE_SHARED, MPCC_PAPER_COUPLE,
	      "always|shared; couple all subflows, or those behind a common bottleneck");

/* Most rules are a part of Reno's growth; an algorithm whose windows have a course of their own defines MPCC_OWN_COURSE. */
#ifdef MPCC_OWN_COURSE
#define MPCC_GROWTH_BY_RULE "own"
#else
#define MPCC_GROWTH_BY_RULE "reno"
#endif

enum { GROWTH_CUBIC, GROWTH_BY_RULE };
TUNABLE_PAPER(
	growth, GROWTH_CUBIC, MPCC_GROWTH_BY_RULE,
	"cubic|" MPCC_GROWTH_BY_RULE
	"; with couple=shared: subflows behind one queue grow and lose as one CUBIC connection, whose "
	"growth the rule divides; or each by the rule");

/* Whether subflows that share a queue are one CUBIC (whole.h). */
static __always_inline bool are_one_cubic(void)
{
	return couple == COUPLE_SHARED && growth == GROWTH_CUBIC;
}

static __always_inline struct tcp_sock *tcp_sk(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline struct cc_state *state_of(const struct tcp_sock *tp)
{
	return (struct cc_state *)tp->inet_conn.icsk_ca_priv;
}

static __always_inline struct mpcc_flow *flow_of(const struct tcp_sock *tp)
{
	return (struct mpcc_flow *)tp->inet_conn.icsk_ca_priv;
}

static __always_inline void read_socket(struct mpcc_path *p, const struct tcp_sock *tp)
{
	__u8 state = tp->inet_conn.icsk_inet.sk.__sk_common.skc_state;

	p->cwnd = tp->snd_cwnd;
	p->ssthresh = tp->snd_ssthresh;
	p->srtt_us8 = tp->srtt_us;
	p->closing = state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT;
}

/* The kernel's windowed minimum; 0 = no sample yet. */
static __always_inline __u32 min_rtt_of(const struct tcp_sock *tp)
{
	return tp->rtt_min.s[0].v != ~0U ? tp->rtt_min.s[0].v : 0;
}

/* Whether the socket recovers from a timeout. */
static __always_inline bool in_loss(const struct tcp_sock *tp)
{
	return mpcc_bits(tp, inet_conn.icsk_ca_state) == TCP_CA_Loss;
}

/*
 * At an ACK: the newest RTT sample; 0 = none. After a timeout a sample may be of a retransmitted segment, and measure
 * neither transmission. In fast recovery it may too, but the kernel does not call cong_avoid there.
 */
static __always_inline __u32 newest_rtt(const struct tcp_sock *tp)
{
	return in_loss(tp) ? 0 : tp->rack.rtt_us;
}

/* A backup by the peer's wish or by our own, as for the kernel's scheduler. */
static __always_inline bool is_backup(const struct mptcp_subflow_context *ctx)
{
	return mpcc_bits(ctx, backup) || mpcc_bits(ctx, request_bkup);
}

static __always_inline void read_subflow(struct mpcc_path *p,
					 const struct mptcp_subflow_context *ctx)
{
	p->backup = is_backup(ctx);
	p->stale = mpcc_bits(ctx, stale);
	p->closing |= mpcc_bits(ctx, closing);
}

/* Adds what the algorithm keeps of a subflow, seen from the one whose state is own. */
static __always_inline void read_private(struct mpcc_path *p, const struct tcp_sock *tp,
					 const struct cc_state *own)
{
	if (cc_hooks.read_private)
		cc_hooks.read_private(p, tp, state_of(tp), own);
}

static __always_inline const struct mptcp_subflow_context *subflow_of(const struct tcp_sock *tp)
{
	if (!tp->is_mptcp)
		return NULL;
	return bpf_rdonly_cast(tp->inet_conn.icsk_ulp_data,
			       mpcc_type_id(struct mptcp_subflow_context));
}

/* The connection that a subflow belongs to; NULL while the kernel has not linked the two yet. */
static __always_inline const struct mptcp_sock *
connection_of(const struct mptcp_subflow_context *ctx)
{
	const struct sock *conn = ctx ? ctx->conn : NULL;

	return conn ? bpf_rdonly_cast(conn, mpcc_type_id(struct mptcp_sock)) : NULL;
}

/* Whether the memory is still that of the context's socket. */
static __always_inline bool is_socket_of(const struct tcp_sock *tp,
					 const struct mptcp_subflow_context *ctx)
{
	return tp->is_mptcp && tp->inet_conn.icsk_ulp_data == ctx;
}

/* The subflow at an entry of a connection's list; NULL at the list's end. */
static __always_inline const struct mptcp_subflow_context *subflow_at(const struct mptcp_sock *conn,
								      const struct list_head *entry)
{
	if (!entry || entry == &conn->conn_list)
		return NULL;
	return bpf_rdonly_cast((const char *)entry -
				       mpcc_offset(struct mptcp_subflow_context, node),
			       mpcc_type_id(struct mptcp_subflow_context));
}

/* Every bit of a subflow's together. */
#define MPCC_ALL_TOGETHER 0xfff
/*
 * A sibling under the same congestion control has the bit of its place, 1 to 9. All siblings under another congestion
 * control have bit 10 or 11 by the parity of their subflow_id.
 */
#define MPCC_OTHERS_BITS 10

/* Under the same congestion control. */
static __always_inline bool is_alike(const struct tcp_sock *self, const struct tcp_sock *tp)
{
	return tp->inet_conn.icsk_ca_ops == self->inet_conn.icsk_ca_ops;
}

/* The number of a sibling's bit in self's together. */
static __always_inline __u32 bit_of(const struct tcp_sock *self, const struct tcp_sock *tp,
				    const struct mptcp_subflow_context *ctx)
{
	return is_alike(self, tp) ? flow_of(tp)->place : MPCC_OTHERS_BITS + (ctx->subflow_id & 1);
}

/* The group of a sibling, as seen from self. */
static __always_inline __u32 group_of(const struct tcp_sock *self, const struct tcp_sock *tp,
				      const struct mptcp_subflow_context *ctx)
{
	return !(flow_of(self)->together >> bit_of(self, tp, ctx) & 1);
}

/* Reads a sibling, but for its group. A sibling that is gone reads as a path that does not count. */
static __always_inline void read_sibling(struct mpcc_path *p, const struct tcp_sock *self,
					 const struct tcp_sock *tp,
					 const struct mptcp_subflow_context *ctx)
{
	read_socket(p, tp);
	read_subflow(p, ctx);
	if (is_alike(self, tp))
		read_private(p, tp, state_of(self));
	if (!is_socket_of(tp, ctx))
		p->closing = 1;
}

/* Whether its connection has no other subflow, usable or not. */
static __always_inline bool is_only_subflow(const struct tcp_sock *tp)
{
	const struct mptcp_subflow_context *ctx = subflow_of(tp);
	const struct mptcp_sock *conn = connection_of(ctx);

	return !conn || (conn->conn_list.next == &ctx->node && ctx->node.next == &conn->conn_list);
}

/*
 * What a group is as one connection (whole.h). Integers, which take fewer instructions than struct mpcc_num: with windows of
 * at most MPCC_MOST_PACKETS none overflows. RTTs are in us8 (fixed.h).
 */
struct mpcc_whole {
	__u64 rate_q36; /* sum w / rtt */
	__u64 parts_q60; /* sum g / rtt over the siblings whose step g is known */
	__u64 others_q60; /* sum 1 / rtt over the other subflows, self among them */
	__u32 shortest_us8; /* RTT */
	__u32 longest_us8;
};

/* What a view adds up. */
enum {
	SUMS_OF_GROUP, /* self's group */
	SUMS_OF_ALL, /* all subflows */
	SUMS_FOR_SHIFT, /* of all subflows, what the hook shift needs */
};

struct cc_view {
	struct mpcc_path self;
	__u64 sums[CC_SUM_BYTES / 8]; /* a struct cc_sum */
	const struct tcp_sock *socket; /* whose view it is */
	const struct mptcp_subflow_context *sibling; /* which add_sibling() is to read */
	__u8 sums_over; /* SUMS_OF_GROUP, SUMS_OF_ALL or SUMS_FOR_SHIFT */
	__u8 backups; /* what is looked at: backups, or the other subflows */
	__u8 counting; /* the subflows that were read and count, of whatever group */
	__u8 grouped; /* those of self's group; 1 = self is alone at its bottleneck */
	__u8 coupled; /* self counts */
	__u8 losing; /* siblings of self's group that lost of late */
	struct mpcc_whole whole; /* of self's group */
};

static __always_inline struct cc_sum *sum_of(struct cc_view *v)
{
	return (struct cc_sum *)v->sums;
}

static __always_inline bool is_for_shift(const struct cc_view *v)
{
	return cc_hooks.shift && v->sums_over == SUMS_FOR_SHIFT;
}

/*
 * Counts a usable path, if the path is a backup or is none, as asked for, and adds a path of self's group, or any path, to
 * the sums. False: the path does not count.
 */
static __always_inline bool count_path(struct cc_view *v, const struct mpcc_path *p)
{
	bool grouped = p->group == v->self.group;

	if (!path_usable(p) || p->backup != v->backups)
		return false;
	/* Opaque counts, so that the verifier does not follow every way in which paths may count. */
	v->counting += 1 + mpcc_unknown_zero(p->cwnd);
	if (grouped)
		v->grouped += 1 + mpcc_unknown_zero(p->cwnd);
	if (is_for_shift(v))
		cc_hooks.add_to_shift(sum_of(v), p);
	else if (grouped || v->sums_over)
		cc_hooks.add_path(sum_of(v), p);
	return true;
}

/* The least time between two looks of a subflow at its siblings, for each subflow of a group that is one CUBIC (whole.h). */
#define MPCC_LOOK_US 6144

/*
 * How often a subflow of a group looks at its siblings: once an RTT, as RFC 6356 lets LIA's alpha be worked out. Behind a
 * short queue that would be at every few ACKs, and a look costs the more the larger the group is.
 */
static __always_inline __u32 looks_every_us(const struct tcp_sock *tp)
{
	__u32 rtt_us = tp->srtt_us >> 3, subflows = flow_of(tp)->curve_subflows;
	__u32 least_us = subflows * MPCC_LOOK_US;

	return subflows > 1 && are_one_cubic() && rtt_us < least_us ? least_us : rtt_us;
}

/* Whether a sibling has cut its window for a loss of its own since self's last look. */
static __always_inline bool lost_of_late(const struct tcp_sock *self, const struct tcp_sock *tp,
					 bool alike)
{
	const struct mpcc_flow *flow = flow_of(tp);
	bool recovers = mpcc_bits(tp, inet_conn.icsk_ca_state) >= TCP_CA_CWR;

	if (!alike)
		return recovers;
	if (!flow->whole || !flow->lost)
		return false;
	return recovers ||
	       (flow->curve_subflows &&
		elapsed_us((__u32)self->tcp_mstamp, flow->curve.began_us) < looks_every_us(self));
}

static __always_inline __u64 rate_of_path(const struct mpcc_path *p)
{
	return ((__u64)at_most_packets(p->cwnd) << 36) / p->srtt_us8;
}

/* Adds a path of the group. part_q10 is the rule's step over Reno's, in 2^-10; 0: not known. */
static __always_inline void add_to_whole(struct mpcc_whole *whole, const struct mpcc_path *p,
					 __u32 part_q10)
{
	whole->rate_q36 += rate_of_path(p);
	if (part_q10)
		whole->parts_q60 += ((__u64)part_q10 << 50) /
				    (p->srtt_us8 * (__u64)at_most_packets(p->cwnd));
	else
		whole->others_q60 += (1ULL << 60) / p->srtt_us8;
	if (!whole->shortest_us8 || p->srtt_us8 < whole->shortest_us8)
		whole->shortest_us8 = p->srtt_us8;
	if (p->srtt_us8 > whole->longest_us8)
		whole->longest_us8 = p->srtt_us8;
}

/* The step of a sibling, whose path is p, is known while the sibling grows by it. */
static __always_inline void add_sibling_to_whole(struct cc_view *v, const struct mpcc_path *p,
						 const struct tcp_sock *self,
						 const struct tcp_sock *tp)
{
	const struct mpcc_flow *flow = flow_of(tp);
	bool alike = is_alike(self, tp), grows = alike && flow->whole && flow->curve_subflows;

	add_to_whole(&v->whole, p, grows ? flow->curve.part_q10 : 0);
	v->losing += lost_of_late(self, tp, alike);
}

/*
 * Reads and counts v->sibling. A sibling of another group only tells whether a backup counts. A global function, which the
 * verifier checks once and not for each of nine subflows, cannot take socket pointers; the pointers travel in v.
 */
MPCC_GLOBAL int add_sibling(struct cc_view *v nonnull)
{
	const struct tcp_sock *self = bpf_rdonly_cast(v->socket, mpcc_type_id(struct tcp_sock));
	const struct mptcp_subflow_context *ctx;
	const struct tcp_sock *tp;
	struct mpcc_path p = {};

	ctx = bpf_rdonly_cast(v->sibling, mpcc_type_id(struct mptcp_subflow_context));
	tp = bpf_rdonly_cast(ctx->tcp_sock, mpcc_type_id(struct tcp_sock));
	p.group = group_of(self, tp, ctx);
	if (!v->sums_over && p.group && !v->self.backup)
		return 0;
	read_sibling(&p, self, tp, ctx);
	if (count_path(v, &p) && !p.group && are_one_cubic())
		add_sibling_to_whole(v, &p, self, tp);
	return 0;
}

static __always_inline void count_siblings(struct cc_view *v,
					   const struct mptcp_subflow_context *own,
					   const struct mptcp_sock *conn)
{
	const struct list_head *next = conn->conn_list.next;

	for (int i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		const struct mptcp_subflow_context *ctx = subflow_at(conn, next);

		if (!ctx)
			return;
		next = ctx->node.next;
		if (ctx == own)
			continue;
		v->sibling = ctx;
		add_sibling(v);
	}
}

/* What a socket sees. v is empty but for the socket, and sums_over. */
MPCC_GLOBAL int fill_view(struct cc_view *v nonnull)
{
	const struct tcp_sock *tp = bpf_rdonly_cast(v->socket, mpcc_type_id(struct tcp_sock));
	const struct mptcp_subflow_context *own = subflow_of(tp);
	const struct mptcp_sock *conn = connection_of(own);

	read_socket(&v->self, tp);
	if (own)
		read_subflow(&v->self, own);
	read_private(&v->self, tp, state_of(tp));
	for (__u32 backups = 0; backups < 2 && !v->counting; backups++) {
		v->backups = backups;
		v->coupled = count_path(v, &v->self);
		if (v->coupled && are_one_cubic() && !is_for_shift(v))
			add_to_whole(&v->whole, &v->self, 0);
		if (conn)
			count_siblings(v, own, conn);
	}
	return 0;
}

static __always_inline void look_at_subflows(struct cc_view *v, const struct tcp_sock *tp,
					     __u8 sums_over)
{
	__builtin_memset(v, 0, sizeof(*v));
	v->socket = tp;
	v->sums_over = sums_over;
	fill_view(v);
}

#endif
