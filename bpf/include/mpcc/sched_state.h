/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is kept of a connection under a packet scheduler, from its first decision to its end. */
#ifndef MPCC_SCHED_STATE_H
#define MPCC_SCHED_STATE_H

#include "sched_hooks.h"

/*
 * Connections that one scheduler can keep, and how many of them from one network namespace, so that a container
 * cannot take them all. Beyond either, sched_live.h chooses without a state.
 */
#define MPCC_MAX_SCHED_STATES 131072
const volatile __u32 mpcc_namespace_states = MPCC_MAX_SCHED_STATES / 4;

/* Connections of one namespace, under all schedulers, in the live map. The loader sets this by the map's size. */
const volatile __u32 mpcc_namespace_shown = MPCC_NAMESPACE_SHARE(MPCC_MAX_SCHED_CONNECTIONS);

/* What a subflow got. */
struct lane_bytes {
	__u64 handed;
	__u32 write_seq; /* the subflow's sequence number up to which they are counted */
};

struct sched_state {
	__u64 id; /* key of the live state in the map; 0 = has none */
	__u32 opened; /* the live state was asked for */
	__u32 timeout; /* jiffies; what the connection's timer is to wait for, 0 = for none in particular */
	__u32 timeout_min; /* jiffies; the shortest; 0 = not known */
	__u32 stalled; /* a subflow is */
	__u32 chosen; /* subflows that are to send */
	__u64 burst; /* bytes that they may send before the next decision */
	__u64 buffer; /* bytes that the connection's send buffer is to hold */
	__u64 looked_us; /* CLOCK_MONOTONIC, when the scheduler last looked up what seldom changes */
	__u64 shown_us; /* CLOCK_MONOTONIC, when the live state last got more than counts; 0 = that is due */
	__u64 oldest; /* data sequence number of the oldest byte that is not acknowledged */
	__u64 oldest_us; /* CLOCK_MONOTONIC, when that byte became the oldest */
	__u64 resent_to; /* data sequence number up to which all was sent again last */
	__u64 bytes_gone; /* handed to subflows that are no more */
	struct lane_bytes bytes[MPCC_MAX_LANES];
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

/* States of each namespace, by share_slot(). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MPCC_SHARES);
	__type(key, __u32);
	__type(value, __u32);
} mpcc_sched_share SEC(".maps");

static __always_inline __u32 *states_beside(const struct mptcp_sock *msk)
{
	__u32 slot = share_slot(msk->sk.icsk_inet.sk.__sk_common.skc_net.net->net_cookie);

	return bpf_map_lookup_elem(&mpcc_sched_share, &slot);
}

static const struct sched_state no_state;

/*
 * The state of a connection; NULL if it has none, or if one was to be created and the map is full or the namespace has
 * its share.
 */
static __always_inline struct sched_state *state_of_connection(const struct mptcp_sock *msk,
							       bool create)
{
	__u64 key = (__u64)(long)msk;
	struct sched_state *st = bpf_map_lookup_elem(&mpcc_sched_state, &key);
	__u32 *states;

	if (st || !create)
		return st;
	states = states_beside(msk);
	/* Connections that begin at once may take a few more. */
	if (!states || *states >= mpcc_namespace_states ||
	    bpf_map_update_elem(&mpcc_sched_state, &key, &no_state, BPF_NOEXIST))
		return NULL;
	__sync_fetch_and_add(states, 1);
	return bpf_map_lookup_elem(&mpcc_sched_state, &key);
}

static __always_inline void drop_state(const struct mptcp_sock *msk)
{
	__u64 key = (__u64)(long)msk;
	__u32 *states = states_beside(msk);

	if (!bpf_map_delete_elem(&mpcc_sched_state, &key) && states)
		__sync_fetch_and_add(states, -1);
}

#endif
