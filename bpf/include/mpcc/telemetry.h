/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps that other programs read. They are pinned by name under /sys/fs/bpf/mpcc/maps and shared by
 * all congestion controls; these types are their only definition (Go's are generated from them).
 *
 * A value is written field by field while others read it: each field is whole, but fields of one
 * read may be one refresh apart. A refresh happens at most once per RTT and once per 100 ms.
 *
 * A network namespace is told apart by its cookie, which no other one has had since the machine
 * started. Its inode number, which people see, comes again when it has ended.
 */
#ifndef MPCC_TELEMETRY_H
#define MPCC_TELEMETRY_H

#include "device.h"
#include "energy.h"
#include "path.h"
#include "share.h"

#define MPCC_MAX_FLOWS 16384
#define MPCC_MAX_TOTALS 1024
#define MPCC_RTT_BUCKETS 24
#define MPCC_REFRESH_MIN_US 100000

/* Live state of one subflow, or of a TCP connection that is not multipath (token 0). */
struct mpcc_subflow {
	__u64 opened_us; /* CLOCK_MONOTONIC */
	__u64 updated_us; /* CLOCK_MONOTONIC */
	__u64 bytes_sent; /* with retransmissions */
	__u64 bytes_acked;
	__u64 bytes_received;
	__u64 bytes_retrans;
	__u64 delivery_rate; /* bytes per second */
	__u64 energy_nj; /* modelled; 0 without a profile */
	__u64 netns_cookie;
	struct mpcc_coupling coupling; /* the algorithm's own quantity */
	__u32 cwnd; /* packets */
	__u32 ssthresh; /* packets; 2^31-1 before the first loss */
	__u32 srtt_us8;
	__u32 base_rtt_us;
	__u32 mss;
	__u32 retrans; /* segments */
	__u32 losses; /* loss events */
	__u32 token; /* of the connection, as ss -M shows it */
	__u32 subflow_id; /* as ip mptcp monitor counts them */
	__u32 netns; /* inode number of the network namespace */
	__u32 ifindex;
	__u8 local[16]; /* address; IPv4 takes the first four bytes */
	__u8 remote[16];
	__u16 local_port;
	__u16 remote_port;
	__u8 family; /* AF_INET or AF_INET6 */
	__u8 local_id; /* address ids, as ss -M shows them */
	__u8 remote_id;
	__u8 backup;
	__u8 priced; /* the interface has an energy profile */
	__u8 cc[16];
	__u8 ifname[16];
};

/* Totals outlive the subflows they come from. */
struct mpcc_total_key {
	__u64 netns_cookie;
	__u32 ifindex;
	__u32 pad;
	__u8 cc[16];
};

/* One for each CPU: their sum is the total. The name is where it was first written, and empty elsewhere. */
struct mpcc_total {
	__u64 opened; /* subflows */
	__u64 closed;
	__u64 bytes_acked;
	__u64 bytes_received;
	__u64 bytes_retrans;
	__u64 retrans; /* segments */
	__u64 losses; /* loss events */
	__u64 energy_nj;
	__u64 rtt_sum_us; /* over the refreshes that rtt[] counts */
	/* Refreshes by srtt: bucket i counts those of at most 2^(i-20) s, the last one the rest too. */
	__u64 rtt[MPCC_RTT_BUCKETS];
	__u64 updated_us; /* CLOCK_MONOTONIC; may be one refresh old */
	__u32 netns; /* inode number of the network namespace */
	__u8 ifname[16];
	__u32 pad;
};

/* What could not be recorded. No connection is hurt by it. */
struct mpcc_counter_set {
	__u64 last_id; /* the last identity given to a subflow */
	/* The map was full, or the namespace had its share (share.h): */
	__u64 lost_subflows; /* subflows without live state */
	__u64 lost_totals; /* refreshes without totals */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MPCC_MAX_FLOWS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u64);
	__type(value, struct mpcc_subflow);
} mpcc_subflows SEC(".maps");

/*
 * A CPU writes to its own values only, so that no cache line goes from one to another at every refresh.
 * The additions are atomic all the same: a softirq may interrupt one that a system call is making.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MPCC_MAX_TOTALS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct mpcc_total_key);
	__type(value, struct mpcc_total);
} mpcc_totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct mpcc_counter_set);
} mpcc_counters SEC(".maps");

static __always_inline struct mpcc_counter_set *counters(void)
{
	__u32 slot = 0;

	return bpf_map_lookup_elem(&mpcc_counters, &slot);
}

static const struct mpcc_subflow no_subflow;

/* Bytes per second that the kernel has seen delivered last; 0 = none yet. */
static __always_inline __u64 delivery_rate_of(const struct tcp_sock *tp)
{
	if (!tp->rate_interval_us)
		return 0;
	return (__u64)tp->rate_delivered * tp->mss_cache * 1000000 / tp->rate_interval_us;
}

/* The interface that the socket sends through; 0 and "" while it has no route. */
static __always_inline void read_interface(const struct tcp_sock *tp, __u32 *ifindex, __u8 *name)
{
	const struct net_device *dev = device_of(tp);

	if (!dev || *ifindex == (__u32)dev->ifindex)
		return;
	*ifindex = dev->ifindex;
	bpf_probe_read_kernel(name, 16, dev->name);
}

static __always_inline void read_identity(struct mpcc_subflow *s, const struct tcp_sock *tp)
{
	const struct sock_common *c = &tp->inet_conn.icsk_inet.sk.__sk_common;

	s->family = c->skc_family;
	s->local_port = c->skc_num;
	s->remote_port = __builtin_bswap16(c->skc_dport);
	s->netns = c->skc_net.net->ns.inum;
	s->netns_cookie = netns_cookie_of(tp);
	if (s->family == AF_INET6) {
		bpf_probe_read_kernel(s->local, 16, &c->skc_v6_rcv_saddr);
		bpf_probe_read_kernel(s->remote, 16, &c->skc_v6_daddr);
	} else {
		*(__u32 *)s->local = c->skc_rcv_saddr;
		*(__u32 *)s->remote = c->skc_daddr;
	}
	bpf_probe_read_kernel(s->cc, 16, tp->inet_conn.icsk_ca_ops->name);
}

/* The bucket of struct mpcc_total's rtt[]; srtt is at most 536 s. */
static __always_inline __u32 rtt_bucket(__u32 srtt_us8)
{
	/* In 2^-20 s, rounded up, so that a bucket's upper bound is inclusive. */
	__u64 t = ((__u64)srtt_us8 * 131072 + 999999) / 1000000;
	__u32 bucket;

	if (t <= 1)
		return 0;
	/* The exponent of t - 1, plus one. */
	bucket = num_of(t - 1).e + 32;
	return bucket < MPCC_RTT_BUCKETS - 1 ? bucket : MPCC_RTT_BUCKETS - 1;
}

#endif
