/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The own fields of the packet scheduler ecf, drawn before a decision and checked after. */

static void draw_own(struct input *in, struct sched_own *own)
{
	own->memory.waiting = draw_byte(in) & 1;
	for (__u32 i = 0; i < eval.count; i++)
		own->lanes[i].deviation_us = draw_number(in, 32);
}

static void check_own(const struct sched_own *own)
{
	require(own->memory.waiting <= 1, "%u", own->memory.waiting);
}
