/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The requests that a connection of HTTP/2 has under way. Who includes this says what it sees:
 *
 *   SEES_PACKETS   1 for packets, whose positions are those of TCP (http2_wire.h); 0 for clear
 *                  bytes of a process
 */
#ifndef SLOWRAY_HTTP2_STREAM_H
#define SLOWRAY_HTTP2_STREAM_H

/* Streams of a connection that are followed at once. Each has one of TRIES
 * places, by its number. */
#define STREAMS 128
#define TRIES 4

/* A request under way. */
struct stream {
	__u64 first; /* HEADERS of the request */
	__u64 asked; /* its last frame; 0 = not yet */
	__u64 read; /* the process had that; 0 = not known */
	__u64 answer; /* HEADERS of the answer */
#if SEES_PACKETS
	__u64 sent; /* the last frame of the answer */
	__u64 flight; /* since when some of what this end sent is not acknowledged */
	__u64 lost_to; /* up to when lost_us was counted */
	__u64 limited; /* of the connection, when the answer began */
	__u64 acked; /* served: all of the answer was; 0 = not seen */
	__u32 from, upto; /* sequence numbers of what this end sent; the same = nothing yet */
	__u32 asked_upto; /* served: of the request, the one after its last byte */
	__u32 window_us; /* from sent to the last WINDOW_UPDATE since, at least 1; 0 = none */
	__u32 stall_us; /* the answer paused, and not for flow control */
	__u32 held_us; /* it paused, for whatever */
	__u32 lost_us; /* waited for what was retransmitted */
	__u32 late_us; /* the acknowledgement was late */
	__u32 over; /* enum over */
#endif
	__u32 id; /* 0 = free */
	__u32 bytes_asked, bytes_answered; /* of DATA frames */
	__u16 http;
	__u16 again; /* segments retransmitted, from the first byte to the last that this end sent */
	__u8 trailers; /* the answer goes on with HEADERS: gRPC's status is in them, which is not read */
	__u8 reported; /* as unfinished */
	__u8 share; /* follow_share when it began */
	__u8 ended; /* its answer is over, and how that began is in a gap */
};

/* Whether a stream's answer is sent, and waits to be acknowledged. */
enum over {
	GOES_ON,
	SENT,
	CLAIMED, /* somebody writes its record */
};

/* Bytes that a process has written, and that the socket could not send at once. */
struct written {
	__u32 upto; /* sequence number after the last one */
	__u64 at;
};

#define QUEUED 16 /* writes; a power of two */

/* One direction of a connection: where in the sequence the next frame begins. */
struct way {
	__u32 next;
	__u8 known;
	__u8 have; /* bytes of the next header that came before */
	__u8 head[FRAME_HEADER];
	/* With labels: */
	__u32 blocks; /* header blocks so far; one more where some may not have been seen */
	__u32 rest; /* of a block's piece, in the next segment */
	__u32 rest_at; /* which begins with this sequence number */
	__u32 rest_stream;
	__u8 rest_ends;
	__u32 seen; /* the number after the last byte; of a gap: at which it ends */
	__u64 since; /* of a gap */
};

/* The ways of a connection, and of each a gap: packets that were lost or overtaken come
 * later, and begin where the way was lost. */
enum { WAY_ASKS, WAY_ANSWERS, GAPS, WAYS = 2 * GAPS };

enum taken {
	FREE_PLACE,
	TAKEN_PLACE,
	RESERVED, /* for an owner whose socket is not known yet, see clear.h */
};

/* A connection whose streams are distinguished, with all that a record says of it:
 * those who see its frames may not have its socket at hand. */
struct multiplexed {
	__u32 taken; /* enum taken */
	__u32 open; /* streams under way */
	struct way ways[WAYS];
	__u64 headers; /* as in struct record */
	__u8 side, family;
	__u8 opening; /* number of its first stream, 1 or 3 (after what 1 is kept for, RFC 9113, 3.2); 0 = that began unseen */
	__u16 lport, peer; /* host byte order */
	__u32 endpoint;
	__u32 pid, tid;
	__u32 netns;
	__u32 rtt_us;
	__u32 accept_us, tls_us; /* the handshake of TLS and the wait before it, as in struct conn; 0 = not known */
	__u32 connect_us, dns_us; /* called: as in struct record */
	__u64 established;
	__u32 hash; /* of the socket, see turn_of() */
	__u32 epoch; /* of clear.h */
	__u64 reading, arrived; /* the first and the last of the bytes that were read last had; 0 = not known */
	__u64 reserved; /* when it was */
	__u64 owner; /* the object of the process that has its clear bytes, see clear.h; 0 = packets are read, or nobody knows any more */
#if SEES_PACKETS
	__u32 una; /* acknowledged up to here */
	__u32 lost_from, recover; /* sequence numbers: the first that was retransmitted, the end of the last */
	__u32 oldest, newest; /* of writes, */
	__u32 first_over, next_over; /* of over, */
	__u32 first_asked, next_asked; /* and of asked */
	__u64 due; /* when what was retransmitted should have been acknowledged; 0 = nothing is */
	__u64 lost_began, lost_ended; /* the last time that due passed, and that it was */
	__u64 leaves; /* when the packet does that is looked at */
	__u64 progress; /* last acknowledgement of new bytes, opening of the window, or beginning of a flight */
	__u64 limited; /* ns that the receiver's window, or the send buffer, kept bytes back */
	__u64 window; /* the last WINDOW_UPDATE of the connection, or SETTINGS */
	__u64 zero_window, recv_window, send_buffer, timeout; /* when each was seen last */
	struct written writes[QUEUED];
	__u32 over[STREAMS]; /* streams whose answer is sent, in that order */
	__u32 asked[STREAMS]; /* streams that nobody has read, in the order in which they came */
#endif
	__u8 laddr[16], paddr[16];
	struct stream streams[STREAMS];
};

/* Connections that are distinguished at once; a power of two. */
#define PLACES 1024

/* 5 or, with packets, 18 kB each, which no kernel gives reliably where it may not wait. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLACES);
	__type(key, __u32);
	__type(value, struct multiplexed);
} places SEC(".maps");

/* Which place a connection has, plus 1; 0 = there was none left. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} place_of SEC(".maps");

static __always_inline struct multiplexed *at_place(const __u32 *place)
{
	__u32 i;

	if (!place || !*place)
		return 0;
	i = *place - 1;
	return bpf_map_lookup_elem(&places, &i);
}

__u32 next_place;
__u64 next_headers;

__s64 under_way; /* streams */
__s64 told_apart; /* connections whose streams are distinguished */

/* Its place is free again. Packets of both ways may end it at a time: 1 for who does. */
static __always_inline int free_stream(struct multiplexed *m, struct stream *s)
{
	__u32 id = s->id;

	if (!id || __sync_val_compare_and_swap(&s->id, id, 0) != id)
		return 0;
	__sync_fetch_and_add(&m->open, -1);
	__sync_fetch_and_add(&under_way, -1);
	return 1;
}

struct dropped {
	struct multiplexed *m;
	__u64 streams;
	__u32 ended; /* also those that only wait to be acknowledged */
};

static long drop_stream(__u32 i, void *context)
{
	struct dropped *d = context;
	struct stream *s = &d->m->streams[i & (STREAMS - 1)];

#if SEES_PACKETS
	if (s->over != GOES_ON && !d->ended)
		return 0;
#endif
	d->streams += free_stream(d->m, s);
	return 0;
}

/* Of streams that are under way nobody will know what became of them; says how many. */
static __always_inline __u64 drop_streams(struct multiplexed *m)
{
	struct dropped d = { m };

	bpf_loop(STREAMS, drop_stream, &d, 0);
	return d.streams;
}

/* Nothing of its connection will be seen any more. */
static __always_inline void end_place(struct multiplexed *m)
{
	struct dropped d = { m, .ended = 1 };

	bpf_loop(STREAMS, drop_stream, &d, 0);
	if (with_labels)
		no_more_blocks(m->headers);
}

static __always_inline void free_place(struct multiplexed *m)
{
	end_place(m);
	if (m->taken == TAKEN_PLACE)
		__sync_fetch_and_add(&told_apart, -1);
	m->taken = FREE_PLACE;
}

/* Where frames begin is to be found out anew. */
static __always_inline void lose_ways(struct multiplexed *m)
{
	m->ways[WAY_ASKS].blocks += m->ways[WAY_ASKS].known;
	m->ways[WAY_ANSWERS].blocks += m->ways[WAY_ANSWERS].known;
	m->ways[WAY_ASKS].known = m->ways[WAY_ANSWERS].known = 0;
	m->ways[GAPS + WAY_ASKS].known = m->ways[GAPS + WAY_ANSWERS].known = 0;
}

/* A place that was reserved so long ago is not wanted any more. */
#define RESERVATION (10 * NSEC_PER_SEC)

/* Of so many places one may be reserved, by whoever calls himself a connection; the others are
 * for those that have a socket. */
#define RESERVABLE 4

/* Takes a place that nobody has, among the next few. */
static __always_inline struct multiplexed *take_place(__u32 *place, __u32 as)
{
	__u64 now = bpf_ktime_get_ns();

	for (int n = 0; n < 16; n++) {
		__u32 i = __sync_fetch_and_add(&next_place, 1) & (PLACES - 1);
		struct multiplexed *m;
		__u32 was;

		if (as == RESERVED)
			i &= ~(RESERVABLE - 1);
		m = bpf_map_lookup_elem(&places, &i);
		was = m ? m->taken : TAKEN_PLACE;

		if (was == TAKEN_PLACE || (was == RESERVED && span(m->reserved, now) < RESERVATION) ||
		    __sync_val_compare_and_swap(&m->taken, was, as) != was)
			continue;
		if (was == RESERVED)
			end_place(m);
		m->reserved = now;
		*place = i + 1;
		lose_ways(m);
		m->ways[WAY_ASKS].blocks = m->ways[WAY_ANSWERS].blocks = 1; /* unless the preface shows that none came before */
		m->ways[WAY_ASKS].rest = m->ways[WAY_ANSWERS].rest = 0;
		m->headers = with_labels ? __sync_fetch_and_add(&next_headers, 1) + 1 : 0;
		m->open = m->opening = 0;
		return m;
	}
	return 0;
}

/* How the connection was opened, where its first request is still to be told of. */
static __always_inline void describe_opening(struct multiplexed *m, struct conn *c, struct sock *sk)
{
	__u32 *dns_us;

	m->connect_us = m->dns_us = 0;
	m->established = 0;
	if (c->side != CALLED || !c->connect_us || (c->seq && (c->seq != 1 || c->phase == IDLE)))
		return;
	if (c->tls != TLS_NONE && (c->tls != TLS_READY || c->tls_is & TLS_UNTIL))
		return;
	dns_us = bpf_sk_storage_get(&lookup_of, sk, 0, 0);
	m->connect_us = c->connect_us;
	m->dns_us = dns_us ? *dns_us : 0;
	m->established = c->established;
}

/* From now on it is a connection's, whose streams are distinguished. */
static __always_inline void describe(struct multiplexed *m, struct conn *c, struct sock *sk, struct tcp_sock *tp)
{
	m->side = c->side;
	m->family = c->family;
	m->lport = c->lport;
	m->endpoint = c->endpoint;
	m->pid = c->pid;
	m->tid = c->tid;
	m->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	m->peer = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	m->hash = BPF_CORE_READ(sk, __sk_common.skc_hash);
	if (c->family == AF_INET6) {
		BPF_CORE_READ_INTO(&m->laddr, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&m->paddr, sk, __sk_common.skc_v6_daddr);
	} else {
		*(__u32 *)m->laddr = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
		*(__u32 *)m->paddr = BPF_CORE_READ(sk, __sk_common.skc_daddr);
	}
	m->arrived = m->reading = 0;
#if SEES_PACKETS
	m->una = tp->snd_una;
	m->oldest = m->newest = m->first_over = m->next_over = m->first_asked = m->next_asked = 0;
	m->due = m->lost_began = m->lost_ended = m->limited = m->window = 0;
	m->progress = bpf_ktime_get_ns();
	m->zero_window = m->recv_window = m->send_buffer = m->timeout = 0;
#endif
	m->rtt_us = min_rtt_of(tp) / NSEC_PER_USEC;
	/* A request that is over by now has the handshake. */
	m->tls_us = c->tls == TLS_READY && !(c->tls_is & TLS_UNTIL) && (!c->seq || (c->seq == 1 && c->phase != IDLE)) ? c->tls_ns / NSEC_PER_USEC : 0;
	m->accept_us = m->tls_us && c->side == SERVED && c->accept_us ? c->accept_us - 1 : 0;
	describe_opening(m, c, sk);
	c->proto = PROTO_HTTP2;
	__sync_fetch_and_add(&told_apart, 1);
}

/* Begins to tell the streams of a connection apart. */
static __noinline struct multiplexed *tell_apart(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 *place)
{
	struct multiplexed *m;

	if (!c || !sk || !tp || !place)
		return 0;
	m = take_place(place, TAKEN_PLACE);
	if (!m) {
		__sync_fetch_and_add(&lost_conns, 1);
		return 0;
	}
	m->owner = 0;
	describe(m, c, sk, tp);
	return m;
}

/* The stream of a number; a free place for it where it is new; 0 where there is
 * none. */
static __always_inline struct stream *stream_of(struct multiplexed *m, __u32 id, int new)
{
	struct stream *free = 0;

#pragma unroll
	for (int i = 0; i < TRIES; i++) {
		struct stream *s = &m->streams[((id >> 1) + i) & (STREAMS - 1)];

		if (s->id == id)
			return s;
		if (!s->id && !free)
			free = s;
	}
	return new ? free : 0;
}

#endif
