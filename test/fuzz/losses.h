/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A subflow's losses over any sequence of ACKs, losses and undos, against a list of the losses that count. Include after the
 * algorithm.
 */
#ifndef FUZZ_LOSSES_H
#define FUZZ_LOSSES_H

#include "native.h"

#define MOST_LOSSES 4096

static struct {
	struct tcp_sock tp;
	struct cc_state state;
	__u64 losses[MOST_LOSSES]; /* in bytes acknowledged before each; the first is the start */
	int count;
	bool can_undo; /* the last loss counts, and was not undone yet */
} history;

static inline void begin(void)
{
	memset(&history, 0, sizeof(history));
	history.count = 1;
}

static inline void ack(__u64 bytes)
{
	history.tp.bytes_acked += bytes;
}

/* A repeated timeout, or a loss without a byte acknowledged since the last one, does not count. */
static inline void lose(bool again)
{
	history.tp.inet_conn.icsk_backoff = again;
	cc_hooks.on_loss(&history.state, &history.tp);
	history.tp.inet_conn.icsk_backoff = 0;
	if (again)
		return;
	history.can_undo = history.tp.bytes_acked != history.losses[history.count - 1];
	if (history.can_undo)
		history.losses[history.count++] = history.tp.bytes_acked;
}

static inline void undo(void)
{
	cc_hooks.on_undo(&history.state);
	history.count -= history.can_undo;
	history.can_undo = false;
}

/* An undo, a loss, or an ACK for so many bytes at least. */
static inline void draw_event(struct input *in, __u64 least_acked)
{
	__u8 event = draw_byte(in);

	if (event % 4 == 0)
		undo();
	else if (event & 1)
		lose(event & 2);
	else
		ack(least_acked + draw_number(in, 40));
}

/* Bytes between the last two losses; 0 before the first loss. */
static inline __u64 last_interval(void)
{
	return history.count > 1 ?
		       history.losses[history.count - 1] - history.losses[history.count - 2] :
		       0;
}

static inline __u64 since_last_loss(void)
{
	return history.tp.bytes_acked - history.losses[history.count - 1];
}

/* The path as the algorithm has noted its losses. */
static inline struct mpcc_path seen(void)
{
	struct mpcc_path p = {};

	cc_hooks.read_private(&p, &history.tp, &history.state, &history.state);
	return p;
}

#endif
