/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is kept of a connection under a packet scheduler, from its first decision to its end. */
#ifndef MPCC_SCHED_STATE_H
#define MPCC_SCHED_STATE_H

#include "sched_hooks.h"

/* Connections that one scheduler can keep; beyond, sched_live.h chooses without a state. */
#define MPCC_MAX_SCHED_STATES 65536

struct sched_state {
	__u64 id; /* key of the live state in the map; 0 = has none */
	__u32 opened; /* the live state was asked for */
	__u32 rto; /* jiffies; the longest of the subflows that carry data */
	__u64 own[SCHED_OWN_BYTES / 8]; /* a struct sched_own */
	struct mpcc_scene scene;
};

static __always_inline struct sched_own *own_of(struct sched_state *st)
{
	return (struct sched_own *)st->own;
}

/*
 * By the address of the kernel's connection. Not in the socket's own storage: since Linux 7.0 that cannot be
 * had on machines without cmpxchg16b.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MPCC_MAX_SCHED_STATES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct sched_state);
} mpcc_sched_state SEC(".maps");

static const struct sched_state no_state;

/* The state of a connection; NULL if it has none, or if one was to be created and the map is full. */
static __always_inline struct sched_state *state_of_connection(const struct mptcp_sock *msk,
							       bool create)
{
	__u64 key = (__u64)(long)msk;
	struct sched_state *st = bpf_map_lookup_elem(&mpcc_sched_state, &key);

	if (st || !create)
		return st;
	bpf_map_update_elem(&mpcc_sched_state, &key, &no_state, BPF_NOEXIST);
	return bpf_map_lookup_elem(&mpcc_sched_state, &key);
}

static __always_inline void drop_state(const struct mptcp_sock *msk)
{
	__u64 key = (__u64)(long)msk;

	bpf_map_delete_elem(&mpcc_sched_state, &key);
}

#endif
