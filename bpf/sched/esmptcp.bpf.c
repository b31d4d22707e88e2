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
#include "mpcc/sched.h"

TUNABLE(lambda_ppm, 1000, "0..4000000 millionths; what a mJ weighs against 1 Mbit/s");
TUNABLE(size_kib, 1024, "0..4194304 KiB; size of a transfer whose end is not known");

/* Another size of the set must be better by so much than the present one. */
#define MARGIN_PERCENT 5
/* A subflow's loss is computed anew when it has sent so much more. */
#define LOSS_BYTES 65536

struct esmptcp_demand {
	__u8 more; /* the application has filled its buffer: how much will come is not known */
};

struct esmptcp_lane {
	__u64 rate; /* bytes per second delivered; 0 = not measured */
	struct mpcc_num loss; /* p, without the floor */
	struct uplink_profile profile; /* b and theta */
	__u8 allowed; /* in the set last chosen */
};

/* What a subflow's loss is computed from, bytes. */
struct loss_count {
	__u64 sent; /* when it was last computed */
	__u64 retrans;
	__u64 lately_sent; /* what was sent since the time before, and 7/8 of what was here then */
	__u64 lately_lost;
};

struct esmptcp_memory {
	__u64 chosen_us; /* of the last choice */
	__u64 size; /* N that it was made for, bytes */
	__u64 changes; /* of the set */
	__u32 k; /* size of the set; 0 = none chosen yet */
	__u32 alive; /* the subflows that it was chosen from, a bit for each */
};

struct esmptcp_verdict {
	struct mpcc_num rate; /* X_r, Mbit/s */
	struct mpcc_num cost; /* b'_r, mJ per Mbit */
	struct mpcc_coupling objective; /* O_k, k being the place in this list, from 1 */
	__u32 rank; /* place in the order by cost, from 1; 0 = none */
};

struct sched_own {
	struct esmptcp_demand demand;
	struct esmptcp_memory memory;
	struct esmptcp_lane lanes[MPCC_MAX_LANES];
	struct loss_count losses[MPCC_MAX_LANES];
	struct esmptcp_verdict verdicts[MPCC_MAX_LANES]; /* of the last choice */
};

static __always_inline struct esmptcp_lane *quality_at(struct sched_own *own, __u32 i)
{
	return element_of(own->lanes, i);
}

static __always_inline struct esmptcp_verdict *estimate_at(struct sched_own *own, __u32 i)
{
	return element_of(own->verdicts, i);
}

/* max(p, 1e-6) */
static __always_inline struct mpcc_num loss_of(const struct esmptcp_lane *q)
{
	return num_max(q->loss, num_inverse(1000000));
}

/* 1 / (p rtt), rtt in eighths of a microsecond. */
static __always_inline struct mpcc_num weight_of(const struct mpcc_lane *l,
						 const struct esmptcp_lane *q)
{
	return num_div(num_of(1), num_mul(loss_of(q), num_of(l->srtt_us8)));
}

/* sqrt(2 / p) / rtt: the rate of a TCP there, packets per eighth of a microsecond. */
static __always_inline struct mpcc_num single_rate(const struct mpcc_lane *l,
						   const struct esmptcp_lane *q)
{
	return num_div(num_sqrt(num_div(num_of(2), loss_of(q))), num_of(l->srtt_us8));
}

/* Mbit/s: bytes per second * 8 / 10^6. */
static __always_inline struct mpcc_num measured_rate(const struct mpcc_lane *l,
						     const struct esmptcp_lane *q)
{
	return q->rate ? num_div(num_of(q->rate), num_of(125000)) : window_rate(l);
}

/* The sums and the maximum over all subflows in equation (7). */
struct rate_sum {
	struct mpcc_num weights;
	struct mpcc_num best; /* the largest single_rate() */
};

MPCC_GLOBAL int add_rate(struct rate_sum *sum nonnull, struct mpcc_scene *s nonnull,
			 struct sched_own *own nonnull, __u32 i)
{
	const struct esmptcp_lane *q = quality_at(own, i);
	const struct mpcc_lane *l = lane_at(s, i);

	if (!verdict_at(s, i)->alive)
		return 0;
	sum->weights = num_add(sum->weights, weight_of(l, q));
	sum->best = num_max(sum->best, single_rate(l, q));
	return 0;
}

/* X_r and b'_r */
MPCC_GLOBAL int expect_rate(struct mpcc_scene *s nonnull, struct sched_own *own nonnull,
			    const struct rate_sum *sum nonnull, __u32 i)
{
	const struct esmptcp_lane *q = quality_at(own, i);
	const struct mpcc_lane *l = lane_at(s, i);
	struct esmptcp_verdict *e = estimate_at(own, i);
	struct mpcc_num rate;

	if (!verdict_at(s, i)->alive)
		return 0;
	rate = num_mul(num_mul(num_div(weight_of(l, q), sum->weights), sum->best),
		       num_of((__u64)l->mss << 6));
	e->rate = num_min(rate, measured_rate(l, q));
	e->cost = cost_of(&q->profile, e->rate);
	return 0;
}

/* 1 if subflow j comes before subflow i in the order by cost; of equals, the first in the list does. */
MPCC_GLOBAL __u32 comes_before(struct mpcc_scene *s nonnull, struct sched_own *own nonnull, __u32 j,
			       __u32 i)
{
	struct mpcc_num a = estimate_at(own, j)->cost, b = estimate_at(own, i)->cost;

	if (!verdict_at(s, j)->alive || j == i)
		return 0;
	if (num_equal(a, b))
		return j < i;
	return num_less(a, b);
}

/* Sets the place in that order, from 1. 1 if there is one. */
MPCC_GLOBAL __u32 rank_lane(struct mpcc_scene *s nonnull, struct sched_own *own nonnull, __u32 i)
{
	__u32 *rank = &estimate_at(own, i)->rank;

	if (!verdict_at(s, i)->alive)
		return 0;
	*rank = 1;
	for_each_lane(j) *rank += comes_before(s, own, j, i);
	return 1;
}

/* Subflow i if it has this rank; else what was found. */
MPCC_GLOBAL __u32 lane_of_rank(struct sched_own *own nonnull, __u32 found, __u32 i, __u32 rank)
{
	return estimate_at(own, i)->rank == rank ? i : found;
}

/* N, in bytes. */
static __always_inline __u64 size_of_transfer(const struct mpcc_demand *d, bool more)
{
	__u64 bytes = d->unsent + d->outstanding, unknown = (__u64)size_kib << 10;

	return more && bytes < unknown ? unknown : bytes;
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
MPCC_GLOBAL int add_to_set(struct set_sum *sum nonnull, struct sched_own *own nonnull, __u32 k)
{
	__u32 lane = MPCC_NO_LANE;
	struct mpcc_num rate;

	for_each_lane(i) lane = lane_of_rank(own, lane, i, k);
	if (lane == MPCC_NO_LANE)
		return 0;
	rate = estimate_at(own, lane)->rate;
	sum->rate = num_add(sum->rate, rate);
	sum->power = num_add(sum->power, power_of(&quality_at(own, lane)->profile, rate));
	estimate_at(own, k - 1)->objective =
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
MPCC_GLOBAL __u32 better_size(struct sched_own *own nonnull, __u32 k, __u32 than, __u32 percent)
{
	return better(&estimate_at(own, k - 1)->objective, &estimate_at(own, than - 1)->objective,
		      percent) ?
		       k :
		       than;
}

/* k*, of count; the present k stays unless another is better by the margin. */
static __always_inline __u32 best_size(struct sched_own *own, __u32 count, __u32 present)
{
	__u32 best = 1;

	for (__u32 k = 2; k <= MPCC_MAX_LANES; k++) {
		if (k > count)
			break;
		best = better_size(own, k, best, 0);
	}
	if (present && present <= count)
		return better_size(own, best, present, MARGIN_PERCENT);
	return best;
}

/* Subflow i's bit among those that a choice is made from. */
MPCC_GLOBAL __u32 alive_bit(struct mpcc_scene *s nonnull, __u32 i)
{
	return verdict_at(s, i)->alive ? 1U << (i & (MPCC_MAX_LANES - 1)) : 0;
}

/* The longer of subflow i's RTT and the longest so far, of those that are alive. */
MPCC_GLOBAL __u32 slower_us8(struct mpcc_scene *s nonnull, __u32 i, __u32 slowest_us8)
{
	__u32 srtt_us8 = lane_at(s, i)->srtt_us8;

	return verdict_at(s, i)->alive && srtt_us8 > slowest_us8 ? srtt_us8 : slowest_us8;
}

/* Whether it is time to choose: other subflows are alive, or the slowest one's RTT is over. */
MPCC_GLOBAL __u32 choice_is_due(struct mpcc_scene *s nonnull, struct esmptcp_memory *m nonnull)
{
	__u32 alive = 0, slowest_us8 = 0;

	for_each_lane(i)
	{
		alive |= alive_bit(s, i);
		slowest_us8 = slower_us8(s, i, slowest_us8);
	}
	if (alive != m->alive) {
		m->alive = alive;
		m->k = 0;
		return 1;
	}
	return !m->k || s->demand.now_us - m->chosen_us >= slowest_us8 >> 3;
}

/* Takes a subflow into the set, or out of it; 1 if that is a change. */
MPCC_GLOBAL __u32 allow_lane(struct sched_own *own nonnull, __u32 i)
{
	__u32 rank = estimate_at(own, i)->rank;
	__u8 *allowed = &quality_at(own, i)->allowed, before = *allowed;

	*allowed = rank && rank <= own->memory.k;
	return *allowed != before;
}

MPCC_GLOBAL int choose_set(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	struct esmptcp_memory *m = &own->memory;
	struct rate_sum rates = {};
	struct set_sum set = {};
	__u32 count = 0, changed = 0;

	__builtin_memset(own->verdicts, 0, sizeof(own->verdicts));
	m->size = size_of_transfer(&s->demand, own->demand.more);
	set.size = num_div(num_of(m->size), num_of(125000));
	for_each_lane(i) add_rate(&rates, s, own, i);
	for_each_lane(i) expect_rate(s, own, &rates, i);
	for_each_lane(i) count += rank_lane(s, own, i);
	for (__u32 k = 1; k <= MPCC_MAX_LANES; k++)
		add_to_set(&set, own, k);
	m->k = best_size(own, count, m->k);
	for_each_lane(i) changed |= allow_lane(own, i);
	m->changes += changed;
	m->chosen_us = s->demand.now_us;
	return 0;
}

/* The faster of subflow i and the best so far, of the set's that may send. */
MPCC_GLOBAL __u32 faster_allowed(struct mpcc_scene *s nonnull, struct sched_own *own nonnull,
				 __u32 best, __u32 i)
{
	bool allowed = quality_at(own, i)->allowed;

	if (!verdict_at(s, i)->usable)
		return best;
	verdict_at(s, i)->refused = !allowed;
	if (!allowed)
		return best;
	return best == MPCC_NO_LANE || lane_faster(lane_at(s, i), lane_at(s, best)) ? i : best;
}

MPCC_GLOBAL int esmptcp_rule(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	__u32 best = MPCC_NO_LANE;

	if (choice_is_due(s, &own->memory))
		choose_set(s, own);
	for_each_lane(i) best = faster_allowed(s, own, best, i);
	/* What is lost is sent again at any price. */
	if (best == MPCC_NO_LANE && s->demand.reinject)
		best = fastest_usable(s);
	send_on(s, best);
	return RULE_MARKED;
}

static __always_inline void esmptcp_start_subflow(struct sched_own *own, __u32 i,
						  const struct tcp_sock *tp)
{
	__builtin_memset(quality_at(own, i), 0, sizeof(struct esmptcp_lane));
	__builtin_memset(estimate_at(own, i), 0, sizeof(struct esmptcp_verdict));
	__builtin_memset(element_of(own->losses, i), 0, sizeof(struct loss_count));
}

static __always_inline void read_loss(struct esmptcp_lane *q, struct loss_count *c,
				      const struct tcp_sock *tp)
{
	__u64 sent = tp->bytes_sent - c->sent;

	if (sent < LOSS_BYTES)
		return;
	c->lately_sent += sent - c->lately_sent / 8;
	c->lately_lost += tp->bytes_retrans - c->retrans - c->lately_lost / 8;
	c->sent = tp->bytes_sent;
	c->retrans = tp->bytes_retrans;
	q->loss = num_div(num_of(c->lately_lost), num_of(c->lately_sent));
}

static __always_inline void esmptcp_read_subflow(struct sched_own *own, __u32 i,
						 const struct tcp_sock *tp)
{
	struct esmptcp_lane *q = quality_at(own, i);

	read_uplink_profile(&q->profile, tp);
	q->rate = 0;
	if (tp->rate_interval_us)
		q->rate = (__u64)tp->rate_delivered * tp->mss_cache * 1000000 /
			  tp->rate_interval_us;
	read_loss(q, element_of(own->losses, i), tp);
}

static __always_inline void esmptcp_read_connection(struct sched_own *own,
						    const struct mpcc_scene *s,
						    const struct mptcp_sock *msk)
{
	const struct sock *sk = &msk->sk.icsk_inet.sk;

	own->demand.more = 2LL * sk->sk_wmem_queued > sk->sk_sndbuf;
}

static __always_inline void esmptcp_show_subflow(struct mpcc_sched_subflow *shown,
						 const struct sched_own *own, __u32 i)
{
	const struct esmptcp_verdict *e = element_of(own->verdicts, i);

	shown->allowed = element_of(own->lanes, i)->allowed;
	if (!e->cost.m)
		return;
	shown->rate = e->rate;
	shown->cost = e->cost;
}

static __always_inline void esmptcp_show_choice(struct mpcc_sched_choice *shown,
						const struct sched_own *own,
						const struct mpcc_scene *s)
{
	const struct esmptcp_memory *m = &own->memory;

	if (m->chosen_us != s->demand.now_us)
		return;
	shown->chosen_us = m->chosen_us;
	shown->changes = m->changes;
	shown->bytes = m->size;
	shown->k = m->k;
	shown->count = 0;
	for (__u32 i = 0; i < MPCC_MAX_LANES; i++) {
		const struct esmptcp_verdict *e = &own->verdicts[i];

		shown->objective[i] = e->objective;
		if (!e->rank)
			continue;
		*element_of(shown->order, e->rank - 1) = i;
		shown->count++;
	}
}

static const struct sched_hooks sched_hooks = {
	.rule = esmptcp_rule,
	.start_subflow = esmptcp_start_subflow,
	.read_subflow = esmptcp_read_subflow,
	.read_connection = esmptcp_read_connection,
	.show_subflow = esmptcp_show_subflow,
	.show_choice = esmptcp_show_choice,
};

SCHED_TABLE(esmptcp);
