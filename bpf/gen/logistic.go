// SPDX-License-Identifier: Apache-2.0

// Command gen prints bpf/include/mpcc/logistic.h, the table that DTS interpolates.
package main

import (
	"fmt"
	"math"
	"os"
	"strings"
)

// 256 steps over ratio 0..1: linear interpolation stays within a relative 2e-4.
const steps = 256

func main() {
	var b strings.Builder
	b.WriteString(`/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Written by bpf/gen; do not edit. 2 / (1 + exp(-10 (i/256 - 1/2))) in units of 2^-30, i = 0 .. 256. */
#ifndef MPCC_LOGISTIC_H
#define MPCC_LOGISTIC_H

#include "kernel.h"

static const __u32 logistic_q30[257] = {
`)
	for i := 0; i <= steps; i++ {
		y := 2 / (1 + math.Exp(-10*(float64(i)/steps-0.5)))
		fmt.Fprintf(&b, "\t%d,\n", uint32(math.Round(y*(1<<30))))
	}
	b.WriteString("};\n\n#endif\n")
	os.Stdout.WriteString(b.String())
}
