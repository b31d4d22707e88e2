// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* OLIA's l over any sequence of ACKs and losses, against the list of where the losses were. */
#include "native.h"

#include "cc/olia.bpf.c"

struct history {
	struct tcp_sock tp;
	struct cc_state state;
	__u64 losses[2]; /* the last two that count, in bytes acknowledged before them */
};

static void ack(struct history *h, __u64 bytes)
{
	h->tp.bytes_acked += bytes;
}

static void lose(struct history *h, bool again)
{
	h->tp.inet_conn.icsk_backoff = again;
	cc_hooks.on_loss(&h->state, &h->tp);
	/* A repeated timeout, or a loss without a byte acknowledged since, is the same loss. */
	if (again || h->tp.bytes_acked == h->losses[1])
		return;
	h->losses[0] = h->losses[1];
	h->losses[1] = h->tp.bytes_acked;
}

static void require_bytes(const struct history *h, __u64 between, __u64 since)
{
	struct mpcc_path p = {};

	cc_hooks.read_private(&p, &h->tp, &h->state, &h->state);
	require(p.bytes_between_losses == between && p.bytes_since_loss == since,
		"between %llu, want %llu; since %llu, want %llu", p.bytes_between_losses, between,
		p.bytes_since_loss, since);
}

/* draft-khalili-mptcp-congestion-control-05, section 3: l1 and l2. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct history h = {};

	require_bytes(&h, 0, 0);
	ack(&h, 60000);
	require_bytes(&h, 0, 60000);
	lose(&h, false);
	require_bytes(&h, 60000, 0);
	ack(&h, 20000);
	require_bytes(&h, 60000, 20000);
	ack(&h, 70000);
	require_bytes(&h, 60000, 90000);
	lose(&h, false);
	require_bytes(&h, 90000, 0);
	lose(&h, false);
	require_bytes(&h, 90000, 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	struct history h = {};

	while (in.size) {
		__u8 event = draw_byte(&in);

		if (event & 1)
			lose(&h, event & 2);
		else
			ack(&h, draw_number(&in, 40));
		require_bytes(&h, h.losses[1] - h.losses[0], h.tp.bytes_acked - h.losses[1]);
	}
	return 0;
}
