/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One decision of a packet scheduler on given numbers: what `mpcc eval`, the vectors and the fuzzers run.
 * User space fills the two variables, runs the program, and reads the results back. JSON names are the field
 * names; sched_hooks.h tells which fields of struct sched_own are among them.
 */
#ifndef MPCC_SCHED_EVAL_H
#define MPCC_SCHED_EVAL_H

#include "sched_decide.h"

struct mpcc_scene eval;
__u64 eval_own[SCHED_OWN_BYTES / 8]; /* a struct sched_own */

/* A function that has struct sched_own among its arguments, so that the object's BTF tells of that one's fields. */
MPCC_GLOBAL int decide_given(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	sched_decide(s, own, s->demand.reinject);
	return 0;
}

SEC("syscall")
int mpcc_eval(void *ctx)
{
	return decide_given(&eval, (struct sched_own *)eval_own);
}

#endif
