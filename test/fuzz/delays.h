/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The delays of queue.h in floating point. */
#ifndef FUZZ_DELAYS_H
#define FUZZ_DELAYS_H

#include "native.h"

/* In whole units of 64 us, as in queue.h. */
#define MS(ms) __builtin_floor((ms) * 1000 / 64.)

/* An RTT in units, at least 1. */
static inline double units(__u32 us)
{
	return __builtin_fmin(us / 64 + 1, 65535);
}

static inline bool is_known(__u32 base_us, double longest)
{
	return longest >= MS(__builtin_fmin(__builtin_fmax(base_us / 8000., 4), 16));
}

static inline double d_m(double base, double longest)
{
	return __builtin_fmin(longest, __builtin_floor(0.625 * base));
}

/* An RTT of 7/8 of the way from the smallest to the longest, or more. */
static inline bool is_full(double base, double rtt, double peak)
{
	return rtt - base >= (peak - base) * 7 / 8;
}

#endif
