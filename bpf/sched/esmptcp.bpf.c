// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * ES-MPTCP, energy saving (Electronics 2022, 11(3), 490, equations (5)-(7) and Algorithm 1): the set of
 * subflows that gains most rate for its energy.
 *
 *   X_r    the rate delivered, or w MSS / rtt if that is more, in Mbit/s
 *   b'_r   b_r + theta_r / X_r, mJ per Mbit; the subflows are sorted by it, cheapest first
 *   O_k    sum X_i - lambda E_k over the first k,  E_k = T sum(b_i X_i + theta_i),  T = N / sum X_i
 *   k*     the k with the largest O_k; the first k* subflows may be used, the lowest RTT first
 *
 * b and theta are the profile of the interface (`mpcc energy set`), b its uplink slope, since this is the
 * sender; an interface without a profile costs nothing. N is what the connection has queued. While the
 * application keeps its buffer more than half full, N is not known, and taken as size_kib if that is more.
 *
 * Deviations. The paper's O_k subtracts mJ from Mbit/s as they are, which leaves one subflow for every
 * file of its experiments: lambda weighs them, 0.001 per mJ (joules) by default. The paper chooses anew
 * every RTT: so does this, at most once per RTT of the slowest subflow, and another k must be better by
 * 5 %. A subflow that joins or dies has the set chosen at once. The printed Algorithm 1 is an image that
 * could not be read.
 *
 * The paper takes the rates from losses, by equation (7), LIA's equilibrium:
 *
 *   x_r    (1 / (p_r rtt_r)) max_k(sqrt(2 / p_k) / rtt_k) / sum_k 1 / (rtt_k p_k)
 *
 * By equation (7) a subflow that has lost a packet carries next to nothing beside one that has not: theta / x
 * is without bound then, and the cheap subflow counts as the dear one. Under LIA it would be so at a queue
 * that both share. Elsewhere a subflow carries what was measured, and that is X by default. rates=formula
 * takes x_r, as the paper does, but no more than was measured, since equation (7) knows no capacity. p is the
 * part of the bytes that was sent again lately, at least 1e-6, since equation (7) divides by p.
 *
 * The rate delivered alone says too little: of a subflow that had little to send it is what it had to send. And of
 * a subflow outside the set rate, RTT and loss are as old as its last packet: a path that has become better would
 * stay out for good. So each is tried every probe_s seconds: it is the first to get new data, for a second and 128 KiB
 * at most, and what it lost before counts half. 128 KiB are some nine times the initial window, so that the window
 * shows more of what the path takes. It is at most a 60th of what the connection sends, and less of what a fast one
 * does. A minute also lets a mobile radio sleep, which stays awake for some ten seconds after each packet. The paper
 * does not say how such subflows are measured.
 */
#include "mpcc/sched.h"

TUNABLE(lambda_ppm, 1000, "0..4000000 millionths; what a mJ weighs against 1 Mbit/s");
TUNABLE(size_kib, 1024, "0..4194304 KiB; size of a transfer whose end is not known");

enum { RATES_MEASURED, RATES_FORMULA };
TUNABLE_PAPER(
	rates, RATES_MEASURED, "formula",
	"measured|formula; a subflow's rate: as measured, or by equation (7) if that is less");

TUNABLE_PAPER(probe_s, 60, "0",
	      "0..3600 s; time between two trials of a subflow outside the set, 0 = none");

/* Another size of the set must be better by so much than the present one. */
#define MARGIN_PERCENT 5
/* A subflow's loss is computed anew when it has sent so much more. */
#define LOSS_BYTES 65536
/* What a trial sends at most: at the first decision beyond either it is over. */
#define TRIAL_BYTES 131072
#define TRIAL_US 1000000

struct esmptcp_demand {
	__u8 more; /* the application has filled its buffer: how much will come is not known */
};

struct esmptcp_lane {
	__u64 rate; /* bytes per second delivered; 0 = not measured */
	struct mpcc_num loss; /* p, without the floor */
	struct uplink_profile profile; /* b and theta */
	__u64 tried_us; /* when it was last in the set, or its last trial began */
	__u32 trial; /* bytes that its trial may still send; 0 = it has none */
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
	__u32 counted_to
		[MPCC_MAX_LANES]; /* the subflow's write_seq up to which its trial is counted */
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

/* The terms, the sum and the maximum over all subflows in equation (7). */
struct rate_sum {
	struct mpcc_num weight[MPCC_MAX_LANES]; /* weight_of() */
	struct mpcc_num weights;
	struct mpcc_num best; /* the largest single_rate() */
};

MPCC_GLOBAL int add_rate(struct rate_sum *sum nonnull, struct mpcc_scene *s nonnull,
			 struct sched_own *own nonnull, __u32 i)
{
	const struct esmptcp_lane *q = quality_at(own, i);
	const struct mpcc_lane *l = lane_at(s, i);
	struct mpcc_num weight;

	if (!verdict_at(s, i)->alive)
		return 0;
	weight = weight_of(l, q);
	*element_of(sum->weight, i) = weight;
	sum->weights = num_add(sum->weights, weight);
	sum->best = num_max(sum->best, single_rate(l, q));
	return 0;
}

/* What was measured, Mbit/s: the larger of bytes per second * 8 / 10^6 and w MSS / rtt. */
MPCC_GLOBAL int measure_rate(struct mpcc_scene *s nonnull, struct sched_own *own nonnull, __u32 i)
{
	struct mpcc_num delivered = num_div(num_of(quality_at(own, i)->rate), num_of(125000));

	if (verdict_at(s, i)->alive)
		estimate_at(own, i)->rate = num_max(delivered, window_rate(lane_at(s, i)));
	return 0;
}

/* x_r of equation (7), in Mbit/s, if it is less than what was measured. */
MPCC_GLOBAL int bound_rate(struct mpcc_scene *s nonnull, struct sched_own *own nonnull,
			   const struct rate_sum *sum nonnull, __u32 i)
{
	struct esmptcp_verdict *e = estimate_at(own, i);
	struct mpcc_num rate;

	if (!verdict_at(s, i)->alive)
		return 0;
	rate = num_mul(num_mul(num_div(*element_of(sum->weight, i), sum->weights), sum->best),
		       num_of((__u64)lane_at(s, i)->mss << 6));
	e->rate = num_min(rate, e->rate);
	return 0;
}

/* X_r of all. */
MPCC_GLOBAL int expect_rates(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	struct rate_sum sum = {};

	for_each_lane(i, s) measure_rate(s, own, i);
	if (rates != RATES_FORMULA)
		return 0;
	for_each_lane(i, s) add_rate(&sum, s, own, i);
	for_each_lane(i, s) bound_rate(s, own, &sum, i);
	return 0;
}

/* All alive subflows in the order of their cost, and the sums over the first k of them. */
struct set_sum {
	struct mpcc_num size; /* Mbit */
	struct mpcc_num rate; /* Mbit/s */
	struct mpcc_num power; /* mW */
	__u32 count; /* subflows in the order */
	__u8 order[MPCC_MAX_LANES]; /* by cost; of equals, the first in the list is first */
};

/*
 * A place of the order is free for subflow i. If the subflow one place before costs more than subflow i, that subflow moves
 * into the free place, and the place before becomes the free one. Whether that subflow has moved.
 */
static __always_inline bool make_way(struct set_sum *set, struct sched_own *own, __u32 i,
				     __u32 place)
{
	__u32 other;

	if (!place)
		return false;
	other = *element_of(set->order, place - 1);
	if (!num_less(estimate_at(own, i)->cost, estimate_at(own, other)->cost))
		return false;
	*element_of(set->order, place) = other;
	return true;
}

/* Finds b'_r, and sorts the subflow into the order by it. */
MPCC_GLOBAL int sort_in(struct set_sum *set nonnull, struct mpcc_scene *s nonnull,
			struct sched_own *own nonnull, __u32 i)
{
	struct esmptcp_verdict *e = estimate_at(own, i);
	__u32 place;

	if (!verdict_at(s, i)->alive)
		return 0;
	e->cost = cost_of(&quality_at(own, i)->profile, e->rate);
	place = set->count++;
	for (__u32 steps = 0; steps < MPCC_MAX_LANES && make_way(set, own, i, place); steps++)
		place--;
	*element_of(set->order, place) = i;
	return 0;
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

/* Adds the subflow of rank k, and sets its rank and O_k. */
MPCC_GLOBAL int add_to_set(struct set_sum *sum nonnull, struct sched_own *own nonnull, __u32 k)
{
	__u32 lane = *element_of(sum->order, k - 1);
	struct mpcc_num rate;

	estimate_at(own, lane)->rank = k;
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

/* Whether it is time to choose: other subflows are alive, or the slowest one's RTT is over. */
MPCC_GLOBAL __u32 choice_is_due(struct mpcc_scene *s nonnull, struct esmptcp_memory *m nonnull)
{
	__u32 alive = 0, slowest_us8 = 0;

	for_each_lane(i, s)
	{
		__u32 srtt_us8 = s->lanes[i].srtt_us8;

		alive |= (__u32)s->verdicts[i].alive << i;
		if (s->verdicts[i].alive && srtt_us8 > slowest_us8)
			slowest_us8 = srtt_us8;
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
	struct set_sum set = {};
	__u32 changed = 0;

	__builtin_memset(own->verdicts, 0, sizeof(own->verdicts));
	m->size = size_of_transfer(&s->demand, own->demand.more);
	set.size = num_div(num_of(m->size), num_of(125000));
	expect_rates(s, own);
	for_each_lane(i, s) sort_in(&set, s, own, i);
	for (__u32 k = 1; k <= MPCC_MAX_LANES && k <= set.count; k++)
		add_to_set(&set, own, k);
	m->k = best_size(own, set.count, m->k);
	for_each_lane(i, s) changed |= allow_lane(own, i);
	m->changes += changed;
	m->chosen_us = s->demand.now_us;
	return 0;
}

/* The fastest of the set's that may send; MPCC_NO_LANE if there is none. */
MPCC_GLOBAL __u32 fastest_allowed(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	__u32 best = MPCC_NO_LANE;

	for_each_lane(i, s)
	{
		struct mpcc_verdict *v = &s->verdicts[i];
		bool allowed = own->lanes[i].allowed;

		if (!v->usable)
			continue;
		v->refused = !allowed;
		if (allowed &&
		    (best == MPCC_NO_LANE || lane_faster(lane_at(s, i), lane_at(s, best))))
			best = i;
	}
	return best;
}

/* Begins the trial of subflow i, outside the set, when it is due, and ends it when its second is over. */
MPCC_GLOBAL int try_lane(struct mpcc_scene *s nonnull, struct sched_own *own nonnull, __u32 i)
{
	struct loss_count *c = element_of(own->losses, i);
	struct esmptcp_lane *q = quality_at(own, i);
	__u64 now = s->demand.now_us;

	if (probe_s && now - q->tried_us >= probe_s * 1000000ULL) {
		q->tried_us = now;
		q->trial = TRIAL_BYTES;
		/* What was lost that long ago counts half: else a trial would hardly change it. */
		c->lately_sent /= 2;
		c->lately_lost /= 2;
	}
	if (now - q->tried_us >= TRIAL_US)
		q->trial = 0;
	return 0;
}

/* The first subflow that is under trial and may send; MPCC_NO_LANE if there is none. */
MPCC_GLOBAL __u32 first_tried(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	__u32 found = MPCC_NO_LANE;

	for_each_lane(i, s)
	{
		struct esmptcp_lane *q = &own->lanes[i];

		if (!s->verdicts[i].alive)
			continue;
		if (q->allowed) {
			q->tried_us = s->demand.now_us;
			q->trial = 0;
			continue;
		}
		try_lane(s, own, i);
		if (found == MPCC_NO_LANE && q->trial && s->verdicts[i].usable)
			found = i;
	}
	return found;
}

MPCC_GLOBAL int esmptcp_rule(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	__u32 best, tried;

	if (choice_is_due(s, &own->memory))
		choose_set(s, own);
	best = fastest_allowed(s, own);
	/* What is lost is sent again at any price, but not for a trial. */
	if (s->demand.reinject) {
		send_on(s, best == MPCC_NO_LANE ? fastest_usable(s) : best);
		return RULE_MARKED;
	}
	tried = first_tried(s, own);
	send_on(s, tried == MPCC_NO_LANE ? best : tried);
	return RULE_MARKED;
}

static __always_inline void esmptcp_start_subflow(struct sched_own *own, __u32 i,
						  const struct tcp_sock *tp)
{
	__builtin_memset(quality_at(own, i), 0, sizeof(struct esmptcp_lane));
	quality_at(own, i)->tried_us = now_us();
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

/* Takes what was handed to the subflow off what its trial may send. */
static __always_inline void read_trial(struct esmptcp_lane *q, __u32 *counted_to,
				       const struct tcp_sock *tp)
{
	__u32 handed = tp->write_seq - *counted_to;

	*counted_to = tp->write_seq;
	q->trial -= handed < q->trial ? handed : q->trial;
}

static __always_inline void esmptcp_look_up_subflow(struct sched_own *own, __u32 i,
						    const struct tcp_sock *tp)
{
	read_uplink_profile(&quality_at(own, i)->profile, tp);
}

static __always_inline void esmptcp_read_subflow(struct sched_own *own, __u32 i,
						 const struct tcp_sock *tp)
{
	struct esmptcp_lane *q = quality_at(own, i);

	q->rate = delivery_rate_of(tp);
	read_loss(q, element_of(own->losses, i), tp);
	read_trial(q, element_of(own->counted_to, i), tp);
}

static __always_inline void esmptcp_read_connection(struct sched_own *own,
						    const struct mpcc_scene *s,
						    const struct mptcp_sock *msk)
{
	const struct sock *sk = &msk->sk.icsk_inet.sk;

	own->demand.more = 2LL * sk->sk_wmem_queued > sk->sk_sndbuf;
}

static __always_inline void esmptcp_show_subflow(struct mpcc_sched_subflow *shown,
						 const struct sched_own *own,
						 const struct mpcc_scene *s, __u32 i)
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

	if (m->chosen_us == shown->chosen_us)
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
	.look_up_subflow = esmptcp_look_up_subflow,
	.read_subflow = esmptcp_read_subflow,
	.read_connection = esmptcp_read_connection,
	.show_subflow = esmptcp_show_subflow,
	.show_choice = esmptcp_show_choice,
};

SCHED_TABLE(esmptcp);
