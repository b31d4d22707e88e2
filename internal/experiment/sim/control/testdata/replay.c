// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * One congestion control (-DALGORITHM=lia), compiled for the host, on a connection of sockets to which the test beside
 * this file has things happen: it reads steps and writes what has become of their socket.
 */
#include "native.h"

#include SOURCE(cc, ALGORITHM)
#include "connection.h"

enum { BEGIN, CHANGE, CONG_AVOID, SSTHRESH, SET_STATE, CWND_EVENT, UNDO_CWND, RELEASE };

/* The same as type step of the test. */
struct step {
	__u64 now_us, bytes_acked, pacing_rate;
	__u32 cwnd, ssthresh, srtt_us8, min_rtt_us, rack_rtt_us;
	__u32 packets_out, max_packets_out, mss, snd_una, snd_nxt, snd_wnd, gso_max_size;
	__u32 acked; /* of CONG_AVOID; the argument of SET_STATE and CWND_EVENT; with BEGIN, the number of subflows */
	__u8 subflow, event, backoff, cwnd_limited, pacing, backup, stale, closing;
	__u32 prior_ssthresh;
};

struct outcome {
	__u32 result, cwnd, ssthresh;
	unsigned char private[MPCC_PRIVATE_BYTES];
};

static __u32 linked;

static void set(struct tcp_sock *tp, struct mptcp_subflow_context *ctx, const struct step *s)
{
	tp->bytes_acked = s->bytes_acked;
	tp->inet_conn.icsk_inet.sk.sk_pacing_rate = s->pacing_rate;
	tp->inet_conn.icsk_inet.sk.sk_pacing_status = s->pacing;
	tp->inet_conn.icsk_inet.sk.sk_gso_max_size = s->gso_max_size;
	tp->inet_conn.icsk_backoff = s->backoff;
	tp->snd_cwnd = s->cwnd;
	tp->snd_ssthresh = s->ssthresh;
	tp->prior_ssthresh = s->prior_ssthresh;
	tp->srtt_us = s->srtt_us8;
	tp->rtt_min.s[0].v = s->min_rtt_us;
	tp->rack.rtt_us = s->rack_rtt_us;
	tp->packets_out = s->packets_out;
	tp->max_packets_out = s->max_packets_out;
	tp->mss_cache = s->mss;
	tp->snd_una = s->snd_una;
	tp->snd_nxt = s->snd_nxt;
	tp->snd_wnd = s->snd_wnd;
	tp->is_cwnd_limited = s->cwnd_limited;
	ctx->backup = s->backup;
	ctx->stale = s->stale;
	ctx->closing = s->closing;
}

static void begin(const struct step *s)
{
	join(s->acked, &ALGORITHM);
	response = RESPONSE_QUEUE;
#ifndef MPCC_OWN_COURSE
	growth = GROWTH_CUBIC;
#endif
	linked = (1 << s->acked) - 1;
	for (__u32 i = 0; i < s->acked; i++) {
		set(&connection.subflows[i], &connection.contexts[i], s);
		connection.subflows[i].tcp_mstamp = s->now_us;
		CALL(mpcc_init, ARG(&connection.subflows[i]));
	}
}

static void cwnd_event(struct tcp_sock *tp, __u32 event)
{
	void (*program)(unsigned long long *) = (void *)ALGORITHM.cwnd_event;

	if (program)
		CALL(program, ARG(tp), event);
}

static __u32 run(struct tcp_sock *tp, const struct step *s)
{
	if (s->event != CHANGE)
		tp->tcp_mstamp = s->now_us;
	switch (s->event) {
	case CONG_AVOID:
		CALL(mpcc_cong_avoid, ARG(tp), s->snd_una, s->acked);
		return 0;
	case SSTHRESH:
		return CALL(mpcc_ssthresh, ARG(tp));
	case SET_STATE:
		CALL(mpcc_set_state, ARG(tp), s->acked);
		return 0;
	case CWND_EVENT:
		cwnd_event(tp, s->acked);
		return 0;
	case UNDO_CWND:
		return CALL(mpcc_undo_cwnd, ARG(tp));
	case RELEASE:
		CALL(mpcc_release, ARG(tp));
		linked &= ~(1 << s->subflow);
		link_only(linked);
	}
	return 0;
}

int main(void)
{
	struct step s;

	while (fread(&s, sizeof(s), 1, stdin) == 1) {
		struct tcp_sock *tp = &connection.subflows[s.subflow];
		struct outcome o = {};

		if (s.event == BEGIN) {
			begin(&s);
		} else {
			set(tp, &connection.contexts[s.subflow], &s);
			o.result = run(tp, &s);
		}
		o.cwnd = tp->snd_cwnd;
		o.ssthresh = tp->snd_ssthresh;
		memcpy(o.private, tp->inet_conn.icsk_ca_priv, sizeof(o.private));
		fwrite(&o, sizeof(o), 1, stdout);
	}
	return 0;
}
