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

/*
 * What seldom changes is looked up so often, and told the live map so often, beside what is counted. Both are also due
 * when a subflow comes.
 */
#define LOOK_UP_EVERY_US 100000
#define SHOW_EVERY_US 10000

static __always_inline void read_window(struct mpcc_lane *l, const struct tcp_sock *tp,
					__u32 write_seq)
{
	__s32 in_flight = tp->packets_out + tp->retrans_out - (tp->sacked_out + tp->lost_out);

	l->srtt_us8 = tp->srtt_us;
	l->cwnd = tp->snd_cwnd;
	l->in_flight = in_flight > 0 ? in_flight : 0;
	l->queued = write_seq - tp->snd_nxt;
	l->mss = tp->mss_cache;
	l->full = !sched_memory_free(tp);
	l->carried = tp->snd_una != write_seq;
}

/*
 * What was sent before a timeout is not acknowledged yet. Without SACK the kernel keeps the state CA_Loss longer, until
 * something newer is acknowledged: who waited for the state to end would never send that.
 */
static __always_inline bool sched_timed_out(const struct tcp_sock *tp)
{
	return mpcc_bits(tp, inet_conn.icsk_ca_state) == TCP_CA_Loss && tp->snd_una != tp->high_seq;
}

/*
 * The connection's timer is to go off with the last of the timers of the subflows that make progress: a subflow that
 * makes none doubles its own time again and again, and is to be found dead soon. Where no other is to be waited for,
 * the timer takes the shortest time there is. All of this as in the kernel's own scheduler.
 */
static __always_inline void read_timeout(struct sched_state *st, const struct tcp_sock *tp,
					 bool progress)
{
	__u32 left = progress ? sched_timeout_left(tp) : 0;

	if (left > st->timeout)
		st->timeout = left;
	else if (!st->timeout)
		st->timeout_min = tp->inet_conn.icsk_rto_min;
}

/*
 * Reads subflow i of the list into its lane, and the scheduler's own memory of that subflow. When an earlier subflow of
 * the list has ended, place i holds another subflow than at the last decision. sched_active() may clear a subflow's stale
 * and stale_count, and so comes before both are read.
 */
static __always_inline void read_lane(struct sched_state *st, __u32 i,
				      struct mptcp_subflow_context *subflow,
				      const struct tcp_sock *tp, bool look_up)
{
	struct mpcc_lane *l = lane_at(&st->scene, i);
	__u32 id = subflow->subflow_id, write_seq = tp->write_seq;
	bool another = l->subflow_id != id, active;
	__u8 stale_count;

	count_lane_bytes(st, i, write_seq, another);
	if (another) {
		l->subflow_id = id;
		st->shown_us = 0;
	}
	l->backup = sched_backup(subflow);
	l->timed_out = sched_timed_out(tp);
	read_window(l, tp, write_seq);
	active = sched_active(subflow);
	stale_count = subflow->stale_count;
	if (active) {
		l->closing = 0;
		l->stale = 0;
		read_timeout(st, tp, !stale_count);
	} else {
		l->closing = 1;
		l->stale = mpcc_bits(subflow, stale);
	}
	l->stalled = 0;
	if (stale_count > 1) {
		l->stalled = 1;
		st->stalled = 1;
	}
	if (sched_hooks.start_subflow && another)
		sched_hooks.start_subflow(own_of(st), i, tp);
	if (sched_hooks.look_up_subflow && (another || look_up))
		sched_hooks.look_up_subflow(own_of(st), i, tp);
	if (sched_hooks.read_subflow)
		sched_hooks.read_subflow(own_of(st), i, tp);
}

/*
 * Notes the connection's oldest unacknowledged byte, and when that byte became the oldest. resent_to begins with the first
 * snd_una: data sequence numbers begin anywhere.
 */
static __always_inline void note_oldest(struct sched_state *st, const struct mptcp_sock *msk)
{
	if (!st->oldest_us)
		st->resent_to = msk->snd_una;
	else if (st->oldest == msk->snd_una && st->scene.demand.outstanding)
		return;
	st->oldest = msk->snd_una;
	st->oldest_us = st->scene.demand.now_us;
}

/* The least delay of Linux's delayed ACKs (TCP_DELACK_MIN). */
#define DELAYED_ACK_US 40000

/*
 * How much later than the subflow-level ACK of a byte a DATA_ACK of that byte is waited for: two round trips of the fastest
 * subflow, and a delayed ACK.
 */
static __always_inline __u64 ack_us(const struct mpcc_scene *s)
{
	__u32 least_us8 = ~0U;

	for_each_lane(i, s)
	{
		if (!lane_gone(&s->lanes[i]) && s->lanes[i].srtt_us8 < least_us8)
			least_us8 = s->lanes[i].srtt_us8;
	}
	return DELAYED_ACK_US + (least_us8 >> 2);
}

/*
 * Whether the peer has dropped the oldest byte after a subflow-level ACK: no subflow carries the byte any more, and no
 * DATA_ACK covers the byte. A Linux receiver drops data beyond the offered window so. A Linux sender sends beyond a window
 * that has shrunk, because TCP takes a smaller window from an ACK only if that ACK is new to the subflow, while MPTCP adds
 * every new DATA_ACK to the last window taken. Bytes below resent_to were sent again already, and not a third time.
 */
static __always_inline bool peer_dropped(struct sched_state *st, struct mptcp_sock *msk)
{
	const struct mpcc_demand *d = &st->scene.demand;
	struct mptcp_subflow_context *subflow;
	const struct tcp_sock *tp;

	if (!SCHED_CAN_RESEND || !d->outstanding || sched_next_seq(msk) == msk->snd_una ||
	    (__s64)(st->resent_to - msk->snd_una) > 0 ||
	    d->now_us - st->oldest_us < ack_us(&st->scene))
		return false;
	sched_for_each(subflow, tp, msk)
	{
		if (sched_carries(subflow, msk->snd_una))
			return false;
	}
	return true;
}

static __always_inline void read_scene(struct sched_state *st, struct mptcp_sock *msk,
				       bool reinject)
{
	struct mpcc_demand *d = &st->scene.demand;
	struct mptcp_subflow_context *subflow;
	const struct tcp_sock *tp;
	bool look_up;
	__u32 i = 0;

	d->now_us = now_us();
	d->window = sched_window(msk);
	d->unsent = msk->write_seq - sched_next_seq(msk);
	d->outstanding = msk->snd_nxt - msk->snd_una;
	d->reinject = reinject;
	st->timeout = 0;
	st->stalled = 0;
	look_up = d->now_us - st->looked_us >= LOOK_UP_EVERY_US;
	if (look_up)
		st->looked_us = d->now_us;
	sched_for_each(subflow, tp, msk)
	{
		if (i >= MPCC_MAX_LANES)
			break;
		read_lane(st, i, subflow, tp, look_up);
		i++;
	}
	st->scene.count = i;
	d->resent = !SCHED_CAN_RESEND || (d->resent && st->stalled);
	if (look_up)
		st->buffer = needed_buffer(&st->scene);
	/* More is needed than before, a subflow has ended and its buffer with it, or tcp_wmem allows no more. */
	if (sched_buffer(msk) < st->buffer)
		sched_grow_buffer(msk, st->buffer);
	if (sched_hooks.read_connection)
		sched_hooks.read_connection(own_of(st), &st->scene, msk);
	note_oldest(st, msk);
	d->dropped = reinject && peer_dropped(st, msk);
	if (reinject && sched_hooks.read_retrans)
		sched_hooks.read_retrans(own_of(st), msk);
}

/* Counts subflow i among those that are to send, the least of whose bursts is what all may send. */
static __always_inline void count_choice(struct sched_state *st, __u32 i)
{
	const struct mpcc_lane *l = &st->scene.lanes[i];
	__u64 burst = sched_hooks.burst ? sched_hooks.burst(own_of(st), l) : lane_room(l);

	st->chosen++;
	if (burst < st->burst)
		st->burst = burst;
}

/* Brings the live map up to date, beside the counts. */
static __noinline int show_scene(struct mpcc_sched_connection *shown, struct sched_state *st,
				 struct mptcp_sock *msk)
{
	struct mptcp_subflow_context *subflow;
	const struct tcp_sock *tp;
	__u32 i = 0, left_out = 0;

	sched_for_each(subflow, tp, msk)
	{
		if (i >= MPCC_MAX_LANES) {
			left_out++;
			continue;
		}
		show_lane(shown, st, i, subflow, tp);
		i++;
	}
	show_connection(shown, st, left_out);
	return 0;
}

/* Counts the decision, in the live map and of those that are to send. */
static __always_inline void count_scene(struct sched_state *st, struct mptcp_sock *msk,
					bool reinject)
{
	struct mpcc_sched_connection *shown = connection_entry(st);

	if (shown)
		count_decision(shown, st, reinject);
	st->chosen = 0;
	st->burst = MPCC_MOST_BURST;
	for_each_lane(i, &st->scene)
	{
		if (shown)
			count_lane(&shown->subflows[i], st, i, reinject);
		if (st->scene.verdicts[i].send)
			count_choice(st, i);
	}
	if (shown && st->scene.demand.now_us - st->shown_us >= SHOW_EVERY_US)
		show_scene(shown, st, msk);
}

/* Tells the kernel which subflows are to send. */
static __always_inline void schedule_chosen(struct sched_state *st, struct mptcp_sock *msk)
{
	struct mptcp_subflow_context *subflow;
	const struct tcp_sock *tp;
	__u32 i = 0, scheduled = 0;

	sched_for_each(subflow, tp, msk)
	{
		if (i >= MPCC_MAX_LANES)
			break;
		if (verdict_at(&st->scene, i)->send) {
			sched_set_scheduled(subflow, true);
			if (++scheduled == st->chosen)
				break;
		}
		i++;
	}
}

/*
 * Tells the kernel, and the live map: 0 if some subflow is to send. When the peer's window is full, the one that is
 * chosen probes it, as with the kernel's own scheduler.
 */
static __always_inline int apply_scene(struct sched_state *st, struct mptcp_sock *msk,
				       bool reinject)
{
	__u64 window = st->scene.demand.window;

	count_scene(st, msk, reinject);
	if (!reinject && (st->timeout || st->timeout_min))
		sched_set_timeout(msk, st->timeout ? st->timeout : st->timeout_min);
	if (!st->chosen)
		return -1;
	schedule_chosen(st, msk);
	if (window < st->burst)
		st->burst = window;
	if (st->burst)
		msk->snd_burst = st->burst;
	return 0;
}

/*
 * For a connection without a state: the first subflow that may send, a backup only if no other is active. What is
 * to be sent again goes to one that has nothing unacknowledged, a backup only if those that have are stalled.
 */
static __noinline int choose_first(struct mptcp_sock *msk, bool reinject)
{
	struct mptcp_subflow_context *subflow, *spare = NULL;
	const struct tcp_sock *tp;
	bool others = false;

	sched_for_each(subflow, tp, msk)
	{
		bool backup = sched_backup(subflow);

		if (!sched_active(subflow))
			continue;
		if (reinject && !sched_all_acked(tp)) {
			others |= subflow->stale_count <= 1;
			continue;
		}
		others |= !backup;
		if (!sched_memory_free(tp))
			continue;
		if (!backup) {
			sched_set_scheduled(subflow, true);
			return 0;
		}
		spare = subflow;
	}
	if (!spare || others)
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
	sched_decide(&st->scene, own_of(st), reinject);
	scheduled = apply_scene(st, msk, reinject);
	if (reinject && st->scene.outcome.resend) {
		st->scene.demand.resent = sched_resend(msk);
		st->resent_to = msk->snd_nxt;
	}
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
