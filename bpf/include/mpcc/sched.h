/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The glue every packet scheduler shares: from a live connection to a scene, and from the decision to the
 * kernel and to the maps. Include after sched_rule() and, where the scheduler has them, with
 * "#define sched_burst sched_burst" and so on,
 *   sched_burst(lane)        bytes to send on a subflow before the next decision: what its window takes
 *   sched_look(msk, scene)   adds to the scene before the decision
 *   sched_allowed(lane)      whether it is in the set that may be used: 1
 *   sched_chose(scene)       whether it has just chosen a set, to be shown
 *   sched_answer(msk, scene, reinject, result)   what it answers, and does, last: result
 *
 * A connection's scene is kept in a map of the scheduler's; without room for it the first subflow that may
 * send does, and the connection goes on. The kernel calls with the connection's lock held, so a scene has
 * one user.
 */
#ifndef MPCC_SCHED_H
#define MPCC_SCHED_H

#include "scene.h"
#include "sched_kernel.h"
#include "sched_telemetry.h"

#ifndef sched_burst
#define sched_burst(lane) lane_room(lane)
#endif
#ifndef sched_look
#define sched_look(msk, scene)
#endif
#ifndef sched_answer
#define sched_answer(msk, scene, reinject, result) result
#endif
#ifndef sched_allowed
#define sched_allowed(lane) 1
#endif
#ifndef sched_chose
#define sched_chose(scene) false
#endif

/* What the kernel's scheduler sends at most before it decides anew: a packet of 64 KiB with its headers. */
#define MPCC_MOST_BURST 65428

/* Connections that one scheduler can keep in mind; beyond, they have their first subflow chosen. */
#define MPCC_MAX_SCHED_STATES 65536

/* A subflow's loss is looked at when it has sent so much more. */
#define MPCC_LOSS_BYTES 65536

/* What is remembered of a subflow beside its lane. */
struct sched_lane_state {
	__u64 sent; /* bytes, when the loss was last looked at */
	__u64 retrans;
	__u64 lately_sent; /* bytes, each look back weighing 7/8 of the next */
	__u64 lately_lost;
	__u32 write_seq; /* when served was last counted */
};

struct sched_state {
	__u64 id; /* key of the live state in the map; 0 = has none */
	__u32 opened; /* it was asked for */
	__u32 rto; /* jiffies; the longest of the subflows that carry data */
	struct sched_lane_state lanes[MPCC_MAX_SUBFLOWS];
	struct mpcc_scene scene;
};

/*
 * By the address of the kernel's connection, from the first decision to the release. Not in the
 * socket's own storage: since Linux 7.0 that cannot be had on machines without cmpxchg16b.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MPCC_MAX_SCHED_STATES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct sched_state);
} mpcc_sched_own SEC(".maps");

static const struct sched_state no_state;
static const struct mpcc_sched_connection no_connection;
static const struct mpcc_sched_total no_sched_total;

static __always_inline __u64 now_us(void)
{
	return bpf_ktime_get_ns() / 1000;
}

static __always_inline struct mpcc_sched_counter_set *sched_counters(void)
{
	__u32 slot = 0;

	return bpf_map_lookup_elem(&mpcc_sched_lost, &slot);
}

static __always_inline struct mpcc_sched_connection *connection_entry(const struct sched_state *st)
{
	__u64 id = st->id;

	return id ? bpf_map_lookup_elem(&mpcc_sched_conn, &id) : NULL;
}

static __always_inline struct mpcc_sched_total *
sched_total_of(const struct mpcc_sched_connection *c)
{
	struct mpcc_sched_total_key key = { .netns_cookie = c->netns_cookie };
	struct mpcc_sched_counter_set *lost;
	struct mpcc_sched_total *t;

	__builtin_memcpy(key.scheduler, c->scheduler, sizeof(key.scheduler));
	t = bpf_map_lookup_elem(&mpcc_sched_sums, &key);
	if (!t) {
		/* Two connections may race to create it: the loser finds the winner's. */
		bpf_map_update_elem(&mpcc_sched_sums, &key, &no_sched_total, BPF_NOEXIST);
		t = bpf_map_lookup_elem(&mpcc_sched_sums, &key);
	}
	lost = sched_counters();
	if (t) {
		t->netns = c->netns;
		t->updated_us = c->updated_us;
	} else if (lost) {
		__sync_fetch_and_add(&lost->lost_totals, 1);
	}
	return t;
}

/* The scheduler's name, by SCHEDULER below. */
extern const char mpcc_sched_name[16];

/* Enters the connection into the live map. Without room it goes on unseen and is counted. */
static __noinline int open_connection(struct mptcp_sock *msk, struct sched_state *st)
{
	struct mpcc_sched_counter_set *counters = sched_counters();
	struct mpcc_sched_connection *c;
	struct mpcc_sched_total *t;
	__u64 id;

	if (!st || !counters)
		return 0;
	st->opened = 1;
	id = __sync_fetch_and_add(&counters->last_id, 1) + 1;
	if (bpf_map_update_elem(&mpcc_sched_conn, &id, &no_connection, BPF_NOEXIST)) {
		__sync_fetch_and_add(&counters->lost_connections, 1);
		return 0;
	}
	c = bpf_map_lookup_elem(&mpcc_sched_conn, &id);
	if (!c)
		return 0;
	st->id = id;
	c->opened_us = now_us();
	c->updated_us = c->opened_us;
	c->netns = msk->sk.icsk_inet.sk.__sk_common.skc_net.net->ns.inum;
	c->netns_cookie = msk->sk.icsk_inet.sk.__sk_common.skc_net.net->net_cookie;
	c->token = msk->token;
	__builtin_memcpy(c->scheduler, mpcc_sched_name, sizeof(c->scheduler));
	t = sched_total_of(c);
	if (t)
		__sync_fetch_and_add(&t->opened, 1);
	return 0;
}

/* Takes the connection out of the live map; what it did stays in the totals. */
static __noinline int close_connection(struct sched_state *st)
{
	struct mpcc_sched_connection *c;
	struct mpcc_sched_total *t;
	__u64 id, bytes = 0;

	if (!st)
		return 0;
	id = st->id;
	c = connection_entry(st);
	if (!c)
		return 0;
	t = sched_total_of(c);
	if (t) {
		for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
			bytes += c->subflows[i].bytes;
		__sync_fetch_and_add(&t->closed, 1);
		__sync_fetch_and_add(&t->decisions, c->decisions);
		__sync_fetch_and_add(&t->waits, c->waits);
		__sync_fetch_and_add(&t->retransmissions, c->retransmissions);
		__sync_fetch_and_add(&t->bytes, bytes);
	}
	bpf_map_delete_elem(&mpcc_sched_conn, &id);
	st->id = 0;
	return 0;
}

/* The interface that the subflow sends through; 0 while it has no route. */
static __always_inline __u32 sched_ifindex(const struct tcp_sock *tp)
{
	const struct dst_entry *dst = tp->inet_conn.icsk_inet.sk.sk_dst_cache;
	const struct net_device *dev;

	if (!dst)
		return 0;
	dst = bpf_rdonly_cast(dst, mpcc_type_id(struct dst_entry));
	dev = bpf_rdonly_cast(dst->dev, mpcc_type_id(struct net_device));
	return dev->ifindex;
}

#ifdef SCHED_ENERGY
static __always_inline void read_profile(struct mpcc_lane *l, const struct mptcp_sock *msk,
					 const struct tcp_sock *tp)
{
	struct mpcc_energy_key key = {
		.netns_cookie = msk->sk.icsk_inet.sk.__sk_common.skc_net.net->net_cookie,
		.ifindex = sched_ifindex(tp),
	};
	const struct mpcc_energy_profile *p = bpf_map_lookup_elem(&mpcc_energy, &key);

	l->up_uw_per_mbps = p ? p->up_uw_per_mbps : 0;
	l->base_uw = p ? p->base_uw : 0;
}

/* Rate and loss, which only these schedulers look at. */
static __always_inline void read_quality(struct mpcc_lane *l, struct sched_lane_state *seen,
					 const struct tcp_sock *tp)
{
	__u64 sent = tp->bytes_sent - seen->sent;

	l->rate = 0;
	if (tp->rate_interval_us)
		l->rate = (__u64)tp->rate_delivered * tp->mss_cache * 1000000 /
			  tp->rate_interval_us;
	if (sent < MPCC_LOSS_BYTES)
		return;
	seen->lately_sent += sent - seen->lately_sent / 8;
	seen->lately_lost += tp->bytes_retrans - seen->retrans - seen->lately_lost / 8;
	seen->sent = tp->bytes_sent;
	seen->retrans = tp->bytes_retrans;
	l->loss = num_div(num_of(seen->lately_lost), num_of(seen->lately_sent));
}
#else
#define read_profile(lane, msk, tp)
#define read_quality(lane, seen, tp)
#endif

static __always_inline void read_window(struct mpcc_lane *l, const struct tcp_sock *tp)
{
	__u32 left = tp->sacked_out + tp->lost_out, out = tp->packets_out + tp->retrans_out;

	l->srtt_us8 = tp->srtt_us;
	if (!l->min_srtt_us8 || l->srtt_us8 < l->min_srtt_us8)
		l->min_srtt_us8 = l->srtt_us8;
	if (l->srtt_us8 > l->max_srtt_us8)
		l->max_srtt_us8 = l->srtt_us8;
	l->deviation_us = tp->rttvar_us >> 1;
	l->cwnd = tp->snd_cwnd;
	l->ssthresh = tp->snd_ssthresh;
	l->in_flight = out > left ? out - left : 0;
	l->queued = tp->write_seq - tp->snd_nxt;
	l->mss = tp->mss_cache;
	l->full = !sched_memory_free(tp);
	l->carried = !sched_idle(tp);
}

/* One subflow's numbers. Not inlined: the walk is checked once, this once. */
static __noinline int read_lane(struct sched_state *st, struct mptcp_sock *msk,
				struct mptcp_subflow_context *subflow, __u32 i)
{
	const struct tcp_sock *tp;
	struct sched_lane_state *seen;
	struct mpcc_lane *l;

	/* The compiler knows that it is; the verifier does not. */
	barrier_var(i);
	if (!st || !subflow || i >= MPCC_MAX_SUBFLOWS)
		return 0;
	l = &st->scene.lanes[i];
	seen = &st->lanes[i];
	tp = sched_socket(subflow);
	/* One that moves up when another ends starts anew. */
	if (l->subflow_id != subflow->subflow_id) {
		__builtin_memset(l, 0, sizeof(*l));
		__builtin_memset(seen, 0, sizeof(*seen));
		l->subflow_id = subflow->subflow_id;
		seen->write_seq = tp->write_seq;
	}
	l->closing = !sched_active(subflow);
	l->stale = mpcc_bits(subflow, stale);
	l->backup = sched_backup(subflow);
	l->timed_out = mpcc_bits(&tp->inet_conn, icsk_ca_state) == TCP_CA_Loss;
	l->served += tp->write_seq - seen->write_seq;
	seen->write_seq = tp->write_seq;
	read_window(l, tp);
	read_profile(l, msk, tp);
	read_quality(l, seen, tp);
	if (!l->closing && l->carried && st->rto < tp->inet_conn.icsk_rto)
		st->rto = tp->inet_conn.icsk_rto;
	return 0;
}

static __noinline int read_scene(struct sched_state *st, struct mptcp_sock *msk, bool reinject)
{
	struct mptcp_subflow_context *subflow;
	struct mpcc_demand *d;
	__u32 i = 0;

	if (!st)
		return 0;
	d = &st->scene.demand;
	d->now_us = now_us();
	d->window = sched_window(msk);
	d->unsent = msk->write_seq - sched_next_seq(msk);
	d->outstanding = msk->snd_nxt - msk->snd_una;
	d->reinject = reinject;
	d->more = 2LL * msk->sk.icsk_inet.sk.sk_wmem_queued > msk->sk.icsk_inet.sk.sk_sndbuf;
	st->rto = 0;
	sched_for_each(subflow, msk)
	{
		if (i >= MPCC_MAX_SUBFLOWS)
			break;
		read_lane(st, msk, subflow, i);
		i++;
	}
	st->scene.count = i;
	return 0;
}

/* Tells the kernel. A window that is full has the chosen subflow probe it, as the kernel's scheduler does. */
static __noinline int apply_scene(struct sched_state *st, struct mptcp_sock *msk)
{
	struct mptcp_subflow_context *subflow;
	__u64 burst = MPCC_MOST_BURST;
	__u32 i = 0, chosen = 0;

	if (!st)
		return -1;
	sched_for_each(subflow, msk)
	{
		if (i >= MPCC_MAX_SUBFLOWS)
			break;
		if (st->scene.verdicts[i].send) {
			__u64 most = sched_burst(&st->scene.lanes[i]);

			sched_set_scheduled(subflow, true);
			chosen++;
			if (most < burst)
				burst = most;
		}
		i++;
	}
	if (st->rto)
		sched_set_timeout(msk, st->rto);
	if (!chosen)
		return -1;
	if (st->scene.demand.window < burst)
		burst = st->scene.demand.window;
	if (burst)
		msk->snd_burst = burst;
	return 0;
}

/* One subflow's part of the live state. */
static __noinline int show_lane(struct sched_state *st, struct mptcp_subflow_context *subflow,
				__u32 i)
{
	struct mpcc_sched_connection *c;
	struct mpcc_sched_subflow *s;
	const struct mpcc_verdict *v;
	const struct tcp_sock *tp;
	const struct mpcc_lane *l;

	barrier_var(i);
	if (!st || !subflow || i >= MPCC_MAX_SUBFLOWS)
		return 0;
	c = connection_entry(st);
	if (!c)
		return 0;
	s = &c->subflows[i];
	l = &st->scene.lanes[i];
	v = &st->scene.verdicts[i];
	tp = sched_socket(subflow);
	if (s->subflow_id != l->subflow_id) {
		__builtin_memset(s, 0, sizeof(*s));
		s->subflow_id = l->subflow_id;
		s->write_seq = tp->write_seq;
		s->local_id = subflow->local_id;
		s->remote_id = subflow->remote_id;
	}
	s->bytes += tp->write_seq - s->write_seq;
	s->write_seq = tp->write_seq;
	s->backup = l->backup;
	s->ifindex = sched_ifindex(tp);
	s->allowed = sched_allowed(l);
	if (v->cost.m) {
		s->rate = v->rate;
		s->cost = v->cost;
	}
	if (st->scene.demand.reinject) {
		s->retransmitted += v->send;
		return 0;
	}
	s->chosen += v->send;
	s->refused += v->refused;
	s->full += v->alive && !lane_room(l);
	return 0;
}

static __noinline int show_connection(struct sched_state *st, struct mptcp_sock *msk)
{
	struct mptcp_subflow_context *subflow;
	struct mpcc_sched_connection *c;
	__u32 i = 0;

	if (!st)
		return 0;
	c = connection_entry(st);
	if (!c)
		return 0;
	c->updated_us = st->scene.demand.now_us;
	if (st->scene.demand.reinject) {
		c->retransmissions++;
	} else {
		c->decisions++;
		c->waits += st->scene.waits;
	}
	sched_for_each(subflow, msk)
	{
		if (i >= MPCC_MAX_SUBFLOWS)
			break;
		show_lane(st, subflow, i);
		i++;
	}
	c->count = i;
	return 0;
}

/* The set just chosen (esmptcp). */
static __noinline int show_choice(struct sched_state *st)
{
	struct mpcc_sched_connection *c;
	struct mpcc_sched_choice *choice;

	if (!st)
		return 0;
	c = connection_entry(st);
	if (!c)
		return 0;
	choice = &c->choice;
	choice->chosen_us = st->scene.memory.chosen_us;
	choice->changes = st->scene.memory.changes;
	choice->bytes = st->scene.memory.size;
	choice->k = st->scene.memory.k;
	choice->count = 0;
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		const struct mpcc_verdict *v = &st->scene.verdicts[i];

		choice->objective[i] = v->objective;
		if (!v->rank)
			continue;
		choice->order[(v->rank - 1) & (MPCC_MAX_SUBFLOWS - 1)] = i;
		choice->count++;
	}
	return 0;
}

/* Without a state: the first subflow that may send, of those without data out for what is sent again. */
static __noinline int choose_first(struct mptcp_sock *msk, bool reinject)
{
	struct mptcp_subflow_context *subflow, *spare = NULL;

	sched_for_each(subflow, msk)
	{
		const struct tcp_sock *tp = sched_socket(subflow);

		if (!sched_active(subflow) || !sched_memory_free(tp) ||
		    (reinject && !sched_idle(tp)))
			continue;
		if (!sched_backup(subflow)) {
			sched_set_scheduled(subflow, true);
			return 0;
		}
		spare = subflow;
	}
	if (!spare)
		return -1;
	sched_set_scheduled(spare, true);
	return 0;
}

static __always_inline struct sched_state *state_of_connection(const struct mptcp_sock *msk,
							       bool create)
{
	__u64 key = (__u64)(long)msk;
	struct sched_state *st = bpf_map_lookup_elem(&mpcc_sched_own, &key);

	if (st || !create)
		return st;
	bpf_map_update_elem(&mpcc_sched_own, &key, &no_state, BPF_NOEXIST);
	return bpf_map_lookup_elem(&mpcc_sched_own, &key);
}

static __always_inline int sched_choose(struct mptcp_sock *msk, bool reinject)
{
	struct sched_state *st = state_of_connection(msk, true);
	int result;

	if (!st)
		return choose_first(msk, reinject);
	if (!st->opened)
		open_connection(msk, st);
	read_scene(st, msk, reinject);
	sched_look(msk, &st->scene);
	sched_decide(&st->scene);
	result = apply_scene(st, msk);
	if (reinject && !result)
		st->scene.memory.reinjections++;
	show_connection(st, msk);
	if (sched_chose(&st->scene))
		show_choice(st);
	return sched_answer(msk, &st->scene, reinject, result);
}

/* A connection is not entered before its first decision: only then has it a token. */
static __always_inline void sched_init(struct mptcp_sock *msk)
{
}

static __always_inline void sched_release(struct mptcp_sock *msk)
{
	__u64 key = (__u64)(long)msk;
	struct sched_state *st = state_of_connection(msk, false);

	if (!st)
		return;
	close_connection(st);
	bpf_map_delete_elem(&mpcc_sched_own, &key);
}

/* The scheduler's table, and its name for the maps. */
#define SCHEDULER(name)                         \
	const char mpcc_sched_name[16] = #name; \
	SCHED_OPS(name)

#endif
