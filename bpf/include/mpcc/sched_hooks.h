/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a packet scheduler defines, all in this one place. Its file
 *   includes "mpcc/sched.h"
 *   defines struct sched_own  what only this scheduler reads or writes, beside the scene that all share
 *           its hooks         functions of the types below, static or MPCC_GLOBAL
 *   names them                static const struct sched_hooks sched_hooks = { .rule = minrtt_rule, … };
 *   and ends with its table   SCHED_TABLE(minrtt)
 *
 * The rule must be named, and the hooks around it where the scheduler has them; what is missing, misspelt or
 * not named is an error of the compiler.
 *
 * A struct sched_own is kept with each connection, from its first decision to its end, and is all zero at
 * first. Members with these names are structs whose fields `mpcc eval` and the vectors set and show, by the
 * field's name; any other member is for live connections alone.
 *   demand                        given: more of the connection
 *   lanes[MPCC_MAX_LANES]      given: more of each subflow
 *   memory                        given and shown: what one decision leaves to the next
 *   outcome                       shown: more of what was decided for the connection
 *   verdicts[MPCC_MAX_LANES]   shown: more of what was decided of each subflow
 * A field of 8 bits is a flag. Two schedulers may have a field of the same name if it means the same.
 */
#ifndef MPCC_SCHED_HOOKS_H
#define MPCC_SCHED_HOOKS_H

#include "scene.h"
#include "sched_telemetry.h"

struct sched_own;

/* What a rule returns. */
enum {
	RULE_MARKED, /* it has marked what sends, if anything */
	RULE_DEFERS, /* none marked, as the hook after_retrans sends by other means; not counted as a wait */
	RULE_TIMED, /* it marks none for now, and the hook after_send has the connection's timer end the wait */
};

struct sched_hooks {
	/* The rule: numbers in, numbers out. */

	/*
	 * Marks the subflows that send (verdicts[].send), of those that may (.usable). A rule that marks none
	 * waits, where sched_decide.h grants it.
	 */
	int (*rule)(struct mpcc_scene *s, struct sched_own *own);

	/* Around the rule: a live connection, in the order of the calls. */

	/* The i-th subflow is another one than before: forgets what was kept of the one before. */
	void (*start_subflow)(struct sched_own *own, __u32 i, const struct tcp_sock *tp);
	/* When the i-th subflow comes, and every 100 ms: looks up what is known of it elsewhere, and seldom changes. */
	void (*look_up_subflow)(struct sched_own *own, __u32 i, const struct tcp_sock *tp);
	/* Before each decision: brings what is kept of subflow i, and of the connection, up to date. */
	void (*read_subflow)(struct sched_own *own, __u32 i, const struct tcp_sock *tp);
	void (*read_connection)(struct sched_own *own, const struct mpcc_scene *s,
				const struct mptcp_sock *msk);
	/* After that, before each decision on what is to be sent again: what only then can be told. */
	void (*read_retrans)(struct sched_own *own, struct mptcp_sock *msk);
	/* The bytes to send on a chosen subflow before the next decision; else what its window takes. */
	__u64 (*burst)(const struct sched_own *own, const struct mpcc_lane *l);
	/* What the live map shows of subflow i, and of the choice of a set. */
	void (*show_subflow)(struct mpcc_sched_subflow *shown, const struct sched_own *own,
			     const struct mpcc_scene *s, __u32 i);
	void (*show_choice)(struct mpcc_sched_choice *shown, const struct sched_own *own,
			    const struct mpcc_scene *s);
	/*
	 * Last, once the kernel knows which subflows send new data, or send again: scheduled is 0 for some,
	 * negative for none. They return what the kernel is told: that, or SCHED_EARLY (sched_kernel.h). Two
	 * hooks, as the verifier allows some functions of the kernel in the latter only, as in read_retrans.
	 */
	int (*after_send)(struct sched_own *own, const struct mpcc_scene *s, struct mptcp_sock *msk,
			  int scheduled);
	int (*after_retrans)(struct sched_own *own, const struct mpcc_scene *s,
			     struct mptcp_sock *msk, int scheduled);
};

/* The scheduler's own. The compiler knows what is in it, so a call of a hook is a plain call. */
static const struct sched_hooks sched_hooks;

extern void scheduler_has_no_rule(void) __attribute__((error("sched_hooks lacks the rule")));

/* Compiles only if the rule is there. */
static __always_inline void require_sched_rule(void)
{
	if (!sched_hooks.rule)
		scheduler_has_no_rule();
}

/* Room for a struct sched_own. */
#define SCHED_OWN_BYTES 1024

#endif
