/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Connections under TLS, as the process sees them that encrypts: it has an object for
 * each (OpenSSL's SSL, Go's tls.Conn: the owner), through which clear bytes pass. What
 * has to be known of an owner is its socket, whose connection request.bpf.c follows and
 * which alone has times of the network.
 *
 * Programs at functions of the process have no socket at hand, and those at sockets see
 * no owner. What the one kind finds out the other does: whoever knows a socket's owner
 * writes it into owners, and at the next read of that socket bind() takes a place for
 * its streams. From then on saw_clear() walks through the bytes of that owner. Until
 * then nothing is booked here, and request.bpf.c has the connection.
 */
#ifndef SLOWRAY_CLEAR_H
#define SLOWRAY_CLEAR_H

struct owner {
	__u64 object; /* its address */
	__u32 tgid;
	__u32 pad;
};

/* What is known of an owner. */
struct session {
	__u64 socket; /* its socket's cookie, as far as is known: no other one ever has it */
	__u32 place; /* of its streams, plus 1; 0 = none yet */
	__u32 in, out; /* clear bytes that passed since */
	__u32 epoch; /* Go: in which its socket was looked for */
	__u8 http2; /* it speaks HTTP/2 */
	__u8 direct; /* it reads the socket itself */
	__u8 agreed; /* how often bytes of socket were followed by clear bytes of this owner */
	__u8 framed; /* what speaks for HTTP/2 where no agreement on it was seen: enum framed */
};

/* The bytes that went the one way last began with a frame, and before them those that went the
 * other way; one of the two was a request, or the preface. What passes a connection of HTTP/1 may
 * look like a frame, by chance or because somebody wants it to; both ways do not. */
enum framed { FRAMED_IN = 1, FRAMED_OUT = 2, FRAMED_ASKS = 4, FRAMED = 7 };

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct owner);
	__type(value, struct session);
} sessions SEC(".maps");

/* Which owner a socket has, by the socket's cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct owner);
} owners SEC(".maps");

__u64 contradictions; /* owners whose socket turned out to be another one: forgotten */

/* Functions are watched a part of the time only where that costs much: what begins in it
 * stands for 2^clear_share. At its end nothing begins any more, but what is under way may
 * end. */
__u8 clear_share;
__u8 ending;

/* Files with functions that are watched, and what of HTTP/2 each has seen. */
#define LIBRARIES 64
__u64 http2_by[LIBRARIES];

/* It changes when a file's functions begin to be watched, and are watched no more: calls that
 * are under way are seen by half, and what passes meanwhile nobody sees. */
__u32 epochs[LIBRARIES];

static __always_inline __u32 epoch_of(__u8 library) { return epochs[library & (LIBRARIES - 1)]; }

/* The streams of an owner, or 0. Its place may be another's by now. */
static __always_inline struct multiplexed *place_as(const struct owner *o, const struct session *s, __u32 as)
{
	struct multiplexed *m = at_place(&s->place);

	return m && m->taken == as && m->owner == o->object && m->pid == o->tgid ? m : 0;
}

static __always_inline struct multiplexed *streams_of(const struct owner *o, const struct session *s)
{
	return place_as(o, s, TAKEN_PLACE);
}

/* A connection begins before its socket is known: who calls asks before it reads anything, and
 * who serves has often read the first requests with the preface. What is asked meanwhile is
 * noted in a place without a connection, and no header block is missed. */
static __always_inline struct multiplexed *reserve_place(const struct owner *o, struct session *s, __u8 side)
{
	struct multiplexed *m = take_place(&s->place, RESERVED);

	if (!m)
		return 0;
	m->owner = o->object;
	m->pid = o->tgid;
	m->side = side;
	m->epoch = 0; /* the first bytes tell */
	m->hash = 0;
	m->arrived = m->reading = 0;
	s->in = s->out = 0;
	if (s->direct) /* of the connection before, see clear_received() */
		s->socket = 0;
	return m;
}

/* What was believed of an owner's socket is wrong. The next read of that socket gives
 * the connection back, see released(). */
static __always_inline void forget(const struct owner *o, struct session *s)
{
	struct multiplexed *m = streams_of(o, s);

	if (m)
		m->owner = 0;
	s->place = 0;
	s->agreed = 0;
	s->socket = 0;
	__sync_fetch_and_add(&contradictions, 1);
}

/* Clear bytes that pass an owner. */
struct clear {
	void *bytes; /* in memory of the process */
	__u64 when; /* in: they are there; out: before they were encrypted */
	__u32 count;
	__u8 in; /* the process reads them */
	__u8 library;
};

/* A call of its own: saw_clear() has frames below it, and Linux 6.1 allows all together 512 bytes. */
static __noinline struct session *session_of(struct owner *o)
{
	struct session new = {};

	if (!o)
		return 0;
	bpf_map_update_elem(&sessions, o, &new, BPF_NOEXIST);
	return bpf_map_lookup_elem(&sessions, o);
}

/* Whether bytes that pass make it HTTP/2. */
static __noinline int weigh(struct session *s, struct at *at, int preface, int in)
{
	if (!s || !at)
		return 0;
	if (!preface && !begins_with_frame(at, 0)) {
		s->framed = 0;
		return 0;
	}
	s->framed |= in ? FRAMED_IN : FRAMED_OUT;
	if (preface || begins_with_frame(at, 1))
		s->framed |= FRAMED_ASKS;
	return s->framed == FRAMED;
}

/* Returns 1 where a connection begins and its socket is not known yet. */
static __noinline int saw_clear(struct owner *o, struct clear *b)
{
	struct session *s;
	struct at at = {};
	__u32 passed;
	int preface;

	if (!o || !b || !b->count)
		return 0;
	at.bytes = b->bytes;
	at.end = b->count;
	at.now = b->when;
	s = bpf_map_lookup_elem(&sessions, o);
	if (!s)
		s = session_of(o);
	if (!s)
		return 0;
	preface = begins_with_preface(&at);
	if (!s->http2)
		s->http2 = weigh(s, &at, preface, b->in);
	if (!s->http2 && !preface && !place_as(o, s, RESERVED))
		return 0;
	__sync_fetch_and_add(&http2_by[b->library & (LIBRARIES - 1)], 1);
	at.m = streams_of(o, s);
	preface = preface && !at.m;
	if (!at.m)
		at.m = preface ? reserve_place(o, s, b->in ? SERVED : CALLED) : place_as(o, s, RESERVED);
	if (!at.m)
		return 0;
	if (at.m->epoch != epoch_of(b->library)) {
		at.m->epoch = epoch_of(b->library);
		lose_ways(at.m);
		drop_streams(at.m);
	}
	passed = b->in ? s->in : s->out;
	if (b->in)
		s->in += b->count;
	else
		s->out += b->count;
	at.asks = (at.m->side == SERVED) == b->in;
	if (b->in && at.m->reading) {
		/* An answer is there before its caller reads it. Of bytes that are read at once it is the
		 * last one that is known to have come after what was asked. */
		at.now = smaller(at.asks ? at.m->reading : at.m->arrived, b->when);
		if (at.asks)
			at.read = b->when;
	}
	at.share = at.m->hash ? share_of_hash(at.m->hash) : follow_share;
	if (ending)
		at.share = UNCOUNTED;
	else if (at.share != UNCOUNTED)
		at.share += clear_share;
	if (at.share == UNCOUNTED && !at.m->open)
		return preface; /* where the frames are is found out anew */
	at.m->tid = bpf_get_current_pid_tgid();
	walk(&at, passed);
	return preface;
}

#define NO_PLACE (~0U) /* there was none left */

/* Tells the streams of a socket's connection apart, from now on, by what its owner sees. */
static __noinline int bind(struct owner *o, struct sock *sk, struct tcp_sock *tp, struct conn *c)
{
	struct multiplexed *m;
	struct session *s;
	__u32 *place;

	if (!o || !sk || !tp || !c)
		return 0;
	s = bpf_map_lookup_elem(&sessions, o);
	if (!s || !s->http2)
		return 0;
	place = bpf_sk_storage_get(&place_of, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!place)
		return 0;
	m = at_place(place);
	if (!m) {
		if (*place || c->proto > PROTO_OTHER)
			return 0;
		m = place_as(o, s, RESERVED);
		if (m && c->side == m->side && __sync_val_compare_and_swap(&m->taken, RESERVED, TAKEN_PLACE) == RESERVED) {
			describe(m, c, sk, tp);
			m->pid = o->tgid;
			s->socket = bpf_get_socket_cookie(sk);
			*place = s->place;
			return 0;
		}
		m = tell_apart(c, sk, tp, place);
	}
	if (!m) {
		*place = NO_PLACE;
		return 0;
	}
	if (c->side == SERVED && c->phase == ASKED)
		m->reading = c->first; /* of what is read just now */
	lose_ways(m);
	m->epoch = 0; /* the first bytes tell */
	m->owner = o->object;
	m->pid = o->tgid;
	s->socket = bpf_get_socket_cookie(sk);
	s->in = s->out = 0;
	s->place = *place;
	return 0;
}

/* Whether nobody sees the clear bytes of a connection any more: request.bpf.c has it again. */
static __always_inline int released(struct sock *sk, struct conn *c, struct multiplexed *m)
{
	if (m->owner)
		return 0;
	c->proto = PROTO_SEALED;
	c->share = UNCOUNTED; /* what is under way now */
	free_place(m);
	bpf_sk_storage_delete(&place_of, sk);
	return 1;
}

#endif
