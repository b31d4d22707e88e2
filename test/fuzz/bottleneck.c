// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The detector of shared bottlenecks over any samples: what an interval notes, and of verdicts that
 *   a record compared with itself never speaks for two queues, and two records compared both ways say the same
 *   fewer intervals than a scale needs give no verdict
 *   one queue of both subflows is found to be shared, two unrelated queues to be apart
 *   "shared" becomes undecided when the evidence ends
 * and the sums at every scale, against sums of both subflows' means one by one, and the evidence in floating point
 */
#include "native.h"

#include "mpcc/bottleneck.h"

#define SUBFLOWS 3
/* n second differences take n + 2 intervals. */
#define FEWEST_INTERVALS (MPCC_FEWEST_CHANGES + 2)

static struct mpcc_delays records[SUBFLOWS];
static struct mpcc_delay_sum sums[SUBFLOWS];
static __u32 noted[SUBFLOWS];
static __u32 bases_us[SUBFLOWS];
/* Equal modulo 8, as in a connection that has had many subflows. */
static const __u32 ids[SUBFLOWS] = { 2, 10, 18 };

static void start(void)
{
	memset(records, 0, sizeof(records));
	memset(sums, 0, sizeof(sums));
	memset(noted, 0, sizeof(noted));
}

/* Notes an ACK as a congestion control does. */
static void ack(int i, __u64 now_us, __u32 rtt_us)
{
	struct mpcc_delays *d = &records[i];
	__u64 before = d->newest;

	if (delay_interval_ends(&sums[i], now_us)) {
		note_delays(d, &sums[i], now_us, bases_us[i]);
		if (d->newest != before) {
			double mean = (double)sums[i].sum_us / sums[i].count;
			double got = (d->rtt[d->newest % MPCC_INTERVALS] - 1) * 32.0;

			noted[i]++;
			require((__u16)d->newest == sums[i].interval, "%llu", d->newest);
			require(got <= mean && mean < got + 33, "mean %g, noted %g", mean, got);
		}
		begin_delays(&sums[i], now_us);
	}
	add_delay(&sums[i], rtt_us);
}

/* Two subflows' means, in eighths of a record's unit; 0 = no samples. */
struct means {
	__s64 own, sibling;
};

static bool both_of(struct means m)
{
	return m.own && m.sibling;
}

static __s64 half_of(__s64 a, __s64 b)
{
	return a && b ? (a + b) / 2 : a + b;
}

static __s64 cut(__s64 change, __s64 most)
{
	return change > most ? most : change < -most ? -most : change;
}

/* The sums at the scales before end, from n means of both subflows at the first of these scales, newest first. */
static void check_scales(const struct mpcc_delays *own, int scale, int end, struct means *m, int n)
{
	for (; scale < end; scale++) {
		const struct mpcc_scale *got = &own->scales[scale];
		__u64 power = 0, difference = 0, sum = 0, count = 0;

		for (int t = 2; t < n; t++) {
			__s64 most = count >= 4 ? (__s64)(sum / count) : 1LL << 40, x, y;

			if (!both_of(m[t]) || !both_of(m[t - 1]) || !both_of(m[t - 2]))
				continue;
			x = cut(m[t].own - 2 * m[t - 1].own + m[t - 2].own, most);
			y = cut(m[t].sibling - 2 * m[t - 1].sibling + m[t - 2].sibling, most);
			power += x * x + y * y;
			difference += (x - y) * (x - y);
			sum += __builtin_llabs(x) + __builtin_llabs(y);
			count++;
		}
		require(got->power == power && got->difference == difference && got->sum == sum &&
				got->count == count,
			"scale %d: power %llu, difference %llu, sum %llu of %llu, want %llu, %llu, %llu of %llu",
			scale, got->power, got->difference, got->sum, got->count, power, difference,
			sum, count);
		for (int t = 0; t < n / 2; t++) {
			struct means a = m[2 * t], b = m[2 * t + 1];

			m[t] = (struct means){ half_of(a.own, b.own),
					       half_of(a.sibling, b.sibling) };
			if (both_of(a) != both_of(b))
				m[t] = both_of(a) ? a : b;
		}
		n /= 2;
	}
}

static double evidence_by(double n, double alike, double f)
{
	double all = n * f * (alike - 3 * f / 4) / (1 - f * f);

	return __builtin_fmin(4, __builtin_fmax(-4, all));
}

/* How far the header's evidence of a scale may be off, if f is off by so much: n is off by one, alike and 3 f / 4 by 1/256. */
static double wrong_by(double n, double alike, double f, double f_wrong)
{
	double most_f = __builtin_fmin(f + f_wrong, 0.84), least_f = __builtin_fmax(f - f_wrong, 0),
	       wrong = 0;

	for (int i = 0; i < 8; i++) {
		double of = evidence_by(__builtin_fmax(n - (i & 1), 0),
					alike + (i & 4 ? 2 : -2) / 256., i & 2 ? most_f : least_f);

		wrong = __builtin_fmax(wrong, __builtin_fabs(of - evidence_by(n, alike, f)));
	}
	return wrong + 1 / 256.;
}

/*
 * The evidence of the sums in a record, by the formulas of bottleneck.h, and how far the header's evidence may be from the
 * formulas': the header has alike and f in whole 256ths, n and the mean square in whole numbers.
 */
static void check_evidence(const struct mpcc_delays *own, __u32 finest, __s32 got_q8)
{
	double evidence = 0, wrong = 0, noise = 0;
	int heard = 0;

	for (__u32 j = finest; j < MPCC_SCALES; j++) {
		const struct mpcc_scale *s = &own->scales[j];
		double mean, n, alike, f, f_wrong, found, found_wrong;

		if (s->count < 4 || s->power < s->count || (!heard && has_gaps(own, j)))
			continue;
		heard++;
		mean = (double)s->power / s->count;
		n = (double)s->sum * s->sum / (2. * s->power);
		alike = 1 - (double)s->difference / s->power;
		/* The finest scale tells of the noise; so does the next, if that is of intervals. */
		if (heard == 1 || (heard == 2 && j < 3)) {
			noise = __builtin_fmax(noise, mean * (1 << j));
			if (heard == 2)
				continue;
			evidence = __builtin_fmax(0, evidence_by(n, alike, 0.84));
			wrong = wrong_by(n, alike, 0.84, 1 / 256.);
			continue;
		}
		f = __builtin_fmax(0, 0.84 * (1 - noise / (mean * (1 << j))));
		f_wrong = 1 / 256. + 2 / mean;
		found = evidence_by(n, alike, f);
		found_wrong = wrong_by(n, alike, f, f_wrong);
		/* Evidence against counts double, until evidence for one queue is halved: what is wrong as well. */
		if (found < 0 && evidence > 0)
			evidence -= __builtin_fmin(-found, evidence / 2);
		evidence += found;
		wrong += 2 * found_wrong + 1 / 256.;
	}
	require(__builtin_fabs(got_q8 / 256. - evidence) <= wrong,
		"evidence %g, want %g to within %g", got_q8 / 256., evidence, wrong);
}

/* The sums that a comparison of i's delays with k's leaves in i's record, and the evidence. */
static void check_sums(int i, int k, __s32 lag)
{
	const struct mpcc_delays *own = &records[i], *sibling = &records[k];
	__s64 period = own->newest >> MPCC_PERIOD_SHIFT, period_lag = (lag + 4) >> 3;
	__s64 sibling_period = sibling->newest >> MPCC_PERIOD_SHIFT;
	struct means m[MPCC_INTERVALS];
	__s32 evidence = compare_delays(&records[i], &records[k], lag);
	int n = 0;

	for (__s64 at = own->newest; at >= oldest_interval(own) && n < MPCC_INTERVALS; at--)
		if (at + lag <= (__s64)sibling->newest && at + lag >= oldest_interval(sibling))
			m[n++] = (struct means){ own->rtt[at % MPCC_INTERVALS] * 8,
						 sibling->rtt[(at + lag) % MPCC_INTERVALS] * 8 };
	if (finest_scale(own, sibling) < MPCC_INTERVAL_SCALES)
		check_scales(own, 0, MPCC_INTERVAL_SCALES, m, n / 4 * 4);
	n = 0;
	for (__s64 at = period - 1; at >= oldest_period(own) && n < MPCC_PERIODS; at--)
		if (at + period_lag < sibling_period && at + period_lag >= oldest_period(sibling))
			m[n++] = (struct means){
				own->period_rtt[at % MPCC_PERIODS] * 8,
				sibling->period_rtt[(at + period_lag) % MPCC_PERIODS] * 8
			};
	check_scales(own, MPCC_INTERVAL_SCALES, MPCC_SCALES, m, n);
	check_evidence(own, finest_scale(own, sibling), evidence);
}

static __u32 judge(int i, int k)
{
	__u32 verdict = judge_bottleneck(&records[i], &records[k], ids[k]);
	const struct mpcc_pair *p = &records[i].pairs[pair_index(&records[i], ids[k])];

	require(verdict <= MPCC_APART && p->verdict == verdict, "verdict %u", verdict);
	require(p->lag >= -MPCC_MOST_LAG && p->lag <= MPCC_MOST_LAG, "lag %d", p->lag);
	require(p->evidence_q8 >= -MPCC_MOST_OLD_EVIDENCE &&
			p->evidence_q8 <= MPCC_MOST_OLD_EVIDENCE,
		"evidence %d", p->evidence_q8);
	if (noted[i] < FEWEST_INTERVALS || noted[k] < FEWEST_INTERVALS)
		require(verdict == MPCC_UNDECIDED, "verdict %u of %u and %u intervals", verdict,
			noted[i], noted[k]);
	if (i == k)
		require(verdict != MPCC_APART, "apart from itself");
	return verdict;
}

#define RUN_MS 20000

/*
 * Twenty seconds of a queue that changes at random, seen by both subflows, by the second one later; or of two such queues.
 * An ACK a millisecond, with jitter. So many times a second the host's CPU pauses for up to 20 ms: the ACKs of the pause are
 * seen at the end, and the burst sent then fills both queues for half as long.
 */
static __u32 verdict_of(__u64 seed, bool shared, __u32 later_ms, __u32 jitter_us, __u32 pauses)
{
	static __u32 delay_us[2][RUN_MS];
	static __u32 seen_at_ms[RUN_MS]; /* when the ACK of each millisecond is seen */
	/* With pauses the queue itself changes little. */
	__u32 verdicts[] = { 0, 0 }, rise_us = pauses ? 50 : 400;

	start();
	bases_us[0] = 20000;
	bases_us[1] = 20000 + 1000 * later_ms;
	for (int q = 0; q < 2; q++)
		for (int ms = 0; ms < RUN_MS; ms++) {
			__u32 before = ms ? delay_us[q][ms - 1] : 0;

			delay_us[q][ms] = random_delay(&seed, before, rise_us);
		}
	for (__u32 ms = 0; ms < RUN_MS; ms++)
		seen_at_ms[ms] = ms;
	for (__u32 ms = 0; ms + 40 < RUN_MS; ms++) {
		__u32 length_ms;

		if (!pauses || random_of(&seed, 1000) >= pauses)
			continue;
		length_ms = 1 + random_of(&seed, 20);
		for (__u32 i = 0; i < length_ms; i++)
			seen_at_ms[ms + i] = ms + length_ms;
		ms += length_ms;
		for (__u32 i = 0; i < length_ms / 2; i++)
			for (int q = 0; q < 2; q++)
				delay_us[q][ms + i] += 1000 * (length_ms / 2 - i);
	}
	for (__u32 ms = later_ms; ms < RUN_MS; ms++) {
		__u64 now_us = 1000000000 + 1000 * (__u64)seen_at_ms[ms];
		__u32 late_us = 1000 * (seen_at_ms[ms] - ms);

		ack(0, now_us,
		    bases_us[0] + delay_us[0][ms] + late_us + random_of(&seed, jitter_us + 1));
		ack(1, now_us,
		    bases_us[1] + delay_us[!shared][ms - later_ms] + late_us +
			    random_of(&seed, jitter_us + 1));
		verdicts[0] = judge(0, 1);
		verdicts[1] = judge(1, 0);
		require(judge(0, 0) != MPCC_APART, "at %u ms", ms);
	}
	require(verdicts[0] == verdicts[1], "verdicts %u, %u", verdicts[0], verdicts[1]);
	return verdicts[0];
}

/*
 * Twenty seconds of one queue, as above; then the queue stays empty and the RTTs the same. That tells neither of a shared
 * queue nor of two: the verdict is undecided again.
 */
static void check_end_of_evidence(__u64 seed)
{
	__u32 delay_us = 0, before = MPCC_UNDECIDED;
	__u64 state = seed;

	start();
	bases_us[0] = bases_us[1] = 20000;
	for (__u32 ms = 0; ms < 2 * RUN_MS; ms++) {
		__u64 now_us = 1000000000 + 1000 * (__u64)ms;
		__u32 verdict;

		delay_us = ms < RUN_MS ? random_delay(&state, delay_us, 400) : 0;
		for (int i = 0; i < 2; i++)
			ack(i, now_us, bases_us[i] + delay_us);
		verdict = judge(0, 1);
		require(ms != RUN_MS || before == MPCC_SHARED,
			"seed %llu: verdict %u of a shared queue", seed, before);
		require(ms < RUN_MS || verdict == before || verdict == MPCC_UNDECIDED,
			"seed %llu: verdict %u after %u, without evidence", seed, verdict, before);
		before = verdict;
	}
	require(before == MPCC_UNDECIDED, "seed %llu: verdict %u, without evidence for 20 s", seed,
		before);
}

/* Eight siblings keep their pairs, whatever their ids; a ninth takes the place of the one judged longest ago. */
static void check_pairs(void)
{
	__u32 indices = 0, oldest;

	start();
	for (__u32 n = 0; n < 24; n++) {
		__u32 id = 16 * (1 + n % 8);

		records[0].newest += 2 * MPCC_TURN_OF_EACH;
		judge_bottleneck(&records[0], &records[1], id);
		indices |= 1 << pair_index(&records[0], id);
	}
	require(indices == 0xff, "pairs %x", indices);
	for (__u32 n = 0; n < 8; n++)
		require(records[0].pairs[pair_index(&records[0], 16 * (1 + n))].judged_at ==
				(17 + n) * 2 * MPCC_TURN_OF_EACH,
			"id %u lost its pair", 16 * (1 + n));
	oldest = pair_index(&records[0], 16);
	require(pair_index(&records[0], 1000) == oldest, "%u gives way, want %u",
		pair_index(&records[0], 1000), oldest);
}

/* A record has all intervals from the first one on, while there is room. */
static void check_oldest(void)
{
	start();
	for (__u64 interval = 1000; interval < 2000; interval++) {
		struct mpcc_delay_sum s = { .sum_us = 20000, .count = 1, .interval = interval };
		__s64 want = interval > 1255 ? interval - 255 : 1000;

		note_delays(&records[0], &s, (interval + 1) << MPCC_INTERVAL_SHIFT, 20000);
		require(oldest_interval(&records[0]) == want,
			"interval %llu: from %lld on, want %lld", interval,
			oldest_interval(&records[0]), want);
	}
}

/*
 * The mean of a period is the mean of the means of the period's intervals with samples. An interval's mean that is longer
 * than the means noted before and after counts as the longer one of these two.
 */
static void check_periods(void)
{
	__u64 seed = 1;

	for (int n = 0; n < 200; n++) {
		static __u32 at[8 * (MPCC_PERIODS + 40)], mean[8 * (MPCC_PERIODS + 40)];
		__u32 sum[MPCC_PERIODS + 40] = {}, count[MPCC_PERIODS + 40] = {};
		__u32 gap = 1 + random_of(&seed, n % 2 ? 3 : 60), noted = 0, newest = 0;

		start();
		for (__u32 i = 0; i < 8 * (MPCC_PERIODS + 40); i += 1 + random_of(&seed, gap)) {
			struct mpcc_delay_sum s = { .count = 1, .interval = 800 + i };

			mean[noted] = random_of(&seed, 60000);
			s.sum_us = 32 * mean[noted];
			note_delays(&records[0], &s, (801ULL + i) << MPCC_INTERVAL_SHIFT, 20000);
			newest = at[noted++] = i;
		}
		for (__u32 i = 0; i < noted; i++) {
			__u32 longer = mean[i];

			if (i && i + 1 < noted)
				longer = mean[i - 1] > mean[i + 1] ? mean[i - 1] : mean[i + 1];
			sum[at[i] / 8] += 1 + (mean[i] < longer ? mean[i] : longer);
			count[at[i] / 8]++;
		}
		require(newest_period(&records[0]) == 100 + newest / 8 - 1, "newest %lld",
			newest_period(&records[0]));
		for (__s64 p = oldest_period(&records[0]); p < 100 + newest / 8; p++) {
			__u32 got = records[0].period_rtt[p % MPCC_PERIODS], i = p - 100;

			require(got == (count[i] ? sum[i] / count[i] : 0),
				"period %u: %u, of %u intervals", i, got, count[i]);
		}
	}
}

/*
 * A turn is 6 intervals for each subflow of the connection, of which there are two at least. A subflow judges a sibling
 * once a turn, until four verdicts in a row, and one more for each lag, were the same; then once in four turns for each
 * sibling that the subflow judges.
 */
static void check_pace_of(__u32 subflows, __u32 siblings, __u32 lags)
{
	struct mpcc_delays own = { .siblings = siblings, .subflows = subflows };
	__u32 turn = subflows > 2 ? 6 * subflows : 12;
	struct mpcc_pair p = {};

	set_verdict(&p, MPCC_SHARED);
	for (__u32 i = 0; i < 100000; i++) {
		__u32 want = i < 4 + lags ? turn : turn * 4 * (siblings ? siblings : 1);

		require(judge_every(&own, &p, lags) == want,
			"%u subflows, %u siblings, %u lags: verdict %u after %u intervals, want %u",
			subflows, siblings, lags, i, judge_every(&own, &p, lags), want);
		set_verdict(&p, MPCC_SHARED);
	}
	set_verdict(&p, MPCC_UNDECIDED);
	require(judge_every(&own, &p, lags) == turn, "after a change: %u intervals, want %u",
		judge_every(&own, &p, lags), turn);
}

static void check_pace(void)
{
	check_pace_of(0, 0, 0);
	check_pace_of(2, 1, 0);
	check_pace_of(3, 2, 24);
	check_pace_of(8, 7, 3);
}

/* Two queues that change at random, at each interval. */
#define CHECKED_INTERVALS 1430
static __u32 queues[2][CHECKED_INTERVALS];

static void change_queues(__u64 *seed, __u32 size)
{
	for (int q = 0; q < 2; q++)
		for (int t = 0; t < CHECKED_INTERVALS; t++) {
			__u32 before = t ? queues[q][t - 1] : 0;

			queues[q][t] = before < size / 2 && random_of(seed, 64) ?
					       before + random_of(seed, size / 32 + 1) :
					       before / 2;
		}
}

/*
 * Records of all lengths, with many gaps, with few and with none: of numbers at random, of one queue, and of two, both with
 * noise.
 */
static void check_comparisons(void)
{
	__u64 seed = 1;

	for (int n = 0; n < 2000; n++) {
		__u32 gap = n % 4, queue_count = n / 4 % 3, size = 1 + random_of(&seed, 65535);
		__u32 noise = queue_count ? 1 + size / 64 : size;

		change_queues(&seed, size);
		start();
		for (int i = 0; i < 2; i++) {
			struct mpcc_delays *d = &records[i];

			d->first = 1000 + random_of(&seed, 30);
			d->newest = d->first + random_of(&seed, 1400);
			for (__u64 at = d->first; at <= d->newest; at++) {
				__u32 queue = queue_count ?
						      queues[queue_count == 2 ? i : 0][at - 1000] :
						      0;
				__u16 mean = 1 + queue + random_of(&seed, noise);

				d->rtt[at % MPCC_INTERVALS] = gap && !random_of(&seed, gap * gap) ?
								      0 :
								      mean;
				mean = 1 + queue + random_of(&seed, noise);
				d->period_rtt[at / 8 % MPCC_PERIODS] =
					gap && !random_of(&seed, gap * gap) ? 0 : mean;
			}
		}
		for (__s32 lag = -24; lag <= 24; lag += 8)
			check_sums(0, 1, lag);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const struct {
		__u32 later_ms, jitter_us, pauses;
	} cases[] = { { 0, 0, 0 }, { 0, 10000, 0 }, { 40, 1000, 0 }, { 300, 0, 0 },
		      { 0, 0, 1 }, { 0, 0, 4 },	    { 40, 1000, 4 }, { 40, 5000, 4 } };

	check_oldest();
	check_periods();
	check_comparisons();
	check_pairs();
	check_pace();
	for (__u64 seed = 1; seed <= 5; seed++)
		check_end_of_evidence(seed);
	for (__u64 seed = 1; seed <= 5; seed++)
		for (__u32 i = 0; i < ARRAY_SIZE(cases); i++) {
			__u32 later = cases[i].later_ms, jitter = cases[i].jitter_us;
			__u32 pauses = cases[i].pauses;
			__u32 of_one = verdict_of(seed, true, later, jitter, pauses);
			__u32 of_two = verdict_of(seed, false, later, jitter, pauses);

			require(of_one == MPCC_SHARED,
				"%u ms later, jitter %u us, %u pauses, seed %llu", later, jitter,
				pauses, seed);
			require(of_two == MPCC_APART,
				"%u ms later, jitter %u us, %u pauses, seed %llu", later, jitter,
				pauses, seed);
		}
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	__u64 now_us = draw_number(&in, 60);

	start();
	for (int i = 0; i < SUBFLOWS; i++)
		bases_us[i] = draw_number(&in, 32);
	while (in.size) {
		int i = draw_byte(&in) % SUBFLOWS, k = draw_byte(&in) % SUBFLOWS;
		__u32 bits = 1 + draw_byte(&in) % 32, acks = draw_byte(&in);
		__s32 lag = (__s32)draw_number(&in, 6) - 24;
		__u64 step_us = draw_number(&in, 28);

		for (__u32 n = 0; n < acks; n++) {
			now_us += step_us;
			ack(i, now_us, draw_number(&in, bits));
			ack(k, now_us, draw_number(&in, bits));
		}
		bases_us[i] = draw_number(&in, 32);
		judge(i, k);
		judge(k, i);
		judge(i, i);
		require(compare_delays(&records[i], &records[i], 0) >= 0, "subflow %d", i);
		/* A lag midway between two periods is rounded up, and is a longer one for one of the two. */
		require(compare_delays(&records[i], &records[k], lag) ==
					compare_delays(&records[k], &records[i], -lag) ||
				(lag & 7) == 4,
			"subflows %d, %d, lag %d", i, k, lag);
		check_sums(i, k, lag);
	}
	return 0;
}
