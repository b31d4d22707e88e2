/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The own fields of the packet scheduler esmptcp, drawn before a decision and checked after. */

static void draw_own(struct input *in, struct sched_own *own)
{
	struct esmptcp_memory *m = &own->memory;

	own->demand.more = draw_byte(in) & 1;
	m->chosen_us = eval.demand.now_us >> draw_byte(in) % 60;
	m->k = draw_byte(in) % (MPCC_MAX_LANES + 1);
	m->alive = draw_byte(in);
	for (__u32 i = 0; i < eval.count; i++) {
		struct esmptcp_lane *l = &own->lanes[i];

		l->rate = draw_number(in, 40);
		l->loss = num_div(num_of(draw_number(in, 32)), num_of(1ULL << 32));
		l->profile.up_uw_per_mbps = draw_number(in, 32);
		l->profile.base_uw = draw_number(in, 32);
		l->tried_us = eval.demand.now_us >> draw_byte(in) % 60;
		l->trial = draw_number(in, 32);
		l->allowed = draw_byte(in) & 1;
	}
}

static void check_own(const struct sched_own *own)
{
	require(own->memory.k <= MPCC_MAX_LANES, "k %u", own->memory.k);
	for (__u32 i = 0; i < MPCC_MAX_LANES; i++) {
		const struct esmptcp_lane *l = &own->lanes[i];

		require(eval.demand.reinject || !l->trial || !eval.verdicts[i].alive || !l->allowed,
			"subflow %u: a trial in the set", i);
		require_normal(own->verdicts[i].rate, i);
		require_normal(own->verdicts[i].cost, i);
		require_normal(own->verdicts[i].objective.value, i);
		require(own->verdicts[i].rank <= MPCC_MAX_LANES, "subflow %u: rank %u", i,
			own->verdicts[i].rank);
	}
}
