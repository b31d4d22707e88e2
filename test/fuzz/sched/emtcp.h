/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The own fields of the packet scheduler emtcp, drawn before a decision and checked after. */

static void draw_own(struct input *in, struct sched_own *own)
{
	for (__u32 i = 0; i < eval.count; i++) {
		own->lanes[i].up_uw_per_mbps = draw_number(in, 32);
		own->lanes[i].base_uw = draw_number(in, 32);
	}
}

static void check_own(const struct sched_own *own)
{
	for (__u32 i = 0; i < MPCC_MAX_LANES; i++)
		require_normal(own->verdicts[i].cost, i);
}
