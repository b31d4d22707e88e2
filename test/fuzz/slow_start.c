// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * HyStart over any sequence of ACKs: slow start ends at the present window, never below 16 packets, and only after nine
 * samples in an RTT that are all above the smallest RTT by an eighth of that, 4 ms at least and 16 at most; or after two
 * that are above twice the smallest RTT by 16 ms; or, at a smallest RTT of a millisecond or more, after ACKs no more than
 * 2 ms apart for half of that RTT. The smallest RTT is that of the samples since the first ACK, whatever the kernel
 * remembers.
 */
#include "native.h"

#include "cc/lia.bpf.c"

#include "connection.h"

static struct tcp_sock *const tp = &connection.subflows[0];

/* The ACKs of this round trip, as the harness counts. */
static struct {
	bool begun;
	__u32 end; /* the byte whose ACK is the round trip's last */
	__u32 base_us; /* the smallest RTT up to now */
	__u64 began_us, last_us; /* of the train */
	__u32 samples, smallest_us;
} round_trip;

static void start(__u32 cwnd)
{
	join(1, &lia);
	tp->snd_cwnd = cwnd;
	tp->snd_ssthresh = 0x7fffffff;
	tp->srtt_us = 50000 << 3;
	/* The RTT of the SYN. */
	tp->rtt_min.s[0].v = 1;
	tp->tcp_mstamp = 1000000;
	slow_start = SLOW_START_HYSTART;
	memset(&round_trip, 0, sizeof(round_trip));
}

/* An ACK up to una, while data up to nxt is sent, with a sample. */
static void ack(__u32 after_us, __u32 una, __u32 nxt, __u32 rtt_us)
{
	tp->tcp_mstamp += after_us;
	tp->snd_una = una;
	tp->snd_nxt = nxt;
	tp->rack.rtt_us = rtt_us;
	CALL(mpcc_cong_avoid, ARG(tp), una, 1);
}

/* Ends a first round trip of one ACK, with the smallest RTT; the next ACK begins another. */
static void start_above(__u32 cwnd, __u32 base_us)
{
	start(2);
	ack(0, 1, 1, base_us);
	tp->snd_cwnd = cwnd;
}

static bool ended(void)
{
	return tp->snd_ssthresh != 0x7fffffff;
}

/* So many ACKs in one round trip, of which the last alone may end slow start. */
static void require_end(int acks, __u32 apart_us, __u32 rtt_us, bool end)
{
	for (int i = 0; i < acks; i++) {
		require(!ended(), "at ACK %d of %d, %u us apart, RTT %u us", i, acks, apart_us,
			rtt_us);
		ack(apart_us, 2, 1000, rtt_us);
	}
	require(ended() == end, "%d ACKs %u us apart, RTT %u us: ended %d", acks, apart_us, rtt_us,
		ended());
}

/* The same from 16 packets on, above a smallest RTT. */
static void require_end_above(__u32 base_us, int acks, __u32 apart_us, __u32 rtt_us, bool end)
{
	start_above(16, base_us);
	require_end(acks, apart_us, rtt_us, end);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	/* Delay: more than 4 ms above 10 ms. */
	require_end_above(10000, 9, 3000, 14001, true);
	require(tp->snd_ssthresh == 24, "ssthresh %u", tp->snd_ssthresh);
	require_end_above(10000, 50, 3000, 14000, false);
	/* One sample below is enough to go on. */
	start_above(16, 10000);
	ack(3000, 2, 1000, 14000);
	require_end(50, 3000, 15000, false);
	/* An eighth of 80 ms; 16 ms of 400. */
	require_end_above(80000, 50, 3000, 90000, false);
	require_end_above(80000, 9, 3000, 90001, true);
	require_end_above(400000, 50, 3000, 416000, false);
	require_end_above(400000, 9, 3000, 416001, true);
	/* Twice 10 ms and 16: two samples, or as many as there are below nine. */
	require_end_above(10000, 2, 3000, 36001, true);
	require_end_above(10000, 8, 3000, 36000, false);
	start_above(16, 10000);
	ack(3000, 2, 1000, 36000);
	require_end(7, 3000, 36001, false);
	require_end_above(1, 2, 3000, 16003, true);
	/* The first RTT is above no other; the next ones may be. */
	start(16);
	require_end(50, 3000, 20000, false);
	ack(3000, 1001, 2000, 24001);
	for (int i = 1; i < 9; i++) {
		require(!ended(), "at sample %d", i);
		ack(3000, 1002, 2000, 24001);
	}
	require(ended(), "nine samples 4001 us above the first RTT's");
	/* Later RTTs are compared with the fastest ACK, but none from before a timeout. */
	start_above(16, 10000);
	ack(3000, 2, 2, 6000);
	ack(3000, 3, 1000, 10001);
	require_end(8, 3000, 10001, true);
	start_above(16, 10000);
	CALL(mpcc_set_state, ARG(tp), TCP_CA_Loss);
	require_end(50, 3000, 20000, false);
	/* Trains: half of 40 ms, from the first ACK on. */
	require_end_above(40000, 22, 1000, 40000, true);
	require_end_above(40000, 100, 2001, 40000, false);
	/* The first round trip may have a train, too. */
	start(16);
	require_end(22, 1000, 40000, true);
	/* With pacing a train takes 40 ms. */
	start_above(16, 40000);
	tp->inet_conn.icsk_inet.sk.sk_pacing_status = 1;
	require_end(42, 1000, 40000, true);
	/* RTTs of microseconds have no trains. */
	require_end_above(999, 200, 100, 999, false);
	require_end_above(1000, 7, 100, 1000, true);
	/* HyStart that has ended a slow start leaves the slow start after a pause alone, under every rule, until a timeout. */
	for (alone = RULE_CUBIC; alone <= RULE_COUPLED; alone++) {
		require_end_above(10000, 9, 3000, 20000, true);
		tp->snd_cwnd = tp->snd_ssthresh = 120;
		ack(3000, 2, 1000, 20000);
		tp->snd_cwnd = 20;
		for (int i = 0; i < 100; i++)
			ack(3000, 3 + i, 1000 + i, 30000);
		require(tp->snd_cwnd >= 120 && tp->snd_ssthresh == 120,
			"after a pause: cwnd %u, ssthresh %u", tp->snd_cwnd, tp->snd_ssthresh);
		CALL(mpcc_set_state, ARG(tp), TCP_CA_Loss);
		tp->snd_cwnd = 20;
		tp->snd_ssthresh = 0x7fffffff;
		ack(3000, 1, 1, 10000);
		require_end(9, 3000, 20000, true);
	}
	alone = RULE_CUBIC;
	/* RTTs in a timeout's recovery may be of retransmitted segments, and end nothing. */
	start_above(16, 10000);
	tp->inet_conn.icsk_ca_state = TCP_CA_Loss;
	require_end(50, 3000, 20000, false);
	tp->inet_conn.icsk_ca_state = TCP_CA_Open;
	require_end(9, 3000, 20000, true);
	/* Small windows go on: the 15th ACK is for 16 packets. */
	start_above(2, 10000);
	require_end(14 + 9, 3000, 20000, true);
	/* And so does standard slow start. */
	start_above(16, 10000);
	slow_start = SLOW_START_STANDARD;
	require_end(100, 1000, 20000, false);
	return 0;
}

/* Notes an ACK. Returns whether one of the signs is there. */
static bool may_end(__u32 rtt_us)
{
	double rise_us, train_us;

	if (!rtt_us)
		return false;
	if (!round_trip.begun)
		round_trip.base_us = ~0U;
	if (rtt_us < round_trip.base_us)
		round_trip.base_us = rtt_us;
	if (!round_trip.begun || (__s32)((__s64)tp->snd_una - round_trip.end) > 0) {
		round_trip.begun = true;
		round_trip.end = tp->snd_nxt;
		round_trip.began_us = round_trip.last_us = tp->tcp_mstamp;
		round_trip.samples = 0;
		round_trip.smallest_us = ~0U;
	}
	if (tp->snd_cwnd < 16)
		return false;
	round_trip.samples++;
	if (rtt_us < round_trip.smallest_us)
		round_trip.smallest_us = rtt_us;
	rise_us = __builtin_fmin(__builtin_fmax(round_trip.base_us / 8.0, 4000), 16000);
	if (round_trip.samples > 8 && round_trip.smallest_us > round_trip.base_us + rise_us - 1)
		return true;
	if (round_trip.samples > 1 && round_trip.smallest_us > 2.0 * round_trip.base_us + 16000)
		return true;
	if (round_trip.base_us < 1000 || tp->tcp_mstamp - round_trip.last_us > 2000)
		return false;
	round_trip.last_us = tp->tcp_mstamp;
	train_us = round_trip.base_us;
	if (!tp->inet_conn.icsk_inet.sk.sk_pacing_status)
		train_us /= 2;
	return tp->tcp_mstamp - round_trip.began_us >= train_us;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	__u32 least_us;

	start(1 + draw_number(&in, 7));
	least_us = 1 + draw_number(&in, 20);
	tp->inet_conn.icsk_inet.sk.sk_pacing_status = draw_byte(&in) % 2;
	tp->inet_conn.icsk_inet.sk.sk_pacing_rate = draw_number(&in, 40);
	tp->inet_conn.icsk_inet.sk.sk_gso_max_size = draw_number(&in, 20);
	if (draw_byte(&in) % 4 == 0)
		slow_start = SLOW_START_STANDARD;
	while (in.size && !ended()) {
		__u32 cwnd = tp->snd_cwnd, rtt_us = least_us + draw_number(&in, 16);
		bool may;

		tp->tcp_mstamp += draw_number(&in, 13);
		tp->snd_una += draw_number(&in, 12);
		tp->snd_nxt = tp->snd_una + draw_number(&in, 16);
		/* Some ACKs have no sample. */
		if (draw_byte(&in) % 16 == 15)
			rtt_us = 0;
		tp->rack.rtt_us = rtt_us;
		may = may_end(rtt_us) && slow_start == SLOW_START_HYSTART;
		CALL(mpcc_cong_avoid, ARG(tp), tp->snd_una, 1);
		if (!ended())
			continue;
		require(may, "slow start ended at %u packets, RTT %u us, smallest %u us", cwnd,
			rtt_us, round_trip.base_us);
		require(tp->snd_ssthresh == cwnd, "ssthresh %u, cwnd %u", tp->snd_ssthresh, cwnd);
	}
	return 0;
}
