/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Losses told from congestion by the queue: a packet that is lost while the path's queue is short was not dropped for
 * want of room. The idea is TCP-Illinois' (Liu, Basar, Srikant, Performance Evaluation 65(6), 2008).
 *
 *   base          the kernel's windowed minimum of the RTT
 *   mean          of the RTTs of the last rounds: at a round's end half of srtt and half of the mean before, in slow start
 *                 srtt. A round is an RTT
 *   m_0           the mean of the path without a queue: the smallest mean. In a connection's first slow start m_0 follows
 *                 mean until the window has 32 packets. A loss at a window of 16 packets or more, unless the queue was full,
 *                 adds an eighth of what m_0 lacks of mean, as far as jitter explains that: up to base and six mean
 *                 deviations
 *   d             the queue's delay: mean - m_0
 *   noise         what d may be where there is no queue: a quarter of mean - base, at least 1 ms
 *   d_m           the largest d. A round whose d is larger adds a quarter of the difference, so that a single long round is
 *                 not taken for a queue. Used only where d_m is above jitter: base/8, at least 4 ms and at most 16, and above
 *                 twice the noise
 *   full queue    at a loss: the newest RTT, of a packet sent just after the one that is lost, is above base by 7/8 of
 *                 what the longest RTT is. So is every loss where no RTT is above base, as behind some policers
 *   short queue   d is at most d_m / 10, or noise
 *   no queue      at a loss: the queue is short, and the newest RTT above base by at most a quarter of what the longest is
 *   random        how sure it is that the path loses packets at random, 0 to 3
 *   per loss event of a subflow that is not one CUBIC with others (whole.h)
 *                 15/16 of the window stays at least where the queue is short, and random is one more. Where d is longer and
 *                 random above 0, random is one less, and what stays goes down to CUBIC's 717/1024 at 0.8 d_m. Where d is
 *                 longer and random is 0, the rule alone says what stays: an AQM, which drops nothing while the queue is
 *                 short, may have dropped the packet. Where the rule leaves more, the rule holds. Of a full queue what
 *                 the rule says
 *   where d_m is jitter, per loss event of a subflow that is not coupled
 *                 trials tell random losses from those of a policer or of a queue too short to show, which drop nothing
 *                 from a window that is well below what was too much. In a trial a loss costs what the rule says. If the
 *                 next loss comes below 7/8 of the window before the trial, and the path delivers 2/3 of the present one in
 *                 an RTT, and after at most 2^(5/4) times the packets that usually come after a loss that left the window,
 *                 random is one more, else half. A loss begins a trial by a chance of 1 in 2^random, else the window stays
 *   growth        from a loss that is not one of a full queue until one that is, while random is above 0, at least alpha / w
 *                 per acknowledged segment, of coupled subflows alpha / W (whole.h); alpha is 10 packets where d is noise or
 *                 at most d_m / 100, and k_1 / (k_2 + d) above, 0.3 at d = d_m; at most w / 32. Where d_m is jitter, the
 *                 subflow not coupled, random above 0 and the last loss began no trial: half a packet per acknowledged
 *                 segment up to 7/8 of the window at the last loss; above that 1/16, if random is 2 or more and the path
 *                 delivers 4/5 of the window in an RTT
 *
 * An ECN mark is no loss, and like a full queue.
 *
 * d_m counts for at most 5/8 of base: where the queue holds half of base, CUBIC's cut still leaves the path full, and is
 * free. At each loss with a d above noise an eighth of d_m - d is taken off d_m: an AQM drops packets long before its
 * queue is full, and a path whose rate has risen has a shorter queue, in time, than it had. For the same reasons a 32nd of
 * what the longest RTT is above the newest goes at each.
 *
 * A link that keeps packets in order delays all behind one that is late, so RTTs come in runs, and the smallest of a round
 * tells little about the queue; the mean of two rounds tells more. More rounds would hide the short queue of an AQM. In the
 * simulator, over links that vary by 4 to 20 ms and lose 0.1 to 1 %, subflows by themselves carry 5 to 15 % more than with
 * d from a round's smallest RTT, and take less of a line from others. If m_0 could not rise, the first slow start
 * would set m_0 for good: with few packets in flight hardly any waits behind a late one, and RTTs are shorter than with a
 * full window. If m_0 rose to any mean, a queue that many connections never let run empty would be taken for the path:
 * beside ten TCP connections behind CoDel a subflow had three times the rate of each.
 *
 * d alone misses a full queue: a sender that pauses once a round, as the kernel's packet scheduler has each subflow do, finds
 * the queue drained at times, and mean follows the queue only after two rounds.
 *
 * A path that random losses keep far from being full, a satellite's for one, never shows a queue. A policer shows none
 * either, and TCP Westwood (Mascolo et al., MobiCom 2001), which leaves what the path delivers, takes nearly all of its rate
 * from a neighbour. Where a policer is shared, losses come on after a cut, for the neighbour takes what is free; but later
 * than after a loss that left the window, where random ones come as they did. Coupled subflows have no trials: each would
 * grow for the whole.
 *
 * TCP-Illinois counts d from base, in which jitter looks like a queue, keeps 7/8 of the window, and forgets no d_m.
 */
#ifndef MPCC_QUEUE_H
#define MPCC_QUEUE_H

#include "cubic.h"
#include "slow_start.h"
#include "tunable.h"
#include "view.h"

enum { RESPONSE_QUEUE, RESPONSE_STANDARD };
TUNABLE_PAPER(
	response, RESPONSE_QUEUE, "standard",
	"queue|standard; a loss while the queue is short costs a sixteenth of the window, and growth goes by the "
	"queue; or both whatever the queue");

/* Delays are in units of 64 us, the RTT itself from 1 on: 16 bits hold 4.2 s, and longer ones count as that. */
#define QUEUE_SHIFT 6
#define QUEUE_LONGEST 65535
/* What is kept of the time when a round began. */
#define QUEUE_TIME_MASK 0x7fff

/* The least noise, 1 ms, and the part of mean - base that noise is. */
#define QUEUE_LEAST_NOISE (1000 >> QUEUE_SHIFT)
#define QUEUE_NOISE_SHIFT 2
/* In a first slow start m_0 follows mean while the window has fewer packets. */
#define QUEUE_FIRST_CWND 32
/* Of fewer packets RTTs deviate without jitter: the queue moves by whole packets, and ACKs are delayed. */
#define QUEUE_JITTER_CWND 16
/* Of 1024: what a loss leaves while the queue is short. While it is long, CUBIC_LEFT_Q10. */
#define QUEUE_LEFT_SHORT_Q10 960
/* Where a queue is known the window grows by so many packets an RTT at most, and by that part of the window. */
#define QUEUE_MOST_ALPHA 10
#define QUEUE_MOST_PART 32
/* Where none is known, a window beyond 7/8 of what it was at the last loss grows by that part of the window an RTT. */
#define BEYOND_PART 16
/*
 * At each loss an eighth of what d_m is above d goes, if the loss is in a queue; a 32nd of what the longest RTT is above the
 * newest; and an eighth of what m_0 is below mean comes.
 */
#define QUEUE_DOUBT_SHIFT 3
#define QUEUE_PEAK_SHIFT 5
/* A round adds a quarter of what d is above d_m: a delayed ACK lengthens the mean of a single round. */
#define QUEUE_RISE_SHIFT 2
/* From where on random losses are sure enough to grow beyond the last one; and what random is at most. */
#define RANDOM_SURE 2
#define RANDOM_MOST 3
/* In quarters of a bit: how much later than usual a random loss comes after a cut, at most; and the longest gap. */
#define GAP_LATER 5
#define GAP_MOST 63
/* In a trial that finds random losses, and while the window grows beyond the last one, the path delivers so many percent. */
#define RANDOM_DELIVERS 67
#define GROWING_DELIVERS 80
/* A lost packet met no queue where the newest RTT is above base by at most that part of what the longest RTT is. */
#define QUEUE_MET_NONE 4

static __always_inline __u32 queue_units(__u32 us)
{
	__u32 units = (us >> QUEUE_SHIFT) + 1;

	return units < QUEUE_LONGEST ? units : QUEUE_LONGEST;
}

/* d: the queue's delay */
static __always_inline __u32 delay_of(const struct mpcc_queue *q)
{
	return q->mean > q->least ? q->mean - q->least : 0;
}

static __always_inline __u32 noise_of(const struct mpcc_queue *q, const struct tcp_sock *tp)
{
	__s32 noise = (q->mean - (__s32)queue_units(min_rtt_of(tp))) >> QUEUE_NOISE_SHIFT;

	return noise > QUEUE_LEAST_NOISE ? noise : QUEUE_LEAST_NOISE;
}

/* At an ACK with an RTT sample: notes the sample. At the end of a round measures the queue. */
static __always_inline void watch_queue(struct mpcc_flow *flow, const struct tcp_sock *tp,
					__u32 rtt_us)
{
	struct mpcc_queue *q = &flow->queue;
	__u32 rtt = queue_units(rtt_us), srtt_us = tp->srtt_us >> 3;
	__s32 now = tp->tcp_mstamp >> MPCC_COARSE_SHIFT & QUEUE_TIME_MASK;

	if (response != RESPONSE_QUEUE)
		return;
	if (rtt > q->peak)
		q->peak = rtt;
	if (q->mean && ((now - q->began) & QUEUE_TIME_MASK) <= srtt_us >> MPCC_COARSE_SHIFT)
		return;
	q->began = now;
	q->mean = flow->started ? (q->mean + queue_units(srtt_us) + 1) / 2 : queue_units(srtt_us);
	if (!q->least || q->mean < q->least ||
	    (!flow->started && !q->longest && tp->snd_cwnd < QUEUE_FIRST_CWND))
		q->least = q->mean;
	if (delay_of(q) > q->longest)
		q->longest += (delay_of(q) - q->longest + 3) >> QUEUE_RISE_SHIFT;
}

/* Whether the path was seen to have a queue, by which its losses can be told. */
static __always_inline bool knows_queue(const struct mpcc_queue *q, const struct tcp_sock *tp)
{
	return response == RESPONSE_QUEUE &&
	       q->longest >= rise_of_queue(min_rtt_of(tp)) >> QUEUE_SHIFT &&
	       q->longest > 2 * noise_of(q, tp);
}

/* d_m, or what of it counts. */
static __always_inline __u32 longest_queue(const struct mpcc_queue *q, const struct tcp_sock *tp)
{
	__u32 most = queue_units(min_rtt_of(tp)) * 5 / 8;

	return q->longest < most ? q->longest : most;
}

static __always_inline bool is_queue_short(const struct mpcc_queue *q, const struct tcp_sock *tp)
{
	__u32 d = delay_of(q);

	return d <= noise_of(q, tp) || 10 * d <= longest_queue(q, tp);
}

/* Whether the path delivers that percentage of the window in an RTT. The rate is an RTT old, and of a smaller window. */
static __always_inline bool delivers(const struct tcp_sock *tp, __u32 percent)
{
	__u64 packets = (__u64)tp->rate_delivered * (tp->srtt_us >> 3);

	return packets * 100 > (__u64)tp->snd_cwnd * percent * tp->rate_interval_us;
}

/* Whether the window is below 7/8 of what it was at the last loss. */
static __always_inline bool is_regaining(const struct mpcc_flow *flow, const struct tcp_sock *tp)
{
	return tp->snd_cwnd * 8ULL < flow->last_max * 7ULL;
}

/* What a segment adds where no queue is known, in 2^-29 packets */
static __always_inline __u64 step_without_queue(const struct mpcc_flow *flow,
						const struct tcp_sock *tp)
{
	if (flow->trial)
		return 0;
	if (is_regaining(flow, tp))
		return MPCC_Q29_ONE / 2;
	if (flow->random < RANDOM_SURE || !delivers(tp, GROWING_DELIVERS))
		return 0;
	return MPCC_Q29_ONE / BEYOND_PART;
}

/*
 * What a segment adds while losses are random, in 2^-29 packets: alpha / window where a queue is known. window is that of
 * the subflow, or of the whole if the subflow is coupled.
 */
static __always_inline __u64 step_by_queue(const struct mpcc_flow *flow, const struct tcp_sock *tp,
					   __u32 window)
{
	const struct mpcc_queue *q = &flow->queue;
	__u64 d = delay_of(q), d_m, step, alpha_q16 = QUEUE_MOST_ALPHA << 16;

	if (!flow->random)
		return 0;
	if (!knows_queue(q, tp))
		return flow->together ? 0 : step_without_queue(flow, tp);
	if (!q->lossy)
		return 0;
	d_m = longest_queue(q, tp);
	/* k_1 = 0.3062 d_m and k_2 = 0.0206 d_m: 10 at d_m / 100, 0.3 at d_m. */
	if (100 * d > d_m && d > noise_of(q, tp))
		alpha_q16 = (3062 << 16) * d_m / (10000 * d + 206 * d_m);
	step = alpha_q16 * (MPCC_Q29_ONE >> 16) / (window ? window : 1);
	return step < MPCC_Q29_ONE / QUEUE_MOST_PART ? step : MPCC_Q29_ONE / QUEUE_MOST_PART;
}

/*
 * Whether the event that has TCP call ssthresh is a loss. After an ECN mark, or when this host has dropped a packet on its
 * way out, the kernel keeps no ssthresh to go back to.
 */
static __always_inline bool is_loss(const struct tcp_sock *tp)
{
	return tp->prior_ssthresh;
}

/* By how much the newest RTT is above base. */
static __always_inline __s32 newest_rise(const struct tcp_sock *tp)
{
	return (__s32)queue_units(tp->rack.rtt_us) - (__s32)queue_units(min_rtt_of(tp));
}

/* By how much the longest RTT is above base. */
static __always_inline __s32 longest_rise(const struct mpcc_queue *q, const struct tcp_sock *tp)
{
	return q->peak - (__s32)queue_units(min_rtt_of(tp));
}

/* Whether the event that has TCP call ssthresh is congestion: anything but a loss, or the loss of a full queue. */
static __always_inline bool is_congestion(const struct mpcc_queue *q, const struct tcp_sock *tp)
{
	return !is_loss(tp) || 8 * newest_rise(tp) >= 7 * longest_rise(q, tp);
}

/* Whether a packet that is lost met no queue, on a path that was seen to have one. */
static __always_inline bool met_no_queue(const struct mpcc_queue *q, const struct tcp_sock *tp)
{
	return knows_queue(q, tp) && is_queue_short(q, tp) &&
	       QUEUE_MET_NONE * newest_rise(tp) <= longest_rise(q, tp);
}

/* The packets that the path took since the last loss, as four times their binary logarithm, 1 to 63; 0 = not known. */
static __always_inline __u32 gap_of(const struct mpcc_flow *flow, const struct tcp_sock *tp)
{
	__u32 srtt_us = tp->srtt_us >> 3, since_us;
	struct mpcc_num packets;
	__s32 gap;

	if (!flow->curve_subflows || !srtt_us)
		return 0;
	since_us = elapsed_us((__u32)tp->tcp_mstamp, flow->curve.began_us);
	packets = num_mul(num_of(1ULL + since_us), num_of(tp->snd_cwnd));
	packets = num_div(packets, num_of(srtt_us));
	gap = 4 * (packets.e + 31) + (packets.m >> 29 & 3);
	if (gap < 1)
		return 1;
	return gap < GAP_MOST ? gap : GAP_MOST;
}

/* Whether a loss comes after a cut in about as many packets as others after a loss that left the window. */
static __always_inline bool comes_as_ever(const struct mpcc_flow *flow, __u32 gap)
{
	return !flow->gap || gap <= flow->gap + GAP_LATER;
}

/* Counts a loss that speaks for random losses. */
static __always_inline void count_random(struct mpcc_flow *flow)
{
	if (flow->random < RANDOM_MOST)
		flow->random++;
}

/* Counts a trial that a loss has ended; where the last loss left the window, notes how many packets ago that was. */
static __always_inline void end_trial(struct mpcc_flow *flow, const struct tcp_sock *tp)
{
	__u32 gap = gap_of(flow, tp);

	if (!flow->trial) {
		if (flow->random && gap)
			flow->gap = flow->gap ? (3 * flow->gap + gap + 2) / 4 : gap;
		return;
	}
	flow->trial = 0;
	if (!is_regaining(flow, tp) || !delivers(tp, RANDOM_DELIVERS) || !comes_as_ever(flow, gap))
		flow->random /= 2;
	else
		count_random(flow);
}

/* What a loss leaves of the present window at least where no queue is known; 0 = what the rule does. */
static __always_inline __u32 left_without_queue(struct mpcc_flow *flow, const struct tcp_sock *tp)
{
	end_trial(flow, tp);
	if (tp->tcp_mstamp & ((1 << flow->random) - 1))
		return tp->snd_cwnd;
	flow->trial = 1;
	return 0;
}

/* Of 1024: what a random loss leaves beside a queue that is not short; 0 = what the rule does. */
static __always_inline __u32 left_beside_queue(const struct mpcc_queue *q,
					       const struct tcp_sock *tp)
{
	__u32 d = delay_of(q), d_m = longest_queue(q, tp);

	if (10 * d >= 8 * d_m)
		return 0;
	return QUEUE_LEFT_SHORT_Q10 -
	       (QUEUE_LEFT_SHORT_Q10 - CUBIC_LEFT_Q10) * (10 * d - d_m) / (7 * d_m);
}

/* What the event leaves of the present window at least; 0 = what the rule does. */
static __always_inline __u32 left_by_queue(struct mpcc_flow *flow, const struct tcp_sock *tp,
					   bool congestion)
{
	const struct mpcc_queue *q = &flow->queue;
	__u32 left = QUEUE_LEFT_SHORT_Q10;
	bool known = knows_queue(q, tp);

	if (response != RESPONSE_QUEUE)
		return 0;
	if (!congestion && !flow->together && !known)
		return left_without_queue(flow, tp);
	flow->trial = 0;
	if (congestion || !known)
		return 0;
	if (is_queue_short(q, tp)) {
		count_random(flow);
	} else {
		if (!flow->random)
			return 0;
		flow->random--;
		left = left_beside_queue(q, tp);
	}
	return (__u64)tp->snd_cwnd * left >> 10;
}

/* After the event: a shorter queue that drops packets takes from d_m, and jitter adds to m_0. */
static __always_inline void doubt_queue(struct mpcc_queue *q, const struct tcp_sock *tp,
					bool congestion)
{
	__u32 rtt = queue_units(tp->rack.rtt_us), d = delay_of(q), jitter;

	q->lossy = !congestion;
	if (rtt < q->peak)
		q->peak -= (q->peak - rtt) >> QUEUE_PEAK_SHIFT;
	if (congestion)
		return;
	if (d > noise_of(q, tp) && d < q->longest)
		q->longest -= (q->longest - d) >> QUEUE_DOUBT_SHIFT;
	if (tp->snd_cwnd < QUEUE_JITTER_CWND)
		return;
	/* mdev_us is four mean deviations. */
	jitter = queue_units(min_rtt_of(tp) + tp->mdev_us + tp->mdev_us / 2);
	if (jitter > q->mean)
		jitter = q->mean;
	if (jitter > q->least)
		q->least += (jitter - q->least + 7) >> QUEUE_DOUBT_SHIFT;
}

#endif
