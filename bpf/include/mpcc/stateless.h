/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* For an algorithm that decides by the subflows' windows and RTTs alone and keeps nothing of its own. */
#ifndef MPCC_STATELESS_H
#define MPCC_STATELESS_H

#include "path.h"
#include "state.h"

struct cc_state {
	struct mpcc_flow flow;
};

static __always_inline void cc_private(struct mpcc_path *p, const struct tcp_sock *tp,
				       const struct cc_state *state, const struct cc_state *own)
{
}

static __always_inline void cc_on_loss(struct cc_state *state, const struct tcp_sock *tp)
{
}

#endif
