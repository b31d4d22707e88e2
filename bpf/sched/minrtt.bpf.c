// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * minrtt, the lowest RTT first: the default scheduler of the MPTCP kernel v0.9x, and the baseline of the
 * literature.
 *
 *   of the subflows with room in their window, the one with the smallest smoothed RTT
 *
 * Deviations. When the connection's window is full, the original halves the windows of slower subflows
 * that hold the oldest data (penalising), and sends that data again on the current subflow: a scheduler
 * must not touch windows here, and the kernel sends again by its own timer. A decision is for fragments
 * of up to 32 KiB, not for segments: so the kernel hands data over.
 */
#include "mpcc/sched.h"

/* Nothing beside the scene. */
struct sched_own {
};

static __always_inline int minrtt_rule(struct mpcc_scene *s, struct sched_own *own)
{
	send_on(s, fastest_usable(s));
	return RULE_MARKED;
}

static const struct sched_hooks sched_hooks = {
	.rule = minrtt_rule,
};

SCHED_TABLE(minrtt);
