/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One decision on given numbers: what `mpcc eval`, the vectors and the fuzzers run. User space fills
 * `eval`, runs the program, and reads the results back; JSON names are the field names.
 */
#ifndef MPCC_EVAL_H
#define MPCC_EVAL_H

#include "window.h"

struct mpcc_decision {
	struct mpcc_step increase; /* packets per acknowledged segment */
	struct mpcc_coupling coupling; /* the algorithm's own quantity */
	__u32 window; /* packets; what the algorithm sets by itself, once per RTT or period */
	__u32 ssthresh; /* packets; with that window */
	__u32 after_loss; /* packets */
	__u32 coupled; /* 0: does not count */
	__u32 alone; /* 1: decided as of a connection with one subflow, by CUBIC or Reno */
};

struct mpcc_eval {
	__u32 count;
	struct mpcc_path paths[MPCC_MAX_SUBFLOWS];
	struct mpcc_decision decisions[MPCC_MAX_SUBFLOWS];
};

struct mpcc_eval eval;

/* What of the given subflows one sees; not inlined, for the verifier's sake. */
static __noinline void look_at_given(struct cc_view *v, const struct mpcc_path *self,
				     __u8 sums_over)
{
	v->sums_over = sums_over;
	for (__u32 backups = 0; backups < 2 && !v->counting; backups++) {
		v->backups = backups;
		for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
			if (i < eval.count)
				count_path(v, &eval.paths[i]);
		v->coupled = path_usable(self) && self->backup == v->backups;
	}
}

/* As look() does. */
static __always_inline void view_given(struct cc_view *v, const struct mpcc_path *self)
{
	v->self = *self;
	look_at_given(v, self, SUMS_OF_GROUP);
	if (!v->coupled || v->grouped > 1 || v->counting == 1 || !alone_sees_all())
		return;
	__builtin_memset(v, 0, sizeof(*v));
	v->self = *self;
	look_at_given(v, self, SUMS_OF_ALL);
}

static __always_inline void decide_given(void)
{
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		struct mpcc_decision *d = &eval.decisions[i];
		struct cc_view v = {};
		struct mpcc_setting setting;
		struct mpcc_step step = {};

		if (i >= eval.count)
			return;
		view_given(&v, &eval.paths[i]);
		decide_step(&step, &v);
		d->increase = step;
		d->after_loss = decide_after_loss(&v);
		decide_window(&setting, &v);
		d->window = setting.window;
		d->ssthresh = setting.ssthresh;
		d->coupled = v.coupled;
		d->alone = rule_for(&v) != RULE_COUPLED;
		decide_coupling(&d->coupling, &v);
	}
}

SEC("syscall")
int mpcc_eval(void *ctx)
{
	decide_given();
	return 0;
}

#endif
