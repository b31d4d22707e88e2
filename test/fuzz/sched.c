// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The decision of one packet scheduler (-DALGORITHM=blest) on any input. The scheduler's own fields (struct sched_own) are
 * drawn and checked by sched/ALGORITHM.h. Besides that and the sanitizers' own checks:
 *   only subflows that are present and have room send, or start the timer; backups only if nothing else is present, or for a
 *   retransmission that no other subflow can send; one at a time, but for copies
 *   what can be sent is, unless the scheduler waits, which is only where an ACK will come or the timer goes off
 *   the same input gives the same decision
 *   where the scheduler tells timeouts from its own timer, a timeout is due after two RTTs of the slowest subflow and 100 ms
 */
#include "native.h"

/* The formatter would put spaces into the path. */
/* clang-format off */
#define DRAWN(name) TEXT(sched/name.h)
/* clang-format on */
#include SOURCE(sched, ALGORITHM)

#if __has_include(DRAWN(ALGORITHM))
#include DRAWN(ALGORITHM)
#else
_Static_assert(sizeof(struct sched_own) == 0, "a header in test/fuzz/sched has to draw it");

static void draw_own(struct input *in, struct sched_own *own)
{
}

static void check_own(const struct sched_own *own)
{
}
#endif

#ifndef ENDS_ITS_WAIT
#define ENDS_ITS_WAIT(own) 0
#endif

/* A decision alone calls none of the kernel's functions. */
int sched_iter_new(struct sched_iter *it, struct mptcp_sock *msk)
{
	abort();
}

struct mptcp_xsched_subflow *sched_iter_next(struct sched_iter *it)
{
	abort();
}

void sched_iter_destroy(struct sched_iter *it)
{
	abort();
}

void sched_set_scheduled(struct mptcp_subflow_context *subflow, bool scheduled)
{
	abort();
}

bool sched_active(struct mptcp_subflow_context *subflow)
{
	abort();
}

bool sched_resend(struct mptcp_sock *msk)
{
	abort();
}

bool sched_carries(struct mptcp_subflow_context *subflow, __u64 seq)
{
	abort();
}

bool sched_resend_of(struct mptcp_sock *msk, struct mptcp_subflow_context *subflow)
{
	abort();
}

void sched_grow_buffer(struct mptcp_sock *msk, __u64 bytes)
{
	abort();
}

static void draw_lane(struct input *in, struct mpcc_lane *l, __u32 i)
{
	__u8 flags = draw_byte(in);

	l->subflow_id = i + 1;
	l->srtt_us8 = draw_number(in, 32);
	l->cwnd = draw_number(in, 32);
	l->in_flight = draw_byte(in) & 1 ? l->cwnd : draw_number(in, 32);
	l->queued = draw_number(in, 32);
	l->mss = draw_number(in, 16);
	l->carried = flags & 1;
	l->stalled = flags >> 1 & 1;
	l->timed_out = flags >> 2 & 1;
	l->backup = flags >> 3 & 1;
	l->stale = flags >> 5 == 2;
	l->closing = flags >> 5 == 3;
	l->full = flags >> 5 == 5;
}

static void draw_scene(struct input *in)
{
	struct mpcc_demand *d = &eval.demand;

	memset(&eval, 0, sizeof(eval));
	eval.count = draw_byte(in) % (MPCC_MAX_LANES + 1);
	d->now_us = draw_number(in, 60);
	d->window = draw_number(in, 48);
	d->unsent = draw_number(in, 48);
	d->outstanding = draw_number(in, 48);
	d->reinject = draw_byte(in) & 1;
	d->resent = draw_byte(in) & 1;
	d->dropped = !(draw_byte(in) & 7);
	for (__u32 i = 0; i < eval.count; i++)
		draw_lane(in, &eval.lanes[i], i);
	memset(eval_own, 0, sizeof(eval_own));
	draw_own(in, (struct sched_own *)eval_own);
}

static bool is_present(const struct mpcc_lane *l)
{
	return !l->closing && !l->stale;
}

static bool has_room(const struct mpcc_lane *l)
{
	return l->in_flight < l->cwnd && l->queued < (__u64)(l->cwnd - l->in_flight) * l->mss;
}

/* Retransmits also on subflows that may have carried the data. */
#define makes_copies !strcmp(mpcc_sched_name, "redundant")

/* Whether subflow l may send beside the others. */
static bool may_send(const struct mpcc_scene *given, const struct mpcc_lane *l)
{
	bool reinject = given->demand.reinject, starts = l->timed_out && !given->demand.outstanding;
	__u32 first_choices = 0, better = 0, retransmit = 0, stalled = 0;

	for (__u32 i = 0; i < given->count; i++) {
		const struct mpcc_lane *other = &given->lanes[i];

		first_choices += is_present(other) && !other->backup;
		better += is_present(other) && other->backup == l->backup && !other->timed_out;
		stalled += other->carried && other->stalled;
		retransmit += !other->closing && other->carried && !other->stalled;
		retransmit += is_present(other) && !other->backup && !other->timed_out &&
			      !other->carried;
	}
	if (!is_present(l) || l->full)
		return false;
	if (reinject)
		return has_room(l) && !l->timed_out && !(l->backup && retransmit) &&
		       (makes_copies || !l->carried || (stalled && !l->stalled));
	return (has_room(l) || starts) && !(l->backup && first_choices) &&
	       !(l->timed_out && better);
}

static void check_patience(const struct mpcc_scene *given)
{
#ifdef MPCC_SCHED_PATIENCE_H
	__u64 rtts_us = 0;

	for (__u32 i = 0; i < given->count; i++)
		if (2ULL * given->lanes[i].srtt_us8 / 8 > rtts_us)
			rtts_us = 2ULL * given->lanes[i].srtt_us8 / 8;
	require(patience_us(given) == 100000 + rtts_us, "%llu us, want %llu", patience_us(given),
		100000 + rtts_us);
#endif
}

static void check_scene(const struct mpcc_scene *given)
{
	__u32 sends = 0, usable = 0, ends = 0;

	for (__u32 i = 0; i < MPCC_MAX_LANES; i++) {
		const struct mpcc_lane *l = &given->lanes[i];
		const struct mpcc_verdict *v = &eval.verdicts[i];

		require(i < given->count || !v->send, "subflow %u is not there", i);
		sends += v->send;
		usable += v->usable;
		ends += v->alive && (l->full || !has_room(l)) && (l->in_flight || l->queued);
		require(!v->send || may_send(given, l), "subflow %u sends", i);
	}
	require(sends <= 1 || (given->demand.reinject && makes_copies), "%u subflows send", sends);
	require(!eval.outcome.resend || (given->demand.reinject && !sends && !eval.outcome.waits),
		"%u subflows send, waits %u", sends, eval.outcome.waits);
	require(!given->demand.reinject || !given->demand.dropped || eval.outcome.resend,
		"dropped, and not sent again");
	require(!eval.outcome.waits || (usable && !sends), "%u usable, %u send", usable, sends);
	if (!given->demand.reinject) {
		require(sends || eval.outcome.waits || !usable, "%u usable, none sends", usable);
		require(!eval.outcome.waits || ENDS_ITS_WAIT((struct sched_own *)eval_own) ||
				(given->demand.outstanding && ends),
			"waits with %llu outstanding, %u in flight", given->demand.outstanding,
			ends);
	}
	check_own((const struct sched_own *)eval_own);
}

/* All that a decision reads and writes. */
struct snapshot {
	struct mpcc_scene scene;
	__u8 own[sizeof(eval_own)];
};

static void save(struct snapshot *s)
{
	memset(s, 0, sizeof(*s));
	s->scene = eval;
	memcpy(s->own, eval_own, sizeof(s->own));
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	struct snapshot given, first, second;

	draw_tunables(&in);
	draw_scene(&in);
	save(&given);
	mpcc_eval(NULL);
	check_scene(&given.scene);
	check_patience(&given.scene);
	save(&first);
	eval = given.scene;
	memcpy(eval_own, given.own, sizeof(eval_own));
	mpcc_eval(NULL);
	save(&second);
	require(!memcmp(&first, &second, sizeof(first)), "the second run differs");
	return 0;
}
