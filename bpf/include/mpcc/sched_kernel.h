/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the kernel offers a packet scheduler, and all that differs between kernels.
 *
 * A scheduler's table is a struct mptcp_xsched_ops, the type of the module in bpf/kmod, the same on every
 * kernel that the module serves. Compiled with -DMPCC_NATIVE it is the struct mptcp_sched_ops of kernels
 * that have such a type themselves (the MPTCP development tree).
 *
 * SCHED_OPS(name) makes the table of three functions, which stand before it; sched_live.h has those of mpcc's
 * schedulers.
 *   int sched_choose(struct mptcp_sock *msk, bool reinject)
 *       schedules subflows and returns 0, or returns a negative number when none may send now; the kernel
 *       asks again when an ACK makes room
 *   void sched_init(struct mptcp_sock *msk), void sched_release(struct mptcp_sock *msk)
 *       begin and end of each connection, the latter also when the scheduler is long unloaded
 * They may use sk_storage on msk, and write what the kernel's own scheduler writes: msk->snd_burst,
 * msk->timer_ival, subflow->avg_pacing_rate; the verifier refuses any other write.
 *
 * When sched_choose() is called
 *   reinject = false: the connection has data to send. Called with the connection's lock held, from
 *   sendmsg() or from an ACK's soft interrupt. Each subflow scheduled then sends until snd_burst bytes
 *   are gone, its send buffer is full or the data has ended, but at least one fragment (what a sendmsg()
 *   or several small ones left in one piece of memory, at most 32 KiB). When data is left it is asked again.
 *   reinject = true: the connection's retransmission timer went off. Called from a worker. Each subflow
 *   scheduled sends the oldest fragment that is not acknowledged. Unless it returns SCHED_EARLY the kernel
 *   then counts a timeout against the subflows that have made no progress since the last one: after
 *   some they are stale (not active), and the kernel reinjects what they held.
 *   It is not called for a connection that fell back to TCP.
 *
 * Sending data twice
 *   Several subflows scheduled at once do not send the same data: each goes on where the one before stopped.
 *   The same data goes out again in two ways, both with reinject = true:
 *   - the oldest fragment, on every subflow scheduled;
 *   - all that is not acknowledged, once sched_resend() has moved the connection's next byte back: the
 *     scheduler schedules nothing then, is asked with reinject = false until sched_next_seq() is where
 *     it was, and may choose other subflows than the first time.
 *   sched_set_timeout() makes the timer go off soon after the next fragment (a timer's tick later at the
 *   earliest, 1 to 4 ms), provided that snd_burst is used up by then: with data and burst left the kernel
 *   computes the timeout anew. A scheduler that does so returns SCHED_EARLY while less time has passed
 *   than a real timeout takes: else a path's mere delay would make its subflow stale.
 */
#ifndef MPCC_SCHED_KERNEL_H
#define MPCC_SCHED_KERNEL_H

#include "device.h"
#include "compat.h"

/* What sched_choose() returns if it made the timer go off early, whether it schedules subflows or not. */
#define SCHED_EARLY 1

/*
 * The kernel's functions, each by one name for both types.
 *   sched_set_scheduled   adds a subflow to those that are to send, or takes it away. The module adds none that is
 *                         not active
 *   sched_active          may send data: joined, its TCP state allows it, not stale. Takes the mark stale
 *                         away when something arrived since
 *   sched_resend          only with reinject = true, and not natively: makes all that was sent and is not
 *                         acknowledged the next to be sent. False when there is nothing.
 *   sched_carries         only with reinject = true, and not natively: whether a subflow has a byte of the connection,
 *                         by its data sequence number, and the peer has not acknowledged it to this subflow
 *   sched_resend_of       likewise: makes all that a subflow has the next to be sent, in whole fragments. False when there
 *                         is nothing.
 *   sched_grow_buffer     not natively: has the connection's send buffer hold so many bytes, within what
 *                         net.ipv4.tcp_wmem allows each subflow, unless the application has set its size (SO_SNDBUF)
 */
#ifdef MPCC_NATIVE
#define MPCC_SCHED_TYPE mptcp_sched_ops
#define sched_iter bpf_iter_mptcp_subflow
#define sched_iter_new bpf_iter_mptcp_subflow_new
#define sched_iter_next bpf_iter_mptcp_subflow_next
#define sched_iter_destroy bpf_iter_mptcp_subflow_destroy
#define sched_set_scheduled mptcp_subflow_set_scheduled
#define sched_active mptcp_subflow_active
#else
#define MPCC_SCHED_TYPE mptcp_xsched_ops
#define sched_iter bpf_iter_mptcp_xsched
#define sched_iter_new bpf_iter_mptcp_xsched_new
#define sched_iter_next bpf_iter_mptcp_xsched_next
#define sched_iter_destroy bpf_iter_mptcp_xsched_destroy
#define sched_set_scheduled mptcp_xsched_set_scheduled
#define sched_active mptcp_xsched_active
#endif

/*
 * What an iterator gives. The verifier takes both pointers of the module's for valid, so that programs read through
 * them without a check of each address, which costs seven instructions of x86.
 */
#ifdef MPCC_NATIVE
struct sched_iter {
	__u64 opaque[2];
} __attribute__((aligned(8)));

extern struct mptcp_subflow_context *sched_iter_next(struct sched_iter *it) __ksym;
/* Older trees take a struct mptcp_sock. The verifier looks at what the pointer is, not at this declaration. */
extern int sched_iter_new(struct sched_iter *it, struct sock *sk) __ksym;
#else
struct sched_iter {
	__u64 opaque[4];
} __attribute__((aligned(8)));

struct mptcp_xsched_subflow {
	struct mptcp_subflow_context *context;
	struct tcp_sock *socket;
};

extern struct mptcp_xsched_subflow *sched_iter_next(struct sched_iter *it) __ksym;
extern int sched_iter_new(struct sched_iter *it, struct mptcp_sock *msk) __ksym;
#endif
extern void sched_iter_destroy(struct sched_iter *it) __ksym;
extern void sched_set_scheduled(struct mptcp_subflow_context *subflow, bool scheduled) __ksym;
extern bool sched_active(struct mptcp_subflow_context *subflow) __ksym;

#ifdef MPCC_NATIVE
/* Older trees let programs call the first. Newer ones, since 2026, have the second, and may keep the first private. */
extern void mptcp_set_timeout(struct sock *sk) __ksym __weak;
extern void bpf_mptcp_set_timeout(struct mptcp_sock *msk) __ksym __weak;
/* In older trees the scheduler counts a timeout, by the first. Newer ones have the second, and count before they ask. */
extern void mptcp_pm_subflow_chk_stale(const struct mptcp_sock *msk,
				       struct sock *ssk) __ksym __weak;
extern void mptcp_pm_chk_stale(const struct mptcp_sock *msk) __ksym __weak;

/* Kernels with a type of their own have no function for either. */
#define SCHED_CAN_RESEND 0
static __always_inline bool sched_resend(struct mptcp_sock *msk)
{
	return false;
}

static __always_inline bool sched_carries(struct mptcp_subflow_context *subflow, __u64 seq)
{
	return false;
}

static __always_inline bool sched_resend_of(struct mptcp_sock *msk,
					    struct mptcp_subflow_context *subflow)
{
	return false;
}

static __always_inline void sched_grow_buffer(struct mptcp_sock *msk, __u64 bytes)
{
}
#else
#define SCHED_CAN_RESEND 1
extern bool mptcp_xsched_resend(struct mptcp_sock *msk) __ksym;
extern bool mptcp_xsched_carries(struct mptcp_subflow_context *subflow, __u64 seq) __ksym;
extern bool mptcp_xsched_resend_of(struct mptcp_sock *msk,
				   struct mptcp_subflow_context *subflow) __ksym;
extern void mptcp_xsched_grow_buffer(struct mptcp_sock *msk, __u64 bytes) __ksym;
#define sched_resend mptcp_xsched_resend
#define sched_carries mptcp_xsched_carries
#define sched_resend_of mptcp_xsched_resend_of
#define sched_grow_buffer mptcp_xsched_grow_buffer
#endif

static __always_inline struct sched_iter *sched_iter_begin(struct sched_iter *it,
							   struct mptcp_sock *msk)
{
#ifdef MPCC_NATIVE
	sched_iter_new(it, (struct sock *)msk);
#else
	sched_iter_new(it, msk);
#endif
	return it;
}

/* The next subflow, and its socket; NULL when there is no more. */
static __always_inline const struct tcp_sock *sched_next(struct sched_iter *it,
							 struct mptcp_subflow_context **subflow)
{
#ifdef MPCC_NATIVE
	*subflow = sched_iter_next(it);
	return *subflow ? bpf_rdonly_cast((*subflow)->tcp_sock, mpcc_type_id(struct tcp_sock)) :
			  NULL;
#else
	const struct mptcp_xsched_subflow *next = sched_iter_next(it);

	if (!next)
		return NULL;
	*subflow = next->context;
	return next->socket;
#endif
}

/*
 * Walks a connection's subflows in the order they were made, each with its socket. A subflow may be kept and scheduled
 * after the walk. The iterator is let go wherever the loop is left, by break and return too.
 */
#define sched_for_each(subflow, socket, msk)                                                 \
	for (struct sched_iter it_of_##subflow __attribute__((cleanup(sched_iter_destroy))), \
	     *it_at_##subflow = sched_iter_begin(&it_of_##subflow, msk);                     \
	     (socket = sched_next(it_at_##subflow, &subflow));)

/* 1 or 0. */
static __always_inline __u8 sched_backup(const struct mptcp_subflow_context *subflow)
{
	return mpcc_bits(subflow, backup) | mpcc_bits(subflow, request_bkup);
}

/* The send buffer takes more. The kernel's own scheduler chooses none while its best subflow's is full. */
static __always_inline bool sched_memory_free(const struct tcp_sock *tp)
{
	return tp->inet_conn.icsk_inet.sk.sk_wmem_queued < tp->inet_conn.icsk_inet.sk.sk_sndbuf;
}

/* All that the subflow got was acknowledged. The kernel's own scheduler retransmits only on such. */
static __always_inline bool sched_all_acked(const struct tcp_sock *tp)
{
	return tp->snd_una == tp->write_seq;
}

/* The interface that the subflow sends through; 0 while it has no route. */
static __always_inline __u32 sched_ifindex(const struct tcp_sock *tp)
{
	const struct net_device *dev = device_of(tp);

	return dev ? dev->ifindex : 0;
}

/* Bytes that the peer's window for the connection still takes; 0 also when it shrank. */
static __always_inline __u64 sched_window(const struct mptcp_sock *msk)
{
	__s64 room = msk->wnd_end - msk->snd_nxt;

	return room > 0 ? room : 0;
}

/* Bytes that the connection's send buffer holds. */
static __always_inline __u32 sched_buffer(const struct mptcp_sock *msk)
{
	return msk->sk.icsk_inet.sk.sk_sndbuf;
}

/* Where the connection goes on sending: snd_nxt, or less after sched_resend(). */
static __always_inline __u64 sched_next_seq(const struct mptcp_sock *msk)
{
	const struct mptcp_data_frag *head = msk->first_pending;

	return head ? head->data_seq + head->already_sent : msk->snd_nxt;
}

/*
 * Free bytes of the send buffer, if the application waits for room to write; else 0. The kernel wakes the application only
 * when a third of the buffer is free, so that there may be free bytes while the application waits.
 */
static __always_inline __u32 sched_awaited(const struct mptcp_sock *msk)
{
	const struct sock *sk = &msk->sk.icsk_inet.sk;
	const struct socket *socket = sk->sk_socket;
	int room = sk->sk_sndbuf - sk->sk_wmem_queued;

	return socket && socket->flags & 1 << SOCK_NOSPACE && room > 0 ? room : 0;
}

/* Unsent bytes of the fragment that is sent next. All of a fragment goes to one subflow. */
static __always_inline __u32 sched_piece(const struct mptcp_sock *msk)
{
	const struct mptcp_data_frag *head = msk->first_pending;

	return head ? head->data_len - head->already_sent : 0;
}

/* Jiffies until the subflow's own timer goes off, for a probe of the tail's or a retransmission; 0 if none runs. */
static __always_inline __u32 sched_timeout_left(const struct tcp_sock *tp)
{
	__s64 left;

	if (!tp->inet_conn.icsk_pending)
		return 0;
	if (mpcc_has_field(tp, inet_conn.icsk_retransmit_timer))
		left = tp->inet_conn.icsk_retransmit_timer.expires;
	else
		left = tp->inet_conn.icsk_inet.sk.tcp_retransmit_timer.expires;
	left -= bpf_jiffies64();
	return left > 0 ? left : 0;
}

/*
 * The connection's retransmission timeout in jiffies, for when its timer is next started: as the kernel has it,
 * the longest time that is left to the timer of a subflow, unless something is to be sent twice.
 */
static __always_inline void sched_set_timeout(struct mptcp_sock *msk, unsigned long timeout)
{
#ifdef MPCC_NATIVE
	if (bpf_mptcp_set_timeout)
		bpf_mptcp_set_timeout(msk);
	else if (mptcp_set_timeout)
		mptcp_set_timeout(&msk->sk.icsk_inet.sk);
#else
	msk->timer_ival = timeout;
#endif
}

struct MPCC_SCHED_TYPE {
	int (*get_send)(struct mptcp_sock *msk);
	int (*get_retrans)(struct mptcp_sock *msk);
	char name[16];
	void (*init)(struct mptcp_sock *msk);
	void (*release)(struct mptcp_sock *msk);
};

/*
 * Counts timeouts against the subflows after a call with reinject = true, and returns the call's result for the
 * kernel. With the module's type the module or the kernel counts.
 */
#ifdef MPCC_NATIVE
#define SCHED_RETRANS_SECTION "struct_ops.s" /* for mptcp_pm_subflow_chk_stale() */
static __always_inline int count_timeouts(struct mptcp_sock *msk, int scheduled)
{
	struct mptcp_subflow_context *subflow;
	const struct tcp_sock *tp;

	if (scheduled == SCHED_EARLY)
		return 0;
	if (mptcp_pm_chk_stale)
		return scheduled;
	sched_for_each(subflow, tp, msk)
	{
		if (sched_active(subflow) && !sched_all_acked(tp))
			mptcp_pm_subflow_chk_stale(msk, subflow->tcp_sock);
	}
	return scheduled;
}
#else
#define SCHED_RETRANS_SECTION "struct_ops"
#define count_timeouts(msk, scheduled) (scheduled)
#endif

/* The whole of a scheduler's table. One object holds one: the library matches programs by member. */
#define SCHED_OPS(scheduler)                                         \
	char LICENSE[] SEC("license") = "Dual BSD/GPL";              \
	SEC("struct_ops")                                            \
	int BPF_PROG(mpcc_get_send, struct mptcp_sock *msk)          \
	{                                                            \
		return sched_choose(msk, false);                     \
	}                                                            \
	SEC(SCHED_RETRANS_SECTION)                                   \
	int BPF_PROG(mpcc_get_retrans, struct mptcp_sock *msk)       \
	{                                                            \
		return count_timeouts(msk, sched_choose(msk, true)); \
	}                                                            \
	SEC("struct_ops")                                            \
	void BPF_PROG(mpcc_sched_init, struct mptcp_sock *msk)       \
	{                                                            \
		sched_init(msk);                                     \
	}                                                            \
	SEC("struct_ops")                                            \
	void BPF_PROG(mpcc_sched_release, struct mptcp_sock *msk)    \
	{                                                            \
		sched_release(msk);                                  \
	}                                                            \
	SEC(".struct_ops.link")                                      \
	struct MPCC_SCHED_TYPE scheduler = {                         \
		.get_send = (void *)mpcc_get_send,                   \
		.get_retrans = (void *)mpcc_get_retrans,             \
		.init = (void *)mpcc_sched_init,                     \
		.release = (void *)mpcc_sched_release,               \
		.name = #scheduler,                                  \
	};                                                           \
	_Static_assert(sizeof(#scheduler) <= 16, "the kernel's names are shorter")

#endif
