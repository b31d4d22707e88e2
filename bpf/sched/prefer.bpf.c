// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * prefer: what the user says of each path (`mpcc path set`; which rule a path has: path_rules.h).
 *
 *   tier       the path's rank; after all ranks the paths whose quota is used up, then those that are excluded
 *   room       a subflow has it if it is usable and its path's cap allows it to send now
 *   send on    the best tier that has room, if no better one is alive, or if the path spills and the queue of each
 *              better one has reached its threshold; else wait
 *   queue      (srtt - least srtt) + (unsent + queued) srtt / (w MSS) + the time until the cap allows more
 *   within it  the lowest RTT; with weights each has quota_i = weight_i 8 KiB a round, of those that have not used
 *              theirs up the lowest RTT; what is over its quota counts in the rounds to come
 *   cap        what was handed over is paid for at the cap's rate, on all connections together; the path may send
 *              when it is no more than paid up. 50 ms that were not used may be made up for
 *   quota      counts what is handed over to subflows: neither headers nor what their TCPs send again
 *
 * A path without a rule has rank 1, no weight, neither cap nor quota. Rules are looked up every 100 ms and when a subflow
 * comes, and decisions go by what they said then; what the paths have carried is looked up for every decision.
 *
 * A wait for a cap is ended by the connection's timer, which the kernel keeps running while there is unsent data.
 * So a cap holds at any rate, but in pieces of what the kernel hands over at a time, up to 64 KiB. What is lost is
 * sent again by the same order, whatever the caps and queues. Kernels with a scheduler type of their own choose the
 * timer themselves, 200 ms at the least: with nothing else to send on, a cap is not reached there.
 */
#include "mpcc/sched.h"
#include "mpcc/path_rules.h"
#include "mpcc/sched_patience.h"

/* A weight of 1 is so many bytes a round. */
#define ROUND_BYTES 8192
/* So much of a cap may be made up for. */
#define CREDIT_NS 50000000ULL

struct prefer_lane {
	__u64 served; /* bytes handed to it in this round, and what was over in the rounds before */
	/* Of the rule: */
	__u32 rank;
	__u32 weight; /* 0 = none */
	__u32 spill_us; /* the queue from which on it takes what better ranks cannot; or MPCC_NEVER_SPILLS */
	/* Of each decision: */
	__u32 wait_us; /* until its path's cap allows more */
	__u32 min_srtt_us8; /* the least smoothed RTT so far */
	__u8 spent; /* its path's quota is used up */
	__u8 excluded; /* by the rule */
};

/* The rule by which a subflow's bytes are counted, and how many were. */
struct prefer_count {
	__u64 quota; /* as in the rule */
	__u64 cap; /* likewise */
	__u32 rule; /* its id; 0 = none */
	__u32 counted_to; /* the subflow's write_seq up to which bytes are counted */
};

struct sched_own {
	struct {
		__u8 early; /* the timer went off for a cap, before a timeout was due */
	} demand;
	struct {
		struct sched_progress progress;
		__u8 timed; /* the timer was set for a cap, and has not gone off since */
	} memory;
	struct {
		__u32 wait_us; /* until a cap allows more, and the timer ends the wait; 0 = no such wait */
	} outcome;
	struct prefer_lane lanes[MPCC_MAX_LANES];
	struct prefer_count counts[MPCC_MAX_LANES];
};

#define TIER_SPENT (1ULL << 32)
#define TIER_EXCLUDED (1ULL << 33)
#define NO_TIER (~0ULL)

static __always_inline struct prefer_lane *wish_at(struct sched_own *own, __u32 i)
{
	return element_of(own->lanes, i);
}

static __always_inline __u64 tier_of(const struct prefer_lane *p)
{
	return p->rank + p->spent * TIER_SPENT + p->excluded * TIER_EXCLUDED;
}

/* What a decision finds out on its way. */
struct prefer_search {
	__u64 tier; /* the best that has room */
	__u64 rounds; /* to begin until somebody's quota is not used up */
	__u32 soonest_us; /* until a cap allows more; 0 = no cap is in the way */
	__u32 weighted; /* some path of the tier has a weight */
	struct mpcc_num queue_us8; /* the shortest of better tiers */
	__u8 better; /* there are some */
};

static __always_inline bool may_now(struct mpcc_scene *s, struct sched_own *own, __u32 i)
{
	return verdict_at(s, i)->usable && (s->demand.reinject || !wish_at(own, i)->wait_us);
}

MPCC_GLOBAL int find_tier(struct prefer_search *f nonnull, struct mpcc_scene *s nonnull,
			  struct sched_own *own nonnull)
{
	for_each_lane(i, s)
	{
		const struct prefer_lane *p = &own->lanes[i];

		if (!s->verdicts[i].usable)
			continue;
		if (!may_now(s, own, i)) {
			if (!f->soonest_us || p->wait_us < f->soonest_us)
				f->soonest_us = p->wait_us;
			continue;
		}
		if (tier_of(p) < f->tier) {
			f->tier = tier_of(p);
			f->weighted = 0;
		}
		if (tier_of(p) == f->tier)
			f->weighted |= p->weight;
	}
	return 0;
}

/* How long new data would wait on a subflow. */
static __always_inline struct mpcc_num
queue_of(const struct mpcc_demand *d, const struct mpcc_lane *l, const struct prefer_lane *p)
{
	__u64 least = p->min_srtt_us8, standing = l->srtt_us8 > least ? l->srtt_us8 - least : 0;
	struct mpcc_num window = num_mul(num_of(l->cwnd), num_of(l->mss));

	return num_add(
		num_of(standing + 8ULL * p->wait_us),
		num_div(num_mul(num_of(d->unsent + l->queued), num_of(l->srtt_us8)), window));
}

/* Looks at the queue of subflow i, which is in a better tier. */
MPCC_GLOBAL int look_at_better(struct prefer_search *f nonnull, struct mpcc_scene *s nonnull,
			       struct sched_own *own nonnull, __u32 i)
{
	struct mpcc_num queue = queue_of(&s->demand, lane_at(s, i), wish_at(own, i));

	f->queue_us8 = f->better ? num_min(f->queue_us8, queue) : queue;
	f->better = 1;
	return 0;
}

/* Whether a subflow of the tier may send beside, or instead of, those of better tiers. */
static __always_inline bool is_allowed(const struct prefer_search *f, const struct prefer_lane *p,
				       bool reinject)
{
	if (!f->better)
		return true;
	if (p->spent || p->excluded || p->spill_us == MPCC_NEVER_SPILLS)
		return false;
	return reinject || !num_less(f->queue_us8, num_of(8ULL * p->spill_us));
}

/* Bytes a round. */
static __always_inline __u64 quota_of(const struct prefer_lane *p)
{
	return (__u64)(p->weight ? p->weight : 1) * ROUND_BYTES;
}

/* Whether a subflow of the tier, with a weight, has used up its part of this round. Notes how many rounds it waits. */
static __always_inline bool is_served(struct prefer_search *f, const struct prefer_lane *p)
{
	__u64 rounds = f->weighted ? p->served / quota_of(p) : 0;

	if (rounds && (!f->rounds || rounds < f->rounds))
		f->rounds = rounds;
	return rounds;
}

/* The subflow whose turn it is; MPCC_NO_LANE if there is none in this round. */
MPCC_GLOBAL __u32 find_next(struct prefer_search *f nonnull, struct mpcc_scene *s nonnull,
			    struct sched_own *own nonnull)
{
	__u32 found = MPCC_NO_LANE;

	for_each_lane(i, s)
	{
		const struct prefer_lane *p = &own->lanes[i];
		struct mpcc_verdict *v = &s->verdicts[i];

		if (!v->usable)
			continue;
		v->refused = !may_now(s, own, i);
		if (v->refused || tier_of(p) != f->tier)
			continue;
		v->refused = !is_allowed(f, p, s->demand.reinject);
		if (v->refused || is_served(f, p))
			continue;
		if (found == MPCC_NO_LANE || lane_faster(lane_at(s, i), lane_at(s, found)))
			found = i;
	}
	return found;
}

/* Begins rounds in the tier. Without weights there are none, and nothing is kept. */
MPCC_GLOBAL int begin_rounds(const struct prefer_search *f nonnull, struct mpcc_scene *s nonnull,
			     struct sched_own *own nonnull)
{
	for_each_lane(i, s)
	{
		struct prefer_lane *p = &own->lanes[i];
		__u64 quota = quota_of(p);

		if (tier_of(p) != f->tier)
			continue;
		if (f->weighted && p->served / quota >= f->rounds)
			p->served -= f->rounds * quota;
		else
			p->served = 0;
	}
	return 0;
}

MPCC_GLOBAL int prefer_rule(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	struct prefer_search f = { .tier = NO_TIER };
	__u32 next;

	own->outcome.wait_us = 0;
	/* The timer serves caps: nothing has timed out. */
	if (s->demand.reinject && own->demand.early)
		return RULE_DEFERS;
	find_tier(&f, s, own);
	for_each_lane(i, s) if (s->verdicts[i].alive && tier_of(&own->lanes[i]) < f.tier)
		look_at_better(&f, s, own, i);
	next = find_next(&f, s, own);
	if (next == MPCC_NO_LANE && f.rounds) {
		begin_rounds(&f, s, own);
		next = find_next(&f, s, own);
	}
	if (!f.weighted)
		begin_rounds(&f, s, own);
	if (next == MPCC_NO_LANE && f.soonest_us) {
		own->outcome.wait_us = f.soonest_us;
		return RULE_TIMED;
	}
	/* If the wait is not granted, it is the best tier that sends, not the fastest subflow of all. */
	if (next == MPCC_NO_LANE)
		for_each_lane(i, s) s->verdicts[i].usable &= tier_of(&own->lanes[i]) == f.tier;
	send_on(s, next);
	return RULE_MARKED;
}

/* ---- around the rule ---- */

static __always_inline struct mpcc_path_use *use_of(const struct prefer_count *c)
{
	__u32 rule = c->rule;

	return bpf_map_lookup_elem(&mpcc_path_uses, &rule);
}

/* The rule that is for a subflow; NULL if there is none. */
static __always_inline const struct mpcc_path_rule *find_rule(const struct tcp_sock *tp)
{
	struct path_marks marks;
	__u64 found = 0;
	__u32 slot;

	read_marks(&marks, tp);
	for (__u32 i = 0; i < MPCC_MAX_PATH_RULES; i++)
		found = better_rule(&marks, found, i);
	slot = FOUND_SLOT(found);
	return found ? bpf_map_lookup_elem(&mpcc_path_rules, &slot) : NULL;
}

/* Keeps what the rule says, which decisions go by until the next look. */
static __always_inline void obey(struct prefer_lane *p, struct prefer_count *c,
				 const struct mpcc_path_rule *r)
{
	p->rank = r ? r->rank : 1;
	p->weight = r ? r->weight : 0;
	p->spill_us = r ? r->spill_us : 0;
	p->excluded = r && r->excluded;
	c->quota = r ? r->quota : 0;
	c->cap = r ? r->cap : 0;
	c->rule = r ? r->id : 0;
}

/* Counts bytes that were handed over to a subflow with a rule, or fewer of them. */
MPCC_GLOBAL int count_by_rule(const struct prefer_count *c nonnull, __u64 bytes, __u32 fewer)
{
	struct mpcc_path_use *u = use_of(c);
	__u64 paid_until, cost, oldest;

	if (!u)
		return 0;
	/* User space may have begun a new count meanwhile. */
	if (fewer && u->bytes < bytes)
		return 0;
	__sync_fetch_and_add(&u->bytes, fewer ? -bytes : bytes);
	if (!c->cap)
		return 0;
	cost = bytes * 1000000000 / c->cap;
	oldest = bpf_ktime_get_ns() - CREDIT_NS;
	paid_until = u->paid_until_ns;
	/* Another CPU may have done so, and paid, since: then this changes nothing. */
	if (paid_until < oldest)
		__sync_val_compare_and_swap(&u->paid_until_ns, paid_until, oldest);
	__sync_fetch_and_add(&u->paid_until_ns, fewer ? -cost : cost);
	return 0;
}

static __always_inline void count_bytes(const struct prefer_count *c, __u64 bytes, bool fewer)
{
	if (c->rule && bytes)
		count_by_rule(c, bytes, fewer);
}

static __always_inline __u32 wait_for_cap(const struct mpcc_path_use *u)
{
	__u64 now = bpf_ktime_get_ns(), paid_until = u->paid_until_ns, us;

	if (paid_until <= now)
		return 0;
	us = (paid_until - now) / 1000 + 1;
	return us < ~0U ? us : ~0U;
}

static __always_inline void prefer_start_subflow(struct sched_own *own, __u32 i,
						 const struct tcp_sock *tp)
{
	struct prefer_count *c = element_of(own->counts, i);

	__builtin_memset(wish_at(own, i), 0, sizeof(struct prefer_lane));
	c->rule = 0;
	c->counted_to = tp->write_seq;
}

/* Counts what the subflow was handed since the last time: less than was expected, or more. */
static __always_inline void count_handed(struct sched_own *own, __u32 i, const struct tcp_sock *tp)
{
	struct prefer_count *c = element_of(own->counts, i);
	struct prefer_lane *p = wish_at(own, i);
	__u32 write_seq = tp->write_seq, more = write_seq - c->counted_to;

	if ((__s32)more < 0) {
		count_bytes(c, -more, true);
		p->served -= -more < p->served ? -more : p->served;
	} else {
		count_bytes(c, more, false);
		p->served += more;
	}
	c->counted_to = write_seq;
}

static __always_inline void prefer_look_up_subflow(struct sched_own *own, __u32 i,
						   const struct tcp_sock *tp)
{
	/* By the rule that it had. */
	count_handed(own, i, tp);
	obey(wish_at(own, i), element_of(own->counts, i), find_rule(tp));
}

static __always_inline void prefer_read_subflow(struct sched_own *own, __u32 i,
						const struct tcp_sock *tp)
{
	const struct prefer_count *c = element_of(own->counts, i);
	struct prefer_lane *p = wish_at(own, i);
	const struct mpcc_path_use *u;
	__u32 srtt_us8 = tp->srtt_us;

	count_handed(own, i, tp);
	if (srtt_us8 && (!p->min_srtt_us8 || srtt_us8 < p->min_srtt_us8))
		p->min_srtt_us8 = srtt_us8;

	u = c->quota || c->cap ? use_of(c) : NULL;
	p->spent = c->quota && u && u->bytes >= c->quota;
	p->wait_us = c->cap && u ? wait_for_cap(u) : 0;
}

static __always_inline void prefer_read_connection(struct sched_own *own,
						   const struct mpcc_scene *s,
						   const struct mptcp_sock *msk)
{
	/* A timer that was not set for a cap is the kernel's: it goes off when a timeout is due. */
	own->demand.early = is_early(&own->memory.progress, s, msk) && own->memory.timed;
}

static __always_inline void prefer_show_subflow(struct mpcc_sched_subflow *shown,
						const struct sched_own *own,
						const struct mpcc_scene *s, __u32 i)
{
	const struct prefer_lane *p = element_of(own->lanes, i);

	shown->allowed = !p->spent && !p->excluded;
}

/* Counts at once what a subflow will be handed: its connection may end with that. The next decision corrects it. */
MPCC_GLOBAL int expect_bytes(struct sched_own *own nonnull, __u32 i, __u32 bytes)
{
	struct prefer_count *c = element_of(own->counts, i);

	count_bytes(c, bytes, false);
	c->counted_to += bytes;
	wish_at(own, i)->served += bytes;
	return 0;
}

static __always_inline int prefer_after_send(struct sched_own *own, const struct mpcc_scene *s,
					     struct mptcp_sock *msk, int scheduled)
{
	__s32 burst = msk->snd_burst;

	if (burst > 0 && (__u64)burst > s->demand.unsent)
		burst = s->demand.unsent;
	if (!scheduled && burst > 0)
		for_each_lane(i, s) if (s->verdicts[i].send) expect_bytes(own, i, burst);
	if (!own->outcome.wait_us)
		return scheduled;
	/* In ticks, of 1 to 10 ms: taken for 10, the timer may go off early, and is set anew. */
	sched_set_timeout(msk, 1 + own->outcome.wait_us / 10000);
	own->memory.timed = 1;
	return scheduled;
}

static __always_inline int prefer_after_retrans(struct sched_own *own, const struct mpcc_scene *s,
						struct mptcp_sock *msk, int scheduled)
{
	own->memory.timed = 0;
	return own->demand.early ? SCHED_EARLY : scheduled;
}

static const struct sched_hooks sched_hooks = {
	.rule = prefer_rule,
	.start_subflow = prefer_start_subflow,
	.look_up_subflow = prefer_look_up_subflow,
	.read_subflow = prefer_read_subflow,
	.read_connection = prefer_read_connection,
	.show_subflow = prefer_show_subflow,
	.after_send = prefer_after_send,
	.after_retrans = prefer_after_retrans,
};

SCHED_TABLE(prefer);
