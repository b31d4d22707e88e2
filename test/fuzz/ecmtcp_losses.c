// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * ecMTCP's smoothed l, in floating point: the first interval between losses, then a moving average with gain 1/8, and
 * what an undo leaves of it (losses.h).
 */
#include "native.h"

#include "cc/ecmtcp.bpf.c"

#include "losses.h"

static struct history h;

/* The averages after each of the losses. An integer's roundings keep the algorithm's within 16 bytes. */
static double averages[MOST_LOSSES];

static void check(void)
{
	struct mpcc_path p = seen(&h);
	double between = averages[h.count - 1];
	__u64 since = h.tp.bytes_acked - h.losses[h.count - 1];

	require(__builtin_fabs(p.bytes_between_losses - between) <= 16, "between %llu, want %g",
		p.bytes_between_losses, between);
	require(p.bytes_since_loss == since, "since %llu, want %llu", p.bytes_since_loss, since);
}

static void lose_and_average(bool again)
{
	int before = h.count;
	__u64 interval;

	lose(&h, again);
	if (h.count == before)
		return;
	interval = h.losses[before] - h.losses[before - 1];
	averages[before] = before == 1 ?
				   interval :
				   averages[before - 1] + (interval - averages[before - 1]) / 8;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	begin(&h);
	ack(&h, 80000);
	lose_and_average(false);
	require(seen(&h).bytes_between_losses == 80000, "%llu", seen(&h).bytes_between_losses);
	ack(&h, 160000);
	lose_and_average(false);
	require(seen(&h).bytes_between_losses == 90000, "%llu", seen(&h).bytes_between_losses);
	undo(&h);
	require(seen(&h).bytes_between_losses == 80000, "%llu", seen(&h).bytes_between_losses);
	require(seen(&h).bytes_since_loss == 160000, "%llu", seen(&h).bytes_since_loss);
	undo(&h);
	require(seen(&h).bytes_between_losses == 80000, "%llu", seen(&h).bytes_between_losses);
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };

	begin(&h);
	while (in.size && h.count < MOST_LOSSES) {
		__u8 event = draw_byte(&in);

		if (event % 4 == 0) {
			undo(&h);
		} else if (event & 1) {
			lose_and_average(event & 2);
		} else {
			ack(&h, 1000 + draw_number(&in, 40)); /* a packet at least */
		}
		check();
	}
	return 0;
}
