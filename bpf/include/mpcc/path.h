/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The numbers an algorithm works on. Nothing here knows of sockets: the same structs are filled from a
 * live connection (view.h) and by `mpcc eval` (eval.h).
 */
#ifndef MPCC_PATH_H
#define MPCC_PATH_H

#include "compat.h"
#include "fixed.h"

/* As many subflows as the kernel lets a connection have: the first, and eight more. */
#define MPCC_MAX_SUBFLOWS 9

/* Those that a packet scheduler looks at, a power of two; sched_live.h says what happens beyond. */
#define MPCC_MAX_LANES 8

/* One subflow. A field's name ends in its fixed-point format where it has one (fixed.h). */
struct mpcc_path {
	__u64 bytes_between_losses; /* acknowledged between the last two losses */
	__u64 bytes_since_loss; /* acknowledged since the last loss */
	__u32 cwnd; /* packets */
	__u32 ssthresh; /* packets */
	__u32 srtt_us8; /* smoothed RTT; 0 = no sample yet */
	__u32 base_rtt_us; /* smallest RTT seen; 0 = unset */
	__u32 price_pj; /* energy per bit at the present rate; 0 = the interface has no profile */
	__u32 group; /* subflows of other groups are not coupled with this one */
	__u32 peer_window; /* what the peer can take, packets (CDD) */
	__u32 alpha; /* packets to keep queued (wVegas) */
	__u32 queue_us; /* smallest queueing delay since the last drain; 0 = unset (wVegas) */
	__u8 backup; /* MP_PRIO: use only when nothing else is usable */
	__u8 stale; /* the path manager has given it up for now */
	__u8 closing; /* not established, or on its way out */
	struct mpcc_num theta; /* ratio of delays so far; 0 = none (CDD) */
	__u64 epoch_us; /* since the last loss, less what was idle (CUBIC, mpCUBIC) */
	struct mpcc_num last_max; /* window at the last loss; 0 = none yet (CUBIC, mpCUBIC) */
};

/* What one newly acknowledged segment adds to the window, in packets: up - down. */
struct mpcc_step {
	struct mpcc_num up;
	struct mpcc_num down;
};

/* The quantity by which an algorithm couples its subflows, as `mpcc status` shows it. */
struct mpcc_coupling {
	struct mpcc_num value;
	__u32 negative;
	__u32 pad;
};

/* A window that an algorithm sets by itself, once per RTT or period. */
struct mpcc_setting {
	__u32 window; /* packets */
	__u32 ssthresh; /* packets */
};

static __always_inline bool path_usable(const struct mpcc_path *p)
{
	return p->srtt_us8 && p->cwnd && !(p->closing | p->stale);
}

/*
 * x_r = w_r / rtt_r, where rtt_r is at hand as a number. The unit (packets per eighth of a microsecond) cancels in every
 * coupled rule.
 */
static __always_inline struct mpcc_num rate_at(const struct mpcc_path *p, struct mpcc_num rtt)
{
	return num_div(num_of(p->cwnd), rtt);
}

static __always_inline struct mpcc_num path_rate(const struct mpcc_path *p)
{
	return rate_at(p, num_of(p->srtt_us8));
}

#endif
