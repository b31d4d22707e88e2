/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The own fields of the packet scheduler prefer, drawn before a decision and checked after. */

static void draw_own(struct input *in, struct sched_own *own)
{
	own->demand.early = draw_byte(in) & 1;
	for (__u32 i = 0; i < eval.count; i++) {
		struct prefer_lane *lane = &own->lanes[i];
		__u8 flags = draw_byte(in);

		lane->served = draw_number(in, 40);
		lane->rank = draw_byte(in) & 1 ? draw_byte(in) & 3 : draw_number(in, 32);
		lane->weight = flags & 1 ? draw_number(in, 32) : 0;
		lane->spill_us = flags & 2 ? draw_number(in, 32) : MPCC_NEVER_SPILLS;
		lane->wait_us = flags & 4 ? draw_number(in, 32) : 0;
		lane->min_srtt_us8 = draw_number(in, 32);
		lane->spent = flags >> 5 == 1;
		lane->excluded = flags >> 5 == 2;
	}
}

/* The connection's timer ends the wait, with ACKs or without. */
#define ENDS_ITS_WAIT(own) ((own)->outcome.wait_us)

/* No path sends against a cap, or before a better path that may send. */
static void check_own(const struct sched_own *own)
{
	bool waited_for = false;

	for (__u32 i = 0; i < MPCC_MAX_LANES; i++)
		waited_for |= own->outcome.wait_us && own->lanes[i].wait_us == own->outcome.wait_us;
	require(!own->outcome.wait_us || waited_for, "%u us", own->outcome.wait_us);
	require(!own->outcome.wait_us || eval.outcome.waits, "%u us", own->outcome.wait_us);
	for (__u32 i = 0; i < eval.count; i++) {
		if (!eval.verdicts[i].send || eval.demand.reinject)
			continue;
		require(!own->lanes[i].wait_us, "subflow %u: %u us", i, own->lanes[i].wait_us);
		for (__u32 j = 0; j < eval.count; j++)
			require(!eval.verdicts[j].usable || own->lanes[j].wait_us ||
					tier_of(&own->lanes[i]) <= tier_of(&own->lanes[j]) ||
					eval.verdicts[j].refused,
				"subflow %u sends, and not %u", i, j);
	}
}
