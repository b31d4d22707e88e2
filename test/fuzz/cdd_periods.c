// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * CDD's cuts over any sequence of ACKs: at most one a period, only of the slowest subflow, coupled or not, and only while
 * that has a queue, never below 2 packets, and none during a timeout's recovery. And theta after each ACK, in floating
 * point.
 */
#include "native.h"

#include "cc/cdd.bpf.c"

#include "connection.h"

static struct tcp_sock *const slow = &connection.subflows[0], *const fast = &connection.subflows[1];

static void set_base(struct tcp_sock *tp, __u32 rtt_us)
{
	private_of(tp)->flow.base_rtt_us = rtt_us;
	tp->rtt_min.s[0].v = rtt_us;
}

/* A slow path whose queue takes as long as the path itself, beside a path that is twice as fast. */
static void start(void)
{
	join(2, &cdd);
	slow->snd_cwnd = 40;
	slow->srtt_us = 100000 << 3;
	set_base(slow, 50000);
	fast->snd_cwnd = 20;
	fast->srtt_us = 50000 << 3;
	set_base(fast, 50000);
	for (int i = 0; i < 2; i++) {
		connection.subflows[i].snd_ssthresh = 64;
		connection.subflows[i].mss_cache = 1400;
		connection.subflows[i].snd_wnd = 14000;
	}
	rule = RULE_ALGORITHM;
	period_ms = 500;
	beta_percent = 75;
	theta_0_percent = 150;
}

static void ack(struct tcp_sock *tp, __u64 at_us)
{
	tp->tcp_mstamp = at_us;
	cc_hooks.on_ack(private_of(tp), tp);
}

static double theta_of(struct tcp_sock *tp)
{
	return value_of(private_of(tp)->theta);
}

static void require_window(const struct tcp_sock *tp, __u32 window, __u32 ssthresh)
{
	require(tp->snd_cwnd == window && tp->snd_ssthresh == ssthresh,
		"cwnd %u, want %u; ssthresh %u, want %u", tp->snd_cwnd, window, tp->snd_ssthresh,
		ssthresh);
}

/* N = 10 and w = 20 give a theta_max of 1.425: theta, 2, is above theta_max. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const __u32 windows[] = { 20, 10, 5, 2, 2, 2 };

	start();
	for (int i = 0; i < 6; i++) {
		ack(slow, 500000 * i + 1);
		ack(fast, 500000 * i + 1);
		require_window(slow, windows[i], windows[i]);
		ack(slow, 500000 * (i + 1));
		ack(fast, 500000 * (i + 1));
		require_window(slow, windows[i], windows[i]);
		require_window(fast, 20, 64);
	}

	/* The peer's buffer is one for all subflows, coupled or not. */
	start();
	flow_of(slow)->together = 0;
	ack(slow, 1);
	require_window(slow, 20, 20);

	/* A path that is just long has no queue, and nothing is cut. */
	start();
	set_base(slow, 96000);
	ack(slow, 0);
	require_window(slow, 40, 64);
	/* After theta 2 the ratio 3 counts for a quarter. */
	slow->srtt_us = 150000 << 3;
	ack(slow, 500000);
	require(theta_of(slow) == 2.25, "theta %g", theta_of(slow));
	require_window(slow, 17, 17);

	/* After a timeout nothing is cut until the recovery is over. */
	start();
	slow->inet_conn.icsk_ca_state = TCP_CA_Loss;
	ack(slow, 1);
	ack(slow, 10000000);
	require_window(slow, 40, 64);
	require(!theta_of(slow), "theta %g", theta_of(slow));
	slow->inet_conn.icsk_ca_state = TCP_CA_Open;
	ack(slow, 10000001);
	require_window(slow, 20, 20);

	/* Once the path has become longer, the kernel's minimum over a window of time tells. */
	for (base_rtt = BASE_LIFETIME; base_rtt <= BASE_WINDOW; base_rtt++) {
		start();
		slow->rtt_min.s[0].v = 96000;
		ack(slow, 1);
		require_window(slow, base_rtt == BASE_WINDOW ? 40 : 20,
			       base_rtt == BASE_WINDOW ? 64 : 20);
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	__u64 now = 0, cut_at[2] = { 0, 0 };

	start();
	draw_tunables(&in);
	while (in.size) {
		__u8 which = draw_byte(&in) % 2;
		struct tcp_sock *tp = &connection.subflows[which];
		struct tcp_sock *other = &connection.subflows[!which];
		double before = theta_of(tp), ratio, want;
		__u32 window, ssthresh, base;

		now += draw_number(&in, 24);
		tp->srtt_us = 8 + draw_number(&in, 24);
		tp->snd_cwnd = window = 1 + draw_number(&in, 20);
		tp->snd_ssthresh = ssthresh = draw_number(&in, 20);
		tp->snd_wnd = draw_number(&in, 30);
		base = draw_number(&in, 22);
		set_base(tp, base);
		tp->inet_conn.icsk_ca_state = draw_byte(&in) % 5;
		ack(tp, now);

		ratio = (double)tp->srtt_us / other->srtt_us;
		ratio = ratio < 1 ? 1 / ratio : ratio;
		want = before ? (ratio * (100 - beta_percent) + before * beta_percent) / 100 :
				ratio;
		if (theta_of(tp) != before)
			require(__builtin_fabs(theta_of(tp) - want) < 1e-8 * want,
				"theta %g, want %g", theta_of(tp), want);
		if (tp->snd_cwnd == window) {
			require(tp->snd_ssthresh <= ssthresh, "ssthresh %u from %u",
				tp->snd_ssthresh, ssthresh);
			continue;
		}
		require(tp->inet_conn.icsk_ca_state != TCP_CA_Loss, "a cut after a timeout");
		require(tp->snd_cwnd < window && tp->snd_cwnd >= 2, "cwnd %u from %u", tp->snd_cwnd,
			window);
		require(tp->snd_ssthresh == (tp->snd_cwnd < ssthresh ? tp->snd_cwnd : ssthresh),
			"ssthresh %u from %u, cwnd %u", tp->snd_ssthresh, ssthresh, tp->snd_cwnd);
		require(tp->srtt_us >= other->srtt_us, "srtt %u, %u", tp->srtt_us, other->srtt_us);
		require(tp->srtt_us > 1.05 * 8 * base, "srtt %u, base RTT %u", tp->srtt_us, base);
		require(!cut_at[which] || now - cut_at[which] >= 1000ULL * period_ms,
			"cuts at %llu and %llu", cut_at[which], now);
		cut_at[which] = now;
	}
	return 0;
}
