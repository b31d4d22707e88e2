// SPDX-License-Identifier: GPL-2.0-only
/*
 * mpcc_sched: MPTCP packet schedulers in BPF for kernels whose scheduler type is no struct_ops.
 *
 * Registers the struct_ops type mptcp_xsched_ops and the kfuncs mptcp_xsched_*, and hands what is
 * attached to the kernel's own list of schedulers. What a program may do is for the verifier to
 * say, by the rules given here; the module itself only translates.
 *
 * What the kernel does not export is looked up once, at load. Every such function's prototype and
 * every private field is compared with the running kernel's BTF; where one differs the module does
 * not load. Functions are called through static_call, as direct calls: an indirect one to a
 * function whose address the kernel never takes would fault on CPUs with indirect branch tracking.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bpf.h>
#include <linux/bpf_verifier.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/init.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/static_call.h>
#include <net/mptcp.h>
#include <net/tcp.h>

#include "kernel_private.h"

/* Newer kernels have no such flag, as every kfunc takes trusted arguments only. */
#ifndef KF_TRUSTED_ARGS
#define KF_TRUSTED_ARGS 0
#endif

/*
 * What a BPF scheduler fills in. The kernel gets the first member, which reg() fills in; being
 * first, it is at the address that BPF knows the table by, so that BPF_MODULE_OWNER pins the right
 * map.
 */
struct mptcp_xsched_ops {
	struct mptcp_sched_ops kernel;

	int (*get_send)(struct mptcp_sock *msk);
	int (*get_retrans)(struct mptcp_sock *msk);
	char name[MPTCP_SCHED_NAME_MAX];
	void (*init)(struct mptcp_sock *msk);
	void (*release)(struct mptcp_sock *msk);
};

static_assert(offsetof(struct mptcp_xsched_ops, kernel) == 0);

DEFINE_STATIC_CALL_NULL(xsched_lookup, kallsyms_lookup_name);
DEFINE_STATIC_CALL_NULL(xsched_find_type, btf_find_by_name_kind);
DEFINE_STATIC_CALL_NULL(xsched_btf_name, btf_name_by_offset);
DEFINE_STATIC_CALL_NULL(xsched_register, mptcp_register_scheduler);
DEFINE_STATIC_CALL_NULL(xsched_unregister, mptcp_unregister_scheduler);
DEFINE_STATIC_CALL_NULL(xsched_set, mptcp_subflow_set_scheduled);
DEFINE_STATIC_CALL_NULL(xsched_is_active, mptcp_subflow_active);
DEFINE_STATIC_CALL_NULL(xsched_default_retrans, mptcp_subflow_get_retrans);
DEFINE_STATIC_CALL_NULL(xsched_reinject, __mptcp_retransmit_pending_data);

static const struct bpf_func_proto *storage_get, *storage_delete;

/* The private fields, by their place in the running kernel. */
struct field {
	const char *type;
	const char *name;
	const char *is; /* as describe() writes it */
	u32 size; /* of those that may be written */
	u32 offset;
};

static struct field conn_list = { "mptcp_sock", "conn_list", "list_head" };
static struct field sched = { "mptcp_sock", "sched", "mptcp_sched_ops*" };
static struct field snd_burst = { "mptcp_sock", "snd_burst", "s32", sizeof(s32) };
static struct field timer_ival = { "mptcp_sock", "timer_ival", "u64", sizeof(u64) };
static struct field node = { "mptcp_subflow_context", "node", "list_head" };
static struct field tcp_sock = { "mptcp_subflow_context", "tcp_sock", "sock*" };
static struct field scheduled = { "mptcp_subflow_context", "scheduled", "bool" };
static struct field stale_count = { "mptcp_subflow_context", "stale_count", "u8" };
static struct field avg_pacing_rate = { "mptcp_subflow_context", "avg_pacing_rate", "u64",
					sizeof(u64) };
static struct field snd_nxt = { "mptcp_sock", "snd_nxt", "u64" };
static struct field rtx_queue = { "mptcp_sock", "rtx_queue", "list_head" };
static struct field frag_list = { "mptcp_data_frag", "list", "list_head" };
static struct field frag_seq = { "mptcp_data_frag", "data_seq", "u64" };
static struct field frag_len = { "mptcp_data_frag", "data_len", "u16" };
static struct field frag_sent = { "mptcp_data_frag", "already_sent", "u16" };

static const struct btf_type *mptcp_sock_type, *subflow_type, *ops_type;
/* What takes a lock that is already held when an ACK has get_send called: for get_retrans only. */
static const char *const retrans_only[] = { "mptcp_xsched_resend", "mptcp_xsched_carries",
					    "mptcp_xsched_resend_of" };
static u32 retrans_only_ids[ARRAY_SIZE(retrans_only)], get_retrans_member;
static bool counts_timeouts; /* the kernel, before it asks a scheduler what to send again */
static bool registered;

/* The table of a connection that is asked for a subflow, which it has only if it is one of ours. */
static struct mptcp_xsched_ops *ops_of(struct mptcp_sock *msk)
{
	return *(struct mptcp_xsched_ops **)((void *)msk + sched.offset);
}

static void *field_of(struct list_head *subflow, const struct field *field)
{
	return (void *)subflow - node.offset + field->offset;
}

static struct sock *socket_of(struct list_head *subflow)
{
	return *(struct sock **)field_of(subflow, &tcp_sock);
}

static bool is_mapped(const struct sk_buff *skb, u64 from, u64 to)
{
	const struct mptcp_ext *ext = skb_ext_find(skb, SKB_EXT_MPTCP);

	return ext && ext->use_map && (s64)(ext->data_seq - to) < 0 &&
	       (s64)(ext->data_seq + ext->data_len - from) > 0;
}

/*
 * Whether a subflow has something from one data sequence number to before another that is not
 * acknowledged to it. Of what was handed to it at once and is acknowledged in part, all counts.
 * False also if the subflow is in use. Takes the subflow's lock.
 */
static bool carries(struct sock *ssk, u64 from, u64 to)
{
	struct sk_buff *skb;
	bool found = false;

	local_bh_disable();
	bh_lock_sock(ssk);
	if (!sock_owned_by_user(ssk)) {
		skb_rbtree_walk(skb, &ssk->tcp_rtx_queue)
		{
			found = is_mapped(skb, from, to);
			if (found)
				goto unlock;
		}
		skb_queue_walk(&ssk->sk_write_queue, skb)
		{
			found = is_mapped(skb, from, to);
			if (found)
				break;
		}
	}
unlock:
	bh_unlock_sock(ssk);
	local_bh_enable();
	return found;
}

/* The connection's lock is held, which also guards its list of subflows. */
static bool any_scheduled(struct mptcp_sock *msk)
{
	struct list_head *subflows = (void *)msk + conn_list.offset;
	struct list_head *at;

	list_for_each(at, subflows) {
		if (READ_ONCE(*(bool *)field_of(at, &scheduled)))
			return true;
	}
	return false;
}

/* Takes back the timeout that the kernel has counted against each subflow. */
static void uncount_timeout(struct mptcp_sock *msk)
{
	struct list_head *subflows = (void *)msk + conn_list.offset;
	struct list_head *at;

	list_for_each(at, subflows) {
		u8 *count = field_of(at, &stale_count);

		if (*count)
			(*count)--;
	}
}

/* A scheduler that says 0 and has scheduled none would be asked again without end. */
static int checked(struct mptcp_sock *msk, int ret)
{
	return ret || any_scheduled(msk) ? ret : -EINVAL;
}

static int xsched_get_send(struct mptcp_sock *msk)
{
	return checked(msk, ops_of(msk)->get_send(msk));
}

/*
 * Runs in the connection's worker, with its lock held. Newer kernels have counted a timeout against
 * the subflows when they ask. Older ones do so in their own choice, which is run for that, whatever
 * the scheduler answers. Neither must count if the scheduler says (> 0) that nothing has timed out:
 * it had the timer go off early.
 */
static int xsched_get_retrans(struct mptcp_sock *msk)
{
	int ret = ops_of(msk)->get_retrans(msk);
	bool early = ret > 0;

	if (early && counts_timeouts)
		uncount_timeout(msk);
	else if (!early && !counts_timeouts)
		static_call(xsched_default_retrans)(msk);
	return checked(msk, early ? 0 : ret);
}

#ifdef XSCHED_GET_SUBFLOW /* on older kernels */
static int xsched_get_subflow(struct mptcp_sock *msk, struct mptcp_sched_data *data)
{
	return data->reinject ? xsched_get_retrans(msk) : xsched_get_send(msk);
}
#endif

/* ---- kfuncs: bpf/include/mpcc/sched_kernel.h tells what they are for ---- */

struct bpf_iter_mptcp_xsched {
	u64 opaque[4];
} __aligned(8);

/*
 * What the iterator gives. Where a pointer was found by following another, programs read through it
 * with a check of each address, unless a struct of the same name with this ending lists the field:
 * it tells the verifier that such a pointer is valid. Both are while the connection's lock is held.
 */
struct mptcp_xsched_subflow {
	struct mptcp_subflow_context *context;
	struct tcp_sock *socket;
};

struct mptcp_xsched_subflow__safe_trusted {
	struct mptcp_subflow_context *context;
	struct tcp_sock *socket;
};

struct xsched_iter {
	struct list_head *head;
	struct list_head *at;
	struct mptcp_xsched_subflow subflow;
};

static_assert(sizeof(struct xsched_iter) == sizeof(struct bpf_iter_mptcp_xsched));
static_assert(__alignof__(struct xsched_iter) == __alignof__(struct bpf_iter_mptcp_xsched));

__bpf_kfunc_start_defs();

/* The callbacks run with the connection's lock held, which also guards its list of subflows. */
__bpf_kfunc static int bpf_iter_mptcp_xsched_new(struct bpf_iter_mptcp_xsched *it,
						 struct mptcp_sock *msk)
{
	struct xsched_iter *iter = (void *)it;

	iter->head = (void *)msk + conn_list.offset;
	iter->at = iter->head;
	return 0;
}

__bpf_kfunc static struct mptcp_xsched_subflow *
bpf_iter_mptcp_xsched_next(struct bpf_iter_mptcp_xsched *it)
{
	struct xsched_iter *iter = (void *)it;

	BTF_TYPE_EMIT(struct mptcp_xsched_subflow__safe_trusted);
	if (list_is_last(iter->at, iter->head))
		return NULL;
	iter->at = iter->at->next;
	iter->subflow.context = (void *)iter->at - node.offset;
	iter->subflow.socket = (struct tcp_sock *)socket_of(iter->at);
	return &iter->subflow;
}

__bpf_kfunc static void bpf_iter_mptcp_xsched_destroy(struct bpf_iter_mptcp_xsched *it)
{
}

/* A subflow that cannot send is left alone: the kernel would try it again without end. */
__bpf_kfunc static void mptcp_xsched_set_scheduled(struct mptcp_subflow_context *subflow,
						   bool scheduled)
{
	if (!scheduled || static_call(xsched_is_active)(subflow))
		static_call(xsched_set)(subflow, scheduled);
}

__bpf_kfunc static bool mptcp_xsched_active(struct mptcp_subflow_context *subflow)
{
	return static_call(xsched_is_active)(subflow);
}

__bpf_kfunc static bool mptcp_xsched_resend(struct mptcp_sock *msk)
{
	return static_call(xsched_reinject)((struct sock *)msk);
}

__bpf_kfunc static bool mptcp_xsched_carries(struct mptcp_subflow_context *subflow, u64 seq)
{
	return carries(socket_of((void *)subflow + node.offset), seq, seq + 1);
}

/*
 * The kernel has all fragments sent again, and passes over those that are marked as sent already:
 * so these are, but for those that the subflow has something of.
 */
__bpf_kfunc static bool mptcp_xsched_resend_of(struct mptcp_sock *msk,
					       struct mptcp_subflow_context *subflow)
{
	struct sock *ssk = socket_of((void *)subflow + node.offset);
	struct list_head *frags = (void *)msk + rtx_queue.offset;
	u64 end = *(u64 *)((void *)msk + snd_nxt.offset);
	struct list_head *at;
	bool any = false;

	if (!static_call(xsched_reinject)((struct sock *)msk))
		return false;
	list_for_each(at, frags) {
		void *frag = (void *)at - frag_list.offset;
		u64 seq = *(u64 *)(frag + frag_seq.offset);
		s64 sent = min_t(s64, end - seq, *(u16 *)(frag + frag_len.offset));

		if (sent <= 0)
			break;
		if (carries(ssk, seq, seq + sent))
			any = true;
		else
			*(u16 *)(frag + frag_sent.offset) = sent;
	}
	return any;
}

/*
 * The kernel makes a connection's send buffer as large as the send buffers of its subflows
 * together, and does so again whenever one of those changes: also while nothing is to be sent, when
 * no scheduler runs. So that the connection's buffer stays larger, those of its subflows grow, each
 * up to tcp_wmem's largest value. The subflows' locks are not held: the kernel may write a size at
 * the same time, and either one will do.
 */
__bpf_kfunc static void mptcp_xsched_grow_buffer(struct mptcp_sock *msk, u64 bytes)
{
	struct sock *sk = (struct sock *)msk;
	struct list_head *subflows = (void *)msk + conn_list.offset;
	u64 most = READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_wmem[2]);
	struct list_head *at;
	u64 sum = 0;

	if (sk->sk_userlocks & SOCK_SNDBUF_LOCK)
		return;
	list_for_each(at, subflows)
		sum += READ_ONCE(socket_of(at)->sk_sndbuf);
	list_for_each(at, subflows) {
		u64 buffer = READ_ONCE(socket_of(at)->sk_sndbuf), more;

		if (sum >= bytes || buffer >= most)
			continue;
		more = min(bytes - sum, most - buffer);
		WRITE_ONCE(socket_of(at)->sk_sndbuf, buffer + more);
		sum += more;
	}
	bytes = min3(bytes, sum, (u64)INT_MAX);
	if (bytes <= READ_ONCE(sk->sk_sndbuf))
		return;
	WRITE_ONCE(sk->sk_sndbuf, bytes);
	sk->sk_write_space(sk);
}

__bpf_kfunc_end_defs();

BTF_KFUNCS_START(xsched_kfuncs)
BTF_ID_FLAGS(func, bpf_iter_mptcp_xsched_new, KF_ITER_NEW | KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, bpf_iter_mptcp_xsched_next, KF_ITER_NEXT | KF_RET_NULL)
BTF_ID_FLAGS(func, bpf_iter_mptcp_xsched_destroy, KF_ITER_DESTROY)
BTF_ID_FLAGS(func, mptcp_xsched_set_scheduled, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, mptcp_xsched_active, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, mptcp_xsched_resend, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, mptcp_xsched_carries, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, mptcp_xsched_resend_of, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, mptcp_xsched_grow_buffer, KF_TRUSTED_ARGS)
BTF_KFUNCS_END(xsched_kfuncs)

/* Only programs of our own type may call them. */
static int xsched_may_call(const struct bpf_prog *prog, u32 kfunc_id)
{
	const struct bpf_prog_aux *aux = prog->aux;

	if (!aux->attach_btf || btf_type_by_id(aux->attach_btf, aux->attach_btf_id) != ops_type)
		return -EACCES;
	for (u32 i = 0; i < ARRAY_SIZE(retrans_only); i++) {
		if (kfunc_id == retrans_only_ids[i] &&
		    prog->expected_attach_type != get_retrans_member)
			return -EACCES;
	}
	return 0;
}

static const struct btf_kfunc_id_set xsched_kfunc_set = {
	.owner = THIS_MODULE,
	.set = &xsched_kfuncs,
	.filter = xsched_may_call,
};

/* ---- what the verifier asks ---- */

static const struct bpf_func_proto *xsched_func_proto(enum bpf_func_id id,
						      const struct bpf_prog *prog)
{
	switch (id) {
	case BPF_FUNC_tail_call:
		return NULL; /* to a program that was checked for another member */
	case BPF_FUNC_sk_storage_get:
		return storage_get;
	case BPF_FUNC_sk_storage_delete:
		return storage_delete;
	default:
		return bpf_base_func_proto(id, prog);
	}
}

static bool within(const struct field *field, u32 off, u32 size)
{
	return size <= field->size && off - field->offset <= field->size - size;
}

/*
 * May be written: what the kernel's own scheduler writes, and nothing else, through pointers that
 * are known to be valid. A program can make any number a pointer that it may only read through
 * (bpf_rdonly_cast), and the verifier leaves it to us to tell them apart.
 */
static int xsched_struct_access(struct bpf_verifier_log *log, const struct bpf_reg_state *reg,
				int off, int size)
{
	const struct btf_type *t = btf_type_by_id(reg->btf, reg->btf_id);

	if (!(reg->type & PTR_TRUSTED)) {
		bpf_log(log,
			"a scheduler writes only through its argument and its iterator's subflows\n");
		return -EACCES;
	}
	if (t == mptcp_sock_type &&
	    (within(&snd_burst, off, size) || within(&timer_ival, off, size)))
		return NOT_INIT; /* a number */
	if (t == subflow_type && within(&avg_pacing_rate, off, size))
		return NOT_INIT;
	bpf_log(log,
		"a scheduler writes only mptcp_sock.snd_burst, mptcp_sock.timer_ival and mptcp_subflow_context.avg_pacing_rate\n");
	return -EACCES;
}

static const struct bpf_verifier_ops xsched_verifier_ops = {
	.get_func_proto = xsched_func_proto,
	.is_valid_access = bpf_tracing_btf_ctx_access,
	.btf_struct_access = xsched_struct_access,
};

/* ---- the running kernel against what this was written for ---- */

static bool is_modifier(const struct btf_type *t)
{
	switch (BTF_INFO_KIND(t->info)) {
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_TYPE_TAG:
		return true;
	}
	return false;
}

/* Writes a type down: void, list_head, sock*, s32, bool. Names of typedefs do not count. */
static void describe(const struct btf *btf, u32 id, char *to, size_t size)
{
	const struct btf_type *t = btf_type_by_id(btf, id);
	size_t used;

	while (t && is_modifier(t))
		t = btf_type_by_id(btf, t->type);
	if (!t) {
		strscpy(to, "?", size);
	} else if (BTF_INFO_KIND(t->info) == BTF_KIND_UNKN) {
		strscpy(to, "void", size);
	} else if (btf_type_is_ptr(t)) {
		describe(btf, t->type, to, size);
		used = strlen(to);
		strscpy(to + used, "*", size - used);
	} else if (btf_type_is_int(t)) {
		if (btf_int_encoding(t) & BTF_INT_BOOL)
			strscpy(to, "bool", size);
		else
			snprintf(to, size, "%c%u", btf_int_encoding(t) & BTF_INT_SIGNED ? 's' : 'u',
				 btf_int_bits(t));
	} else {
		strscpy(to, static_call(xsched_btf_name)(btf, t->name_off), size);
	}
}

/* Finds a function or a struct; negative if the kernel has none. */
static s32 find_id(const struct btf *btf, const char *name, u8 kind)
{
	s32 id = static_call(xsched_find_type)(btf, name, kind);

	if (id < 0)
		pr_err("this kernel's BTF has no %s %s\n",
		       kind == BTF_KIND_FUNC ? "function" : "struct", name);
	return id;
}

static int check_function(const struct btf *btf, const char *name, const char *is)
{
	s32 id = find_id(btf, name, BTF_KIND_FUNC);
	const struct btf_type *proto;
	char found[128];
	size_t used;

	if (id < 0)
		return id;
	proto = btf_type_by_id(btf, btf_type_by_id(btf, id)->type);
	describe(btf, proto->type, found, sizeof(found));
	for (u32 i = 0; i < btf_type_vlen(proto); i++) {
		used = strlen(found);
		strscpy(found + used, i ? "," : "(", sizeof(found) - used);
		used = strlen(found);
		describe(btf, btf_params(proto)[i].type, found + used, sizeof(found) - used);
	}
	used = strlen(found);
	strscpy(found + used, ")", sizeof(found) - used);
	if (strcmp(found, is)) {
		pr_err("this kernel's function %s is %s, not %s\n", name, found, is);
		return -EINVAL;
	}
	return 0;
}

/* Finds a member, also within unnamed ones; its offset is in bits. */
static const struct btf_member *find_member(const struct btf *btf, const struct btf_type *t,
					    const char *name, u32 *bits)
{
	const struct btf_member *member;
	u32 i;

	for_each_member(i, t, member) {
		const struct btf_type *inner = btf_type_by_id(btf, member->type);
		u32 at = __btf_member_bit_offset(t, member);

		if (!member->name_off && btf_type_is_struct(inner)) {
			const struct btf_member *found = find_member(btf, inner, name, bits);

			if (found) {
				*bits += at;
				return found;
			}
		} else if (!strcmp(static_call(xsched_btf_name)(btf, member->name_off), name)) {
			*bits = at;
			return member;
		}
	}
	return NULL;
}

static const struct btf_type *find_struct(const struct btf *btf, const char *name)
{
	s32 id = find_id(btf, name, BTF_KIND_STRUCT);

	return id < 0 ? NULL : btf_type_by_id(btf, id);
}

static int find_field(const struct btf *btf, struct field *field)
{
	const struct btf_type *t = find_struct(btf, field->type);
	const struct btf_member *member;
	char found[64];
	u32 bits;

	if (!t)
		return -ENOENT;
	member = find_member(btf, t, field->name, &bits);
	if (!member) {
		pr_err("this kernel's struct %s has no field %s\n", field->type, field->name);
		return -ENOENT;
	}
	describe(btf, member->type, found, sizeof(found));
	if (strcmp(found, field->is)) {
		pr_err("this kernel's field %s.%s is %s, not %s\n", field->type, field->name, found,
		       field->is);
		return -EINVAL;
	}
	field->offset = bits / 8;
	return 0;
}

static const struct {
	const char *name;
	const char *is;
} functions[] = {
	{ "mptcp_register_scheduler", "s32(mptcp_sched_ops*)" },
	{ "mptcp_unregister_scheduler", "void(mptcp_sched_ops*)" },
	{ "mptcp_subflow_set_scheduled", "void(mptcp_subflow_context*,bool)" },
	{ "mptcp_subflow_active", "bool(mptcp_subflow_context*)" },
	{ "__mptcp_retransmit_pending_data", "bool(sock*)" },
};

static struct field *const fields[] = {
	&conn_list, &sched,	&snd_burst,   &timer_ival,	&node,
	&tcp_sock,  &scheduled, &stale_count, &avg_pacing_rate, &snd_nxt,
	&rtx_queue, &frag_list, &frag_seq,    &frag_len,	&frag_sent,
};

/* The kernel calls this while it registers the type, and only if this module has BTF. */
static int xsched_init(struct btf *btf)
{
	const struct btf_member *member;
	u32 i, bits;
	s32 id;
	int err;

	for (i = 0; i < ARRAY_SIZE(functions); i++) {
		err = check_function(btf, functions[i].name, functions[i].is);
		if (err)
			return err;
	}
	counts_timeouts = static_call(xsched_find_type)(btf, "mptcp_pm_chk_stale", BTF_KIND_FUNC) >
			  0;
	if (!counts_timeouts) {
		err = check_function(btf, "mptcp_subflow_get_retrans", "sock*(mptcp_sock*)");
		if (err)
			return err;
	}
	for (i = 0; i < ARRAY_SIZE(fields); i++) {
		err = find_field(btf, fields[i]);
		if (err)
			return err;
	}
	mptcp_sock_type = find_struct(btf, "mptcp_sock");
	subflow_type = find_struct(btf, "mptcp_subflow_context");
	ops_type = find_struct(btf, "mptcp_xsched_ops");
	if (!mptcp_sock_type || !subflow_type || !ops_type)
		return -ENOENT;
	member = find_member(btf, ops_type, "get_retrans", &bits);
	if (!member)
		return -ENOENT;
	get_retrans_member = member - btf_type_member(ops_type);
	for (i = 0; i < ARRAY_SIZE(retrans_only); i++) {
		id = find_id(btf, retrans_only[i], BTF_KIND_FUNC);
		if (id < 0)
			return -ENOENT;
		retrans_only_ids[i] = id;
	}
	registered = true;
	return 0;
}

/* ---- the struct_ops type ---- */

/* The callbacks run with locks held, some of them in soft interrupts: no program may sleep. */
static int xsched_check_member(const struct btf_type *t, const struct btf_member *member,
			       const struct bpf_prog *prog)
{
	return prog->sleepable ? -EINVAL : 0;
}

static int xsched_init_member(const struct btf_type *t, const struct btf_member *member,
			      void *kdata, const void *udata)
{
	const struct mptcp_xsched_ops *from = udata;
	struct mptcp_xsched_ops *to = kdata;

	if (__btf_member_bit_offset(t, member) / 8 != offsetof(struct mptcp_xsched_ops, name))
		return 0;
	if (!from->name[0] || strscpy(to->name, from->name, sizeof(to->name)) < 0)
		return -EINVAL;
	return 1;
}

/* The last word on a table before it can be attached. Fills in what the kernel sees of it. */
static int xsched_validate(void *kdata)
{
	struct mptcp_xsched_ops *ops = kdata;

	if (!ops->get_send || !ops->get_retrans)
		return -EINVAL;
#ifdef XSCHED_GET_SUBFLOW
	ops->kernel.get_subflow = xsched_get_subflow;
#else
	ops->kernel.get_send = xsched_get_send;
	ops->kernel.get_retrans = xsched_get_retrans;
#endif
	ops->kernel.init = ops->init;
	ops->kernel.release = ops->release;
	strscpy(ops->kernel.name, ops->name);
	/* Each connection then holds the BPF map with the table, and that holds this module. */
	ops->kernel.owner = BPF_MODULE_OWNER;
	return 0;
}

static int xsched_reg(void *kdata, struct bpf_link *link)
{
	struct mptcp_xsched_ops *ops = kdata;

	return static_call(xsched_register)(&ops->kernel);
}

static void xsched_unreg(void *kdata, struct bpf_link *link)
{
	struct mptcp_xsched_ops *ops = kdata;

	static_call(xsched_unregister)(&ops->kernel);
	/* It may be attached again, and no reader may stand on it then. */
	synchronize_rcu();
}

/*
 * Puts a table in the place of one of the same name: new connections get it, live ones keep
 * theirs. The kernel registers a name once, so the new table enters without one and takes it while
 * the old table still has it. At no time is the name missing. The kernel does one update at a
 * time.
 */
static int xsched_update(void *kdata, void *old_kdata, struct bpf_link *link)
{
	struct mptcp_xsched_ops *ops = kdata, *old = old_kdata;
	int err;

	if (ops == old)
		return 0;
	if (strcmp(ops->name, old->name))
		return -EINVAL;
	ops->kernel.name[0] = 0;
	err = xsched_reg(ops, link);
	WRITE_ONCE(ops->kernel.name[0],
		   ops->name[0]); /* also if it failed: it may be attached later */
	if (err)
		return err;
	/* Who no longer meets the old table has to meet the name. Readers come by pointers. */
	smp_wmb();
	xsched_unreg(old, link);
	return 0;
}

/* Tell the kernel which members there are, and never run. */
static int no_choice(struct mptcp_sock *msk)
{
	return -EINVAL;
}

static void no_event(struct mptcp_sock *msk)
{
}

static struct mptcp_xsched_ops stubs = {
	.get_send = no_choice,
	.get_retrans = no_choice,
	.init = no_event,
	.release = no_event,
};

static struct bpf_struct_ops xsched_struct_ops = {
	.verifier_ops = &xsched_verifier_ops,
	.init = xsched_init,
	.check_member = xsched_check_member,
	.init_member = xsched_init_member,
	.validate = xsched_validate,
	.reg = xsched_reg,
	.unreg = xsched_unreg,
	.update = xsched_update,
	.cfi_stubs = &stubs,
	.owner = THIS_MODULE,
	.name = "mptcp_xsched_ops",
};

/* ---- load ---- */

/* A kprobe may be set by name, which tells the address. */
static int __init find_lookup(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	int err = register_kprobe(&probe);

	if (err) {
		pr_err("this kernel lets no kprobe be set on kallsyms_lookup_name (error %d): it is built without CONFIG_KPROBES or CONFIG_KALLSYMS\n",
		       err);
		return err;
	}
	/*
	 * With indirect branch tracking the address is behind the function's first instruction,
	 * which only marks where indirect calls may land.
	 */
	static_call_update(xsched_lookup, (void *)probe.addr);
	unregister_kprobe(&probe);
	return 0;
}

static void *__init find_symbol(const char *name)
{
	unsigned long addr = static_call(xsched_lookup)(name);

	if (!addr)
		pr_err("this kernel has no symbol %s\n", name);
	return (void *)addr;
}

/* Makes calls to a function of the kernel direct ones. */
#define BIND(call, function)                                      \
	({                                                        \
		typeof(function) *found = find_symbol(#function); \
		if (found)                                        \
			static_call_update(call, found);          \
		!!found;                                          \
	})

static int __init find_symbols(void)
{
	int err = find_lookup();

	if (err)
		return err;
	/* Data is listed with CONFIG_KALLSYMS_ALL only. Without, sockets have no storage. */
	storage_get = (void *)static_call(xsched_lookup)("bpf_sk_storage_get_proto");
	storage_delete = (void *)static_call(xsched_lookup)("bpf_sk_storage_delete_proto");
	if (!BIND(xsched_find_type, btf_find_by_name_kind) ||
	    !BIND(xsched_btf_name, btf_name_by_offset) ||
	    !BIND(xsched_register, mptcp_register_scheduler) ||
	    !BIND(xsched_unregister, mptcp_unregister_scheduler) ||
	    !BIND(xsched_set, mptcp_subflow_set_scheduled) ||
	    !BIND(xsched_is_active, mptcp_subflow_active) ||
	    !BIND(xsched_default_retrans, mptcp_subflow_get_retrans) ||
	    !BIND(xsched_reinject, __mptcp_retransmit_pending_data))
		return -ENOENT;
	return 0;
}

static int __init mpcc_sched_load(void)
{
	int err = find_symbols();

	if (err)
		return err;
	err = register_bpf_struct_ops(&xsched_struct_ops, mptcp_xsched_ops);
	if (!err && !registered) {
		pr_err("this module was built without BTF: install dwarves (pahole) and the kernel's vmlinux, and build it again\n");
		err = -EOPNOTSUPP;
	}
	if (!err)
		err = register_btf_kfunc_id_set(BPF_PROG_TYPE_STRUCT_OPS, &xsched_kfunc_set);
	return err;
}
module_init(mpcc_sched_load);

/* Loaded schedulers and their connections hold the module; what it registered goes with its BTF. */
static void __exit mpcc_sched_unload(void)
{
}
module_exit(mpcc_sched_unload);

MODULE_DESCRIPTION("MPTCP packet schedulers in BPF, as a struct_ops type");
MODULE_VERSION(XSCHED_VERSION);
MODULE_LICENSE("GPL");
