// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * wVegas over any sequence of ACKs with samples, losses and pauses: what a round is, which samples belong to a round, how
 * long base and alpha last, and that the window moves only at the end of a round, unless the subflow competes; when a
 * subflow probes and begins to compete. The vectors check what a round decides.
 */
#include "native.h"

#include "cc/wvegas.bpf.c"

#include "connection.h"

static struct tcp_sock *const tp = &connection.subflows[0];

/* In congestion avoidance, with 1000 bytes under way. */
static void start(__u32 subflows)
{
	join(subflows, &wvegas);
	for (__u32 i = 0; i < subflows; i++)
		connection.subflows[i].srtt_us = 50000 << 3;
	tp->snd_cwnd = 20;
	tp->snd_ssthresh = 10;
	tp->snd_nxt = 1000;
}

/* An ACK up to and with the byte; 0 = without a sample. Then another 1000 bytes are sent. */
static void ack(__u32 byte, __u32 rtt_us)
{
	tp->rack.rtt_us = rtt_us;
	CALL(mpcc_cong_avoid, ARG(tp), byte, 1);
	tp->snd_nxt += 1000;
}

static void set_state(__u8 state)
{
	CALL(mpcc_set_state, ARG(tp), state);
}

static void restart(void)
{
	CALL(wvegas_cwnd_event, ARG(tp), CA_EVENT_CWND_RESTART);
}

/* So many ACKs with the same sample; the last ACK ends the round. */
static void round_of(int samples, __u32 rtt_us)
{
	__u32 end = private_of(tp)->round_end;

	for (int i = 1; i < samples; i++)
		ack(end, rtt_us);
	ack(end + 1, rtt_us);
}

static void require_window(__u32 window, __u32 alpha, __u32 queue_us)
{
	const struct cc_state *state = private_of(tp);

	require(tp->snd_cwnd == window, "cwnd %u, want %u", tp->snd_cwnd, window);
	require(state->alpha == alpha, "alpha %u, want %u", state->alpha, alpha);
	require(state->queue_us == queue_us, "queue %u us, want %u", state->queue_us, queue_us);
}

/* A sibling joins whose socket is a copy of the subflow's. */
static void join_sibling(void)
{
	connection.subflows[1] = connection.subflows[0];
	connection.subflows[1].inet_conn.icsk_ulp_data = &connection.contexts[1];
	connection.contexts[1] = (struct mptcp_subflow_context){
		.tcp_sock = (struct sock *)&connection.subflows[1],
		.conn = (struct sock *)&connection.sock,
	};
	link_only(3);
}

static void require_reno_step(void)
{
	__s64 credit = flow_of(tp)->credit_q29, want = MPCC_Q29_ONE / tp->snd_cwnd;

	require(credit > want - 2 && credit < want + 2, "credit %lld, want %lld", credit, want);
}

/*
 * A probe where the base RTT is 50 ms and qd 10 ms: a sixth of the window waits in the queue. Two rounds later qd is
 * queue_us. Returns whether the subflow competes after the probe.
 */
static bool probe(__u32 queue_us)
{
	__u32 window = tp->snd_cwnd;

	round_of(3, 60000);
	require(tp->snd_cwnd == window * 50 / 60, "cwnd %u of %u in a probe", tp->snd_cwnd, window);
	ack(private_of(tp)->round_end, 60000);
	require(tp->snd_cwnd == window * 50 / 60, "cwnd %u of %u in a probe", tp->snd_cwnd, window);
	round_of(3, 60000);
	/* One sample is enough to end a probe. */
	round_of(1, 50000 + queue_us);
	require(tp->snd_cwnd == window, "cwnd %u after a probe, want %u", tp->snd_cwnd, window);
	return private_of(tp)->competing;
}

/* So many rounds of 60 ms, in which no probe begins. */
static void pass_rounds(__u32 rounds)
{
	for (; rounds; rounds--) {
		tp->snd_cwnd = 60;
		round_of(3, 60000);
		require(tp->snd_cwnd >= 59 && tp->snd_cwnd <= 61, "cwnd %u: a probe", tp->snd_cwnd);
	}
	tp->snd_cwnd = 60;
	tp->snd_ssthresh = 55;
}

static void begin_probing(void)
{
	start(1);
	noise_us = 4000;
	rtt = RTT_SMALLEST;
	drain = DRAIN_ABOVE_ALPHA;
	compete = COMPETE_OTHERS;
	couple = COUPLE_SHARED;
	growth = GROWTH_CUBIC;
	ack(0, 0);
	round_of(3, 50000);
	tp->snd_cwnd = 60;
	/* A probe is no slow start. */
	tp->snd_ssthresh = 55;
}

/*
 * A probe takes 10 ms of packets out of the queue. If qd falls by less than 3/4 of that, other connections' packets are in
 * the queue, and the subflow competes.
 */
static void check_probes(void)
{
	/* A qd within noise_us counts as 0. */
	for (__u32 left = 0; left <= 7000; left += 1000) {
		begin_probing();
		require(!probe(left) == (left <= 4000), "%u us left of 10 ms", left);
	}
	/* Probes are ever more seldom while their results agree. */
	begin_probing();
	require(!probe(0), "competes alone");
	for (__u32 rounds = 32; rounds <= 128; rounds *= 2) {
		pass_rounds(rounds - 1);
		require(!probe(0), "competes alone");
	}
	pass_rounds(127);
	require(probe(10000), "does not compete");
	require(flow_of(tp)->curve_subflows == 1, "no course of CUBIC");
	pass_rounds(15);
	require(probe(10000), "does not compete");
	/* Two probes in a row that show no other connections end the competing; after one, the next probe is soon. */
	pass_rounds(31);
	require(probe(0), "one answer ends it");
	pass_rounds(3);
	require(probe(10000), "does not compete");
	pass_rounds(63);
	require(probe(0), "one answer ends it");
	pass_rounds(3);
	require(!probe(0), "competes alone");
	pass_rounds(3);
	require(!probe(0), "competes alone");
	pass_rounds(31);
	require(!probe(0), "competes alone");
	/* Half of the queue is a sibling's and stays. */
	for (__u32 left = 5000; left <= 7000; left += 2000) {
		begin_probing();
		join_sibling();
		connection.subflows[1].snd_cwnd = 60;
		connection.subflows[1].srtt_us = 60000 << 3;
		require(!probe(left) == (left == 5000), "%u us left of 10 ms", left);
	}
	/*
	 * Before its time where the window is 1/8 smaller than at the last probe and others have filled the place: at 80 ms
	 * and 60 packets, of which 8 are gone, qd should have fallen by 10.7 ms.
	 */
	for (int i = 0; i < 8; i++) {
		__u32 cwnd = i & 1 ? 52 : 53, rtt_us = i & 2 ? 75000 : 71000;
		bool competing = i & 4;

		begin_probing();
		require(!probe(0), "competes alone");
		private_of(tp)->probed_queue = queue_units(30000);
		private_of(tp)->competing = competing;
		tp->snd_cwnd = cwnd;
		tp->snd_ssthresh = 40;
		round_of(3, rtt_us);
		require(private_of(tp)->probing == (cwnd == 52 && rtt_us == 75000 && !competing),
			"%u packets, %u us, competing %d: probing %u", cwnd, rtt_us, competing,
			private_of(tp)->probing);
	}
	/* No probe of a short queue, and none in the paper. */
	begin_probing();
	round_of(3, 57999);
	require(!private_of(tp)->probing, "a probe of a queue of 8 ms");
	compete = COMPETE_NEVER;
	round_of(3, 60000);
	require(!private_of(tp)->probing, "a probe");
	/* A loss in a probe is one of the window before. */
	begin_probing();
	round_of(3, 60000);
	require(tp->snd_cwnd == 50, "cwnd %u", tp->snd_cwnd);
	tp->snd_cwnd = CALL(mpcc_ssthresh, ARG(tp));
	require(tp->snd_cwnd == 60 * 717 / 1024, "cwnd %u after a loss", tp->snd_cwnd);
	require(flow_of(tp)->last_max == 60, "the loss was at %u", flow_of(tp)->last_max);
	/* The last sibling leaves during a probe: CUBIC goes on from the window before the probe. */
	begin_probing();
	join_sibling();
	alone = RULE_CUBIC;
	round_of(3, 60000);
	require(tp->snd_cwnd == 50, "cwnd %u", tp->snd_cwnd);
	link_only(1);
	round_of(1, 60000);
	require(tp->snd_cwnd == 60 && !private_of(tp)->probing, "cwnd %u", tp->snd_cwnd);
	/* A subflow that competed before being alone probes at once beside a new sibling. */
	couple = COUPLE_ALWAYS;
	private_of(tp)->competing = 1;
	private_of(tp)->rounds = 100;
	ack(private_of(tp)->round_end + 1, 60000);
	join_sibling();
	tp->tcp_mstamp += 100000;
	ack(private_of(tp)->round_end + 1, 60000);
	ack(private_of(tp)->round_end + 1, 60000);
	require(!flow_of(tp)->uncoupled && !private_of(tp)->competing && !private_of(tp)->rounds,
		"competes, or probes in %u rounds", private_of(tp)->rounds);
	alone = RULE_COUPLED;
	/* A probe that idling interrupts does not bring back the window from before. */
	begin_probing();
	round_of(3, 60000);
	restart();
	tp->snd_cwnd = 10;
	tp->snd_ssthresh = 5;
	round_of(3, 60000);
	round_of(3, 60000);
	require(tp->snd_cwnd <= 12 && !private_of(tp)->probing, "cwnd %u after idling",
		tp->snd_cwnd);
	compete = COMPETE_NEVER;
	decide_at_once();
}

/* Whether the subflow competes after a loss, or an ECN mark. */
static bool competes_after(bool loss)
{
	tp->prior_ssthresh = loss ? 55 : 0;
	CALL(mpcc_ssthresh, ARG(tp));
	return private_of(tp)->competing;
}

static void check_losses(void)
{
	begin_probing();
	require(!competes_after(false), "a mark");
	require(competes_after(true), "a loss");
	require(private_of(tp)->rounds == PROBE_EVERY, "a probe in %u rounds",
		private_of(tp)->rounds);
	/* Not in slow start, not in the paper, and not alone. */
	begin_probing();
	tp->snd_ssthresh = 100;
	require(!competes_after(true), "in slow start");
	begin_probing();
	compete = COMPETE_NEVER;
	require(!competes_after(true), "compete=never");
	begin_probing();
	flow_of(tp)->uncoupled = 1;
	require(!competes_after(true), "alone");
	compete = COMPETE_NEVER;
	decide_at_once();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	alone = RULE_COUPLED;
	check_probes();
	check_losses();
	start(1);
	alone = RULE_COUPLED;
	drain = DRAIN_ANY;
	rtt = RTT_MEAN;
	noise_us = 0;
	/* The first ACK begins a round and ends none. */
	ack(0, 0);
	require_window(20, 2, 0);
	/* The round ends after the byte that was the last when it began. */
	ack(1000, 50000);
	ack(1000, 50000);
	require_window(20, 2, 0);
	ack(1001, 50000);
	require_window(21, 2, 0);
	/* Two samples are too few. */
	round_of(2, 60000);
	require_window(21, 2, 0);
	require_reno_step();
	/* 3 packets wait; up to 10 may while the subflow is alone. */
	round_of(3, 60000);
	require_window(22, 10, 10000);
	/* A queue that has more than doubled is drained. */
	round_of(3, 71000);
	require_window(8, 10, 0);

	/* With drain=above-alpha only if more than twice alpha waits. */
	drain = DRAIN_ABOVE_ALPHA;
	tp->snd_cwnd = 50;
	round_of(3, 60000);
	round_of(3, 71000);
	require_window(50, 10, 10000);
	tp->snd_cwnd = 68;
	round_of(3, 71000);
	require_window(23, 10, 0);

	/* Neither jitter on all samples but one nor a delay within the noise is a queue. */
	rtt = RTT_SMALLEST;
	tp->snd_cwnd = 50;
	ack(private_of(tp)->round_end, 71000);
	ack(private_of(tp)->round_end, 50000);
	ack(private_of(tp)->round_end + 1, 71000);
	require_window(51, 10, 0);
	noise_us = 21000;
	round_of(3, 71000);
	require_window(52, 10, 0);
	round_of(3, 71001);
	require_window(51, 10, 21001);
	noise_us = 0;
	rtt = RTT_MEAN;
	private_of(tp)->queue_us = 0;

	/* A window that is not used up may shrink, but does not grow. */
	tp->snd_cwnd = 20;
	tp->is_cwnd_limited = 0;
	round_of(3, 50000);
	require_window(20, 10, 0);
	tp->snd_cwnd = 40;
	round_of(3, 75000);
	require_window(39, 10, 25000);

	/* In a recovery Reno; then all but the base RTT begins anew. */
	tp->is_cwnd_limited = 1;
	set_state(TCP_CA_Recovery);
	flow_of(tp)->credit_q29 = 0;
	ack(private_of(tp)->round_end + 1, 75000);
	require_reno_step();
	set_state(TCP_CA_Open);
	require_window(39, 2, 0);
	require(private_of(tp)->base_rtt_us == 50000, "base RTT %u", private_of(tp)->base_rtt_us);
	/* After a pause the base RTT begins anew, too. */
	restart();
	round_of(3, 90000);
	require_window(40, 2, 0);

	/* A backup beside a usable subflow does not count: Reno. */
	start(2);
	connection.contexts[0].backup = 1;
	connection.subflows[1].snd_cwnd = 20;
	ack(0, 0);
	round_of(3, 50000);
	require_window(20, 2, 0);
	require_reno_step();
	require(flow_of(tp)->uncoupled, "not alone");

	/* A round that finds no sibling hands the window to CUBIC; beside a sibling again the rounds start over. */
	start(1);
	alone = RULE_CUBIC;
	ack(0, 0);
	round_of(3, 50000);
	require(flow_of(tp)->uncoupled, "not alone");
	tp->tcp_mstamp += 100000;
	ack(private_of(tp)->round_end + 1, 50000);
	require(flow_of(tp)->curve_subflows == 1, "no curve");
	join_sibling();
	tp->tcp_mstamp += 100000;
	ack(private_of(tp)->round_end + 1, 50000);
	require(!flow_of(tp)->uncoupled, "alone");
	ack(private_of(tp)->round_end + 1, 50000);
	require(private_of(tp)->alpha == 2 && private_of(tp)->samples == 1, "no new round");
	return 0;
}

/* The round as the harness counts. */
static struct {
	__u32 end; /* the byte after which the round ends */
	__u32 samples;
	double sum_us;
	__u32 smallest_us;
	__u32 base_us;
	bool recovering; /* no rounds */
} model;

static void new_round(void)
{
	model.end = tp->snd_nxt;
	model.samples = 0;
	model.sum_us = 0;
}

static void check_round(void)
{
	const struct cc_state *state = private_of(tp);
	struct mpcc_path p = { .srtt_us8 = tp->srtt_us };
	double rtt_us8 = tp->srtt_us;

	if (model.samples)
		rtt_us8 = rtt == RTT_MEAN ? 8 * model.sum_us / model.samples :
					    8. * model.smallest_us;
	cc_hooks.read_private(&p, tp, state, state);
	if (rtt_us8 > ~0U)
		rtt_us8 = ~0U;
	require(__builtin_fabs(p.srtt_us8 - rtt_us8) <= 1, "RTT %u, want %g", p.srtt_us8, rtt_us8);
	require(p.base_rtt_us == model.base_us, "base RTT %u, want %u", p.base_rtt_us,
		model.base_us);
	require(p.alpha >= MIN_ALPHA && p.alpha <= TOTAL_ALPHA, "alpha %u", p.alpha);
}

static void check_ack(__u32 byte, __u32 rtt_us)
{
	bool over = wrapping_diff(byte, model.end) > 0,
	     moves = over || model.recovering || in_slow_start(tp) || private_of(tp)->competing;
	__u32 before = tp->snd_cwnd, most = before;

	if (private_of(tp)->probing && private_of(tp)->probed_cwnd > most)
		most = private_of(tp)->probed_cwnd;
	/* The sum of a round's samples has 32 bits. */
	if (rtt_us && !model.recovering && (rtt != RTT_MEAN || model.sum_us + rtt_us <= ~0U)) {
		if (!model.samples || rtt_us < model.smallest_us)
			model.smallest_us = rtt_us;
		model.samples++;
		model.sum_us += rtt_us;
		if (!model.base_us || rtt_us < model.base_us)
			model.base_us = rtt_us;
	}
	if (over && !model.recovering)
		new_round();
	ack(byte, rtt_us);
	require(tp->snd_cwnd == before || moves, "cwnd %u from %u in mid-round", tp->snd_cwnd,
		before);
	require(tp->snd_cwnd >= 2 && tp->snd_cwnd <= most + 1, "cwnd %u from %u", tp->snd_cwnd,
		most);
}

static void draw_event(struct input *in)
{
	__u32 number = draw_number(in, 31);

	switch (draw_byte(in) % 8) {
	case 0:
		check_ack(model.end - 500 + number % 1000, draw_number(in, 31));
		return;
	case 1:
		model.recovering = number % 2;
		set_state(model.recovering ? TCP_CA_Recovery : TCP_CA_Open);
		if (!model.recovering)
			new_round();
		return;
	case 2:
		model.recovering = false;
		model.base_us = 0;
		restart();
		new_round();
		return;
	case 3:
		check_ack(model.end, 0);
		return;
	default:
		check_ack(model.end, number);
	}
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };

	start(1);
	alone = RULE_COUPLED;
	drain = draw_byte(&in) % 2;
	rtt = draw_byte(&in) % 2;
	compete = draw_byte(&in) % 2;
	memset(&model, 0, sizeof(model));
	new_round();
	ack(0, 0);
	while (in.size) {
		draw_event(&in);
		check_round();
	}
	return 0;
}
