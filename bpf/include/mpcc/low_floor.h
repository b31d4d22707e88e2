/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * For an algorithm that gives up a path: beside other subflows a window may fall to one packet, which
 * costs the path least while it is still probed.
 */
#ifndef MPCC_LOW_FLOOR_H
#define MPCC_LOW_FLOOR_H

#include "tunable.h"

TUNABLE(min_cwnd, 1, "1..2 packets; smallest window beside other subflows");

#define cc_floor(sum) ((sum)->n > 1 ? min_cwnd : MPCC_RENO_FLOOR)

#endif
