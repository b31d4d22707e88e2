/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the packet schedulers tell other programs: maps pinned by name under /sys/fs/bpf/mpcc/maps,
 * beside those of telemetry.h, written and read in the same manner. A connection enters its map at its
 * first decision and leaves it when it closes; what it did stays in the totals. Each decision is counted in it; the
 * rest is brought up to date when a decision finds it 10 ms old, or a subflow new.
 */
#ifndef MPCC_SCHED_TELEMETRY_H
#define MPCC_SCHED_TELEMETRY_H

#include "telemetry.h"

#define MPCC_MAX_SCHED_CONNECTIONS 8192
#define MPCC_MAX_SCHED_TOTALS 256

/* What a scheduler did with one subflow. The share is its bytes over those of all. */
struct mpcc_sched_subflow {
	__u64 bytes; /* handed to it, retransmissions of the connection's included */
	__u64 chosen; /* decisions to send on it */
	__u64 retransmitted; /* decisions to send again on it what another subflow carried */
	__u64 full; /* decisions that found no room in its window */
	__u64 refused; /* decisions that found room, and yet waited or kept it out of the set */
	__u64 repeated; /* decisions to send again on others all that it holds (earliest) */
	struct mpcc_num rate; /* Mbit/s expected (earliest, esmptcp) */
	struct mpcc_num cost; /* mJ per Mbit at that rate (emtcp, esmptcp); 0 = no profile */
	__u32 subflow_id; /* as ip mptcp monitor counts them */
	__u32 ifindex;
	__u32 arrival_us; /* how long a byte takes that is sent now (earliest); 0 = not known */
	__u32 held; /* bytes handed to it and not acknowledged (earliest) */
	__u32 pad;
	__u8 local_id; /* address ids, as ss -M shows them */
	__u8 remote_id;
	__u8 backup;
	__u8 allowed; /* in the set that may be used (esmptcp); 1 for the others */
};

/* The last choice of a set of subflows (esmptcp); all 0 until there is one. */
struct mpcc_sched_choice {
	struct mpcc_coupling objective[MPCC_MAX_LANES]; /* O_k for k = 1.. */
	__u8 order[MPCC_MAX_LANES]; /* slots of subflows[], cheapest first */
	__u64 bytes; /* the size that it was made for */
	__u64 chosen_us; /* CLOCK_MONOTONIC */
	__u64 changes; /* of the set */
	__u32 count; /* subflows sorted */
	__u32 k; /* the first k of them may be used */
};

struct mpcc_sched_connection {
	__u64 opened_us; /* CLOCK_MONOTONIC, of the first decision */
	__u64 updated_us; /* CLOCK_MONOTONIC, of the last one */
	__u64 decisions; /* those to send new data */
	__u64 waits; /* decisions to wait although there was room */
	__u64 retransmissions; /* decisions on what to send again */
	__u64 repeats; /* those among them that sent again all that a slow subflow held */
	__u64 netns_cookie;
	__u32 token; /* as ss -M shows it */
	__u32 netns; /* inode number of the network namespace */
	__u32 count; /* slots of subflows[] that have been used */
	__u32 left_out; /* subflows beyond those that a decision looks at */
	__u8 scheduler[16];
	struct mpcc_sched_choice choice;
	struct mpcc_sched_subflow subflows[MPCC_MAX_LANES];
};

/* Totals outlive the connections they come from; what these did is added when they close. */
struct mpcc_sched_total_key {
	__u64 netns_cookie;
	__u8 scheduler[16];
};

/* One for each CPU, as struct mpcc_total. */
struct mpcc_sched_total {
	__u64 opened; /* connections */
	__u64 closed;
	__u64 decisions;
	__u64 waits;
	__u64 retransmissions;
	__u64 repeats;
	__u64 bytes;
	__u64 updated_us; /* CLOCK_MONOTONIC, when a connection was opened or closed */
	__u32 netns; /* inode number of the network namespace */
	__u32 pad;
};

/* What could not be recorded. No connection is hurt by it. */
struct mpcc_sched_counter_set {
	__u64 last_id; /* the last identity given to a connection */
	__u64 lost_connections; /* connections without live state: the map was full, or the namespace had its share (share.h) */
	__u64 lost_totals; /* connections without totals: the map was full */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MPCC_MAX_SCHED_CONNECTIONS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u64);
	__type(value, struct mpcc_sched_connection);
} mpcc_sched_conn SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MPCC_MAX_SCHED_TOTALS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct mpcc_sched_total_key);
	__type(value, struct mpcc_sched_total);
} mpcc_sched_sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct mpcc_sched_counter_set);
} mpcc_sched_lost SEC(".maps");

#endif
