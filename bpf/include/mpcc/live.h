/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A subflow's life in the maps: it is entered, brought up to date while it lives, and taken out. */
#ifndef MPCC_LIVE_H
#define MPCC_LIVE_H

#include "sharing.h"
#include "telemetry.h"
#include "window.h"

/* Entries that one namespace may have in mpcc_subflows and mpcc_totals. The loader sets both by the maps' size. */
const volatile __u32 mpcc_namespace_subflows = MPCC_NAMESPACE_SHARE(MPCC_MAX_FLOWS);
const volatile __u32 mpcc_namespace_totals = MPCC_NAMESPACE_SHARE(MPCC_MAX_TOTALS);

static const struct mpcc_total no_total;

/* Makes an entry, unless the namespace has its share. */
static __always_inline struct mpcc_total *make_total(const struct mpcc_total_key *key)
{
	struct mpcc_share *share = share_of(key->netns_cookie);

	if (!share)
		return NULL;
	make_entry(&mpcc_totals, key, &no_total, &share->totals, mpcc_namespace_totals);
	/* Of two sockets that make the same one, the second finds the first's. */
	return bpf_map_lookup_elem(&mpcc_totals, key);
}

static __always_inline struct mpcc_total *total_of(const struct mpcc_subflow *s)
{
	struct mpcc_total_key key = { .netns_cookie = s->netns_cookie, .ifindex = s->ifindex };
	struct mpcc_counter_set *c;
	struct mpcc_total *t;

	__builtin_memcpy(key.cc, s->cc, sizeof(key.cc));
	t = bpf_map_lookup_elem(&mpcc_totals, &key);
	if (!t) {
		t = make_total(&key);
		if (t)
			__builtin_memcpy(t->ifname, s->ifname, sizeof(t->ifname));
	}
	if (t) {
		t->netns = s->netns;
		t->updated_us = s->updated_us;
		return t;
	}
	c = counters();
	if (c)
		__sync_fetch_and_add(&c->lost_totals, 1);
	return NULL;
}

/* The energy of the interval since the last refresh, by the interface's profile. */
static __always_inline void integrate_energy(struct mpcc_subflow *s, const struct tcp_sock *tp,
					     struct mpcc_flow *flow, struct mpcc_total *t,
					     __u64 now)
{
	struct mpcc_energy_key key = { .netns_cookie = s->netns_cookie, .ifindex = s->ifindex };
	struct mpcc_energy_profile *p = bpf_map_lookup_elem(&mpcc_energy, &key);
	__u64 sent = tp->bytes_sent - s->bytes_sent;
	__u64 received = tp->bytes_received - s->bytes_received;
	__u64 from = s->updated_us;
	__u64 active = 2 * (tp->srtt_us >> 3);
	__u64 nj;

	s->priced = p != NULL;
	flow->price_pj = p ? price_of(p, (__u64)tp->snd_cwnd * tp->mss_cache, tp->srtt_us >> 3) : 0;
	if (!p || (!sent && !received))
		return;
	nj = traffic_nj(p->up_uw_per_mbps, sent, p->down_uw_per_mbps, received);
	/* Refreshes are an RTT or so apart while data flows: what is longer was idle. */
	if (active < 2 * MPCC_REFRESH_MIN_US)
		active = 2 * MPCC_REFRESH_MIN_US;
	if (now - from > active)
		from = now - active;
	nj += claim_active_us(p, from, now) * p->base_uw / 1000;
	s->energy_nj += nj;
	if (t)
		__sync_fetch_and_add(&t->energy_nj, nj);
}

static __always_inline void read_connection(struct mpcc_subflow *s, const struct tcp_sock *tp)
{
	const struct mptcp_subflow_context *ctx = subflow_of(tp);
	const struct mptcp_sock *conn = connection_of(ctx);

	if (!conn)
		return;
	s->token = conn->token;
	s->subflow_id = ctx->subflow_id;
	s->local_id = ctx->local_id;
	s->remote_id = ctx->remote_id;
	s->backup = is_backup(ctx);
}

static __always_inline void read_counters(struct mpcc_subflow *s, const struct tcp_sock *tp)
{
	s->bytes_sent = tp->bytes_sent;
	s->bytes_acked = tp->bytes_acked;
	s->bytes_received = tp->bytes_received;
	s->bytes_retrans = tp->bytes_retrans;
	s->retrans = tp->total_retrans;
}

/* Skips the atomic operation for zero. */
static __always_inline void add_unless_zero(__u64 *sum, __u64 delta)
{
	if (delta)
		__sync_fetch_and_add(sum, delta);
}

static __always_inline void add_delta(struct mpcc_total *t, const struct mpcc_subflow *s,
				      const struct tcp_sock *tp)
{
	add_unless_zero(&t->bytes_acked, tp->bytes_acked - s->bytes_acked);
	add_unless_zero(&t->bytes_received, tp->bytes_received - s->bytes_received);
	add_unless_zero(&t->bytes_retrans, tp->bytes_retrans - s->bytes_retrans);
	add_unless_zero(&t->retrans, tp->total_retrans - s->retrans);
	if (tp->srtt_us) {
		add_unless_zero(&t->rtt_sum_us, tp->srtt_us >> 3);
		add_unless_zero(&t->rtt[rtt_bucket(tp->srtt_us)], 1);
	}
}

/* The coupling is for eyes, and a look at eight siblings costs more than all the rest of a refresh: twice a second. */
#define MPCC_COUPLING_US (1 << 19)

/* Whether the live state's coupling is new enough. */
static __always_inline bool coupling_stands(const struct tcp_sock *tp, const struct mpcc_subflow *s)
{
	__u32 before_us = (__u32)s->updated_us;

	if (s->updated_us == s->opened_us)
		return false;
	return ((__u32)tp->tcp_mstamp ^ before_us) < MPCC_COUPLING_US || sums_stand(tp, before_us);
}

/* Apart from refresh(), which has no room on its stack for the view. */
static __noinline int read_coupling(struct sock *sk, struct mpcc_subflow *s)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_coupling coupling = {};
	struct cc_view v;

	if (!s || coupling_stands(tp, s))
		return 0;
	look(&v, tp, SUMS_OF_ALL);
	decide_coupling(&coupling, &v);
	s->coupling = coupling;
	return 0;
}

/* Books what has come since the last refresh. Apart from refresh(), for its stack too. */
static __noinline int book(struct sock *sk, struct mpcc_subflow *s)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);
	struct mpcc_total *t;

	if (!s)
		return 0;
	read_interface(tp, &s->ifindex, s->ifname);
	t = total_of(s);
	integrate_energy(s, tp, flow, t, tp->tcp_mstamp);
	if (t)
		add_delta(t, s, tp);
	return 0;
}

/*
 * Brings the live state up to date and the totals by what has come since. Not inlined: it is off the
 * per-ACK path.
 */
static __noinline int refresh(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);
	__u64 id = flow->id, now = tp->tcp_mstamp;
	struct mpcc_subflow *s;

	flow->refreshed = (__u16)(now >> MPCC_COARSE_SHIFT);
	track_rtt(tp, flow);

	s = id ? bpf_map_lookup_elem(&mpcc_subflows, &id) : NULL;
	if (!s)
		return 0;

	read_connection(s, tp);
	book(sk, s);
	read_coupling(sk, s);

	s->updated_us = now;
	read_counters(s, tp);
	s->cwnd = tp->snd_cwnd;
	s->ssthresh = tp->snd_ssthresh;
	s->srtt_us8 = tp->srtt_us;
	s->base_rtt_us = flow->base_rtt_us;
	s->mss = tp->mss_cache;
	s->delivery_rate = delivery_rate_of(tp);
	return 0;
}

static __always_inline void refresh_if_due(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	__u16 now = (__u16)(tp->tcp_mstamp >> MPCC_COARSE_SHIFT);
	__u16 since = (__u16)(now - flow_of(tp)->refreshed);
	__u32 every = tp->srtt_us >> 3;

	if (every < MPCC_REFRESH_MIN_US)
		every = MPCC_REFRESH_MIN_US;
	if ((__u32)since << MPCC_COARSE_SHIFT >= every)
		refresh(sk);
}

/* A loss event, in the live state and in the totals. */
static __noinline int book_loss(struct sock *sk)
{
	__u64 id = flow_of(tcp_sk(sk))->id;
	struct mpcc_subflow *s;
	struct mpcc_total *t;

	s = id ? bpf_map_lookup_elem(&mpcc_subflows, &id) : NULL;
	if (!s)
		return 0;
	s->losses++;
	t = total_of(s);
	if (t)
		__sync_fetch_and_add(&t->losses, 1);
	return 0;
}

/*
 * Enters the subflow into the live map. Without room, there or in its namespace's share, the subflow goes on unseen and is
 * counted.
 */
static __noinline int open_flow(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_flow *flow = flow_of(tp);
	struct mpcc_counter_set *c = counters();
	struct mpcc_share *share;
	struct mpcc_subflow *s;
	struct mpcc_total *t;
	__u64 id;

	if (!c)
		return 0;
	share = share_of(netns_cookie_of(tp));
	id = __sync_fetch_and_add(&c->last_id, 1) + 1;
	if (!share || !make_entry(&mpcc_subflows, &id, &no_subflow, &share->subflows,
				  mpcc_namespace_subflows)) {
		__sync_fetch_and_add(&c->lost_subflows, 1);
		return 0;
	}
	s = bpf_map_lookup_elem(&mpcc_subflows, &id);
	if (!s)
		return 0;
	flow->id = id;
	s->opened_us = tp->tcp_mstamp;
	s->updated_us = tp->tcp_mstamp;
	/* What the socket did under another congestion control before this one is not counted. */
	read_counters(s, tp);
	read_identity(s, tp);
	read_interface(tp, &s->ifindex, s->ifname);
	t = total_of(s);
	if (t)
		__sync_fetch_and_add(&t->opened, 1);
	return 0;
}

/* Takes the subflow out of the live map; what it did stays in the totals. */
static __noinline int close_flow(struct sock *sk)
{
	struct mpcc_flow *flow = flow_of(tcp_sk(sk));
	__u64 id = flow->id;
	struct mpcc_share *share;
	struct mpcc_subflow *s;
	struct mpcc_total *t;

	s = bpf_map_lookup_elem(&mpcc_subflows, &id);
	if (!s)
		return 0;
	t = total_of(s);
	if (t)
		__sync_fetch_and_add(&t->closed, 1);
	forget_delays(id, s->netns_cookie);
	share = share_of(s->netns_cookie);
	if (share)
		drop_entry(&mpcc_subflows, &id, &share->subflows);
	flow->id = 0;
	return 0;
}

#endif
