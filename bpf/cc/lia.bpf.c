// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * LIA, the Linked Increases Algorithm (RFC 6356, section 3, equations (1) and (2)).
 *
 *   per acknowledged segment   w_r += min(alpha / W, 1 / w_r)
 *   alpha                      W * max_k(w_k / rtt_k^2) / (sum_k w_k / rtt_k)^2,  W = sum_k w_k
 *   per loss event             w_r /= 2
 *
 * w in packets, rtt smoothed. Segments are counted, not ACKs. With one subflow alpha is 1: Reno.
 * Deviations: none in the rule; the window is counted in packets, so subflows with unequal MSS are
 * treated as equal, as the RFC does.
 */
#include "mpcc/path.h"
#include "mpcc/state.h"

struct cc_state {
	struct mpcc_flow flow;
};
MPCC_CHECK_STATE(struct cc_state);

struct cc_sum {
	__u32 n;
	__u64 cwnd; /* W */
	struct mpcc_num rate; /* sum w / rtt */
	struct mpcc_num best; /* max w / rtt^2 */
};

static __always_inline void cc_private(struct mpcc_path *p, const struct tcp_sock *tp,
				       const struct cc_state *state)
{
}

MPCC_PURE int cc_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	struct mpcc_num rate = path_rate(p);

	sum->n++;
	sum->cwnd += p->cwnd;
	sum->rate = num_add(sum->rate, rate);
	sum->best = num_max(sum->best, num_div(rate, num_of(p->srtt_us8)));
	return 0;
}

/* alpha / W */
static __always_inline struct mpcc_num linked_increase(const struct cc_sum *sum)
{
	return num_div(sum->best, num_mul(sum->rate, sum->rate));
}

MPCC_PURE int cc_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
		      const struct mpcc_path *p nonnull)
{
	step->up = num_min(linked_increase(sum), num_inverse(p->cwnd));
	step->down = num_zero();
	return 0;
}

MPCC_PURE __u32 cc_after_loss(const struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	return p->cwnd / 2;
}

static __always_inline __u32 cc_floor(const struct cc_sum *sum)
{
	return 2;
}

/* alpha */
MPCC_PURE int cc_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
			  const struct mpcc_path *p nonnull)
{
	c->value = num_mul(linked_increase(sum), num_of(sum->cwnd));
	c->negative = 0;
	return 0;
}

static __always_inline void cc_on_loss(struct cc_state *state, const struct tcp_sock *tp)
{
}

#include "mpcc/coupled.h"
#include "mpcc/eval.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC(".struct_ops.link")
struct tcp_congestion_ops lia = {
	.init = (void *)mpcc_init,
	.release = (void *)mpcc_release,
	.cong_avoid = (void *)mpcc_cong_avoid,
	.ssthresh = (void *)mpcc_ssthresh,
	.set_state = (void *)mpcc_set_state,
	.undo_cwnd = (void *)mpcc_undo_cwnd,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "lia",
};
