/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the paths' energy costs, relative to the cheapest one. */
#ifndef MPCC_PRICES_H
#define MPCC_PRICES_H

#include "path.h"

struct price_sum {
	__u32 unpriced; /* subflows without a profile: then no path has a price */
	__u32 cheapest_pj; /* min e */
};

static __always_inline void price_add(struct price_sum *sum, const struct mpcc_path *p)
{
	sum->unpriced += !p->price_pj;
	if (!sum->cheapest_pj || p->price_pj < sum->cheapest_pj)
		sum->cheapest_pj = p->price_pj;
}

#endif
