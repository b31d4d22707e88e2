/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One decision of a packet scheduler on given numbers: what `mpcc eval`, the vectors and the fuzzers run.
 * User space fills `eval`, runs the program, and reads the results back; JSON names are the field names.
 */
#ifndef MPCC_SCHED_EVAL_H
#define MPCC_SCHED_EVAL_H

#include "scene.h"

struct mpcc_scene eval;

SEC("syscall")
int mpcc_eval(void *ctx)
{
	sched_decide(&eval);
	return 0;
}

#endif
