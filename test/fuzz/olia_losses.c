// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* OLIA's l, exactly: losses.h. */
#include "native.h"

#include "cc/olia.bpf.c"

#include "losses.h"

static struct history h;

static void require_bytes(__u64 between, __u64 since)
{
	struct mpcc_path p = seen(&h);

	require(p.bytes_between_losses == between && p.bytes_since_loss == since,
		"between %llu, want %llu; since %llu, want %llu", p.bytes_between_losses, between,
		p.bytes_since_loss, since);
}

/* draft-khalili-mptcp-congestion-control-05, section 3: l1 and l2. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	begin(&h);
	require_bytes(0, 0);
	ack(&h, 60000);
	require_bytes(0, 60000);
	lose(&h, false);
	require_bytes(60000, 0);
	ack(&h, 20000);
	require_bytes(60000, 20000);
	ack(&h, 70000);
	require_bytes(60000, 90000);
	lose(&h, false);
	require_bytes(90000, 0);
	lose(&h, false);
	require_bytes(90000, 0);
	/* A loss that was none; but not the one before it. */
	ack(&h, 10000);
	lose(&h, false);
	require_bytes(10000, 0);
	ack(&h, 5000);
	undo(&h);
	require_bytes(90000, 15000);
	undo(&h);
	require_bytes(90000, 15000);
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };

	begin(&h);
	while (in.size && h.count < MOST_LOSSES) {
		__u8 event = draw_byte(&in);

		if (event % 4 == 0)
			undo(&h);
		else if (event & 1)
			lose(&h, event & 2);
		else
			ack(&h, draw_number(&in, 40));
		require_bytes(h.count > 1 ? h.losses[h.count - 1] - h.losses[h.count - 2] : 0,
			      h.tp.bytes_acked - h.losses[h.count - 1]);
	}
	return 0;
}
