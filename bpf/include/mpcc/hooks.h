/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a congestion control defines, all in this one place. Its file
 *   includes "mpcc/cc.h"
 *   defines struct cc_state   what it keeps in the socket, a struct mpcc_flow flow first
 *           struct cc_sum     what it adds up over a connection's subflows; all zero is the empty sum
 *           its hooks         functions of the types below, static or MPCC_GLOBAL
 *   names them                static const struct cc_hooks cc_hooks = { .add_path = lia_add, … };
 *   and ends with its table   CC_TABLE(lia)
 *
 * All hooks of the rule must be named, and those around it where the algorithm has them; what is missing,
 * misspelt or not named is an error of the compiler.
 */
#ifndef MPCC_HOOKS_H
#define MPCC_HOOKS_H

#include "path.h"
#include "state.h"

struct cc_state;
struct cc_sum;
struct cc_view;

struct cc_hooks {
	/* The rule: numbers in, numbers out. */

	/* Adds a subflow that counts to the sums. */
	int (*add_path)(struct cc_sum *sum, const struct mpcc_path *p);
	/* What one acknowledged segment adds to the window in congestion avoidance. */
	int (*step)(struct mpcc_step *step, const struct cc_sum *sum, const struct mpcc_path *p);
	/* The window after a loss event, before the floor; half_window is RFC 5681's. */
	__u32 (*after_loss)(const struct cc_sum *sum, const struct mpcc_path *p);
	/* The smallest window, packets; reno_floor is the kernel's, low_floor (cc.h) is 1. */
	__u32 (*floor)(const struct cc_sum *sum);
	/* The window that the algorithm sets without steps, once per RTT or period; keep_window sets none. */
	int (*set_window)(struct mpcc_setting *s, const struct cc_sum *sum,
			  const struct mpcc_path *p);
	/* The quantity by which the algorithm couples, which `mpcc status` shows. */
	int (*coupling)(struct mpcc_coupling *c, const struct cc_sum *sum,
			const struct mpcc_path *p);

	/*
	 * What remains of the rule in a subflow alone at its bottleneck: the factor, at most 1, on the growth of CUBIC
	 * or Reno, by which the algorithm prefers other paths. sum is over all subflows.
	 */
	int (*shift)(struct mpcc_num *part, const struct cc_sum *sum, const struct mpcc_path *p);
	/* Adds a subflow that counts to as much of the sums as shift needs, at least. */
	int (*add_to_shift)(struct cc_sum *sum, const struct mpcc_path *p);

	/* Around the rule: sockets. */

	/* Fills a path with what the state of its subflow holds, seen from the subflow whose state is own. */
	void (*read_private)(struct mpcc_path *p, const struct tcp_sock *tp,
			     const struct cc_state *state, const struct cc_state *own);
	/* Bookkeeping at an ACK, before the window grows, and at a loss event, before it shrinks. */
	void (*on_ack)(struct cc_state *state, struct tcp_sock *tp);
	void (*on_loss)(struct cc_state *state, struct tcp_sock *tp);
	/* In place of step, where that needs what the socket's state holds. */
	void (*follow)(struct mpcc_step *step, struct cc_view *v, struct tcp_sock *tp);
	/* In place of slow start and the steps: all that an ACK, up to the byte ack, does to the window. */
	void (*grow)(struct sock *sk, __u32 ack, __u32 acked);
	/* When the kernel takes a loss event back, whose packets were late and not lost. */
	void (*on_undo)(struct cc_state *state);
	/* When the socket has come to another TCP_CA_ state. */
	void (*on_state)(struct sock *sk, __u8 new_state);
};

/* The algorithm's hooks. A constant, so that the compiler makes a call of a hook a plain call. */
static const struct cc_hooks cc_hooks;

extern void hook_of_the_rule_is_missing(void)
	__attribute__((error("cc_hooks lacks a hook of the rule")));

/* Compiles only if all hooks of the rule are there. */
static __always_inline void require_rule(void)
{
	if (!cc_hooks.add_path || !cc_hooks.step || !cc_hooks.after_loss || !cc_hooks.floor ||
	    !cc_hooks.set_window || !cc_hooks.coupling || !cc_hooks.shift != !cc_hooks.add_to_shift)
		hook_of_the_rule_is_missing();
}

/* Room for a struct cc_sum. */
#define CC_SUM_BYTES 56

/* The kernel's smallest window after a loss, packets. */
#define MPCC_RENO_FLOOR 2

static __always_inline __u32 half_window(const struct cc_sum *sum, const struct mpcc_path *p)
{
	return p->cwnd / 2;
}

static __always_inline __u32 reno_floor(const struct cc_sum *sum)
{
	return MPCC_RENO_FLOOR;
}

static __always_inline int keep_window(struct mpcc_setting *s, const struct cc_sum *sum,
				       const struct mpcc_path *p)
{
	return 0;
}

#endif
