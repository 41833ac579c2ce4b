/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * How a connection comes to be watched: its endpoint, and which side of it is
 * here.
 */
#ifndef SLOWRAY_WATCH_H
#define SLOWRAY_WATCH_H

/*
 * How many of the established connections that are known have a place like this. Out of
 * turn nearly all pass by a zero here: what tells of a socket's storage lies in memory that,
 * for a new connection, another CPU has just written.
 */
#define KEPT 1024 /* a power of two */

__u32 kept[KEPT];

static __always_inline __u32 *kept_like(struct sock *sk)
{
	return &kept[sk->__sk_common.skc_hash * 0x9e3779b1U >> 20 & (KEPT - 1)];
}

static __always_inline void keep(struct conn *c, struct sock *sk)
{
	if (c->kept || c->side == SIDE_NONE)
		return;
	c->kept = 1;
	__sync_fetch_and_add(kept_like(sk), 1);
}

static __always_inline void keep_no_more(struct conn *c, struct sock *sk)
{
	if (!c->kept)
		return;
	c->kept = 0;
	__sync_fetch_and_add(kept_like(sk), -1);
}

static __always_inline void endpoint_of(struct endpoint_key *key, struct sock *sk, __u32 side)
{
	key->netns = netns_of(sk);
	key->side = side;
	key->family = sk->__sk_common.skc_family;
	if (side == SERVED) {
		key->port = sk->__sk_common.skc_num;
		if (key->family == AF_INET6)
			BPF_CORE_READ_INTO(&key->addr, sk, __sk_common.skc_v6_rcv_saddr);
		else
			__builtin_memcpy(key->addr, &sk->__sk_common.skc_rcv_saddr, 4);
	} else {
		key->port = bpf_ntohs(sk->__sk_common.skc_dport);
		if (key->family == AF_INET6)
			BPF_CORE_READ_INTO(&key->addr, sk, __sk_common.skc_v6_daddr);
		else
			__builtin_memcpy(key->addr, &sk->__sk_common.skc_daddr, 4);
	}
}

/* Which number an address has among the endpoints; the last one when there is
 * no place left. */
static __noinline __u32 find_endpoint(struct sock *sk, __u32 side)
{
	struct endpoint_key key = {};
	__u32 *found, n;

	if (!sk)
		return 0;
	endpoint_of(&key, sk, side);
	found = bpf_map_lookup_elem(&endpoints, &key);
	if (found)
		return *found;
	if (next_endpoint >= max_endpoints - 1)
		goto full;
	n = __sync_fetch_and_add(&next_endpoint, 1);
	if (n >= max_endpoints - 1)
		goto full;
	if (!bpf_map_update_elem(&endpoints, &key, &n, BPF_NOEXIST))
		return n;
	found = bpf_map_lookup_elem(&endpoints, &key); /* another CPU was quicker */
	if (found)
		return *found;
full:
	__sync_fetch_and_add(&lost_endpoints, 1);
	return max_endpoints - 1;
}

/* The endpoint that a CPU counted last on each side. An address keeps its number. */
struct endpoint_memo {
	struct endpoint_key key;
	__u32 number;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 3); /* by side */
	__type(key, __u32);
	__type(value, struct endpoint_memo);
} endpoint_memos SEC(".maps");

/* find_endpoint() for connection after connection to the same address. Of programs that
 * interrupt each other on a CPU only the first may use it. */
static __always_inline __u32 remember_endpoint(struct sock *sk, __u32 side)
{
	struct endpoint_memo *memo = bpf_map_lookup_elem(&endpoint_memos, &side);
	struct endpoint_key key = {};

	if (!memo)
		return find_endpoint(sk, side);
	endpoint_of(&key, sk, side);
	if (__builtin_memcmp(&key, &memo->key, sizeof(key))) {
		memo->number = find_endpoint(sk, side);
		memo->key = key;
	}
	return memo->number;
}

/* Whether this side of a connection is wanted. */
static __always_inline int is_wanted(struct sock *sk, int side)
{
	__u16 port = side == SERVED ? sk->__sk_common.skc_num : bpf_ntohs(sk->__sk_common.skc_dport);

	return side_mask >> (side - 1) & 1 && (!some_ports || has_port(want_ports, port));
}

/* Begins to watch a connection. */
static __noinline struct conn *watch(struct sock *sk, int side, __u64 opened)
{
	struct conn *c;

	if (!sk)
		return 0;
	c = bpf_sk_storage_get(&conns, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!c) {
		__sync_fetch_and_add(&lost_conns, 1);
		return 0;
	}
	c->side = SIDE_NONE;
	if (!is_wanted(sk, side))
		return c;
	c->side = side;
	c->family = sk->__sk_common.skc_family;
	c->lport = sk->__sk_common.skc_num;
	c->opened = opened;
	c->flags = 0;
	c->phase = IDLE;
	c->seq = 0;
	c->endpoint = find_endpoint(sk, side);
	return c;
}

/* A connection that is older than slowray. */
static __noinline struct conn *adopt(struct sock *sk)
{
	struct listen_key key = {};
	struct conn *c;
	int side;

	if (!sk)
		return 0;
	key.netns = netns_of(sk);
	key.port = sk->__sk_common.skc_num;
	side = bpf_map_lookup_elem(&listening, &key) ? SERVED : CALLED;
	c = watch(sk, side, 0);
	if (c)
		keep(c, sk);
	return c;
}

#endif
