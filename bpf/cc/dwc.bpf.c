// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * DWC, Dynamic Window Coupling (Hassayoun, Iyengar, Ros, ICNP 2011). Reconstruction: only the abstract
 * and the increase, as Zhao, Liu, Wang give it (On Energy-Efficient Congestion Control for Multipath
 * TCP, section IV), could be read.
 *
 *   per acknowledged segment   w_r += min(rtt_r / (|G| min_k rtt_k sum_k w_k), 1 / w_r), k in G
 *   per loss event             w_r /= 2
 *   G                          the subflows that share a bottleneck with r, r among them; alone: Reno
 *
 * Without the 1/w cap the published increase exceeds a packet per ACK on unequal RTTs.
 *
 * The paper finds shared bottlenecks by loss and delay together; the thresholds are ours. At a loss on r,
 * sibling k shows the same congestion if it had a loss within max(rtt_r, rtt_k), or if its srtt is nearer
 * to the longest than to the shortest that it has had since the second last of its losses (where the two differ
 * by less than an eighth of the base RTT there is no queue). Paths that share nothing show that too, by chance; so r keeps for each sibling
 * a moving average of these verdicts, with gain 1/4, and holds k for apart while more than a quarter
 * say so. At first all are together. Each subflow judges for itself, at its own losses.
 */
#include "mpcc/cc.h"

/* One average per sibling, found by the low bits of its subflow id. */
#define SIBLINGS 8
#define APART 64

struct cc_state {
	struct mpcc_flow flow;
	__u32 lost_at_us; /* low bits of tcp_mstamp at the last loss; 0 = none */
	__u32 lost_rtt_us8; /* srtt then */
	__u32 peak_us8; /* the largest srtt since the last loss */
	__u32 peak_before_us8; /* and between the last two */
	/* A byte each, 0: always congested when we are, to 255: never. One word, as the verifier lets no
	 * program index into a socket. */
	__u64 apart;
};

struct cc_sum {
	__u32 n;
	__u32 shortest_us8; /* min rtt */
	__u64 cwnd; /* sum w */
	__u32 seen; /* siblings looked at, by the low bits of their ids */
	__u32 congested; /* those that show congestion */
};

static __always_inline __u64 apart_of(const struct cc_state *state, __u32 slot)
{
	return state->apart >> 8 * slot & 255;
}

/* Whether k showed congestion when r lost. */
static __always_inline bool shows_congestion(const struct mpcc_path *p, const struct cc_state *k,
					     const struct cc_state *r)
{
	__u64 base_us8 = (__u64)k->flow.base_rtt_us << 3;
	__u64 peak_us8 = k->peak_us8;
	__u64 near_us8 = r->lost_rtt_us8;
	/* The clocks of two sockets are read at different times: k's loss may seem to come later. */
	__u32 before_us = elapsed_us(r->lost_at_us, k->lost_at_us);
	__u32 after_us = elapsed_us(k->lost_at_us, r->lost_at_us);
	__u32 apart_us = before_us < after_us ? before_us : after_us;

	if (near_us8 < p->srtt_us8)
		near_us8 = p->srtt_us8;
	if (k->lost_at_us && apart_us <= near_us8 >> 3)
		return true;
	if (peak_us8 < k->peak_before_us8)
		peak_us8 = k->peak_before_us8;
	return peak_us8 > base_us8 + base_us8 / 8 && 2ULL * p->srtt_us8 > base_us8 + peak_us8;
}

static __always_inline void dwc_read_private(struct mpcc_path *p, const struct tcp_sock *tp,
					     const struct cc_state *state,
					     const struct cc_state *own)
{
	p->group = state != own && apart_of(own, p->subflow_id % SIBLINGS) > APART;
	p->congested = shows_congestion(p, state, own);
}

MPCC_GLOBAL int dwc_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	if (!sum->n || p->srtt_us8 < sum->shortest_us8)
		sum->shortest_us8 = p->srtt_us8;
	sum->n++;
	sum->cwnd += p->cwnd;
	sum->seen |= 1 << p->subflow_id % SIBLINGS;
	sum->congested |= !!p->congested << p->subflow_id % SIBLINGS;
	return 0;
}

MPCC_GLOBAL int dwc_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			 const struct mpcc_path *p nonnull)
{
	struct mpcc_num group = num_mul(num_of(sum->n * sum->cwnd), num_of(sum->shortest_us8));

	step->up = num_min(num_div(num_of(p->srtt_us8), group), num_inverse(p->cwnd));
	step->down = num_zero();
	return 0;
}

/* |G| */
MPCC_GLOBAL int dwc_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
			     const struct mpcc_path *p nonnull)
{
	c->value = num_of(sum->n);
	c->negative = 0;
	return 0;
}

/* Judges every sibling anew. Not inlined: the view needs a stack of its own. */
static __noinline int regroup(struct tcp_sock *tp)
{
	struct cc_state *state = state_of(tp);
	struct cc_view v;
	struct cc_sum *sum = sum_of(&v);
	__u64 all = 0;

	look_at_group(&v, tp, MPCC_ANY_GROUP);
	for (__u32 i = 0; i < SIBLINGS; i++) {
		__u64 apart = apart_of(state, i);

		/* Two that share a slot share an average; our own stays 0. */
		if (sum->seen & 1 << i && i != v.self.subflow_id % SIBLINGS) {
			if (sum->congested & 1 << i)
				apart -= apart / 4;
			else
				apart += (255 - apart) / 4;
		}
		all |= apart << 8 * i;
	}
	state->apart = all;
	return 0;
}

static __always_inline void dwc_on_loss(struct cc_state *state, struct tcp_sock *tp)
{
	state->lost_at_us = (__u32)tp->tcp_mstamp;
	state->lost_rtt_us8 = tp->srtt_us;
	regroup(tp);
	state->peak_before_us8 = state->peak_us8;
	state->peak_us8 = 0;
}

static __always_inline void dwc_on_ack(struct cc_state *state, struct tcp_sock *tp)
{
	if (tp->srtt_us > state->peak_us8)
		state->peak_us8 = tp->srtt_us;
}

static const struct cc_hooks cc_hooks = {
	.add_path = dwc_add,
	.step = dwc_step,
	.after_loss = half_window,
	.floor = reno_floor,
	.set_window = keep_window,
	.coupling = dwc_coupling,
	.read_private = dwc_read_private,
	.on_ack = dwc_on_ack,
	.on_loss = dwc_on_loss,
};

CC_TABLE(dwc);
