/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Modelled energy: P = up * rate_up + down * rate_down + base while the interface is active.
 * The user sets a profile per interface (`mpcc energy set`); the programs integrate it.
 */
#ifndef MPCC_ENERGY_H
#define MPCC_ENERGY_H

#include "kernel.h"

#define MPCC_MAX_PROFILES 1024

struct mpcc_energy_key {
	__u64 netns_cookie; /* as in telemetry.h */
	__u32 ifindex;
	__u32 pad;
};

/* 1 uW/Mbps is 1 pJ per bit. */
struct mpcc_energy_profile {
	__u32 up_uw_per_mbps; /* sending; 0 .. 4294 mW/Mbps */
	__u32 down_uw_per_mbps; /* receiving */
	__u32 base_uw; /* while active; 0 .. 4294 W */
	__u32 netns; /* inode number of the network namespace */
	__u64 charged_until_us; /* CLOCK_MONOTONIC; the base is charged once, however many subflows */
	__u8 ifname[16]; /* when the profile was set */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MPCC_MAX_PROFILES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct mpcc_energy_key);
	__type(value, struct mpcc_energy_profile);
} mpcc_energy SEC(".maps");

/* pJ per bit and bytes to nJ: 8 bits, 1000 pJ. Below 2^64 for 2^28 bytes a refresh. */
static __always_inline __u64 traffic_nj(__u32 up, __u64 sent, __u32 down, __u64 received)
{
	return (up * sent + down * received) * 8 / 1000;
}

/*
 * Energy per bit at a rate, in pJ: slope + base / rate. The rate is a window of so many bytes per
 * srtt; at least 1 pJ, so that 0 stays "no profile".
 */
static __always_inline __u32 price_of(const struct mpcc_energy_profile *p, __u64 window_bytes,
				      __u64 srtt_us)
{
	__u64 pj = p->up_uw_per_mbps;

	/* uW us / bits is pJ per bit; 2^32 uW * 2^27 us stays below 2^64. */
	if (window_bytes)
		pj += p->base_uw * srtt_us / (window_bytes * 8);
	if (!pj)
		return 1;
	return pj < ~0U ? pj : ~0U;
}

/* The part of [from, to) not yet charged, claimed for the caller. */
static __always_inline __u64 claim_active_us(struct mpcc_energy_profile *p, __u64 from, __u64 to)
{
	__u64 until = p->charged_until_us;

	if (until >= to)
		return 0;
	/* Another CPU has charged for this time meanwhile. */
	if (__sync_val_compare_and_swap(&p->charged_until_us, until, to) != until)
		return 0;
	return to - (until > from ? until : from);
}

#endif
