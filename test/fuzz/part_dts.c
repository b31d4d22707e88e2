// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A part of CUBIC (window.h) under DTS: an uncoupled subflow with a constant window and RTT has the part p = eps over the
 * largest eps of Reno's growth, and p^(2/3) of the time on CUBIC's course. The part changes at looks at the siblings, one
 * in 8 to 16 RTTs.
 */
#include "native.h"

#include "cc/dts.bpf.c"

#include "connection.h"

static struct tcp_sock *const tp = &connection.subflows[0];

/* Packets per cubic second. */
#define C 0.4

/* DTS, Algorithm 1 */
static double eps(__u32 i)
{
	double base = connection.subflows[i].rtt_min.s[0].v,
	       rtt = connection.subflows[i].srtt_us >> 3;

	return 2 / (1 + __builtin_exp(-10 * (base / rtt - 0.5)));
}

/* Follows the course for 100 decisions; returns how many tell of the part. */
static int follow(__u32 n)
{
	double base_s = tp->rtt_min.s[0].v * 1e-6, rtt_s = (tp->srtt_us >> 3) * 1e-6, largest = 0,
	       p, t = 0;
	__u32 w = tp->snd_cwnd, telling = 0;

	for (__u32 i = 0; i < n; i++)
		largest = __builtin_fmax(largest, eps(i));
	p = eps(0) / largest;
	for (__u32 i = 0; i < n; i++)
		set_interface(i, i % 3);
	flow_of(tp)->together = 0;
	/* The plateau is the present window. */
	flow_of(tp)->last_max = w;
	for (int i = 0; i < 100; i++) {
		double above = C * (t + base_s) * (t + base_s) * (t + base_s);

		/* RFC 9438, section 4.3: the part of Reno's growth so far, 8/15 of a packet for each window. */
		above = __builtin_fmax(above, 8 / 15. * p * i);
		CALL(mpcc_cong_avoid, ARG(tp), 0, w);
		require(flow_of(tp)->decided_us == (__u32)tp->tcp_mstamp, "no decision");
		tp->snd_cwnd = w;
		/* Where the course is not above the window, growth is the least of the kernel's CUBIC. */
		if (above < 0.9)
			require_step(tp, 1. / (100 * w), 0, "on the plateau");
		/* The course is in whole packets; each packet takes whole segments. */
		if (above > 20 && above < w / 20.) {
			require_step(tp, above / w, 1 / above + above / w + 0.01,
				     "above the plateau");
			telling++;
		}
		tp->tcp_mstamp += 4 * (tp->srtt_us >> 3);
		t += __builtin_cbrt(p * p) * 4 * rtt_s;
	}
	return telling;
}

/* The part that a curve is to keep. */
static double part_of(__u32 n)
{
	double largest = 0;

	for (__u32 i = 0; i < n; i++)
		largest = __builtin_fmax(largest, eps(i));
	return __builtin_fmax(eps(0) / largest, 0x1p-10);
}

/* For 100 RTTs with so many ACKs each, at the plateau, the queue of subflow 0 grows; n subflows. */
static void watch_looks(__u32 n, __u32 acks)
{
	__u32 rtt_us = tp->srtt_us >> 3, w = tp->snd_cwnd, every_us = rtt_us / acks, looks = 0;
	struct mpcc_flow *flow = flow_of(tp);
	__u64 looked_us = 0, since_us;

	for (__u32 i = 0; i < n; i++)
		set_interface(i, i % 3);
	flow->together = 0;
	flow->last_max = w;
	for (__u32 i = 0; i < 100 * acks; i++) {
		__u32 part_q10 = flow->curve.part_q10;
		double part = part_of(n);

		tp->tcp_mstamp += every_us;
		tp->srtt_us += i % 8 == 0;
		CALL(mpcc_cong_avoid, ARG(tp), 0, 1);
		tp->snd_cwnd = w;
		if (flow->decided_us != (__u32)tp->tcp_mstamp)
			continue;
		if (!flow->looked) {
			require(flow->curve.part_q10 == part_q10, "part %u from %u without a look",
				flow->curve.part_q10, part_q10);
			continue;
		}
		/* eps is by 2e-4 of it wrong at most (epsilon.h). */
		require(__builtin_fabs(part_of_acked(&flow->curve) - 1024 * part) < 1,
			"part %u, want %g", part_of_acked(&flow->curve), 1024 * part);
		since_us = tp->tcp_mstamp - looked_us;
		/*
		 * The first look comes at any time, and the last decision before a look stands for up to an RTT. ACKs
		 * of a round trip may lack a few microseconds of an RTT.
		 */
		require(looks++ < 2 ||
				(since_us >= 7ULL * acks * every_us && since_us < 18ULL * rtt_us),
			"a look after %llu us, RTT %u us", since_us, rtt_us);
		looked_us = tp->tcp_mstamp;
	}
	require(tp->tcp_mstamp - looked_us < 18ULL * rtt_us, "no look for %llu us, RTT %u us",
		tp->tcp_mstamp - looked_us, rtt_us);
	/* A loss begins a curve, which has no part yet. */
	CALL(mpcc_ssthresh, ARG(tp));
	tp->tcp_mstamp += every_us;
	CALL(mpcc_cong_avoid, ARG(tp), 0, 1);
	require(flow->looked, "no look after a loss");
}

static void check_part_of_time(void)
{
	for (__u32 part = 1; part <= 1024; part++) {
		double want = __builtin_cbrt(part / 1024. * part / 1024.);
		double have = part_of_time(part << 6) / 65536.;

		require(have <= 1 && __builtin_fabs(have / want - 1) < 1 / 800.,
			"part %u: %g of the time, want %g", part, have, want);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	check_part_of_time();
	join_grown(2, &dts);
	set_path(0, 3000, 50000, 60000);
	set_path(1, 3000, 50000, 0);
	require(follow(2) > 5, "no decision tells of the part");
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	__u32 n = 2 + draw_byte(&in) % 2;

	join_grown(n, &dts);
	for (__u32 i = 0; i < n; i++) {
		__u32 base_us = 10000 + draw_number(&in, 17);

		set_path(i, 1000 + draw_number(&in, 12), base_us, draw_number(&in, 16) % base_us);
	}
	if (draw_byte(&in) % 2) {
		follow(n);
		return 0;
	}
	tp->tcp_mstamp += draw_number(&in, 32);
	/* A decision stands for a tick at least. */
	watch_looks(n, 4 + draw_byte(&in) % 5);
	return 0;
}
