/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the BPF sources need to run on the host, under a fuzzer: the kernel's functions that the sources call, and tunables
 * that can change. And what harnesses draw and require. Include first.
 */
#ifndef FUZZ_NATIVE_H
#define FUZZ_NATIVE_H

#include <errno.h>
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

#define ARRAY_SIZE(array) (sizeof(array) / sizeof(*(array)))

/* How often programs have followed pointers into a connection, as only decisions do. */
static unsigned long looks;

void *bpf_rdonly_cast(const void *obj, __u32 btf_id)
{
	looks++;
	return (void *)obj;
}

static inline long copy_kernel(void *to, __u32 size, const void *from)
{
	memcpy(to, from, size);
	return 0;
}

#define bpf_probe_read_kernel copy_kernel

/* The maps are empty. */
static inline void *no_element(const void *map, const void *key)
{
	return NULL;
}

#define bpf_map_lookup_elem no_element

/* The congestion control that a socket was given last, and what giving one returns. */
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

/* Adds a packet for each acknowledged one, up to the threshold. Returns how many are left over. */
__u32 tcp_slow_start(struct tcp_sock *tp, __u32 acked)
{
	__u32 room = tp->snd_ssthresh - tp->snd_cwnd, grown = acked < room ? acked : room;

	tp->snd_cwnd += grown;
	return acked - grown;
}

/* kernel.h does not have the window before the loss: the window stays. */
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

/* The text is as in tunable.h: "LOW..HIGH unit; meaning" or "first|second; meaning". */
static inline void add_tunable(volatile __u32 *value, const char *text)
{
	struct tunable *t = &tunables[tunable_count++];

	if (tunable_count > (int)ARRAY_SIZE(tunables))
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

/* A queue's delay a step later: up to so much longer, or, once in 256 steps, half as long. */
static inline __u32 random_delay(__u64 *state, __u32 delay_us, __u32 rise_us)
{
	return random_of(state, 256) ? delay_us + random_of(state, rise_us) : delay_us / 2;
}

/* The fuzzer's bytes; zeros once they are used up. */
struct input {
	const unsigned char *bytes;
	size_t size;
};

static inline void draw(struct input *in, void *to, size_t size)
{
	size_t available = size < in->size ? size : in->size;

	memset(to, 0, size);
	memcpy(to, in->bytes, available);
	in->bytes += available;
	in->size -= available;
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

/* Stops the fuzzer unless the condition holds; says for which numbers. */
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

/* Any number that fixed.h makes and a decision can come to. */
static inline void require_normal(struct mpcc_num x, __u32 subflow)
{
	require(!x.m || x.m >> 31, "subflow %u: m %u", subflow, x.m);
	require(x.e > -400 && x.e < 400, "subflow %u: e %d", subflow, x.e);
}

#endif
