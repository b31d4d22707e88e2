// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A congestion control that compares mpcc's CUBIC, as any of its algorithms runs it on a connection of one subflow,
 * with the kernel's own, ACK by ACK.
 *
 * The kernel's functions control the connection. At every callback mpcc's, "ours" below, act as well, on the same socket
 * with windows and private state of their own: those lie in the socket while such a function runs, and here while none does.
 *
 * Two windows that are a packet apart stay so, or drift, though both do what is right. So ours begin anew from the
 * kernel's window, and from what it remembers of the last loss, at each loss event, before it is taken back, and where
 * TCP itself has set the window: at the end of a recovery, after a timeout, an undo or a pause. What each makes of a loss
 * event, and of taking it back, is therefore the same to the packet. Within an epoch nothing is made equal.
 */
#include "mpcc/cc.h"

/* One of mpcc's algorithms, less its table: alone they are all the same. */
#undef CC_TABLE
#define CC_TABLE(...) _Static_assert(1, "")
#include "../../../bpf/cc/lia.bpf.c"

extern void cubictcp_init(struct sock *sk) __ksym;
extern __u32 cubictcp_recalc_ssthresh(struct sock *sk) __ksym;
extern void cubictcp_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
extern void cubictcp_state(struct sock *sk, __u8 new_state) __ksym;
extern void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) __ksym;
/* Before 7.1, and since: a kernel has one of them, and the test loads only the program that calls it. */
extern void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym;
extern void cubictcp_cwnd_event_tx_start(struct sock *sk) __ksym;

/* The kernel's private state. */
struct bictcp {
	__u32 last_max_cwnd;
} __attribute__((preserve_access_index));

/* Read by oracle_test.go. Windows in packets. */
struct oracle_result {
	__u64 acks;
	__u64 sum_packets; /* |ours - the kernel's| after each ACK */
	__u64 sum_ppm; /* the same, of the kernel's window */
	__u64 rtts; /* ACKs with an RTT sample that may raise the window */
	__u64 equal_rtts; /* in which that of RACK was the same */
	__u32 most_packets;
	__u32 losses; /* loss events, ECN marks included */
	__u32 marks; /* those of ECN */
	__u32 undos; /* loss events that the kernel has taken back */
	__u32 most_after_undo; /* |ours - the kernel's| window */
	__u32 most_after_loss; /* |ours - the kernel's| ssthresh */
	__u32 most_last_max; /* |ours - the kernel's| memory of the loss */
	__u32 begun_anew; /* where TCP itself had set the window */
	__u32 left_slow_start; /* the kernel's window then; 0 = not yet */
	__u32 ours_left_slow_start;
	__u32 left_at; /* after so many ACKs */
	__u32 ours_left_at;
};

struct oracle {
	struct oracle_result result;
	/* Ours, or the kernel's while ours lie in the socket. */
	__u64 private[13];
	__u32 cwnd;
	__u32 ssthresh;
	/* As the kernel's CUBIC left them. */
	__u32 left_cwnd;
	__u32 left_ssthresh;
	__u32 rtt_us; /* of the last sample */
	__u32 rtt_at_us;
};

/*
 * By the connection's local address, which the test gives to no other. Not the socket's own storage: with the CPU that
 * the VM has, 7.3 makes none.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, __be32);
	__type(value, struct oracle);
} oracles SEC(".maps");

static const struct oracle nothing_yet;

static __always_inline struct oracle *oracle_of(struct sock *sk)
{
	__be32 local = sk->__sk_common.skc_rcv_saddr;

	return bpf_map_lookup_elem(&oracles, &local);
}

static __always_inline struct mpcc_flow *flow_in(struct oracle *o)
{
	return (struct mpcc_flow *)o->private;
}

static __always_inline __u32 last_max_of(const struct tcp_sock *tp)
{
	return ((const struct bictcp *)tp->inet_conn.icsk_ca_priv)->last_max_cwnd;
}

static __always_inline __u32 apart(__u32 a, __u32 b)
{
	return a > b ? a - b : b - a;
}

static __always_inline void note_most(__u32 *most, __u32 ours, __u32 theirs)
{
	if (apart(ours, theirs) > *most)
		*most = apart(ours, theirs);
}

/* Ours go into the socket and the kernel's come out, or the other way around. */
static __always_inline void swap(struct oracle *o, struct tcp_sock *tp)
{
	__u32 cwnd = tp->snd_cwnd, ssthresh = tp->snd_ssthresh;

	tp->snd_cwnd = o->cwnd;
	tp->snd_ssthresh = o->ssthresh;
	o->cwnd = cwnd;
	o->ssthresh = ssthresh;
#pragma unroll
	for (int i = 0; i < 13; i++) {
		__u64 word = tp->inet_conn.icsk_ca_priv[i];

		tp->inet_conn.icsk_ca_priv[i] = o->private[i];
		o->private[i] = word;
	}
}

static __always_inline void begin_anew(struct oracle *o, const struct tcp_sock *tp)
{
	o->cwnd = o->left_cwnd = tp->snd_cwnd;
	o->ssthresh = o->left_ssthresh = tp->snd_ssthresh;
	flow_in(o)->last_max = last_max_of(tp);
}

static __always_inline void note_slow_start(struct oracle_result *r, const struct oracle *o,
					    const struct tcp_sock *tp, bool loss)
{
	if (!r->left_slow_start && (loss || tp->snd_cwnd >= tp->snd_ssthresh)) {
		r->left_slow_start = tp->snd_cwnd;
		r->left_at = r->acks;
	}
	if (!r->ours_left_slow_start && (loss || o->cwnd >= o->ssthresh)) {
		r->ours_left_slow_start = o->cwnd;
		r->ours_left_at = r->acks;
	}
}

static __always_inline void compare(struct oracle *o, const struct tcp_sock *tp)
{
	struct oracle_result *r = &o->result;
	__u32 packets = apart(o->cwnd, tp->snd_cwnd);

	r->acks++;
	r->sum_packets += packets;
	r->sum_ppm += (__u64)packets * 1000000 / tp->snd_cwnd;
	note_most(&r->most_packets, o->cwnd, tp->snd_cwnd);
	note_slow_start(r, o, tp, false);
	if (o->rtt_us && o->rtt_at_us == (__u32)tp->tcp_mstamp) {
		r->rtts++;
		r->equal_rtts += o->rtt_us == tp->rack.rtt_us;
	}
}

SEC("struct_ops")
void BPF_PROG(oracle_init, struct sock *sk)
{
	__be32 local = sk->__sk_common.skc_rcv_saddr;
	struct tcp_sock *tp = tcp_sk(sk);
	struct oracle *o;

	cubictcp_init(sk);
	bpf_map_update_elem(&oracles, &local, &nothing_yet, BPF_ANY);
	o = oracle_of(sk);
	if (!o)
		return;
	o->cwnd = o->left_cwnd = tp->snd_cwnd;
	o->ssthresh = o->left_ssthresh = tp->snd_ssthresh;
	swap(o, tp);
	control_init(sk);
	swap(o, tp);
}

SEC("struct_ops")
void BPF_PROG(oracle_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct oracle *o = oracle_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	if (!o)
		return;
	if (tp->snd_cwnd != o->left_cwnd || tp->snd_ssthresh != o->left_ssthresh) {
		o->result.begun_anew++;
		begin_anew(o, tp);
	}
	swap(o, tp);
	control_ack(sk, ack, acked);
	swap(o, tp);
	cubictcp_cong_avoid(sk, ack, acked);
	o->left_cwnd = tp->snd_cwnd;
	o->left_ssthresh = tp->snd_ssthresh;
	compare(o, tp);
}

SEC("struct_ops")
void BPF_PROG(oracle_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct oracle *o = oracle_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	__u32 ssthresh = tp->snd_ssthresh;

	if (!o)
		return;
	o->rtt_us = sample->rtt_us > 0 ? sample->rtt_us : 0;
	o->rtt_at_us = (__u32)tp->tcp_mstamp;
	cubictcp_acked(sk, sample);
	if (tp->snd_ssthresh == ssthresh)
		return;
	/* By HyStart. The kernel's may also end a slow start after a pause, which ours leave to ssthresh. */
	if (flow_in(o)->started) {
		o->result.begun_anew++;
		begin_anew(o, tp);
	}
	o->left_ssthresh = tp->snd_ssthresh;
}

SEC("struct_ops")
__u32 BPF_PROG(oracle_ssthresh, struct sock *sk)
{
	struct oracle *o = oracle_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	__u32 theirs, ours;

	if (!o)
		return cubictcp_recalc_ssthresh(sk);
	note_slow_start(&o->result, o, tp, true);
	begin_anew(o, tp);
	theirs = cubictcp_recalc_ssthresh(sk);
	swap(o, tp);
	ours = control_loss(sk);
	swap(o, tp);
	o->result.losses++;
	o->result.marks += !is_loss(tp);
	note_most(&o->result.most_after_loss, ours, theirs);
	/* Of the smallest window ours remembers 2 packets, the kernel 1: no curve begins below the window. */
	if (tp->snd_cwnd > MPCC_RENO_FLOOR)
		note_most(&o->result.most_last_max, flow_in(o)->last_max, last_max_of(tp));
	return theirs;
}

SEC("struct_ops")
void BPF_PROG(oracle_set_state, struct sock *sk, __u8 new_state)
{
	struct oracle *o = oracle_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	cubictcp_state(sk, new_state);
	if (!o)
		return;
	swap(o, tp);
	control_state(sk, new_state);
	swap(o, tp);
}

SEC("struct_ops")
void BPF_PROG(oracle_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	cubictcp_cwnd_event(sk, event);
}

SEC("struct_ops")
void BPF_PROG(oracle_tx_start, struct sock *sk)
{
	cubictcp_cwnd_event_tx_start(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(oracle_undo_cwnd, struct sock *sk)
{
	struct oracle *o = oracle_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	__u32 theirs = tcp_reno_undo_cwnd(sk), ours;

	if (!o)
		return theirs;
	begin_anew(o, tp);
	swap(o, tp);
	ours = control_undo(sk);
	swap(o, tp);
	o->result.undos++;
	note_most(&o->result.most_after_undo, ours, theirs);
	return theirs;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC(".struct_ops.link")
struct tcp_congestion_ops oracle = {
	.init = (void *)oracle_init,
	.cong_avoid = (void *)oracle_cong_avoid,
	.pkts_acked = (void *)oracle_pkts_acked,
	.ssthresh = (void *)oracle_ssthresh,
	.set_state = (void *)oracle_set_state,
	.cwnd_event = (void *)oracle_cwnd_event,
	.cwnd_event_tx_start = (void *)oracle_tx_start,
	.undo_cwnd = (void *)oracle_undo_cwnd,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "oracle",
};
