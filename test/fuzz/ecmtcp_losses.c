// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * ecMTCP's smoothed l, in floating point, over any history of losses and undos (losses.h): the first interval between
 * losses, then a moving average of the intervals with gain 1/8.
 */
#include "native.h"

#include "cc/ecmtcp.bpf.c"

#include "losses.h"

/* The average after each loss. */
static double averages[MOST_LOSSES];

/* The algorithm's average is an integer: the roundings come to 16 bytes at most. */
static void check(void)
{
	struct mpcc_path p = seen();
	int last = history.count - 1;
	double average = last_interval();

	if (last > 1)
		average = averages[last - 1] + (average - averages[last - 1]) / 8;
	averages[last] = average;
	require(__builtin_fabs(p.bytes_between_losses - average) <= 16, "between %llu, want %g",
		p.bytes_between_losses, average);
	require(p.bytes_since_loss == since_last_loss(), "since %llu, want %llu",
		p.bytes_since_loss, since_last_loss());
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	begin();
	ack(80000);
	lose(false);
	require(seen().bytes_between_losses == 80000, "%llu", seen().bytes_between_losses);
	ack(160000);
	lose(false);
	require(seen().bytes_between_losses == 90000, "%llu", seen().bytes_between_losses);
	undo();
	require(seen().bytes_between_losses == 80000, "%llu", seen().bytes_between_losses);
	require(seen().bytes_since_loss == 160000, "%llu", seen().bytes_since_loss);
	undo();
	require(seen().bytes_between_losses == 80000, "%llu", seen().bytes_between_losses);
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };

	begin();
	while (in.size && history.count < MOST_LOSSES) {
		draw_event(&in, 1000); /* a packet at least */
		check();
	}
	return 0;
}
