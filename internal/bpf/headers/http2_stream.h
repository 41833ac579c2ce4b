/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The requests that a connection of HTTP/2 has under way, and what becomes of one
 * that is over: its place in the sums, and its record.
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
	__u32 id; /* 0 = free */
	__u32 bytes_asked, bytes_answered; /* of DATA frames */
	__u16 http;
	__u8 trailers; /* the answer goes on with HEADERS: gRPC's status is in them, which is not read */
	__u8 reported; /* as unfinished */
	__u8 share; /* follow_share when it began */
	__u8 ended; /* its answer is over, and how that began is in a gap */
};

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
	__u32 hash; /* of the socket, see turn_of() */
	__u32 epoch; /* of clear.h */
	__u64 arrived, latest; /* bytes that nobody has read yet: the first, the last; 0 = none */
	__u64 reading; /* bytes that were read last had arrived */
	__u64 reserved; /* when it was */
	__u64 owner; /* the object of the process that has its clear bytes, see clear.h; 0 = packets are read, or nobody knows any more */
	__u8 laddr[16], paddr[16];
	struct stream streams[STREAMS];
};

/* Connections that are distinguished at once; a power of two. */
#define PLACES 1024

/* 5 kB each, which no kernel gives reliably where it may not wait. */
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
};

static long drop_stream(__u32 i, void *context)
{
	struct dropped *d = context;

	d->streams += free_stream(d->m, &d->m->streams[i & (STREAMS - 1)]);
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
	drop_streams(m);
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

/* Takes a place that nobody has, among the next few. */
static __always_inline struct multiplexed *take_place(__u32 *place, __u32 as)
{
	__u64 now = bpf_ktime_get_ns();

	for (int n = 0; n < 16; n++) {
		__u32 i = __sync_fetch_and_add(&next_place, 1) & (PLACES - 1);
		struct multiplexed *m = bpf_map_lookup_elem(&places, &i);

		__u32 was = m ? m->taken : TAKEN_PLACE;

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
	m->rtt_us = min_rtt_of(tp) / NSEC_PER_USEC;
	/* A request that is over by now has the handshake. */
	m->tls_us = c->tls == TLS_READY && !(c->tls_is & TLS_UNTIL) && (!c->seq || (c->seq == 1 && c->phase != IDLE)) ? c->tls_ns / NSEC_PER_USEC : 0;
	m->accept_us = m->tls_us && c->side == SERVED && c->accept_us ? c->accept_us - 1 : 0;
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

/* What a connection took before its first stream: read where it is wanted, for end_stream() may
 * have 128 bytes of stack, with what calls it (Linux 6.1). */
#define BEFORE(m, what) (*(const volatile __u32 *)&(m)->what * NSEC_PER_USEC)

/*
 * The sums are kept with atomics, in the lane of programs that interrupt others:
 * these run in tasks, too, which may be preempted.
 */
static __always_inline void count_stream(const struct multiplexed *m, const __u64 *parts, int first, __u8 status, __u32 flags, __u32 cpu, __u32 share)
{
	struct counters *n = counters_of(m->endpoint, cpu, 1);
	const __u32 lane = 1;

	if (!n)
		return;
	ADD(n, requests, 1ULL << share);
	if (flags & UNANSWERED)
		ADD(n, unanswered, 1ULL << share);
	else if (status == STATUS_OK)
		ADD(n, ok, 1ULL << share);
	else if (status == STATUS_ERROR)
		ADD(n, errors, 1ULL << share);
#pragma unroll
	for (int i = 0; i < PARTS; i++) {
		if (parts[i])
			ADD(n, parts[i], parts[i] << share);
	}
	if (first) {
		ADD(n, parts[ACCEPT_WAIT], BEFORE(m, accept_us) << share);
		ADD(n, parts[TLS], BEFORE(m, tls_us) << share);
	}
}

/*
 * Sums a request up that is over now, or that goes on (UNFINISHED). What the
 * server had to do ends with the first byte of the answer. What follows is not
 * told apart: the application may pause, or the caller may not have asked for
 * more (flow control). Returns 1 when that has a record.
 *
 * Not static, so that the verifier looks at it once and not for each way that leads here:
 * in the loops over frames Linux 7.2 came to more than a million instructions.
 */
__noinline int end_stream(struct multiplexed *m, struct stream *s, __u32 flags, __u64 now)
{
	__u64 parts[PARTS] = {}, total, number, asked, read, answer, rtt;
	__u8 status = STATUS_UNKNOWN;
	struct record *rec;
	struct ring *r;
	__u32 cpu = bpf_get_smp_processor_id(), share, weight;

	if (!m || !s)
		return 0;
	r = bpf_map_lookup_elem(&rings, &cpu);
	if (!r)
		return 0;
	share = s->share & 31;
	weight = 1U << share;
	total = span(s->first, now);
	answer = s->answer ? later(s->answer, s->first) : now;
	/* An answer may begin before all was asked, as in streams of gRPC. */
	asked = s->asked ? smaller(later(s->asked, s->first), answer) : answer;
	rtt = m->rtt_us * NSEC_PER_USEC;
	parts[UPLOAD] = span(s->first, asked);
	read = smaller(later(s->read, asked), answer);
	parts[RECV_WAIT] = span(asked, read);
	parts[SERVER] = span(read, answer);
	if (m->side == CALLED) {
		parts[NETWORK] = smaller(rtt, parts[SERVER]);
		parts[SERVER] -= parts[NETWORK];
	}
	parts[UNACCOUNTED] = span(answer, now);
	if (s->id == m->opening)
		total += BEFORE(m, accept_us) + BEFORE(m, tls_us);
	if (m->side == SERVED && !(flags & (UNFINISHED | UNANSWERED))) {
		parts[NETWORK] = rtt; /* until it is there, at the least */
		total += rtt;
	}
	if (flags & (RESET | UNANSWERED | TRUNCATED) || s->http >= 400)
		status = STATUS_ERROR;
	else if (s->http >= 200 && !s->trailers)
		status = STATUS_OK;
	if (flags & UNFINISHED)
		status = STATUS_UNKNOWN;
	else
		count_stream(m, parts, s->id == m->opening, status, flags, cpu, share);
	if (share && !(flags & UNFINISHED))
		__sync_fetch_and_add(&r->left_out, (1ULL << share) - 1);

	if (sample_mask && total < slow_ns && status != STATUS_ERROR && !(flags & UNFINISHED)) {
		if (bpf_get_prandom_u32() & sample_mask) {
			__sync_fetch_and_add(&r->skipped, 1);
			return 0;
		}
		weight = (sample_mask + 1) << share;
	}
	rec = reserve(r, cpu, &number);
	if (!rec)
		return 0;
	rec->kind = RECORD_REQUEST;
	rec->side = m->side;
	rec->family = m->family;
	rec->status = status;
	rec->flags = flags | MULTIPLEXED | (sample_mask && weight == 1U << share ? SLOW : 0);
	rec->start = s->first;
	__builtin_memcpy(rec->parts, parts, sizeof(parts));
	rec->bytes_in = m->side == SERVED ? s->bytes_asked : s->bytes_answered;
	rec->bytes_out = m->side == SERVED ? s->bytes_answered : s->bytes_asked;
	rec->endpoint = m->endpoint;
	rec->seq = (s->id + 1) / 2;
	rec->pid = m->pid;
	rec->tid = m->tid;
	rec->requests = 1;
	rec->weight = weight;
	rec->retrans = 0;
	rec->unacked = 0;
	rec->rtt_us = rec->min_rtt_us = m->rtt_us;
	rec->mss = 0;
	rec->http = s->http;
	rec->netns = m->netns;
	rec->proto = PROTO_HTTP2;
	rec->kept = 0;
	rec->headers = m->headers;
	rec->has_work = 0;
	rec->share = share;
	rec->first_byte = s->answer ? span(s->first, s->answer) : 0;
	if (s->id == m->opening) {
		rec->parts[ACCEPT_WAIT] = BEFORE(m, accept_us);
		rec->parts[TLS] = BEFORE(m, tls_us);
		rec->start -= rec->parts[ACCEPT_WAIT] + rec->parts[TLS];
		if (rec->first_byte)
			rec->first_byte += rec->parts[ACCEPT_WAIT] + rec->parts[TLS];
	}
	rec->lport = m->lport;
	rec->pport = m->peer;
	__builtin_memcpy(rec->laddr, m->laddr, 16);
	__builtin_memcpy(rec->paddr, m->paddr, 16);
	commit(rec, number);
	return 1;
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
