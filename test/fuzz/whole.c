// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Subflows that share a queue as one CUBIC (whole.h) under a control (-DALGORITHM=lia). From a loss on, with constant
 * windows and RTTs, the whole grows along CUBIC's course, from the window W = rtt_min sum_k w_k / rtt_k. Of a second's
 * growth of W a subflow has g / (rtt_min sum_k g_k / rtt_k); g is what the rule adds for an acknowledged segment. A loss
 * event costs each subflow what CUBIC takes, once; the loss of a packet that met no queue costs the one subflow a
 * sixteenth. With growth=reno, or couple=always, the rule's step and half of the window hold.
 */
#include "native.h"

#include SOURCE(cc, ALGORITHM)

#include "connection.h"
#include "delays.h"

#define NUMBER_OF_wvegas 1
#define NUMBER_OF_mpcubic 2

static struct tcp_sock *const tp = &connection.subflows[0];

/* Packets per cubic second. */
#define C 0.4

static bool is(const char *name)
{
	return !strcmp(ALGORITHM.name, name);
}

static double window(__u32 i)
{
	return connection.subflows[i].snd_cwnd;
}

static double rtt_s(__u32 i)
{
	return (connection.subflows[i].srtt_us >> 3) * 1e-6;
}

static double base_s(__u32 i)
{
	return connection.subflows[i].rtt_min.s[0].v * 1e-6;
}

/* DTS, Algorithm 1 */
static double eps(__u32 i)
{
	return 2 / (1 + __builtin_exp(-10 * (base_s(i) / rtt_s(i) - 0.5)));
}

static double largest(double (*of)(__u32), __u32 n)
{
	double value = of(0);

	for (__u32 i = 1; i < n; i++)
		value = __builtin_fmax(value, of(i));
	return value;
}

static double sum(double (*of)(__u32), __u32 n)
{
	double value = 0;

	for (__u32 i = 0; i < n; i++)
		value += of(i);
	return value;
}

/* Packets a second. */
static double rate(__u32 i)
{
	return window(i) / rtt_s(i);
}

static double rate_per_rtt_s(__u32 i)
{
	return rate(i) / rtt_s(i);
}

static double inverse_rtt(__u32 i)
{
	return 1 / rtt_s(i);
}

static double shortest_s(__u32 n)
{
	return 1 / largest(inverse_rtt, n);
}

static double longest_s(__u32 n)
{
	return largest(rtt_s, n);
}

/* Extended DTS: q_target is 5 ms. In whole microseconds, as a difference of seconds is not exact. */
static double is_queued(__u32 i)
{
	const struct tcp_sock *s = &connection.subflows[i];

	return (s->srtt_us >> 3) - s->rtt_min.s[0].v > 5000;
}

/* What the rule adds to subflow r of n, over Reno's 1 / w. */
static double rule_over_reno(__u32 r, __u32 n)
{
	double w = window(r), total = sum(rate, n), ratio;

	if (is("ewtcp"))
		return 1. / (n * n);
	/* Even parts. */
	if (is("mpcubic"))
		return 1;
	/* RFC 6356: alpha / W, at most 1 / w. A wVegas subflow that competes grows so, too. */
	if (is("lia") || is("wvegas"))
		return __builtin_fmin(largest(rate_per_rtt_s, n) / total / total * w, 1);
	ratio = eps(r) / largest(eps, n) * rate_per_rtt_s(r) / total / total * w;
	/* Without prices only a queue costs: half of the increase, unless all subflows have one. */
	if (is("dtsx") && is_queued(r) && sum(is_queued, n) < n)
		ratio /= 2;
	return ratio;
}

static void start(__u32 n)
{
	join_grown(n, &ALGORITHM);
#if NUMBER_OF(ALGORITHM) == NUMBER_OF_wvegas
	/* Within a round of a subflow that competes. */
	for (__u32 i = 0; i < n; i++) {
		struct cc_state *state = private_of(&connection.subflows[i]);

		state->competing = 1;
		state->alpha = MIN_ALPHA;
		state->round_end = 1;
	}
#endif
}

/* What a segment adds to the first window, for a packet that a segment adds to the whole. */
static double divided(__u32 n)
{
	double of_all = 0, of_first = rule_over_reno(0, n) / window(0);

	for (__u32 i = 0; i < n; i++)
		of_all += rule_over_reno(i, n) / window(i) / rtt_s(i);
	return of_first / (shortest_s(n) * of_all) * sum(rate, n) / rate(0);
}

/* The clock of all subflows. */
static void pass(__u32 n, double s)
{
	for (__u32 i = 0; i < n; i++)
		connection.subflows[i].tcp_mstamp += s * 1e6;
}

/* Follows the course for 100 decisions; returns how many tell of it. */
static int follow(__u32 n)
{
	double whole = __builtin_floor(shortest_s(n) * sum(rate, n) + 0.5), t = 0, of_part = 0,
	       dt = 4 * longest_s(n);
	__u32 telling = 0, windows[4];

	/* A part is kept in 2^-10. The plateau is the present window. */
	for (__u32 i = 0; i < n; i++) {
		windows[i] = connection.subflows[i].snd_cwnd;
		of_part = __builtin_fmax(of_part, 1 / 1024. / rule_over_reno(i, n));
	}
	for (int i = 0; i < 100; i++) {
		double at = t + shortest_s(n), above = C * at * at * at;

		/* The first comes last, when it knows the siblings' parts. */
		for (__u32 k = 1; k <= n; k++) {
			struct tcp_sock *s = &connection.subflows[k % n];

			CALL(mpcc_cong_avoid, ARG(s), 0, windows[k % n]);
			require(flow_of(s)->decided_us == (__u32)s->tcp_mstamp, "no decision");
			s->snd_cwnd = windows[k % n];
		}
		/* RFC 9438, section 4.3: 8/15 of a packet for each window of the whole. */
		above = __builtin_fmax(above, 8 / 15. * i * rtt_s(0) / shortest_s(n));
		/* Where the course is not above the window, growth is the least of the kernel's CUBIC. */
		if (above < 0.9 && i)
			require_step(tp, divided(n) / (100 * whole), of_part + 0.01,
				     "on the plateau");
		/* The course is in whole packets; each packet takes whole segments. */
		if (above > 20 && above < whole / 20. && above / whole * divided(n) < 0.45) {
			require_step(tp, above / whole * divided(n),
				     1 / above + above / whole + of_part + 0.01,
				     "above the plateau");
			telling++;
		}
		pass(n, dt);
		t += dt;
	}
	return telling;
}

/* With the fraction of a packet that it is ahead. */
static double first_window(void)
{
	return tp->snd_cwnd + __builtin_ldexp(flow_of(tp)->credit_q29, -29);
}

/* But for what one segment adds. */
static void require_window(double want, const char *what)
{
	require(__builtin_fabs(first_window() - want) < 0.51, "%s: window %g, want %g", what,
		first_window(), want);
}

static void lose(__u32 i)
{
	struct tcp_sock *s = &connection.subflows[i];

	s->snd_ssthresh = CALL(mpcc_ssthresh, ARG(s));
	s->snd_cwnd = s->snd_ssthresh;
	s->inet_conn.icsk_ca_state = TCP_CA_Recovery;
}

static void recover(__u32 i)
{
	connection.subflows[i].inet_conn.icsk_ca_state = TCP_CA_Open;
}

static void ack(__u32 i)
{
	CALL(mpcc_cong_avoid, ARG(&connection.subflows[i]), 0, 1);
}

/* An ACK for which the first decides. */
static void decide_now(void)
{
	flow_of(tp)->decided = 0;
	ack(0);
}

/* Loss events of n subflows, which have grown for a while. */
static void check_events(__u32 n)
{
	double w = first_window(), longest = longest_s(n);

	lose(1);
	decide_now();
	w *= 717 / 1024.;
	require_window(w, "a sibling has lost");
	require(tp->snd_cwnd - tp->snd_ssthresh <= 1, "ssthresh %u, cwnd %u", tp->snd_ssthresh,
		tp->snd_cwnd);
	/* The same event comes to light here. */
	pass(n, longest * 0.9);
	require(CALL(mpcc_ssthresh, ARG(tp)) == tp->snd_cwnd, "one event costs two cuts");
	/* And it is no news later, however long the sibling recovers. */
	pass(n, longest * 1.1);
	decide_now();
	require_window(w, "the sibling still recovers");
	/* Nor is what another sibling loses soon after an event. */
	recover(1);
	pass(n, longest * 2);
	decide_now();
	lose(1);
	decide_now();
	w *= 717 / 1024.;
	require_window(w, "the sibling loses once more");
	if (n > 2) {
		pass(n, longest * 0.5);
		lose(2);
		decide_now();
		require_window(w, "two siblings lose in one event");
		recover(2);
	}
	recover(1);
	pass(n, longest * 2);
	decide_now();
	/* A loss of its own is, and the sibling's before it then is none. */
	lose(1);
	lose(0);
	w *= 717 / 1024.;
	require_window(w, "an event of its own");
	recover(0);
	pass(n, longest * 1.1);
	decide_now();
	require_window(w, "the sibling recovers from that event");
	recover(1);
	/* What the sibling loses while the first recovers is the same event's. */
	pass(n, longest * 2);
	decide_now();
	lose(0);
	lose(1);
	w *= 717 / 1024.;
	recover(0);
	decide_now();
	require_window(w, "both lose in one event");
	recover(1);
	for (__u32 i = 0; i < n; i++)
		ack(i);
	pass(n, longest * 3);
	for (__u32 i = 0; i < n; i++)
		ack(i);
	w = first_window();
	lose(1);
	pass(n, longest * 1.1);
	decide_now();
	require_window(w * 717 / 1024., "the sibling loses again");
	pass(n, longest * 0.9);
	require(CALL(mpcc_ssthresh, ARG(tp)) == tp->snd_cwnd,
		"one event costs two cuts, after one of its own");
	/* Alone, the first goes on from its own window. */
	set_interface(0, 1);
	flow_of(tp)->together = 0;
	flow_of(tp)->trial = 1;
	pass(n, longest * 2);
	decide_now();
	require(!flow_of(tp)->trial, "a trial goes on from before");
	require(flow_of(tp)->last_max <= tp->snd_cwnd, "last_max %u, cwnd %u",
		flow_of(tp)->last_max, tp->snd_cwnd);
}

/*
 * What a segment adds right after a sibling's loss, on two subflows alike. The course is that after a loss at the present
 * windows, of which the sibling's is cut already.
 */
static void check_first_step(void)
{
	double lost_at = 3000 + 2100, w = lost_at * 717 / 1024;
	double k = __builtin_cbrt((lost_at - w) / C);
	double above = C * (k * k * k + (0.05 - k) * (0.05 - k) * (0.05 - k));

	start(2);
	set_path(0, 3000, 50000, 0);
	set_path(1, 3000, 50000, 0);
	for (int i = 0; i < 3; i++) {
		ack(0);
		ack(1);
		pass(2, 0.2);
	}
	/* A curve that began without a loss is no answer to the next one. */
	flow_of(tp)->curve_subflows = 0;
	decide_now();
	lose(1);
	decide_now();
	require_step(tp, above / (2 * window(0)), 1 / above, "after a sibling's loss");
}

/* With RTTs of 2 ms two subflows look at each other every 12.3 ms. A loss in between is answered, and once. */
static void check_short_rtt(void)
{
	for (int first_loses = 0; first_loses < 2; first_loses++) {
		double w;

		start(2);
		set_path(0, 200, 2000, 0);
		set_path(1, 200, 2000, 0);
		for (int i = 0; i < 3; i++) {
			pass(2, 0.2);
			ack(1);
			ack(0);
		}
		w = first_window();
		pass(2, 0.0005);
		if (first_loses)
			lose(0);
		lose(1);
		pass(2, 0.0025);
		recover(1);
		ack(1);
		if (first_loses) {
			recover(0);
			ack(0);
		}
		pass(2, 0.0095);
		ack(0);
		require_window(w * 717 / 1024., "a loss between two looks");
		pass(2, 0.013);
		ack(0);
		require_window(w * 717 / 1024., "a loss before the last look");
	}
}

/* An ACK for which subflow i decides. */
static void decide_for(__u32 i)
{
	flow_of(&connection.subflows[i])->decided = 0;
	ack(i);
}

/* What the first sees of its queue when it loses packets. */
struct sight {
	bool marked; /* by ECN; nothing is lost */
	bool near; /* delay is over a tenth of the longest that counts, and rtt_us over a quarter of peak_us */
	__u32 window, longest, delay, peak_us, rtt_us; /* the delays but for the smallest RTT */
};

/* Of an input that has ended: no queue. */
static struct sight draw_sight(struct input *in)
{
	struct sight s = { .marked = draw_byte(in) % 8 == 7 };

	s.window = 3000 >> draw_byte(in) % 11;
	s.longest = 1000 - draw_number(in, 10) % 1000;
	s.near = draw_byte(in) % 2;
	s.delay = draw_byte(in) % 4;
	s.peak_us = 64000 - draw_number(in, 16) % 64000;
	s.rtt_us = draw_byte(in) * 10;
	if (draw_byte(in) % 2)
		s.delay += draw_byte(in);
	return s;
}

/* True: the lost packet met no queue. */
static bool see(const struct sight *s)
{
	struct mpcc_queue *q = &flow_of(tp)->queue;
	__u32 base_us = tp->rtt_min.s[0].v, rtt_us = base_us + s->rtt_us + s->near * s->peak_us / 4;
	double base = units(base_us), rtt = units(rtt_us), counts = d_m(base, s->longest), unsure;

	response = RESPONSE_QUEUE;
	tp->prior_ssthresh = !s->marked;
	q->longest = s->longest;
	q->least = base;
	q->mean = base + s->delay + (__u32)(s->near * counts / 10);
	q->peak = units(base_us + s->peak_us);
	tp->rack.rtt_us = rtt_us;
	unsure = noise(base, q->mean);
	return tp->prior_ssthresh && is_known(base_us, q->longest, unsure) &&
	       is_short(q->mean - base, counts, unsure) && rtt - base <= (q->peak - base) / 4 &&
	       !is_full(base, rtt, q->peak);
}

/* A loss of the first of n subflows, 5 s after the curve's begin, behind any queue. */
static void check_queue(const struct sight *s, __u32 n)
{
	double cubic, left, whole, longest, delay, unsure, step;
	const struct mpcc_queue *q = &flow_of(tp)->queue;
	bool none, congestion;

	for (__u32 i = 1; i <= n; i++)
		decide_for(i % n);
	pass(n, 5);
	for (__u32 i = 1; i <= n; i++)
		decide_for(i % n);
	none = see(s);
	tp->snd_cwnd = s->window;
	left = __builtin_floor(window(0) * 15 / 16);
	cubic = __builtin_fmax(__builtin_floor(window(0) * 717 / 1024), 2);
	none = none && left > cubic;
	whole = shortest_s(n) * sum(rate, n);
	flow_of(tp)->credit_q29 = 0;
	flow_of(tp)->last_max = MPCC_MOST_PACKETS;
	flow_of(tp)->lost = 1; /* once before */
	flow_of(tp)->random = 1;
	congestion = s->marked ||
		     is_full(units(tp->rtt_min.s[0].v), units(tp->rack.rtt_us), q->peak);
	lose(0);
	require(flow_of(tp)->random == (none ? 2 : congestion), "random %u, %s, %s",
		flow_of(tp)->random, none ? "no queue" : "a queue",
		congestion ? "congestion" : "a loss");
	require(window(0) == (none ? left : cubic), "%g packets left, %s", window(0),
		none ? "no queue" : "a queue");
	cubic = window(1) * 717 / 1024;
	left = window(1);
	/* Later packets meet the queue that those before the loss have met: wVegas takes their RTT for the path's. */
	tp->rack.rtt_us = tp->srtt_us >> 3;
	decide_for(1);
	recover(0);
	require(__builtin_fabs(window(1) - (none ? left : cubic)) <= 1.01,
		"the sibling has %g packets of %g, %s", window(1), left,
		none ? "no queue" : "a queue");
	if (!none)
		return;
	/* Which way half a packet is rounded hangs on the last bit. */
	require(__builtin_fabs(flow_of(tp)->curve.origin - whole) < 0.5001 && !flow_of(tp)->curve.k,
		"the curve's plateau is %u, want %g", flow_of(tp)->curve.origin, whole);
	require(flow_of(tp)->curve.began_us == (__u32)tp->tcp_mstamp && !flow_of(tp)->decided,
		"the old curve goes on");
	/* The whole grows by the queue, as far as the rule lets the subflow grow. */
	decide_now();
	whole = shortest_s(n) * sum(rate, n);
	longest = d_m(units(tp->rtt_min.s[0].v), q->longest);
	delay = __builtin_fmax(q->mean - (double)q->least, 0);
	unsure = noise(units(tp->rtt_min.s[0].v), q->mean);
	step = __builtin_ldexp(flow_of(tp)->step_q29, -29);
	require(step <= 0 || !is_known(tp->rtt_min.s[0].v, q->longest, unsure) ||
			step > alpha(whole, delay, longest, unsure) / whole * 0.99,
		"%g a segment, the whole has %g packets", step, whole);
	/* Nor is the loss an answer to what a sibling loses just then. */
	cubic = first_window() * 717 / 1024;
	connection.subflows[1].prior_ssthresh = 0;
	lose(1);
	decide_now();
	require_window(__builtin_fmax(cubic, 2), "the sibling has lost as well");
}

/* The rule by itself. mpCUBIC's curves have a harness of their own. */
static void check_rule(__u32 n)
{
#if NUMBER_OF(ALGORITHM) != NUMBER_OF_mpcubic
	double w = tp->snd_cwnd;
	__u32 left = CALL(mpcc_ssthresh, ARG(tp));

	require(left == tp->snd_cwnd / 2, "growth=reno: %u packets left of %g", left, w);
	CALL(mpcc_cong_avoid, ARG(tp), 0, 1);
	tp->snd_cwnd = w;
	/* The table of eps is wrong by 2e-4 on both sides of a ratio (epsilon.h). */
	require_step(tp, rule_over_reno(0, n) / w, 4e-4, "growth=reno");
#endif
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	for (__u32 queued = 0; queued < 2; queued++) {
		start(2);
		set_path(0, 3000, 50000, queued ? 20000 : 0);
		set_path(1, 3000, 50000, queued ? 0 : 20000);
		require(follow(2) > 5, "no decision tells of the course");
		check_events(2);
	}
	check_first_step();
	check_short_rtt();
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	__u32 n = 2 + draw_byte(&in) % 3, kind = draw_byte(&in) % 8;
	struct sight sight = {};

	if (kind > 5)
		sight = draw_sight(&in);
	start(n);
	for (__u32 i = 0; i < n; i++) {
		__u32 base_us = 20000 + draw_number(&in, 17);

		set_path(i, 1000 + draw_number(&in, 12), base_us, draw_number(&in, 16) % base_us);
	}
	if (kind > 5) {
		check_queue(&sight, n);
		return 0;
	}
	if (kind > 1) {
		follow(n);
		check_events(n);
		return 0;
	}
	if (kind)
		growth = GROWTH_BY_RULE;
	else
		couple = COUPLE_ALWAYS;
	check_rule(n);
	return 0;
}
