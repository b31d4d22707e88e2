// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The shared maps by themselves: what user space creates, pins and reads. */
#include "mpcc/path_rules.h"
#include "mpcc/sched_telemetry.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
