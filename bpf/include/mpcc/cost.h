/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What sending on a subflow costs, for packet schedulers: by the energy profile of its interface, its uplink
 * slope, since this is the sender.
 */
#ifndef MPCC_COST_H
#define MPCC_COST_H

#include "energy.h"
#include "scene.h"
#include "sched_kernel.h"

/* Of struct mpcc_energy_profile; 0 without one. */
struct uplink_profile {
	__u32 up_uw_per_mbps;
	__u32 base_uw;
};

static __always_inline void read_uplink_profile(struct uplink_profile *profile,
						const struct tcp_sock *tp)
{
	struct mpcc_energy_key key = {
		.netns_cookie = netns_cookie_of(tp),
		.ifindex = sched_ifindex(tp),
	};
	const struct mpcc_energy_profile *p = bpf_map_lookup_elem(&mpcc_energy, &key);

	profile->up_uw_per_mbps = p ? p->up_uw_per_mbps : 0;
	profile->base_uw = p ? p->base_uw : 0;
}

/* Without one it costs nothing. */
static __always_inline bool has_profile(const struct uplink_profile *profile)
{
	return profile->up_uw_per_mbps | profile->base_uw;
}

/* Mbit/s that the window allows: bytes per eighth of a microsecond, times 64. */
static __always_inline struct mpcc_num window_rate(const struct mpcc_lane *l)
{
	return num_div(num_mul(num_of(l->cwnd), num_of((__u64)l->mss << 6)), num_of(l->srtt_us8));
}

/* mW at a rate in Mbit/s: slope * rate + base. */
static __always_inline struct mpcc_num power_of(const struct uplink_profile *p,
						struct mpcc_num rate)
{
	return num_div(num_add(num_mul(num_of(p->up_uw_per_mbps), rate), num_of(p->base_uw)),
		       num_of(1000));
}

/* mJ per Mbit at that rate: slope + base / rate. 0 without a profile, and without a rate. */
static __always_inline struct mpcc_num cost_of(const struct uplink_profile *p, struct mpcc_num rate)
{
	return num_div(power_of(p, rate), rate);
}

#endif
