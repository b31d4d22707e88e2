// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * mpCUBIC's curves over any sequence of ACKs, pauses, losses and timeouts, while subflows come and go: which time
 * counts, when a curve begins anew, and what a loss leaves of the plateau; no ACK adds more than half a packet for each
 * segment. And the window after each ACK, against the curves of RFC 9438 and of the paper.
 */
#include "native.h"

#include "cc/mpcubic.bpf.c"

#include "connection.h"

static struct tcp_sock *const tp = &connection.subflows[0];

/* Something is always in flight unless a check says otherwise. */
static void start(__u32 subflows, __u32 cwnd, __u32 rtt_us)
{
	join(subflows, &mpcubic);
	for (__u32 i = 0; i < subflows; i++) {
		connection.subflows[i].snd_cwnd = cwnd;
		set_rtt(&connection.subflows[i], rtt_us);
	}
	tp->snd_ssthresh = 2;
	tp->packets_out = 1;
	/* The clock of 32 bits goes round soon. */
	tp->tcp_mstamp = (1ULL << 32) - 3000000;
	alone = RULE_COUPLED;
	mode = MODE_DERIVED;
}

static void ack(__u64 after_us, __u32 segments)
{
	tp->tcp_mstamp += after_us;
	CALL(mpcc_cong_avoid, ARG(tp), 0, segments);
}

/* A loss, and the recovery from it. */
static void lose(void)
{
	tp->snd_cwnd = tp->snd_ssthresh = CALL(mpcc_ssthresh, ARG(tp));
}

static void time_out(void)
{
	tp->snd_ssthresh = CALL(mpcc_ssthresh, ARG(tp));
	tp->snd_cwnd = 1;
	CALL(mpcc_set_state, ARG(tp), TCP_CA_Loss);
}

static __u64 epoch_us(void)
{
	struct mpcc_path p = {};

	cc_hooks.read_private(&p, tp, private_of(tp), private_of(tp));
	return p.epoch_us;
}

static void require_epoch(__u64 us)
{
	require(flow_of(tp)->curve_subflows && epoch_us() == us,
		"a curve for %u, %llu us, want %llu", flow_of(tp)->curve_subflows, epoch_us(), us);
}

static void require_loss(__u32 cwnd, __u32 last_max)
{
	require(tp->snd_cwnd == cwnd, "cwnd %u, want %u", tp->snd_cwnd, cwnd);
	require(flow_of(tp)->last_max == last_max, "last_max %u, want %u", flow_of(tp)->last_max,
		last_max);
}

/*
 * Eight ACKs an RTT, until the curve has this age. All time counts but that before the first ACK after a loss. The window at
 * the end is right to within a packet and a half.
 */
static void run_to(double seconds, double window)
{
	__u32 rtt_us = tp->srtt_us >> 3;
	__u64 us = epoch_us();

	if (!flow_of(tp)->curve_subflows) {
		ack(rtt_us / 8, (tp->snd_cwnd + 4) / 8);
		require_epoch(0);
	}
	while (us < seconds * 1e6) {
		ack(rtt_us / 8, (tp->snd_cwnd + 4) / 8);
		us += rtt_us / 8;
		require_epoch(us);
	}
	require(__builtin_fabs(tp->snd_cwnd - window) <= 1.5, "cwnd %u after %g s, want %g",
		tp->snd_cwnd, seconds, window);
}

static void check_curves(void)
{
	/* RFC 9438, section 4.2, with w_max 100; the RTT is too long for Reno to be faster. */
	for (int rule = 0; rule < 2; rule++) {
		start(1, 100, 200000);
		alone = rule ? RULE_COUPLED : RULE_CUBIC;
		lose();
		require_loss(70, 100);
		run_to(1, 86.680764);
		run_to(2, 95.640336);
		run_to(5, 100.19190);
		/* RFC 9438, section 4.3: on a short path as fast as Reno, 9/17 of a packet an RTT. */
		start(1, 40, 10000);
		alone = rule ? RULE_COUPLED : RULE_CUBIC;
		lose();
		run_to(0.2, 28 + 20 * 9 / 17.0);
	}
	/* Kato et al., equations (9)-(13), with w_loss 100. */
	start(2, 100, 100000);
	lose();
	require_loss(60, 100);
	run_to(1, 72.360103);
	run_to(2, 81.282471);
	run_to(5, 96.276828);
	run_to(10, 100.02493);
	/* On a short path as fast as Reno in its quarter; 25 of 41 packets are what D beta leaves. */
	start(2, 41, 10000);
	lose();
	require_loss(25, 41);
	run_to(0.6, 25 + 60 * 3 * 16 / 66.0 / 4);
}

static void run_for(__u64 us)
{
	__u32 rtt_us = tp->srtt_us >> 3;

	for (__u64 end = tp->tcp_mstamp + us; tp->tcp_mstamp < end;)
		ack(rtt_us / 8, (tp->snd_cwnd + 4) / 8);
}

/* A connection's subflows change 9 s after a loss at 100 packets, on a path of 10 ms. */
static void check_changes(void)
{
	for (int rule = RULE_CUBIC; rule <= RULE_COUPLED; rule++) {
		__u32 before;

		/* From 2 to 1 the new curve begins at the window: 4 RTTs are little time on a curve. */
		start(2, 100, 10000);
		alone = rule;
		lose();
		run_for(9000000);
		before = tp->snd_cwnd;
		link_only(1);
		run_for(40000);
		require(tp->snd_cwnd <= before + 5, "cwnd %u, 4 RTTs ago %u", tp->snd_cwnd, before);
		/* Nor does the time on the other curve count. */
		tp->snd_cwnd = before;
		link_only(3);
		run_for(40000);
		require(tp->snd_cwnd <= before + 5, "cwnd %u, 4 RTTs ago %u", tp->snd_cwnd, before);

		/* From 1 to 2 the window does not stand still for the age of the curve: a packet in 5.5 RTTs is Reno's. */
		start(2, 100, 10000);
		alone = rule;
		link_only(1);
		lose();
		run_for(9000000);
		tp->snd_cwnd = before = 100;
		link_only(3);
		run_for(120000);
		require(tp->snd_cwnd > before && tp->snd_cwnd <= before + 8,
			"cwnd %u, 12 RTTs ago %u", tp->snd_cwnd, before);
	}
}

/* An ACK for a segment that left an RTT ago. in_flight is after the ACK. */
static void ack_of(__u64 after_us, __u32 rtt_us, __u32 in_flight)
{
	tp->rack.rtt_us = rtt_us;
	tp->packets_out = in_flight;
	ack(after_us, 1);
}

/* On a curve a second old, of one subflow or of two. */
static void start_second(__u32 subflows, __u32 in_flight)
{
	start(subflows, 100, 100000);
	ack_of(0, 100000, 1);
	ack_of(1000000, 100000, in_flight);
	require_epoch(1000000);
}

/* Time in which nothing is in flight does not count. */
static void check_pauses(__u32 subflows)
{
	/* A silence with something in flight is none. */
	start_second(subflows, 1);
	ack_of(5000000, 100000, 1);
	require_epoch(6000000);
	/* After an ACK of all in flight the pause is the time between two segments: here, between the ACKs. */
	start_second(subflows, 0);
	ack_of(1, 100000, 0);
	require_epoch(1000000);
	ack_of(5000000, 100000, 0);
	require_epoch(1000000);
	ack_of(1ULL << 31, 100000, 0);
	require_epoch(1000000);
	ack_of((1ULL << 32) + 5000000, 100000, 1);
	require_epoch(1000000);
	/* Then the pause is over. */
	ack_of(5000000, 100000, 1);
	require_epoch(6000000);
	/* The ACK is slower or faster than the last one: the segments were 400 ms apart, and 550. */
	start_second(subflows, 0);
	ack_of(500000, 200000, 1);
	require_epoch(1100000);
	start_second(subflows, 0);
	ack_of(500000, 50000, 1);
	require_epoch(950000);
	/* The segment left no later than the last one: no pause. */
	start_second(subflows, 0);
	ack_of(500000, 600000, 1);
	require_epoch(1500000);
	start_second(subflows, 0);
	ack_of(500000, 599999, 1);
	require_epoch(1499999);
	/* A curve younger than the pause begins with the segment after the pause. */
	start(subflows, 100, 100000);
	ack_of(0, 100000, 0);
	ack_of(5000000, 100000, 1);
	require_epoch(100000);
	/* A loss ends the curve, not the pause: no curve is moved until the next one begins. */
	start_second(subflows, 0);
	lose();
	ack_of(5000000, 100000, 1);
	require_epoch(0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	check_curves();
	check_changes();
	check_pauses(1);
	check_pauses(2);

	/* Fast convergence: a loss below the last loss's window lowers the plateau. */
	start(1, 100, 50000);
	lose();
	require_loss(70, 100);
	tp->snd_cwnd = 90;
	lose();
	require_loss(63, 76);
	tp->snd_cwnd = 120;
	lose();
	require_loss(84, 120);

	/* After a timeout the curve starts at the plateau, wherever slow start ends; until a loss, 20 segments add a packet. */
	time_out();
	require_loss(1, 0);
	ack(50000, 57 + 19);
	require_loss(58, 0);
	ack(1000, 2);
	require_loss(59, 0);
	require(flow_of(tp)->curve.origin == 58 && !flow_of(tp)->curve.k, "origin %u, k %u",
		flow_of(tp)->curve.origin, flow_of(tp)->curve.k);
	return 0;
}

/* The curve as the harness counts. */
static struct {
	__u32 subflows; /* of the curve; 0 = no curve */
	__s64 age_us;
	__s64 quiet_us; /* since the last segment left, if nothing was in flight; 0 otherwise */
} model;

/* Adds to the age what counts of the time up to an ACK. */
static void pass_time(__u32 after_us)
{
	__s64 rtt_us = tp->rack.rtt_us, pause_us = 0;

	if (model.quiet_us)
		pause_us = model.quiet_us + after_us - rtt_us;
	model.age_us += after_us;
	if (pause_us > 0)
		model.age_us = model.age_us - pause_us > rtt_us ? model.age_us - pause_us : rtt_us;
	model.quiet_us = tp->packets_out ? 0 : rtt_us;
}

static void check_ack(__u32 linked, __u32 after_us, __u32 segments)
{
	__u32 n = __builtin_popcount(linked), before = tp->snd_cwnd, ssthresh = tp->snd_ssthresh;
	__u32 fast = ssthresh > before ? ssthresh - before : 0;

	if (fast > segments)
		fast = segments;
	looks = 0;
	pass_time(after_us);
	ack(after_us, segments);
	if (looks && (n == 1 && alone == RULE_RENO)) {
		model.subflows = 0;
	} else if (looks && model.subflows != n) {
		model.subflows = n;
		model.age_us = 0;
	}
	if (model.subflows)
		require((__s64)epoch_us() == model.age_us, "%llu us, want %lld", epoch_us(),
			model.age_us);
	require(!!model.subflows == !!flow_of(tp)->curve_subflows, "a curve for %u, want %u",
		flow_of(tp)->curve_subflows, model.subflows);
	require(tp->snd_cwnd >= before, "cwnd %u from %u", tp->snd_cwnd, before);
	require(tp->snd_cwnd <= before + fast + segments / 2 + 1, "cwnd %u from %u, %u segments",
		tp->snd_cwnd, before, segments);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	__u32 linked = 1;

	start(MPCC_MAX_SUBFLOWS, 100, 50000);
	link_only(linked);
	memset(&model, 0, sizeof(model));
	draw_tunables(&in);
	slow_start = SLOW_START_STANDARD;
	decide_at_once();
	while (in.size) {
		/* 4 seconds at most, so that 400 events are less than the clock's 71 minutes. */
		__u32 number = draw_number(&in, 22), before = tp->snd_cwnd;
		__u32 plateau = flow_of(tp)->last_max;

		switch (draw_byte(&in) % 8) {
		case 0:
			lose();
			model.subflows = 0;
			require(tp->snd_cwnd >= 2 && (tp->snd_cwnd <= before || before < 2),
				"cwnd %u from %u", tp->snd_cwnd, before);
			require(flow_of(tp)->last_max == before || before < plateau,
				"last_max %u, cwnd %u", flow_of(tp)->last_max, before);
			break;
		case 1:
			time_out();
			model.subflows = 0;
			break;
		case 2:
			linked = 1 | number % (1 << MPCC_MAX_SUBFLOWS);
			link_only(linked);
			break;
		default:
			tp->rack.rtt_us = 1 + draw_number(&in, 20);
			tp->packets_out = draw_byte(&in) % 4;
			check_ack(linked, number, 1 + number % 100);
		}
		if (tp->snd_cwnd > 1000000)
			return 0;
	}
	return 0;
}
