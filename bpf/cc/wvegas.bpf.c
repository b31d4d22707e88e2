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
 * Deviations.
 *  1. Beside siblings only; a connection of one subflow is CUBIC's. alone=own gives it these rules.
 *  2. The queue is drained when qd is at least twice the smallest seen and twice what alpha_r packets take,
 *     alpha_r rtt / w. The paper drains to measure base anew when others' queues hide it; a smallest qd below the
 *     queue that is wanted is noise, and the paper's bound has the window halved for some microseconds of it, so
 *     that half of an idle path stays unused. drain=any is the paper's; neither drains a queue of 0 (the authors'
 *     code halves the window when the mean RTT equals base).
 *  3. Siblings' rates are their present w / srtt, exact, not those of their last RTT in sixteenths of a bit.
 *  4. w grows only when it is used up.
 *  5. RTT samples are those of the ACKs that may raise the window.
 *  6. rtt is the smallest sample, not their mean: Wi-Fi and LTE delay single packets by milliseconds, which the mean
 *     takes for a queue, so that half of an idle path stays unused. rtt=mean is the paper's.
 *  7. An rtt at most noise_us above base counts as base. Ten packets wait for 12 us at 10 Gbit/s; what hosts add to
 *     an RTT is more than that, and would hold the window at some packets. noise_us=0 is the paper's.
 *  8. Where other connections fill the bottleneck's queue, a subflow competes: the subflow grows as under LIA here
 *     (whole.h). By the paper's rules the subflow gives way until alpha_r packets are its whole window. A probe tells
 *     who fills the queue: for two rounds the window is w base / rtt, which takes all packets of the subflow out of the
 *     queue. Without other connections qd falls by the time that these packets took at the bottleneck; a fall of less than
 *     3/4 of that time shows other connections. A subflow probes where qd is at least 2 noise_us, every 16 rounds, and
 *     every 32, 64 and 128 while the probes agree; and earlier where the window is 1/8 smaller than at the last probe and
 *     qd has fallen by less than 3/4 of the time that the bottleneck took for the missing packets. One probe that shows
 *     other connections has the subflow compete; after two in a row that show none, 4 rounds apart, the subflow stops
 *     competing. A loss has the subflow compete, too: a queue that
 *     drops packets while the subflow keeps to alpha_r of them is filled by others, or is too short for these, and a packet
 *     more in each RTT takes twice what CUBIC gets there. compete=never is the paper's.
 */
#define MPCC_PAPER_ALONE "own"
#include "mpcc/cc.h"

enum { DRAIN_ABOVE_ALPHA, DRAIN_ANY };
TUNABLE_PAPER(drain, DRAIN_ABOVE_ALPHA, "any",
	      "alpha|any; queues that are drained: those of 2 alpha packets at least, or any");

enum { RTT_SMALLEST, RTT_MEAN };
TUNABLE_PAPER(rtt, RTT_SMALLEST, "mean",
	      "smallest|mean; which of an RTT's samples tells of the queue");
TUNABLE_NOISE;

enum { COMPETE_OTHERS, COMPETE_NEVER };
TUNABLE_PAPER(compete, COMPETE_OTHERS, "never",
	      "others|never; where other connections fill the queue, grow as LIA does");

#define TOTAL_ALPHA 10
#define MIN_ALPHA 2
#define GAMMA 1
#define MIN_SAMPLES 3
#define MOST_SAMPLES 16383
#define MIN_CWND 2
/* A probe takes so many rounds. */
#define PROBE_ROUNDS 2
/* Rounds between two probes, doubled up to so often; and before a probe that is to confirm the last one. */
#define PROBE_EVERY 16
#define PROBE_DOUBLINGS 3
#define PROBE_AGAIN 4

struct cc_state {
	struct mpcc_flow flow;
	__u32 rtt_us; /* this RTT's smallest sample; with rtt=mean the sum of its samples */
	__u32 round_end; /* snd_nxt when this RTT began */
	__u32 base_rtt_us; /* since the last idle restart; 0 = unset */
	__u32 queue_us; /* smallest qd since the last drain; 0 = unset */
	__u16 samples : 14;
	__u16 probing : 1; /* a probe goes on */
	__u16 doubted : 1; /* competing, and the last probe showed no other connections */
	__u16 probed_cwnd; /* the window before the last probe, packets; 0 = none yet */
	__u16 probed_queue; /* qd then, in the units of queue.h */
	__u8 rounds; /* to the end of the probe, or to the next probe */
	__u8 alpha : 4; /* packets; 0 = beside no sibling yet, or not since the subflow was uncoupled */
	__u8 off : 1; /* not in the Open state */
	__u8 competing : 1; /* other connections fill the queue */
	__u8 doublings : 2; /* of the rounds between two probes */
};

struct cc_sum {
	__u32 n;
	__u32 pad;
	struct lia_sum lia;
};

static __always_inline void wvegas_read_private(struct mpcc_path *p, const struct tcp_sock *tp,
						const struct cc_state *state,
						const struct cc_state *own)
{
	p->base_rtt_us = state->base_rtt_us;
	p->alpha = state->alpha;
	p->queue_us = state->queue_us;
	/* A probe lowers the window for two rounds, and changes nothing about what the path carries. */
	if (state->probing)
		p->cwnd = state->probed_cwnd;
	if (state == own && state->samples) {
		__u64 rtt_us8 = (__u64)state->rtt_us << 3;

		if (rtt == RTT_MEAN)
			rtt_us8 /= state->samples;
		p->srtt_us8 = rtt_us8 < ~0U ? rtt_us8 : ~0U;
	}
}

MPCC_GLOBAL int wvegas_add(struct cc_sum *sum nonnull, const struct mpcc_path *p nonnull)
{
	sum->n++;
	lia_sum_add(&sum->lia, p);
	return 0;
}

/* Between two rounds the window stays. */
MPCC_GLOBAL int wvegas_step(struct mpcc_step *step nonnull, const struct cc_sum *sum nonnull,
			    const struct mpcc_path *p nonnull)
{
	step->up = num_zero();
	step->down = num_zero();
	return 0;
}

/* weight_r */
MPCC_GLOBAL int wvegas_coupling(struct mpcc_coupling *c nonnull, const struct cc_sum *sum nonnull,
				const struct mpcc_path *p nonnull)
{
	c->value = num_div(path_rate(p), sum->lia.total_rate);
	c->negative = 0;
	return 0;
}

struct wvegas_round {
	struct mpcc_setting setting;
	__u32 alpha;
	__u32 queue_us;
};

/* qd of this round; 0 within noise_us. */
static __always_inline __u32 queue_of(const struct mpcc_path *p)
{
	if (!p->base_rtt_us || is_noise(p->srtt_us8, p->base_rtt_us))
		return 0;
	return (p->srtt_us8 - ((__u64)p->base_rtt_us << 3)) >> 3;
}

/* Packets in queues at this window. */
static __always_inline __u64 waiting(__u64 w, __u64 base_us8, __u64 rtt_us8)
{
	return rtt_us8 > base_us8 ? w * (rtt_us8 - base_us8) / rtt_us8 : 0;
}

/* One RTT with enough samples. In slow start below gamma it leaves the window to the kernel. */
MPCC_GLOBAL int run_round(struct wvegas_round *r nonnull, const struct cc_sum *sum nonnull,
			  const struct mpcc_path *p nonnull)
{
	__u64 rtt_us8 = p->srtt_us8, base_us8 = (__u64)p->base_rtt_us << 3;
	__u32 w = p->cwnd, ssthresh = p->ssthresh, alpha = p->alpha, queue_us = p->queue_us;
	__u64 diff, queue_now_us;

	if (!rtt_us8 || !base_us8)
		return 0;
	if (is_noise(rtt_us8, p->base_rtt_us))
		base_us8 = rtt_us8;
	diff = waiting(w, base_us8, rtt_us8);
	if (w < ssthresh) {
		if (diff > GAMMA) {
			__u64 target = w * base_us8 / rtt_us8 + 1;

			if (target < w)
				w = target;
			if (w < ssthresh)
				ssthresh = w;
		}
	} else {
		if (diff >= alpha) {
			struct mpcc_num share = num_div(path_rate(p), sum->lia.total_rate);

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
		queue_now_us = queue_of(p);
		if (!queue_us || queue_now_us < queue_us)
			queue_us = queue_now_us;
		if (queue_now_us && queue_now_us >= 2ULL * queue_us &&
		    (drain == DRAIN_ANY || diff >= 2ULL * alpha)) {
			w = w * base_us8 / (2 * rtt_us8);
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

static __always_inline int wvegas_set_window(struct mpcc_setting *s, const struct cc_sum *sum,
					     const struct mpcc_path *p)
{
	struct wvegas_round r = { .setting = *s };

	run_round(&r, sum, p);
	*s = r.setting;
	return 0;
}

static __always_inline void start_round(struct cc_state *state, const struct tcp_sock *tp)
{
	state->round_end = tp->snd_nxt;
	state->rtt_us = 0;
	state->samples = 0;
}

static __always_inline void start_over(struct cc_state *state, const struct tcp_sock *tp)
{
	start_round(state, tp);
	state->alpha = MIN_ALPHA;
	state->queue_us = 0;
	state->off = 0;
}

/*
 * Whether other connections show: since the last probe began, qd has fallen by less than 3/4 of the time that the bottleneck
 * took for the packets by which the window is smaller now. The bottleneck's rate, if only this connection's subflows use it,
 * is w / rtt / weight_r.
 */
static __always_inline bool others_queue(const struct cc_state *state, const struct tcp_sock *tp,
					 const struct cc_sum *sum, const struct mpcc_path *p)
{
	__u64 before_us = (__u64)state->probed_queue << QUEUE_SHIFT, now_us = queue_of(p);
	__u64 fell_us = before_us > now_us ? before_us - now_us : 0, alone_us;
	__u32 w = state->probed_cwnd, out = w > tp->snd_cwnd ? w - tp->snd_cwnd : 0;
	struct mpcc_num weight = num_div(path_rate(p), sum->lia.total_rate);

	alone_us = (p->base_rtt_us + before_us) * out / w * num_to_fixed(weight, 10) >> 10;
	return !out || 4 * fell_us < 3 * alone_us;
}

/* Whether the rounds to the next probe are over, or others have filled the place of an eighth of the window. */
static __always_inline bool is_probe_due(const struct cc_state *state, const struct tcp_sock *tp,
					 const struct cc_sum *sum, const struct mpcc_path *p)
{
	return !state->rounds || (!state->competing && 8ULL * p->cwnd < 7ULL * state->probed_cwnd &&
				  others_queue(state, tp, sum, p));
}

/* Begins a probe if one is due: lowers the window by the packets that the subflow has in the queue. */
static __always_inline bool begin_probe(struct cc_state *state, struct tcp_sock *tp,
					const struct cc_sum *sum, const struct mpcc_path *p)
{
	__u32 queue_us = queue_of(p), w;

	if (compete == COMPETE_NEVER || in_slow_start(tp) || queue_us < 2 * noise_us || !queue_us ||
	    p->cwnd > (__u16)~0 || !is_probe_due(state, tp, sum, p))
		return false;
	w = (__u64)p->cwnd * queue_us / (p->srtt_us8 >> 3);
	w = p->cwnd - w;
	state->probed_queue = queue_units(queue_us);
	state->probed_cwnd = p->cwnd;
	state->probing = 1;
	state->rounds = PROBE_ROUNDS;
	if (w < MIN_CWND)
		w = MIN_CWND;
	if (w < tp->snd_cwnd)
		tp->snd_cwnd = w;
	return true;
}

/* Ends a probe, if one goes on: the window is again the one before the probe. */
static __always_inline void restore_window(struct cc_state *state, struct tcp_sock *tp)
{
	if (state->probing && state->probed_cwnd > tp->snd_cwnd)
		tp->snd_cwnd = state->probed_cwnd;
	state->probing = 0;
}

/* What probes have shown beside former siblings. */
static __always_inline void forget_probes(struct cc_state *state)
{
	state->rounds = 0;
	state->probed_cwnd = 0;
	state->doublings = 0;
	state->doubted = 0;
	state->competing = 0;
}

/* Begins or ends to compete, and sets when to probe next; others is whether other connections seem to fill the queue. */
static __always_inline void conclude(struct cc_state *state, bool others)
{
	bool calm = state->competing && !others;

	if (calm && !state->doubted) {
		state->doubted = 1;
		state->rounds = PROBE_AGAIN;
	} else {
		if (state->competing != others)
			state->doublings = 0;
		else if (state->doublings < PROBE_DOUBLINGS)
			state->doublings++;
		state->competing = others;
		state->doubted = 0;
		state->rounds = calm ? PROBE_AGAIN : PROBE_EVERY << state->doublings;
	}
}

/* At a loss outside slow start: from now on the subflow competes. */
static __always_inline void wvegas_on_loss(struct cc_state *state, struct tcp_sock *tp)
{
	restore_window(state, tp);
	if (compete != COMPETE_NEVER && !state->flow.uncoupled && !state->competing &&
	    !in_slow_start(tp) && is_loss(tp))
		conclude(state, true);
}

/*
 * False if the subflow is uncoupled: then CUBIC or Reno grows the window. Not inlined: the view needs a stack of its own.
 */
static __noinline bool end_round(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct cc_state *state = state_of(tp);
	struct wvegas_round r = {};
	struct cc_view v;

	track_rtt(tp, &state->flow);
	look(&v, tp, SUMS_OF_ALL);
	state->flow.uncoupled = rule_for(&v) != RULE_COUPLED;
	if (state->flow.uncoupled) {
		restore_window(state, tp);
		state->flow.decided = 0;
		return false;
	}
	if (state->rounds)
		state->rounds--;
	if (state->probing) {
		if (!state->rounds) {
			conclude(state, others_queue(state, tp, sum_of(&v), &v.self));
			restore_window(state, tp);
		}
		return true;
	}
	if (begin_probe(state, tp, sum_of(&v), &v.self) || state->competing)
		return true;
	state->flow.curve_subflows = 0;
	state->flow.decided = 0;
	r.setting.window = v.self.cwnd;
	r.setting.ssthresh = v.self.ssthresh;
	r.alpha = state->alpha;
	r.queue_us = state->queue_us;
	run_round(&r, sum_of(&v), &v.self);
	state->alpha = r.alpha;
	state->queue_us = r.queue_us;
	if (r.setting.window > tp->snd_cwnd_clamp)
		r.setting.window = tp->snd_cwnd_clamp;
	if (r.setting.window < tp->snd_cwnd || is_cwnd_limited(tp))
		tp->snd_cwnd = r.setting.window;
	tp->snd_ssthresh = r.setting.ssthresh;
	return true;
}

static __always_inline void run_reno(struct tcp_sock *tp, __u32 acked)
{
	acked = after_slow_start(tp, acked);
	if (!acked)
		return;
	apply_steps(tp, flow_of(tp), reno_step_q29(tp), acked < 65535 ? acked : 65535, MIN_CWND);
}

static __always_inline void take_sample(struct cc_state *state, const struct tcp_sock *tp)
{
	__u32 rtt_us = tp->rack.rtt_us;
	__u64 sum_us = (__u64)state->rtt_us + rtt_us;

	if (!rtt_us || state->samples == MOST_SAMPLES || (rtt == RTT_MEAN && sum_us > ~0U))
		return;
	if (!state->base_rtt_us || rtt_us < state->base_rtt_us)
		state->base_rtt_us = rtt_us;
	if (rtt == RTT_MEAN)
		state->rtt_us = sum_us;
	else if (!state->samples || rtt_us < state->rtt_us)
		state->rtt_us = rtt_us;
	state->samples++;
}

/* The rules of this file, beside siblings. */
static __always_inline void run_rounds(struct sock *sk, __u32 ack, __u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct cc_state *state = state_of(tp);
	/* The ACK that drains a queue does not begin to fill it again. */
	bool starting = in_slow_start(tp);

	if (!state->alpha) {
		start_over(state, tp);
		forget_probes(state);
	}
	if (state->off) {
		run_reno(tp, acked);
		return;
	}
	take_sample(state, tp);
	if (wrapping_diff(ack, state->round_end) > 0) {
		/* A probe's window may be too small for MIN_SAMPLES. */
		__u32 least = state->probing ? 1 : MIN_SAMPLES;
		bool ruled = state->samples >= least && end_round(sk);

		start_round(state, tp);
		if (!ruled && !state->competing && !state->probing) {
			run_reno(tp, acked);
			return;
		}
	}
	if (state->probing)
		return;
	if (state->competing) {
		grow_by_rule(sk, acked);
		return;
	}
	if (starting && in_slow_start(tp) && is_cwnd_limited(tp))
		tcp_slow_start(tp, acked);
}

static __always_inline void wvegas_grow(struct sock *sk, __u32 ack, __u32 acked)
{
	struct cc_state *state = state_of(tcp_sk(sk));

	if (!state->flow.uncoupled) {
		run_rounds(sk, ack, acked);
		return;
	}
	/* Every decision looks for siblings; beside one, the rounds start over. */
	state->alpha = 0;
	grow_by_rule(sk, acked);
}

/* LIA's step, while the subflow competes. */
static __always_inline void wvegas_follow(struct mpcc_step *step, struct cc_view *v,
					  struct tcp_sock *tp)
{
	step->up = at_most_reno(lia_increase(&sum_of(v)->lia), &v->self);
	step->down = num_zero();
}

static __always_inline void wvegas_on_state(struct sock *sk, __u8 new_state)
{
	struct cc_state *state = state_of(tcp_sk(sk));

	if (new_state == TCP_CA_Open)
		start_over(state, tcp_sk(sk));
	else
		state->off = 1;
}

SEC("struct_ops")
void BPF_PROG(wvegas_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct cc_state *state = state_of(tcp_sk(sk));

	if (event != mpcc_enum(enum tcp_ca_event, CA_EVENT_CWND_RESTART))
		return;
	state->base_rtt_us = 0;
	state->probing = 0;
	state->probed_cwnd = 0;
	start_over(state, tcp_sk(sk));
}

static const struct cc_hooks cc_hooks = {
	.add_path = wvegas_add,
	.step = wvegas_step,
	.after_loss = half_window,
	.floor = reno_floor,
	.set_window = wvegas_set_window,
	.coupling = wvegas_coupling,
	.read_private = wvegas_read_private,
	.follow = wvegas_follow,
	.grow = wvegas_grow,
	.on_loss = wvegas_on_loss,
	.on_state = wvegas_on_state,
};

CC_TABLE(wvegas, .cwnd_event = (void *)wvegas_cwnd_event);
