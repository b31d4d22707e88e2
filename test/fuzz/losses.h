/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The losses of a subflow over any sequence of ACKs, losses and undos, against the list of where they were. Include
 * after the algorithm.
 */
#ifndef FUZZ_LOSSES_H
#define FUZZ_LOSSES_H

#include "native.h"

#define MOST_LOSSES 4096

struct history {
	struct tcp_sock tp;
	struct cc_state state;
	__u64 losses
		[MOST_LOSSES]; /* those that count, in bytes acknowledged before them; the first is the start */
	int count;
	bool can_undo; /* the last loss event counted, and was not undone yet */
};

static inline void begin(struct history *h)
{
	memset(h, 0, sizeof(*h));
	h->count = 1;
}

static inline void ack(struct history *h, __u64 bytes)
{
	h->tp.bytes_acked += bytes;
}

/* A repeated timeout, or a loss without a byte acknowledged since, is the same loss. */
static inline void lose(struct history *h, bool again)
{
	h->tp.inet_conn.icsk_backoff = again;
	cc_hooks.on_loss(&h->state, &h->tp);
	h->tp.inet_conn.icsk_backoff = 0;
	if (again)
		return;
	h->can_undo = h->tp.bytes_acked != h->losses[h->count - 1];
	if (h->can_undo)
		h->losses[h->count++] = h->tp.bytes_acked;
}

static inline void undo(struct history *h)
{
	cc_hooks.on_undo(&h->state);
	h->count -= h->can_undo;
	h->can_undo = false;
}

static inline struct mpcc_path seen(const struct history *h)
{
	struct mpcc_path p = {};

	cc_hooks.read_private(&p, &h->tp, &h->state, &h->state);
	return p;
}

#endif
