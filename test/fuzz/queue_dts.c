// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* queue.c with DTS, which compares a subflow with siblings also where no bottleneck is shared. */
#define ALGORITHM dts
#include "queue.c"
