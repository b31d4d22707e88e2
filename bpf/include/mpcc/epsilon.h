/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The traffic-shifting factor of DTS: eps = 2 / (1 + exp(-10 (baseRTT / RTT - 1/2))), by linear
 * interpolation in a table of 257 points; relative error below 2e-4.
 */
#ifndef MPCC_EPSILON_H
#define MPCC_EPSILON_H

#include "logistic.h"
#include "path.h"

/* At ratio / 2^20; a ratio above 1 counts as 1. */
static __always_inline struct mpcc_num epsilon(__u32 ratio_q20)
{
	__u32 i = ratio_q20 >> 12, part = ratio_q20 & 4095;
	__u64 low, high;

	if (i > 255) {
		i = 255;
		part = 4096;
	}
	low = logistic_q30[i];
	high = logistic_q30[i + 1];
	return num_scale(num_of((low << 12) + (high - low) * part), -42);
}

/* A path without a base RTT has shown no queue yet. */
static __always_inline struct mpcc_num path_epsilon(const struct mpcc_path *p)
{
	__u64 base_us8 = (__u64)p->base_rtt_us << 3;

	if (!p->base_rtt_us || base_us8 >= p->srtt_us8)
		return epsilon(1 << 20);
	return epsilon((base_us8 << 20) / p->srtt_us8);
}

#endif
