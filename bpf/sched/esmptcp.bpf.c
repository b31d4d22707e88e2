// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * ES-MPTCP, energy saving (Electronics 2022, 11(3), 490, equations (5)-(7) and Algorithm 1): the set of
 * subflows that gains most rate for its energy.
 *
 *   x_r    (1 / (p_r rtt_r)) max_k(sqrt(2 / p_k) / rtt_k) / sum_k 1 / (rtt_k p_k), equation (7)
 *   X_r    min(x_r, the rate delivered; w MSS / rtt until one was measured), in Mbit/s
 *   b'_r   b_r + theta_r / X_r, mJ per Mbit; the subflows are sorted by it, cheapest first
 *   O_k    sum X_i - lambda E_k over the first k,  E_k = T sum(b_i X_i + theta_i),  T = N / sum X_i
 *   k*     the k with the largest O_k; the first k* subflows may be used, the lowest RTT first
 *
 * p is the part of the bytes that was sent again lately, at least 1e-6. b and theta are the profile of
 * the interface (`mpcc energy set`), b its uplink slope, since this is the sender; an interface without
 * a profile costs nothing. N is what the connection has queued. While the application keeps its buffer
 * more than half full, N is not known, and taken as size_kib if that is more.
 *
 * Deviations. The paper's O_k subtracts mJ from Mbit/s as they are, which leaves one subflow for every
 * file of its experiments: lambda weighs them, 0.001 per mJ (joules) by default. Equation (7) divides by
 * p = 0 and knows no capacity: hence the floor and the cap. The paper chooses anew every RTT: so does
 * this, at most once per RTT of the slowest subflow, and another k must be better by 5 %. A subflow
 * that joins or dies has the set chosen at once. The printed Algorithm 1 is an image that could not be read.
 */
#include "mpcc/cost.h"
#include "mpcc/tunable.h"

TUNABLE(lambda_ppm, 1000, "0..4000000 millionths; what a mJ weighs against 1 Mbit/s");
TUNABLE(size_kib, 1024, "0..4194304 KiB; size of a transfer whose end is not known");

/* max(p, 1e-6) */
static __always_inline struct mpcc_num loss_of(const struct mpcc_lane *l)
{
	return num_max(l->loss, num_inverse(1000000));
}

/* 1 / (p rtt), rtt in eighths of a microsecond. */
static __always_inline struct mpcc_num weight_of(const struct mpcc_lane *l)
{
	return num_div(num_of(1), num_mul(loss_of(l), num_of(l->srtt_us8)));
}

/* sqrt(2 / p) / rtt: a TCP's rate there, packets per eighth of a microsecond. */
static __always_inline struct mpcc_num single_rate(const struct mpcc_lane *l)
{
	return num_div(num_sqrt(num_div(num_of(2), loss_of(l))), num_of(l->srtt_us8));
}

/* Mbit/s: bytes per second * 8 / 10^6. */
static __always_inline struct mpcc_num measured_rate(const struct mpcc_lane *l)
{
	return l->rate ? num_div(num_of(l->rate), num_of(125000)) : window_rate(l);
}

/* X_r and b'_r of the subflows that are alive. */
MPCC_PURE int expect_rates(struct mpcc_scene *s nonnull)
{
	struct mpcc_num weights = num_zero(), best = num_zero();

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		const struct mpcc_lane *l = &s->lanes[i];

		if (!s->verdicts[i].alive)
			continue;
		weights = num_add(weights, weight_of(l));
		best = num_max(best, single_rate(l));
	}
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		const struct mpcc_lane *l = &s->lanes[i];
		struct mpcc_verdict *v = &s->verdicts[i];

		if (!v->alive)
			continue;
		v->rate = num_mul(num_mul(num_div(weight_of(l), weights), best),
				  num_of((__u64)l->mss << 6));
		v->rate = num_min(v->rate, measured_rate(l));
		v->cost = cost_of(l, v->rate);
	}
	return 0;
}

/* Places in the order by cost, from 1; of several, the first in the list comes first. */
MPCC_PURE __u32 rank_lanes(struct mpcc_scene *s nonnull)
{
	__u32 ranked = 0;

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		__u32 rank = 1;

		if (!s->verdicts[i].alive)
			continue;
		for (__u32 j = 0; j < MPCC_MAX_SUBFLOWS; j++) {
			const struct mpcc_verdict *other = &s->verdicts[j];

			if (!other->alive || j == i)
				continue;
			rank += j < i ? !num_less(s->verdicts[i].cost, other->cost) :
					num_less(other->cost, s->verdicts[i].cost);
		}
		s->verdicts[i].rank = rank;
		ranked++;
	}
	return ranked;
}

/* The subflow with this rank; MPCC_NO_LANE if there is none. */
MPCC_PURE __u32 lane_of_rank(struct mpcc_scene *s nonnull, __u32 rank)
{
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
		if (s->verdicts[i].rank == rank)
			return i;
	return MPCC_NO_LANE;
}

/* N in Mbit. */
static __always_inline struct mpcc_num size_of_transfer(const struct mpcc_demand *d)
{
	__u64 bytes = d->unsent + d->outstanding, unknown = (__u64)size_kib << 10;

	if (d->more && bytes < unknown)
		bytes = unknown;
	return num_div(num_of(bytes), num_of(125000));
}

/* O_k = rate - lambda energy, as a number with a sign. */
static __always_inline struct mpcc_coupling objective_of(struct mpcc_num rate,
							 struct mpcc_num energy)
{
	struct mpcc_num weighed = num_div(num_mul(energy, num_of(lambda_ppm)), num_of(1000000));
	struct mpcc_coupling o = {};

	o.negative = num_less(rate, weighed);
	o.value = o.negative ? num_sub(weighed, rate) : num_sub(rate, weighed);
	return o;
}

MPCC_PURE int set_objectives(struct mpcc_scene *s nonnull)
{
	struct mpcc_num size = size_of_transfer(&s->demand);
	struct mpcc_num rate = num_zero(), power = num_zero();

	for (__u32 k = 1; k <= MPCC_MAX_SUBFLOWS; k++) {
		__u32 lane = lane_of_rank(s, k);

		if (lane == MPCC_NO_LANE)
			return 0;
		rate = num_add(rate, verdict_at(s, lane)->rate);
		power = num_add(power, power_of(lane_at(s, lane), verdict_at(s, lane)->rate));
		s->verdicts[k - 1].objective = objective_of(rate,
							    num_mul(num_div(size, rate), power));
	}
	return 0;
}

/* a > b + |b| percent / 100 */
static __always_inline bool better(const struct mpcc_coupling *a, const struct mpcc_coupling *b,
				   __u32 percent)
{
	struct mpcc_num left = num_zero(), right = num_zero();
	struct mpcc_num margin = num_div(num_mul(b->value, num_of(percent)), num_of(100));

	if (a->negative)
		right = num_add(right, a->value);
	else
		left = num_add(left, a->value);
	if (b->negative)
		left = num_add(left, b->value);
	else
		right = num_add(right, b->value);
	return num_less(num_add(right, margin), left);
}

/* k*, of count; the present k stays unless another is better by 5 %. */
MPCC_PURE __u32 best_size(struct mpcc_scene *s nonnull, __u32 count, __u32 present)
{
	__u32 best = 1;

	for (__u32 k = 2; k <= MPCC_MAX_SUBFLOWS; k++)
		if (k <= count &&
		    better(&s->verdicts[k - 1].objective, &verdict_at(s, best - 1)->objective, 0))
			best = k;
	if (present && present <= count &&
	    !better(&verdict_at(s, best - 1)->objective, &verdict_at(s, present - 1)->objective, 5))
		return present;
	return best;
}

/* Whether it is time to choose: another subflow is alive, or the slowest one's RTT is over. */
MPCC_PURE __u32 choice_is_due(struct mpcc_scene *s nonnull)
{
	__u32 alive = 0, slowest_us8 = 0, changed;

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		if (!s->verdicts[i].alive)
			continue;
		alive |= 1U << i;
		if (s->lanes[i].srtt_us8 > slowest_us8)
			slowest_us8 = s->lanes[i].srtt_us8;
	}
	changed = alive != s->memory.alive;
	s->memory.alive = alive;
	if (changed)
		s->memory.k = 0;
	return changed || s->demand.now_us - s->memory.chosen_us >= slowest_us8 >> 3;
}

MPCC_PURE int choose_set(struct mpcc_scene *s nonnull)
{
	__u32 changed = 0, ranked;

	expect_rates(s);
	ranked = rank_lanes(s);
	set_objectives(s);
	s->memory.k = best_size(s, ranked, s->memory.k);
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		const struct mpcc_verdict *v = &s->verdicts[i];
		bool allowed = v->rank && v->rank <= s->memory.k;

		changed |= s->lanes[i].allowed != allowed;
		s->lanes[i].allowed = allowed;
	}
	s->memory.changes += changed;
	s->memory.chosen_us = s->demand.now_us;
	return 0;
}

MPCC_PURE int sched_rule(struct mpcc_scene *s nonnull)
{
	__u32 best = MPCC_NO_LANE;

	if (choice_is_due(s))
		choose_set(s);
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
		if (s->verdicts[i].usable && s->lanes[i].allowed &&
		    (best == MPCC_NO_LANE || lane_faster(&s->lanes[i], lane_at(s, best))))
			best = i;
	/* What is lost is sent again at any price. */
	if (best == MPCC_NO_LANE && s->demand.reinject)
		best = fastest_usable(s);
	send_on(s, best);
	return 0;
}

#define sched_allowed(lane) (lane)->allowed
#define sched_chose(scene) ((scene)->memory.chosen_us == (scene)->demand.now_us)

#include "mpcc/sched.h"
#include "mpcc/sched_eval.h"

SCHEDULER(esmptcp);
