/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A packet scheduler at work, the same for all: a live connection becomes a scene, and the decision goes to
 * the kernel and to the maps. The kernel calls with the connection's lock held, so that a state has one
 * user at a time.
 */
#ifndef MPCC_SCHED_LIVE_H
#define MPCC_SCHED_LIVE_H

#include "sched_decide.h"
#include "sched_show.h"

/* What the kernel's scheduler sends at most before it decides anew: a packet of 64 KiB with its headers. */
#define MPCC_MOST_BURST 65428

static __always_inline void read_window(struct mpcc_lane *l, const struct tcp_sock *tp)
{
	__u32 left = tp->sacked_out + tp->lost_out, out = tp->packets_out + tp->retrans_out;

	l->srtt_us8 = tp->srtt_us;
	l->cwnd = tp->snd_cwnd;
	l->in_flight = out > left ? out - left : 0;
	l->queued = tp->write_seq - tp->snd_nxt;
	l->mss = tp->mss_cache;
	l->full = !sched_memory_free(tp);
	l->carried = !sched_all_acked(tp);
}

/* One subflow's numbers. Not inlined: so the verifier checks it once, and not in every round of the walk. */
static __noinline int read_lane(struct sched_state *st, struct mptcp_subflow_context *subflow,
				__u32 i)
{
	const struct tcp_sock *tp;
	struct mpcc_lane *l;

	/* The compiler sees that i is in range, and would drop the check that shows it to the verifier. */
	barrier_var(i);
	if (!st || !subflow || i >= MPCC_MAX_LANES)
		return 0;
	l = &st->scene.lanes[i];
	tp = sched_socket(subflow);
	/* Subflows move up in the list when one before them ends. */
	if (l->subflow_id != subflow->subflow_id) {
		l->subflow_id = subflow->subflow_id;
		if (sched_hooks.start_subflow)
			sched_hooks.start_subflow(own_of(st), i, tp);
	}
	l->closing = !sched_active(subflow);
	l->stale = mpcc_bits(subflow, stale);
	l->backup = sched_backup(subflow);
	l->timed_out = mpcc_bits(&tp->inet_conn, icsk_ca_state) == TCP_CA_Loss;
	read_window(l, tp);
	if (sched_hooks.read_subflow)
		sched_hooks.read_subflow(own_of(st), i, tp);
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
	st->rto = 0;
	sched_for_each(subflow, msk)
	{
		if (i >= MPCC_MAX_LANES)
			break;
		read_lane(st, subflow, i);
		i++;
	}
	st->scene.count = i;
	if (sched_hooks.read_connection)
		sched_hooks.read_connection(own_of(st), &st->scene, msk);
	return 0;
}

static __always_inline __u64 burst_of(const struct mpcc_lane *l)
{
	return sched_hooks.burst ? sched_hooks.burst(l) : lane_room(l);
}

/*
 * Tells the kernel: 0 if some subflow is to send. When the peer's window is full, the one that is chosen
 * probes it, as with the kernel's own scheduler.
 */
static __noinline int apply_scene(struct sched_state *st, struct mptcp_sock *msk)
{
	struct mptcp_subflow_context *subflow;
	__u64 burst = MPCC_MOST_BURST;
	__u32 i = 0, chosen = 0;

	if (!st)
		return -1;
	sched_for_each(subflow, msk)
	{
		if (i >= MPCC_MAX_LANES)
			break;
		if (st->scene.verdicts[i].send) {
			__u64 most = burst_of(&st->scene.lanes[i]);

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

/*
 * For a connection without a state: the first subflow that may send, a backup only if no other may. What is to
 * be sent again goes to one that has nothing unacknowledged.
 */
static __noinline int choose_first(struct mptcp_sock *msk, bool reinject)
{
	struct mptcp_subflow_context *subflow, *spare = NULL;

	sched_for_each(subflow, msk)
	{
		const struct tcp_sock *tp = sched_socket(subflow);

		if (!sched_active(subflow) || !sched_memory_free(tp) ||
		    (reinject && !sched_all_acked(tp)))
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

static __always_inline int sched_choose(struct mptcp_sock *msk, bool reinject)
{
	struct sched_state *st = state_of_connection(msk, true);
	int scheduled;

	if (!st)
		return choose_first(msk, reinject);
	if (!st->opened)
		open_connection(msk, st);
	read_scene(st, msk, reinject);
	sched_decide(&st->scene, own_of(st));
	scheduled = apply_scene(st, msk);
	show_connection(st, msk);
	if (!reinject && sched_hooks.after_send)
		return sched_hooks.after_send(own_of(st), &st->scene, msk, scheduled);
	if (reinject && sched_hooks.after_retrans)
		return sched_hooks.after_retrans(own_of(st), &st->scene, msk, scheduled);
	return scheduled;
}

/* Nothing: a new connection has no token yet, which the live map shows. Its first decision makes the entry. */
static __always_inline void sched_init(struct mptcp_sock *msk)
{
}

static __always_inline void sched_release(struct mptcp_sock *msk)
{
	struct sched_state *st = state_of_connection(msk, false);

	if (!st)
		return;
	close_connection(st);
	drop_state(msk);
}

/* The scheduler's table, under the name that the kernel is to know it by. */
#define SCHED_TABLE(scheduler)                                                                     \
	_Static_assert(sizeof(struct sched_own) <= SCHED_OWN_BYTES, "a state has no room for it"); \
	const char mpcc_sched_name[16] = #scheduler;                                               \
	SCHED_OPS(scheduler)

#endif
