// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The rules of paths in the packet scheduler prefer, with two subflows over two interfaces whose rules come, change and go:
 *   a decision obeys the rules as of the last look, which is 100 ms old at most
 *   between two looks no decision looks a rule up
 *   bytes that a subflow is handed count by the subflow's rule, and use up quota and cap at once
 */
#include "native.h"

static void *find_element(const void *map, const void *key);
static long make_element(const void *map, const void *key, const void *value, __u64 flags);
static __u64 clock_ns(void);
static __u64 clock_jiffies(void);

#undef bpf_map_lookup_elem
#define bpf_map_lookup_elem find_element
#define bpf_map_update_elem make_element
#define bpf_ktime_get_ns clock_ns
#define bpf_jiffies64 clock_jiffies

/* Sequence numbers go round. */
#pragma clang attribute push(__attribute__((no_sanitize("unsigned-integer-overflow"))), \
			     apply_to = function)
#include "sched/prefer.bpf.c"
#pragma clang attribute pop

#include "subflows.h"

#define SUBFLOWS 2
#define LOOK_MS 100

static struct net_device devices[SUBFLOWS] = { { "lte0", 1 }, { "wlan0", 2 } };
static struct dst_entry routes[SUBFLOWS];
static __u64 now_ms;

/* The maps. A rule's id is its slot + 1. */
static struct sched_state state;
static bool has_state;
static __u32 states;
static struct mpcc_path_rule rules[SUBFLOWS];
static struct mpcc_path_use uses[SUBFLOWS];
static __u32 rule_lookups;

static void *find_element(const void *map, const void *key)
{
	__u32 slot = *(const __u32 *)key;

	if (map == &mpcc_sched_state)
		return has_state ? &state : NULL;
	if (map == &mpcc_sched_share)
		return &states;
	if (map == &mpcc_path_rules) {
		rule_lookups++;
		return slot < SUBFLOWS && rules[slot].id ? &rules[slot] : NULL;
	}
	if (map == &mpcc_path_uses)
		return slot && slot <= SUBFLOWS && rules[slot - 1].id ? &uses[slot - 1] : NULL;
	return NULL;
}

static long make_element(const void *map, const void *key, const void *value, __u64 flags)
{
	require(map == &mpcc_sched_state, "only the state is made here");
	memcpy(&state, value, sizeof(state));
	has_state = true;
	return 0;
}

static __u64 clock_ns(void)
{
	return now_ms * 1000000;
}

static __u64 clock_jiffies(void)
{
	return 0;
}

static void start(void)
{
	memset(&msk, 0, sizeof(msk));
	memset(socks, 0, sizeof(socks));
	memset(contexts, 0, sizeof(contexts));
	memset(rules, 0, sizeof(rules));
	memset(uses, 0, sizeof(uses));
	has_state = false;
	states = 0;
	now_ms = 1000;
	count = SUBFLOWS;
	msk.sk.icsk_inet.sk.__sk_common.skc_net.net = &net;
	msk.write_seq = msk.wnd_end = 1 << 30;
	for (__u32 i = 0; i < SUBFLOWS; i++) {
		struct sock *sk = &socks[i].inet_conn.icsk_inet.sk;

		routes[i].dev = &devices[i];
		sk->__sk_common.skc_net.net = &net;
		sk->__sk_common.skc_family = AF_INET;
		sk->sk_dst_cache = &routes[i];
		sk->sk_sndbuf = 1;
		socks[i].inet_conn.icsk_ulp_data = &contexts[i];
		socks[i].srtt_us = (10000 + i) << 3; /* subflow 0 is the faster */
		socks[i].snd_cwnd = 10;
		socks[i].mss_cache = 1400;
		contexts[i].subflow_id = i + 1;
	}
}

/* Sets and returns a rule for the interface of subflow i. */
static struct mpcc_path_rule *set_rule(__u32 i, __u32 rank)
{
	struct mpcc_path_rule *r = &rules[i];

	memset(r, 0, sizeof(*r));
	r->netns_cookie = net.net_cookie;
	r->id = i + 1;
	r->rank = rank;
	r->spill_us = MPCC_NEVER_SPILLS;
	r->kind = MPCC_PATH_INTERFACE;
	memcpy(r->ifname, devices[i].name, sizeof(r->ifname));
	return r;
}

/* A decision. The subflow that sends is handed so many bytes, all acknowledged at once. */
static void decide(__u32 bytes)
{
	unsigned long long args[] = { (unsigned long)&msk };

	scheduled = 0;
	msk.snd_burst = 0;
	mpcc_get_send(args);
	for (__u32 i = 0; i < SUBFLOWS; i++)
		if (scheduled & 1 << i)
			socks[i].snd_una = socks[i].snd_nxt = socks[i].write_seq += bytes;
}

static void require_sender(__u32 i)
{
	require(scheduled == 1U << i, "%llu ms: %x sends, want subflow %u", now_ms, scheduled, i);
}

static void obey_within_100_ms(void)
{
	start();
	decide(0);
	require_sender(0);
	set_rule(0, 2);
	now_ms += LOOK_MS - 1;
	rule_lookups = 0;
	decide(0);
	require(!rule_lookups, "%u lookups of rules between two looks", rule_lookups);
	now_ms++;
	decide(0);
	require_sender(1);
	rules[0].id = 0;
	now_ms += LOOK_MS;
	decide(0);
	require_sender(0);
}

/* Bytes that are handed over use the quota up without a look at the rule. */
static void use_quota_up(void)
{
	start();
	set_rule(0, 1)->quota = 5000;
	for (int i = 0; i < 4; i++) {
		decide(1400);
		require_sender(0);
	}
	decide(1400);
	require_sender(1);
	require(uses[0].bytes == 4 * 1400, "%llu bytes", uses[0].bytes);
}

/* 14000 bytes at 140000 bytes per second last for 100 ms, of which the credit pays 50 ms. */
static void use_cap_up(void)
{
	start();
	set_rule(0, 1)->cap = 140000;
	set_rule(1, 2);
	decide(14000);
	require_sender(0);
	now_ms += 49;
	decide(0);
	require(!scheduled, "%x sends against the cap", scheduled);
	now_ms++;
	decide(0);
	require_sender(0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	obey_within_100_ms();
	use_quota_up();
	use_cap_up();
	return 0;
}

/* Every subflow's lane has what the subflow's rule said at the last look. */
static void check_lanes(const struct mpcc_path_rule *looked)
{
	const struct sched_own *own = own_of(&state);

	for (__u32 i = 0; i < SUBFLOWS; i++) {
		const struct mpcc_path_rule *r = &looked[i];
		const struct prefer_lane *lane = &own->lanes[i];

		require(lane->rank == (r->id ? r->rank : 1), "subflow %u: rank %u", i, lane->rank);
		require(lane->weight == r->weight, "subflow %u: weight %u", i, lane->weight);
		require(lane->spill_us == r->spill_us, "subflow %u: spill %u", i, lane->spill_us);
		require(lane->excluded == r->excluded, "subflow %u: excluded %u", i,
			lane->excluded);
	}
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	struct mpcc_path_rule looked[SUBFLOWS]; /* at the last look; all zero for none */
	__u64 looked_ms = 0;

	start();
	while (in.size) {
		__u32 i = draw_byte(&in) % SUBFLOWS;
		struct mpcc_path_rule *r;

		switch (draw_byte(&in) % 4) {
		case 0:
			memset(&rules[i], 0, sizeof(rules[i]));
			continue;
		case 1:
			r = set_rule(i, draw_byte(&in) % 4);
			r->weight = draw_byte(&in) % 3;
			r->spill_us = draw_byte(&in) & 1 ? draw_number(&in, 32) : MPCC_NEVER_SPILLS;
			r->excluded = draw_byte(&in) & 1;
			r->quota = draw_byte(&in) & 1 ? draw_number(&in, 16) : 0;
			r->cap = draw_byte(&in) & 1 ? 8000 + draw_number(&in, 24) : 0;
			continue;
		case 2:
			now_ms += draw_byte(&in);
			continue;
		}
		rule_lookups = 0;
		decide(draw_number(&in, 14));
		if (now_ms - looked_ms >= LOOK_MS) {
			memcpy(looked, rules, sizeof(looked));
			looked_ms = now_ms;
		} else {
			require(!rule_lookups, "%u lookups of rules between two looks",
				rule_lookups);
		}
		check_lanes(looked);
	}
	return 0;
}
