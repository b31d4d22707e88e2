// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * When a decision looks at the siblings: if the subflow is coupled with one. And for how long a decision stands (window.h):
 *   coupled  an RTT, at least 6144 us for each subflow of the group
 *   alone    with siblings or without, half an RTT, at most 1/32 s and at least a tick; once the window has moved, a
 *            tick
 */
#include "native.h"

#include "cc/lia.bpf.c"

#include "connection.h"

static struct tcp_sock *const tp = &connection.subflows[0];

static bool decides_after(__u32 us)
{
	tp->tcp_mstamp += us;
	CALL(mpcc_cong_avoid, ARG(tp), 0, 1);
	return flow_of(tp)->decided_us == (__u32)tp->tcp_mstamp;
}

/* For how long a decision stands at an RTT. */
struct standing {
	__u32 rtt_us, for_us;
	__u32 moved_us; /* once the window has moved */
};

/* With n subflows whose windows of 100 packets are at the plateau, where a segment adds at most 1/10000 of a packet. */
static void require_standing(__u32 n, __u32 together, const struct standing *want)
{
	for (int moves = 0; moves < 2; moves++) {
		__u32 for_us = moves ? want->moved_us : want->for_us;

		join_grown(n, &lia);
		for (__u32 i = 0; i < n; i++) {
			flow_of(&connection.subflows[i])->together = together;
			set_interface(i, together ? 0 : i);
			flow_of(&connection.subflows[i])->last_max = 100;
			connection.subflows[i].snd_cwnd = 100;
			set_rtt(&connection.subflows[i], want->rtt_us);
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

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const struct {
		__u32 subflows;
		struct standing want;
	} coupled[] = { { 2, { 50, 12288, 12288 } },
			{ 2, { 12000, 12288, 12288 } },
			{ 2, { 13000, 13000, 13000 } },
			{ 3, { 13000, 18432, 18432 } },
			{ 3, { 40000, 40000, 40000 } } };
	static const struct standing uncoupled[] = { { 50, 1024, 1024 },
						     { 2000, 1024, 1024 },
						     { 40000, 20000, 1024 },
						     { 200000, 31250, 1024 } };

	for (__u32 i = 0; i < ARRAY_SIZE(coupled); i++)
		require_standing(coupled[i].subflows, MPCC_ALL_TOGETHER, &coupled[i].want);
	for (__u32 i = 0; i < ARRAY_SIZE(uncoupled); i++)
		for (__u32 n = 1; n <= 2; n++)
			require_standing(n, 0, &uncoupled[i]);
	return 0;
}

/* Any RTT. */
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	__u32 n = 1 + draw_byte(&in) % 3, rtt_us = 1 + draw_number(&in, 18);
	struct standing want = { rtt_us, __builtin_fmax(rtt_us, n * 6144),
				 __builtin_fmax(rtt_us, n * 6144) };

	if (n > 1 && draw_byte(&in) % 2) {
		require_standing(n, MPCC_ALL_TOGETHER, &want);
		return 0;
	}
	want.for_us = __builtin_fmax(__builtin_fmin(rtt_us / 2, 31250), 1024);
	want.moved_us = 1024;
	require_standing(n, 0, &want);
	return 0;
}
