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
		for (__u32 i = 0; i < MPCC_MAX_LANES; i++)
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

/* One subflow's part of the live state. */
static __noinline int show_lane(struct sched_state *st, struct mptcp_subflow_context *subflow,
				__u32 i)
{
	struct mpcc_sched_connection *c;
	struct mpcc_sched_subflow *s;
	const struct mpcc_verdict *v;
	const struct tcp_sock *tp;
	const struct mpcc_lane *l;

	/* The compiler sees that i is in range, and would drop the check that shows it to the verifier. */
	barrier_var(i);
	if (!st || !subflow || i >= MPCC_MAX_LANES)
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
		s->allowed = 1;
	}
	s->bytes += tp->write_seq - s->write_seq;
	s->write_seq = tp->write_seq;
	s->backup = l->backup;
	s->ifindex = sched_ifindex(tp);
	if (sched_hooks.show_subflow)
		sched_hooks.show_subflow(s, own_of(st), i);
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
	__u32 i = 0, left_out = 0;

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
		c->waits += st->scene.outcome.waits;
	}
	if (sched_hooks.show_choice)
		sched_hooks.show_choice(&c->choice, own_of(st), &st->scene);
	sched_for_each(subflow, msk)
	{
		if (i >= MPCC_MAX_LANES) {
			left_out++;
			continue;
		}
		show_lane(st, subflow, i);
		i++;
	}
	c->count = i;
	c->left_out = left_out;
	return 0;
}

#endif
