/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether two subflows of a connection share a bottleneck, from their RTT samples alone.
 *
 * Two subflows behind the same queue see the same delay at the same time, but for the time that their packets
 * and ACKs take from and to the queue. Behind different queues they do not, even where both fill in much the
 * same way. So each subflow keeps its mean RTT in each interval of a clock that all share, as RFC 8382
 * (section 3.1) has receivers keep summaries of one-way delay. RFC 8382 groups flows by summaries of the
 * summaries (skewness, variability, oscillation), since its clocks and paths differ; here one clock stamps
 * all, so the delays are compared themselves:
 *
 *   x, y   second differences of two subflows' means, now - 2 before + earlier: neither the base RTTs nor a
 *          queue that grows steadily matter
 *   alike  1 - sum (x - y)^2 / sum (x^2 + y^2). 1 = the same, in amount too; 0 = unrelated; -1 = opposed
 *
 * The comparison is made at eight scales: of means over 1, 2 and 4 intervals in the last 4.2 s, and of means over 1, 2, 4, 8
 * and 16 periods in the last 16.8 s. A period is eight intervals.
 *
 *   heard   the scales of at least half an RTT. The packets of a window leave in a burst, one burst a round trip, and queue
 *           behind each other: a shorter scale compares the subflows' bursts
 *   square  the mean of x^2 + y^2 at a scale, times the number of intervals of that scale. From a scale to the next, the
 *           square of jitter and bursts stays the same, and the square of a queue grows
 *   noise   the square at the finest heard scale, or at the next scale if the next scale is of intervals too and has the
 *           larger square
 *   f       1 - noise / square: the share of the square at a coarser scale that is not noise. With a shared queue alike is
 *           f there, with two queues 0
 *
 * n changes at a coarser scale are evidence of n f (alike - r) / (1 - f^2): the logarithm of the odds of two normal
 * variables that are correlated by f against two that are not. r is f / 2 for small f, and 3 f / 4 for f = 0.84; 3 f / 4
 * is taken for all, because a wrong "shared" costs more than a missed queue. f is known at the coarse scales only roughly,
 * so no scale gives more than 4. The finest heard scale, with f = 0.84, gives evidence for a shared queue only: noise may
 * hide a queue, but cannot make two queues the same.
 *
 * The sibling may see the same delay later, by up to the difference of the base RTTs: the lag at which the
 * evidence is best is sought, one other lag each time.
 *
 * A delayed ACK, or an ACK that a loss has held up, makes an RTT sample longer by much more than a queue changes. Such a
 * sample comes alone, so the mean of an interval is cut to the longer one of the means noted before and after.
 *
 * A host whose CPU pauses for some milliseconds delays all its subflows at once, and the burst that ends the pause fills
 * every queue. Such changes are few and large. So a second difference larger than twice the mean magnitude of the
 * second differences summed so far at the same scale is cut down to that. And with the pauses queues apart are alike at fine
 * scales, and the less the coarser the scale is, where a shared queue is the more alike: so evidence of a scale against a
 * shared queue counts double, until it has halved the evidence of finer scales for one.
 *
 * What it cannot tell: queues that fill and drain in step to within an interval (identical paths, nothing
 * random); a queue that hardly changes in 17 seconds, or less than jitter does; one that a scheduler
 * (fq_codel) divides among flows; a link that random losses keep empty. Where noise is not of the kind above
 * (jitter that lasts for longer than an interval) it tends to "apart".
 */
#ifndef MPCC_BOTTLENECK_H
#define MPCC_BOTTLENECK_H

#include "compat.h"

/* An interval is 2^14 us = 16.4 ms: several packets of a subflow with 5 Mbit/s. */
#define MPCC_INTERVAL_SHIFT 14
/* That many are kept: 4.2 s. */
#define MPCC_INTERVALS_SHIFT 8
#define MPCC_INTERVALS (1 << MPCC_INTERVALS_SHIFT)
/* A period is eight intervals, 131 ms, and 16.8 s of periods are kept. */
#define MPCC_PERIOD_SHIFT 3
#define MPCC_PERIODS 128
/* Means of 1, 2 and 4 intervals, and of 1, 2, ... 16 periods: 16 ms to 2.1 s. */
#define MPCC_SCALES 8
#define MPCC_INTERVAL_SCALES 3
/* A scale with fewer second differences is ignored. */
#define MPCC_FEWEST_CHANGES 4
/* Larger than any second difference. */
#define MPCC_ANY_CHANGE (1LL << 24)
/* MPCC_ANY_CHANGE for each of two subflows whose second differences share one number (means_of()). */
#define MPCC_ANY_CHANGES ((__u64)MPCC_ANY_CHANGE << 32 | MPCC_ANY_CHANGE)
/* A record keeps RTTs in units of 2^5 us. */
#define MPCC_DELAY_SHIFT 5
#define MPCC_LONGEST_DELAY_US ((1 << 21) - (2 << MPCC_DELAY_SHIFT))
/* So many samples an interval are enough, and their sum fits 32 bits. */
#define MPCC_MOST_DELAYS 2048
/* The kernel allows a connection eight additional subflows. */
#define MPCC_SIBLINGS 8
/* Lags of up to 24 intervals: 393 ms. */
#define MPCC_MOST_LAG 24
/*
 * A subflow compares its delays with those of one sibling at a time, and the siblings take turns. The turns of a subflow are
 * 6 intervals (98 ms) apart for each subflow of the connection, and at least 12: a connection makes some ten comparisons a
 * second at most, of however many subflows. After MPCC_STEADY verdicts in a row that changed nothing, and one for each lag
 * to be tried, the subflow skips three of four turns of that sibling.
 */
#define MPCC_TURN_OF_EACH 6
#define MPCC_STEADY 4
#define MPCC_STEADY_TURNS 4
/*
 * A verdict needs evidence of 3 (odds of 20 to 1), and "shared" goes when less than 1 is left: to couple subflows that
 * share nothing costs their user most of what they carry. The newest 4.2 s count for at most 16. What was before fades
 * with a time constant of 4.2 s and counts for at most 8, so that it steadies a verdict, but does not outlive a change
 * of path.
 */
#define MPCC_EVIDENCE (3 << 8)
#define MPCC_EVIDENCE_TO_STAY (1 << 8)
#define MPCC_MOST_NEW_EVIDENCE (16 << 8)
#define MPCC_MOST_OLD_EVIDENCE (8 << 8)
/* What a single scale counts for at most. */
#define MPCC_MOST_OF_A_SCALE (4 << 8)
/* 0.84, of 256: even behind one queue two subflows do not sample the same packets. */
#define MPCC_ALIKE_AT_BEST 215

enum mpcc_bottleneck { MPCC_UNDECIDED, MPCC_SHARED, MPCC_APART };

/* What a socket keeps itself: the running interval. */
struct mpcc_delay_sum {
	__u32 sum_us;
	__u16 count;
	__u16 interval; /* low bits of its number, microseconds >> MPCC_INTERVAL_SHIFT */
};

/* What a subflow has found about one sibling. */
struct mpcc_pair {
	__u64 judged_at; /* the subflow's newest interval then */
	__u32 sibling; /* id; 0 = none yet */
	__s32 evidence_q8; /* of the past; > 0: shared */
	__s16 lag; /* intervals by which the sibling sees a delay later, as far as known */
	__s16 probe; /* the other lag that was tried last */
	__u16 verdict; /* enum mpcc_bottleneck */
	__u16 steady; /* verdicts in a row that were the verdict before, counted up to MPCC_STEADY + MPCC_MOST_LAG */
};

/* Sums over two records at one scale, while they are compared. */
struct mpcc_scale {
	__u64 power; /* sum of x^2 + y^2 */
	__u64 difference; /* sum of (x - y)^2 */
	__u64 sum; /* of |x| + |y| */
	__u64 count;
};

/* The means (means_of()) that a scale was given last; 0 where one of the two subflows lacked samples. */
struct mpcc_row {
	__u64 before; /* the last means */
	__u64 earlier; /* the last means but one */
};

/* A subflow's record. Siblings read it while its own socket writes: a torn interval is a bit of noise. */
struct mpcc_delays {
	__u64 first; /* the first interval noted; 0 = none */
	__u64 newest; /* the last interval noted; 0 = none */
	__u32 base_rtt_us; /* smallest RTT seen */
	/* As the subflow found the connection when its siblings were last judged: */
	__u16 siblings; /* with a higher subflow_id, which take turns */
	__u16 subflows; /* all, this one too */
	struct mpcc_pair pairs[MPCC_SIBLINGS];
	/* Scratch of compare_delays(): the sums, and both subflows' means at the scale that comes next, newest first. */
	struct mpcc_scale scales[MPCC_SCALES];
	struct mpcc_row rows[MPCC_SCALES];
	__u64 means[MPCC_PERIODS / 2];
	/* The mean of interval i at i % MPCC_INTERVALS, + 1; 0 = no samples. All but the newest mean are cut. */
	__u16 rtt[MPCC_INTERVALS];
	/* The mean of period i at i % MPCC_PERIODS, + 1; 0 = no samples. Only of periods before the running period. */
	__u16 period_rtt[MPCC_PERIODS];
	/* The running period is the period of the newest interval: sum and number of its intervals' means, the newest left out. */
	__u32 period_sum;
	__u16 period_count;
	/* The mean noted before the newest mean, as in rtt, but not cut; 0 = none. */
	__u16 before;
};

_Static_assert(sizeof(struct mpcc_delay_sum) == 8, "every socket has one");
/* The kernel gives an element of a hash map 2048 bytes if record, key and the element's header need no more, else 4096. */
_Static_assert(sizeof(struct mpcc_delays) <= 1984, "every subflow has one");

/* For each ACK with a sample, before add_delay(): if so, note_delays() and begin_delays() come first. */
static __always_inline bool delay_interval_ends(const struct mpcc_delay_sum *s, __u64 now_us)
{
	return (__u16)(now_us >> MPCC_INTERVAL_SHIFT) != s->interval;
}

static __always_inline void begin_delays(struct mpcc_delay_sum *s, __u64 now_us)
{
	s->interval = (__u16)(now_us >> MPCC_INTERVAL_SHIFT);
	s->sum_us = 0;
	s->count = 0;
}

static __always_inline void add_delay(struct mpcc_delay_sum *s, __u32 rtt_us)
{
	if (rtt_us > MPCC_LONGEST_DELAY_US || s->count >= MPCC_MOST_DELAYS)
		return;
	s->sum_us += rtt_us;
	s->count++;
}

/* Empties the places of all intervals, or periods, between two of a ring. */
static __always_inline void empty_between(__u16 *ring, __u32 size, __u64 before, __u64 after)
{
	for (__u32 i = 1; i < size; i++) {
		if (before + i >= after)
			break;
		ring[(before + i) % size] = 0;
	}
}

/* Cuts the newest mean, now that the next mean is known, and adds the newest mean to the running period. */
static __always_inline void settle_newest(struct mpcc_delays *d, __u16 next)
{
	__u16 *newest = &d->rtt[d->newest % MPCC_INTERVALS], longer = d->before;

	d->before = *newest;
	if (longer && longer < next)
		longer = next;
	if (longer && *newest > longer)
		*newest = longer;
	d->period_sum += *newest;
	d->period_count++;
}

/* Notes the mean of the running period, if the next interval is of a later period. */
static __always_inline void end_period(struct mpcc_delays *d, __u64 next)
{
	__u64 running = d->newest >> MPCC_PERIOD_SHIFT, period = next >> MPCC_PERIOD_SHIFT;

	if (running == period)
		return;
	d->period_rtt[running % MPCC_PERIODS] = d->period_sum / d->period_count;
	empty_between(d->period_rtt, MPCC_PERIODS, running, period);
	d->period_sum = 0;
	d->period_count = 0;
}

/* Notes an interval that has ended by now, less than 18 minutes ago. Intervals that had no samples stay empty. */
MPCC_GLOBAL int note_delays(struct mpcc_delays *d nonnull, const struct mpcc_delay_sum *s nonnull,
			    __u64 now_us, __u32 base_rtt_us)
{
	__u64 newest = d->newest, interval = now_us >> MPCC_INTERVAL_SHIFT;
	__u32 mean;

	interval -= (__u16)((__u16)interval - s->interval);

	if (!s->count || interval <= newest)
		return 0;
	empty_between(d->rtt, MPCC_INTERVALS, newest, interval);
	mean = s->sum_us / s->count;
	if (mean > MPCC_LONGEST_DELAY_US)
		mean = MPCC_LONGEST_DELAY_US;
	mean = (mean >> MPCC_DELAY_SHIFT) + 1;
	if (newest) {
		settle_newest(d, mean);
		end_period(d, interval);
	} else {
		d->first = interval;
	}
	d->rtt[interval % MPCC_INTERVALS] = mean;
	d->newest = interval;
	d->base_rtt_us = base_rtt_us;
	return 0;
}

/* The oldest of so many kept intervals, or periods, of a subflow with this first and this newest one. */
static __always_inline __s64 oldest_kept(__s64 first, __s64 newest, __s64 kept)
{
	__s64 oldest = newest - (kept - 1);

	return first > oldest ? first : oldest;
}

static __always_inline __s64 oldest_interval(const struct mpcc_delays *d)
{
	return oldest_kept(d->first, d->newest, MPCC_INTERVALS);
}

/* The newest period in a record is the period before the running period. */
static __always_inline __s64 newest_period(const struct mpcc_delays *d)
{
	return (__s64)(d->newest >> MPCC_PERIOD_SHIFT) - 1;
}

/* The subflow may have begun in the middle of its first period. */
static __always_inline __s64 oldest_period(const struct mpcc_delays *d)
{
	return oldest_kept(d->first >> MPCC_PERIOD_SHIFT, newest_period(d), MPCC_PERIODS);
}

static __always_inline __u64 magnitude(__s64 v)
{
	return v < 0 ? -v : v;
}

static __always_inline __s64 within(__s64 v, __s64 bound)
{
	return v > bound ? bound : v < -bound ? -bound : v;
}

/*
 * Two subflows' mean RTTs over one interval or period, in eighths of a record's unit, from the rings of both records. The
 * sibling's mean is in the lower half of the number, so that one addition or subtraction is of both. 0 = no samples.
 */
static __always_inline __u64 means_of(const __u16 *own, const __u16 *sibling, __u32 size, __s64 at,
				      __s32 lag)
{
	return (__u64)own[(__u64)at % size] << (32 + 3) | (__u64)sibling[(__u64)(at + lag) % size]
								  << 3;
}

static __always_inline bool both_sampled(__u64 means)
{
	return means >> 32 && (__u32)means;
}

/* The mean of two halves, of which one may have no samples. */
static __always_inline __u64 mean_of(__u64 a, __u64 b)
{
	return a && b ? (a + b) / 2 : a + b;
}

/*
 * The means of a time twice as long. Trains of packets may take turns. A half in which both have samples is better than
 * one in which they do not; if neither is, the two together may be.
 */
static __always_inline __u64 join_means(__u64 a, __u64 b)
{
	bool both_a = both_sampled(a), both_b = both_sampled(b);

	if (both_a && both_b)
		return (a + b) >> 1 & ~(1ULL << 31);
	if (both_a || both_b)
		return both_a ? a : b;
	return mean_of(a >> 32, b >> 32) << 32 | mean_of((__u32)a, (__u32)b);
}

/* Adds what comes next at a scale. */
static __always_inline void add_means(struct mpcc_scale *s, struct mpcc_row *r, __u64 means)
{
	bool both = both_sampled(means);

	if (both && r->before && r->earlier) {
		__s64 most = s->count >= MPCC_FEWEST_CHANGES ? s->sum / s->count : MPCC_ANY_CHANGE;
		/* Both second differences, each with MPCC_ANY_CHANGE added, so that neither is below 0. */
		__u64 changes = means + MPCC_ANY_CHANGES + r->earlier - 2 * r->before;
		__s64 x = within((__s64)(changes >> 32) - MPCC_ANY_CHANGE, most);
		__s64 y = within((__s64)(__u32)changes - MPCC_ANY_CHANGE, most);

		s->power += x * x + y * y;
		s->difference += (x - y) * (x - y);
		s->sum += magnitude(x) + magnitude(y);
		s->count++;
	}
	r->earlier = r->before;
	r->before = both ? means : 0;
}

/*
 * Adds the next two at a scale, and returns what they make at the next scale. The verifier checks this once, and not for
 * each of all intervals.
 */
MPCC_GLOBAL __u64 add_two_means(struct mpcc_delays *d nonnull, __u32 scale, __u64 a, __u64 b)
{
	struct mpcc_scale s;
	struct mpcc_row row;

	if (scale >= MPCC_SCALES)
		return 0;
	s = d->scales[scale];
	row = d->rows[scale];
	add_means(&s, &row, a);
	add_means(&s, &row, b);
	d->scales[scale] = s;
	d->rows[scale] = row;
	return join_means(a, b);
}

/* The time that both records have, the sibling's later by the lag. */
struct mpcc_common {
	__s64 end; /* the newest interval or period */
	__s64 count;
};

static __always_inline struct mpcc_common
common_time(__s64 oldest, __s64 newest, __s64 oldest_of_sibling, __s64 newest_of_sibling, __s32 lag)
{
	__s64 begin = oldest, end = newest;

	if (end > newest_of_sibling - lag)
		end = newest_of_sibling - lag;
	if (begin < oldest_of_sibling - lag)
		begin = oldest_of_sibling - lag;
	return (struct mpcc_common){ end, end >= begin ? end - begin + 1 : 0 };
}

/* Adds up the intervals, four by four, at the first two scales. Leaves the means of the third, and returns how many. */
MPCC_GLOBAL __u32 add_intervals(struct mpcc_delays *own nonnull,
				const struct mpcc_delays *sibling nonnull, __s32 lag)
{
	struct mpcc_common c = common_time(oldest_interval(own), own->newest,
					   oldest_interval(sibling), sibling->newest, lag);
	const __u16 *a = own->rtt, *b = sibling->rtt;
	__u32 fours = (__u32)c.count / 4;

	for (__u32 i = 0; i < MPCC_INTERVALS / 4; i++) {
		__s64 at = c.end - 4 * i;
		__u64 later, earlier;

		if (i >= fours)
			break;
		later = add_two_means(own, 0, means_of(a, b, MPCC_INTERVALS, at, lag),
				      means_of(a, b, MPCC_INTERVALS, at - 1, lag));
		earlier = add_two_means(own, 0, means_of(a, b, MPCC_INTERVALS, at - 2, lag),
					means_of(a, b, MPCC_INTERVALS, at - 3, lag));
		own->means[i] = add_two_means(own, 1, later, earlier);
	}
	return fours;
}

/* Adds up the periods at the scale of one period. Leaves the means of the next scale, and returns how many. */
MPCC_GLOBAL __u32 add_periods(struct mpcc_delays *own nonnull,
			      const struct mpcc_delays *sibling nonnull, __s32 lag)
{
	struct mpcc_common c = common_time(oldest_period(own), newest_period(own),
					   oldest_period(sibling), newest_period(sibling), lag);
	const __u16 *a = own->period_rtt, *b = sibling->period_rtt;

	for (__u32 i = 0; i < MPCC_PERIODS / 2; i++) {
		__s64 at = c.end - 2 * i;
		__u64 later, earlier = 0;

		if (2 * i >= c.count)
			break;
		later = means_of(a, b, MPCC_PERIODS, at, lag);
		if (2 * i + 1 < c.count)
			earlier = means_of(a, b, MPCC_PERIODS, at - 1, lag);
		own->means[i] = add_two_means(own, MPCC_INTERVAL_SCALES, later, earlier);
	}
	return (__u32)c.count / 2;
}

/* Adds up, at a scale, count means that the scale before has left. Leaves the means of the next, and returns how many. */
MPCC_GLOBAL __u32 add_coarser(struct mpcc_delays *own nonnull, __u32 scale, __u32 count)
{
	for (__u32 i = 0; i < MPCC_PERIODS / 4; i++) {
		__u64 a, b = 0;

		if (2 * i >= count)
			break;
		a = own->means[2 * i];
		if (2 * i + 1 < count)
			b = own->means[2 * i + 1];
		own->means[i] = add_two_means(own, scale, a, b);
	}
	return count / 2;
}

static __always_inline __u32 newest_mean_us(const struct mpcc_delays *d)
{
	return (__u32)d->rtt[d->newest % MPCC_INTERVALS] << MPCC_DELAY_SHIFT;
}

/* The finest scale that is heard: no less than half of the longer RTT. */
static __always_inline __u32 finest_scale(const struct mpcc_delays *own,
					  const struct mpcc_delays *sibling)
{
	__u32 rtt_us = newest_mean_us(own), other_us = newest_mean_us(sibling);

	if (rtt_us < other_us)
		rtt_us = other_us;
	for (__u32 j = 0; j < MPCC_SCALES; j++) {
		if (rtt_us <= 2U << MPCC_INTERVAL_SHIFT << j)
			return j;
	}
	return MPCC_SCALES;
}

/* Sums up both records at all scales from the finest that is heard, the sibling's later by the lag. */
static __always_inline void add_scales(struct mpcc_delays *own, const struct mpcc_delays *sibling,
				       __u32 finest, __s32 lag)
{
	__s32 half = 1 << (MPCC_PERIOD_SHIFT - 1);
	__u32 means;

	__builtin_memset(own->scales, 0, sizeof(own->scales));
	__builtin_memset(own->rows, 0, sizeof(own->rows));
	if (finest < MPCC_INTERVAL_SCALES) {
		means = add_intervals(own, sibling, lag);
		add_coarser(own, MPCC_INTERVAL_SCALES - 1, means);
	}
	means = add_periods(own, sibling, (lag + half) >> MPCC_PERIOD_SHIFT);
	for (__u32 j = MPCC_INTERVAL_SCALES + 1; j < MPCC_SCALES; j++)
		means = add_coarser(own, j, means);
}

/*
 * Whether so many means lack samples at a scale that the square there is no measure of the noise: the next scale has more
 * than two thirds as many second differences in the same time. Periods are kept for four times as long as intervals.
 */
static __always_inline bool has_gaps(const struct mpcc_delays *d, __u32 scale)
{
	__u64 count, next;

	if (scale + 1 >= MPCC_SCALES)
		return false;
	count = d->scales[scale].count;
	next = d->scales[scale + 1].count;
	if (scale + 1 == MPCC_INTERVAL_SCALES)
		next /= (MPCC_PERIODS << MPCC_PERIOD_SHIFT) / MPCC_INTERVALS;
	return 2 * count < 3 * next;
}

/* The evidence of so many changes, with alike and f of 256. */
static __always_inline __s32 evidence_of(__s32 changes, __s32 alike, __u32 f)
{
	__s32 strength = f * (256 * 256) / (256 * 256 - f * f);

	return within(changes * strength * (alike - (__s32)(f * 3 >> 2)) >> 8,
		      MPCC_MOST_OF_A_SCALE);
}

/* The evidence that the two share a queue which the sibling sees so many intervals later; < 0: against it. */
MPCC_GLOBAL __s32 compare_delays(struct mpcc_delays *own nonnull,
				 const struct mpcc_delays *sibling nonnull, __s32 lag)
{
	__u32 finest = finest_scale(own, sibling), heard = 0;
	__u64 noise = 0;
	__s32 evidence = 0;

	add_scales(own, sibling, finest, lag);
	for (__u32 j = 0; j < MPCC_SCALES; j++) {
		const struct mpcc_scale *s = &own->scales[j];
		__s32 changes, alike, found;
		__u64 power;

		if (j < finest || s->count < MPCC_FEWEST_CHANGES || s->power < s->count)
			continue;
		if (!heard && has_gaps(own, j))
			continue;
		power = s->power / s->count << j;
		alike = 256 - (__s32)((s->difference << 8) / s->power);
		/* A few large changes among many small ones count as a few. */
		changes = s->sum * s->sum / (2 * s->power);
		if (!heard || (heard == 1 && j < MPCC_INTERVAL_SCALES)) {
			found = evidence_of(changes, alike, MPCC_ALIKE_AT_BEST);
			if (!heard && found > 0)
				evidence = found;
			if (noise < power)
				noise = power;
			heard++;
			continue;
		}
		if (noise >= power)
			continue;
		found = evidence_of(changes, alike,
				    MPCC_ALIKE_AT_BEST - noise * MPCC_ALIKE_AT_BEST / power);
		if (found < 0 && evidence > 0)
			evidence -= -found < evidence / 2 ? -found : evidence / 2;
		evidence += found;
	}
	return evidence;
}

/*
 * How many intervals later the sibling sees a queue near this host; near the peer, both see it at once. Base
 * RTTs that were measured over a queue are a little wrong: an eighth more, and one, where they differ at all.
 */
static __always_inline __s32 longest_lag(const struct mpcc_delays *own,
					 const struct mpcc_delays *sibling)
{
	__s64 us = (__s64)sibling->base_rtt_us - own->base_rtt_us;
	__u64 half = 1 << (MPCC_INTERVAL_SHIFT - 1);
	__u64 lag = ((us < 0 ? -us : us) + half) >> MPCC_INTERVAL_SHIFT;

	if (lag > 1)
		lag += 1 + lag / 8;
	if (lag > MPCC_MOST_LAG)
		lag = MPCC_MOST_LAG;
	return us < 0 ? -(__s32)lag : (__s32)lag;
}

/*
 * The index of a sibling's pair, or of the pair that gives way to a new sibling: an unused pair, else the one judged
 * longest ago. Eight siblings at once have a pair each.
 */
MPCC_GLOBAL __u32 pair_index(const struct mpcc_delays *own nonnull, __u32 sibling_id)
{
	__u64 oldest = ~0ULL;
	__u32 index = 0;

	for (__u32 i = 0; i < MPCC_SIBLINGS; i++) {
		const struct mpcc_pair *p = &own->pairs[i];

		if (p->sibling == sibling_id)
			return i;
		if (p->judged_at < oldest) {
			oldest = p->judged_at;
			index = i;
		}
	}
	return index;
}

/* Intervals from one turn of a subflow to its next. */
static __always_inline __u32 turn_length(const struct mpcc_delays *own)
{
	__u32 subflows = own->subflows;

	return MPCC_TURN_OF_EACH * (subflows > 2 ? subflows : 2);
}

/* The least number of intervals between two comparisons with the sibling of a pair, for which there are so many lags. */
static __always_inline __u32 judge_every(const struct mpcc_delays *own, const struct mpcc_pair *p,
					 __u32 lags)
{
	if (p->steady < MPCC_STEADY + lags)
		return turn_length(own);
	return turn_length(own) * MPCC_STEADY_TURNS * (own->siblings ?: 1);
}

static __always_inline void set_verdict(struct mpcc_pair *p, __u16 verdict)
{
	if (verdict != p->verdict)
		p->steady = 0;
	else if (p->steady < MPCC_STEADY + MPCC_MOST_LAG)
		p->steady++;
	p->verdict = verdict;
}

/* The last verdict on a sibling, as enum mpcc_bottleneck. */
static __always_inline __u32 last_verdict(const struct mpcc_delays *own, __u32 sibling_id)
{
	const struct mpcc_pair *p = &own->pairs[pair_index(own, sibling_id) % MPCC_SIBLINGS];

	return p->sibling == sibling_id ? p->verdict : MPCC_UNDECIDED;
}

/*
 * A new verdict on a sibling, whose id is not 0, or the last verdict if fewer than judge_every() intervals have passed
 * since. Takes one comparison of the records, or two if the base RTTs differ, of 1 to 6 us each.
 */
MPCC_GLOBAL __u32 judge_bottleneck(struct mpcc_delays *own nonnull,
				   const struct mpcc_delays *sibling nonnull, __u32 sibling_id)
{
	struct mpcc_pair *p = &own->pairs[pair_index(own, sibling_id) % MPCC_SIBLINGS];
	__s32 longest = longest_lag(own, sibling), low = longest < 0 ? longest : 0;
	__s32 high = longest > 0 ? longest : 0, found, other;
	__u64 passed = own->newest - p->judged_at;
	__u16 verdict;

	if (p->sibling != sibling_id) {
		__builtin_memset(p, 0, sizeof(*p));
		p->sibling = sibling_id;
		p->probe = longest - 1;
		passed = turn_length(own);
	}
	if (passed < judge_every(own, p, high - low))
		return p->verdict;
	if (passed > MPCC_INTERVALS / 4)
		passed = MPCC_INTERVALS / 4;
	p->judged_at = own->newest;

	if (p->lag < low || p->lag > high)
		p->lag = 0;
	p->probe++;
	if (p->probe < low || p->probe > high)
		p->probe = low;
	found = compare_delays(own, sibling, p->lag);
	if (p->probe != p->lag) {
		other = compare_delays(own, sibling, p->probe);
		if (other > found) {
			found = other;
			p->lag = p->probe;
		}
	}

	found = within(found, MPCC_MOST_NEW_EVIDENCE);
	p->evidence_q8 += (found - p->evidence_q8) * (__s32)passed >> MPCC_INTERVALS_SHIFT;
	p->evidence_q8 = within(p->evidence_q8, MPCC_MOST_OLD_EVIDENCE);
	found += p->evidence_q8;
	verdict = p->verdict;
	if (found >= MPCC_EVIDENCE)
		verdict = MPCC_SHARED;
	else if (found <= -MPCC_EVIDENCE)
		verdict = MPCC_APART;
	else if (verdict == MPCC_SHARED && found < MPCC_EVIDENCE_TO_STAY)
		verdict = MPCC_UNDECIDED;
	set_verdict(p, verdict);
	return verdict;
}

#endif
