// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The response to losses by the queue (queue.h), or by trials, against the formulas in floating point: by how much a subflow
 * grows and what a loss leaves, for any smallest RTT, delay and window. And the means that rounds of any ACKs measure. The
 * socket is the only subflow of an MPTCP connection, or with plain=own a TCP connection. queue_dts.c includes this file,
 * with DTS.
 */
#include "native.h"

#ifndef ALGORITHM
#define ALGORITHM lia
#endif
#include SOURCE(cc, ALGORITHM)

#include "connection.h"
#include "delays.h"

static struct tcp_sock *const tp = &connection.subflows[0];
static bool plain_tcp;

/* A round's clock goes round in so many microseconds. */
#define CLOCK_TURN_US (1ULL << 25)

/* When the round began, as the harness counts. */
static __u64 round_began_us;

static void start(__u32 cwnd)
{
	join(1, &ALGORITHM);
	response = RESPONSE_QUEUE;
	if (plain_tcp) {
		tp->is_mptcp = false;
		tp->inet_conn.icsk_ulp_data = NULL;
		plain = PLAIN_OWN;
		couple = COUPLE_SHARED;
		CALL(mpcc_init, ARG(tp));
		require(!given_control[0], "plain=own: the socket is under %s", given_control);
	}
	tp->snd_cwnd = cwnd;
	tp->snd_ssthresh = 1;
	tp->prior_ssthresh = 1; /* a loss, and no ECN mark */
	tp->rtt_min.s[0].v = ~0U;
	tp->tcp_mstamp = 1000000;
}

static struct mpcc_queue *queue(void)
{
	return &flow_of(tp)->queue;
}

/* The part of the window that a loss leaves at least. */
static double part_left(double d, double longest, double noise, __u32 random)
{
	if (is_short(d, longest, noise))
		return 15 / 16.;
	if (10 * d >= 8 * longest || !random)
		return 0;
	return 15 / 16. - (15 / 16. - 717 / 1024.) * (d / longest - 0.1) / 0.7;
}

/* Whether the path delivers more than that percentage of the window w in an RTT. */
static bool path_delivers(double percent, double w)
{
	return 100. * tp->rate_delivered * (tp->srtt_us >> 3) > percent * w * tp->rate_interval_us;
}

/* What a segment adds where no queue is known. */
static double step_of_trials(double w)
{
	const struct mpcc_flow *flow = flow_of(tp);

	if (!flow->random || flow->trial)
		return 0;
	if (w < flow->last_max * 7 / 8.)
		return 1 / 2.;
	return flow->random >= 2 && path_delivers(80, w) ? 1 / 16. : 0;
}

/* Four times the binary logarithm of the packets that the path took in since_us, 1 to 63. */
static double gap_after(__u32 since_us, double w)
{
	double packets = (1. + since_us) * w / (tp->srtt_us >> 3), whole = 0;

	for (; packets >= 2; packets /= 2)
		whole++;
	return __builtin_fmin(63, __builtin_fmax(1, 4 * whole + 4 * (packets - 1)));
}

/* What the gap is after a loss, if that came after so many packets. */
static __u32 gap_noted(__u32 came)
{
	const struct mpcc_flow *flow = flow_of(tp);

	if (flow->trial || !flow->random || !came)
		return flow->gap;
	return flow->gap ? (3 * flow->gap + came + 2) / 4 : came;
}

static __u32 one_surer(__u32 random)
{
	return random < 3 ? random + 1 : 3;
}

/* How sure losses are random after one on a path without a known queue. */
static __u32 random_after(double w, __u32 came)
{
	const struct mpcc_flow *flow = flow_of(tp);
	__u32 random = flow->random;

	if (!flow->trial)
		return random;
	if (w < flow->last_max * 7 / 8. && path_delivers(67, w) &&
	    (!flow->gap || came <= flow->gap + 5))
		return one_surer(random);
	return random / 2;
}

/*
 * m_0 after a loss, if the queue was not full: an eighth of the way to the mean, or to base and six mean deviations if those
 * are less. Windows below 16 packets leave m_0 as is.
 */
static double least_after(double least, double mean, __u32 base_us, __u32 w)
{
	double explained = __builtin_fmin(mean, units(base_us + tp->mdev_us / 4. * 6));

	return explained > least && w >= 16 ? least + __builtin_ceil((explained - least) / 8) :
					      least;
}

/* Growth and a loss with a drawn queue, or what trials have found where none is known, against the formulas. */
static void check_response(struct input *in)
{
	__u32 base_us = 4000 + draw_number(in, 21), after, floored;
	__u32 w = 2 + (draw_byte(in) % 4 ? draw_number(in, 24) : draw_byte(in) % 32);
	double base = units(base_us), longest, d, unsure, want, got, peak, rtt, last_max, least,
	       seen;
	struct mpcc_queue *q = queue();
	struct mpcc_flow *flow = flow_of(tp);
	bool congestion, coupled, known, trial, stays = false;
	__u32 random, gap, came, since_us, whole;

	start(w);
	tp->rtt_min.s[0].v = base_us;
	tp->srtt_us = base_us << 3;
	q->longest = draw_number(in, 16);
	q->mean = draw_number(in, 16);
	q->least = draw_number(in, 16);
	tp->mdev_us = draw_number(in, 22);
	q->peak = draw_number(in, 16);
	q->lossy = draw_byte(in) % 4 != 0;
	tp->rack.rtt_us = draw_number(in, 22);
	tp->rate_delivered = draw_number(in, 24);
	tp->rate_interval_us = draw_number(in, 24);
	coupled = !plain_tcp && draw_byte(in) % 2;
	flow->together = coupled ? MPCC_ALL_TOGETHER : 0;
	whole = coupled ? 1 + draw_number(in, 23) : w;
	flow->trial = draw_byte(in) % 2;
	flow->random = draw_byte(in) % 4;
	flow->last_max = draw_byte(in) % 2 ? draw_number(in, 23) :
					     __builtin_fmin(w, MPCC_MOST_PACKETS);
	flow->gap = draw_byte(in) % 64;
	tp->tcp_mstamp += draw_byte(in);
	flow->curve_subflows = draw_byte(in) % 2;
	since_us = draw_number(in, 32);
	flow->curve.began_us = elapsed_us((__u32)tp->tcp_mstamp, since_us);
	came = gap_of(flow, tp);
	require(flow->curve_subflows ? came <= gap_after(since_us, w) + 1e-6 &&
					       came >= gap_after(since_us, w) - 1 - 1e-6 :
				       !came,
		"%u packets, %u us of %u: %u, want %g", w, since_us, base_us, came,
		gap_after(since_us, w));
	unsure = noise(base, q->mean);
	known = is_known(base_us, q->longest, unsure);
	d = __builtin_fmax(q->mean - (double)q->least, 0);
	longest = d_m(base, q->longest);
	peak = q->peak;
	rtt = units(tp->rack.rtt_us);

	want = coupled ? 0 : step_of_trials(w);
	if (known)
		want = q->lossy && flow->random ? alpha(whole, d, longest, unsure) / whole : 0;
	got = __builtin_ldexp(step_by_queue(flow, tp, whole), -29);
	/* alpha is counted in 2^-16 packets, and the constants have four digits. */
	require(got <= want * 1.001 + 0x1p-28 && got >= want * 0.999 - 0x1p-15 / whole - 0x1p-28,
		"%u packets of %u, %u us, %g of %u: %g a segment, want %g", w, whole, base_us, d,
		q->longest, got, want);

	if (draw_byte(in) % 4 == 0)
		tp->prior_ssthresh = 0;
	congestion = !tp->prior_ssthresh || is_full(base, rtt, peak);
	/* Without the queue's response a loss is CUBIC's, which leaves 717/1024. */
	want = 0;
	random = flow->random;
	gap = flow->gap;
	trial = false;
	last_max = flow->last_max;
	least = congestion ? q->least : least_after(q->least, q->mean, base_us, w);
	seen = q->longest;
	if (!congestion && d > unsure && d < seen)
		seen -= __builtin_floor((seen - d) / 8);
	if (!congestion && known) {
		want = part_left(d, longest, unsure, random) * w;
		if (is_short(d, longest, unsure))
			random = one_surer(random);
		else if (random)
			random--;
	} else if (!congestion && !coupled) {
		random = random_after(w, came);
		gap = gap_noted(came);
		trial = tp->tcp_mstamp % (1 << random) == 0;
		stays = !trial;
		want = stays ? w : 0;
	}
	floored = (__u64)w * 717 / 1024;
	if (want < floored)
		want = floored;
	if (want < 2)
		want = 2;
	after = CALL(mpcc_ssthresh, ARG(tp));
	require(after <= want + w / 1024. && after >= want - 1,
		"%u packets, %u us, %g of %g: %u after a loss, want %g", w, base_us, d, longest,
		after, want);
	if (last_max < w)
		last_max = w;
	else if (last_max > w && !stays)
		last_max = __builtin_floor((w + after) / 2.);
	last_max = __builtin_fmin(last_max, MPCC_MOST_PACKETS);
	require(flow->random == random && flow->trial == trial && flow->last_max == last_max,
		"%u packets: sure %u times, want %u, in a trial %d, want %d; %u packets at most, want %g",
		w, flow->random, random, flow->trial, trial, flow->last_max, last_max);
	require(flow->gap == gap, "a loss after %u: usually after %u, want %u", came, flow->gap,
		gap);
	require(q->least == least && q->longest == seen,
		"%g units of %g: now %u without a queue, want %g, and %u at most, want %g", d,
		longest, q->least, least, q->longest, seen);
	require(q->lossy == !congestion, "of %g above %g units, at most %g: told for %s", rtt, base,
		peak, q->lossy ? "a loss" : "congestion");
	require(q->peak <= peak && q->peak >= (rtt < peak ? peak - (peak - rtt) / 32 : peak),
		"an RTT of %g units at a loss, at most %g before, now %u", rtt, peak, q->peak);
}

/* An ACK with an RTT sample, 0 = none, after a slow start or in one. */
static void ack(__u64 after_us, __u32 rtt_us, bool in_loss, bool started)
{
	struct mpcc_queue before = *queue();
	double mean = before.mean, least = before.least, longest, srtt = units(tp->srtt_us >> 3);
	__u32 srtt_us = tp->srtt_us >> 3, w = tp->snd_cwnd;
	__u64 lasted_us;

	tp->tcp_mstamp += after_us;
	tp->rack.rtt_us = rtt_us;
	tp->inet_conn.icsk_ca_state = in_loss ? TCP_CA_Loss : TCP_CA_Open;
	flow_of(tp)->started = started;
	if (rtt_us && rtt_us < tp->rtt_min.s[0].v)
		tp->rtt_min.s[0].v = rtt_us;
	CALL(mpcc_cong_avoid, ARG(tp), 0, 1);
	if (!rtt_us || in_loss) {
		require(!memcmp(&before, queue(), sizeof(before)),
			"an ACK without a sample of its own counts");
		return;
	}
	require(queue()->peak == __builtin_fmax(before.peak, units(rtt_us)),
		"%g units, at most %u before, now %u", units(rtt_us), before.peak, queue()->peak);
	/* RTTs and times are cut to units of 1024 us; 32768 units look like none. */
	lasted_us = before.mean ? (tp->tcp_mstamp - round_began_us) % CLOCK_TURN_US : 0;
	if (before.mean && queue()->began == before.began) {
		require(lasted_us < srtt_us + 2048 || lasted_us > CLOCK_TURN_US - 2048,
			"a round of %llu us goes on, RTT %u", lasted_us, srtt_us);
		require(queue()->mean == mean && queue()->least == least &&
				queue()->longest == before.longest,
			"the queue is measured within a round");
		return;
	}
	require(!before.mean || lasted_us + 2048 > srtt_us, "a round ends after %llu us, RTT %u",
		lasted_us, srtt_us);
	round_began_us = tp->tcp_mstamp;
	mean = started ? __builtin_floor((mean + srtt + 1) / 2) : srtt;
	if (!before.least || mean < least || (!started && !before.longest && w < 32))
		least = mean;
	require(queue()->mean == mean && queue()->least == least,
		"%u units in the last rounds, want %g, and %u without a queue, want %g",
		queue()->mean, mean, queue()->least, least);
	longest = before.longest +
		  __builtin_fmax(__builtin_ceil((mean - least - before.longest) / 4), 0);
	require(queue()->longest == longest, "%u units at most, before %u, now %g of %g",
		queue()->longest, before.longest, longest, mean - least);
}

/* A loss takes an eighth of the difference between the longest queue and a shorter one, and nothing if that is empty. */
static void check_doubt(void)
{
	double want = 4000;

	start(1000);
	tp->rtt_min.s[0].v = 400000;
	tp->rack.rtt_us = 450000;
	queue()->longest = 4000;
	queue()->least = units(400000);
	queue()->peak = 60000;
	for (int i = 0; i < 50; i++) {
		queue()->mean = queue()->least + MS(0.9);
		CALL(mpcc_ssthresh, ARG(tp));
		require(queue()->longest > want - 1 - i, "%u after %d losses, want %g",
			queue()->longest, i, want);
		queue()->mean = queue()->least + 1000;
		CALL(mpcc_ssthresh, ARG(tp));
		want -= (want - 1000) / 8;
		require(queue()->longest >= want && queue()->longest < want + 8,
			"%u after %d losses, want %g", queue()->longest, i, want);
	}
}

/* Ten ACKs with one RTT in each of so many RTTs. */
static void ack_for(__u32 rtts, __u32 rtt_us)
{
	tp->srtt_us = rtt_us << 3;
	for (__u32 i = 0; i < 10 * rtts; i++) {
		tp->tcp_mstamp += rtt_us / 10;
		tp->rack.rtt_us = rtt_us;
		CALL(mpcc_cong_avoid, ARG(tp), 0, 1);
	}
}

/* What a loss leaves of 1000 packets. */
static __u32 left_of_1000(__u32 rtt_us)
{
	tp->snd_cwnd = 1000;
	tp->rack.rtt_us = rtt_us;
	return CALL(mpcc_ssthresh, ARG(tp));
}

static bool grows_by_queue(void)
{
	return step_by_queue(flow_of(tp), tp, 1000);
}

/*
 * A path of 40 ms, whose queue was 24 ms long. Losses of the full queue, and an RTT later, are of congestion; losses when
 * the queue has been empty for a while are random, whatever the newest packet met.
 */
static void check_overflow(void)
{
	start(1000);
	tp->rtt_min.s[0].v = 40000;
	ack_for(2, 40000);
	ack_for(20, 64000);
	require(left_of_1000(62000) == 700, "a loss behind a full queue");
	require(!grows_by_queue(), "growth goes by the queue after it was full");
	ack_for(2, 40000);
	require(left_of_1000(50000) == 700, "a loss an RTT after a full queue");
	ack_for(7, 40000);
	require(left_of_1000(52000) == 937, "a loss beside no queue");
	require(grows_by_queue(), "growth does not go by the queue after a random loss");
}

/*
 * A path of 40 ms whose AQM drops packets while the queue is at 10 ms. A loss at 10 ms is congestion, as long as no loss has
 * come beside an empty queue. After a loss beside an empty queue, the first loss at 10 ms may be random, the second is
 * congestion.
 */
static void check_aqm(void)
{
	__u32 left;

	start(1000);
	tp->rtt_min.s[0].v = 40000;
	ack_for(2, 40000);
	ack_for(20, 64000);
	ack_for(6, 50000);
	require(left_of_1000(50000) == 700 && queue()->lossy, "a loss at the AQM's 10 ms");
	require(!grows_by_queue(), "growth goes by the queue after a loss at the AQM's 10 ms");
	ack_for(7, 40000);
	require(left_of_1000(40000) == 937, "a loss beside no queue");
	require(grows_by_queue(), "growth does not go by the queue after a random loss");
	ack_for(6, 50000);
	left = left_of_1000(50000);
	require(left > 700 && left < 937, "%u after a loss at 10 ms that follows a random loss",
		left);
	ack_for(6, 50000);
	require(left_of_1000(50000) == 700, "the second loss at 10 ms after a random loss");
}

/*
 * A path of 40 ms whose jitter adds 20 ms to the mean, of which few packets once saw 10 only. Losses are taken for random once
 * the deviation of the RTTs has explained the difference. Where RTTs deviate by 1 ms, a queue may be what adds 20 ms.
 */
static void check_jitter(void)
{
	for (__u32 deviation_us = 1000; deviation_us <= 4000; deviation_us += 3000) {
		bool explained = deviation_us == 4000;
		__u32 left = 0;

		start(1000);
		tp->rtt_min.s[0].v = 40000;
		tp->mdev_us = 4 * deviation_us;
		ack_for(2, 50000);
		ack_for(20, 90000);
		for (int i = 0; i < 8; i++) {
			ack_for(8, 60000);
			left = left_of_1000(60000);
			require(i || left == 700, "a loss before anything explains the delay");
		}
		require(left == (explained ? 937 : 700), "%u left, RTTs deviate by %u us", left,
			deviation_us);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	for (int i = 0; i < 2; i++) {
		plain_tcp = i;
		check_doubt();
		check_overflow();
		check_aqm();
		check_jitter();
	}
	/* response=standard neither measures nor acts. */
	start(100);
	response = RESPONSE_STANDARD;
	tp->rtt_min.s[0].v = 40000;
	queue()->longest = 600;
	queue()->peak = 1200;
	queue()->lossy = 1;
	require(!grows_by_queue() && CALL(mpcc_ssthresh, ARG(tp)) == 70, "response=standard");
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };

	plain_tcp = draw_byte(&in) % 2;
	check_response(&in);
	start(2 + draw_byte(&in) % 64);
	tp->tcp_mstamp += draw_number(&in, 50); /* years since the host's start */
	while (in.size) {
		ack(draw_number(&in, 25), draw_number(&in, 24), !(draw_byte(&in) % 8),
		    draw_byte(&in) % 2);
		if (!(draw_byte(&in) % 8))
			tp->srtt_us = draw_number(&in, 27);
	}
	return 0;
}
