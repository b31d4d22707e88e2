/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* All that a packet scheduler includes. sched_hooks.h says what it has to define. */
#ifndef MPCC_SCHED_H
#define MPCC_SCHED_H

#include "cost.h"
#include "sched_eval.h"
#include "sched_live.h"
#include "tunable.h"

#endif
