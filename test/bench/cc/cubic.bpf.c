// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * CUBIC (RFC 9438) with HyStart (Ha, Rhee, PFLDNeT 2008), without coupling or telemetry: the yardstick
 * for what an ACK may cost in BPF.
 *
 *   t              since the first ACK in congestion avoidance after a loss event
 *   W(t)           origin + C (t - K)^3, C = 0.4 packets/s^3
 *   K              cbrt((origin - w) / C) with w at t = 0; 0 if w is above the origin
 *   per ACK        w += (W(t + RTT) - w) / w, at most 1/2 a segment
 *   Reno-friendly  w_est += a / w, a = 9/17 until w_est is back at the window before the loss, then 1;
 *                  w grows at least to w_est
 *   per loss event origin = w, or 0.85 w if w had not come back to the last origin; w *= 0.7
 *
 * As in the kernel's CUBIC, W is evaluated about once per millisecond and not on every ACK, the window
 * grows by 5 % per RTT before the first loss, a timeout forgets all, and idle time does not count into t.
 */
#include "mpcc/kernel.h"

#define CURVE_SHIFT 40
#define CURVE_C 472 /* 0.4 packets/s^3 in 2^-40 packets per cubed tick */
#define TICK_SHIFT 10 /* a tick is 1024 us */
#define MAX_TICKS (1U << 17) /* 134 s: MAX_TICKS^3 * CURVE_C is below 2^60 */
#define BETA_Q10 717 /* 0.7 */
#define FAST_Q10 870 /* (1 + 0.7) / 2 */
#define CWND_MIN 2
#define FIRST_PACE 20 /* slowest growth before any loss: 5 % per RTT */

#define TRAIN_GAP_US 2000 /* ACKs closer than this are of one train */
#define ROUND_SAMPLES 8
#define HYSTART_CWND 16
#define SETTLE_US 1000000 /* RTT samples so soon after a loss still show its queue */

enum { CA_EVENT_TX_START };

extern void tcp_cong_avoid_ai(struct tcp_sock *tp, __u32 w, __u32 acked) __ksym;

struct cubic {
	__u64 epoch_us; /* t = 0; 0 = before the first ACK after a loss event */
	__u64 heard_us; /* the last ACK */
	__u64 train_us; /* the last ACK of the present train */
	__u64 round_us; /* start of the present round */
	__u32 round_end; /* the sequence number that ends it */
	__u32 round_rtt_us; /* its smallest sample */
	__u32 samples; /* in it, counted to ROUND_SAMPLES */
	__u32 min_rtt_us; /* 0 = no sample */
	__u32 origin; /* packets */
	__u32 prior; /* window before the last loss event; 0 = no loss yet */
	__u32 k; /* ticks */
	__u32 tick; /* of the last evaluation of W */
	__u32 per_packet; /* segments acknowledged for each packet of growth */
	__u32 w_est;
	__u32 est_acked; /* segments not yet in w_est */
};
_Static_assert(sizeof(struct cubic) <= sizeof(((struct inet_connection_sock *)0)->icsk_ca_priv),
	       "icsk_ca_priv is full");

static __always_inline struct tcp_sock *tcp_of(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline struct cubic *state_of(struct sock *sk)
{
	return (struct cubic *)tcp_of(sk)->inet_conn.icsk_ca_priv;
}

static __always_inline bool in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

static __always_inline bool is_cwnd_limited(const struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return true;
	return in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* The largest number whose cube is not above v, bit by bit; v is below 2^60. */
static __u32 cube_root(__u64 v)
{
	__u64 root = 0;

	for (int bit = 19; bit >= 0; bit--) {
		__u64 next = root | 1U << bit;

		if (next * next * next <= v)
			root = next;
	}
	return root;
}

static __always_inline void start_round(struct cubic *c, const struct tcp_sock *tp)
{
	c->round_us = tp->tcp_mstamp;
	c->train_us = tp->tcp_mstamp;
	c->round_end = tp->snd_nxt;
	c->round_rtt_us = ~0U;
	c->samples = 0;
}

static __always_inline void start_over(struct sock *sk)
{
	struct cubic *c = state_of(sk);

	__builtin_memset(c, 0, sizeof(*c));
	start_round(c, tcp_of(sk));
}

static __always_inline void start_epoch(struct cubic *c, __u32 cwnd, __u64 now)
{
	c->epoch_us = now;
	c->w_est = cwnd;
	c->est_acked = 0;
	c->k = 0;
	if (c->origin > cwnd)
		c->k = cube_root(((__u64)(c->origin - cwnd) << CURVE_SHIFT) / CURVE_C);
	else
		c->origin = cwnd;
}

/* Segments per packet that bring the window to W(t) within an RTT. */
static __always_inline __u32 curve_pace(const struct cubic *c, __u32 cwnd, __u64 t_us)
{
	__u64 ticks = (t_us + c->min_rtt_us) >> TICK_SHIFT;
	bool above = ticks >= c->k;
	__u64 off = above ? ticks - c->k : c->k - ticks;
	__u64 step, target;

	if (off > MAX_TICKS)
		off = MAX_TICKS;
	step = off * off * off * CURVE_C >> CURVE_SHIFT;
	if (above)
		target = c->origin + step;
	else
		target = step < c->origin ? c->origin - step : 0;
	if (target <= cwnd)
		return 100 * cwnd;
	return cwnd / (__u32)(target - cwnd);
}

static __always_inline void advance_estimate(struct cubic *c, __u32 cwnd)
{
	/* 17/9 of a window, rounded, until back at the window before the loss. */
	__u32 per_packet = c->w_est < c->prior ? cwnd * 483 >> 8 : cwnd;

	if (c->est_acked > per_packet && per_packet) {
		__u32 packets = c->est_acked / per_packet;

		c->w_est += packets;
		c->est_acked -= packets * per_packet;
	}
}

static __always_inline __u32 pace(struct cubic *c, __u32 cwnd, __u32 acked, __u64 now)
{
	__u32 tick = now >> TICK_SHIFT;

	if (!c->epoch_us)
		start_epoch(c, cwnd, now);
	if (c->tick != tick) {
		c->tick = tick;
		c->per_packet = curve_pace(c, cwnd, now - c->epoch_us);
		if (!c->prior && c->per_packet > FIRST_PACE)
			c->per_packet = FIRST_PACE;
	}
	c->est_acked += acked;
	advance_estimate(c, cwnd);
	if (c->w_est > cwnd) {
		__u32 friendly = cwnd / (c->w_est - cwnd);

		if (friendly < c->per_packet)
			c->per_packet = friendly;
	}
	if (c->per_packet < 2)
		c->per_packet = 2;
	return c->per_packet;
}

SEC("struct_ops")
void BPF_PROG(cubic_init, struct sock *sk)
{
	start_over(sk);
}

SEC("struct_ops")
void BPF_PROG(cubic_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct cubic *c = state_of(sk);

	if (!is_cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		if ((__s32)(ack - c->round_end) > 0)
			start_round(c, tp);
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	tcp_cong_avoid_ai(tp, pace(c, tp->snd_cwnd, acked, tp->tcp_mstamp), acked);
}

SEC("struct_ops")
__u32 BPF_PROG(cubic_ssthresh, struct sock *sk)
{
	__u32 cwnd = tcp_of(sk)->snd_cwnd;
	struct cubic *c = state_of(sk);

	c->epoch_us = 0;
	c->prior = cwnd;
	c->origin = cwnd < c->origin ? cwnd * FAST_Q10 >> 10 : cwnd;
	cwnd = cwnd * BETA_Q10 >> 10;
	return cwnd < CWND_MIN ? CWND_MIN : cwnd;
}

/* How far apart ACKs are because segments are sent in bunches: two of 64 kB at twice the rate. */
static __always_inline __u32 bunch_us(const struct sock *sk)
{
	__u64 rate = sk->sk_pacing_rate, us;

	if (!rate)
		return 0;
	us = 4 * 65536 * 1000000ULL / rate;
	return us < 1000 ? us : 1000;
}

/* The end of slow start: a train of ACKs as long as half an RTT, or a round whose RTTs have grown. */
static __always_inline bool path_is_full(struct cubic *c, const struct sock *sk, __u64 now,
					 __u32 rtt_us)
{
	__u32 grown = c->min_rtt_us >> 3;

	if (now - c->train_us <= TRAIN_GAP_US) {
		c->train_us = now;
		if (now - c->round_us > (c->min_rtt_us + bunch_us(sk)) / 2)
			return true;
	}
	if (rtt_us < c->round_rtt_us)
		c->round_rtt_us = rtt_us;
	if (c->samples < ROUND_SAMPLES) {
		c->samples++;
		return false;
	}
	if (grown < 4000)
		grown = 4000;
	if (grown > 16000)
		grown = 16000;
	return c->round_rtt_us > c->min_rtt_us + grown;
}

SEC("struct_ops")
void BPF_PROG(cubic_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct cubic *c = state_of(sk);
	__u64 now = tp->tcp_mstamp;
	__u32 rtt_us = sample->rtt_us;

	c->heard_us = now;
	/* Below 0: no sample. */
	if (sample->rtt_us < 0 || (c->epoch_us && now - c->epoch_us < SETTLE_US))
		return;
	if (!rtt_us)
		rtt_us = 1;
	if (!c->min_rtt_us || rtt_us < c->min_rtt_us)
		c->min_rtt_us = rtt_us;
	if (in_slow_start(tp) && tp->snd_cwnd >= HYSTART_CWND && path_is_full(c, sk, now, rtt_us))
		tp->snd_ssthresh = tp->snd_cwnd;
}

SEC("struct_ops")
void BPF_PROG(cubic_cwnd_event, struct sock *sk, __u32 event)
{
	__u64 now = tcp_of(sk)->tcp_mstamp;
	struct cubic *c = state_of(sk);

	if (event == CA_EVENT_TX_START && c->epoch_us && now > c->heard_us)
		c->epoch_us += now - c->heard_us;
}

SEC("struct_ops")
void BPF_PROG(cubic_set_state, struct sock *sk, __u8 new_state)
{
	if (new_state == TCP_CA_Loss)
		start_over(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(cubic_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC(".struct_ops.link")
struct tcp_congestion_ops bpf_cubic = {
	.init = (void *)cubic_init,
	.cong_avoid = (void *)cubic_cong_avoid,
	.ssthresh = (void *)cubic_ssthresh,
	.pkts_acked = (void *)cubic_pkts_acked,
	.cwnd_event = (void *)cubic_cwnd_event,
	.set_state = (void *)cubic_set_state,
	.undo_cwnd = (void *)cubic_undo_cwnd,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "bpf_cubic",
};
