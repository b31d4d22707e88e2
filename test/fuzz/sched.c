// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes the decision of the packet scheduler ALGORITHM, compiled natively. Besides the sanitizers' own
 * checks:
 *   numbers are normal, their exponents small
 *   only subflows send that are alive and have room; backups only if nothing else is alive; one at a time,
 *   but for copies
 *   what can be sent is, unless the scheduler waits; it waits only where an ACK will come
 *   what is remembered stays within its bounds
 *   the same input gives the same decision
 */
#include "native.h"

/* It would put spaces into the path. */
/* clang-format off */
#define TEXT(x) #x
#define SOURCE(name) TEXT(sched/name.bpf.c)
/* clang-format on */
#include SOURCE(ALGORITHM)

/* The harness calls nothing that comes here. */
int sched_iter_new(struct sched_iter *it, struct mptcp_sock *msk)
{
	abort();
}

struct mptcp_subflow_context *sched_iter_next(struct sched_iter *it)
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

static void draw_lane(struct input *in, struct mpcc_lane *l, __u32 i)
{
	__u8 flags = draw_byte(in);

	l->rate = draw_number(in, 40);
	l->served = draw_number(in, 40);
	l->loss = num_div(num_of(draw_number(in, 32)), num_of(1ULL << 32));
	l->subflow_id = i + 1;
	l->srtt_us8 = draw_number(in, 32);
	l->min_srtt_us8 = draw_number(in, 32);
	l->max_srtt_us8 = draw_number(in, 32);
	l->deviation_us = draw_number(in, 32);
	l->cwnd = draw_number(in, 32);
	l->ssthresh = draw_number(in, 32);
	l->in_flight = draw_byte(in) & 1 ? l->cwnd : draw_number(in, 32);
	l->queued = draw_number(in, 32);
	l->mss = draw_number(in, 16);
	l->up_uw_per_mbps = draw_number(in, 32);
	l->base_uw = draw_number(in, 32);
	l->allowed = flags & 1;
	l->carried = flags >> 1 & 1;
	l->backup = flags >> 5 == 1;
	l->stale = flags >> 5 == 2;
	l->closing = flags >> 5 == 3;
	l->timed_out = flags >> 5 == 4;
	l->full = flags >> 5 == 5;
}

static void draw_scene(struct input *in)
{
	__u8 flags = draw_byte(in);
	struct mpcc_demand *d = &eval.demand;
	struct mpcc_memory *m = &eval.memory;

	memset(&eval, 0, sizeof(eval));
	eval.count = draw_byte(in) % (MPCC_MAX_SUBFLOWS + 1);
	d->now_us = draw_number(in, 60);
	d->window = draw_number(in, 48);
	d->unsent = draw_number(in, 48);
	d->outstanding = draw_number(in, 48);
	d->reinject = flags & 1;
	d->copying = flags >> 1 & 1;
	d->copied = flags >> 2 & 1;
	d->more = flags >> 3 & 1;
	m->waiting = flags >> 4 & 1;
	m->lambda_at_us = d->now_us >> draw_byte(in) % 60;
	m->chosen_us = d->now_us >> draw_byte(in) % 60;
	m->lambda_percent = flags >> 5 & 1 ? 100 + draw_byte(in) % 31 : 0;
	m->reinjections = flags >> 6 & 1;
	m->k = draw_byte(in) % (MPCC_MAX_SUBFLOWS + 1);
	m->alive = draw_byte(in);
	m->leader = draw_byte(in) % (MPCC_MAX_SUBFLOWS + 2);
	for (__u32 i = 0; i < eval.count; i++)
		draw_lane(in, &eval.lanes[i], i);
}

static void require_normal(struct mpcc_num x, __u32 subflow)
{
	require(!x.m || x.m >> 31, "subflow %u: m %u", subflow, x.m);
	require(x.e > -400 && x.e < 400, "subflow %u: e %d", subflow, x.e);
}

static bool living(const struct mpcc_lane *l)
{
	return !l->closing && !l->stale && !l->timed_out;
}

static bool has_room(const struct mpcc_lane *l)
{
	return l->in_flight < l->cwnd && l->queued < (__u64)(l->cwnd - l->in_flight) * l->mss;
}

static void check_scene(const struct mpcc_scene *given)
{
	__u32 sends = 0, usable = 0, ends = 0, first_choices = 0;

	for (__u32 i = 0; i < given->count; i++)
		first_choices += living(&given->lanes[i]) && !given->lanes[i].backup;
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		const struct mpcc_lane *l = &given->lanes[i];
		const struct mpcc_verdict *v = &eval.verdicts[i];

		require_normal(v->rate, i);
		require_normal(v->cost, i);
		require_normal(v->objective.value, i);
		require(i < given->count || !v->send, "subflow %u is not there", i);
		sends += v->send;
		usable += v->usable;
		ends += v->alive && !has_room(l) && (l->in_flight || l->queued);
		if (v->send)
			require(living(l) && !l->full && has_room(l) &&
					!(l->backup && first_choices),
				"subflow %u sends", i);
	}
	require(sends <= 1 || (given->demand.reinject && !strcmp(mpcc_sched_name, "redundant")),
		"%u subflows send", sends);
	require(!eval.waits || (usable && !sends), "%u usable, %u send", usable, sends);
	if (!given->demand.reinject) {
		require(sends || eval.waits || !usable, "%u usable, none sends", usable);
		require(!eval.waits || (given->demand.outstanding && ends),
			"waits with %llu outstanding, %u in flight", given->demand.outstanding,
			ends);
	}
	require(eval.memory.lambda_percent <= 130, "%u", eval.memory.lambda_percent);
	require(eval.memory.k <= MPCC_MAX_SUBFLOWS, "k %u", eval.memory.k);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	struct mpcc_scene given, first;

	draw_tunables(&in);
	draw_scene(&in);
	given = eval;
	sched_decide(&eval);
	check_scene(&given);
	first = eval;
	eval = given;
	sched_decide(&eval);
	require(!memcmp(&first, &eval, sizeof(eval)), "the second run differs");
	return 0;
}
