// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A packet scheduler as small as can be: it takes the first subflow that may send. Quick to verify. */
#include "mpcc/sched_kernel.h"

static int sched_choose(struct mptcp_sock *msk, bool reinject)
{
	struct mptcp_subflow_context *subflow;
	const struct tcp_sock *tp;

	sched_for_each(subflow, tp, msk)
	{
		if (!sched_active(subflow) ||
		    (reinject ? !sched_all_acked(tp) : !sched_memory_free(tp)))
			continue;
		sched_set_scheduled(subflow, true);
		msk->snd_burst = 65536;
		return 0;
	}
	return -1;
}

static void sched_init(struct mptcp_sock *msk)
{
}

static void sched_release(struct mptcp_sock *msk)
{
}

SCHED_OPS(simplest);
