/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A constant that `mpcc load NAME --set name=value` sets before the program is verified. The text is
 * for the loader and for `mpcc list -v`, and starts with what the value may be:
 *   "LOW..HIGH unit; meaning"     a number
 *   "first|second; meaning"       a word, held as its position
 * Where the default is not what the algorithm's source has, TUNABLE_PAPER also says what that is, in the
 * word or number that --set takes; `--set paper` gives it.
 */
#ifndef MPCC_TUNABLE_H
#define MPCC_TUNABLE_H

#include "compat.h"

#define TUNABLE(name, value, text) const volatile __u32 name mpcc_tag("tunable: " text) = value
#define TUNABLE_PAPER(name, value, paper, text) \
	const volatile __u32 name mpcc_tag("tunable: " text) mpcc_tag("paper: " paper) = value

#endif
