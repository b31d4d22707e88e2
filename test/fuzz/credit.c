// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The fractional window (apply_steps of window.h), against the same sums in 128 bits: nothing is lost but at a bound or at a
 * saturation, however the segments are divided among ACKs.
 */
#include "native.h"

#include "cc/lia.bpf.c"

#define MOST_INCREASE (((__int128)1 << 31) - 1)

/* floor(x * 2^29) at most 2^62 */
static __int128 q29(struct mpcc_num x)
{
	double fixed = __builtin_floor(value_of(num_scale(x, 29)));

	return fixed >= 0x1p62 ? (__int128)1 << 62 : (__int128)fixed;
}

/* One ACK. Returns whether the window met no bound. */
static bool check_ack(struct tcp_sock *tp, struct mpcc_flow *flow, const struct mpcc_step *step,
		      __u32 acked, __u32 floor)
{
	__int128 increase = q29(step->up) - q29(step->down);
	__u32 before = tp->snd_cwnd;
	__int128 sum = (__int128)before * MPCC_Q29_ONE + flow->credit_q29;

	if (increase > MOST_INCREASE)
		increase = MOST_INCREASE;
	if (increase < -MOST_INCREASE)
		increase = -MOST_INCREASE;
	sum += increase * acked;

	apply_steps(tp, flow, q29_of(step), acked, floor);
	require(flow->credit_q29 > -MPCC_Q29_ONE && flow->credit_q29 < MPCC_Q29_ONE, "credit %d",
		flow->credit_q29);
	if (tp->snd_cwnd == before && flow->credit_q29)
		require(sum == (__int128)before * MPCC_Q29_ONE + flow->credit_q29,
			"cwnd %u, credit %d", before, flow->credit_q29);
	if (sum == (__int128)tp->snd_cwnd * MPCC_Q29_ONE + flow->credit_q29)
		return true;
	require(!flow->credit_q29, "credit %d", flow->credit_q29);
	if (sum < (__int128)floor * MPCC_Q29_ONE)
		require(tp->snd_cwnd == floor, "cwnd %u from %u, floor %u", tp->snd_cwnd, before,
			floor);
	else
		require(tp->snd_cwnd == tp->snd_cwnd_clamp &&
				sum / MPCC_Q29_ONE > tp->snd_cwnd_clamp,
			"cwnd %u from %u, clamp %u", tp->snd_cwnd, before, tp->snd_cwnd_clamp);
	return false;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	struct tcp_sock whole = {}, divided = {};
	struct mpcc_flow whole_flow = {}, divided_flow = {};
	struct mpcc_step step = {};
	__u32 floor = 1 + draw_byte(&in) % 2;
	bool in_bounds = true;
	__u32 acks = 0;

	whole.snd_cwnd_clamp = divided.snd_cwnd_clamp = floor + draw_number(&in, 31);
	whole.snd_cwnd = divided.snd_cwnd = floor + draw_number(&in, 32) %
							    (whole.snd_cwnd_clamp - floor + 1);
	while (in.size) {
		step.up = draw_num(&in);
		step.down = draw_byte(&in) % 2 ? draw_num(&in) : num_zero();
		check_ack(&whole, &whole_flow, &step, draw_number(&in, 16), floor);
		require(whole.snd_cwnd >= floor && whole.snd_cwnd <= whole.snd_cwnd_clamp,
			"cwnd %u", whole.snd_cwnd);
	}

	/* The last step again, for all segments at once and for one at a time. */
	whole.snd_cwnd = divided.snd_cwnd;
	whole_flow.credit_q29 = 0;
	acks = 1 + draw_number(&(struct input){ bytes, size }, 10);
	in_bounds &= check_ack(&whole, &whole_flow, &step, acks, floor);
	for (__u32 i = 0; i < acks; i++)
		in_bounds &= check_ack(&divided, &divided_flow, &step, 1, floor);
	if (in_bounds)
		require(whole.snd_cwnd == divided.snd_cwnd &&
				whole_flow.credit_q29 == divided_flow.credit_q29,
			"%u ACKs: cwnd %u, %u, credit %d, %d", acks, whole.snd_cwnd,
			divided.snd_cwnd, whole_flow.credit_q29, divided_flow.credit_q29);
	return 0;
}
