// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The decisions of one congestion control (-DALGORITHM=lia) on any input at all, besides the
 * sanitizers' own checks:
 *   numbers are normal, their exponents small
 *   an increase is within the bound of its rule; one subflow alone is Reno
 *   a loss never enlarges a window above the floor
 *   the same input gives the same decision, whatever the order of the subflows
 *   a socket that walks its connection decides the same as `mpcc eval` on the same numbers
 */
#include "native.h"

/* It would put spaces into the path. */
/* clang-format off */
#define TEXT(x) #x
#define SOURCE(name) TEXT(cc/name.bpf.c)
/* clang-format on */
#include SOURCE(ALGORITHM)

/* By how many packets per window a rule grows at most. What is not here is not held to it. */
static const struct {
	const char *name;
	double most;
} bounds[] = {
	{ "lia", 1 },
	{ "olia", 2 },
	{ "dts", 2 },
};

static double bound(void)
{
	for (size_t i = 0; i < sizeof(bounds) / sizeof(*bounds); i++)
		if (!strcmp(ALGORITHM.name, bounds[i].name))
			return bounds[i].most;
	return 0;
}

static double value(struct mpcc_num x)
{
	return __builtin_ldexp(x.m, x.e);
}

static bool close_to(double a, double b)
{
	return __builtin_fabs(a - b) <= 1e-6 * __builtin_fabs(b);
}

static void require_normal(struct mpcc_num x, __u32 subflow)
{
	require(!x.m || x.m >> 31, "subflow %u: m %u", subflow, x.m);
	require(x.e > -400 && x.e < 400, "subflow %u: e %d", subflow, x.e);
}

static void require_alike(const struct mpcc_decision *a, const struct mpcc_decision *b,
			  __u32 subflow)
{
	require(a->coupled == b->coupled, "subflow %u: %u, %u", subflow, a->coupled, b->coupled);
	require(a->after_loss == b->after_loss, "subflow %u: %u, %u", subflow, a->after_loss,
		b->after_loss);
	require(close_to(value(a->increase.up), value(b->increase.up)), "subflow %u: %g, %g",
		subflow, value(a->increase.up), value(b->increase.up));
	require(close_to(value(a->increase.down), value(b->increase.down)), "subflow %u: %g, %g",
		subflow, value(a->increase.down), value(b->increase.down));
	require(a->coupling.negative == b->coupling.negative, "subflow %u: %u, %u", subflow,
		a->coupling.negative, b->coupling.negative);
	require(close_to(value(a->coupling.value), value(b->coupling.value)), "subflow %u: %g, %g",
		subflow, value(a->coupling.value), value(b->coupling.value));
}

static void draw_paths(struct input *in)
{
	memset(&eval, 0, sizeof(eval));
	eval.count = draw_byte(in) % (MPCC_MAX_SUBFLOWS + 1);
	for (__u32 i = 0; i < eval.count; i++) {
		struct mpcc_path *p = &eval.paths[i];
		__u8 flags;

		/* What an algorithm may have added to the struct is raw bytes. */
		draw(in, p, sizeof(*p));
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

static void check_decisions(void)
{
	double most = bound();
	__u32 coupled = 0;

	for (__u32 i = 0; i < eval.count; i++)
		coupled += eval.decisions[i].coupled;
	for (__u32 i = 0; i < eval.count; i++) {
		const struct mpcc_path *p = &eval.paths[i];
		const struct mpcc_decision *d = &eval.decisions[i];
		double up = value(d->increase.up), down = value(d->increase.down);
		__u32 most_after = p->cwnd > MPCC_RENO_FLOOR ? p->cwnd : MPCC_RENO_FLOOR;

		require_normal(d->increase.up, i);
		require_normal(d->increase.down, i);
		require_normal(d->coupling.value, i);
		require(d->after_loss && d->after_loss <= most_after,
			"subflow %u: cwnd %u, after %u", i, p->cwnd, d->after_loss);
		if (!p->cwnd) {
			require(!d->coupled && !up && !down, "subflow %u: %u, %g, %g", i,
				d->coupled, up, down);
			continue;
		}
		if (!d->coupled || (most && coupled == 1))
			require(close_to(up - down, 1.0 / p->cwnd),
				"subflow %u: cwnd %u, increase %g", i, p->cwnd, up - down);
		if (!d->coupled)
			require(!d->coupling.value.m, "subflow %u: %g", i,
				value(d->coupling.value));
		if (most)
			require(up <= most / p->cwnd * (1 + 1e-6) &&
					down <= most / p->cwnd * (1 + 1e-6),
				"subflow %u: cwnd %u, up %g, down %g", i, p->cwnd, up, down);
	}
}

static void check_order(void)
{
	struct mpcc_eval first = eval;

	memset(eval.decisions, 0, sizeof(eval.decisions));
	eval_run();
	require(!memcmp(&first, &eval, sizeof(eval)), "the second run differs");

	memset(eval.decisions, 0, sizeof(eval.decisions));
	for (__u32 i = 0; i < eval.count; i++)
		eval.paths[i] = first.paths[eval.count - 1 - i];
	eval_run();
	for (__u32 i = 0; i < eval.count; i++)
		require_alike(&eval.decisions[i], &first.decisions[eval.count - 1 - i], i);
}

/* A connection's sockets and their subflow contexts. */
static struct tcp_sock socks[MPCC_MAX_SUBFLOWS];
static struct mptcp_subflow_context contexts[MPCC_MAX_SUBFLOWS];
static struct mptcp_sock connection;

static struct cc_state *private_of(struct tcp_sock *tp)
{
	return (struct cc_state *)tp->inet_conn.icsk_ca_priv;
}

/* Puts the paths into sockets, with private state of any kind, and reads the paths back from them. */
static void draw_sockets(struct input *in)
{
	static const struct tcp_congestion_ops other;
	struct list_head *last = &connection.conn_list;

	for (__u32 i = 0; i < eval.count; i++) {
		struct mpcc_path *p = &eval.paths[i];
		struct tcp_sock *tp = &socks[i];
		struct mptcp_subflow_context *c = &contexts[i];
		__u8 kind = draw_byte(in);

		memset(tp, 0, sizeof(*tp));
		memset(c, 0, sizeof(*c));
		tp->is_mptcp = true;
		tp->snd_cwnd = p->cwnd;
		tp->snd_ssthresh = p->ssthresh;
		tp->srtt_us = p->srtt_us8;
		tp->bytes_acked = p->bytes_since_loss;
		tp->rtt_min.s[0].v = p->base_rtt_us;
		tp->inet_conn.icsk_ulp_data = c;
		tp->inet_conn.icsk_ca_ops = kind & 1 ? &other : &ALGORITHM;
		tp->inet_conn.icsk_inet.sk.__sk_common.skc_state = p->closing && kind & 2 ? 0 :
								   kind & 4 ? TCP_ESTABLISHED :
									      TCP_CLOSE_WAIT;
		draw(in, tp->inet_conn.icsk_ca_priv, sizeof(struct cc_state));

		c->tcp_sock = (struct sock *)tp;
		c->conn = (struct sock *)&connection;
		c->backup = p->backup && kind & 8;
		c->request_bkup = p->backup && !(kind & 8);
		c->stale = p->stale;
		c->closing = p->closing && !(kind & 2);
		last = last->next = &c->node;

		/* A socket reads its own private state, whatever its siblings make of it. */
		if (tp->inet_conn.icsk_ca_ops == &ALGORITHM)
			cc_private(p, tp, private_of(tp));
		else
			*p = (struct mpcc_path){
				.cwnd = p->cwnd,
				.ssthresh = p->ssthresh,
				.srtt_us8 = p->srtt_us8,
				.backup = p->backup,
				.stale = p->stale,
				.closing = p->closing,
			};
	}
	last->next = &connection.conn_list;
}

static void check_walk(struct input *in)
{
	draw_sockets(in);
	memset(eval.decisions, 0, sizeof(eval.decisions));
	eval_run();
	for (__u32 i = 0; i < eval.count; i++) {
		struct mpcc_decision d = {};
		struct mpcc_view v;

		if (socks[i].inet_conn.icsk_ca_ops != &ALGORITHM)
			continue;
		view_of(&v, &socks[i], private_of(&socks[i]));
		require(!v.left_out, "subflow %u of %u", i, eval.count);
		decide_step(&d.increase, &v);
		d.after_loss = decide_after_loss(&v);
		d.coupled = v.coupled;
		if (v.coupled)
			cc_coupling(&d.coupling, &v.sum, &v.self);
		require_alike(&d, &eval.decisions[i], i);
	}
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };

	draw_tunables(&in);
	draw_paths(&in);
	eval_run();
	check_decisions();
	check_order();
	check_walk(&in);
	return 0;
}
