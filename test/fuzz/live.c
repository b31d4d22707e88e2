// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * One congestion control (-DALGORITHM=lia) on a connection's sockets, over any sequence of ACKs, silences, losses and
 * timeouts, while subflows come, go and become backups:
 *   an ACK moves a window by what the rule gives for so many segments, and no further when the subflow comes to be alone or
 *   beside siblings. On CUBIC's course the rule is the curve, which a decision ages by the subflow's part of the time
 *   a decision is kept for an RTT at most, on mpCUBIC's curve for half of one or two ticks for each subflow, alone for half
 *   of one, or a tick once the window has moved, however long a silence was
 *   slow start ends early by HyStart alone
 *   a window does not fall below its floor, nor grow by more than a packet for each acknowledged one, and the credit towards
 *   the next packet is less than one
 * also where the peer, or the path, is hostile: ACKs for nothing and for more than was ever sent, RTTs of nothing and of
 * hours, silences of days
 * and once: nine subflows count, a socket that is another connection's by now does not, plain TCP is handed over, and
 * the last day of a week's transfer is as the second, and status's coupling is worked out twice a second.
 */
#include "native.h"

#include SOURCE(cc, ALGORITHM)
#include "bounds.h"
#include "connection.h"

#define NUMBER_OF_cdd 1

static __u64 now_us;
static __u32 subflows; /* that events happen to */
static __u32 linked; /* a bit for each subflow in the connection */
static bool hostile;

/* A subflow's last decision. */
static struct {
	__u64 at_us;
	__u32 cwnd; /* at that time */
	bool made; /* since the last loss */
	double up; /* packets that an acknowledged segment adds at most */
} decisions[MPCC_MAX_SUBFLOWS];

/* A subflow's CUBIC course at most: as if something had been in flight all the time. */
static struct {
	double age_s, k_s;
	double origin, friendly; /* packets */
	double acked; /* segments since the last decision */
	double part; /* of Reno's growth, that the hook shift left it at the last look at siblings */
	__u64 at_us; /* the last decision */
	bool begun; /* since the last loss */
} courses[MPCC_MAX_SUBFLOWS];

static void start(void)
{
	now_us = 1ULL << 20;
	linked = (1 << MPCC_MAX_SUBFLOWS) - 1;
	join(MPCC_MAX_SUBFLOWS, &ALGORITHM);
	memset(decisions, 0, sizeof(decisions));
	memset(courses, 0, sizeof(courses));
	for (__u32 i = 0; i < MPCC_MAX_SUBFLOWS; i++) {
		struct tcp_sock *tp = &connection.subflows[i];

		tp->snd_cwnd = 10;
		tp->snd_ssthresh = 20;
		tp->srtt_us = 50000 << 3;
		tp->rtt_min.s[0].v = 40000;
		tp->tcp_mstamp = now_us;
		tp->mss_cache = 1400;
		tp->snd_wnd = 1 << 20;
		set_interface(i, 0);
		private_of(tp)->flow.base_rtt_us = 40000;
#if NUMBER_OF(ALGORITHM) == NUMBER_OF_cdd
		/* CDD's cuts are for cdd_periods.c. */
		private_of(tp)->next_cut_us = ~0ULL;
#endif
	}
}

/* The part of Reno's growth that the hook shift leaves an uncoupled subflow at most. */
static double part_of(__u32 i, struct tcp_sock *before, struct tcp_sock *tp)
{
	const struct mpcc_flow *flow = flow_of(tp);
	struct mpcc_flow decided = *flow_of(before);
	struct cc_view v;

	decided.together = flow->together;
	if (flow->looked && !cc_hooks.grow) {
		look(&v, tp, SUMS_FOR_SHIFT);
		courses[i].part = __builtin_fmax(
			0x1p-10, __builtin_fmin(1, value_of(part_of_growth(&v)) + 0x1p-11));
	} else if (!part_stands(tp, &decided)) {
		courses[i].part = 1;
	}
	return courses[i].part;
}

/* What an acknowledged segment adds below a target window, as the kernel counts; else a hundredth of Reno's step. */
static double step_towards(double target, double w)
{
	return target > w ? 1 / __builtin_fmax(2, __builtin_floor(w / (target - w))) :
			    1 / (100 * w);
}

/* What a decision on CUBIC's course gives an acknowledged segment at most; a packet is for rounding. */
static double step_on_course(__u32 i, struct tcp_sock *before, struct tcp_sock *tp)
{
	double part = part_of(i, before, tp), w = tp->snd_cwnd, s;
	const struct mpcc_flow *flow = flow_of(tp);

	/* RTTs of more than 35 minutes have the clock of 32 bits go round. */
	if (hostile)
		return 0.5;
	if (flow_of(before)->curve_subflows != 1 || !courses[i].begun) {
		courses[i].begun = true;
		courses[i].age_s = 0;
		courses[i].origin = __builtin_fmax(flow->last_max, w);
		courses[i].k_s = __builtin_cbrt((courses[i].origin - w) / 0.4);
		courses[i].friendly = w;
	} else {
		/* The part of the time may be by 1/800 too large. */
		courses[i].age_s += __builtin_cbrt(part * part) * (1 + 1 / 800.) *
				    (now_us - courses[i].at_us) * 1e-6;
		courses[i].friendly += part * courses[i].acked / __builtin_floor(w * 15 / 8);
	}
	courses[i].acked = 0;
	courses[i].at_us = now_us;
	/* K is cut to a tick. */
	s = courses[i].age_s + min_rtt_of(tp) * 1e-6 - courses[i].k_s + 1024e-6;
	return __builtin_fmax(
		__builtin_fmax(step_towards(courses[i].origin + 0.4 * s * s * s + 1, w),
			       step_towards(courses[i].friendly + 1, w)),
		flow->last_max ? 0 : 1 / 20.);
}

/* alpha / w of queue.h at most: 10 packets an RTT, or what fills a sixteenth of a queue of 5/8 of the smallest RTT. */
static double step_of_queue(double w)
{
	return response == RESPONSE_QUEUE ? __builtin_fmin(10 / w, 5 / 13. / 16) : 0;
}

/* What a decision, just made, gives an acknowledged segment at most. */
static double per_segment(__u32 i, struct tcp_sock *before, struct tcp_sock *tp)
{
	const struct bounds *bounds = bounds_of_algorithm();
	const struct mpcc_flow *flow = flow_of(tp);
	double w = tp->snd_cwnd;

	if (flow->uncoupled)
		return __builtin_fmax(alone == RULE_CUBIC ? step_on_course(i, before, tp) : 1 / w,
				      step_of_queue(w));
	/* A part of the whole's growth (whole.c). */
	if (are_one_cubic())
		return 0.5;
	return bounds->up == HALF_WINDOW ? 0.5 : bounds->up / w;
}

/* The window that the algorithm counts with: while wVegas probes, the window from before, which comes back. */
static __u32 window_of(struct tcp_sock *tp)
{
	struct mpcc_path p = { .cwnd = tp->snd_cwnd };

	if (cc_hooks.read_private)
		cc_hooks.read_private(&p, tp, private_of(tp), private_of(tp));
	return p.cwnd;
}

/* Whether a subflow grows without steps, also with the ACK that finds the subflow alone, or alone no longer. */
static bool sets_window(const struct tcp_sock *before, const struct tcp_sock *after)
{
	return cc_hooks.grow && !(flow_of(before)->uncoupled && flow_of(after)->uncoupled);
}

/* Growth without steps may also shrink the window, and adds one packet a round. */
static void check_move(__u32 i, struct tcp_sock *before, __u32 segments, __u32 left)
{
	const struct bounds *bounds = bounds_of_algorithm();
	const struct tcp_sock *tp = &connection.subflows[i];
	const struct mpcc_flow *flow = flow_of(tp);
	bool sets = sets_window(before, tp);
	__u32 decided_cwnd = decisions[i].made ? decisions[i].cwnd : before->snd_cwnd;
	/* While wVegas competes, its decisions are steps. */
	double step = __builtin_ldexp(flow->step_q29, -29);
	double reno = 1.0 / before->snd_cwnd;
	double set_up = flow->decided && step <= 1 && step > reno ? step : reno;
	double up = sets ? set_up : decisions[i].up;
	double down = bounds->down == ANY ? decided_cwnd : bounds->down / decided_cwnd;
	double grown = segments - left + left * up + 1 + sets + (before->snd_cwnd < 2);
	double shrunk = left * (flow->uncoupled ? 0 : down) + 1;
	__u32 least = sets ? 2 : flow->decided ? flow->floor : 1;
	__u32 from = window_of(before) > before->snd_cwnd ? window_of(before) : before->snd_cwnd;
	/* What CUBIC leaves of the window, which slow start may have raised first. */
	__u64 least_left = before->snd_cwnd * 717ULL / 1024;
	__u64 most_left = ((__u64)before->snd_cwnd + segments - left) * 717 / 1024;
	bool left_enough = tp->snd_ssthresh + 1 >= least_left;

	/*
	 * A sibling's loss costs the window what CUBIC takes, before it grows again. Where the window was cut for that event
	 * before, the loss costs nothing: then the threshold stays, and only a rule's steps shrink the window.
	 */
	if (flow->answered > flow_of(before)->answered &&
	    (tp->snd_ssthresh != before->snd_ssthresh ||
	     (tp->snd_cwnd < before->snd_cwnd && left_enough &&
	      tp->snd_ssthresh <= most_left + 1))) {
		require(left_enough && tp->snd_cwnd + shrunk >= tp->snd_ssthresh &&
				tp->snd_cwnd <= (__u64)tp->snd_ssthresh + left / 2 + 1,
			"subflow %u: cwnd %u from %u, ssthresh %u, %u segments", i, tp->snd_cwnd,
			before->snd_cwnd, tp->snd_ssthresh, left);
		return;
	}
	require(tp->snd_cwnd <= from + grown, "subflow %u: cwnd %u from %u, %u of %u", i,
		tp->snd_cwnd, before->snd_cwnd, left, segments);
	require(sets || tp->snd_cwnd + shrunk >= before->snd_cwnd,
		"subflow %u: cwnd %u from %u, %u segments", i, tp->snd_cwnd, before->snd_cwnd,
		left);
	require(tp->snd_cwnd >= least || tp->snd_cwnd >= before->snd_cwnd,
		"subflow %u: cwnd %u from %u, floor %u", i, tp->snd_cwnd, before->snd_cwnd, least);
	require(decided_cwnd < 2 || tp->snd_cwnd <= (__u64)from + segments + 1 + sets,
		"subflow %u: cwnd %u from %u, %u segments", i, tp->snd_cwnd, before->snd_cwnd,
		segments);
	require(flow->credit_q29 > -MPCC_Q29_ONE && flow->credit_q29 < MPCC_Q29_ONE,
		"subflow %u: credit %d", i, flow->credit_q29);
	if (sets || tp->snd_ssthresh == before->snd_ssthresh)
		return;
	require(slow_start == SLOW_START_HYSTART && before->snd_cwnd >= 16 &&
			tp->snd_ssthresh == before->snd_cwnd &&
			before->snd_cwnd < before->snd_ssthresh,
		"subflow %u: ssthresh %u from %u, cwnd %u", i, tp->snd_ssthresh,
		before->snd_ssthresh, before->snd_cwnd);
}

/*
 * Whether an ACK has made a decision: a decision looks for siblings. With couple=shared a verdict does so too, and a subflow
 * coupled with none decides without; then the clock tells.
 */
static bool has_decided(const struct mpcc_flow *flow, const struct mpcc_flow *before)
{
	__u32 now = (__u32)now_us;

	if (couple == COUPLE_ALWAYS && !cc_hooks.grow)
		return looks;
	return flow->decided && flow->decided_us == now &&
	       !(before->decided && before->decided_us == now);
}

static void note_decision(__u32 i, struct tcp_sock *before, __u32 cwnd)
{
	struct tcp_sock at_decision = connection.subflows[i];

	at_decision.snd_cwnd = cwnd;
	decisions[i].made = true;
	decisions[i].at_us = now_us;
	decisions[i].cwnd = cwnd;
	decisions[i].up = per_segment(i, before, &at_decision);
}

static void check_decision(__u32 i, struct tcp_sock *before)
{
	const struct mpcc_flow *flow = flow_of(&connection.subflows[i]);
	__u64 rtt_us = before->srtt_us >> 3;
	__u64 least_us = 100, for_us = rtt_us;
	bool moved = flow_of(before)->moved;

	if (flow->curve_subflows > 1 && !are_one_cubic()) {
		least_us = 2048 * flow->curve_subflows;
		for_us = rtt_us / 2;
	} else if (flow->curve_subflows > 1) {
		least_us = 6144 * flow->curve_subflows;
	} else if (flow->curve_subflows && !flow->looked) {
		/* Alone, a decision of CUBIC stands for a tick once the window has moved, for longer before. */
		least_us = 1024;
		for_us = moved ? 0 : rtt_us < 62500 ? rtt_us / 2 : 31250;
	}
	require(decisions[i].made, "subflow %u: no decision", i);
	/* The clock goes round in 71 minutes. */
	require((now_us - decisions[i].at_us) % (1ULL << 32) <
			(for_us > least_us ? for_us : least_us),
		"subflow %u: decided %llu us ago, RTT %llu us", i, now_us - decisions[i].at_us,
		rtt_us);
}

/*
 * With nothing in flight the course begins no earlier than the segment that the next ACK is for. By an old sample that
 * segment may have left before the course began.
 */
static void watch_pause(__u32 i, const struct tcp_sock *tp)
{
	double since_s = (now_us - courses[i].at_us) * 1e-6, rtt_s = tp->rack.rtt_us * 1e-6;

	if (!tp->packets_out && rtt_s > courses[i].age_s + since_s)
		courses[i].age_s = rtt_s - since_s;
}

static void ack(__u32 i, __u32 segments)
{
	struct tcp_sock *tp = &connection.subflows[i], before;
	__u32 room, left, window, ssthresh;

	tp->tcp_mstamp = now_us;
	before = *tp;
	looks = 0;
	CALL(mpcc_cong_avoid, ARG(tp), tp->snd_una, segments);
	window = window_of(&before);
	/* HyStart lowers the threshold before the segments count, and the answer to a sibling's loss moves it after that. */
	ssthresh = tp->snd_ssthresh < before.snd_ssthresh ? tp->snd_ssthresh : before.snd_ssthresh;
	room = ssthresh > window ? ssthresh - window : 0;
	left = before.is_cwnd_limited && segments > room ? segments - room : 0;
	watch_pause(i, tp);
	courses[i].acked += left < 65535 ? left : 65535;
	if (left && has_decided(flow_of(tp), flow_of(&before)))
		note_decision(i, &before, window + room);
	else if (left && !sets_window(&before, tp))
		check_decision(i, &before);
	check_move(i, &before, before.is_cwnd_limited ? segments : 0, left);
}

/* A loss, and the recovery from it. */
static void lose(__u32 i)
{
	struct tcp_sock *tp = &connection.subflows[i];
	__u32 before;

	tp->tcp_mstamp = now_us;
	tp->snd_ssthresh = CALL(mpcc_ssthresh, ARG(tp));
	/* Losses of an event that was answered for a sibling change nothing. */
	if (!flow_of(tp)->whole || flow_of(tp)->lost) {
		decisions[i].made = false;
		courses[i].begun = false;
	}
	/* A loss ends a wVegas probe first: the window is again the one before the probe. */
	before = tp->snd_cwnd;
	require(tp->snd_ssthresh && (tp->snd_ssthresh <= before || tp->snd_ssthresh == 2),
		"subflow %u: ssthresh %u, cwnd %u", i, tp->snd_ssthresh, before);
	tp->snd_cwnd = tp->snd_ssthresh;
}

static void set_state(__u32 i, __u8 state)
{
	struct tcp_sock *tp = &connection.subflows[i];

	tp->inet_conn.icsk_ca_state = state;
	CALL(mpcc_set_state, ARG(tp), state);
}

static void time_out(__u32 i)
{
	lose(i);
	connection.subflows[i].snd_cwnd = 1;
	set_state(i, TCP_CA_Loss);
}

#define DAY_S 86400
#define WEEK_DAYS 7

/* Two paths for a week: each second an ACK for all segments of that second, and a loss now and then. */
static void transfer_for_a_week(void)
{
	static const __u32 rtt_us[] = { 20000, 80000 }, loss_every_s[] = { 10, 17 };
	__u64 packets[WEEK_DAYS][2] = {};

	start();
	linked = 3;
	link_only(linked);
	for (__u64 second = 0; second < WEEK_DAYS * DAY_S; second++) {
		now_us += 1000000;
		for (__u32 i = 0; i < 2; i++) {
			struct tcp_sock *tp = &connection.subflows[i];
			__u64 segments = tp->snd_cwnd * (1000000ULL / rtt_us[i]);

			set_rtt(tp, rtt_us[i]);
			tp->snd_una = (__u32)((__u64)tp->snd_una + segments * 1400);
			tp->snd_nxt = (__u32)((__u64)tp->snd_una + tp->snd_cwnd * 1400ULL);
			tp->bytes_acked += segments * 1400;
			ack(i, segments);
			packets[second / DAY_S][i] += tp->snd_cwnd;
			if (second % loss_every_s[i] == 0)
				lose(i);
		}
	}
	for (__u32 i = 0; i < 2; i++) {
		double second_day = packets[1][i], last_day = packets[WEEK_DAYS - 1][i];

		require(second_day >= DAY_S && __builtin_fabs(last_day / second_day - 1) < 0.01,
			"subflow %u: %g packets on the second day, %g on the last", i,
			second_day / DAY_S, last_day / DAY_S);
	}
}

/*
 * A slow subflow is coupled with a fast sibling for two seconds; then the sibling leaves. Of the segments acknowledged
 * beside the sibling only the rule's part counts for Reno's window.
 */
static void outlive_sibling(void)
{
	static const __u32 rtt_us[] = { 100000, 10000 };

	start();
	growth = GROWTH_CUBIC;
	for (__u32 i = 0; i < 2; i++) {
		struct tcp_sock *tp = &connection.subflows[i];

		tp->snd_cwnd = i ? 400 : 10;
		tp->snd_ssthresh = 2;
		tp->packets_out = 1;
		set_rtt(tp, rtt_us[i]);
		flow_of(tp)->last_max = tp->snd_cwnd;
	}
	for (__u32 rtts = 0; rtts < 40; rtts++) {
		link_only(rtts < 20 ? 3 : 1);
		now_us += rtt_us[0];
		ack(0, connection.subflows[0].snd_cwnd);
	}
}

static void require_counting(__u32 n)
{
	struct cc_view v;

	look(&v, &connection.subflows[0], SUMS_FOR_SHIFT);
	require(v.counting == n, "%u count, want %u", v.counting, n);
}

/* A backup beside usable subflows does not count, coupled with any of them or with none. */
static void require_idle_backup(void)
{
	struct cc_view v;

	connection.contexts[0].backup = 1;
	for (int together = 0; together <= MPCC_ALL_TOGETHER; together += MPCC_ALL_TOGETHER) {
		flow_of(&connection.subflows[0])->together = together;
		look(&v, &connection.subflows[0], SUMS_FOR_SHIFT);
		require(!v.coupled, "together %x: the backup counts", together);
	}
	connection.contexts[0].backup = 0;
}

/* A subflow whose live state is refreshed every 20 ms for ten seconds, beside a sibling. */
static void require_couplings(void)
{
	struct tcp_sock *tp = &connection.subflows[0];
	struct mpcc_subflow live = { .opened_us = tp->tcp_mstamp, .updated_us = tp->tcp_mstamp };
	__u32 made = 0;

	require(!coupling_stands(tp, &live), "a new subflow has no coupling");
	for (__u32 i = 0; i < 500; i++) {
		tp->tcp_mstamp += 20000;
		made += !coupling_stands(tp, &live);
		live.updated_us = tp->tcp_mstamp;
	}
	require(made >= 19 && made <= 21, "%u couplings in ten seconds", made);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static struct mptcp_subflow_context elsewhere;
	struct tcp_sock plain_tcp = {};
	struct mpcc_flow untouched = { .last_max = 7 };

	start();
	require_idle_backup();
	require_couplings();
	require_counting(9);
	connection.subflows[8].inet_conn.icsk_ulp_data = &elsewhere;
	require_counting(8);
	connection.subflows[7].is_mptcp = false;
	require_counting(7);

	*flow_of(&plain_tcp) = untouched;
	CALL(mpcc_init, ARG(&plain_tcp));
	require(!strcmp(given_control, "cubic"), "%s", given_control);
	require(flow_of(&plain_tcp)->last_max == 7, "the kernel's state is overwritten");
	/* The kernel has no cubic; and with plain=own none is asked for. */
	setsockopt_error = -ENOENT;
	CALL(mpcc_init, ARG(&plain_tcp));
	require(!flow_of(&plain_tcp)->last_max, "the state is not begun");
	setsockopt_error = 0;
	memset(given_control, 0, sizeof(given_control));
	plain = PLAIN_OWN;
	CALL(mpcc_init, ARG(&plain_tcp));
	require(!given_control[0], "%s", given_control);
	plain = PLAIN_KERNEL;
	CALL(mpcc_init, ARG(&connection.subflows[0]));
	require(!given_control[0], "%s", given_control);
	outlive_sibling();
	transfer_for_a_week();
	return 0;
}

/* Most often within an RTT; else of any length, or near whole turns of a clock of 32 bits. */
static __u64 draw_pause(struct input *in)
{
	__u8 kind = draw_byte(in);

	if (kind < 200)
		return draw_number(in, 17);
	if (kind < 230)
		return draw_number(in, 36);
	if (hostile)
		return draw_number(in, 40);
	return ((__u64)(kind - 229) << 31) + draw_number(in, 20) - draw_number(in, 12);
}

static void draw_event(struct input *in, __u32 i)
{
	struct tcp_sock *tp = &connection.subflows[i];
	struct mptcp_subflow_context *ctx = &connection.contexts[i];

	switch (draw_byte(in) % 16) {
	case 0:
		lose(i);
		return;
	case 1:
		time_out(i);
		return;
	case 2:
		set_state(i, TCP_CA_Open);
		return;
	case 3:
		tp->snd_cwnd = CALL(mpcc_undo_cwnd, ARG(tp));
		return;
	case 4:
		linked ^= 1 << i;
		link_only(linked);
		return;
	case 5:
		linked = draw_byte(in) % (1 << subflows);
		link_only(linked);
		return;
	case 6:
		ctx->backup = !ctx->backup;
		return;
	case 7:
		tp->is_cwnd_limited = draw_byte(in) % 4 != 0;
		return;
	case 8:
		tp->srtt_us = draw_number(in, hostile ? 32 : 27);
		return;
	default:
		now_us += draw_pause(in);
		tp->snd_una += draw_number(in, 16);
		tp->snd_nxt = tp->snd_una + draw_number(in, 16);
		tp->rack.rtt_us = draw_number(in, hostile ? 32 : 24);
		if (tp->rack.rtt_us && tp->rack.rtt_us < tp->rtt_min.s[0].v)
			tp->rtt_min.s[0].v = tp->rack.rtt_us;
		tp->bytes_acked += draw_number(in, 24);
		/* An ACK is for no more than the window let out. */
		ack(i, hostile ? draw_number(in, 32) : 1 + draw_byte(in) % tp->snd_cwnd);
	}
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };

	start();
	draw_tunables(&in);
	hostile = draw_byte(&in) % 2;
	subflows = 1 + draw_byte(&in) % 3;
	linked = draw_byte(&in) % (1 << subflows);
	link_only(linked);
	for (__u32 i = 0; i < subflows; i++) {
		struct tcp_sock *tp = &connection.subflows[i];

		tp->snd_cwnd = 1 + draw_number(&in, 10);
		tp->snd_ssthresh = draw_byte(&in) % 2 ? draw_number(&in, 10) : 0x7fffffff;
		flow_of(tp)->last_max = draw_byte(&in) % 2 ? draw_number(&in, 12) : 0;
		/* Without anything in flight only an RTT before each ACK counts on the course. */
		tp->packets_out = draw_byte(&in) % 2;
		/* With couple=shared, subflows with the same interface are coupled: no record of delays tells otherwise. */
		set_interface(i, draw_byte(&in) % 2);
	}
	while (in.size) {
		__u32 i = draw_byte(&in) % subflows;

		draw_event(&in, i);
		if (connection.subflows[i].snd_cwnd > 1 << 24)
			return 0;
	}
	return 0;
}
