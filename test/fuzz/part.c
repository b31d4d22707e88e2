// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A part of CUBIC (window.h) under a control (-DALGORITHM=lia): from a loss on, coupled subflows with constant windows and
 * RTTs grow along CUBIC's course. p is the rule's step over Reno's step, 1 / w, and 3/2 of that for DTS, extended DTS and
 * EWTCP. Of Reno's growth a subflow has 11/8 p, and of the time p^(2/3) (1 + (n - 1) / 4); 1 at most. A loss takes what
 * CUBIC takes, where the rules and Reno take half. With growth=reno the rule's step and half of the window hold. An uncoupled
 * subflow under DTS has the part p = eps over the largest eps of Reno's growth, and p^(2/3) of the time.
 */
#include "native.h"

#include SOURCE(cc, ALGORITHM)

#include "connection.h"

#define NUMBER_OF_wvegas 1

static struct tcp_sock *const tp = &connection.subflows[0];

/* Packets per cubic second. */
#define C 0.4

static bool is(const char *name)
{
	return !strcmp(ALGORITHM.name, name);
}

static double window(__u32 i)
{
	return connection.subflows[i].snd_cwnd;
}

static double rtt_s(__u32 i)
{
	return (connection.subflows[i].srtt_us >> 3) * 1e-6;
}

static double base_s(__u32 i)
{
	return connection.subflows[i].rtt_min.s[0].v * 1e-6;
}

/* DTS, Algorithm 1 */
static double eps(__u32 i)
{
	return 2 / (1 + __builtin_exp(-10 * (base_s(i) / rtt_s(i) - 0.5)));
}

static double largest_eps(__u32 n)
{
	double largest = 0;

	for (__u32 i = 0; i < n; i++)
		largest = __builtin_fmax(largest, eps(i));
	return largest;
}

/* Extended DTS: q_target is 5 ms. */
static bool is_queued(__u32 i)
{
	return rtt_s(i) - base_s(i) > 0.005;
}

/* What p is of the rule's step over Reno's. */
static double times(void)
{
	return is("dts") || is("dtsx") || is("ewtcp") ? 1.5 : 1;
}

/* What the rule adds to the first of n subflows, over Reno's 1 / w. */
static double rule_over_reno(__u32 n)
{
	double w = window(0), rtt = rtt_s(0), sum = 0, fastest = 0, ratio;
	__u32 with_queue = 0;

	for (__u32 i = 0; i < n; i++) {
		sum += window(i) / rtt_s(i);
		fastest = __builtin_fmax(fastest, window(i) / rtt_s(i) / rtt_s(i));
		with_queue += is_queued(i);
	}
	if (is("ewtcp"))
		return 1. / (n * n);
	/* RFC 6356: alpha / W, at most 1 / w. A wVegas subflow that competes grows so, too. */
	if (is("lia") || is("wvegas"))
		return __builtin_fmin(fastest / sum / sum * w, 1);
	ratio = eps(0) / largest_eps(n) * w / rtt / rtt / sum / sum * w;
	/* Without prices only a queue costs: half of the increase, unless all subflows have one. */
	if (is("dtsx") && is_queued(0) && with_queue < n)
		ratio /= 2;
	return ratio;
}

static void start(__u32 n)
{
	join_grown(n, &ALGORITHM);
#if NUMBER_OF(ALGORITHM) == NUMBER_OF_wvegas
	/* Within a round of a subflow that competes. */
	private_of(tp)->competing = 1;
	private_of(tp)->alpha = MIN_ALPHA;
	private_of(tp)->round_end = 1;
#endif
}

static void set_path(__u32 i, __u32 cwnd, __u32 base_us, __u32 queue_us)
{
	struct tcp_sock *s = &connection.subflows[i];

	s->snd_cwnd = cwnd;
	set_rtt(s, base_us + queue_us);
	s->rtt_min.s[0].v = base_us;
}

/* A step is rounded to 2^-29 packets, and else wrong by so large a part at most. */
static void require_step(double want, double tolerance, const char *what)
{
	double step = __builtin_ldexp(flow_of(tp)->step_q29, -29);

	require(__builtin_fabs(step - want) <= tolerance * want + 0x1p-29,
		"%s: %g a segment, want %g", what, step, want);
}

static void require_left(double want, const char *what)
{
	__u32 left = CALL(mpcc_ssthresh, ARG(tp));

	/* Rounded down, after the rule's half was rounded down too. */
	require(left <= want && left > want - 1.4, "%s: %u packets left, want %g", what, left,
		want);
}

/* Follows the course for 100 decisions; returns how many tell of the part. */
static int follow(__u32 n, bool coupled)
{
	double p = coupled ? rule_over_reno(n) * times() : eps(0) / largest_eps(n), t = 0;
	double part = __builtin_fmin(coupled ? p * 11 / 8 : p, 1);
	double of_time = __builtin_cbrt(p * p) * (coupled ? 1 + (n - 1) / 4. : 1);
	__u32 w = tp->snd_cwnd, telling = 0;

	of_time = __builtin_fmin(of_time, 1);
	flow_of(tp)->together = coupled ? MPCC_ALL_TOGETHER : 0;
	/* The plateau is the present window. */
	flow_of(tp)->last_max = w;
	for (int i = 0; i < 100; i++) {
		double above = C * (t + base_s(0)) * (t + base_s(0)) * (t + base_s(0));

		/* RFC 9438, section 4.3: the part of Reno's growth so far, 8/15 of a packet for each window. */
		above = __builtin_fmax(above, 8 / 15. * part * i);
		CALL(mpcc_cong_avoid, ARG(tp), 0, w);
		require(flow_of(tp)->decided_us == (__u32)tp->tcp_mstamp, "no decision");
		tp->snd_cwnd = w;
		/* Where the course is not above the window, growth is the least of the kernel's CUBIC. */
		if (above < 0.9)
			require_step(1. / (100 * w), 0, "on the plateau");
		/* The course is in whole packets; each packet takes whole segments. */
		if (above > 20 && above < w / 20.) {
			require_step(above / w, 1 / above + above / w + 0.01, "above the plateau");
			telling++;
		}
		tp->tcp_mstamp += 4 * (tp->srtt_us >> 3);
		t += of_time * 4 * rtt_s(0);
	}
	return telling;
}

static void check_losses(__u32 n)
{
	__u32 w = tp->snd_cwnd;

	require_left(w * 717. / 1024, "CUBIC's loss");
	growth = GROWTH_RENO;
	require_left(w / 2., "growth=reno");
	CALL(mpcc_cong_avoid, ARG(tp), 0, 1);
	tp->snd_cwnd = w;
	/* The table of eps is wrong by 2e-4 on both sides of a ratio (epsilon.h). */
	require_step(rule_over_reno(n) / w, 4e-4, "growth=reno");
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	/* Two like paths, with a queue on the second. */
	start(2);
	set_path(0, 3000, 50000, 0);
	set_path(1, 3000, 50000, 20000);
	require(follow(2, true) > 5, "no decision tells of the part");
	/* The queue is on the first path. */
	start(2);
	set_path(0, 3000, 50000, 20000);
	set_path(1, 3000, 50000, 0);
	require(follow(2, true) > 5, "no decision tells of the part");
	if (is("dts")) {
		start(2);
		set_path(0, 3000, 50000, 60000);
		set_path(1, 3000, 50000, 0);
		require(follow(2, false) > 5,
			"no decision of an uncoupled subflow tells of the part");
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	__u32 n = 2 + draw_byte(&in) % 3;

	start(n);
	for (__u32 i = 0; i < n; i++) {
		__u32 base_us = 10000 + draw_number(&in, 17);

		set_path(i, 1000 + draw_number(&in, 12), base_us, draw_number(&in, 16) % base_us);
	}
	if (is("dts") && draw_byte(&in) % 2) {
		follow(n, false);
	} else {
		follow(n, true);
		check_losses(n);
	}
	return 0;
}
