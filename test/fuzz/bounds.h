/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* By how much each rule may move a window. Include after the algorithm. */
#ifndef FUZZ_BOUNDS_H
#define FUZZ_BOUNDS_H

#include "native.h"

#define ANY __builtin_inf()
#define HALF_WINDOW -1

/* What a rule adds to a window and takes from a window at most, in packets per window of acknowledged ones. */
struct bounds {
	const char *name;
	double up, down;
	bool not_reno; /* with one subflow */
	bool sets_window;
};

static const struct bounds all_bounds[] = {
	{ .name = "balia", .up = 1 },
	{ .name = "cdd", .up = 1, .sets_window = true },
	{ .name = "coupled", .up = 1 },
	{ .name = "dts", .up = 2 },
	{ .name = "dtsx", .up = 2, .down = ANY },
	{ .name = "dwc", .up = 1 },
	{ .name = "ecmtcp", .up = 1 },
	{ .name = "emreno", .up = 1 },
	{ .name = "ewtcp", .up = 1 },
	{ .name = "lia", .up = 1 },
	{ .name = "mpcubic", .up = HALF_WINDOW, .not_reno = true },
	{ .name = "olia", .up = 2, .down = 1 },
	{ .name = "wvegas", .not_reno = true, .sets_window = true },
};

static const struct bounds *bounds_of_algorithm(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(all_bounds); i++)
		if (!strcmp(ALGORITHM.name, all_bounds[i].name))
			return &all_bounds[i];
	require(false, "%s has no bounds here", ALGORITHM.name);
	return NULL;
}

#endif
