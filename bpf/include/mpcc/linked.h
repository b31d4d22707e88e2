/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* LIA's coupled increase (RFC 6356), which other algorithms build on. */
#ifndef MPCC_LINKED_H
#define MPCC_LINKED_H

#include "path.h"

struct linked_sum {
	struct mpcc_num rate; /* sum w / rtt */
	struct mpcc_num best; /* max w / rtt^2 */
};

static __always_inline void linked_add(struct linked_sum *sum, const struct mpcc_path *p)
{
	struct mpcc_num rate = path_rate(p);

	sum->rate = num_add(sum->rate, rate);
	sum->best = num_max(sum->best, num_div(rate, num_of(p->srtt_us8)));
}

/* alpha / W = max_k(w_k / rtt_k^2) / (sum_k w_k / rtt_k)^2 */
static __always_inline struct mpcc_num linked_increase(const struct linked_sum *sum)
{
	return num_div(sum->best, num_mul(sum->rate, sum->rate));
}

#endif
