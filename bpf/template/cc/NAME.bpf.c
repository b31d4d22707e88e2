// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * NAME: the subflows of a connection grow together as fast as one TCP connection does. A rule to begin with: replace it
 * by yours, here and in reference.py.
 *
 *   per acknowledged segment   w_r += min(gain / W, 1 / w_r),  W = sum_k w_k
 *   per loss event             w_r /= 2
 *
 * w is a window in packets. mpcc's headers do the rest: which subflows count, slow start, fractions of a packet, recovery,
 * what `mpcc status` shows, `mpcc eval`. hooks.h among them lists all that a rule can define.
 */
#include "mpcc/cc.h"

/* `mpcc load ./NAME.bpf.o --set gain=2` sets it. The text has range, unit and meaning. */
TUNABLE(gain, 1, "1..8 packets; what all subflows gain together in a round trip");

/* What is kept of each subflow between two calls: mpcc's part first, then yours, at most 104 bytes in all. */
struct cc_state {
	struct mpcc_flow flow;
};

/* What the rule adds up over the subflows that count, at most 64 bytes. It is all zero at first. */
struct cc_sum {
	__u64 cwnd; /* W, packets */
};

/* Adds a subflow. path.h among the headers says what is known of it. */
MPCC_GLOBAL int NAME_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	sum->cwnd += p->cwnd;
	return 0;
}

/*
 * What an acknowledged segment adds to the window of subflow p, and what it takes away, in packets. A struct mpcc_num
 * has 32 significant bits at any size (fixed.h), as BPF has no floating point.
 */
MPCC_GLOBAL int NAME_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			  const struct mpcc_path *p nonnull)
{
	step->up = at_most_reno(num_div(num_of(gain), num_of(sum->cwnd)), p);
	step->down = num_zero();
	return 0;
}

/* The quantity by which the subflows are coupled, for `mpcc status`: here each one's part of W. */
MPCC_GLOBAL int NAME_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
			      const struct mpcc_path *p nonnull)
{
	c->value = num_div(num_of(p->cwnd), num_of(sum->cwnd));
	c->negative = 0;
	return 0;
}

static const struct cc_hooks cc_hooks = {
	.add_path = NAME_add,
	.step = NAME_step,
	.after_loss = half_window,
	.floor = reno_floor, /* the smallest window: 2 packets */
	.set_window = keep_window, /* it sets none by itself */
	.coupling = NAME_coupling,
};

/* The table that the kernel gets: it knows the congestion control by this name. */
CC_TABLE(NAME);
