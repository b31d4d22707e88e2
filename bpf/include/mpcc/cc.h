/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The glue every congestion control shares: the fractional window, and the life of a subflow's live
 * state from init to release. Include after what decide.h asks for.
 */
#ifndef MPCC_CC_H
#define MPCC_CC_H

#include "coupling.h"
#include "telemetry.h"

static __always_inline struct tcp_sock *tcp_sk(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline struct cc_state *state_of(struct sock *sk)
{
	return (struct cc_state *)tcp_sk(sk)->inet_conn.icsk_ca_priv;
}

static __always_inline bool in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

/* A window that is not used up says nothing about the path and must not grow. */
static __always_inline bool is_cwnd_limited(const struct tcp_sock *tp)
{
	if (mpcc_bits(tp, is_cwnd_limited))
		return true;
	return in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* A step as the credit counts it; no rule moves a window by more than 32 packets per segment. */
static __always_inline __s64 q40_of(const struct mpcc_step *step)
{
	__s64 inc = (__s64)num_to_fixed(step->up, 40) - (__s64)num_to_fixed(step->down, 40);

	if (inc > 1LL << 45)
		return 1LL << 45;
	if (inc < -(1LL << 45))
		return -(1LL << 45);
	return inc;
}

/*
 * Adds acked steps to the credit and moves its whole packets to the window; the remainder stays. The
 * window keeps to [floor, snd_cwnd_clamp], and a bound that is hit takes the credit with it.
 */
static __always_inline void apply_step(struct tcp_sock *tp, struct mpcc_flow *flow, __s64 inc_q40,
				       __u32 acked, __u32 floor)
{
	__u32 cwnd = tp->snd_cwnd;
	__s64 credit, whole;

	/* 2^45 * 2^16 stays in 63 bits. */
	if (acked > 65535)
		acked = 65535;

	credit = flow->credit_q40 + inc_q40 * acked;
	whole = credit >= 0 ? credit >> 40 : -(-credit >> 40);
	if (whole) {
		__s64 next = (__s64)cwnd + whole;

		credit -= whole * MPCC_Q40_ONE;
		if (next < floor || next > tp->snd_cwnd_clamp) {
			next = next < floor ? floor : tp->snd_cwnd_clamp;
			credit = 0;
		}
		tp->snd_cwnd = next;
	}
	flow->credit_q40 = credit;
}

/*
 * A decision stands for half an RTT, unless a loss comes first. So the siblings, whose sockets may lie in
 * another core's cache, are not read at every ACK; what they do is noticed that much later.
 */
static __always_inline bool decision_stands(const struct tcp_sock *tp, const struct mpcc_flow *flow)
{
	return flow->decided && how_far(flow->decided_until_us, (__u32)tp->tcp_mstamp) > 0;
}

static __always_inline void note_decision(const struct tcp_sock *tp, struct mpcc_flow *flow)
{
	flow->decided = 1;
	flow->decided_until_us = (__u32)(tp->tcp_mstamp + (tp->srtt_us >> 4));
}

static __always_inline void track_rtt(const struct tcp_sock *tp, struct mpcc_flow *flow)
{
	/* The kernel's minimum of raw samples forgets after tcp_min_rtt_wlen; ours does not. */
	__u32 rtt_us = tp->rtt_min.s[0].v;

	if (rtt_us && rtt_us != ~0U && (!flow->base_rtt_us || rtt_us < flow->base_rtt_us))
		flow->base_rtt_us = rtt_us;
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

/* An atomic operation costs more than a look. */
static __always_inline void add(__u64 *sum, __u64 delta)
{
	if (delta)
		__sync_fetch_and_add(sum, delta);
}

static __always_inline void add_delta(struct mpcc_total *t, const struct mpcc_subflow *s,
				      const struct tcp_sock *tp, const struct mpcc_flow *flow)
{
	add(&t->bytes_acked, tp->bytes_acked - s->bytes_acked);
	add(&t->bytes_received, tp->bytes_received - s->bytes_received);
	add(&t->bytes_retrans, tp->bytes_retrans - s->bytes_retrans);
	add(&t->retrans, tp->total_retrans - s->retrans);
	add(&t->losses, flow->losses - s->losses);
	if (tp->srtt_us) {
		add(&t->rtt_sum_us, tp->srtt_us >> 3);
		add(&t->rtt[rtt_bucket(tp->srtt_us)], 1);
	}
}

/* Apart from refresh(), which has no room on its stack for the view. */
static __noinline int read_coupling(struct sock *sk, struct mpcc_subflow *s)
{
	struct mpcc_coupling coupling = {};
	struct mpcc_counter_set *c = counters();
	struct mpcc_view v;

	if (!s)
		return 0;
	view_of(&v, tcp_sk(sk), state_of(sk));
	if (v.left_out && c)
		__sync_fetch_and_add(&c->lost_siblings, 1);
	if (v.coupled)
		cc_coupling(&coupling, &v.sum, &v.self);
	s->coupling = coupling;
	return 0;
}

/* Books what has come since the last refresh. Apart from refresh(), for its stack too. */
static __noinline int book(struct sock *sk, struct mpcc_subflow *s)
{
	struct cc_state *state = state_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_total *t;

	if (!s)
		return 0;
	read_interface(tp, &s->ifindex, s->ifname);
	t = total_of(s);
	integrate_energy(s, tp, &state->flow, t, tp->tcp_mstamp);
	if (t)
		add_delta(t, s, tp, &state->flow);
	return 0;
}

/*
 * Brings the live state up to date and the totals by what has come since. Not inlined: it is off the
 * per-ACK path.
 */
static __noinline int refresh(struct sock *sk)
{
	struct cc_state *state = state_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	__u64 id = state->flow.id, now = tp->tcp_mstamp;
	__u32 every = tp->srtt_us >> 3;
	struct mpcc_subflow *s;

	if (every < MPCC_REFRESH_MIN_US)
		every = MPCC_REFRESH_MIN_US;
	state->flow.refresh_at_us = now + every;
	track_rtt(tp, &state->flow);

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
	s->base_rtt_us = state->flow.base_rtt_us;
	s->mss = tp->mss_cache;
	s->losses = state->flow.losses;
	if (tp->rate_interval_us)
		s->delivery_rate = (__u64)tp->rate_delivered * tp->mss_cache * 1000000 /
				   tp->rate_interval_us;
	return 0;
}

static __always_inline void refresh_if_due(struct sock *sk, const struct cc_state *state)
{
	if (tcp_sk(sk)->tcp_mstamp >= state->flow.refresh_at_us)
		refresh(sk);
}

/* Enters the subflow into the live map. Without room it goes on unseen and is counted. */
static __noinline int open_flow(struct sock *sk)
{
	struct cc_state *state = state_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	struct mpcc_counter_set *c = counters();
	struct mpcc_subflow *s;
	struct mpcc_total *t;
	__u64 id;

	if (!c)
		return 0;
	id = __sync_fetch_and_add(&c->last_id, 1) + 1;
	if (bpf_map_update_elem(&mpcc_subflows, &id, &no_subflow, BPF_NOEXIST)) {
		__sync_fetch_and_add(&c->lost_subflows, 1);
		return 0;
	}
	s = bpf_map_lookup_elem(&mpcc_subflows, &id);
	if (!s)
		return 0;
	state->flow.id = id;
	s->opened_us = tp->tcp_mstamp;
	s->updated_us = tp->tcp_mstamp;
	/* Not ours: what a socket did before it came to this congestion control. */
	read_counters(s, tp);
	read_identity(s, tp);
	read_interface(tp, &s->ifindex, s->ifname);
	t = total_of(s);
	if (t)
		__sync_fetch_and_add(&t->opened, 1);
	return 0;
}

static __always_inline void flow_init(struct sock *sk)
{
	__builtin_memset(state_of(sk), 0, sizeof(struct cc_state));
	open_flow(sk);
	refresh(sk);
}

/* Takes the subflow out of the live map; what it did stays in the totals. */
static __noinline int close_flow(struct sock *sk)
{
	struct cc_state *state = state_of(sk);
	__u64 id = state->flow.id;
	struct mpcc_subflow *s;
	struct mpcc_total *t;

	s = bpf_map_lookup_elem(&mpcc_subflows, &id);
	if (!s)
		return 0;
	t = total_of(s);
	if (t)
		__sync_fetch_and_add(&t->closed, 1);
	bpf_map_delete_elem(&mpcc_subflows, &id);
	state->flow.id = 0;
	return 0;
}

static __always_inline void flow_release(struct sock *sk)
{
	refresh(sk);
	close_flow(sk);
}

/* A loss event: the fraction earned before it is void, and so is the decision. */
static __always_inline void flow_loss(struct mpcc_flow *flow)
{
	flow->credit_q40 = 0;
	flow->decided = 0;
	flow->losses++;
}

#endif
