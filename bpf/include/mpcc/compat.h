/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every difference between kernels and compilers that the programs see, and nothing else. A shim says
 * which version ends it.
 */
#ifndef MPCC_COMPAT_H
#define MPCC_COMPAT_H

#include "kernel.h"

/* Off the BPF target (the fuzzers) there is one layout: the one in kernel.h. */
#ifdef __bpf__
/*
 * An unsigned bit-field. BPF_CORE_READ_BITFIELD() asks for size and sign: the verifier takes out the branches not taken, but
 * leaves jumps, half of the instructions. Here the sizes of the kernel's fields, 4 and 1, come first, and no sign is asked for.
 */
#define mpcc_bits(ptr, field)                                                                \
	({                                                                                   \
		const void *at = (const void *)(ptr) + __CORE_RELO(ptr, field, BYTE_OFFSET); \
		__u64 bits;                                                                  \
		asm volatile("" : "+r"(at)); /* one relocation for all the loads */          \
		if (__builtin_expect(__CORE_RELO(ptr, field, BYTE_SIZE) == 4, 1))            \
			bits = *(const __u32 *)at;                                           \
		else if (__builtin_expect(__CORE_RELO(ptr, field, BYTE_SIZE) == 1, 1))       \
			bits = *(const __u8 *)at;                                            \
		else if (__CORE_RELO(ptr, field, BYTE_SIZE) == 2)                            \
			bits = *(const __u16 *)at;                                           \
		else                                                                         \
			bits = *(const __u64 *)at;                                           \
		bits << __CORE_RELO(ptr, field, LSHIFT_U64) >>                               \
			__CORE_RELO(ptr, field, RSHIFT_U64);                                 \
	})
#define mpcc_enum(type, value) bpf_core_enum_value(type, value)
#define mpcc_type_id(type) bpf_core_type_id_kernel(type)
#define mpcc_has_field(ptr, field) bpf_core_field_exists((ptr)->field)
#define mpcc_offset(type, field) bpf_core_field_offset(type, field)
#define mpcc_tag(text) __attribute__((btf_decl_tag(text)))
#define mpcc_unroll _Pragma("unroll")
/* 0, of which the verifier knows only that it is a number. Once added to a value, all ways in which that came
 * about look the same to the verifier, and it goes on with one of them. */
#define mpcc_unknown_zero(v)                                    \
	({                                                      \
		__u64 zero = (v);                               \
		asm volatile("%0 ^= %1" : "+r"(zero) : "r"(v)); \
		zero;                                           \
	})
#else
#define mpcc_bits(ptr, field) ((ptr)->field)
#define mpcc_enum(type, value) (value)
#define mpcc_type_id(type) 0
#define mpcc_has_field(ptr, field) 1
#define mpcc_offset(type, field) __builtin_offsetof(type, field)
#define mpcc_tag(text)
#define mpcc_unroll
#define mpcc_unknown_zero(v) 0
#endif

/*
 * A function that the verifier checks once, by itself, instead of along every path that leads to it (a global
 * function, in its words). It may only write through its pointers, which are never NULL. Weak keeps the
 * compiler from dropping arguments that one algorithm happens not to use.
 */
#define MPCC_GLOBAL __attribute__((noinline, weak))
#define nonnull mpcc_tag("arg:nonnull")

#endif
