/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * How a connection of ours is opened, before its first request: the lookup of a name that
 * dns.bpf.c wrote down (lookup.h), and how long connect() took.
 */
#ifndef SLOWRAY_OPENING_H
#define SLOWRAY_OPENING_H

#include "lookup.h"

/* So long after its answer a lookup is what a process connects by; later it may have the address
 * from elsewhere. */
#define LOOKUP_FRESH NSEC_PER_SEC

__u8 lookups_seen; /* dns.bpf.c is at work */

/* A thread connects: was a name looked up for that? An answer is taken once. */
static __noinline int take_lookup(struct sock *sk, __u64 thread)
{
	struct answer_key key = { .tgid = thread >> 32, .tid = thread };
	struct looked_up *all;
	struct answer a, *found;
	__u64 now = bpf_ktime_get_ns(), until;
	__u32 *dns_us;

	if (!sk || sk->sk_protocol != IPPROTO_TCP || !is_wanted(sk, CALLED))
		return 0;
	if (sk->__sk_common.skc_family == AF_INET6) {
		BPF_CORE_READ_INTO(&key.addr, sk, __sk_common.skc_v6_daddr);
	} else {
		map_ipv4(&key);
		__builtin_memcpy(key.addr + 12, &sk->__sk_common.skc_daddr, 4);
	}
	found = bpf_map_lookup_elem(&answers, &key);
	if (!found) {
		key.tid = 0;
		found = bpf_map_lookup_elem(&answers, &key);
		if (!found)
			return 0;
	}
	a = *found;
	bpf_map_delete_elem(&answers, &key);
	/* The other entry of the same answer. */
	key.tid = key.tid ? 0 : a.lookup.thread;
	found = bpf_map_lookup_elem(&answers, &key);
	if (found && found->at == a.at)
		bpf_map_delete_elem(&answers, &key);
	all = bpf_map_lookup_elem(&lookups_done, &a.lookup);
	until = all && all->first == a.first ? later(all->last, a.at) : a.at;
	if (span(until, now) > LOOKUP_FRESH)
		return 0;
	dns_us = bpf_sk_storage_get(&lookup_of, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (dns_us)
		*dns_us = later(in_micros(span(a.first, until)), 1);
	return 0;
}

static __noinline int note_established(struct conn *c, struct tcp_sock *tp, __u64 now)
{
	if (!c || !tp)
		return 0;
	c->established = now;
	/* Where nobody saw the SYN its round trip tells, unless it was lost. */
	if (c->pid || (tp->srtt_us && !tp->total_retrans))
		c->connect_us = later(in_micros(span(c->opened, now)), 1);
	return 0;
}

#endif
