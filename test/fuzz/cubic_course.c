// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * CUBIC's curve over any sequence of ACKs and silences: the age is the time with something in flight, to within an RTT,
 * however long the silences and the connection last. And once:
 *   a subflow that keeps a part of its growth has the same part of Reno's growth in the TCP-friendly region
 *   five hours without a loss do not make a segment add less than in the first minute
 *   an unknown RTT adds nothing to the curve's age
 */
#include "native.h"

#include "cc/lia.bpf.c"

#include "connection.h"

static struct tcp_sock *const tp = &connection.subflows[0];

/* When the curve and the pause began, in 64 bits that never go round. */
static struct {
	__u64 now_us, began_us, quiet_us;
} model;

static void start(__u32 cwnd)
{
	join(1, &lia);
	tp->snd_cwnd = cwnd;
	tp->rtt_min.s[0].v = ~0U;
	memset(&model, 0, sizeof(model));
	model.now_us = model.began_us = (1ULL << 40) + 123456789;
	tp->tcp_mstamp = model.now_us;
	cubic_step(flow_of(tp), tp, WHOLE_Q16, WHOLE_Q16);
}

/* What a segment adds after an ACK, in units of 2^-29 packets. */
static __s64 ack(__u64 after_us, __u32 rtt_us, bool in_flight)
{
	__u64 sent_us;

	model.now_us += after_us;
	sent_us = model.now_us - rtt_us;
	if (model.quiet_us && sent_us > model.quiet_us)
		model.began_us = model.began_us < model.quiet_us ?
					 model.began_us + sent_us - model.quiet_us :
					 sent_us;
	if (model.now_us - model.began_us > 1 << 30)
		model.began_us = model.now_us - (1 << 30);
	model.quiet_us = in_flight ? 0 : sent_us;

	tp->tcp_mstamp = model.now_us;
	tp->rack.rtt_us = rtt_us;
	tp->packets_out = in_flight;
	skip_pause(flow_of(tp), tp);
	return cubic_step(flow_of(tp), tp, WHOLE_Q16, WHOLE_Q16);
}

static __u32 age_us(void)
{
	return elapsed_us((__u32)tp->tcp_mstamp, flow_of(tp)->curve.began_us);
}

/* Ten seconds at 20 packets and 50 ms: 400 segments a second. */
static __u32 friendly_with(__u64 part_q16)
{
	struct mpcc_flow *flow = flow_of(tp);

	start(20);
	flow->decided_us = (__u32)tp->tcp_mstamp;
	for (int i = 0; i < 4000; i++) {
		tp->tcp_mstamp += 2500;
		flow->curve.acked++;
		cubic_step(flow, tp, part_q16, WHOLE_Q16);
		flow->decided_us = (__u32)tp->tcp_mstamp;
	}
	return flow->curve.friendly;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	__s64 first, later;

	/* As the kernel counts, a packet for every 15/8 windows: 37 segments. */
	for (__u32 percent = 100; percent >= 10; percent -= 10) {
		double want = 20 + 4000 / 37. * percent / 100;
		__u32 got = friendly_with(WHOLE_Q16 * percent / 100);

		require(got > want - 1.1 && got < want + 1.5, "%u %%: %u packets, want %g", percent,
			got, want);
	}
	/* Hours without a loss. */
	start(5000);
	first = ack(60000000, 50000, true);
	for (int minute = 2; minute <= 300; minute++) {
		later = ack(60000000, 50000, true);
		require(later >= first, "minute %d: %lld, the first %lld", minute, later, first);
	}
	/* Without an RTT a segment adds as much as at the curve's begin, on the plateau. */
	start(1000);
	flow_of(tp)->last_max = 1000;
	flow_of(tp)->curve_subflows = 0;
	first = cubic_step(flow_of(tp), tp, WHOLE_Q16, WHOLE_Q16);
	require(first == MPCC_Q29_ONE / 100000, "%lld without an RTT", first);
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };

	start(1 + draw_number(&in, 16));
	while (in.size) {
		/* With something in flight a timeout would end a longer silence. */
		__u64 after_us = draw_number(&in, model.quiet_us ? 44 : 30);
		__u32 rtt_us = 1 + draw_number(&in, 24);
		__u64 want_us;

		ack(after_us, rtt_us, draw_byte(&in) % 2);
		want_us = model.now_us - model.began_us;
		/* A silence of nearly a multiple of 2^32 us looks shorter than an RTT: like no silence. */
		require(age_us() <= want_us + rtt_us && want_us <= age_us() + (__u64)rtt_us,
			"age %u us, want %llu", age_us(), want_us);
		model.began_us = model.now_us - age_us();
	}
	return 0;
}
