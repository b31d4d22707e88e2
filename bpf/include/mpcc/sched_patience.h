/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * For packet schedulers that have the connection's timer go off before a timeout is due (SCHED_EARLY in
 * sched_kernel.h): whether it did.
 */
#ifndef MPCC_SCHED_PATIENCE_H
#define MPCC_SCHED_PATIENCE_H

#include "sched_hooks.h"
#include "sched_kernel.h"

struct sched_progress {
	__u64 oldest; /* data sequence number of the oldest outstanding byte */
	__u64 progress_us; /* when that last changed; 0 = no decision yet */
};

/*
 * A timeout is due once the oldest byte has waited so long for its ACK: two RTTs and 100 ms. The kernel's own
 * scheduler waits for the probe that TCP sends after two RTTs.
 */
static __always_inline __u64 patience_us(const struct mpcc_scene *s)
{
	__u32 slowest_us8 = 0;

	for_each_lane(i, s)
	{
		if (s->lanes[i].srtt_us8 > slowest_us8)
			slowest_us8 = s->lanes[i].srtt_us8;
	}
	return 100000 + (slowest_us8 >> 2);
}

/* Notes what was acknowledged. Whether no timeout is due yet. */
static __always_inline bool is_early(struct sched_progress *p, const struct mpcc_scene *s,
				     const struct mptcp_sock *msk)
{
	if (p->oldest != msk->snd_una || !s->demand.outstanding)
		p->progress_us = s->demand.now_us;
	p->oldest = msk->snd_una;
	return s->demand.now_us - p->progress_us < patience_us(s);
}

/* What the hook after_retrans returns. After a timeout the next one is due no sooner than this one was. */
static __always_inline int end_timeout(struct sched_progress *p, const struct mpcc_scene *s,
				       bool early, int scheduled)
{
	if (early)
		return SCHED_EARLY;
	p->progress_us = s->demand.now_us;
	return scheduled;
}

#endif
