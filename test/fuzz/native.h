/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the BPF sources need to run on the host, under a fuzzer: the kernel's functions they call, and
 * tunables that can change. Include first.
 */
#ifndef FUZZ_NATIVE_H
#define FUZZ_NATIVE_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#undef NULL /* kernel.h has its own */

#include "include/mpcc/fixed.h"
#include "include/mpcc/tunable.h"

/* The source of an algorithm in cc or sched, for #include. The formatter would put spaces into the path. */
/* clang-format off */
#define TEXT(x) #x
#define SOURCE(folder, name) TEXT(folder/name.bpf.c)
/* clang-format on */
/* For #if: the value of NUMBER_OF_lia for lia; 0 if there is none. */
#define PASTE(a, b) a##b
#define NUMBER_OF(name) PASTE(NUMBER_OF_, name)

/* So often a program has followed a pointer into a connection: it does so when it decides, and not between. */
static unsigned long looks;

void *bpf_rdonly_cast(const void *obj, __u32 btf_id)
{
	looks++;
	return (void *)obj;
}

/* The maps are empty. */
static inline void *no_element(const void *map, const void *key)
{
	return NULL;
}

#define bpf_map_lookup_elem no_element

/* The congestion control that a socket was given, and what comes of it. */
static char given_control[16];
static long setsockopt_error;

static inline long give_control(struct sock *sk, int level, int name, const char *value, int size)
{
	if (level != IPPROTO_TCP || name != TCP_CONGESTION || size > 16)
		abort();
	memcpy(given_control, value, size);
	return setsockopt_error;
}

#define bpf_setsockopt give_control

/* A packet for each, up to the threshold; what is left over. */
__u32 tcp_slow_start(struct tcp_sock *tp, __u32 acked)
{
	__u32 room = tp->snd_ssthresh - tp->snd_cwnd, grown = acked < room ? acked : room;

	tp->snd_cwnd += grown;
	return acked - grown;
}

/* What the window was is not in kernel.h; it stays. */
__u32 tcp_reno_undo_cwnd(struct sock *sk)
{
	return ((struct tcp_sock *)sk)->snd_cwnd;
}

struct tunable {
	volatile __u32 *value;
	__u32 low, high;
};

static struct tunable tunables[32];
static int tunable_count;

/* The text is that of tunable.h: "LOW..HIGH unit; meaning" or "first|second; meaning". */
static inline void add_tunable(volatile __u32 *value, const char *text)
{
	struct tunable *t = &tunables[tunable_count++];

	if (tunable_count > (int)(sizeof(tunables) / sizeof(*tunables)))
		abort();
	t->value = value;
	if (sscanf(text, "%u..%u", &t->low, &t->high) == 2)
		return;
	t->low = 0;
	t->high = 0;
	for (; *text != ';'; text++)
		t->high += *text == '|';
}

#undef TUNABLE
#define TUNABLE(name, initial, text)                                      \
	volatile __u32 name = initial;                                    \
	__attribute__((constructor)) static void add_tunable_##name(void) \
	{                                                                 \
		add_tunable(&name, text);                                 \
	}
#undef TUNABLE_PAPER
#define TUNABLE_PAPER(name, initial, paper, text) TUNABLE(name, initial, text)

/* Lehmer's generator, the C++ library's minstd_rand. */
static inline __u32 random_of(__u64 *state, __u32 below)
{
	*state = *state * 48271 % 2147483647;
	return *state % below;
}

/* The fuzzer's bytes; zeros once they are used up. */
struct input {
	const unsigned char *bytes;
	size_t size;
};

static inline void draw(struct input *in, void *to, size_t size)
{
	size_t given = size < in->size ? size : in->size;

	memset(to, 0, size);
	memcpy(to, in->bytes, given);
	in->bytes += given;
	in->size -= given;
}

static inline __u8 draw_byte(struct input *in)
{
	__u8 byte;

	draw(in, &byte, 1);
	return byte;
}

/* A number of at most so many bits, of any order of magnitude. */
static inline __u64 draw_number(struct input *in, int bits)
{
	__u64 number;

	draw(in, &number, sizeof(number));
	return number >> (64 - bits) >> draw_byte(in) % bits;
}

/* 0, or 2^-127 .. 2^64 */
static inline struct mpcc_num draw_num(struct input *in)
{
	struct mpcc_num x = num_of(draw_number(in, 64));

	return x.m ? num_scale(x, -(__s32)(draw_byte(in) % 128)) : x;
}

static inline void draw_tunables(struct input *in)
{
	for (int i = 0; i < tunable_count; i++) {
		struct tunable *t = &tunables[i];

		*t->value = t->low + draw_byte(in) % (t->high - t->low + 1);
	}
}

/* Stops the fuzzer, with what was wrong and the numbers it was wrong for. */
#define require(condition, ...)                                                                 \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			fprintf(stderr, __VA_ARGS__);                                           \
			fprintf(stderr, "\n");                                                  \
			abort();                                                                \
		}                                                                               \
	} while (0)

static inline double value_of(struct mpcc_num x)
{
	return __builtin_ldexp(x.m, x.e);
}

/* The number is as fixed.h makes them, and of a size that a decision can come to. */
static inline void require_normal(struct mpcc_num x, __u32 subflow)
{
	require(!x.m || x.m >> 31, "subflow %u: m %u", subflow, x.m);
	require(x.e > -400 && x.e < 400, "subflow %u: e %d", subflow, x.e);
}

#endif
