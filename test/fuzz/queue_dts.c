// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* queue.c with DTS, which compares a subflow with its siblings also where they share no bottleneck. */
#define ALGORITHM dts
#include "queue.c"
