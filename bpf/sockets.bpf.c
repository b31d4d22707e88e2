// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Which packet scheduler each MPTCP socket has, which no other interface of the kernel tells: an iterator over the
 * open files of all processes, that writes a struct mpcc_socket for each socket of MPTCP's. A socket that several
 * processes hold comes several times.
 */
#include "mpcc/compat.h"

enum { IPPROTO_MPTCP = 262, TCP_LISTEN = 10 };

/* What the iterator writes. */
struct mpcc_socket {
	__u64 id; /* of the socket, as long as it lives */
	__u32 netns; /* inode number of the network namespace */
	__u32 pid; /* of a process that holds it */
	__u8 process[16]; /* its name */
	__u8 scheduler[16];
	__u8 local[16]; /* address; of IPv4 the first four bytes */
	__u16 port;
	__u8 ipv6;
	__u8 listens;
	__u32 pad;
};

#ifdef __bpf__
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#endif

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct task_struct {
	int tgid;
	char comm[16];
};

struct file;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct file *file;
};

struct sock___protocol {
	__u16 sk_protocol;
};

struct mptcp_sched_ops {
	char name[16];
};

struct mptcp_sock___sched {
	struct mptcp_sched_ops *sched;
};

#ifdef __bpf__
#pragma clang attribute pop
#endif

/* Not inlined: so the object describes struct mpcc_socket, for Go. */
static __noinline int read_address(struct mpcc_socket *s, const struct sock *sk)
{
	const struct sock_common *c = &sk->__sk_common;

	s->port = c->skc_num;
	s->listens = c->skc_state == TCP_LISTEN;
	s->ipv6 = c->skc_family == AF_INET6;
	if (s->ipv6)
		bpf_probe_read_kernel(s->local, 16, &c->skc_v6_rcv_saddr);
	else
		bpf_probe_read_kernel(s->local, 4, &c->skc_rcv_saddr);
	return 0;
}

SEC("iter/task_file")
int mpcc_sockets(struct bpf_iter__task_file *it)
{
	struct task_struct *task = it->task;
	struct file *file = it->file;
	const struct mptcp_sock___sched *msk;
	const struct mptcp_sched_ops *sched;
	struct mpcc_socket s = {};
	struct socket *socket;
	struct sock *sk;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk || ((struct sock___protocol *)sk)->sk_protocol != IPPROTO_MPTCP)
		return 0;
	s.id = (__u64)(long)sk;
	s.netns = sk->__sk_common.skc_net.net->ns.inum;
	s.pid = task->tgid;
	bpf_probe_read_kernel(s.process, sizeof(s.process), task->comm);
	read_address(&s, sk);
	msk = bpf_rdonly_cast(sk, mpcc_type_id(struct mptcp_sock));
	sched = msk->sched;
	/* Some kernels have no table for their own. */
	if (sched)
		bpf_probe_read_kernel(s.scheduler, sizeof(s.scheduler), sched->name);
	else
		__builtin_memcpy(s.scheduler, "default", 8);
	bpf_seq_write(it->meta->seq, &s, sizeof(s));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
