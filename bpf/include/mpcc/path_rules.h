/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The user's rules for paths (`mpcc path set`), which sched/prefer obeys, and what each path has carried. A rule is
 * replaced whole, so that a reader finds the old one or the new one; its use goes on.
 *
 * A rule names paths by what can be seen of a subflow from this host. Of those that apply, one with MPCC_ONLY_… wins
 * over one without, then the later kind in the list below, then the longer prefix, then the lower slot.
 */
#ifndef MPCC_PATH_RULES_H
#define MPCC_PATH_RULES_H

#include "device.h"

#define MPCC_MAX_PATH_RULES 64

/* What a rule names paths by. */
enum {
	MPCC_PATH_INTERFACE = 1, /* by its name: it may go and come again */
	MPCC_PATH_LOCAL_ID, /* address ids, as ss -M shows them */
	MPCC_PATH_REMOTE_ID,
	MPCC_PATH_LOCAL, /* addresses */
	MPCC_PATH_REMOTE,
};

/* Which connections a rule is for. */
enum {
	MPCC_ONLY_ALL,
	MPCC_ONLY_CGROUP, /* the sockets' own, not those below it */
	MPCC_ONLY_PORT, /* at either end */
	MPCC_ONLY_MARK, /* SO_MARK */
};

/* In place of a time: new data never spills. */
#define MPCC_NEVER_SPILLS (~0U)

struct mpcc_path_rule {
	__u64 netns_cookie; /* as in telemetry.h */
	__u64 cap; /* bytes per second; 0 = none */
	__u64 quota; /* bytes; 0 = none */
	__u64 cgroup; /* its id, the inode number of its folder */
	__u32 id; /* no other rule has had it; key of its use */
	__u32 netns; /* inode number of the network namespace */
	__u32 rank; /* 1 is the best */
	__u32 weight; /* share among the paths of its rank; 0 = none */
	__u32 spill_us; /* takes what better ranks cannot, once their queues are so long */
	__u32 mark;
	__u32 address[4]; /* network byte order; IPv4 is mapped into IPv6 */
	__u32 mask[4]; /* of the bits of the address that count */
	__u8 prefix; /* how many those are */
	__u8 kind; /* MPCC_PATH_… */
	__u8 only; /* MPCC_ONLY_… */
	__u8 address_id;
	__u16 port;
	__u8 excluded; /* used only where nothing else is alive */
	__u8 monthly; /* the quota is one for each calendar month: user space begins a new count */
	__u8 ifname[16];
};

struct mpcc_path_use {
	__u64 bytes; /* handed to subflows there, since the period began */
	__u64 paid_until_ns; /* CLOCK_MONOTONIC; up to when what was handed over uses the cap up */
	__u64 since_s; /* Unix time of the period's begin */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MPCC_MAX_PATH_RULES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32); /* slot, from 0 */
	__type(value, struct mpcc_path_rule);
} mpcc_path_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MPCC_MAX_PATH_RULES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32); /* id of the rule */
	__type(value, struct mpcc_path_use);
} mpcc_path_uses SEC(".maps");

/* What rules may ask of a subflow. */
struct path_marks {
	__u64 netns_cookie;
	__u64 cgroup;
	__u32 local[4]; /* addresses, as in the rules */
	__u32 remote[4];
	__u32 mark;
	__u16 local_port;
	__u16 remote_port;
	__u8 local_id;
	__u8 remote_id;
	__u8 ifname[16];
};

/* 0 where the kernel does not tell. */
static __always_inline __u64 cgroup_of(const struct sock *sk)
{
	const struct cgroup *cgroup;

	if (!mpcc_has_field(&sk->sk_cgrp_data, cgroup))
		return 0;
	cgroup = sk->sk_cgrp_data.cgroup;
	return cgroup ? cgroup->kn->id : 0;
}

static __always_inline void map_ipv4(__u32 *address, __be32 ipv4)
{
	address[2] = __builtin_bswap32(0xffff);
	address[3] = ipv4;
}

static __always_inline void read_marks(struct path_marks *m, const struct tcp_sock *tp)
{
	const struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	const struct sock_common *c = &sk->__sk_common;
	const struct mptcp_subflow_context *subflow = bpf_rdonly_cast(
		tp->inet_conn.icsk_ulp_data, mpcc_type_id(struct mptcp_subflow_context));
	const struct net_device *dev = device_of(tp);

	__builtin_memset(m, 0, sizeof(*m));
	m->netns_cookie = c->skc_net.net->net_cookie;
	m->cgroup = cgroup_of(sk);
	m->mark = sk->sk_mark;
	m->local_port = c->skc_num;
	m->remote_port = __builtin_bswap16(c->skc_dport);
	m->local_id = subflow->local_id;
	m->remote_id = subflow->remote_id;
	if (c->skc_family == AF_INET6) {
		bpf_probe_read_kernel(m->local, 16, &c->skc_v6_rcv_saddr);
		bpf_probe_read_kernel(m->remote, 16, &c->skc_v6_daddr);
	} else {
		map_ipv4(m->local, c->skc_rcv_saddr);
		map_ipv4(m->remote, c->skc_daddr);
	}
	if (dev)
		bpf_probe_read_kernel(m->ifname, 16, dev->name);
}

static __always_inline bool is_within(const __u32 *address, const struct mpcc_path_rule *r)
{
	for (__u32 i = 0; i < 4; i++)
		if ((address[i] ^ r->address[i]) & r->mask[i])
			return false;
	return true;
}

static __always_inline bool is_called(const __u8 *name, const struct mpcc_path_rule *r)
{
	/* What follows the 0 may be left over from an earlier name. */
	for (__u32 i = 0; i < 16; i++) {
		if (name[i] != r->ifname[i])
			return false;
		if (!name[i])
			return true;
	}
	return true;
}

static __always_inline bool names_path(const struct mpcc_path_rule *r, const struct path_marks *m)
{
	switch (r->kind) {
	case MPCC_PATH_INTERFACE:
		return is_called(m->ifname, r);
	case MPCC_PATH_LOCAL_ID:
		return m->local_id == r->address_id;
	case MPCC_PATH_REMOTE_ID:
		return m->remote_id == r->address_id;
	case MPCC_PATH_LOCAL:
		return is_within(m->local, r);
	case MPCC_PATH_REMOTE:
		return is_within(m->remote, r);
	}
	return false;
}

static __always_inline bool is_for_connection(const struct mpcc_path_rule *r,
					      const struct path_marks *m)
{
	switch (r->only) {
	case MPCC_ONLY_CGROUP:
		return m->cgroup == r->cgroup;
	case MPCC_ONLY_PORT:
		return m->local_port == r->port || m->remote_port == r->port;
	case MPCC_ONLY_MARK:
		return m->mark == r->mark;
	}
	return true;
}

/* A rule found: how specific it is, larger than 0, above 32 bits of its slot. */
#define FOUND_SLOT(found) ((__u32)(found))

/* The rule in the slot if it applies and is more specific than the one found so far, 0 being none; else that one. */
MPCC_GLOBAL __u64 better_rule(const struct path_marks *m nonnull, __u64 found, __u32 slot)
{
	const struct mpcc_path_rule *r = bpf_map_lookup_elem(&mpcc_path_rules, &slot);
	__u64 specific;

	if (!r || r->netns_cookie != m->netns_cookie || !names_path(r, m) ||
	    !is_for_connection(r, m))
		return found;
	specific = (r->only != MPCC_ONLY_ALL) << 16 | r->kind << 8 | r->prefix;
	return specific > found >> 32 ? specific << 32 | slot : found;
}

#endif
