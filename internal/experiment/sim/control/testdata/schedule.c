// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * One packet scheduler (-DALGORITHM=blest), compiled for the host, on a connection of subflows to which the test beside
 * this file has things happen: it reads steps and writes what the scheduler has chosen, and what it keeps.
 */
#include "native.h"

#undef bpf_map_lookup_elem
#define bpf_map_lookup_elem element
#define bpf_map_update_elem make_element
#define bpf_map_delete_elem drop_element
#define bpf_ktime_get_ns clock_ns
#define bpf_jiffies64 clock_jiffies

static void *element(const void *map, const void *key);
static long make_element(const void *map, const void *key, const void *value, __u64 flags);
static long drop_element(const void *map, const void *key);
static __u64 clock_ns(void);
static __u64 clock_jiffies(void);

#include SOURCE(sched, ALGORITHM)

#define LANES 4

enum { BEGIN, SEND, RETRANSMIT, RELEASE };

/* The same as type laneStep of the test. */
struct lane_step {
	__u64 expires, bytes_sent, bytes_retrans;
	__u32 srtt_us8, rttvar_us, cwnd, ssthresh, mss, packets_out, sacked_out, lost_out,
		retrans_out;
	__u32 snd_una, snd_nxt, write_seq, high_seq, queued, buffer, rate_delivered,
		rate_interval_us, least_rtt_us;
	__u8 ca_state, backup, stale, stale_count, active, revives, carries, pad;
};

struct step {
	__u64 now_ns, jiffies, una, nxt, next, written, wnd_end, timeout;
	__s32 burst, queued, buffer;
	__u32 event, count, resends, piece, pad;
	struct lane_step lanes[LANES];
};

struct outcome {
	__u64 timeout, buffer;
	__s32 result, burst;
	__u32 scheduled, resent, stale, pad;
	unsigned char own[SCHED_OWN_BYTES];
};

static struct step step;
static struct net net = { .net_cookie = 1 };
static struct mptcp_sock msk;
static struct mptcp_data_frag head;
static struct tcp_sock socks[LANES];
static struct mptcp_subflow_context contexts[LANES];
static struct net_device devices[LANES];
static struct dst_entry routes[LANES];
static __u32 scheduled, resent;
static __u64 buffer;

/* The maps: the state of the one connection, the states beside it, and profiles of interfaces. */
static struct sched_state state;
static bool has_state;
static __u32 states;
static struct mpcc_energy_profile profile;

static void *element(const void *map, const void *key)
{
	if (map == &mpcc_sched_state)
		return has_state ? &state : NULL;
	if (map == &mpcc_sched_share)
		return &states;
	if (map == &mpcc_energy) {
		__u32 number = ((const struct mpcc_energy_key *)key)->ifindex;

		/* As the test sets them. */
		profile.up_uw_per_mbps = 100000 / number;
		profile.base_uw = 300000 * number;
		return &profile;
	}
	return NULL;
}

static long make_element(const void *map, const void *key, const void *value, __u64 flags)
{
	if (map != &mpcc_sched_state)
		return -1;
	memcpy(&state, value, sizeof(state));
	has_state = true;
	return 0;
}

static long drop_element(const void *map, const void *key)
{
	if (map == &mpcc_sched_state)
		has_state = false;
	return 0;
}

static __u64 clock_ns(void)
{
	return step.now_ns;
}

static __u64 clock_jiffies(void)
{
	return step.jiffies;
}

int sched_iter_new(struct sched_iter *it, struct mptcp_sock *sock)
{
	it->opaque[0] = 0;
	return 0;
}

struct mptcp_xsched_subflow *sched_iter_next(struct sched_iter *it)
{
	struct mptcp_xsched_subflow *given = (void *)&it->opaque[2];
	__u64 i = it->opaque[0]++;

	if (i >= step.count)
		return NULL;
	given->context = &contexts[i];
	given->socket = &socks[i];
	return given;
}

void sched_iter_destroy(struct sched_iter *it)
{
}

bool sched_active(struct mptcp_subflow_context *subflow)
{
	const struct lane_step *l = &step.lanes[subflow - contexts];

	if (l->revives)
		subflow->stale = 0;
	return l->active && !subflow->stale;
}

void sched_set_scheduled(struct mptcp_subflow_context *subflow, bool on)
{
	__u32 bit = 1 << (subflow - contexts);

	if (!on)
		scheduled &= ~bit;
	else if (sched_active(subflow))
		scheduled |= bit;
}

bool sched_resend(struct mptcp_sock *sock)
{
	resent = 1;
	return step.resends;
}

bool sched_carries(struct mptcp_subflow_context *subflow, __u64 seq)
{
	return step.lanes[subflow - contexts].carries;
}

bool sched_resend_of(struct mptcp_sock *sock, struct mptcp_subflow_context *subflow)
{
	resent = 2 + (subflow - contexts);
	return step.resends;
}

void sched_grow_buffer(struct mptcp_sock *sock, __u64 bytes)
{
	buffer = bytes;
}

static void set(__u32 i)
{
	const struct lane_step *l = &step.lanes[i];
	struct tcp_sock *tp = &socks[i];
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	devices[i].ifindex = i + 1;
	routes[i].dev = &devices[i];
	sk->__sk_common.skc_net.net = &net;
	sk->__sk_common.skc_family = AF_INET;
	sk->sk_dst_cache = &routes[i];
	sk->sk_wmem_queued = l->queued;
	sk->sk_sndbuf = l->buffer;
	tp->inet_conn.icsk_ulp_data = &contexts[i];
	tp->inet_conn.icsk_rto_min = 50;
	tp->inet_conn.icsk_pending = l->expires > 0;
	tp->inet_conn.icsk_retransmit_timer.expires = l->expires;
	tp->inet_conn.icsk_ca_state = l->ca_state;
	tp->bytes_sent = l->bytes_sent;
	tp->bytes_retrans = l->bytes_retrans;
	tp->srtt_us = l->srtt_us8;
	tp->rttvar_us = l->rttvar_us;
	tp->rtt_min.s[0].v = l->least_rtt_us;
	tp->snd_cwnd = l->cwnd;
	tp->snd_ssthresh = l->ssthresh;
	tp->mss_cache = l->mss;
	tp->packets_out = l->packets_out;
	tp->sacked_out = l->sacked_out;
	tp->lost_out = l->lost_out;
	tp->retrans_out = l->retrans_out;
	tp->snd_una = l->snd_una;
	tp->snd_nxt = l->snd_nxt;
	tp->write_seq = l->write_seq;
	tp->high_seq = l->high_seq;
	tp->rate_delivered = l->rate_delivered;
	tp->rate_interval_us = l->rate_interval_us;
	contexts[i].subflow_id = i + 1;
	contexts[i].tcp_sock = (struct sock *)tp;
	contexts[i].backup = l->backup;
	contexts[i].stale = l->stale;
	contexts[i].stale_count = l->stale_count;
}

static __s32 run(void)
{
	unsigned long long args[] = { (unsigned long)&msk };

	msk.sk.icsk_inet.sk.__sk_common.skc_net.net = &net;
	msk.sk.icsk_inet.sk.sk_wmem_queued = step.queued;
	msk.sk.icsk_inet.sk.sk_sndbuf = step.buffer;
	msk.snd_una = step.una;
	msk.snd_nxt = step.nxt;
	msk.write_seq = step.written;
	msk.wnd_end = step.wnd_end;
	msk.snd_burst = step.burst;
	msk.timer_ival = step.timeout;
	head.data_seq = step.next;
	head.data_len = step.piece;
	msk.first_pending = step.next < step.written ? &head : NULL;
	switch (step.event) {
	case BEGIN:
		memset(&state, 0, sizeof(state));
		has_state = false;
		mpcc_sched_init(args);
		return 0;
	case SEND:
		return mpcc_get_send(args);
	case RETRANSMIT:
		return mpcc_get_retrans(args);
	}
	mpcc_sched_release(args);
	return 0;
}

int main(void)
{
	while (fread(&step, sizeof(step), 1, stdin) == 1) {
		struct outcome o = {};

		scheduled = 0;
		resent = 0;
		buffer = 0;
		for (__u32 i = 0; i < step.count; i++)
			set(i);
		o.result = run();
		o.timeout = msk.timer_ival;
		o.buffer = buffer;
		o.burst = msk.snd_burst;
		o.scheduled = scheduled;
		o.resent = resent;
		for (__u32 i = 0; i < step.count; i++)
			o.stale |= contexts[i].stale << i;
		if (has_state)
			memcpy(o.own, state.own, sizeof(o.own));
		fwrite(&o, sizeof(o), 1, stdout);
	}
	return 0;
}
