// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The detector of shared bottlenecks over any samples: what an interval notes, and of verdicts that
 *   a record compared with itself never speaks for two queues, and two records compared both ways the same
 *   none comes of fewer intervals than a scale needs
 *   the same queue on both is found to be shared, two unrelated ones to be apart
 */
#include "native.h"

#include "mpcc/bottleneck.h"

#define SUBFLOWS 3
/* Second differences take two intervals more than there are of them. */
#define FEWEST_INTERVALS (MPCC_FEWEST_CHANGES + 2)

static struct mpcc_delays records[SUBFLOWS];
static struct mpcc_delay_sum sums[SUBFLOWS];
static __u32 noted[SUBFLOWS];
static __u32 bases_us[SUBFLOWS];

static void start(void)
{
	memset(records, 0, sizeof(records));
	memset(sums, 0, sizeof(sums));
	memset(noted, 0, sizeof(noted));
}

/* An ACK, as a congestion control would see it. */
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

static __u32 judge(int i, int k)
{
	__u32 verdict = judge_bottleneck(&records[i], &records[k], k, k + 1);
	const struct mpcc_pair *p = &records[i].pairs[k];

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

/* Lehmer's generator, the C++ library's minstd_rand. */
static __u32 random_of(__u64 *state, __u32 below)
{
	*state = *state * 48271 % 2147483647;
	return *state % below;
}

/*
 * Twenty seconds of a queue that changes at random, seen by both subflows, the second one's ACKs later; or of two
 * such queues. An ACK a millisecond, and jitter.
 */
static __u32 verdict_of(__u64 seed, bool shared, __u32 later_ms, __u32 jitter_us)
{
	static __u32 delay_us[2][20000];
	__u32 ends[] = { 0, 0 };

	start();
	bases_us[0] = 20000;
	bases_us[1] = 20000 + 1000 * later_ms;
	for (int q = 0; q < 2; q++)
		for (int ms = 0; ms < 20000; ms++) {
			__u32 before = ms ? delay_us[q][ms - 1] : 0;

			delay_us[q][ms] = random_of(&seed, 256) ? before + random_of(&seed, 400) :
								  before / 2;
		}
	for (__u32 ms = later_ms; ms < 20000; ms++) {
		__u64 now_us = 1000000000 + 1000 * (__u64)ms;

		ack(0, now_us, bases_us[0] + delay_us[0][ms] + random_of(&seed, jitter_us + 1));
		ack(1, now_us,
		    bases_us[1] + delay_us[!shared][ms - later_ms] +
			    random_of(&seed, jitter_us + 1));
		ends[0] = judge(0, 1);
		ends[1] = judge(1, 0);
		require(judge(0, 0) != MPCC_APART, "at %u ms", ms);
	}
	require(ends[0] == ends[1], "verdicts %u, %u", ends[0], ends[1]);
	return ends[0];
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const struct {
		__u32 later_ms, jitter_us;
	} cases[] = { { 0, 0 }, { 0, 10000 }, { 40, 1000 }, { 300, 0 } };

	for (__u64 seed = 1; seed <= 5; seed++)
		for (int i = 0; i < 4; i++) {
			__u32 later = cases[i].later_ms, jitter = cases[i].jitter_us;

			require(verdict_of(seed, true, later, jitter) == MPCC_SHARED,
				"%u ms later, jitter %u us, seed %llu", later, jitter, seed);
			require(verdict_of(seed, false, later, jitter) == MPCC_APART,
				"%u ms later, jitter %u us, seed %llu", later, jitter, seed);
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
		require(compare_delays(&records[i], &records[k], lag) ==
				compare_delays(&records[k], &records[i], -lag),
			"subflows %d, %d, lag %d", i, k, lag);
	}
	return 0;
}
