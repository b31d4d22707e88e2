// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * With couple=shared and no record of delays, in a connection whose subflows come and go with ever larger ids:
 *   a subflow is coupled with the siblings that have the same interface and remote address, and with no others
 *   once every subflow has seen ACKs, each has a place of its own from 1 to 9, also if some began with equal places
 */
#include "native.h"

#include "cc/lia.bpf.c"

#include "connection.h"

static __u32 linked; /* a bit for each subflow in the connection */
static __u32 last_id;
static __u64 now_us;

static void start(void)
{
	join(MPCC_MAX_SUBFLOWS, &lia);
	couple = COUPLE_SHARED;
	linked = 0;
	last_id = 0;
	now_us = 1 << 20;
	link_only(linked);
}

static struct sock_common *common_of(__u32 i)
{
	return &connection.subflows[i].inet_conn.icsk_inet.sk.__sk_common;
}

static void ack(__u32 i)
{
	struct tcp_sock *tp = &connection.subflows[i];

	tp->tcp_mstamp = now_us;
	CALL(mpcc_cong_avoid, ARG(tp), 0, 1);
}

/* A subflow joins, with an id larger than the last subflow's by ids_later + 1. */
static void add(__u32 i, __u32 interface, __u32 remote, __u32 ids_later, __u8 place)
{
	struct tcp_sock *tp = &connection.subflows[i];

	memset(private_of(tp), 0, sizeof(*private_of(tp)));
	CALL(mpcc_init, ARG(tp));
	flow_of(tp)->place = place;
	tp->snd_cwnd = 10;
	tp->srtt_us = 50000 << 3;
	set_interface(i, interface);
	common_of(i)->skc_family = AF_INET;
	common_of(i)->skc_daddr = remote;
	last_id += 1 + ids_later;
	connection.contexts[i].subflow_id = last_id;
	linked |= 1 << i;
	link_only(linked);
}

static bool have_same_path(__u32 i, __u32 k)
{
	return connection.routes[i].dev == connection.routes[k].dev &&
	       common_of(i)->skc_daddr == common_of(k)->skc_daddr;
}

/* Every subflow sees an ACK in each of four intervals: enough to take places, to judge, and to adopt verdicts. */
static void settle(void)
{
	for (int round = 0; round < 4; round++) {
		now_us += 20000;
		for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
			if (linked & 1 << i)
				ack(i);
	}
}

static void check(void)
{
	__u32 taken = 0;

	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		__u8 place = flow_of(&connection.subflows[i])->place;

		if (!(linked & 1 << i))
			continue;
		require(place >= 1 && place <= 9 && !(taken & 1 << place),
			"subflow %u: place %u, taken %x", i, place, taken);
		taken |= 1 << place;
		for (__u32 k = 0; k < MPCC_MAX_SUBFLOWS; k++) {
			__u32 group;

			if (k == i || !(linked & 1 << k))
				continue;
			group = group_of(&connection.subflows[i], &connection.subflows[k],
					 &connection.contexts[k]);
			require(!group == have_same_path(i, k), "subflows %u, %u: group %u", i, k,
				group);
		}
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	/* Ids that are equal modulo 8 and 16. */
	start();
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++)
		add(i, i % 3, i % 2, 15, 0);
	settle();
	check();
	/* The first ACK decides: coupled with the sibling of the same path, and with no other before a verdict. */
	start();
	add(0, 0, 0, 0, 0);
	add(1, 1, 0, 0, 0);
	add(2, 1, 0, 0, 0);
	for (__u32 i = 0; i < 3; i++)
		ack(i);
	require(flow_of(&connection.subflows[0])->uncoupled, "coupled before a verdict");
	require(!flow_of(&connection.subflows[2])->uncoupled, "not coupled with its own path");
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };

	start();
	while (in.size) {
		__u32 i = draw_byte(&in) % MPCC_MAX_SUBFLOWS;

		switch (draw_byte(&in) % 4) {
		case 0:
			linked &= ~(1 << i);
			link_only(linked);
			break;
		case 1:
			if (!(linked & 1 << i))
				add(i, draw_byte(&in) % 3, draw_byte(&in) % 2, draw_byte(&in),
				    draw_byte(&in) % 10);
			break;
		case 2:
			now_us += draw_number(&in, 20);
			if (linked & 1 << i)
				ack(i);
			break;
		default:
			settle();
			check();
		}
	}
	return 0;
}
