/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Jiffies, the kernel's coarse clock.
 */
#ifndef SLOWRAY_JIFFIES_H
#define SLOWRAY_JIFFIES_H

/* How many jiffies a second has; 0 = not known yet. */
__u32 hz;

static __always_inline __u64 jiffy_ns(void) { return hz ? NSEC_PER_SEC / hz : NSEC_PER_SEC / 100; }

/*
 * Jiffies begin at 2^32 - 300 s (INITIAL_JIFFIES, include/linux/jiffies.h), so
 * what they have come to by now tells how many a second has. Only five minutes
 * after the start all answers are the same.
 */
static __always_inline void find_hz(__u64 now)
{
	const __u16 usual[] = { 100, 250, 300, 1000 };
	__u64 jiffies = bpf_jiffies64(), ms = now / NSEC_PER_MSEC, nearest = ~0ULL;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u64 expected = (1ULL << 32) + ms * usual[i] / 1000 - 300 * usual[i];
		__u64 off = expected > jiffies ? expected - jiffies : jiffies - expected;

		if (off < nearest) {
			nearest = off;
			hz = usual[i];
		}
	}
}

#endif
