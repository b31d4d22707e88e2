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

/* What d may be without a queue: a quarter of what the mean is above the smallest RTT, at least 1 ms. */
static inline double noise(double base, double mean)
{
	return __builtin_fmax(MS(1), __builtin_floor((mean - base) / 4));
}

static inline bool is_known(__u32 base_us, double longest, double noise)
{
	return longest >= MS(__builtin_fmin(__builtin_fmax(base_us / 8000., 4), 16)) &&
	       longest > 2 * noise;
}

static inline double d_m(double base, double longest)
{
	return __builtin_fmin(longest, __builtin_floor(0.625 * base));
}

static inline bool is_short(double d, double longest, double noise)
{
	return 10 * d <= longest || d <= noise;
}

/*
 * Packets in an RTT: 10 up to a hundredth of the longest queue, 0.3 at the longest; 1 / alpha is linear between. At most a
 * 32nd of the window.
 */
static inline double alpha(double w, double d, double longest, double noise)
{
	double most = __builtin_fmin(10, w / 32);

	if (100 * d <= longest || d <= noise)
		return most;
	return __builtin_fmin(most,
			      1 / (1 / 10. + (1 / 0.3 - 1 / 10.) * (d / longest - 0.01) / 0.99));
}

/* An RTT of 7/8 of the way from the smallest to the longest, or more. */
static inline bool is_full(double base, double rtt, double peak)
{
	return rtt - base >= (peak - base) * 7 / 8;
}

#endif
