// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What network namespaces have in the maps of congestion controls (share.h), over subflows that come and go:
 *   a namespace that has its share gets no live state, no totals of one more interface and no record of delays; another
 *   namespace gets all three
 *   a subflow that ends makes room for another; a namespace's counts are those of its entries
 *   the namespaces that each CPU makes first have slots of their own
 */
#include "native.h"

static void *find_element(const void *map, const void *key);
static long make_element(const void *map, const void *key, const void *value, __u64 flags);
static long drop_element(const void *map, const void *key);

#undef bpf_map_lookup_elem
#define bpf_map_lookup_elem find_element
#define bpf_map_update_elem make_element
#define bpf_map_delete_elem drop_element

#include "cc/lia.bpf.c"

#include "connection.h"

#define NAMESPACES 2
#define MOST_DELAYS MPCC_NAMESPACE_SHARE(MPCC_MAX_DELAYS)

static struct net namespaces[NAMESPACES];
static const struct tcp_congestion_ops ops = { .name = "lia" };
static bool living[MPCC_MAX_SUBFLOWS];
static __u64 now_us;

#define ROOM 6

/* The maps. The hashes have room for fewer entries than the subflows and interfaces here ask for. */
static struct mpcc_counter_set counter_set;
static struct mpcc_share shares[MPCC_SHARES];
static __u32 delays_shares[MPCC_SHARES];

static struct hash {
	const void *map;
	size_t key_size;
	int room;
	struct {
		bool taken;
		struct mpcc_total_key key; /* the largest of the keys */
		union {
			struct mpcc_subflow subflow;
			struct mpcc_total total;
			struct mpcc_delays delays;
		};
	} entries[ROOM];
} hashes[] = {
	{ .map = &mpcc_subflows, .key_size = sizeof(__u64), .room = ROOM },
	{ .map = &mpcc_totals, .key_size = sizeof(struct mpcc_total_key), .room = 4 },
	{ .map = &mpcc_bottlenecks, .key_size = sizeof(__u64), .room = 4 },
};

static struct hash *hash_of(const void *map)
{
	for (size_t i = 0; i < ARRAY_SIZE(hashes); i++)
		if (hashes[i].map == map)
			return &hashes[i];
	return NULL;
}

static void *find_element(const void *map, const void *key)
{
	struct hash *h = hash_of(map);

	if (map == &mpcc_counters)
		return &counter_set;
	if (map == &mpcc_shares)
		return &shares[*(const __u32 *)key];
	if (map == &mpcc_delays_share)
		return &delays_shares[*(const __u32 *)key];
	for (int i = 0; h && i < ROOM; i++)
		if (h->entries[i].taken && !memcmp(&h->entries[i].key, key, h->key_size))
			return &h->entries[i].subflow;
	return NULL;
}

/* All values that the programs enter are zero. */
static long make_element(const void *map, const void *key, const void *value, __u64 flags)
{
	struct hash *h = hash_of(map);

	if (find_element(map, key))
		return -EEXIST;
	for (int i = 0; i < h->room; i++)
		if (!h->entries[i].taken) {
			memset(&h->entries[i], 0, sizeof(h->entries[i]));
			h->entries[i].taken = true;
			memcpy(&h->entries[i].key, key, h->key_size);
			return 0;
		}
	return -E2BIG;
}

static long drop_element(const void *map, const void *key)
{
	struct hash *h = hash_of(map);

	for (int i = 0; i < ROOM; i++)
		if (h->entries[i].taken && !memcmp(&h->entries[i].key, key, h->key_size)) {
			h->entries[i].taken = false;
			return 0;
		}
	return -ENOENT;
}

static struct mpcc_share *share_in(__u32 namespace)
{
	return share_of(namespaces[namespace].net_cookie);
}

static __u32 *delays_share_in(__u32 namespace)
{
	return &delays_shares[share_slot(namespaces[namespace].net_cookie)];
}

/* Two namespaces. The first has room for so many subflows, totals and records of delays. */
static void start(__u32 subflows, __u32 totals, __u32 delays)
{
	join(MPCC_MAX_SUBFLOWS, &ops);
	couple = COUPLE_SHARED;
	plain = PLAIN_OWN;
	now_us = 1 << 20;
	memset(living, 0, sizeof(living));
	memset(&counter_set, 0, sizeof(counter_set));
	memset(shares, 0, sizeof(shares));
	memset(delays_shares, 0, sizeof(delays_shares));
	for (size_t i = 0; i < ARRAY_SIZE(hashes); i++)
		memset(hashes[i].entries, 0, sizeof(hashes[i].entries));
	/* The first namespaces that two CPUs make. */
	for (__u32 i = 0; i < NAMESPACES; i++)
		namespaces[i].net_cookie = 1 + i * 4096;
	share_in(0)->subflows = mpcc_namespace_subflows - subflows;
	share_in(0)->totals = mpcc_namespace_totals - totals;
	*delays_share_in(0) = MOST_DELAYS - delays;
}

static void open(__u32 i, __u32 namespace, __u32 interface)
{
	struct tcp_sock *tp = &connection.subflows[i];

	tp->inet_conn.icsk_inet.sk.__sk_common.skc_net.net = &namespaces[namespace];
	set_interface(i, interface);
	tp->snd_cwnd = 10;
	tp->tcp_mstamp = now_us;
	CALL(mpcc_init, ARG(tp));
	living[i] = true;
}

/* An ACK in the next interval of delays. */
static void ack(__u32 i)
{
	struct tcp_sock *tp = &connection.subflows[i];

	now_us += 1 << MPCC_INTERVAL_SHIFT;
	tp->tcp_mstamp = now_us;
	CALL(mpcc_cong_avoid, ARG(tp), 0, 1);
}

static void close(__u32 i)
{
	CALL(mpcc_release, ARG(&connection.subflows[i]));
	living[i] = false;
}

static bool is_shown(__u32 i)
{
	__u64 id = flow_of(&connection.subflows[i])->id;

	return id && find_element(&mpcc_subflows, &id);
}

static void fill_live_map(void)
{
	start(1, 8, 8);
	open(0, 0, 0);
	open(1, 0, 0);
	open(2, 1, 0);
	require(is_shown(0) && !is_shown(1) && is_shown(2), "shown %d %d %d", is_shown(0),
		is_shown(1), is_shown(2));
	require(counter_set.lost_subflows == 1, "%llu lost", counter_set.lost_subflows);
	close(1);
	close(0);
	open(3, 0, 0);
	require(is_shown(3), "no room after a subflow has ended");
}

static void fill_totals(void)
{
	__u64 lost;

	start(8, 1, 8);
	open(0, 0, 0);
	require(!counter_set.lost_totals, "%llu lost", counter_set.lost_totals);
	open(1, 0, 1);
	lost = counter_set.lost_totals;
	require(lost && share_in(0)->totals == mpcc_namespace_totals, "%llu lost", lost);
	open(2, 1, 1);
	/* An interface with totals takes no more room. */
	open(3, 0, 0);
	require(counter_set.lost_totals == lost, "%llu lost", counter_set.lost_totals);
}

static void fill_delays(void)
{
	start(8, 8, 1);
	for (__u32 i = 0; i < 3; i++) {
		open(i, i == 2, 0);
		ack(i);
		require(!delays_of(&connection.subflows[i]) == (i == 1), "subflow %u", i);
	}
	close(0);
	ack(1);
	require(delays_of(&connection.subflows[1]), "no room after a subflow has ended");
}

/* The host's namespace, which the first CPU makes first, shares a bound with none of the first 16 of 63 other CPUs. */
static void spread(void)
{
	for (__u32 cpu = 1; cpu < 64; cpu++)
		for (__u32 made = 1; made <= 16; made++)
			require(share_slot(1) != share_slot(cpu * 4096 + made), "CPU %u, %u", cpu,
				made);
	require(share_slot(~0ULL) < MPCC_SHARES, "%u", share_slot(~0ULL));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fill_live_map();
	fill_totals();
	fill_delays();
	spread();
	return 0;
}

/* The counts are those of the entries: every entry of a living subflow is found by the subflow. */
static void check_counts(__u32 subflows, __u32 totals, __u32 delays)
{
	__u32 shown[NAMESPACES] = {}, recorded[NAMESPACES] = {}, summed[NAMESPACES] = {};
	const struct hash *sums = hash_of(&mpcc_totals);

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		const struct tcp_sock *tp = &connection.subflows[i];

		if (!living[i])
			continue;
		shown[netns_cookie_of(tp) != 1] += is_shown(i);
		recorded[netns_cookie_of(tp) != 1] += !!delays_of(tp);
	}
	for (int i = 0; i < ROOM; i++)
		if (sums->entries[i].taken)
			summed[sums->entries[i].key.netns_cookie != 1]++;
	for (__u32 n = 0; n < NAMESPACES; n++) {
		__u32 begun = !n; /* start() has counted for the first namespace */

		require(share_in(n)->subflows ==
				shown[n] + begun * (mpcc_namespace_subflows - subflows),
			"namespace %u: %u, %u shown", n, share_in(n)->subflows, shown[n]);
		require(share_in(n)->totals == summed[n] + begun * (mpcc_namespace_totals - totals),
			"namespace %u: %u, %u summed", n, share_in(n)->totals, summed[n]);
		require(*delays_share_in(n) == recorded[n] + begun * (MOST_DELAYS - delays),
			"namespace %u: %u, %u recorded", n, *delays_share_in(n), recorded[n]);
	}
	require(shown[0] <= subflows && summed[0] <= totals && recorded[0] <= delays, "%u, %u, %u",
		shown[0], summed[0], recorded[0]);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	__u32 subflows = draw_byte(&in) % 6, totals = draw_byte(&in) % 3,
	      delays = draw_byte(&in) % 4;

	start(subflows, totals, delays);
	while (in.size) {
		__u32 i = draw_byte(&in) % MPCC_MAX_SUBFLOWS;

		if (!living[i])
			open(i, draw_byte(&in) % NAMESPACES,
			     draw_byte(&in) % ARRAY_SIZE(interfaces));
		else if (draw_byte(&in) % 4)
			ack(i);
		else
			close(i);
		check_counts(subflows, totals, delays);
	}
	return 0;
}
