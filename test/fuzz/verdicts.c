// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Verdicts between the subflows of a connection (sharing.h), with records of their delays:
 *   of two subflows the one with the lower subflow_id compares the delays, whatever the order in the connection's list, and
 *   the other adopts the verdict: coupled behind one queue, uncoupled behind two
 *   subflows whose ids in the live map differ judge in different intervals
 */
#include "native.h"

static void *find_element(const void *map, const void *key);

#undef bpf_map_lookup_elem
#define bpf_map_lookup_elem find_element

#include "cc/lia.bpf.c"

#include "connection.h"

#define SUBFLOWS 2
#define RUN_MS 20000

static struct mpcc_delays records[SUBFLOWS];

/* Each subflow's record, by its id in the live map; the other maps are empty. */
static void *find_element(const void *map, const void *key)
{
	for (__u32 i = 0; map == &mpcc_bottlenecks && i < SUBFLOWS; i++)
		if (flow_of(&connection.subflows[i])->id == *(const __u64 *)key)
			return &records[i];
	return NULL;
}

/* Two subflows over two interfaces. The second one's id in the live map is first_id + 1. */
static void start(__u64 first_id, __u32 first_subflow_id, __u32 second_subflow_id)
{
	join(SUBFLOWS, &lia);
	couple = COUPLE_SHARED;
	memset(records, 0, sizeof(records));
	for (__u32 i = 0; i < SUBFLOWS; i++) {
		struct tcp_sock *tp = &connection.subflows[i];

		CALL(mpcc_init, ARG(tp));
		flow_of(tp)->id = first_id + i;
		set_interface(i, i);
		tp->snd_cwnd = 10;
		tp->rtt_min.s[0].v = 20000;
	}
	connection.contexts[0].subflow_id = first_subflow_id;
	connection.contexts[1].subflow_id = second_subflow_id;
}

static void ack(__u32 i, __u32 ms, __u32 rtt_us)
{
	struct tcp_sock *tp = &connection.subflows[i];

	tp->tcp_mstamp = 1000000000 + 1000 * (__u64)ms;
	tp->srtt_us = rtt_us << 3;
	tp->rack.rtt_us = rtt_us;
	CALL(mpcc_cong_avoid, ARG(tp), 0, 1);
}

/* An ACK a millisecond, behind one queue that changes at random, or behind two. */
static void run(__u32 ms, bool shared)
{
	__u32 delay_us[SUBFLOWS] = {};
	__u64 seed = 1;

	for (__u32 t = 0; t < ms; t++)
		for (__u32 i = 0; i < SUBFLOWS; i++) {
			delay_us[i] = random_delay(&seed, delay_us[i], 400);
			ack(i, t, 20000 + delay_us[shared ? 0 : i]);
		}
}

static bool is_coupled(__u32 i)
{
	return !group_of(&connection.subflows[i], &connection.subflows[!i],
			 &connection.contexts[!i]);
}

static bool has_judged(__u32 i)
{
	return records[i].pairs[0].sibling;
}

static void check_adoption(__u32 first_subflow_id, __u32 second_subflow_id)
{
	__u32 lower = first_subflow_id > second_subflow_id;

	for (int shared = 0; shared < 2; shared++) {
		start(7, first_subflow_id, second_subflow_id);
		run(RUN_MS, shared);
		require(has_judged(lower) && !has_judged(!lower), "ids %u, %u: judged %u, %u",
			first_subflow_id, second_subflow_id, has_judged(0), has_judged(1));
		require(records[lower].pairs[0].verdict == (shared ? MPCC_SHARED : MPCC_APART),
			"shared %d: verdict %u", shared, records[lower].pairs[0].verdict);
		require(is_coupled(0) == shared && is_coupled(1) == shared,
			"shared %d: coupled %u, %u", shared, is_coupled(0), is_coupled(1));
	}
}

/* A connection of two has a turn every twelve intervals: each of twelve ids in a row has a different interval. */
static void check_turns(void)
{
	__u32 intervals = 0;

	for (__u64 id = 1; id <= 12; id++) {
		start(id, 1, 2);
		run(2000, true);
		intervals |= 1 << records[0].pairs[0].judged_at % 12;
	}
	require(intervals == 0xfff, "intervals %x", intervals);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	check_adoption(1, 2);
	check_adoption(2, 1);
	check_turns();
	return 0;
}

/* Any ids. */
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	__u32 first = 1 + draw_number(&in, 31), second = 1 + draw_number(&in, 31);

	if (first == second)
		return 0;
	start(1 + draw_number(&in, 40), first, second);
	run(1000, draw_byte(&in) % 2);
	require(has_judged(first > second) && !has_judged(first < second), "ids %u, %u", first,
		second);
	return 0;
}
