// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What mpcc use attaches for a cgroup: mpcc_use_cc chooses the congestion control of its MPTCP connections, of all or of
 * those to some addresses, and mpcc_use_mptcp has its programs get MPTCP sockets where they ask for TCP ones. Each use
 * has a program of its own.
 */
#include "mpcc/compat.h"

#include <bpf/bpf_endian.h>

enum { SOCK_TYPE_MASK = 0xf, SOCK_STREAM = 1, IPPROTO_MPTCP = 262 };
enum {
	BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB = 4,
	BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5,
	BPF_SOCK_OPS_RTT_CB = 12
};
enum { BPF_SOCK_OPS_RTT_CB_FLAG = 1 << 3 };

enum { CC_NAME = 16 }; /* bytes, with the final 0 */

/* Of the system call's interface, so the kernel has it just so. */
struct bpf_sock_ops {
	__u32 op;
	__u32 reply[4];
	__u32 not_used[16];
	__u32 bpf_sock_ops_cb_flags;
	__u32 not_used_either[24];
	void *sk;
};

#ifdef __bpf__
_Static_assert(__builtin_offsetof(struct bpf_sock_ops, bpf_sock_ops_cb_flags) == 84,
	       "as in linux/bpf.h");
_Static_assert(__builtin_offsetof(struct bpf_sock_ops, sk) == 184, "as in linux/bpf.h");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#endif

struct mptcp_sock___use {
	char ca_name[CC_NAME]; /* what later subflows get */
	struct sock *first;
};

struct net_generic {
	void *ptr[1];
};

struct netns_ipv4 {
	const struct tcp_congestion_ops *tcp_congestion_control;
};

struct net___use {
	struct net_generic *gen;
	struct netns_ipv4 ipv4;
};

struct nsproxy {
	struct net *net_ns;
};

struct task_struct {
	struct nsproxy *nsproxy;
};

struct ctl_table {
	void *data;
};

struct ctl_table_header {
	const struct ctl_table *ctl_table;
};

struct mptcp_pernet {
	struct ctl_table_header *ctl_table_hdr;
	__u8 mptcp_enabled;
};

#ifdef __bpf__
#pragma clang attribute pop
#endif

const volatile char mpcc_cc[CC_NAME]; /* the congestion control to choose, filled up with zeroes */
const volatile __u64 mpcc_cgroup; /* id of the cgroup */

/* Which of the group's connections: all, unless a namespace is given. */
const volatile __u64 mpcc_netns; /* its cookie */
const volatile __u8 mpcc_to[16]; /* the peer's address, as IPv6 has it, */
const volatile __u32 mpcc_to_bits; /* of which so many bits count */
const volatile char mpcc_dev[CC_NAME]; /* the interface, filled up with zeroes; empty for any */
/* Of several choices for a connection the highest one counts, and of equal ones that of the innermost group. */
const volatile __u32 mpcc_rank;

struct cc_name {
	char text[CC_NAME];
};

static __always_inline struct cc_name read_name(const char *from)
{
	struct cc_name n = {};

	bpf_probe_read_kernel_str(n.text, sizeof(n.text), from);
	return n;
}

static __always_inline bool same(const struct cc_name *a, const struct cc_name *b)
{
	return !__builtin_memcmp(a->text, b->text, CC_NAME);
}

static __always_inline struct cc_name control_of(const void *sk)
{
	const struct inet_connection_sock *icsk = sk;
	const struct tcp_congestion_ops *control = BPF_CORE_READ(icsk, icsk_ca_ops);

	return read_name(control->name);
}

static __always_inline struct cc_name default_of(const struct sock *sk)
{
	const struct net___use *net = (void *)BPF_CORE_READ(sk, __sk_common.skc_net.net);
	const struct tcp_congestion_ops *control = BPF_CORE_READ(net, ipv4.tcp_congestion_control);

	return read_name(control->name);
}

static __always_inline void control_by(struct bpf_sock_ops *ops, struct cc_name *name)
{
	bpf_setsockopt(ops, IPPROTO_TCP, TCP_CONGESTION, name->text, CC_NAME);
}

/* The peer's address; that of an IPv4 peer is ::ffff:a.b.c.d. */
static __always_inline struct in6_addr peer_of(const struct sock *sk)
{
	struct in6_addr peer = {};

	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET6) {
		BPF_CORE_READ_INTO(&peer, sk, __sk_common.skc_v6_daddr);
	} else {
		peer.in6_u.u6_addr32[2] = bpf_htonl(0xffff);
		peer.in6_u.u6_addr32[3] = BPF_CORE_READ(sk, __sk_common.skc_daddr);
	}
	return peer;
}

static __always_inline bool is_v4(const struct in6_addr *a)
{
	return !a->in6_u.u6_addr32[0] && !a->in6_u.u6_addr32[1] &&
	       a->in6_u.u6_addr32[2] == bpf_htonl(0xffff);
}

/* Whether a connection goes to the addresses, by the interface. */
static __always_inline bool goes_there(const struct sock *sk)
{
	struct cc_name dev = {}, wanted = {};
	struct in6_addr to, peer = peer_of(sk);
	int i;

	for (i = 0; i < CC_NAME; i++) {
		((__u8 *)&to)[i] = mpcc_to[i];
		wanted.text[i] = mpcc_dev[i];
	}
	if (is_v4(&to) != is_v4(&peer))
		return false; /* ::/0 is for IPv6 peers */
	for (i = 0; i < 4; i++) {
		int bits = (int)mpcc_to_bits - 32 * i;
		__u32 mask = bits <= 0 ? 0 : bits >= 32 ? ~0u : bpf_htonl(~0u << (32 - bits));

		if ((to.in6_u.u6_addr32[i] ^ peer.in6_u.u6_addr32[i]) & mask)
			return false;
	}
	if (!mpcc_dev[0])
		return true;
	BPF_CORE_READ_STR_INTO(&dev.text, sk, sk_dst_cache, dev, name);
	return same(&dev, &wanted);
}

/*
 * A connection's first subflow. Where an application has chosen, the connection's name differs from the default of its
 * namespace. Other programs of this group, and then those of the groups that it is in, have their turn after this one:
 * the reply tells them what rank the choice has.
 */
static __always_inline void choose(struct bpf_sock_ops *ops, const struct sock *sk,
				   const struct mptcp_sock___use *msk)
{
	enum { CHOSEN = 0x6d700000, RANK = 0xffff };
	struct cc_name wanted = {}, now = read_name(msk->ca_name), by_default = default_of(sk);
	__u32 before = ops->reply[0];
	int i;

	if ((before & ~RANK) == CHOSEN && (before & RANK) >= mpcc_rank)
		return;
	if (!same(&now, &by_default) || (mpcc_netns && !goes_there(sk)))
		return;
	for (i = 0; i < CC_NAME; i++)
		wanted.text[i] = mpcc_cc[i];
	control_by(ops, &wanted);
	ops->reply[0] = CHOSEN | mpcc_rank;
}

/*
 * A later subflow does as the first one does, whoever chose that. When a peer has opened it, MPTCP may set it to the
 * connection's name afterwards, so it is looked at again with each RTT.
 */
static __always_inline void follow(struct bpf_sock_ops *ops, const struct sock *sk,
				   const struct sock *first)
{
	struct cc_name wanted = control_of(first), now = control_of(sk);

	if (!same(&wanted, &now))
		control_by(ops, &wanted);
	if (ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		bpf_sock_ops_cb_flags_set(ops,
					  ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_RTT_CB_FLAG);
}

SEC("sockops")
int mpcc_use_cc(struct bpf_sock_ops *ops)
{
	const struct mptcp_sock___use *msk;
	const struct sock *sk, *first;
	void *subflow = ops->sk;

	if (ops->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB &&
	    ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB && ops->op != BPF_SOCK_OPS_RTT_CB)
		return 1;
	if (!subflow)
		return 1;
	sk = (void *)bpf_skc_to_tcp_sock(subflow);
	if (!sk)
		return 1;
	msk = (void *)bpf_skc_to_mptcp_sock(subflow);
	if (!msk)
		return 1; /* plain TCP */
	if (mpcc_netns && BPF_CORE_READ(sk, __sk_common.skc_net.net, net_cookie) != mpcc_netns)
		return 1;
	first = BPF_CORE_READ(msk, first);
	if (first && first != sk)
		follow(ops, sk, first);
	else if (ops->op != BPF_SOCK_OPS_RTT_CB)
		choose(ops, sk, msk);
	return 1;
}

static __always_inline bool in_cgroup(void)
{
	enum { DEEPEST = 64 };
	int level;

	for (level = 0; level < DEEPEST; level++) {
		__u64 id = bpf_get_current_ancestor_cgroup_id(level);

		if (!id || id == mpcc_cgroup)
			return id;
	}
	return false;
}

/* Where MPTCP keeps a namespace's settings among those of other parts of the kernel. It is the same in all of them. */
static int mptcp_slot;

static __always_inline const struct mptcp_pernet *settings_at(const struct net_generic *all,
							      int slot)
{
	const struct mptcp_pernet *p = NULL;
	const void *first_setting;

	bpf_probe_read_kernel(&p, sizeof(p), &all->ptr[slot]);
	first_setting = BPF_CORE_READ(p, ctl_table_hdr, ctl_table, data);
	return p && first_setting == &p->mptcp_enabled ? p : NULL;
}

/* Whether net.mptcp.enabled is 1 in the caller's namespace: where it is 0, an MPTCP socket is refused. */
static __always_inline bool mptcp_enabled(void)
{
	enum { SLOTS = 256 };
	const struct task_struct *task = (void *)bpf_get_current_task();
	const struct net___use *net = (void *)BPF_CORE_READ(task, nsproxy, net_ns);
	const struct net_generic *all = BPF_CORE_READ(net, gen);
	const struct mptcp_pernet *p = settings_at(all, mptcp_slot);
	int slot;

	for (slot = 0; !p && slot < SLOTS; slot++) {
		p = settings_at(all, slot);
		if (p)
			mptcp_slot = slot;
	}
	return p && BPF_CORE_READ(p, mptcp_enabled);
}

/* 0 leaves it to the programs of other groups, and at last to the kernel, which takes the protocol as it is. */
SEC("fmod_ret/update_socket_protocol")
int BPF_PROG(mpcc_use_mptcp, int family, int type, int protocol)
{
	if ((family != AF_INET && family != AF_INET6) || (type & SOCK_TYPE_MASK) != SOCK_STREAM ||
	    (protocol && protocol != IPPROTO_TCP))
		return 0;
	return in_cgroup() && mptcp_enabled() ? IPPROTO_MPTCP : 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
