/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The traffic-shifting factor of DTS: eps = 2 / (1 + exp(-10 (baseRTT / RTT - 1/2))), by linear
 * interpolation in a table of 257 points; relative error below 2e-4.
 *
 * By default a subflow's eps is divided by the largest eps of the subflows that it is compared with. As printed, eps is a
 * few percent on all subflows behind one long queue: there is no better path to shift to, and the connection has a
 * fraction of what one TCP has there. Without queues the printed eps is 1.99, and the connection takes up to 1.41 times
 * what TCP takes.
 */
#ifndef MPCC_EPSILON_H
#define MPCC_EPSILON_H

#include "logistic.h"
#include "path.h"
#include "tunable.h"

enum { EPSILON_RELATIVE, EPSILON_PRINTED };
TUNABLE_PAPER(
	epsilon, EPSILON_RELATIVE, "printed",
	"relative|printed; a subflow's eps over the largest of the connection, or as the paper has it");

/* eps / 2^-42 at ratio / 2^20; a ratio above 1 counts as 1. */
static __always_inline __u64 epsilon_q42_at(__u32 ratio_q20)
{
	__u32 i = ratio_q20 >> 12, part = ratio_q20 & 4095;
	__u64 low, high;

	if (i > 255) {
		i = 255;
		part = 4096;
	}
	low = logistic_q30[i];
	high = logistic_q30[i + 1];
	return (low << 12) + (high - low) * part;
}

/* A path without a base RTT has shown no queue yet. */
static __always_inline __u64 path_epsilon_q42(const struct mpcc_path *p)
{
	__u64 base_us8 = (__u64)p->base_rtt_us << 3;

	if (!p->base_rtt_us || base_us8 >= p->srtt_us8)
		return epsilon_q42_at(1 << 20);
	return epsilon_q42_at((base_us8 << 20) / p->srtt_us8);
}

/* The divisor of every subflow's eps, as one more subflow is looked at: the largest eps, or 1 for eps as printed. */
static __always_inline __u64 epsilon_divisor_q42(__u64 so_far_q42, const struct mpcc_path *p)
{
	__u64 q42 = path_epsilon_q42(p);

	if (epsilon == EPSILON_PRINTED)
		return 1ULL << 42;
	return q42 > so_far_q42 ? q42 : so_far_q42;
}

/* eps_r, of n subflows; a single one's is 1. */
static __always_inline struct mpcc_num coupled_epsilon(__u32 n, __u64 divisor_q42,
						       const struct mpcc_path *p)
{
	return n > 1 ? num_div(num_of(path_epsilon_q42(p)), num_of(divisor_q42)) : num_of(1);
}

#endif
