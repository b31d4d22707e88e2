// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* OLIA's l, exactly, over any history of losses (losses.h). */
#include "native.h"

#include "cc/olia.bpf.c"

#include "losses.h"

static void require_bytes(__u64 between, __u64 since)
{
	struct mpcc_path p = seen();

	require(p.bytes_between_losses == between && p.bytes_since_loss == since,
		"between %llu, want %llu; since %llu, want %llu", p.bytes_between_losses, between,
		p.bytes_since_loss, since);
}

/* draft-khalili-mptcp-congestion-control-05, section 3: l1 and l2. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	begin();
	require_bytes(0, 0);
	ack(60000);
	require_bytes(0, 60000);
	lose(false);
	require_bytes(60000, 0);
	ack(20000);
	require_bytes(60000, 20000);
	ack(70000);
	require_bytes(60000, 90000);
	lose(false);
	require_bytes(90000, 0);
	lose(false);
	require_bytes(90000, 0);
	/* The last loss is undone, and not also the one before. */
	ack(10000);
	lose(false);
	require_bytes(10000, 0);
	ack(5000);
	undo();
	require_bytes(90000, 15000);
	undo();
	require_bytes(90000, 15000);
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };

	begin();
	while (in.size && history.count < MOST_LOSSES) {
		draw_event(&in, 0);
		require_bytes(last_interval(), since_last_loss());
	}
	return 0;
}
