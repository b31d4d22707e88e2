/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The own fields of the packet scheduler blest, drawn before a decision and checked after. */

static void draw_own(struct input *in, struct sched_own *own)
{
	struct blest_memory *m = &own->memory;
	__u8 flags = draw_byte(in);

	m->lambda_at_us = eval.demand.now_us >> draw_byte(in) % 60;
	m->lambda_percent = flags & 1 ? LAMBDA_LEAST + draw_byte(in) % 31 : 0;
	m->reinjections = flags >> 1 & 1;
	for (__u32 i = 0; i < eval.count; i++) {
		own->lanes[i].min_srtt_us8 = draw_number(in, 32);
		own->lanes[i].max_srtt_us8 = draw_number(in, 32);
		own->lanes[i].ssthresh = draw_number(in, 32);
	}
}

static void check_own(const struct sched_own *own)
{
	__u32 lambda = own->memory.lambda_percent;

	require(!lambda || (lambda >= 100 && lambda <= 130), "%u", lambda);
}
