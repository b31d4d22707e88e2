/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where a socket is: its network namespace, and the interface by which its packets leave the host. */
#ifndef MPCC_DEVICE_H
#define MPCC_DEVICE_H

#include "compat.h"

/* The interface that the socket sends through; NULL while it has no route. */
static __always_inline const struct net_device *device_of(const struct tcp_sock *tp)
{
	const struct dst_entry *dst = tp->inet_conn.icsk_inet.sk.sk_dst_cache;

	if (!dst)
		return NULL;
	dst = bpf_rdonly_cast(dst, mpcc_type_id(struct dst_entry));
	return bpf_rdonly_cast(dst->dev, mpcc_type_id(struct net_device));
}

static __always_inline __u64 netns_cookie_of(const struct tcp_sock *tp)
{
	return tp->inet_conn.icsk_inet.sk.__sk_common.skc_net.net->net_cookie;
}

#endif
