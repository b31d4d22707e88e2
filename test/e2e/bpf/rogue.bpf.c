// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A packet scheduler that breaks the rules of the module, which has to withstand each misdeed of the enum below. */
#include "mpcc/sched_kernel.h"

enum {
	WRITE_ANYWHERE = 1, /* through a number made a pointer */
	SCHEDULE_ALL, /* subflows that cannot send too */
	SCHEDULE_NONE, /* but the first time, and say that some are */
	WRITE_SOCKET, /* of a subflow */
};

const volatile __u32 misdeed;
static __u32 decisions;

static int sched_choose(struct mptcp_sock *msk, bool reinject)
{
	struct mptcp_subflow_context *subflow;
	const struct tcp_sock *tp;

	if (misdeed == WRITE_ANYWHERE) {
		struct mptcp_sock *other = bpf_rdonly_cast((void *)msk->write_seq,
							   mpcc_type_id(struct mptcp_sock));

		other->snd_burst = 0;
	}
	if (misdeed == SCHEDULE_NONE && decisions++)
		return 0;
	sched_for_each(subflow, tp, msk)
	{
		if (misdeed == WRITE_SOCKET)
			((struct tcp_sock *)tp)->snd_cwnd = 1;
		if (misdeed != SCHEDULE_ALL && !sched_active(subflow))
			continue;
		sched_set_scheduled(subflow, true);
		msk->snd_burst = 65536;
		if (misdeed != SCHEDULE_ALL)
			break;
	}
	return 0;
}

static void sched_init(struct mptcp_sock *msk)
{
}

static void sched_release(struct mptcp_sock *msk)
{
}

SCHED_OPS(rogue);
