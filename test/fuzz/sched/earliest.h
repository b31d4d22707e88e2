/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The own fields of the packet scheduler earliest, drawn before a decision and checked after. */

static void draw_own(struct input *in, struct sched_own *own)
{
	__u8 flags = draw_byte(in);

	own->demand.early = flags & 1;
	own->demand.repeating = flags >> 1 & 1;
	own->demand.repeated = flags >> 2 & 1;
	own->demand.fresh = draw_number(in, 40);
	own->demand.waited_us = draw_number(in, 32);
	own->demand.awaited = draw_number(in, 32);
	own->demand.piece = draw_number(in, 16);
	own->memory.last = draw_byte(in) % (MPCC_MAX_LANES + 2);
	own->memory.slow = draw_byte(in) % (MPCC_MAX_LANES + 2);
	for (__u32 i = 0; i < eval.count; i++) {
		struct earliest_lane *lane = &own->lanes[i];

		flags = draw_byte(in);
		lane->holds = flags & 1;
		lane->growing = flags >> 1 & 1;
		lane->rate = draw_number(in, 64);
		lane->counted_rate = draw_number(in, 64);
		lane->least_rtt_us = draw_number(in, 32);
		lane->carried_bytes = draw_number(in, 32);
	}
}

static __u64 sent_at_most(const struct sched_own *own, __u32 i, __u64 us8)
{
	struct sched_own copy = *own;

	return sent_in(&eval, &copy, i, us8);
}

/*
 * More bytes arrive no sooner. In any time a subflow sends no more than in MOST_ROUNDS round trips. The timer sends again
 * only what a subflow holds, and not what is being sent again already.
 */
static void check_own(const struct sched_own *own)
{
	__u32 repeats = eval.outcome.repeats;

	for (__u32 i = 0; i < eval.count; i++) {
		__u64 nothing = arrival_of(&eval.lanes[i], &own->lanes[i], own->windows[i], 0);
		__u64 piece = arrival_of(&eval.lanes[i], &own->lanes[i], own->windows[i],
					 own->demand.piece);

		require(nothing <= piece && piece < 1ULL << 63, "subflow %u: %llu, %llu", i,
			(unsigned long long)nothing, (unsigned long long)piece);
		require(sent_at_most(own, i, 1ULL << 62) ==
				sent_at_most(own, i, MOST_ROUNDS * eval.lanes[i].srtt_us8),
			"subflow %u: %llu", i,
			(unsigned long long)sent_at_most(own, i, 1ULL << 62));
	}
	if (!repeats)
		return;
	require(repeats <= eval.count && own->lanes[repeats - 1].holds, "subflow %u of %u", repeats,
		eval.count);
	require(eval.demand.reinject && own->demand.early && !own->demand.repeating &&
			!own->demand.repeated,
		"subflow %u", repeats);
}
