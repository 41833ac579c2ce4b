//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The requests of HTTP/2 connections (RFC 9113), gRPC's among them: they run
 * side by side, so what a connection as a whole does, which is all that
 * request.bpf.c looks at, says nothing of any of them. Here the headers of the
 * frames are read as they go by, in the clear only. A request is a stream, from
 * its first HEADERS frame to the last frame of its answer.
 *
 * These programs are run for every packet of every socket of the host, so they
 * are attached only where requests were seen to overlap; what is no connection
 * of HTTP/2 is left after a look at the socket. Maps are those of
 * request.bpf.c, which leaves the connections that are marked here alone.
 */
#include "headers/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include "headers/request.h"
#include "headers/connection.h"
#include "headers/record.h"
#include "headers/http2_frame.h"
#include "headers/http2_stream.h"
#include "headers/header_block.h"

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

/* Frames that are looked at in one segment; a segment has up to 64 kB. After
 * more the place is lost until a segment begins with a frame. */
#define FRAMES 512

__u64 unfinished_ns; /* requests that take longer are reported while they last, once */
__u8 again; /* also those that were reported */
__u64 told_apart; /* connections whose streams are distinguished */
__u64 lost_streams; /* requests without a place: more than STREAMS at once */
__u64 lost_places; /* where it was no longer known where the next frame begins */

/* A frame, and what it is read from. */
struct at {
	struct __sk_buff *skb;
	struct conn *c;
	struct multiplexed *m;
	__u64 now;
	__u32 off; /* of the frame's header in skb */
	__u32 end; /* of the segment */
	struct way *w;
	__u32 share; /* of requests that begin */
	__u32 asks; /* it goes from the caller to the server */
	__u32 seq_end; /* the sequence number after the segment */
};

static __always_inline void read_status(struct at *at, struct stream *s, __u8 flags)
{
	__u32 from = at->off + FRAME_HEADER + (flags & PADDED ? 1 : 0) + (flags & WITH_PRIORITY ? 5 : 0);
	__u8 b[4] = {};

	if (bpf_skb_load_bytes(at->skb, from, b, 1))
		return;
	/* A change of the table's size may come first (RFC 7541, 6.3). */
	if (b[0] >> 5 == 1 && bpf_skb_load_bytes(at->skb, ++from, b, 1))
		return;
	/* All headers together may be three bytes. */
	if (!(b[0] & 0x80) && bpf_skb_load_bytes(at->skb, from, b, 4))
		return;
	s->http = status_of(b);
}

/* Hands a piece of a header block over; room is a constant. */
static __always_inline void hand_piece(struct at *at, const __u32 room, __u32 off, __u32 len, __u32 stream, __u8 flags)
{
	struct header_block *b;

	len = ((len - 1) & (room - 1)) + 1; /* as it is: what the verifier has to know */
	b = block_for(room, at->m->headers, at->w->blocks, stream, len, !at->asks, flags);
	if (!b)
		return;
	if (bpf_skb_load_bytes(at->skb, off, b->bytes, len))
		bpf_ringbuf_discard(b, BPF_RB_NO_WAKEUP);
	else
		bpf_ringbuf_submit(b, BPF_RB_NO_WAKEUP);
}

/* Hands over what of a block lies in this segment from off on, and notes what is to come with
 * the next one. */
static __noinline int hand_block(struct at *at, __u32 off, __u32 len, __u32 stream, __u32 flags)
{
	__u32 here, ends = flags & BLOCK_ENDS;
	struct way *w;

	if (!at || !at->w || !at->m)
		return 0;
	w = at->w;
	w->rest = 0;
	here = off < at->end ? at->end - off : 0;
	if (len > here) {
		w->rest = len - here;
		w->rest_at = at->seq_end;
		w->rest_stream = stream;
		w->rest_ends = ends;
		ends = 0;
	} else {
		here = len;
	}
	if (here > BLOCK_SIZE) {
		here = BLOCK_SIZE; /* what follows is lost */
		w->rest = 0;
		ends = 0;
	}
	flags = (flags & BLOCK_BEGINS) | ends;
	if (!here)
		return 0;
	if (here <= SMALL_BLOCK)
		hand_piece(at, SMALL_BLOCK, off, here, stream, flags);
	else
		hand_piece(at, BLOCK_SIZE, off, here, stream, flags);
	return 0;
}

/* A frame with a header block, or with a part of one. */
static __noinline int see_block(struct at *at, __u32 len, __u32 type, __u32 flags, __u32 stream)
{
	__u32 off, before = 0;
	__u8 padding = 0;

	if (!at || !at->w)
		return 0;
	if (type != CONTINUATION)
		at->w->blocks++;
	if (type == PUSH_PROMISE) {
		at->w->blocks++; /* as if not seen: nobody asked for it */
		return 0;
	}
	off = at->off + FRAME_HEADER;
	if (type == HEADERS) {
		if (flags & PADDED) {
			if (bpf_skb_load_bytes(at->skb, off, &padding, 1))
				return 0;
			before = 1;
		}
		if (flags & WITH_PRIORITY)
			before += 5;
	}
	if (before + padding > len)
		return 0;
	return hand_block(at, off + before, len - before - padding, stream, (type == HEADERS ? BLOCK_BEGINS : 0) | (flags & END_HEADERS ? BLOCK_ENDS : 0));
}

/* A frame begins; len is that of its payload. */
static __noinline int see_frame(struct at *at, __u32 len, __u32 type, __u32 flags, __u32 id)
{
	struct stream *s;

	if (!at)
		return 0;
	if (with_labels && (type == HEADERS || type == CONTINUATION || type == PUSH_PROMISE))
		see_block(at, len, type, flags, id);
	if (type != DATA && type != HEADERS && type != RST_STREAM)
		return 0;
	if (at->asks) {
		s = stream_of(at->m, id, type == HEADERS);
		if (!s) {
			if (type == HEADERS)
				__sync_fetch_and_add(&lost_streams, 1);
			return 0;
		}
		if (!s->id) {
			if (at->share == UNCOUNTED)
				return 0;
			__builtin_memset(s, 0, sizeof(*s));
			s->id = id;
			s->first = at->now;
			s->share = at->share;
			__sync_fetch_and_add(&at->m->open, 1);
		}
		if (type == RST_STREAM) { /* the caller wants it no more */
			end_stream(at->c, at->m, s, RESET | (s->answer ? TRUNCATED : UNANSWERED), at->now);
			free_stream(at->m, s);
			return 0;
		}
		if (type == DATA)
			s->bytes_asked += len;
		if (flags & END_STREAM)
			s->asked = at->now;
		return 0;
	}
	s = stream_of(at->m, id, 0);
	if (!s || !s->id)
		return 0;
	if (type == HEADERS) {
		if (!s->answer || s->http / 100 == 1) {
			read_status(at, s, flags);
			if (s->http / 100 != 1)
				s->answer = at->now;
			if (flags & END_STREAM && s->http == 200)
				s->trailers = 1; /* no body: gRPC's errors look so */
		} else {
			s->trailers = 1;
		}
	} else if (type == DATA) {
		s->bytes_answered += len;
	} else {
		/* A server that answers before all was asked resets what is left. */
		end_stream(at->c, at->m, s, RESET | (s->answer ? TRUNCATED : UNANSWERED), at->now);
		free_stream(at->m, s);
		return 0;
	}
	if (flags & END_STREAM) {
		end_stream(at->c, at->m, s, 0, at->now);
		free_stream(at->m, s);
	}
	return 0;
}

/* Whether a segment begins with a frame, and, where that ends within it, goes on
 * with another. */
static __noinline int begins_with_frame(struct __sk_buff *skb, __u32 off, __u32 end, __u32 must_ask)
{
	__u8 b[FRAME_HEADER] = {};
	__u32 next;

	if (bpf_skb_load_bytes(skb, off, b, FRAME_HEADER) || !is_frame(b))
		return 0;
	if (must_ask && b[3] != HEADERS)
		return 0;
	next = off + FRAME_HEADER + length_of(b);
	if (must_ask && next > end)
		return 0;
	if (next + FRAME_HEADER > end)
		return 1;
	return !bpf_skb_load_bytes(skb, next, b, FRAME_HEADER) && is_frame(b);
}

static __always_inline int begins_with_preface(struct __sk_buff *skb, __u32 off)
{
	__u64 b[2] = {};

	/* "PRI * HT" "TP/2.0\r\n" */
	return !bpf_skb_load_bytes(skb, off, b, 16) && b[0] == 0x5448202a20495250ULL && b[1] == 0x0a0d302e322f5054ULL;
}

/* Bytes of a header that lies in two segments. */
static __noinline int gather(struct at *at, struct way *w)
{
	__u8 b;

	if (!at || !w)
		return 0;
#pragma unroll
	for (int i = 0; i < FRAME_HEADER; i++) {
		if (i < w->have || at->off >= at->end)
			continue;
		if (bpf_skb_load_bytes(at->skb, at->off, &b, 1))
			return 0;
		w->head[i] = b;
		w->have = i + 1;
		at->off++;
	}
	return 0;
}

/* A turn of the loop over the frames of a segment; 1 ends it. */
static long next_frame(__u32 i, void *context)
{
	struct at *at = context;
	__u8 b[FRAME_HEADER];
	__u32 len;

	if (at->off + FRAME_HEADER > at->end || bpf_skb_load_bytes(at->skb, at->off, b, FRAME_HEADER))
		return 1;
	len = length_of(b);
	if (b[3] > CONTINUATION && len > USUAL)
		return 1; /* no frame: the place is wrong */
	at->w->next += FRAME_HEADER + len;
	see_frame(at, len, b[3], b[4], id_of(b));
	at->off += FRAME_HEADER + len;
	return 0;
}

/* Goes from frame to frame through the payload of a segment, from off to end; seq
 * is the sequence number of its first byte. */
static __always_inline void walk(struct at *at, struct way *w, __u32 seq)
{
	__u32 skip, len;

	at->w = w;
	at->seq_end = seq + (at->end - at->off);
	if (w->known && before(w->next + w->have, seq)) {
		w->known = 0; /* segments are missing, or were not seen */
		w->blocks++;
	}
	if (!w->known) {
		w->have = 0;
		w->next = seq;
		if (at->asks && begins_with_preface(at->skb, at->off)) {
			w->next += PREFACE;
			at->m->asking.blocks = at->m->answering.blocks = 0;
		} else if (!begins_with_frame(at->skb, at->off, at->end, 0))
			return;
		w->known = 1;
	}
	if (with_labels && w->rest && w->rest_at == seq)
		hand_block(at, at->off, w->rest, w->rest_stream, w->rest_ends);
	skip = w->next + w->have - seq;
	if (skip >= at->end - at->off)
		return; /* within a frame, or retransmitted */
	at->off += skip;
	if (w->have) {
		gather(at, w);
		if (w->have < FRAME_HEADER)
			return;
		w->have = 0;
		len = length_of(w->head);
		w->next += FRAME_HEADER + len;
		/* read_status() looks for the payload after the header. */
		at->off -= FRAME_HEADER;
		see_frame(at, len, w->head[3], w->head[4], id_of(w->head));
		at->off += FRAME_HEADER + len;
	}
	bpf_loop(FRAMES, next_frame, at, 0);
	if (at->off + FRAME_HEADER > at->end) {
		if (at->off < at->end)
			gather(at, w);
	} else {
		w->known = 0;
		w->blocks++;
		__sync_fetch_and_add(&lost_places, 1);
	}
}

/* The streams of a connection, for a turn of a loop each. */
struct all {
	struct conn *c;
	struct multiplexed *m;
	__u64 now, told;
};

static __always_inline int find_streams(struct all *all, struct sock *sk)
{
	all->m = at_place(bpf_sk_storage_get(&place_of, sk, 0, 0));
	if (!all->m)
		return 0;
	all->c = bpf_sk_storage_get(&conns, sk, 0, 0);
	all->now = bpf_ktime_get_ns();
	return all->c != 0;
}

static long close_stream(__u32 i, void *context)
{
	struct all *all = context;
	struct stream *s = &all->m->streams[i & (STREAMS - 1)];

	if (s->id)
		all->told |= end_stream(all->c, all->m, s, s->answer ? TRUNCATED : UNANSWERED, all->now);
	s->id = 0;
	return 0;
}

static long tell_unfinished(__u32 i, void *context)
{
	struct all *all = context;
	struct stream *s = &all->m->streams[i & (STREAMS - 1)], copy;

	__builtin_memcpy(&copy, s, sizeof(copy));
	if (!copy.id || (copy.reported && !again) || span(copy.first, all->now) < unfinished_ns)
		return 0;
	s->reported = 1;
	all->told |= end_stream(all->c, all->m, &copy, UNFINISHED, all->now);
	return 0;
}

/* Begins to tell the streams of a connection apart. */
static __noinline struct multiplexed *tell_apart(struct __sk_buff *skb, struct bpf_sock *sk, struct conn *c)
{
	struct multiplexed *m = 0;
	struct tcp_sock *tp;
	__u32 *place;

	if (!skb || !sk || !c || bpf_sk_storage_get(&place_of, sk, 0, 0))
		return 0; /* there was no place for it */
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	place = bpf_sk_storage_get(&place_of, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (place)
		m = take_place(place);
	if (!m) {
		__sync_fetch_and_add(&lost_conns, 1);
		return 0;
	}
	m->netns = ((struct sock *)tp)->__sk_common.skc_net.net->ns.inum;
	m->peer = bpf_ntohs(((struct sock *)tp)->__sk_common.skc_dport);
	if (c->family == AF_INET6) {
		__u32 *l = (__u32 *)m->laddr, *p = (__u32 *)m->paddr;

		l[0] = skb->local_ip6[0], l[1] = skb->local_ip6[1], l[2] = skb->local_ip6[2], l[3] = skb->local_ip6[3];
		p[0] = skb->remote_ip6[0], p[1] = skb->remote_ip6[1], p[2] = skb->remote_ip6[2], p[3] = skb->remote_ip6[3];
	} else {
		*(__u32 *)m->laddr = skb->local_ip4;
		*(__u32 *)m->paddr = skb->remote_ip4;
	}
	m->rtt_us = min_rtt_of(tp) / NSEC_PER_USEC;
	c->proto = PROTO_HTTP2;
	__sync_fetch_and_add(&told_apart, 1);
	return m;
}

static __always_inline void see_packet(struct __sk_buff *skb, __u32 out)
{
	struct bpf_sock *sk = skb->sk;
	struct at at = { .skb = skb };
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
	at.c = c;
	if (c->proto != PROTO_HTTP2) {
		if (!at.asks || !(begins_with_preface(skb, at.off) || begins_with_frame(skb, at.off, at.end, 1)))
			return;
		at.m = tell_apart(skb, sk, c);
	} else {
		at.m = at_place(bpf_sk_storage_get(&place_of, sk, 0, 0));
	}
	if (!at.m)
		return;
	if (follow_share) {
		struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

		if (!tp)
			return;
		at.share = share_now((struct sock *)tp);
		if (at.share == UNCOUNTED && !at.m->open)
			return; /* where the frames are is found out anew */
	}
	at.now = bpf_ktime_get_ns();
	walk(&at, at.asks ? &at.m->asking : &at.m->answering, bpf_ntohl(tcp.seq));
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

/* sock:inet_sock_set_state(const struct sock *sk, int old, int new): a connection
 * is over; requests that have no answer get none. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(http2_closed, struct sock *sk, int old, int new)
{
	struct all all = {};

	if (new != TCP_CLOSE || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (!find_streams(&all, sk))
		return 0;
	bpf_loop(STREAMS, close_stream, &all, 0);
	if (with_labels)
		no_more_blocks(all.m->headers);
	all.m->taken = 0;
	return 0;
}

/* Requests that take long are reported while they last. */
static __always_inline int flush_streams(struct seq_file *seq, struct sock *sk)
{
	struct all all = {};

	if (!sk)
		return 0;
	if (!find_streams(&all, sk))
		return 0;
	bpf_loop(STREAMS, tell_unfinished, &all, 0);
	/* So that user space can stop after some, and make room. */
	if (all.told)
		bpf_seq_write(seq, &all.told, sizeof(all.told));
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int http2_flush(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	return flush_streams(ctx->meta->seq, ctx->sk);
}

/* The same for kernels that refuse iterators over maps. */
SEC("iter/task_file")
int http2_flush_files(struct bpf_iter__task_file *ctx)
{
	return flush_streams(ctx->meta->seq, (struct sock *)tcp_of_file(ctx->file));
}
