// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * earliest: each byte goes where it arrives first, and what a slow subflow holds is sent again on faster ones before the
 * connection has to wait for it. No paper's rule, but made of published ideas: not to use a slow subflow while a faster one
 * is done sooner (ECF, Lim et al., CoNEXT 2017; STTF, Hurtig et al., ToN 2019), and opportunistic retransmission (Raiciu et
 * al., NSDI 2012). Two others are not used. DAPS (Kuhn et al., ICC 2014) plans many packets ahead from RTTs and windows,
 * which change before the plan is done. Redundancy that adapts, beside BBR (AR&P, Han et al., IEEE TWC 2021), sends bytes
 * twice before a subflow has failed: bandwidth that new data lacks on the other subflows.
 *
 *   load(n)     bytes in flight, queued, and n more
 *   w           the bytes that the subflow sends in srtt: its window; where srtt is above 9/8 of the least RTT, and slow start
 *               over, at most the delivery rate times srtt. A window that is not filled says nothing of what a path takes,
 *               but one that has a queue delivers all that the path takes. And at most the counted rate times srtt
 *   the counted rate   bytes delivered in one srtt, or in 100 ms if srtt is less, over that time. A count is taken if the
 *               subflow had more than twice these bytes in flight at the begin, or if the rate is above the last one taken.
 *               TCP's delivery rate is a window over the RTT of that window: when the path slows down, that rate falls only
 *               as the RTT rises; and that rate does not change while the subflow has little to send
 *   round(n)    srtt load(n) / w, at least the least RTT: srtt tells of a queue as it was, and some of that may have drained.
 *               Where nothing is in flight, what exceeds the window waits for another least RTT
 *   arrival(n)  round(n) - the least RTT / 2: how long n bytes take that are sent now. The way there may have a queue, the way
 *               back takes half of the least RTT.
 *   sent(t)     w t / srtt, what it sends in a time; in slow start as many windows as w becomes in t, if it doubles with each
 *               of four round trips
 *   p           bytes of the fragment that goes to one subflow next
 *   written     bytes that were never sent
 *   k           written + the bytes that the application waits to write
 * Of written, what exceeds the peer's window does not count, and of k what exceeds a third of that window: would a subflow take as
 * long as the others need for the whole window, they would stop whenever something comes later than reckoned here.
 *
 * New data: s is the usable subflow with the least arrival(p), or the one that had data last, if its arrival(p) is at most 1 ms
 * later: changes for so little bring the receiver nothing but data out of order. Others, whose arrival(0) is less than that
 * of s, are full.
 *   wait       if the others have delivered k bytes before s delivers p: k < all = sum of their
 *              sent(arrival_s(p) - least of their arrival(0)); or if s delivers p later than the others' least arrival(0),
 *              500 ms and the least RTT of s: so long the receiver would have to wait with what the others deliver
 *   send on s  else, k - all bytes at most before the next decision, and no more than arrive by that time
 * Where the one that had data last would have to wait, the one with the least arrival(p) is asked.
 *
 * A slow subflow h harms nobody while the other subflows have something to send. But the buffers of both hosts begin at the
 * connection's oldest byte that is not acknowledged. If h holds that byte, the buffers fill, and the other subflows stop.
 * The bytes held by h are sent again on the subflows without the oldest byte, if those subflows are about to stop, and can
 * deliver the written bytes and the bytes held by h before h delivers the bytes that h holds:
 *   written < sum of the other subflows' sent(srtt of the one among them with the least arrival(0))
 *   written + bytes held by h < sum of the other subflows' sent(held - least of the other subflows' arrival(0))
 *   held  srtt_h; twice that if the oldest byte has been the oldest for longer than srtt_h
 * Sooner, the repetition would take the place of new data, and h may be done before the others stop. But if h has become
 * slow since it was given its bytes, arrival_h(0) > 2 srtt_h, the receiver waits longer than was reckoned: then they are
 * sent again as soon as the other subflows can deliver them in half of arrival_h(0). Both by the counted rate alone, where
 * there is one: TCP's delivery rate is too low after h had little to send, and a healthy path would be taken for a slow one.
 * No byte is repeated twice: the next repetition waits until all bytes are acknowledged that were sent before the last one.
 *
 * While arrival(0) of a subflow with data is more than twice the least arrival(0), the connection's timer goes off one round
 * trip of the fastest subflow after the last progress, for the decision whether h's data is sent again. Each packet that h
 * delivers is progress, and starts the timer anew. So the timer takes half of the time between two such packets, if that is
 * less, no repetition is on its way, and all that is written fits into two windows of the fastest subflow, or a subflow has
 * become slow. The expiry counts as no timeout (sched_patience.h); that of a timer which the kernel set does, at once.
 *
 * Kernels with a scheduler type of their own have no function that tells who holds a byte: there nothing is sent again
 * before a timeout.
 */
#include "mpcc/sched.h"
#include "mpcc/sched_patience.h"

struct earliest_lane {
	__u64 rate; /* bytes per second delivered; 0 = not measured */
	__u64 counted_rate; /* bytes per second; 0 = not counted */
	__u32 least_rtt_us; /* of the last minutes */
	__u32 carried_bytes; /* handed to it and not acknowledged */
	__u8 growing; /* is in slow start */
	__u8 holds; /* has the connection's oldest byte; known for retransmissions only */
};

struct earliest_demand {
	__u64 fresh; /* bytes that were never sent */
	__u32 awaited; /* bytes that the application waits to write, and may */
	__u32 piece; /* bytes that are sent on one subflow next */
	__u32 waited_us; /* since the oldest byte is the oldest */
	__u8 early; /* the timer went off before a timeout was due */
	__u8 repeating; /* what is to be sent was sent once already */
	__u8 repeated; /* and so was the oldest byte */
};

struct earliest_memory {
	__u32 last; /* the subflow that had data last, as subflow_id */
	__u32 slow; /* the subflow whose data was sent again last, as subflow_id */
	__u64 repeated_to; /* data sequence number up to which that was */
	__u8 timed; /* the timer may have been set to look; else it is the kernel's */
	struct sched_progress progress;
};

/* What a subflow delivers. */
struct earliest_count {
	__u64 began_us; /* 0 = not yet */
	__u32 for_us;
	__u32 in_flight_then; /* bytes */
	__u32 in_flight;
	__u32 delivered_then; /* bytes since any time; the number wraps */
	__u32 delivered;
};

struct earliest_outcome {
	__u32 look_us; /* after which the timer goes off, to look; 0 = after the kernel's timeout */
};

struct sched_own {
	unsigned long timeout; /* jiffies; the kernel's for the connection's timer */
	__u64 burst; /* bytes that the subflow with new data gets before the next decision */
	struct earliest_lane lanes[MPCC_MAX_LANES];
	struct earliest_count counts[MPCC_MAX_LANES];
	struct earliest_demand demand;
	struct earliest_memory memory;
	struct earliest_outcome outcome;
	/* w and arrival(0) of each subflow, reckoned before each decision */
	__u32 windows[MPCC_MAX_LANES];
	__u64 arrivals_us8[MPCC_MAX_LANES];
};

/* A window, but at most what a rate delivers in srtt, or a packet; a rate of 0, or of 4 GB/s and more, limits nothing. */
static __always_inline __u64 limit_window(__u64 window, __u64 rate, const struct mpcc_lane *l)
{
	__u64 delivered;

	if (!rate || rate >> 32)
		return window;
	delivered = rate * l->srtt_us8 / 8000000;
	if (delivered < l->mss)
		delivered = l->mss;
	return delivered < window ? delivered : window;
}

/* w without TCP's delivery rate, at least a packet and at most 4 GB. */
static __always_inline __u32 counted_window(const struct mpcc_lane *l,
					    const struct earliest_lane *o)
{
	__u64 window = limit_window((__u64)l->cwnd * l->mss, o->counted_rate, l);

	return window < 0xffffffff ? window : 0xffffffff;
}

/* w */
static __always_inline __u32 window_of(const struct mpcc_lane *l, const struct earliest_lane *o)
{
	__u32 window = counted_window(l, o);

	if (!o->growing && l->srtt_us8 > 9ULL * o->least_rtt_us)
		window = limit_window(window, o->rate, l);
	return window;
}

/*
 * Congestion windows that are sent in a number of round trips, both in 2^-16, if the window doubles with each of the first
 * four.
 */
static __always_inline __u64 doubling_q16(__u64 rounds_q16)
{
	__u64 whole = rounds_q16 >> 16;

	if (whole > 4)
		whole = 4;
	return (((1ULL << whole) - 1) << 16) + ((rounds_q16 - (whole << 16)) << whole);
}

#define MOST_ROUNDS 1024ULL

/* Bytes that subflow i sends in a time, of MOST_ROUNDS round trips at most. */
MPCC_GLOBAL __u64 sent_in(struct mpcc_scene *s nonnull, struct sched_own *own nonnull, __u32 i,
			  __u64 us8)
{
	const struct mpcc_lane *l = lane_at(s, i);
	__u64 rounds_q16;

	if (!l->srtt_us8)
		return 0;
	rounds_q16 = MOST_ROUNDS << 16;
	if (us8 < MOST_ROUNDS * l->srtt_us8)
		rounds_q16 = (us8 << 16) / l->srtt_us8;
	if (element_of(own->lanes, i)->growing)
		rounds_q16 = doubling_q16(rounds_q16);
	return *element_of(own->windows, i) * rounds_q16 >> 16;
}

#define MOST_LOAD (1ULL << 29)

/* How long it takes until more bytes, which are sent now, are acknowledged; w is the window. */
static __always_inline __u64 round_of(const struct mpcc_lane *l, const struct earliest_lane *o,
				      __u32 w, __u32 more)
{
	__u64 load = (__u64)l->in_flight * l->mss + l->queued + more;
	__u64 least_us8 = 8ULL * o->least_rtt_us, us8;

	/* Half a billion bytes and nine minutes make the largest product. */
	us8 = w ? l->srtt_us8 * (load < MOST_LOAD ? load : MOST_LOAD) / w : l->srtt_us8;
	if (us8 < least_us8)
		us8 = least_us8;
	if (load > (__u64)l->cwnd * l->mss && !l->in_flight)
		us8 += least_us8;
	return us8;
}

/* How long more bytes take that are sent now: one byte, if none. */
static __always_inline __u64 arrival_of(const struct mpcc_lane *l, const struct earliest_lane *o,
					__u32 w, __u32 more)
{
	return round_of(l, o, w, more) - 4ULL * o->least_rtt_us;
}

MPCC_GLOBAL int reckon_arrivals(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	for_each_lane(i, s)
	{
		const struct mpcc_lane *l = lane_at(s, i);
		const struct earliest_lane *o = element_of(own->lanes, i);

		own->windows[i] = window_of(l, o);
		own->arrivals_us8[i] = arrival_of(l, o, own->windows[i], 0);
	}
	return 0;
}

static __always_inline __u64 arrival_us8(const struct sched_own *own, __u32 i)
{
	return *element_of(own->arrivals_us8, i);
}

MPCC_GLOBAL __u64 arrival_with(struct mpcc_scene *s nonnull, struct sched_own *own nonnull, __u32 i,
			       __u32 more)
{
	return arrival_of(lane_at(s, i), element_of(own->lanes, i), *element_of(own->windows, i),
			  more);
}

/* As many of the bytes as the peer's window takes. */
static __always_inline __u64 sendable(const struct mpcc_scene *s, __u64 bytes)
{
	return bytes < s->demand.window ? bytes : s->demand.window;
}

#define NEVER (~0ULL)

/* Those that are asked who arrives first. */
enum earliest_who {
	WHO_IS_USABLE,
	WHO_IS_ALIVE,
	WHO_LACKS_OLDEST, /* alive, and without the connection's oldest byte */
};

static __always_inline bool is_one(struct mpcc_scene *s, struct sched_own *own, __u32 i, int who)
{
	const struct mpcc_verdict *v = verdict_at(s, i);

	if (who == WHO_IS_USABLE)
		return v->usable;
	return v->alive && !(who == WHO_LACKS_OLDEST && element_of(own->lanes, i)->holds);
}

/* The subflow among them with the earliest arrival of more bytes; MPCC_NO_LANE if there is none. */
MPCC_GLOBAL __u32 earliest_of(struct mpcc_scene *s nonnull, struct sched_own *own nonnull, int who,
			      __u32 more)
{
	__u32 best = MPCC_NO_LANE;
	__u64 least_us8 = 0;

	for_each_lane(i, s)
	{
		__u64 us8;

		if (!is_one(s, own, i, who))
			continue;
		us8 = more ? arrival_with(s, own, i, more) : arrival_us8(own, i);
		if (best != MPCC_NO_LANE && us8 >= least_us8)
			continue;
		best = i;
		least_us8 = us8;
	}
	return best;
}

/* Bytes that the subflows of a kind whose arrival(0) is less than before_us8 send until us8. */
MPCC_GLOBAL __u64 sent_by(struct mpcc_scene *s nonnull, struct sched_own *own nonnull, int who,
			  __u64 before_us8, __u64 us8)
{
	__u32 first = earliest_of(s, own, who, 0);
	__u64 bytes = 0, least_us8 = arrival_us8(own, first);

	if (first == MPCC_NO_LANE || least_us8 >= us8)
		return 0;
	for_each_lane(i, s)
	{
		if (is_one(s, own, i, who) && arrival_us8(own, i) < before_us8)
			bytes += sent_in(s, own, i, us8 - least_us8);
	}
	return bytes;
}

/* The longest that the receiver may wait with what other subflows deliver, beside a path's least RTT. */
#define LONGEST_WAIT_US 500000ULL

/*
 * Bytes for subflow i: what the others have not delivered when subflow i has delivered the piece, and no more than arrive
 * before LONGEST_WAIT_US are over. 0 = the others have delivered all, or the piece arrives too late.
 */
MPCC_GLOBAL __u64 left_for(struct mpcc_scene *s nonnull, struct sched_own *own nonnull, __u32 i)
{
	__u64 us8 = arrival_with(s, own, i, own->demand.piece);
	__u64 all = own->demand.fresh + own->demand.awaited;
	__u64 others = sent_by(s, own, WHO_IS_ALIVE, arrival_us8(own, i), us8), latest_us8, most;

	if (all > s->demand.window / 3)
		all = s->demand.window / 3;
	if (all < others)
		return 0;
	all = all - others + 1;
	if (!others)
		return all;
	latest_us8 = arrival_us8(own, earliest_of(s, own, WHO_IS_ALIVE, 0)) +
		     8 * (LONGEST_WAIT_US + element_of(own->lanes, i)->least_rtt_us);
	if (us8 > latest_us8)
		return 0;
	most = own->demand.piece + sent_in(s, own, i, latest_us8 - us8);
	return all < most ? all : most;
}

/* How long subflow i takes with all that it has. */
MPCC_GLOBAL __u64 held_us8(struct mpcc_scene *s nonnull, struct sched_own *own nonnull, __u32 i)
{
	__u64 srtt_us8 = lane_at(s, i)->srtt_us8;

	return 8ULL * own->demand.waited_us > srtt_us8 ? 2 * srtt_us8 : srtt_us8;
}

/* Of the subflows with the connection's oldest byte, the one that is done first; MPCC_NO_LANE if none has it. */
MPCC_GLOBAL __u32 holder(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	__u32 best = MPCC_NO_LANE;
	__u64 least_us8 = 0;

	for_each_lane(i, s)
	{
		__u64 us8 = held_us8(s, own, i);

		if (!element_of(own->lanes, i)->holds || (best != MPCC_NO_LANE && us8 >= least_us8))
			continue;
		best = i;
		least_us8 = us8;
	}
	return best;
}

/* Bytes that the subflows without the connection's oldest byte send until us8. */
static __always_inline __u64 sent_beside(struct mpcc_scene *s, struct sched_own *own, __u64 us8)
{
	return sent_by(s, own, WHO_LACKS_OLDEST, NEVER, us8);
}

/* arrival(0) of subflow i, by the counted rate alone where there is one, if subflow i has become slow; else 0. */
MPCC_GLOBAL __u64 slowed_us8(struct mpcc_scene *s nonnull, struct sched_own *own nonnull, __u32 i)
{
	const struct mpcc_lane *l = lane_at(s, i);
	const struct earliest_lane *o = element_of(own->lanes, i);
	__u64 us8 = arrival_us8(own, i);

	if (o->counted_rate && us8 > 2ULL * l->srtt_us8)
		us8 = arrival_of(l, o, counted_window(l, o), 0);
	return us8 > 2ULL * l->srtt_us8 ? us8 : 0;
}

/* The number from 1 of the subflow whose data goes out again; 0 if none. */
MPCC_GLOBAL __u32 to_repeat(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	__u32 slow = holder(s, own), first = earliest_of(s, own, WHO_LACKS_OLDEST, 0);
	__u64 fresh = sendable(s, own->demand.fresh), round_us8, late_us8, held;

	if (slow == MPCC_NO_LANE || first == MPCC_NO_LANE)
		return 0;
	if (own->demand.repeating || own->demand.repeated)
		return 0;
	held = element_of(own->lanes, slow)->carried_bytes;
	late_us8 = slowed_us8(s, own, slow);
	if (late_us8 && held < sent_beside(s, own, late_us8 / 2))
		return slow + 1;
	round_us8 = arrival_us8(own, first) + lane_at(s, first)->srtt_us8;
	if (fresh >= sent_beside(s, own, round_us8))
		return 0;
	if (fresh + held >= sent_beside(s, own, held_us8(s, own, slow)))
		return 0;
	return slow + 1;
}

/*
 * The time between two packets that a subflow delivers which has data and arrives later than twice the time given: of several
 * such subflows the least; NEVER if there is none.
 */
MPCC_GLOBAL __u64 slow_packet_us8(struct mpcc_scene *s nonnull, struct sched_own *own nonnull,
				  __u64 us8)
{
	__u64 least_us8 = NEVER;

	for_each_lane(i, s)
	{
		const struct mpcc_lane *l = lane_at(s, i);
		__u64 packet_us8 = l->srtt_us8 / (l->in_flight ? l->in_flight : 1);

		if (element_of(own->lanes, i)->carried_bytes && !lane_gone(l) &&
		    arrival_us8(own, i) > 2 * us8 && packet_us8 < least_us8)
			least_us8 = packet_us8;
	}
	return least_us8;
}

MPCC_GLOBAL int any_is_slowed(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	for_each_lane(i, s)
	{
		if (element_of(own->lanes, i)->carried_bytes && slowed_us8(s, own, i))
			return 1;
	}
	return 0;
}

/*
 * Whether bytes may have to be sent again soon: no repetition is on its way, and the others may stop for a slow one, as two
 * windows of the subflow l take all data; or one has become slow.
 */
static __always_inline bool may_repeat(struct mpcc_scene *s, struct sched_own *own,
				       const struct mpcc_lane *l)
{
	return !own->demand.repeated &&
	       (sendable(s, own->demand.fresh) < 2 * (__u64)l->cwnd * l->mss ||
		any_is_slowed(s, own));
}

/* When the timer is to go off, to see whether data is to be sent again. */
MPCC_GLOBAL int watch(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	__u32 first = earliest_of(s, own, WHO_IS_ALIVE, 0);
	__u64 packet_us8 = NEVER, look_us8;

	if (first != MPCC_NO_LANE)
		packet_us8 = slow_packet_us8(s, own, arrival_us8(own, first));
	own->outcome.look_us = 0;
	if (packet_us8 == NEVER)
		return 0;
	look_us8 = lane_at(s, first)->srtt_us8;
	if (packet_us8 / 2 < look_us8 && may_repeat(s, own, lane_at(s, first)))
		look_us8 = packet_us8 / 2;
	own->outcome.look_us = 1 + (look_us8 >> 3);
	return 0;
}

/* Keeps the slow subflow from sending its own data again, if another subflow is alive. */
MPCC_GLOBAL int spare_slow(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	bool others = false;

	for_each_lane(i, s)
	{
		if (s->verdicts[i].alive && s->lanes[i].subflow_id != own->memory.slow)
			others = true;
	}
	if (!others)
		return 0;
	for_each_lane(i, s)
	{
		if (s->lanes[i].subflow_id == own->memory.slow)
			s->verdicts[i].usable = 0;
	}
	return 0;
}

/* 1 ms */
#define TIE_US8 8000

/* The subflow that had new data last, if its piece arrives within TIE_US8 of that of the first; else the first. */
MPCC_GLOBAL __u32 last_or_first(struct mpcc_scene *s nonnull, struct sched_own *own nonnull,
				__u32 first)
{
	__u64 latest_us8 = arrival_with(s, own, first, own->demand.piece) + TIE_US8;

	for_each_lane(i, s)
	{
		if (s->lanes[i].subflow_id == own->memory.last && s->verdicts[i].usable &&
		    arrival_with(s, own, i, own->demand.piece) <= latest_us8)
			return i;
	}
	return first;
}

/* Sends new data on the subflow that had some last, on the first, or waits. */
static __always_inline int send_new(struct mpcc_scene *s, struct sched_own *own, __u32 first)
{
	__u32 chosen = last_or_first(s, own, first);

	own->burst = left_for(s, own, chosen);
	if (!own->burst && chosen != first) {
		chosen = first;
		own->burst = left_for(s, own, first);
	}
	if (!own->burst)
		return RULE_MARKED;
	own->memory.last = lane_at(s, chosen)->subflow_id;
	send_on(s, chosen);
	return RULE_MARKED;
}

MPCC_GLOBAL int earliest_rule(struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	__u32 first;

	reckon_arrivals(s, own);
	watch(s, own);
	if (s->demand.reinject && own->demand.early) {
		s->outcome.repeats = to_repeat(s, own);
		if (s->outcome.repeats)
			own->memory.slow = lane_at(s, s->outcome.repeats - 1)->subflow_id;
		return RULE_DEFERS;
	}
	if (own->demand.repeating && own->demand.repeated && !s->demand.reinject)
		spare_slow(s, own);
	first = earliest_of(s, own, WHO_IS_USABLE, own->demand.piece);
	if (first == MPCC_NO_LANE)
		return RULE_MARKED;
	if (!s->demand.reinject)
		return send_new(s, own, first);
	own->burst = 0;
	send_on(s, first);
	return RULE_MARKED;
}

static __always_inline void earliest_start_subflow(struct sched_own *own, __u32 i,
						   const struct tcp_sock *tp)
{
	element_of(own->counts, i)->began_us = 0;
	element_of(own->lanes, i)->counted_rate = 0;
}

static __always_inline void earliest_read_subflow(struct sched_own *own, __u32 i,
						  const struct tcp_sock *tp)
{
	struct earliest_lane *o = element_of(own->lanes, i);
	struct earliest_count *c = element_of(own->counts, i);

	o->rate = delivery_rate_of(tp);
	o->least_rtt_us = tp->rtt_min.s[0].v;
	o->carried_bytes = tp->write_seq - tp->snd_una;
	o->growing = tp->snd_cwnd < tp->snd_ssthresh;
	c->delivered = tp->snd_una + tp->sacked_out * tp->mss_cache;
	c->in_flight = tp->snd_nxt - tp->snd_una;
}

#define COUNT_LEAST_US 100000

/* Ends a count whose time is over, and begins the next. */
static __always_inline void end_count(struct earliest_count *c, struct earliest_lane *o,
				      const struct mpcc_lane *l, __u64 now_us)
{
	__u64 since_us = now_us - c->began_us, rate;
	__u32 delivered = c->delivered - c->delivered_then, srtt_us = l->srtt_us8 >> 3;

	if (!srtt_us || (c->began_us && since_us < c->for_us))
		return;
	if (c->began_us) {
		rate = 1000000ULL * (delivered > l->mss ? delivered : l->mss) / since_us;
		if (2ULL * delivered < c->in_flight_then ||
		    (o->counted_rate && rate > o->counted_rate))
			o->counted_rate = rate;
	}
	c->began_us = now_us;
	c->for_us = srtt_us > COUNT_LEAST_US ? srtt_us : COUNT_LEAST_US;
	c->in_flight_then = c->in_flight;
	c->delivered_then = c->delivered;
}

MPCC_GLOBAL int end_counts(const struct mpcc_scene *s nonnull, struct sched_own *own nonnull)
{
	for_each_lane(i, s)
	{
		end_count(element_of(own->counts, i), element_of(own->lanes, i),
			  element_of(s->lanes, i), s->demand.now_us);
	}
	return 0;
}

static __always_inline void earliest_read_connection(struct sched_own *own,
						     const struct mpcc_scene *s,
						     const struct mptcp_sock *msk)
{
	struct earliest_memory *m = &own->memory;
	__u64 waited_us;

	/* The first decision: nothing was repeated, whatever number the connection began with. */
	if (!m->progress.progress_us)
		m->repeated_to = msk->snd_una;
	own->demand.fresh = msk->write_seq - msk->snd_nxt;
	own->demand.awaited = sched_awaited(msk);
	own->demand.piece = sched_piece(msk);
	own->demand.repeating = (__s64)(msk->snd_nxt - sched_next_seq(msk)) > 0;
	own->demand.repeated = (__s64)(m->repeated_to - msk->snd_una) > 0;
	own->demand.early = is_early(&m->progress, s, msk) && m->timed;
	waited_us = s->demand.now_us - m->progress.progress_us;
	own->demand.waited_us = waited_us < 0xffffffff ? waited_us : 0xffffffff;
	end_counts(s, own);
}

static __always_inline void earliest_read_retrans(struct sched_own *own, struct mptcp_sock *msk)
{
	struct mptcp_subflow_context *subflow;
	const struct tcp_sock *tp;
	__u32 i = 0;

	sched_for_each(subflow, tp, msk)
	{
		if (i >= MPCC_MAX_LANES)
			break;
		element_of(own->lanes, i)->holds = sched_carries(subflow, msk->snd_una);
		i++;
	}
}

static __always_inline __u64 earliest_burst(const struct sched_own *own, const struct mpcc_lane *l)
{
	__u64 room = lane_room(l);

	/* own->burst is 0 for a retransmission, and for a wait that guard_wait() has not granted. */
	return own->burst && own->burst < room ? own->burst : room;
}

static __always_inline void earliest_show_subflow(struct mpcc_sched_subflow *shown,
						  const struct sched_own *own,
						  const struct mpcc_scene *s, __u32 i)
{
	/* Mbit/s: bytes per eighth of a microsecond, times 64 */
	shown->rate = num_div(num_of((__u64)*element_of(own->windows, i) << 6),
			      num_of(element_of(s->lanes, i)->srtt_us8));
	shown->arrival_us = arrival_us8(own, i) >> 3;
	shown->held = element_of(own->lanes, i)->carried_bytes;
}

/* A tick has 1 to 10 ms. Taken for 10 ms, the timer goes off early at worst, finds nothing to do, and is set anew. */
static __always_inline void set_timer(struct sched_own *own, struct mptcp_sock *msk)
{
	if (!own->outcome.look_us)
		return;
	sched_set_timeout(msk, 1 + own->outcome.look_us / 10000);
	own->memory.timed = 1;
}

static __always_inline int earliest_after_send(struct sched_own *own, const struct mpcc_scene *s,
					       struct mptcp_sock *msk, int scheduled)
{
	own->timeout = msk->timer_ival;
	set_timer(own, msk);
	return scheduled;
}

static __always_inline void repeat(struct sched_own *own, const struct mpcc_scene *s,
				   struct mptcp_sock *msk)
{
	struct mptcp_subflow_context *subflow;
	const struct tcp_sock *tp;
	__u32 i = 0;

	own->memory.repeated_to = msk->snd_nxt;
	sched_for_each(subflow, tp, msk)
	{
		if (++i != s->outcome.repeats)
			continue;
		sched_resend_of(msk, subflow);
		return;
	}
}

static __always_inline int earliest_after_retrans(struct sched_own *own, const struct mpcc_scene *s,
						  struct mptcp_sock *msk, int scheduled)
{
	if (s->outcome.repeats)
		repeat(own, s, msk);
	sched_set_timeout(msk, own->timeout);
	own->memory.timed = 0;
	set_timer(own, msk);
	return end_timeout(&own->memory.progress, s, own->demand.early, scheduled);
}

static const struct sched_hooks sched_hooks = {
	.rule = earliest_rule,
	.start_subflow = earliest_start_subflow,
	.read_subflow = earliest_read_subflow,
	.read_connection = earliest_read_connection,
	.read_retrans = earliest_read_retrans,
	.burst = earliest_burst,
	.show_subflow = earliest_show_subflow,
	.after_send = earliest_after_send,
	.after_retrans = earliest_after_retrans,
};

SCHED_TABLE(earliest);
