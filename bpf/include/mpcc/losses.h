/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The bytes that a subflow carries from loss to loss, for algorithms that estimate its loss rate. */
#ifndef MPCC_LOSSES_H
#define MPCC_LOSSES_H

#include "path.h"

#define MPCC_NO_UNDO (~0ULL)

struct mpcc_losses {
	__u64 between; /* bytes acknowledged between two losses, as the algorithm averages them */
	__u64 between_before; /* the same before the last loss; MPCC_NO_UNDO = that loss was not counted */
	__u64 acked_at_last; /* bytes_acked when the last loss was counted */
};

/* Bytes. A sibling may meet its next loss between the two readings: then none. */
static __always_inline __u64 since_loss(const struct tcp_sock *tp, const struct mpcc_losses *losses)
{
	__u64 acked = tp->bytes_acked, at_last = losses->acked_at_last;

	return acked > at_last ? acked - at_last : 0;
}

static __always_inline void path_losses(struct mpcc_path *p, const struct tcp_sock *tp,
					const struct mpcc_losses *losses)
{
	p->bytes_between_losses = losses->between;
	p->bytes_since_loss = since_loss(tp, losses);
}

/* l_r: bytes between losses, or since the last one if that is more already. */
static __always_inline __u64 loss_interval(const struct mpcc_path *p)
{
	return p->bytes_since_loss > p->bytes_between_losses ? p->bytes_since_loss :
							       p->bytes_between_losses;
}

/* Counts a loss: the bytes since the one before. 0: a second timeout for the same data, no other loss. */
static __always_inline __u64 count_loss(struct mpcc_losses *losses, const struct tcp_sock *tp)
{
	__u64 since = since_loss(tp, losses);

	if (tp->inet_conn.icsk_backoff)
		return 0;
	losses->between_before = MPCC_NO_UNDO;
	if (since) {
		losses->acked_at_last = tp->bytes_acked;
		losses->between_before = losses->between;
	}
	return since;
}

/* Forgets the last loss, so many bytes after the one before: its packets were late, not lost. */
static __always_inline void undo_loss(struct mpcc_losses *losses, __u64 since)
{
	if (losses->between_before == MPCC_NO_UNDO || since > losses->acked_at_last)
		return;
	losses->acked_at_last -= since;
	losses->between = losses->between_before;
	losses->between_before = MPCC_NO_UNDO;
}

#endif
