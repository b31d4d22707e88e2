/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel declares in no header for modules. The module looks these functions up at load
 * and compares their prototypes with the kernel's BTF: see check_function().
 */
#ifndef MPCC_KERNEL_PRIVATE_H
#define MPCC_KERNEL_PRIVATE_H

#include <linux/types.h>

struct mptcp_sched_ops;
struct mptcp_sock;
struct mptcp_subflow_context; /* the kernel keeps its definition to itself */
struct sock;

int mptcp_register_scheduler(struct mptcp_sched_ops *sched);
void mptcp_unregister_scheduler(struct mptcp_sched_ops *sched);
void mptcp_subflow_set_scheduled(struct mptcp_subflow_context *subflow, bool scheduled);
bool mptcp_subflow_active(struct mptcp_subflow_context *subflow);
struct sock *mptcp_subflow_get_retrans(struct mptcp_sock *msk);
bool __mptcp_retransmit_pending_data(struct sock *sk);

#endif
