// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A part of CUBIC (window.h): subflows coupled by LIA whose windows and RTTs stay as they are grow, from a loss on, along
 * CUBIC's course over 11/8 of the part of the time that LIA's step is of Reno's, 1 / w, all of it at most; and a
 * loss, half for LIA as for Reno, is CUBIC's.
 */
#include "native.h"

#include "cc/lia.bpf.c"

#include "connection.h"

static struct connection connection;
static struct tcp_sock *const tp = &connection.subflows[0];

/* Packets per cubic second. */
#define C 0.4

/* RFC 6356: alpha / W of n subflows, at most 1 / w. */
static double lia_adds(__u32 n)
{
	double fastest = 0, sum = 0;

	for (__u32 i = 0; i < n; i++) {
		double w = connection.subflows[i].snd_cwnd;
		double rtt = (connection.subflows[i].srtt_us >> 3) * 1e-6;

		if (w / rtt / rtt > fastest)
			fastest = w / rtt / rtt;
		sum += w / rtt;
	}
	return fastest / sum / sum < 1. / tp->snd_cwnd ? fastest / sum / sum : 1. / tp->snd_cwnd;
}

static double step(void)
{
	return __builtin_ldexp(flow_of(tp)->step_q29, -29);
}

static void require_near(double got, double want, double tolerance, const char *what)
{
	require(got > want * (1 - tolerance) && got < want * (1 + tolerance),
		"%s: %g a segment, want %g", what, got, want);
}

static void require_left(double want, const char *what)
{
	__u32 left = CALL(mpcc_ssthresh, ARG(tp));

	/* Rounded down, after the rule's half was rounded down too. */
	require(left <= want && left > want - 1.4, "%s: %u packets left, want %g", what, left,
		want);
}

static void begin(__u32 n)
{
	join(&connection, n, &lia);
	growth = GROWTH_CUBIC;
	for (__u32 i = 0; i < n; i++) {
		connection.subflows[i].snd_ssthresh = 2;
		connection.subflows[i].packets_out = 1;
		connection.subflows[i].tcp_mstamp = 1000000;
	}
}

static void set_rtt(struct tcp_sock *s, __u32 rtt_us)
{
	s->srtt_us = rtt_us << 3;
	s->rtt_min.s[0].v = rtt_us;
	s->rack.rtt_us = rtt_us;
}

static bool decides_after(__u32 us)
{
	tp->tcp_mstamp += us;
	CALL(mpcc_cong_avoid, ARG(tp), 0, 1);
	return flow_of(tp)->decided_us == (__u32)tp->tcp_mstamp;
}

/* For how long a decision stands at an RTT, and once the window has moved. */
struct standing {
	__u32 rtt_us, for_us, moved_us;
};

/* Of n subflows with windows of 100 packets, at whose plateau a segment adds at most 1/10000 of a packet. */
static void require_standing(__u32 n, __u32 together, const struct standing *want)
{
	for (int moves = 0; moves < 2; moves++) {
		__u32 for_us = moves ? want->moved_us : want->for_us;

		begin(n);
		for (__u32 k = 0; k < n; k++) {
			flow_of(&connection.subflows[k])->together = together;
			flow_of(&connection.subflows[k])->last_max = 100;
			connection.subflows[k].snd_cwnd = 100;
			set_rtt(&connection.subflows[k], want->rtt_us);
		}
		require(decides_after(0), "no decision");
		require(flow_of(tp)->looked == !!together, "together %x: looked %u", together,
			flow_of(tp)->looked);
		if (moves)
			CALL(mpcc_cong_avoid, ARG(tp), 0, 65535);
		require(tp->snd_cwnd > 100 == moves, "cwnd %u", tp->snd_cwnd);
		require(!decides_after(for_us - 1) && decides_after(1),
			"%u subflows, together %x, RTT %u us, cwnd %u: a decision does not stand for %u us",
			n, together, want->rtt_us, tp->snd_cwnd, for_us);
	}
}

/*
 * A decision takes a look at the siblings if the subflow is coupled with one, and stands for
 *   coupled  an RTT, at least 100 us
 *   alone    without siblings or beside siblings, a quarter of an RTT, at most 1/32 s and at least a tick; once the window
 *            has moved a tick
 */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const struct standing coupled[] = {
		{ 50, 100, 100 }, { 200, 200, 200 }, { 1000, 1000, 1000 }, { 40000, 40000, 40000 }
	};
	static const struct standing single[] = { { 50, 1024, 1024 },
						  { 2000, 1024, 1024 },
						  { 40000, 10000, 1024 },
						  { 200000, 31250, 1024 } };

	for (__u32 i = 0; i < sizeof(coupled) / sizeof(*coupled); i++)
		require_standing(2, MPCC_ALL_TOGETHER, &coupled[i]);
	for (__u32 i = 0; i < sizeof(single) / sizeof(*single); i++)
		for (__u32 n = 1; n <= 2; n++)
			require_standing(n, 0, &single[i]);
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	__u32 n = 2 + draw_byte(&in) % 3, w, rtt_us;
	double part, reno, t = 0;

	begin(n);
	for (__u32 i = 0; i < n; i++) {
		connection.subflows[i].snd_cwnd = 1000 + draw_number(&in, 12);
		set_rtt(&connection.subflows[i], 10000 + draw_number(&in, 17));
	}
	w = tp->snd_cwnd;
	rtt_us = tp->srtt_us >> 3;
	/* The plateau is the present window. */
	flow_of(tp)->last_max = w;
	reno = 1. / w;
	part = 11 / 8. * lia_adds(n) / reno;
	if (part > 1)
		part = 1;
	for (int i = 0; i < 100; i++) {
		double cube = t + rtt_us * 1e-6;
		double above = C * cube * cube * cube;

		/* RFC 9438, section 4.3: the part of what Reno has by now, 8/15 of a packet for each window. */
		if (above < 8 / 15. * part * i)
			above = 8 / 15. * part * i;
		CALL(mpcc_cong_avoid, ARG(tp), 0, w);
		require(flow_of(tp)->decided_us == (__u32)tp->tcp_mstamp,
			"no decision after an RTT");
		tp->snd_cwnd = w;
		/* Where the course is not above the window: the kernel CUBIC's least growth. */
		if (above < 0.9)
			require_near(step(), 1. / (100 * w), 2e-3, "on the plateau");
		/* In whole packets, and in whole segments for each of them. */
		if (above > 20 && above < w / 20. && above > 1.2 * part)
			require_near(step(), above / w, 1 / above + above / w + 0.01, "above it");
		tp->tcp_mstamp += 4 * rtt_us;
		t += part * 4 * rtt_us * 1e-6;
	}
	require_left(w * 717. / 1024, "CUBIC's loss");
	/* Reno's base: what LIA adds, for ever, and half. */
	growth = GROWTH_RENO;
	require_left(w / 2., "growth=reno");
	CALL(mpcc_cong_avoid, ARG(tp), 0, 1);
	tp->snd_cwnd = w;
	require_near(step(), lia_adds(n), 2e-3, "growth=reno");
	return 0;
}
