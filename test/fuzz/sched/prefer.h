/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the packet scheduler prefer has for itself: drawn, and checked after a decision. */

static void draw_own(struct input *in, struct sched_own *own)
{
	own->demand.early = draw_byte(in) & 1;
	for (__u32 i = 0; i < eval.count; i++) {
		struct prefer_lane *p = &own->lanes[i];
		__u8 flags = draw_byte(in);

		p->served = draw_number(in, 40);
		p->rank = draw_byte(in) & 1 ? draw_byte(in) & 3 : draw_number(in, 32);
		p->weight = flags & 1 ? draw_number(in, 32) : 0;
		p->spill_us = flags & 2 ? draw_number(in, 32) : MPCC_NEVER_SPILLS;
		p->wait_us = flags & 4 ? draw_number(in, 32) : 0;
		p->min_srtt_us8 = draw_number(in, 32);
		p->spent = flags >> 5 == 1;
		p->excluded = flags >> 5 == 2;
	}
}

/* The connection's timer ends the wait, whether or not ACKs come. */
#define ENDS_ITS_WAIT(own) ((own)->outcome.wait_us)

/* No path sends against its cap, or before a better one that may send. */
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
