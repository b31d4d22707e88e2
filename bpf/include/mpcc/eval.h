/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One decision on given numbers: what `mpcc eval`, the vectors and the fuzzers run. User space fills
 * `eval`, runs the program, and reads the results back; JSON names are the field names.
 */
#ifndef MPCC_EVAL_H
#define MPCC_EVAL_H

#include "decide.h"

struct mpcc_decision {
	struct mpcc_step increase; /* packets per acknowledged segment */
	struct mpcc_coupling coupling; /* the algorithm's own quantity */
	__u32 window; /* packets; what the algorithm sets by itself, once per RTT or period */
	__u32 ssthresh; /* packets; with that window */
	__u32 after_loss; /* packets */
	__u32 coupled; /* 0: does not count, runs Reno */
};

struct mpcc_eval {
	__u32 count;
	struct mpcc_path paths[MPCC_MAX_SUBFLOWS];
	struct mpcc_decision decisions[MPCC_MAX_SUBFLOWS];
};

struct mpcc_eval eval;

/* The view of one subflow on the others; not inlined, for the verifier's sake. */
static __noinline void eval_view(struct mpcc_view *v, const struct mpcc_path *self)
{
	for (__u32 backups = 0; backups < 2 && !v->counting; backups++) {
		for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
			if (i < eval.count)
				v->counting += take(&v->sum, &eval.paths[i], backups, self->group);
		v->coupled = path_usable(self) && self->backup == backups;
	}
}

static __always_inline void eval_run(void)
{
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		struct mpcc_decision *d = &eval.decisions[i];
		struct mpcc_view v = { .self = eval.paths[i] };
		struct mpcc_setting setting;
		struct mpcc_step step = {};

		if (i >= eval.count)
			return;
		eval_view(&v, &eval.paths[i]);
		decide_step(&step, &v);
		d->increase = step;
		d->after_loss = decide_after_loss(&v);
		setting.window = v.self.cwnd;
		setting.ssthresh = v.self.ssthresh;
		if (v.coupled)
			cc_window(&setting, &v.sum, &v.self);
		d->window = setting.window;
		d->ssthresh = setting.ssthresh;
		d->coupled = v.coupled;
		if (v.coupled)
			cc_coupling(&d->coupling, &v.sum, &v.self);
	}
}

SEC("syscall")
int mpcc_eval(void *ctx)
{
	eval_run();
	return 0;
}

#endif
