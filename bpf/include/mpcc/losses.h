/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The bytes that a subflow carries from loss to loss, for algorithms that estimate its loss rate. */
#ifndef MPCC_LOSSES_H
#define MPCC_LOSSES_H

#include "path.h"

/* What the last loss has changed is kept apart, so that an undo takes back exactly that. */
struct mpcc_losses {
	__u64 before; /* bytes between two losses, as the algorithm averages them, without the last loss */
	__u64 last; /* bytes between the last loss and the loss before; 0 = the last loss was not counted, or undone */
	__u64 acked_at_last; /* bytes_acked when the last loss was counted */
};

/* Bytes. A sibling may meet its next loss between the two readings: then none. */
static __always_inline __u64 since_loss(const struct tcp_sock *tp, const struct mpcc_losses *losses)
{
	__u64 acked = tp->bytes_acked, at_last = losses->acked_at_last;

	return acked > at_last ? acked - at_last : 0;
}

/* between is the average with the last loss, if that counts. */
static __always_inline void path_losses(struct mpcc_path *p, const struct tcp_sock *tp,
					const struct mpcc_losses *losses, __u64 between)
{
	p->bytes_between_losses = between;
	p->bytes_since_loss = since_loss(tp, losses);
}

/* l_r: bytes between losses, or since the last one if that is more already. */
static __always_inline __u64 loss_interval(const struct mpcc_path *p)
{
	return p->bytes_since_loss > p->bytes_between_losses ? p->bytes_since_loss :
							       p->bytes_between_losses;
}

/* Counts a loss, before which the average was between. A second timeout for the same data is no other loss. */
static __always_inline void count_loss(struct mpcc_losses *losses, const struct tcp_sock *tp,
				       __u64 between)
{
	if (tp->inet_conn.icsk_backoff)
		return;
	losses->before = between;
	losses->last = since_loss(tp, losses);
	losses->acked_at_last += losses->last;
}

/* Forgets the last loss, whose packets were late and not lost. */
static __always_inline void undo_loss(struct mpcc_losses *losses)
{
	losses->acked_at_last -= losses->last;
	losses->last = 0;
}

#endif
