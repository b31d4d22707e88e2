/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A decision on a view: by the algorithm's rule, or Reno's for a subflow that does not count (no RTT
 * sample yet, or a backup beside usable ones). Include after what coupling.h asks for, and
 *   cc_step(step, sum, path)          what one acknowledged segment adds in congestion avoidance
 *   cc_coupling(coupling, sum, path)  the algorithm's own quantity, shown by `mpcc status`
 * and, where it differs, with "#define cc_after_loss cc_after_loss" and so on,
 *   cc_after_loss(sum, path)          the window after a loss event, before the floor: half
 *   cc_floor(sum)                     the smallest window: 2 packets
 *   cc_window(setting, sum, path)     the window it sets by itself, once per RTT or period: none
 */
#ifndef MPCC_DECIDE_H
#define MPCC_DECIDE_H

#include "coupling.h"

#define MPCC_RENO_FLOOR 2

#ifndef cc_after_loss
#define cc_after_loss(sum, path) ((path)->cwnd / 2)
#endif
#ifndef cc_floor
#define cc_floor(sum) MPCC_RENO_FLOOR
#endif
#ifndef cc_window
#define cc_window(setting, sum, path)
#endif

static __always_inline void decide_step(struct mpcc_step *step, const struct mpcc_view *v)
{
	if (v->coupled)
		cc_step(step, &v->sum, &v->self);
	else
		step_reno(step, &v->self);
}

static __always_inline __u32 decide_floor(const struct mpcc_view *v)
{
	return v->coupled ? cc_floor(&v->sum) : MPCC_RENO_FLOOR;
}

static __always_inline __u32 decide_after_loss(const struct mpcc_view *v)
{
	__u32 floor = decide_floor(v);
	__u32 w = v->self.cwnd / 2;

	if (v->coupled)
		w = cc_after_loss(&v->sum, &v->self);
	return w < floor ? floor : w;
}

#endif
