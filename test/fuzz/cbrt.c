// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The cube root of any number, against the C library's. */
#include "native.h"

double cbrt(double);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct input in = { bytes, size };
	struct mpcc_num x = draw_num(&in), root = num_cbrt(x);
	double want = cbrt(value_of(x)), got = value_of(root);

	require(!root.m || root.m >> 31, "m %u", root.m);
	require(got <= want * (1 + 0x1p-50) && want - got <= 0x1p-20 * want,
		"cube root of %u * 2^%d: %.12g, not %.12g", x.m, x.e, got, want);
	return 0;
}
