/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's types, cut down to the fields that mpcc reads or writes. On the BPF target every access
 * is relocated to the running kernel's layout, so neither order nor omissions matter here; off it
 * (the fuzzers) these are plain structs.
 */
#ifndef MPCC_KERNEL_H
#define MPCC_KERNEL_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

/* From the BPF system call's interface. */
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERCPU_HASH = 5 };
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_F_NO_PREALLOC = 1 };

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

enum { AF_INET = 2, AF_INET6 = 10 };
enum { IPPROTO_TCP = 6, TCP_CONGESTION = 13 };
enum { TCP_ESTABLISHED = 1, TCP_CLOSE_WAIT = 8 };
enum { TCP_CA_Open, TCP_CA_Disorder, TCP_CA_CWR, TCP_CA_Recovery, TCP_CA_Loss };
enum { TCP_CONG_NON_RESTRICTED = 1 };

/* Looked up by name in the running kernel: see mpcc_enum. */
enum tcp_ca_event { CA_EVENT_CWND_RESTART = 1 };

#ifdef __bpf__
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#endif

struct list_head {
	struct list_head *next;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
	__u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct net_device {
	char name[16];
	int ifindex;
};

struct dst_entry {
	struct net_device *dev;
};

struct timer_list {
	unsigned long expires; /* jiffies */
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct socket {
	struct sock *sk;
	unsigned long flags;
};

#define SOCK_NOSPACE 2 /* number of the bit in flags: the application waits for room to write */

struct sock {
	struct sock_common __sk_common;
	struct dst_entry *sk_dst_cache;
	int sk_wmem_queued;
	int sk_sndbuf;
	unsigned long sk_pacing_rate;
	__u32 sk_pacing_status;
	unsigned int sk_gso_max_size;
	struct timer_list tcp_retransmit_timer;
	__u32 sk_mark;
	struct sock_cgroup_data sk_cgrp_data;
	struct socket *sk_socket;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops *icsk_ca_ops;
	void *icsk_ulp_data;
	/* Newer kernels have the sock's tcp_retransmit_timer instead. */
	struct timer_list icsk_retransmit_timer;
	__u32 icsk_rto; /* jiffies */
	__u32 icsk_rto_min; /* jiffies */
	__u8 icsk_pending; /* what that timer is for; 0 = it does not run */
	__u8 icsk_ca_state : 5;
	__u8 icsk_backoff;
	__u64 icsk_ca_priv[13];
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_rack {
	__u32 rtt_us;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u64 tcp_mstamp;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 write_seq;
	__u32 high_seq; /* snd_nxt when recovery began */
	__u32 packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u64 bytes_sent;
	__u64 bytes_acked;
	__u64 bytes_received;
	__u64 bytes_retrans;
	__u32 srtt_us;
	__u32 rttvar_us;
	__u32 snd_cwnd;
	__u32 snd_cwnd_clamp;
	__u32 snd_wnd;
	__u32 snd_ssthresh;
	__u32 prior_ssthresh; /* to which an undo goes back; 0 = nothing to undo */
	__u32 max_packets_out;
	__u32 mss_cache;
	__u32 rate_delivered;
	__u32 rate_interval_us;
	__u32 total_retrans;
	struct minmax rtt_min;
	struct tcp_rack rack;
	__u8 is_cwnd_limited : 1;
	bool is_mptcp;
	__u32 mdev_us; /* mean deviation of the RTT, times 4 */
};

struct mptcp_subflow_context {
	struct list_head node;
	unsigned long avg_pacing_rate; /* bytes per second, the kernel scheduler's own average */
	__u32 subflow_id;
	__u32 request_bkup : 1, backup : 1, closing : 1, stale : 1;
	__u8 local_id;
	__u8 remote_id;
	__u8 stale_count; /* timeouts of the connection's in a row that found no progress on it */
	struct sock *tcp_sock;
	struct sock *conn;
};

/* What sendmsg() left in one piece of memory. */
struct mptcp_data_frag {
	__u64 data_seq;
	__u16 data_len;
	__u16 already_sent;
};

struct mptcp_sock {
	struct inet_connection_sock sk;
	struct list_head conn_list;
	__u64 write_seq;
	__u64 snd_una;
	__u64 snd_nxt;
	__u64 wnd_end;
	unsigned long timer_ival; /* jiffies */
	struct mptcp_data_frag *first_pending;
	int snd_burst; /* bytes left to the subflow that was chosen */
	__u32 token;
};

struct ack_sample {
	__u32 pkts_acked;
	__s32 rtt_us;
};

struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*set_state)(struct sock *sk, __u8 new_state);
	void (*cwnd_event)(struct sock *sk, __u32 event);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	__u32 (*undo_cwnd)(struct sock *sk);
	char name[16];
	__u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	void (*cwnd_event_tx_start)(struct sock *sk); /* since 7.1, for CA_EVENT_TX_START */
};

#ifdef __bpf__
#pragma clang attribute pop
#endif

/* Kernel functions that a BPF congestion control may call. */
extern __u32 tcp_slow_start(struct tcp_sock *tp, __u32 acked) __ksym;
extern __u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym;

#endif
