// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * mpCUBIC's epochs over any sequence of ACKs, pauses, losses and timeouts: which time counts, and what a
 * loss leaves of the plateau; and the window from ACK to ACK, against the curves of RFC 9438 and of the
 * paper.
 */
#include "native.h"

#include "cc/mpcubic.bpf.c"

#include "connection.h"

static struct connection connection;
static struct tcp_sock *const tp = &connection.subflows[0];

static void start(__u32 subflows, __u32 cwnd, __u32 rtt_us)
{
	join(&connection, subflows, &mpcubic);
	for (__u32 i = 0; i < subflows; i++) {
		connection.subflows[i].srtt_us = rtt_us << 3;
		connection.subflows[i].snd_cwnd = cwnd;
	}
	tp->snd_ssthresh = 2;
	tp->tcp_mstamp = 1000000;
	mode = MODE_DERIVED;
	beta_percent = 20;
}

static void ack(__u64 after_us, __u32 segments)
{
	tp->tcp_mstamp += after_us;
	CALL(mpcc_cong_avoid, ARG(tp), 0, segments);
}

/* A loss, and the recovery from it. */
static void lose(void)
{
	tp->snd_cwnd = tp->snd_ssthresh = CALL(mpcc_ssthresh, ARG(tp));
}

static void time_out(void)
{
	tp->snd_ssthresh = CALL(mpcc_ssthresh, ARG(tp));
	tp->snd_cwnd = 1;
	CALL(mpcc_set_state, ARG(tp), TCP_CA_Loss);
}

static __u64 epoch_us(void)
{
	struct mpcc_path p = {};

	cc_hooks.read_private(&p, tp, private_of(tp), private_of(tp));
	return p.epoch_us;
}

static void require_loss(__u32 cwnd, __u32 last_max)
{
	require(tp->snd_cwnd == cwnd, "cwnd %u, want %u", tp->snd_cwnd, cwnd);
	require(private_of(tp)->last_max == last_max, "last_max %u, want %u",
		private_of(tp)->last_max, last_max);
}

/* Eight ACKs an RTT for this long; the window at the end must be within a packet and a half. */
static void run_to(double seconds, double window)
{
	__u32 rtt_us = tp->srtt_us >> 3;

	while (epoch_us() < seconds * 1e6)
		ack(rtt_us / 8, (tp->snd_cwnd + 4) / 8);
	require(__builtin_fabs(tp->snd_cwnd - window) <= 1.5, "cwnd %u after %g s, want %g",
		tp->snd_cwnd, seconds, window);
}

static void check_curves(void)
{
	/* RFC 9438, section 4.2, with w_max 100; the RTT is too long for Reno to be faster. */
	start(1, 100, 200000);
	lose();
	require_loss(70, 100);
	run_to(1, 86.680764);
	run_to(2, 95.640336);
	run_to(5, 100.19190);
	/* Kato et al., equations (9)-(13), with w_loss 100. */
	start(2, 100, 100000);
	lose();
	require_loss(60, 100);
	run_to(1, 72.360103);
	run_to(2, 81.282471);
	run_to(5, 96.276828);
	run_to(10, 100.02493);
	/* RFC 9438, section 4.3: on a short path as fast as Reno, 9/17 of a packet an RTT. */
	start(1, 40, 10000);
	lose();
	run_to(0.2, 28 + 20 * 9 / 17.0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	check_curves();

	/* Fast convergence: a loss below the last one's window gives some of it up. */
	start(1, 100, 50000);
	lose();
	require_loss(70, 100);
	tp->snd_cwnd = 90;
	lose();
	require_loss(63, 76);
	tp->snd_cwnd = 120;
	lose();
	require_loss(84, 120);

	/* After a timeout the curve starts at the plateau, wherever slow start ends. */
	time_out();
	require_loss(1, 0);
	ack(50000, 83);
	require_loss(58, 0);
	require(private_of(tp)->curve.origin.m == num_of(58).m && !private_of(tp)->curve.k.m,
		"origin %u, k %u", private_of(tp)->curve.origin.m, private_of(tp)->curve.k.m);

	/* A pause does not count as time of the curve. */
	start(1, 100, 50000);
	ack(0, 1);
	for (int i = 0; i < 10; i++)
		ack(100000, 1);
	require(epoch_us() == 1000000, "%llu us", epoch_us());
	ack(100001, 1);
	ack(2ULL << 32, 1);
	require(epoch_us() == 1000000, "%llu us", epoch_us());
	/* Nor is a window that is not used up. */
	tp->is_cwnd_limited = 0;
	ack(100000, 1);
	tp->is_cwnd_limited = 1;
	ack(100000, 1);
	require(epoch_us() == 1100000, "%llu us", epoch_us());
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	__u64 counted = 0;
	bool begun = false;

	start(1 + draw_byte(&in) % 3, 100, 50000);
	draw_tunables(&in);
	while (in.size) {
		__u32 number = draw_number(&in, 24), before = tp->snd_cwnd;
		__u32 plateau = private_of(tp)->last_max;

		switch (draw_byte(&in) % 8) {
		case 0:
			lose();
			begun = false;
			require(tp->snd_cwnd >= 2 && (tp->snd_cwnd <= before || before < 2),
				"cwnd %u from %u", tp->snd_cwnd, before);
			require(private_of(tp)->last_max == before || before < plateau,
				"last_max %u, cwnd %u", private_of(tp)->last_max, before);
			break;
		case 1:
			time_out();
			begun = false;
			break;
		case 2:
			tp->is_cwnd_limited = number % 2;
			break;
		default:
			ack(number, 1 + number % 100);
			if (begun && tp->is_cwnd_limited && number <= 100000)
				counted += number;
			require(tp->snd_cwnd >= before, "cwnd %u from %u", tp->snd_cwnd, before);
		}
		if (!begun) {
			begun = private_of(tp)->curve.origin.m;
			counted = 0;
		}
		require(epoch_us() == counted, "%llu us, want %llu", epoch_us(), counted);
		if (tp->snd_cwnd > 1000000)
			return 0;
	}
	return 0;
}
