/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The own fields of the packet scheduler redundant, drawn before a decision and checked after. */

static void draw_own(struct input *in, struct sched_own *own)
{
	__u8 flags = draw_byte(in);

	own->demand.copying = flags & 1;
	own->demand.copied = flags >> 1 & 1;
	own->demand.early = flags >> 2 & 1;
	own->memory.leader = draw_byte(in) % (MPCC_MAX_LANES + 2);
}

/* sched.c checks all that the copies may do. */
static void check_own(const struct sched_own *own)
{
}
