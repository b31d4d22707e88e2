/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How far each rule may go. Include after the algorithm. */
#ifndef FUZZ_BOUNDS_H
#define FUZZ_BOUNDS_H

#include "native.h"

#define ANY __builtin_inf()
#define HALF_WINDOW -1

/* How far a rule goes at most, in packets per window; 0: not at all. */
struct bounds {
	const char *name;
	double up, down;
	bool not_reno; /* one subflow alone */
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
	for (size_t i = 0; i < sizeof(all_bounds) / sizeof(*all_bounds); i++)
		if (!strcmp(ALGORITHM.name, all_bounds[i].name))
			return &all_bounds[i];
	require(false, "%s has no bounds here", ALGORITHM.name);
	return NULL;
}

#endif
