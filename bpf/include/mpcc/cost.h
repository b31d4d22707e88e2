/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What sending on a subflow costs, by the energy profile of its interface. */
#ifndef MPCC_COST_H
#define MPCC_COST_H

#include "scene.h"

/* Has the live connection's profiles read. */
#define SCHED_ENERGY

/* Mbit/s that the window allows: bytes per eighth of a microsecond, times 64. */
static __always_inline struct mpcc_num window_rate(const struct mpcc_lane *l)
{
	return num_div(num_mul(num_of(l->cwnd), num_of((__u64)l->mss << 6)), num_of(l->srtt_us8));
}

/* mW at a rate in Mbit/s: slope * rate + base. */
static __always_inline struct mpcc_num power_of(const struct mpcc_lane *l, struct mpcc_num rate)
{
	return num_div(num_add(num_mul(num_of(l->up_uw_per_mbps), rate), num_of(l->base_uw)),
		       num_of(1000));
}

/* mJ per Mbit at that rate: slope + base / rate. 0 without a profile, and without a rate. */
static __always_inline struct mpcc_num cost_of(const struct mpcc_lane *l, struct mpcc_num rate)
{
	return num_div(power_of(l, rate), rate);
}

#endif
