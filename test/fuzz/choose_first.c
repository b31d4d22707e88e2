// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What a packet scheduler, here earliest, does with a connection for which no state is kept (choose_first in sched_live.h),
 * over any mix of backups, first choices, full send buffers and unacknowledged data:
 *   new data goes to one active subflow with memory, and to a backup only if no first choice is active
 *   a retransmission goes to one active subflow without unacknowledged data, and to a backup only if every active first
 *   choice has such data, and all active subflows with such data are stalled
 *   if any subflow may send, one does
 */
#include "native.h"

#include "sched/earliest.bpf.c"

#include "subflows.h"

enum { BACKUP_BY_PEER = 1, BACKUP_HERE = 2, CLOSED = 4, FULL = 8, UNACKED = 16, STALLED = 32 };

static void add(__u8 flags)
{
	struct tcp_sock *tp = &socks[count];
	struct mptcp_subflow_context *ctx = &contexts[count];

	memset(tp, 0, sizeof(*tp));
	memset(ctx, 0, sizeof(*ctx));
	ctx->backup = !!(flags & BACKUP_BY_PEER);
	ctx->request_bkup = !!(flags & BACKUP_HERE);
	ctx->stale_count = flags & STALLED ? 2 : 1;
	closed[count] = flags & CLOSED;
	tp->inet_conn.icsk_inet.sk.sk_sndbuf = 1;
	tp->inet_conn.icsk_inet.sk.sk_wmem_queued = !!(flags & FULL);
	tp->write_seq = !!(flags & UNACKED);
	count++;
}

static bool is_spare(__u32 i)
{
	return contexts[i].backup || contexts[i].request_bkup;
}

static bool is_full(__u32 i)
{
	return socks[i].inet_conn.icsk_inet.sk.sk_wmem_queued;
}

static bool is_unacked(__u32 i)
{
	return socks[i].write_seq;
}

/* Whether subflow i makes backups needless. */
static bool spares_backup(__u32 i, bool reinject)
{
	if (closed[i])
		return false;
	if (reinject && is_unacked(i))
		return contexts[i].stale_count < 2;
	return !is_spare(i);
}

static bool may_send(__u32 i, bool reinject)
{
	if (closed[i] || is_full(i) || (reinject && is_unacked(i)))
		return false;
	for (__u32 k = 0; is_spare(i) && k < count; k++)
		if (spares_backup(k, reinject))
			return false;
	return true;
}

static void check(bool reinject)
{
	unsigned long long args[] = { (unsigned long)&msk };
	__u32 may = 0;
	int result;

	scheduled = 0;
	result = reinject ? mpcc_get_retrans(args) : mpcc_get_send(args);
	for (__u32 i = 0; i < count; i++)
		may |= may_send(i, reinject) << i;
	require(!(scheduled & ~may) && __builtin_popcount(scheduled) == !!may,
		"reinject %d, of %u: %x sends, %x may", reinject, count, scheduled, may);
	require(result == (may ? 0 : -1), "%d, %x may", result, may);
}

static void check_first(__u32 want, bool reinject, const __u8 *flags, __u32 subflows)
{
	count = 0;
	for (__u32 i = 0; i < subflows; i++)
		add(flags[i]);
	check(reinject);
	require(scheduled == want, "reinject %d: %x sends, want %x", reinject, scheduled, want);
}

#define CHECK_FIRST(want, reinject, ...) \
	check_first(want, reinject, (__u8[]){ __VA_ARGS__ }, sizeof((__u8[]){ __VA_ARGS__ }))

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	/* New data, whichever subflow is first in the list, and whichever side made the backup one. */
	CHECK_FIRST(2, false, BACKUP_BY_PEER, 0);
	CHECK_FIRST(2, false, BACKUP_HERE, 0);
	CHECK_FIRST(1, false, 0, BACKUP_BY_PEER);
	/* A first choice that waits for memory is worth waiting for; one that is closed is not. */
	CHECK_FIRST(0, false, BACKUP_BY_PEER, FULL);
	CHECK_FIRST(1, false, BACKUP_BY_PEER, CLOSED);
	/* A retransmission of data that a first choice may still deliver, or has failed to deliver. */
	CHECK_FIRST(0, true, BACKUP_BY_PEER, UNACKED);
	CHECK_FIRST(1, true, BACKUP_BY_PEER, UNACKED | STALLED);
	CHECK_FIRST(2, true, BACKUP_BY_PEER, 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	bool reinject = draw_byte(&in) & 1;

	count = 0;
	while (in.size && count < MOST_SUBFLOWS)
		add(draw_byte(&in));
	check(reinject);
	return 0;
}
