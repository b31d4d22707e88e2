// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * DWC's grouping over any sequence of ACKs and losses, against verdicts and averages in floating point:
 * at a loss, a sibling shows congestion if it had a loss within the longer of the two RTTs, or if its RTT
 * is nearer to the longest than to the shortest since the second last of its losses. Of that, an average with gain 1/4; above
 * a quarter of disagreement the sibling is held for apart.
 */
#include "native.h"

#include "cc/dwc.bpf.c"

#include "connection.h"

#define SUBFLOWS 3

static struct connection connection;

/* The same history, as the definition has it. */
static struct {
	double lost_at; /* microseconds; < 0: never */
	double peak, peak_before; /* microseconds */
	double apart[SUBFLOWS]; /* average of disagreements, 0 .. 1 */
} model[SUBFLOWS];

static void start(void)
{
	join(&connection, SUBFLOWS, &dwc);
	memset(model, 0, sizeof(model));
	for (int i = 0; i < SUBFLOWS; i++) {
		struct tcp_sock *tp = &connection.subflows[i];

		tp->tcp_mstamp = 1000000;
		tp->snd_cwnd = 20;
		tp->srtt_us = 50000 << 3;
		private_of(tp)->flow.base_rtt_us = 50000;
		model[i].lost_at = -1;
	}
}

static void pass(__u32 us)
{
	for (int i = 0; i < SUBFLOWS; i++)
		connection.subflows[i].tcp_mstamp += us;
}

static void ack(int i, __u32 srtt_us)
{
	struct tcp_sock *tp = &connection.subflows[i];

	tp->srtt_us = srtt_us << 3;
	cc_hooks.on_ack(private_of(tp), tp);
	if (srtt_us > model[i].peak)
		model[i].peak = srtt_us;
}

static double rtt(int i)
{
	return connection.subflows[i].srtt_us / 8.0;
}

static bool congested(int k, int r)
{
	double base = private_of(&connection.subflows[k])->flow.base_rtt_us;
	double peak = model[k].peak > model[k].peak_before ? model[k].peak : model[k].peak_before;
	double longer = rtt(k) > rtt(r) ? rtt(k) : rtt(r);

	if (model[k].lost_at >= 0 && model[r].lost_at - model[k].lost_at <= longer)
		return true;
	return peak > base * 1.125 && rtt(k) > (base + peak) / 2;
}

static void lose(int r)
{
	struct tcp_sock *tp = &connection.subflows[r];

	CALL(mpcc_ssthresh, ARG(tp));
	model[r].lost_at = tp->tcp_mstamp;
	for (int k = 0; k < SUBFLOWS; k++)
		if (k != r)
			model[r].apart[k] += (!congested(k, r) - model[r].apart[k]) / 4;
	model[r].peak_before = model[r].peak;
	model[r].peak = 0;
}

/* How many subflows r is coupled with, itself among them. */
static __u32 group_of(int r)
{
	struct tcp_sock *tp = &connection.subflows[r];
	struct cc_view v;

	look(&v, tp);
	return sum_of(&v)->n;
}

/* Integers round an average of 0 .. 255 by less than 1 each time, and forget a quarter of it. */
static void check(int r)
{
	const double slack = 4.0 / 255;
	__u32 least = 1, most = 1;

	for (int k = 0; k < SUBFLOWS; k++) {
		double apart = model[r].apart[k], got;

		if (k == r)
			continue;
		got = apart_of(private_of(&connection.subflows[r]), k + 1) / 255.0;
		require(got >= apart - slack && got <= apart + slack, "%d of %d: apart %g, want %g",
			k, r, got, apart);
		least += apart < 0.25 - slack;
		most += apart < 0.25 + slack + 1 / 255.0;
	}
	require(group_of(r) >= least && group_of(r) <= most, "%d: %u in the group, want %u to %u",
		r, group_of(r), least, most);
}

static void require_group(int r, __u32 n)
{
	require(group_of(r) == n, "%d: %u in the group, want %u", r, group_of(r), n);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	start();
	require_group(0, 3);
	/* One disagreement may be chance, two are not. Others judge for themselves. */
	lose(0);
	require_group(0, 3);
	pass(1000000);
	lose(0);
	require_group(0, 1);
	require_group(1, 3);
	/* The second loses with the first, the third does not. */
	for (int i = 0; i < 2; i++) {
		require_group(0, 1);
		pass(1000000);
		lose(1);
		pass(50000);
		lose(0);
	}
	require_group(0, 2);

	/* A loss a microsecond more than an RTT ago is another one. */
	start();
	for (int i = 0; i < 2; i++) {
		pass(1000000);
		lose(1);
		pass(50001);
		lose(0);
	}
	require_group(0, 1);

	/* Delay tells as well: the second is above the middle of its range, the third just at it. */
	start();
	for (int i = 0; i < 2; i++) {
		ack(1, 90000);
		ack(1, 70001);
		ack(2, 90000);
		ack(2, 70000);
		pass(1000000);
		lose(0);
	}
	require_group(0, 2);

	/* A range of an eighth of the base RTT is no queue. */
	start();
	for (int i = 0; i < 2; i++) {
		ack(1, 56250);
		ack(2, 56251);
		pass(1000000);
		lose(0);
	}
	require_group(0, 2);
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };

	start();
	while (in.size) {
		__u8 event = draw_byte(&in);
		int i = event % SUBFLOWS;

		switch (event / SUBFLOWS % 3) {
		case 0:
			pass(draw_number(&in, 20));
			break;
		case 1:
			ack(i, 50000 + draw_number(&in, 20));
			break;
		case 2:
			lose(i);
			check(i);
		}
	}
	return 0;
}
