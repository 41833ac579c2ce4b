/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Where what was found out about requests goes: the sums of an endpoint and the
 * ring of records, as request.bpf.c and http2.bpf.c share them.
 */
#ifndef SLOWRAY_RECORD_H
#define SLOWRAY_RECORD_H

/*
 * Sums are kept per CPU and endpoint without atomic operations, which would
 * cost more than all the rest. A program that interrupts another one at work
 * here (a softirq over a system call) uses a lane of its own, with atomics.
 */
#define ADD(n, field, value)                                         \
	do {                                                         \
		if (lane)                                            \
			__sync_fetch_and_add(&(n)->field, (value));  \
		else                                                 \
			(n)->field += (value);                       \
	} while (0)

static __always_inline struct counters *counters_of(__u32 endpoint, __u32 cpu, __u32 lane)
{
	__u32 i = (endpoint * cpus + cpu) * 2 + lane;

	return bpf_map_lookup_elem(&counts, &i);
}

/* A free slot of this CPU's ring, to be committed with commit(). */
static __always_inline struct record *reserve(struct ring *r, __u32 cpu, __u64 *number)
{
	__u32 i;

	/* The margin is for programs that interrupt this one here. */
	if (r->head - r->tail >= slots - 8) {
		__sync_fetch_and_add(&r->lost, 1);
		return 0;
	}
	*number = __sync_fetch_and_add(&r->head, 1);
	i = cpu * slots + (*number & (slots - 1));
	return bpf_map_lookup_elem(&records, &i);
}

static __always_inline void commit(struct record *rec, __u64 number)
{
	/* Every CPU must see the record before it. x86 keeps stores in order. */
	if (ordered_stores)
		*(volatile __u64 *)&rec->commit = number + 1;
	else
		__sync_lock_test_and_set(&rec->commit, number + 1);
}

/* The smallest round trip seen on the connection, ns; 0 when there was none. */
static __always_inline __u64 min_rtt_of(struct tcp_sock *tp)
{
	__u32 us = tp->rtt_min.s[0].v;

	return us == ~0U ? 0 : us * NSEC_PER_USEC;
}

static __always_inline __u64 smoothed_rtt(struct tcp_sock *tp) { return (__u64)(tp->srtt_us >> 3) * NSEC_PER_USEC; }

#endif
