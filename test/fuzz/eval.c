// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The decisions of one congestion control (-DALGORITHM=lia) on any input at all, besides the sanitizers' own checks:
 *   numbers are normal, their exponents small
 *   an increase is within the bound of the rule; that of a subflow alone or in a group by itself is CUBIC's or Reno's, as
 *   the tunable says, and no more than that beside other groups
 *   a loss never enlarges a window above the floor
 *   a window that an algorithm sets is at most a packet larger than before, and no less than two
 *   the same input gives the same decision, whatever the order of the subflows
 *   a socket that walks the connection decides the same as `mpcc eval` on the same numbers
 */
#include "native.h"

#include SOURCE(cc, ALGORITHM)
#include "bounds.h"
#include "connection.h"

#define NUMBER_OF_cdd 1

static bool close_to(double a, double b)
{
	return __builtin_fabs(a - b) <= 1e-6 * __builtin_fabs(b);
}

static void require_alike(const struct mpcc_decision *a, const struct mpcc_decision *b,
			  __u32 subflow)
{
	require(a->coupled == b->coupled, "subflow %u: %u, %u", subflow, a->coupled, b->coupled);
	require(a->alone == b->alone, "subflow %u: %u, %u", subflow, a->alone, b->alone);
	require(a->after_loss == b->after_loss, "subflow %u: %u, %u", subflow, a->after_loss,
		b->after_loss);
	require(a->window == b->window, "subflow %u: %u, %u", subflow, a->window, b->window);
	require(a->ssthresh == b->ssthresh, "subflow %u: %u, %u", subflow, a->ssthresh,
		b->ssthresh);
	require(close_to(value_of(a->increase.up), value_of(b->increase.up)), "subflow %u: %g, %g",
		subflow, value_of(a->increase.up), value_of(b->increase.up));
	require(close_to(value_of(a->increase.down), value_of(b->increase.down)),
		"subflow %u: %g, %g", subflow, value_of(a->increase.down),
		value_of(b->increase.down));
	require(a->coupling.negative == b->coupling.negative, "subflow %u: %u, %u", subflow,
		a->coupling.negative, b->coupling.negative);
	require(close_to(value_of(a->coupling.value), value_of(b->coupling.value)),
		"subflow %u: %g, %g", subflow, value_of(a->coupling.value),
		value_of(b->coupling.value));
}

static void draw_paths(struct input *in)
{
	memset(&eval, 0, sizeof(eval));
	eval.count = draw_byte(in) % (MPCC_MAX_SUBFLOWS + 1);
	for (__u32 i = 0; i < eval.count; i++) {
		struct mpcc_path *p = &eval.paths[i];
		__u8 flags;

		/* Fields that are not drawn below are raw bytes. */
		draw(in, p, sizeof(*p));
		p->theta = draw_num(in);
		p->last_max = draw_num(in);
		p->epoch_us = draw_number(in, 63);
		p->group = draw_byte(in) % 3;
		p->bytes_between_losses = draw_number(in, 64);
		p->bytes_since_loss = draw_number(in, 64);
		p->cwnd = draw_number(in, 32);
		p->ssthresh = draw_number(in, 32);
		p->srtt_us8 = draw_number(in, 32);
		p->base_rtt_us = draw_number(in, 32);
		flags = draw_byte(in);
		p->backup = flags >> 6 == 1;
		p->stale = flags >> 3 == 1;
		p->closing = flags >> 3 == 2;
		if (i && (flags & 7) == 3)
			*p = eval.paths[0];
	}
}

static void check_window(const struct bounds *bounds, const struct mpcc_path *p,
			 const struct mpcc_decision *d, __u32 subflow)
{
	if (d->window == p->cwnd && d->ssthresh == p->ssthresh)
		return;
	require(bounds->sets_window && d->coupled, "subflow %u: window %u, ssthresh %u", subflow,
		d->window, d->ssthresh);
	require(d->window >= 2 && d->window <= p->cwnd + 1ULL, "subflow %u: cwnd %u, window %u",
		subflow, p->cwnd, d->window);
	require(d->ssthresh <= p->ssthresh || d->ssthresh <= d->window,
		"subflow %u: ssthresh %u, window %u, %u after", subflow, p->ssthresh, d->window,
		d->ssthresh);
}

/* Beside others in other groups, the hook shift may leave a part of the growth. */
static void check_alone(const struct mpcc_path *p, const struct mpcc_decision *d, bool others,
			__u32 subflow)
{
	double up = value_of(d->increase.up), after = p->cwnd / 2.0;
	bool part = others && cc_hooks.shift;

	if (alone == RULE_CUBIC) {
		after = p->cwnd * 717.0 / 1024;
		require((up > 0 || part) && up <= 0.5, "subflow %u: cwnd %u, up %g", subflow,
			p->cwnd, up);
		/* RFC 9438, section 4.6: below the plateau before the first loss at least that fast. */
		if (p->last_max.m == 0 && !part)
			require(up >= 0.05 * (1 - 1e-6), "subflow %u: cwnd %u, up %g", subflow,
				p->cwnd, up);
	} else if (part) {
		require(up <= (p->cwnd ? 1.0 / p->cwnd * (1 + 1e-6) : 0),
			"subflow %u: cwnd %u, up %g", subflow, p->cwnd, up);
	} else {
		require(p->cwnd ? close_to(up, 1.0 / p->cwnd) : !up, "subflow %u: cwnd %u, up %g",
			subflow, p->cwnd, up);
	}
	after = after < 2 ? 2 : __builtin_floor(after);
	require(d->after_loss == after, "subflow %u: cwnd %u, after %u, want %g", subflow, p->cwnd,
		d->after_loss, after);
	require(!d->increase.down.m, "subflow %u", subflow);
	require(d->window == p->cwnd && d->ssthresh == p->ssthresh,
		"subflow %u: window %u, ssthresh %u", subflow, d->window, d->ssthresh);
}

/* How many paths are coupled, of a path's group or of all. */
static __u32 count_coupled(const struct mpcc_path *p, bool all)
{
	__u32 n = 0;

	for (__u32 i = 0; i < eval.count; i++)
		if (all || eval.paths[i].group == p->group)
			n += eval.decisions[i].coupled;
	return n;
}

static void check_decisions(void)
{
	const struct bounds *bounds = bounds_of_algorithm();

	for (__u32 i = 0; i < eval.count; i++) {
		const struct mpcc_path *p = &eval.paths[i];
		const struct mpcc_decision *d = &eval.decisions[i];
		double up = value_of(d->increase.up), down = value_of(d->increase.down), most_up;
		__u32 grouped = count_coupled(p, false);
		bool others = d->coupled && count_coupled(p, true) > grouped;
		__u32 most_after = p->cwnd > MPCC_RENO_FLOOR ? p->cwnd : MPCC_RENO_FLOOR;

		require_normal(d->increase.up, i);
		require_normal(d->increase.down, i);
		require_normal(d->coupling.value, i);
		check_window(bounds, p, d, i);
		require(d->after_loss && d->after_loss <= most_after,
			"subflow %u: cwnd %u, after %u", i, p->cwnd, d->after_loss);
		require(d->alone == (!d->coupled || (grouped == 1 && alone != RULE_COUPLED)),
			"subflow %u of %u: alone %u", i, grouped, d->alone);
		if (!d->coupled)
			require(!d->coupling.value.m, "subflow %u: %g", i,
				value_of(d->coupling.value));
		if (d->alone)
			check_alone(p, d, others, i);
		if (d->alone || !p->cwnd)
			continue;
		if (!bounds->not_reno && grouped == 1)
			require(close_to(up - down, 1.0 / p->cwnd),
				"subflow %u: cwnd %u, increase %g", i, p->cwnd, up - down);
		most_up = bounds->up == HALF_WINDOW ? p->cwnd / 2.0 : bounds->up;
		require(up <= most_up / p->cwnd * (1 + 1e-6) &&
				down <= bounds->down / p->cwnd * (1 + 1e-6),
			"subflow %u: cwnd %u, up %g, down %g", i, p->cwnd, up, down);
	}
}

static void check_order(void)
{
	struct mpcc_eval first = eval;

	memset(eval.decisions, 0, sizeof(eval.decisions));
	decide_given();
	require(!memcmp(&first, &eval, sizeof(eval)), "the second run differs");

	memset(eval.decisions, 0, sizeof(eval.decisions));
	for (__u32 i = 0; i < eval.count; i++)
		eval.paths[i] = first.paths[eval.count - 1 - i];
	decide_given();
	for (__u32 i = 0; i < eval.count; i++)
		require_alike(&eval.decisions[i], &first.decisions[eval.count - 1 - i], i);
}

static struct tcp_sock *const socks = connection.subflows;
static struct mptcp_subflow_context elsewhere;

static bool has_left(__u32 subflow)
{
	const struct tcp_sock *tp = &socks[subflow];

	return !tp->is_mptcp || tp->inet_conn.icsk_ulp_data == &elsewhere;
}

/* Any private state, but valid numbers of fixed.h. */
static void draw_state(struct input *in, struct cc_state *state)
{
	draw(in, state, sizeof(*state));
#if NUMBER_OF(ALGORITHM) == NUMBER_OF_cdd
	state->theta = draw_num(in);
#endif
}

/* Sockets with the paths' numbers; all other fields are drawn. */
static void draw_sockets(struct input *in)
{
	static const struct tcp_congestion_ops other;

	join(eval.count, &ALGORITHM);
	for (__u32 i = 0; i < eval.count; i++) {
		const struct mpcc_path *p = &eval.paths[i];
		struct tcp_sock *tp = &socks[i];
		struct mptcp_subflow_context *ctx = &connection.contexts[i];
		__u8 kind = draw_byte(in);

		tp->snd_cwnd = p->cwnd;
		tp->snd_ssthresh = p->ssthresh;
		tp->srtt_us = p->srtt_us8;
		tp->bytes_acked = p->bytes_since_loss;
		tp->tcp_mstamp = p->epoch_us;
		tp->snd_wnd = p->peer_window;
		tp->mss_cache = draw_number(in, 16);
		tp->rtt_min.s[0].v = p->base_rtt_us;
		/* The socket was freed, and is another connection's by now. */
		if (kind >> 4 == 1)
			tp->inet_conn.icsk_ulp_data = &elsewhere;
		if (kind >> 4 == 2)
			tp->is_mptcp = false;
		if (kind & 1)
			tp->inet_conn.icsk_ca_ops = &other;
		tp->inet_conn.icsk_inet.sk.__sk_common.skc_state = p->closing && kind & 2 ? 0 :
								   kind & 4 ? TCP_ESTABLISHED :
									      TCP_CLOSE_WAIT;
		draw_state(in, private_of(tp));

		ctx->backup = p->backup && kind & 8;
		ctx->request_bkup = p->backup && !(kind & 8);
		ctx->stale = p->stale;
		ctx->closing = p->closing && !(kind & 2);
		ctx->subflow_id = draw_byte(in);
	}
}

/* A subflow under this control has the bit of the subflow's place, a subflow under another control bit 10 or 11. */
static bool is_together(__u32 self, __u32 i)
{
	bool same_control = socks[i].inet_conn.icsk_ca_ops == &ALGORITHM;
	__u32 bit = same_control ? flow_of(&socks[i])->place :
				   10 + connection.contexts[i].subflow_id % 2;

	return flow_of(&socks[self])->together >> bit & 1;
}

/* The paths as one subflow sees the connection. */
static void see_from(__u32 self)
{
	for (__u32 i = 0; i < eval.count; i++) {
		struct mpcc_path *p = &eval.paths[i];

		*p = (struct mpcc_path){
			.cwnd = p->cwnd,
			.ssthresh = p->ssthresh,
			.srtt_us8 = socks[i].srtt_us,
			.backup = p->backup,
			.stale = p->stale,
			.closing = p->closing || has_left(i),
			.group = i != self && !is_together(self, i),
		};
		if (socks[i].inet_conn.icsk_ca_ops == &ALGORITHM)
			read_private(p, &socks[i], private_of(&socks[self]));
	}
}

static void check_walk(struct input *in)
{
	draw_sockets(in);
	for (__u32 i = 0; i < eval.count; i++) {
		struct mpcc_decision d = {};
		struct mpcc_setting setting;
		struct cc_view v;

		if (socks[i].inet_conn.icsk_ca_ops != &ALGORITHM || has_left(i))
			continue;
		see_from(i);
		memset(eval.decisions, 0, sizeof(eval.decisions));
		decide_given();
		if (count_coupled(&eval.paths[i], false) == eval.decisions[i].coupled)
			flow_of(&socks[i])->together = 0;
		look(&v, &socks[i], SUMS_FOR_SHIFT);
		decide_window(&setting, &v);
		decide_step(&d.increase, &v);
		d.after_loss = decide_after_loss(&v);
		d.coupled = v.coupled;
		d.alone = rule_for(&v) != RULE_COUPLED;
		d.window = setting.window;
		d.ssthresh = setting.ssthresh;
		look(&v, &socks[i], SUMS_OF_ALL);
		decide_coupling(&d.coupling, &v);
		require_alike(&d, &eval.decisions[i], i);
	}
}

/*
 * A subflow alone at a bottleneck decides as an only subflow. Under a control with the hook shift, the subflow grows by less
 * beside one with a shorter queue and cheaper bits.
 */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	for (alone = RULE_CUBIC; alone <= RULE_COUPLED; alone++) {
		struct mpcc_decision only;

		memset(&eval, 0, sizeof(eval));
		for (__u32 i = 0; i < 2; i++)
			eval.paths[i] = (struct mpcc_path){
				.cwnd = 40 + i,
				.srtt_us8 = (i ? 50000 : 80000) << 3,
				.base_rtt_us = 40000,
				.price_pj = i ? 100 : 200,
				.group = i,
			};
		eval.count = 1;
		decide_given();
		check_decisions();
		only = eval.decisions[0];
		eval.count = 2;
		decide_given();
		check_decisions();
		if (!cc_hooks.shift || alone == RULE_COUPLED)
			require_alike(&eval.decisions[0], &only, 0);
		else
			require(value_of(eval.decisions[0].increase.up) <
					0.9 * value_of(only.increase.up),
				"up %g, alone %g", value_of(eval.decisions[0].increase.up),
				value_of(only.increase.up));
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };

	draw_tunables(&in);
	draw_paths(&in);
	decide_given();
	check_decisions();
	check_order();
	check_walk(&in);
	return 0;
}
