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

/* What equation (7) sums over the subflows. */
struct rate_sum {
	struct mpcc_num weights;
	struct mpcc_num best; /* the largest single_rate() */
};

MPCC_GLOBAL int add_rate(struct rate_sum *sum nonnull, struct mpcc_scene *s nonnull, __u32 i)
{
	const struct mpcc_lane *l = lane_at(s, i);

	if (!verdict_at(s, i)->alive)
		return 0;
	sum->weights = num_add(sum->weights, weight_of(l));
	sum->best = num_max(sum->best, single_rate(l));
	return 0;
}

/* X_r and b'_r */
MPCC_GLOBAL int expect_rate(struct mpcc_scene *s nonnull, const struct rate_sum *sum nonnull,
			    __u32 i)
{
	const struct mpcc_lane *l = lane_at(s, i);
	struct mpcc_verdict *v = verdict_at(s, i);
	struct mpcc_num rate;

	if (!v->alive)
		return 0;
	rate = num_mul(num_mul(num_div(weight_of(l), sum->weights), sum->best),
		       num_of((__u64)l->mss << 6));
	v->rate = num_min(rate, measured_rate(l));
	v->cost = cost_of(l, v->rate);
	return 0;
}

/* 1 if subflow j comes before subflow i in the order by cost; of equals, the first in the list does. */
MPCC_GLOBAL __u32 comes_before(struct mpcc_scene *s nonnull, __u32 j, __u32 i)
{
	const struct mpcc_verdict *a = verdict_at(s, j), *b = verdict_at(s, i);

	if (!a->alive || j == i)
		return 0;
	if (num_equal(a->cost, b->cost))
		return j < i;
	return num_less(a->cost, b->cost);
}

/* Sets the place in that order, from 1. 1 if there is one. */
MPCC_GLOBAL __u32 rank_lane(struct mpcc_scene *s nonnull, __u32 i)
{
	struct mpcc_verdict *v = verdict_at(s, i);

	if (!v->alive)
		return 0;
	v->rank = 1;
	for_each_lane(j) v->rank += comes_before(s, j, i);
	return 1;
}

/* Subflow i if it has this rank; else what was found. */
MPCC_GLOBAL __u32 lane_of_rank(struct mpcc_scene *s nonnull, __u32 found, __u32 i, __u32 rank)
{
	return verdict_at(s, i)->rank == rank ? i : found;
}

/* N, in bytes. */
static __always_inline __u64 size_of_transfer(const struct mpcc_demand *d)
{
	__u64 bytes = d->unsent + d->outstanding, unknown = (__u64)size_kib << 10;

	return d->more && bytes < unknown ? unknown : bytes;
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

/* The first k subflows together. */
struct set_sum {
	struct mpcc_num size; /* Mbit */
	struct mpcc_num rate; /* Mbit/s */
	struct mpcc_num power; /* mW */
};

/* Adds the subflow of rank k, and sets O_k. */
MPCC_GLOBAL int add_to_set(struct set_sum *sum nonnull, struct mpcc_scene *s nonnull, __u32 k)
{
	__u32 lane = MPCC_NO_LANE;

	for_each_lane(i) lane = lane_of_rank(s, lane, i, k);
	if (lane == MPCC_NO_LANE)
		return 0;
	sum->rate = num_add(sum->rate, verdict_at(s, lane)->rate);
	sum->power = num_add(sum->power, power_of(lane_at(s, lane), verdict_at(s, lane)->rate));
	verdict_at(s, k - 1)->objective =
		objective_of(sum->rate, num_mul(num_div(sum->size, sum->rate), sum->power));
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

/* The better of two sizes of the set: k only if it is by so many percent. */
MPCC_GLOBAL __u32 better_size(struct mpcc_scene *s nonnull, __u32 k, __u32 than, __u32 percent)
{
	return better(&verdict_at(s, k - 1)->objective, &verdict_at(s, than - 1)->objective,
		      percent) ?
		       k :
		       than;
}

/* k*, of count; the present k stays unless another is better by 5 %. */
static __always_inline __u32 best_size(struct mpcc_scene *s, __u32 count, __u32 present)
{
	__u32 best = 1;

	for (__u32 k = 2; k <= MPCC_MAX_SUBFLOWS; k++) {
		if (k > count)
			break;
		best = better_size(s, k, best, 0);
	}
	if (present && present <= count)
		return better_size(s, best, present, 5);
	return best;
}

/* The subflows a choice is from, a bit for each, and the longest of their RTTs. */
MPCC_GLOBAL __u32 alive_bit(struct mpcc_scene *s nonnull, __u32 i)
{
	return verdict_at(s, i)->alive ? 1U << (i & (MPCC_MAX_SUBFLOWS - 1)) : 0;
}

MPCC_GLOBAL __u32 slower_us8(struct mpcc_scene *s nonnull, __u32 i, __u32 slowest_us8)
{
	__u32 srtt_us8 = lane_at(s, i)->srtt_us8;

	return verdict_at(s, i)->alive && srtt_us8 > slowest_us8 ? srtt_us8 : slowest_us8;
}

/* Whether it is time to choose: other subflows are alive, or the slowest one's RTT is over. */
MPCC_GLOBAL __u32 choice_is_due(struct mpcc_scene *s nonnull)
{
	__u32 alive = 0, slowest_us8 = 0;

	for_each_lane(i)
	{
		alive |= alive_bit(s, i);
		slowest_us8 = slower_us8(s, i, slowest_us8);
	}
	if (alive != s->memory.alive) {
		s->memory.alive = alive;
		s->memory.k = 0;
		return 1;
	}
	return !s->memory.k || s->demand.now_us - s->memory.chosen_us >= slowest_us8 >> 3;
}

/* Takes a subflow into the set, or out of it; 1 if that is a change. */
MPCC_GLOBAL __u32 allow_lane(struct mpcc_scene *s nonnull, __u32 i)
{
	const struct mpcc_verdict *v = verdict_at(s, i);
	__u8 before = lane_at(s, i)->allowed;

	lane_at(s, i)->allowed = v->rank && v->rank <= s->memory.k;
	return lane_at(s, i)->allowed != before;
}

MPCC_GLOBAL int choose_set(struct mpcc_scene *s nonnull)
{
	struct rate_sum rates = {};
	struct set_sum set = {};
	__u32 count = 0, changed = 0;

	s->memory.size = size_of_transfer(&s->demand);
	set.size = num_div(num_of(s->memory.size), num_of(125000));
	for_each_lane(i) add_rate(&rates, s, i);
	for_each_lane(i) expect_rate(s, &rates, i);
	for_each_lane(i) count += rank_lane(s, i);
	for (__u32 k = 1; k <= MPCC_MAX_SUBFLOWS; k++)
		add_to_set(&set, s, k);
	s->memory.k = best_size(s, count, s->memory.k);
	for_each_lane(i) changed |= allow_lane(s, i);
	s->memory.changes += changed;
	s->memory.chosen_us = s->demand.now_us;
	return 0;
}

/* The faster of subflow i and the best so far, of the set's that may send. */
MPCC_GLOBAL __u32 faster_allowed(struct mpcc_scene *s nonnull, __u32 best, __u32 i)
{
	if (!verdict_at(s, i)->usable)
		return best;
	verdict_at(s, i)->refused = !lane_at(s, i)->allowed;
	if (!lane_at(s, i)->allowed)
		return best;
	return best == MPCC_NO_LANE || lane_faster(lane_at(s, i), lane_at(s, best)) ? i : best;
}

MPCC_GLOBAL int sched_rule(struct mpcc_scene *s nonnull)
{
	__u32 best = MPCC_NO_LANE;

	if (choice_is_due(s))
		choose_set(s);
	for_each_lane(i) best = faster_allowed(s, best, i);
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
