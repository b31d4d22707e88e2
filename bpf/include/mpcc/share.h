/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What each network namespace has in the maps that all namespaces share, and at most three quarters of each map, so that
 * no container fills a map and leaves the host without. Counted where an entry is made or removed: an ACK and a decision
 * cost nothing more.
 */
#ifndef MPCC_SHARE_H
#define MPCC_SHARE_H

#include "kernel.h"

#define MPCC_NAMESPACE_SHARE(entries) ((entries) / 4 * 3)

/* Counts are kept in so many slots, by the namespace's cookie. Namespaces of one slot share a bound. */
#define MPCC_SHARE_BITS 12
#define MPCC_SHARES (1 << MPCC_SHARE_BITS)

/*
 * A hash, because the kernel gives each CPU 4096 cookies in a row: the first namespaces that two CPUs have made differ by a
 * multiple of 4096. 2654435769 is 2^32 over the golden ratio.
 */
static __always_inline __u32 share_slot(__u64 netns_cookie)
{
	__u32 product = (__u32)((__u64)(__u32)netns_cookie * 2654435769U);

	return product >> (32 - MPCC_SHARE_BITS);
}

/* Entries of the pinned maps. */
struct mpcc_share {
	__u32 subflows; /* in mpcc_subflows */
	__u32 totals; /* in mpcc_totals, where entries stay */
	__u32 connections; /* in mpcc_sched_conn */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MPCC_SHARES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct mpcc_share);
} mpcc_shares SEC(".maps");

static __always_inline struct mpcc_share *share_of(__u64 netns_cookie)
{
	__u32 slot = share_slot(netns_cookie);

	return bpf_map_lookup_elem(&mpcc_shares, &slot);
}

/*
 * Makes an entry of a map in which the namespace has *entries and may have `most`. *entries counts the entry before
 * the map has it, so that CPUs that make entries at once do not get past the bound.
 */
static __always_inline bool make_entry(void *map, const void *key, const void *value,
				       __u32 *entries, __u32 most)
{
	if (__sync_fetch_and_add(entries, 1) < most &&
	    !bpf_map_update_elem(map, key, value, BPF_NOEXIST))
		return true;
	__sync_fetch_and_add(entries, -1);
	return false;
}

/* Removes an entry. Of two CPUs that remove the same entry, only the CPU whose deletion succeeds lowers *entries. */
static __always_inline void drop_entry(void *map, const void *key, __u32 *entries)
{
	if (!bpf_map_delete_elem(map, key))
		__sync_fetch_and_add(entries, -1);
}

#endif
