// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * HyStart over any sequence of ACKs: it ends slow start at the present window, never below 16 packets, and only after
 * nine samples in an RTT that are all above the smallest by an eighth of it, 4 ms at least and 16 at most; or, at a
 * smallest RTT of a millisecond or more, after ACKs no more than 2 ms apart for half of that RTT.
 */
#include "native.h"

#include "cc/lia.bpf.c"

#include "connection.h"

static struct connection connection;
static struct tcp_sock *const tp = &connection.subflows[0];

/* The ACKs of this RTT, kept apart from the algorithm's. */
static struct {
	bool begun;
	__u32 end;
	__u64 began_us, last_us; /* of the train */
	__u32 samples, smallest_us;
} round_trip;

static void start(__u32 cwnd, __u32 base_us)
{
	join(&connection, 1, &lia);
	tp->snd_cwnd = cwnd;
	tp->snd_ssthresh = 0x7fffffff;
	tp->srtt_us = base_us << 3;
	tp->rtt_min.s[0].v = base_us;
	tp->tcp_mstamp = 1000000;
	slow_start = SLOW_START_HYSTART;
	memset(&round_trip, 0, sizeof(round_trip));
}

/* Up to una, for data up to nxt, with a sample. */
static void ack(__u32 after_us, __u32 una, __u32 nxt, __u32 rtt_us)
{
	tp->tcp_mstamp += after_us;
	tp->snd_una = una;
	tp->snd_nxt = nxt;
	tp->rack.rtt_us = rtt_us;
	CALL(mpcc_cong_avoid, ARG(tp), una, 1);
}

static bool ended(void)
{
	return tp->snd_ssthresh != 0x7fffffff;
}

/* So many ACKs of one RTT, the last of which is the first that may end slow start. */
static void require_end(int acks, __u32 apart_us, __u32 rtt_us, bool end)
{
	for (int i = 0; i < acks; i++) {
		require(!ended(), "at ACK %d of %d, %u us apart, RTT %u us", i, acks, apart_us,
			rtt_us);
		ack(apart_us, 1, 1000, rtt_us);
	}
	require(ended() == end, "%d ACKs %u us apart, RTT %u us: ended %d", acks, apart_us, rtt_us,
		ended());
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	/* Delay: above 10 ms by 4 ms, and not just by that. */
	start(16, 10000);
	require_end(9, 3000, 14001, true);
	require(tp->snd_ssthresh == 24, "ssthresh %u", tp->snd_ssthresh);
	start(16, 10000);
	require_end(50, 3000, 14000, false);
	/* One sample below is enough to go on. */
	start(16, 10000);
	ack(3000, 1, 1000, 14000);
	require_end(50, 3000, 15000, false);
	/* An eighth of 80 ms; 16 ms of 400. */
	start(16, 80000);
	require_end(50, 3000, 90000, false);
	start(16, 80000);
	require_end(9, 3000, 90001, true);
	start(16, 400000);
	require_end(9, 3000, 416001, true);
	/* Trains: half of 40 ms, the first ACK begins it. */
	start(16, 40000);
	require_end(22, 1000, 40000, true);
	start(16, 40000);
	require_end(100, 2001, 40000, false);
	/* Paced packets take the whole of it. */
	start(16, 40000);
	tp->inet_conn.icsk_inet.sk.sk_pacing_status = 1;
	require_end(42, 1000, 40000, true);
	/* RTTs of microseconds have no trains. */
	start(16, 999);
	require_end(200, 100, 999, false);
	start(16, 1000);
	require_end(7, 100, 1000, true);
	/* Small windows go on: the 15th is for 16 packets. */
	start(2, 10000);
	require_end(14 + 9, 3000, 20000, true);
	/* And so does standard slow start. */
	start(16, 10000);
	slow_start = SLOW_START_STANDARD;
	require_end(100, 1000, 20000, false);
	return 0;
}

/* Whether one of the two signs is there. */
static bool may_end(__u32 rtt_us)
{
	__u32 base_us = tp->rtt_min.s[0].v;
	double rise_us = base_us / 8.0, train_us;

	if (!round_trip.begun || (__s32)((__s64)tp->snd_una - round_trip.end) > 0) {
		round_trip.begun = true;
		round_trip.end = tp->snd_nxt;
		round_trip.began_us = round_trip.last_us = tp->tcp_mstamp;
		round_trip.samples = 0;
		round_trip.smallest_us = ~0U;
	}
	round_trip.samples++;
	if (rtt_us < round_trip.smallest_us)
		round_trip.smallest_us = rtt_us;
	if (rise_us < 4000)
		rise_us = 4000;
	if (rise_us > 16000)
		rise_us = 16000;
	if (round_trip.samples > 8 && round_trip.smallest_us > base_us + rise_us - 1)
		return true;
	if (base_us < 1000 || tp->tcp_mstamp - round_trip.last_us > 2000)
		return false;
	round_trip.last_us = tp->tcp_mstamp;
	train_us = tp->inet_conn.icsk_inet.sk.sk_pacing_status ? base_us : base_us / 2;
	return tp->tcp_mstamp - round_trip.began_us > train_us;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };

	start(1 + draw_number(&in, 7), 1 + draw_number(&in, 20));
	tp->inet_conn.icsk_inet.sk.sk_pacing_status = draw_byte(&in) % 2;
	tp->inet_conn.icsk_inet.sk.sk_pacing_rate = draw_number(&in, 40);
	tp->inet_conn.icsk_inet.sk.sk_gso_max_size = draw_number(&in, 20);
	if (draw_byte(&in) % 4 == 0)
		slow_start = SLOW_START_STANDARD;
	while (in.size && !ended()) {
		__u32 cwnd = tp->snd_cwnd, rtt_us = tp->rtt_min.s[0].v + draw_number(&in, 16);
		bool may;

		tp->tcp_mstamp += draw_number(&in, 13);
		tp->snd_una += draw_number(&in, 12);
		tp->snd_nxt = tp->snd_una + draw_number(&in, 16);
		tp->rack.rtt_us = rtt_us;
		may = cwnd >= 16 && slow_start == SLOW_START_HYSTART && may_end(rtt_us);
		CALL(mpcc_cong_avoid, ARG(tp), tp->snd_una, 1);
		if (!ended())
			continue;
		require(may, "slow start ended at %u packets, RTT %u us, smallest %u us", cwnd,
			rtt_us, tp->rtt_min.s[0].v);
		require(tp->snd_ssthresh == cwnd, "ssthresh %u, cwnd %u", tp->snd_ssthresh, cwnd);
	}
	return 0;
}
