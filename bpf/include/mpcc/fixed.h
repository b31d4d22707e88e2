/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Arithmetic without floating point. Three formats:
 *
 * struct mpcc_num   value m * 2^e, m = 0 or 2^31 <= m < 2^32. Any value that the rules meet (window over
 *                   RTT squared spans 2^-48 .. 2^20 for 1 us .. 16 s and 1 .. 2^20 packets) is held to
 *                   a relative 2^-31, so a formula of thirty operations stays within 2e-8. It does not
 *                   overflow: |e| grows by at most 64 an operation and has 31 bits.
 * q29               signed 32-bit count of 2^-29 packets: the fractional window and what a segment adds to it. Less
 *                   than 4 packets; a millionth, which Reno adds to a window of a million packets, is 537 of them.
 * us8               microseconds in eighths, the kernel's format of srtt: 0.125 us .. 536 s in 32 bits.
 */
#ifndef MPCC_FIXED_H
#define MPCC_FIXED_H

#include "compat.h"

struct mpcc_num {
	__u32 m;
	__s32 e;
};

#define MPCC_Q29_ONE (1 << 29)

static __always_inline struct mpcc_num num_zero(void)
{
	return (struct mpcc_num){ 0, 0 };
}

/* The largest number not above v. */
static __always_inline struct mpcc_num num_of(__u64 v)
{
	/* For the verifier, which would follow 64 ways; a constant the compiler works out by itself. */
	__u64 zero = __builtin_constant_p(v) ? 0 : mpcc_unknown_zero(v);
	__s32 e = 32;

	if (!v)
		return num_zero();
	if (!(v >> 32)) {
		v <<= 32;
		e -= 32;
	}
	if (!(v >> 48)) {
		v <<= 16;
		e -= 16;
	}
	if (!(v >> 56)) {
		v <<= 8;
		e -= 8;
	}
	v += zero;
	e += zero;
	if (!(v >> 60)) {
		v <<= 4;
		e -= 4;
	}
	if (!(v >> 62)) {
		v <<= 2;
		e -= 2;
	}
	if (!(v >> 63)) {
		v <<= 1;
		e -= 1;
	}
	return (struct mpcc_num){ (v >> 32) + zero, e + zero };
}

/* x * 2^bits */
static __always_inline struct mpcc_num num_scale(struct mpcc_num x, __s32 bits)
{
	return (struct mpcc_num){ x.m, x.e + bits };
}

static __always_inline struct mpcc_num num_mul(struct mpcc_num a, struct mpcc_num b)
{
	__u64 p = (__u64)a.m * b.m;

	if (p >> 63)
		return (struct mpcc_num){ p >> 32, a.e + b.e + 32 };
	return (struct mpcc_num){ p >> 31, a.e + b.e + 31 };
}

/* a / b; 0 where b is 0, as the BPF instruction has it. */
static __always_inline struct mpcc_num num_div(struct mpcc_num a, struct mpcc_num b)
{
	__u64 q;

	if (!b.m)
		return num_zero();
	q = ((__u64)a.m << 32) / b.m;
	if (q >> 32)
		return (struct mpcc_num){ q >> 1, a.e - b.e - 31 };
	return (struct mpcc_num){ q, a.e - b.e - 32 };
}

static __always_inline struct mpcc_num num_add(struct mpcc_num a, struct mpcc_num b)
{
	__u64 sum;
	__s32 d;

	if (!a.m)
		return b;
	if (!b.m)
		return a;
	if (a.e < b.e) {
		struct mpcc_num t = a;

		a = b;
		b = t;
	}
	d = a.e - b.e;
	if (d > 31)
		return a;
	sum = (__u64)a.m + (b.m >> d);
	if (sum >> 32)
		return (struct mpcc_num){ sum >> 1, a.e + 1 };
	return (struct mpcc_num){ sum, a.e };
}

static __always_inline bool num_less(struct mpcc_num a, struct mpcc_num b)
{
	if (!a.m || !b.m)
		return !a.m && b.m;
	if (a.e != b.e)
		return a.e < b.e;
	return a.m < b.m;
}

static __always_inline bool num_equal(struct mpcc_num a, struct mpcc_num b)
{
	return a.m == b.m && (!a.m || a.e == b.e);
}

static __always_inline struct mpcc_num num_min(struct mpcc_num a, struct mpcc_num b)
{
	return num_less(b, a) ? b : a;
}

static __always_inline struct mpcc_num num_max(struct mpcc_num a, struct mpcc_num b)
{
	return num_less(a, b) ? b : a;
}

/* a - b; 0 where b is more. Relative to a, not to what is left, the error is 2^-31. */
static __always_inline struct mpcc_num num_sub(struct mpcc_num a, struct mpcc_num b)
{
	__s32 d = a.e - b.e;

	if (!num_less(b, a))
		return num_zero();
	if (!b.m || d > 31)
		return a;
	return num_scale(num_of(((__u64)a.m << 31) - ((__u64)b.m << 31 >> d)), a.e - 31);
}

/*
 * Cube root, bit by bit: the mantissa is brought to 2^60 .. 2^63 with an exponent that 3 divides, so the
 * root has 21 bits. Relative error below 2^-20. No branches: the verifier would follow every one.
 */
static __always_inline struct mpcc_num num_cbrt(struct mpcc_num x)
{
	/* Exponents biased so that they are positive: BPF divides without sign. */
	const __s32 bias = 3 << 20;
	__u32 e = x.e + bias;
	__u32 shift = 29 + (e - 29) % 3;
	__s64 v = (__u64)x.m << shift, root = 0;

	for (int bit = 20; bit >= 0; bit--) {
		__s64 t = root | 1LL << bit;

		root |= (__u64) ~(v - t * t * t) >> 63 << bit;
	}
	if (!x.m)
		return num_zero();
	return num_scale(num_of(root), (__s32)((e - shift) / 3) - bias / 3);
}

/*
 * Square root, bit by bit: the mantissa is brought to 2^60 .. 2^62 with an even exponent, so the root has
 * 31 bits. Relative error below 2^-30. No branches, as above.
 */
static __always_inline struct mpcc_num num_sqrt(struct mpcc_num x)
{
	__s32 shift = 29 + ((x.e - 29) & 1);
	__s64 v = (__u64)x.m << shift, root = 0;

	for (int bit = 30; bit >= 0; bit--) {
		__s64 t = root | 1LL << bit;

		root |= (__u64) ~(v - t * t) >> 63 << bit;
	}
	if (!x.m)
		return num_zero();
	return num_scale(num_of(root), (x.e - shift) >> 1);
}

/* 1 / v for an integer. */
static __always_inline struct mpcc_num num_inverse(__u64 v)
{
	return num_div(num_of(1), num_of(v));
}

/* floor(x * 2^bits), saturated at 2^62; bits is the target's count of fractional bits. */
static __always_inline __u64 num_to_fixed(struct mpcc_num x, __s32 bits)
{
	__s32 shift = x.e + bits;

	if (!x.m || shift < -31)
		return 0;
	if (shift < 0)
		return x.m >> -shift;
	if (shift > 30)
		return 1ULL << 62;
	return (__u64)x.m << shift;
}

/* a b < c d for integers. Where each has 32 bits it is exact, and takes a tenth of the instructions. */
static __always_inline bool product_less(__u64 a, __u64 b, __u64 c, __u64 d)
{
	if (!((a | b | c | d) >> 32))
		return a * b < c * d;
	return num_less(num_mul(num_of(a), num_of(b)), num_mul(num_of(c), num_of(d)));
}

#endif
