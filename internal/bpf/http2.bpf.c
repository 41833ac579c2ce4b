//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The requests of HTTP/2 connections (RFC 9113), gRPC's among them: they run
 * side by side, so what a connection as a whole does, which is all that
 * request.bpf.c looks at, says nothing of any of them. Here the headers of the
 * frames are read as they go by, in the clear only. A request is a stream, from
 * its first HEADERS frame to the last frame of its answer, and where that is sent from here until
 * it is acknowledged (http2_wire.h).
 *
 * These programs are run for every packet of every socket of the host, so they
 * are attached only where requests were seen to overlap; what is no connection
 * of HTTP/2 is left after a look at the socket. Maps are those of
 * request.bpf.c, which leaves the connections that are marked here alone.
 */
#define SEES_PACKETS 1
#include "headers/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include "headers/request.h"
#include "headers/connection.h"
#include "headers/record.h"
#include "headers/http2_frame.h"
#include "headers/header_block.h"
#include "headers/http2_stream.h"
#include "headers/http2_ledger.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The contexts as programs see them (include/uapi/linux/bpf.h): offsets are
 * fixed. */
struct __sk_buff {
	__u32 len;
	__u32 before[21];
	__u32 family; /* of the socket, as all that follows */
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port; /* network byte order */
	__u32 local_port;
	__u32 data_meta;
	__u64 flow_keys;
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	struct bpf_sock *sk __attribute__((aligned(8)));
};

_Static_assert(__builtin_offsetof(struct __sk_buff, family) == 88, "not as in bpf.h");
_Static_assert(__builtin_offsetof(struct __sk_buff, sk) == 168, "not as in bpf.h");

#define load(at, off, to, n) bpf_skb_load_bytes((at)->bytes, off, to, n)

#include "headers/http2_walk.h"
#include "headers/http2_end.h"

static __always_inline void see_packet(struct __sk_buff *skb, __u32 out)
{
	struct bpf_sock *sk = skb->sk;
	struct at at = { .bytes = skb };
	struct conn *c;
	struct {
		__be16 from, to;
		__be32 seq, ack;
		__u8 offset, flags;
	} tcp = {};
	__u8 first = 0;

	if (!sk)
		return;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return;
	c = bpf_sk_storage_get(&conns, sk, 0, 0);
	if (!c || c->side == SIDE_NONE || (c->proto > PROTO_OTHER && c->proto != PROTO_HTTP2))
		return;
	if (bpf_skb_load_bytes(skb, 0, &first, 1))
		return;
	/* TCP has no extension headers of IPv6 before it, but for rare ones. */
	at.off = first >> 4 == 4 ? (first & 15) * 4 : 40;
	if (bpf_skb_load_bytes(skb, at.off, &tcp, 14))
		return;
	at.off += (tcp.offset >> 4) * 4;
	at.end = skb->len;
	if (at.off >= at.end)
		return;
	at.asks = (c->side == SERVED) != out;
	if (c->proto != PROTO_HTTP2) {
		struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
		__u32 *place;

		if (!tp || !at.asks || !(begins_with_preface(&at) || begins_with_frame(&at, 1)))
			return;
		if (bpf_sk_storage_get(&place_of, sk, 0, 0))
			return; /* there was no place for it */
		place = bpf_sk_storage_get(&place_of, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
		at.m = tell_apart(c, (struct sock *)tp, tp, place);
	} else {
		at.m = at_place(bpf_sk_storage_get(&place_of, sk, 0, 0));
	}
	if (!at.m)
		return;
	at.m->pid = c->pid;
	at.m->tid = c->tid;
	at.share = share_of_hash(at.m->hash);
	if (at.share == UNCOUNTED && !at.m->open) {
		if (at.m->ways[WAY_ASKS].known | at.m->ways[WAY_ANSWERS].known)
			lose_ways(at.m); /* what passes now is no gap */
		return;
	}
	at.out = out;
	at.now = bpf_ktime_get_ns();
	if (out)
		at.m->leaves = at.now;
	walk(&at, bpf_ntohl(tcp.seq));
}

SEC("cgroup_skb/egress")
int http2_out(struct __sk_buff *skb)
{
	see_packet(skb, 1);
	return 1;
}

SEC("cgroup_skb/ingress")
int http2_in(struct __sk_buff *skb)
{
	see_packet(skb, 0);
	return 1;
}
