// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * wVegas, weighted Vegas (Cao, Xu, Fu, ICNP 2012; draft-xu-mptcp-congestion-control-05), by the rules of
 * its authors' implementation.
 *
 * Once per RTT, with rtt the mean of its samples and base the smallest sample:
 *
 *   diff     floor(w (rtt - base) / rtt), the packets that wait in queues
 *   diff >= alpha_r   weight_r = (w_r / rtt_r) / sum_k (w_k / rtt_k), alpha_r = max(2, floor(10 weight_r))
 *   diff > alpha_r    w -= 1;  diff < alpha_r  w += 1
 *   qd = rtt - base   at twice the smallest qd seen: w = floor(w base / (2 rtt)), to drain the queue
 *   in slow start, diff > 1   leave it: w = min(w, floor(w base / rtt) + 1)
 *
 * Fewer than 3 samples in an RTT: Reno. So too outside the Open state: a loss halves the window, and on
 * return alpha_r and the smallest qd start anew, while base stays. After an idle restart base goes too.
 *
 * Deviations: a queue of 0 is not drained (the authors' code halves the window when the mean RTT equals
 * base); siblings' rates are their present w / srtt, exact, not those of their last RTT in sixteenths
 * of a bit; w grows only when it is used up.
 */
#include "mpcc/path.h"
#include "mpcc/state.h"

#define TOTAL_ALPHA 10
#define MIN_ALPHA 2
#define GAMMA 1
#define MIN_SAMPLES 3
#define MIN_CWND 2

struct cc_state {
	struct mpcc_flow flow;
	__u64 rtt_sum_us8; /* of this RTT's samples */
	__u32 samples;
	__u32 round_end; /* snd_nxt when this RTT began */
	__u32 base_rtt_us; /* since the last idle restart; 0 = unset */
	__u32 alpha; /* packets */
	__u32 queue_us; /* smallest qd since the last drain; 0 = unset */
	__u32 off; /* not in the Open state */
};

struct cc_sum {
	__u32 n;
	struct mpcc_num rate; /* sum w / rtt */
};

static __always_inline void cc_private(struct mpcc_path *p, const struct tcp_sock *tp,
				       const struct cc_state *state, const struct cc_state *own)
{
	p->base_rtt_us = state->base_rtt_us;
	p->alpha = state->alpha;
	p->queue_us = state->queue_us;
	if (state == own && state->samples) {
		__u64 mean_us8 = state->rtt_sum_us8 / state->samples;

		p->srtt_us8 = mean_us8 < ~0U ? mean_us8 : ~0U;
	}
}
#define cc_private cc_private

MPCC_PURE int cc_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	sum->n++;
	sum->rate = num_add(sum->rate, path_rate(p));
	return 0;
}

/* Between two rounds the window stays. */
MPCC_PURE int cc_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
		      const struct mpcc_path *p nonnull)
{
	step->up = num_zero();
	step->down = num_zero();
	return 0;
}

/* weight_r */
MPCC_PURE int cc_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
			  const struct mpcc_path *p nonnull)
{
	c->value = num_div(path_rate(p), sum->rate);
	c->negative = 0;
	return 0;
}

struct wvegas_round {
	struct mpcc_setting setting;
	__u32 alpha;
	__u32 queue_us;
};

/* Packets in queues at this window. */
static __always_inline __u64 waiting(__u64 w, __u64 base_us8, __u64 rtt_us8)
{
	return rtt_us8 > base_us8 ? w * (rtt_us8 - base_us8) / rtt_us8 : 0;
}

/* One RTT with enough samples. In slow start below gamma it leaves the window to the kernel. */
MPCC_PURE int run_round(struct wvegas_round *r nonnull, const struct cc_sum *sum nonnull,
			const struct mpcc_path *p nonnull)
{
	__u64 rtt = p->srtt_us8, base = (__u64)p->base_rtt_us << 3;
	__u32 w = p->cwnd, ssthresh = p->ssthresh, alpha = p->alpha, queue_us = p->queue_us;
	__u64 diff, queue_now_us;

	if (!rtt || !base)
		return 0;
	if (base > rtt)
		base = rtt;
	diff = waiting(w, base, rtt);
	if (w < ssthresh) {
		if (diff > GAMMA) {
			__u64 target = w * base / rtt + 1;

			if (target < w)
				w = target;
			if (w < ssthresh)
				ssthresh = w;
		}
	} else {
		if (diff >= alpha) {
			struct mpcc_num share = num_div(path_rate(p), sum->rate);

			/* The share comes out up to 2^-28 low, which must not cost a whole packet. */
			share = num_mul(share, num_of(TOTAL_ALPHA));
			alpha = (num_to_fixed(share, 25) + 1) >> 25;
			if (alpha < MIN_ALPHA)
				alpha = MIN_ALPHA;
		}
		if (diff > alpha) {
			w--;
			if (w < ssthresh)
				ssthresh = w;
		} else if (diff < alpha && w < ~0U) {
			w++;
		}
		queue_now_us = (rtt - base) >> 3;
		if (!queue_us || queue_now_us < queue_us)
			queue_us = queue_now_us;
		if (queue_now_us && queue_now_us >= 2ULL * queue_us) {
			w = w * base / (2 * rtt);
			queue_us = 0;
		}
	}
	if (w < MIN_CWND)
		w = MIN_CWND;
	if (ssthresh < (__u64)w * 3 / 4)
		ssthresh = (__u64)w * 3 / 4;
	r->setting.window = w;
	r->setting.ssthresh = ssthresh;
	r->alpha = alpha;
	r->queue_us = queue_us;
	return 0;
}

static __always_inline void cc_window(struct mpcc_setting *s, const struct cc_sum *sum,
				      const struct mpcc_path *p)
{
	struct wvegas_round r = { .setting = *s };

	run_round(&r, sum, p);
	*s = r.setting;
}
#define cc_window cc_window

#include "mpcc/decide.h"
#include "mpcc/eval.h"
#include "mpcc/life.h"

static __always_inline void start_round(struct cc_state *state, const struct tcp_sock *tp)
{
	state->round_end = tp->snd_nxt;
	state->rtt_sum_us8 = 0;
	state->samples = 0;
}

static __always_inline void start_over(struct cc_state *state, const struct tcp_sock *tp)
{
	start_round(state, tp);
	state->alpha = MIN_ALPHA;
	state->queue_us = 0;
	state->off = 0;
}

/* False if the subflow does not count: then Reno. Not inlined: the view needs a stack of its own. */
static __noinline bool end_round(struct sock *sk)
{
	struct cc_state *state = state_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	struct wvegas_round r = {};
	struct mpcc_view v;

	view_of(&v, tp, state);
	if (!v.coupled)
		return false;
	r.setting.window = v.self.cwnd;
	r.setting.ssthresh = v.self.ssthresh;
	r.alpha = state->alpha;
	r.queue_us = state->queue_us;
	run_round(&r, &v.sum, &v.self);
	state->alpha = r.alpha;
	state->queue_us = r.queue_us;
	if (r.setting.window > tp->snd_cwnd_clamp)
		r.setting.window = tp->snd_cwnd_clamp;
	if (r.setting.window < tp->snd_cwnd || is_cwnd_limited(tp))
		tp->snd_cwnd = r.setting.window;
	tp->snd_ssthresh = r.setting.ssthresh;
	return true;
}

static __always_inline void run_reno(struct tcp_sock *tp, struct cc_state *state, __u32 acked)
{
	struct mpcc_step step = {};
	struct mpcc_path p = {};

	if (!is_cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	p.cwnd = tp->snd_cwnd;
	step_reno(&step, &p);
	apply_step(tp, &state->flow, q40_of(&step), acked, MIN_CWND);
}

SEC("struct_ops")
void BPF_PROG(wvegas_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct cc_state *state = state_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	/* The ACK that drains a queue does not begin to fill it again. */
	bool slow_start = in_slow_start(tp);

	refresh_if_due(sk, state);
	if (!state->alpha)
		start_over(state, tp);
	if (state->off) {
		run_reno(tp, state, acked);
		return;
	}
	if (how_far(ack, state->round_end) > 0) {
		bool ruled = state->samples >= MIN_SAMPLES && end_round(sk);

		start_round(state, tp);
		if (!ruled) {
			run_reno(tp, state, acked);
			return;
		}
	}
	if (slow_start && in_slow_start(tp) && is_cwnd_limited(tp))
		tcp_slow_start(tp, acked);
}

SEC("struct_ops")
void BPF_PROG(wvegas_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct cc_state *state = state_of(sk);
	__u32 rtt_us = sample->rtt_us;

	/* -1: none of the segments had been sent only once. */
	if (!rtt_us || sample->rtt_us < 0)
		return;
	if (!state->base_rtt_us || rtt_us < state->base_rtt_us)
		state->base_rtt_us = rtt_us;
	state->rtt_sum_us8 += (__u64)rtt_us << 3;
	state->samples++;
}

SEC("struct_ops")
__u32 BPF_PROG(wvegas_ssthresh, struct sock *sk)
{
	flow_loss(&state_of(sk)->flow);
	return tcp_sk(sk)->snd_cwnd / 2 > MIN_CWND ? tcp_sk(sk)->snd_cwnd / 2 : MIN_CWND;
}

SEC("struct_ops")
void BPF_PROG(wvegas_set_state, struct sock *sk, __u8 new_state)
{
	struct cc_state *state = state_of(sk);

	if (new_state == TCP_CA_Open)
		start_over(state, tcp_sk(sk));
	else
		state->off = 1;
	if (new_state == TCP_CA_Loss)
		refresh(sk);
}

SEC("struct_ops")
void BPF_PROG(wvegas_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct cc_state *state = state_of(sk);

	if (event != mpcc_enum(enum tcp_ca_event, CA_EVENT_CWND_RESTART))
		return;
	state->base_rtt_us = 0;
	start_over(state, tcp_sk(sk));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC(".struct_ops.link")
struct tcp_congestion_ops wvegas = {
	.init = (void *)mpcc_init,
	.release = (void *)mpcc_release,
	.cong_avoid = (void *)wvegas_cong_avoid,
	.pkts_acked = (void *)wvegas_pkts_acked,
	.ssthresh = (void *)wvegas_ssthresh,
	.set_state = (void *)wvegas_set_state,
	.cwnd_event = (void *)wvegas_cwnd_event,
	.undo_cwnd = (void *)mpcc_undo_cwnd,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "wvegas",
};
