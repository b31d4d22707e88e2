/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a packet scheduler writes into the maps of sched_telemetry.h: live state and totals. */
#ifndef MPCC_SCHED_SHOW_H
#define MPCC_SCHED_SHOW_H

#include "sched_kernel.h"
#include "sched_state.h"

static const struct mpcc_sched_connection no_connection;
static const struct mpcc_sched_total no_sched_total;

/* The scheduler's name: SCHED_TABLE defines it. */
extern const char mpcc_sched_name[16];

static __always_inline __u64 now_us(void)
{
	return bpf_ktime_get_ns() / 1000;
}

static __always_inline struct mpcc_sched_counter_set *sched_counters(void)
{
	__u32 slot = 0;

	return bpf_map_lookup_elem(&mpcc_sched_lost, &slot);
}

/* The connection's entry in the live map; NULL if it has none. */
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

/*
 * Enters the connection into the live map. Without room, there or in its namespace's share, it goes on unseen and is
 * counted.
 */
static __noinline int open_connection(struct mptcp_sock *msk, struct sched_state *st)
{
	struct mpcc_sched_counter_set *counters = sched_counters();
	struct mpcc_sched_connection *c;
	struct mpcc_sched_total *t;
	struct mpcc_share *share;
	__u64 cookie, id;

	if (!st || !counters)
		return 0;
	st->opened = 1;
	cookie = msk->sk.icsk_inet.sk.__sk_common.skc_net.net->net_cookie;
	id = __sync_fetch_and_add(&counters->last_id, 1) + 1;
	share = share_of(cookie);
	if (!share || !make_entry(&mpcc_sched_conn, &id, &no_connection, &share->connections,
				  mpcc_namespace_shown)) {
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
	c->netns_cookie = cookie;
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
	struct mpcc_share *share;
	__u64 id, bytes;

	if (!st)
		return 0;
	id = st->id;
	c = connection_entry(st);
	if (!c)
		return 0;
	t = sched_total_of(c);
	if (t) {
		bytes = st->bytes_gone;
		for (__u32 i = 0; i < MPCC_MAX_LANES; i++)
			bytes += st->bytes[i].handed;
		__sync_fetch_and_add(&t->closed, 1);
		__sync_fetch_and_add(&t->decisions, c->decisions);
		__sync_fetch_and_add(&t->waits, c->waits);
		__sync_fetch_and_add(&t->retransmissions, c->retransmissions);
		__sync_fetch_and_add(&t->repeats, c->repeats);
		__sync_fetch_and_add(&t->bytes, bytes);
	}
	share = share_of(c->netns_cookie);
	if (share)
		drop_entry(&mpcc_sched_conn, &id, &share->connections);
	st->id = 0;
	return 0;
}

/* Counts what subflow i has got since the last decision; from now on if it is another one than then. */
static __always_inline void count_lane_bytes(struct sched_state *st, __u32 i, __u32 write_seq,
					     bool another)
{
	struct lane_bytes *n = element_of(st->bytes, i);

	if (another) {
		st->bytes_gone += n->handed;
		n->handed = 0;
	} else {
		n->handed += write_seq - n->write_seq;
	}
	n->write_seq = write_seq;
}

/* Counts what was decided of subflow i. */
static __always_inline void count_lane(struct mpcc_sched_subflow *s, const struct sched_state *st,
				       __u32 i, bool reinject)
{
	const struct mpcc_verdict *v = &st->scene.verdicts[i];
	const struct mpcc_lane *l = &st->scene.lanes[i];

	if (s->subflow_id != l->subflow_id) {
		__builtin_memset(s, 0, sizeof(*s));
		s->subflow_id = l->subflow_id;
	}
	s->bytes = st->bytes[i].handed;
	if (reinject) {
		s->retransmitted += v->send;
		s->repeated += st->scene.outcome.repeats == i + 1;
		return;
	}
	if (v->send)
		s->chosen++;
	if (v->refused)
		s->refused++;
	if (!v->usable && v->alive && !lane_room(l))
		s->full++;
}

/* Counts a decision in the live state; count_lane() counts it for each subflow. */
static __always_inline void count_decision(struct mpcc_sched_connection *c,
					   const struct sched_state *st, bool reinject)
{
	if (reinject) {
		c->retransmissions++;
		c->repeats += !!st->scene.outcome.repeats;
	} else {
		c->decisions++;
		c->waits += st->scene.outcome.waits;
	}
	c->count = st->scene.count;
	c->updated_us = st->scene.demand.now_us;
}

/* One subflow's part of the live state, beside the counts. */
static __always_inline void show_lane(struct mpcc_sched_connection *c, struct sched_state *st,
				      __u32 i, const struct mptcp_subflow_context *subflow,
				      const struct tcp_sock *tp)
{
	struct mpcc_sched_subflow *s = element_of(c->subflows, i);

	s->local_id = subflow->local_id;
	s->remote_id = subflow->remote_id;
	s->backup = lane_at(&st->scene, i)->backup;
	s->ifindex = sched_ifindex(tp);
	s->allowed = 1;
	if (sched_hooks.show_subflow)
		sched_hooks.show_subflow(s, own_of(st), &st->scene, i);
}

/* The connection's part of it, once its subflows are shown: so many more that a decision does not look at. */
static __always_inline void show_connection(struct mpcc_sched_connection *c, struct sched_state *st,
					    __u32 left_out)
{
	st->shown_us = st->scene.demand.now_us;
	c->left_out = left_out;
	if (sched_hooks.show_choice)
		sched_hooks.show_choice(&c->choice, own_of(st), &st->scene);
}

#endif
