/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The terms of the rules that more than one algorithm uses, in the papers' notation. */
#ifndef MPCC_TERMS_H
#define MPCC_TERMS_H

#include "path.h"

/* (w_r / rtt_r^2) / (sum_k w_k / rtt_k)^2, on which OLIA and DTS build; total_rate is the sum. */
static __always_inline struct mpcc_num resource_pooling_increase(struct mpcc_num total_rate,
								 const struct mpcc_path *p)
{
	struct mpcc_num rtt = num_of(p->srtt_us8), rate = rate_at(p, rtt);

	return num_div(num_div(rate, rtt), num_mul(total_rate, total_rate));
}

/* What LIA (RFC 6356) sums, for itself and for what builds on it. */
struct lia_sum {
	struct mpcc_num total_rate; /* sum w / rtt */
	struct mpcc_num best; /* max w / rtt^2 */
};

/* Returns the path's rate. */
static __always_inline struct mpcc_num lia_sum_add(struct lia_sum *sum, const struct mpcc_path *p)
{
	struct mpcc_num rtt = num_of(p->srtt_us8), rate = rate_at(p, rtt);

	sum->total_rate = num_add(sum->total_rate, rate);
	sum->best = num_max(sum->best, num_div(rate, rtt));
	return rate;
}

/* alpha / W = max_k(w_k / rtt_k^2) / (sum_k w_k / rtt_k)^2 */
static __always_inline struct mpcc_num lia_increase(const struct lia_sum *sum)
{
	return num_div(sum->best, num_mul(sum->total_rate, sum->total_rate));
}

/* No subflow grows faster than a TCP connection: min(increase, 1 / w_r). */
static __always_inline struct mpcc_num at_most_reno(struct mpcc_num increase,
						    const struct mpcc_path *p)
{
	return num_min(increase, num_inverse(p->cwnd));
}

/* What the paths' energy costs. A path without an energy profile has no price; then no path has. */
struct price_sum {
	__u32 unpriced; /* subflows without a profile */
	__u32 cheapest_pj; /* min_k e_k, energy per bit */
};

static __always_inline void price_sum_add(struct price_sum *sum, const struct mpcc_path *p)
{
	sum->unpriced += !p->price_pj;
	if (!sum->cheapest_pj || p->price_pj < sum->cheapest_pj)
		sum->cheapest_pj = p->price_pj;
}

/* above / below, of two prices; 1 unless all paths have one. */
static __always_inline struct mpcc_num price_ratio(const struct price_sum *sum, __u32 above_pj,
						   __u32 below_pj)
{
	if (sum->unpriced)
		return num_of(1);
	return num_div(num_of(above_pj), num_of(below_pj));
}

/* min_k e_k / e_r */
static __always_inline struct mpcc_num cheapness(const struct price_sum *sum,
						 const struct mpcc_path *p)
{
	return price_ratio(sum, sum->cheapest_pj, p->price_pj);
}

#endif
