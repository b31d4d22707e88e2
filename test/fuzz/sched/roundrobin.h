/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The own fields of the packet scheduler roundrobin, drawn before a decision and checked after. */

static void draw_own(struct input *in, struct sched_own *own)
{
	for (__u32 i = 0; i < eval.count; i++)
		own->lanes[i].served = draw_number(in, 40);
}

static void check_own(const struct sched_own *own)
{
	for (__u32 i = 0; i < MPCC_MAX_LANES; i++)
		require(own->lanes[i].served < 1ULL << 40, "subflow %u", i);
}
