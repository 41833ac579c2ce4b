/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The walk from frame to frame of HTTP/2, and what frames mean for the requests of
 * their connection. Who includes this says where the bytes are, packets or memory of
 * a program:
 *
 *   load(at, off, to, n)   reads n of at->bytes, from off on; not 0 = it cannot
 */
#ifndef SLOWRAY_HTTP2_WALK_H
#define SLOWRAY_HTTP2_WALK_H

/* Frames that are looked at in one segment, which has up to 64 kB, or call. After
 * more the place is lost until bytes begin with a frame. */
#define FRAMES 512

__u64 lost_streams; /* requests without a place: more than STREAMS at once */
__u64 lost_places; /* where it was no longer known where the next frame begins */

/* Bytes in which frames are looked for, of one direction of a connection. */
struct at {
	void *bytes; /* what load() reads */
	struct multiplexed *m;
	__u64 now;
	__u64 read; /* the process had them; 0 = not known */
	__u32 off; /* of the frame's header */
	__u32 end; /* of the bytes */
	__u32 seq_end; /* the number after the last one, see walk() */
	struct way *w;
	__u32 share; /* of requests that begin */
	__u32 asks; /* it goes from the caller to the server */
	__u32 late; /* it fills a gap: later bytes were seen before */
#if SEES_PACKETS
	__u32 out; /* a packet that this end sends: now is when a frame's first byte was written */
	__u32 frame; /* the number of that byte */
#endif
};

#if SEES_PACKETS
#include "http2_wire.h"
#endif

static __always_inline void read_status(struct at *at, struct stream *s, __u8 flags)
{
	__u32 from = at->off + FRAME_HEADER + (flags & PADDED ? 1 : 0) + (flags & WITH_PRIORITY ? 5 : 0);
	__u8 b[4] = {};

	if (load(at, from, b, 1))
		return;
	/* A change of the table's size may come first (RFC 7541, 6.3). */
	if (b[0] >> 5 == 1 && load(at, ++from, b, 1))
		return;
	/* All headers together may be three bytes. */
	if (!(b[0] & 0x80) && load(at, from, b, 4))
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
	if (load(at, off, b->bytes, len))
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
			if (load(at, off, &padding, 1))
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
	int gap; /* how the answer began may be in it */

	if (!at)
		return 0;
	/* Header blocks depend on those before (RFC 7541, 2.2): late ones are of no use. */
	if (with_labels && !at->late && (type == HEADERS || type == CONTINUATION || type == PUSH_PROMISE))
		see_block(at, len, type, flags, id);
#if SEES_PACKETS
	if (at->asks && (type == WINDOW_UPDATE || (type == SETTINGS && len))) {
		note_window(at->m, id, at->now);
		return 0;
	}
#endif
	if (type != DATA && type != HEADERS && type != RST_STREAM)
		return 0;
	if (at->asks) {
		s = stream_of(at->m, id, type == HEADERS);
#if SEES_PACKETS
		if (!s && type == HEADERS)
			s = room_for(at->m, id, at->now);
#endif
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
			if (id <= 3 && !at->m->opening)
				at->m->opening = id;
			s->first = at->now;
			s->share = at->share;
			if (at->late) /* its last frame may have come before */
				s->asked = at->now;
			__sync_fetch_and_add(&at->m->open, 1);
			__sync_fetch_and_add(&under_way, 1);
		}
#if SEES_PACKETS
		if (s->over)
			return 0;
		if (type == RST_STREAM)
			bring_up(at->m, s, at->now);
#endif
		if (type == RST_STREAM) { /* the caller wants it no more */
			if (at->m->taken != RESERVED)
				end_stream(at->m, s, RESET | (s->answer ? TRUNCATED : UNANSWERED), at->now);
			free_stream(at->m, s);
			return 0;
		}
#if SEES_PACKETS
		if (at->out && !at->late)
			note_frame_sent(at->m, s, at->frame, at->frame + FRAME_HEADER + len, at->now);
#endif
		if (type == DATA)
			s->bytes_asked += len;
		if (flags & END_STREAM) {
			s->asked = at->now;
			s->read = at->read;
#if SEES_PACKETS
			note_asked(at->m, s, at->frame + FRAME_HEADER + len);
#endif
		}
		return 0;
	}
	s = stream_of(at->m, id, 0);
	if (!s || !s->id)
		return 0;
#if SEES_PACKETS
	if (s->over)
		return 0;
#endif
	if (at->m->taken == RESERVED && (flags & END_STREAM || type == RST_STREAM)) { /* over before it is known where: request.bpf.c has it */
		free_stream(at->m, s);
		return 0;
	}
	gap = !at->late && at->m->ways[GAPS + WAY_ANSWERS].known;
#if SEES_PACKETS
	bring_up(at->m, s, at->now);
	if (at->out && !at->late)
		note_frame_sent(at->m, s, at->frame, at->frame + FRAME_HEADER + len, at->now);
	if (!s->answer)
		s->limited = at->m->limited;
	s->sent = at->now;
	s->window_us = 0;
#endif
	if (type == HEADERS) {
		if (!s->answer || s->http / 100 == 1) {
			read_status(at, s, flags);
			if (s->http / 100 != 1 && (s->http || !gap))
				s->answer = at->now;
			if (flags & END_STREAM && s->http == 200)
				s->trailers = 1; /* no body: gRPC's errors look so */
		} else {
			s->trailers = 1;
		}
	} else if (type == DATA) {
		s->bytes_answered += len;
	} else {
		__u32 code = 1;

		/* A server that answers before all was asked resets what is left; and one that has
		 * said all may do so in place of the end, without an error (RFC 9113, 7 and 8.1): node. */
		load(at, at->off + FRAME_HEADER, &code, sizeof(code));
		end_stream(at->m, s, !s->answer ? RESET | UNANSWERED : code ? RESET | TRUNCATED : 0, at->now);
		free_stream(at->m, s);
		return 0;
	}
	if (flags & END_STREAM && !s->answer && gap) {
		s->ended = 1;
	} else if (flags & END_STREAM || (s->ended && s->answer)) {
#if SEES_PACKETS
		if (at->out && note_over(at->m, s))
			return 0; /* its time ends when it is acknowledged */
#endif
		end_stream(at->m, s, 0, at->now);
		free_stream(at->m, s);
	}
	return 0;
}

/* Whether bytes begin with a frame, and, where that ends within them, go on with
 * another. */
static __noinline int begins_with_frame(struct at *at, __u32 must_ask)
{
	__u8 b[FRAME_HEADER] = {};
	__u32 next;

	if (!at || load(at, at->off, b, FRAME_HEADER) || !is_frame(b))
		return 0;
	if (must_ask && b[3] != HEADERS)
		return 0;
	next = at->off + FRAME_HEADER + length_of(b);
	if (must_ask && next > at->end)
		return 0;
	if (next + FRAME_HEADER > at->end)
		return 1;
	return !load(at, next, b, FRAME_HEADER) && is_frame(b);
}

/* How many bytes of the preface are here, from its begin on or from its second byte: nginx reads the
 * first byte of early data (TLS 1.3) alone. */
static __always_inline __u32 begins_with_preface(struct at *at)
{
	__u64 b[2] = {};

	if (load(at, at->off, b, 16))
		return 0;
	/* "PRI * HT" "TP/2.0\r\n" */
	if (b[0] == 0x5448202a20495250ULL && b[1] == 0x0a0d302e322f5054ULL)
		return PREFACE;
	/* "RI * HTT" "P/2.0\r\n\r" */
	return b[0] == 0x545448202a204952ULL && b[1] == 0x0d0a0d302e322f50ULL ? PREFACE - 1 : 0;
}

/* Bytes of a header that lies in two segments, or calls. */
static __noinline int gather(struct at *at, struct way *w)
{
	__u8 b;

	if (!at || !w)
		return 0;
#pragma unroll
	for (int i = 0; i < FRAME_HEADER; i++) {
		if (i < w->have || at->off >= at->end)
			continue;
		if (load(at, at->off, &b, 1))
			return 0;
		w->head[i] = b;
		w->have = i + 1;
		at->off++;
	}
	return 0;
}

/* A turn of the loop over frames; 1 ends it. */
static long next_frame(__u32 i, void *context)
{
	struct at *at = context;
	__u8 b[FRAME_HEADER];
	__u32 len;

	if (at->off + FRAME_HEADER > at->end || load(at, at->off, b, FRAME_HEADER))
		return 1;
	len = length_of(b);
	if (b[3] > CONTINUATION && len > USUAL)
		return 1; /* no frame: the place is wrong */
#if SEES_PACKETS
	place_frame(at, at->w->next);
#endif
	at->w->next += FRAME_HEADER + len;
	see_frame(at, len, b[3], b[4], id_of(b));
	at->off += FRAME_HEADER + len;
	return 0;
}

/* How long a gap may be filled: by then the other end has given up, or the packet was not
 * seen. */
#define GAP_LASTS (5 * NSEC_PER_SEC)

/* Frames were not seen, and will not be. Those of answers end streams: which, nobody knows.
 * Those of requests begin some, at least one. */
static __noinline int lose_frames(struct at *at)
{
	if (at && at->m)
		__sync_fetch_and_add(&lost_streams, at->asks ? 1 : drop_streams(at->m));
	return 0;
}

/* What ended while there was a gap began before it. */
static long end_waiting(__u32 i, void *context)
{
	struct at *at = context;
	struct stream *s = &at->m->streams[i & (STREAMS - 1)];

	if (s->id && s->ended) {
		end_stream(at->m, s, 0, at->now);
		free_stream(at->m, s);
	}
	return 0;
}

/* What bytes are to their way. */
enum { IN_ORDER, FILLS_GAP, SEEN_BEFORE };

/* Says what bytes from seq on are, and notes a gap before them. Those that fill one end where
 * it does, at the latest. */
static __noinline int place_bytes(struct at *at, __u32 seq)
{
	struct way *w, *gap;
	__u32 from;

	if (!at || !at->m)
		return SEEN_BEFORE;
	w = &at->m->ways[at->asks ? WAY_ASKS : WAY_ANSWERS];
	gap = &at->m->ways[at->asks ? GAPS + WAY_ASKS : GAPS + WAY_ANSWERS];
	if (gap->known && span(gap->since, at->now) > GAP_LASTS) {
		gap->known = 0;
		lose_frames(at);
	}
	if (w->known && before(w->next + w->have, seq)) {
		if (gap->known) /* a second one */
			lose_frames(at);
		gap->known = !at->m->owner; /* of clear bytes none come later */
		gap->next = w->next;
		gap->have = w->have;
		__builtin_memcpy(gap->head, w->head, sizeof(gap->head));
		gap->seen = seq;
		gap->since = at->now;
		w->known = 0;
		w->blocks++;
		return IN_ORDER;
	}
	from = gap->next + gap->have;
	if (gap->known && !before(from, seq) && before(from, at->seq_end) && before(seq, gap->seen)) {
		if (before(gap->seen, at->seq_end))
			at->end -= at->seq_end - gap->seen;
		return FILLS_GAP;
	}
	return !w->known && gap->known && before(seq, w->seen) ? SEEN_BEFORE : IN_ORDER;
}

/* A gap is filled: where its way goes on is known again, unless more has passed. */
static __noinline int close_gap(struct at *at)
{
	struct way *w, *gap;

	if (!at || !at->m)
		return 0;
	w = &at->m->ways[at->asks ? WAY_ASKS : WAY_ANSWERS];
	gap = &at->m->ways[at->asks ? GAPS + WAY_ASKS : GAPS + WAY_ANSWERS];
	if (before(gap->next + gap->have, gap->seen))
		return 0;
	gap->known = 0;
	if (!at->asks)
		bpf_loop(STREAMS, end_waiting, at, 0);
	if (w->known)
		return 0;
	if (before(gap->next + gap->have, w->seen))
		return lose_frames(at);
	w->next = gap->next;
	w->have = gap->have;
	__builtin_memcpy(w->head, gap->head, sizeof(w->head));
	w->known = 1;
	return 0;
}

/* Goes from frame to frame through bytes, from off to end; seq is the number of the
 * first one in their direction: TCP's, or as many as were seen before. */
static __always_inline void walk(struct at *at, __u32 seq)
{
	__u32 skip, len, what, which = at->asks ? WAY_ASKS : WAY_ANSWERS;
	struct way *w;

	at->seq_end = seq + (at->end - at->off);
	what = place_bytes(at, seq);
	if (what == SEEN_BEFORE)
		return;
	at->late = what == FILLS_GAP;
	if (at->late)
		which += GAPS;
	w = &at->m->ways[which & (WAYS - 1)];
	at->w = w;
	if (!at->late && (!w->known || before(w->seen, at->seq_end)))
		w->seen = at->seq_end;
	if (!w->known) {
		w->have = 0;
		w->next = seq;
		len = at->asks ? begins_with_preface(at) : 0;
		if (len) {
			w->next += len;
			at->m->ways[WAY_ASKS].blocks = at->m->ways[WAY_ANSWERS].blocks = 0;
		} else if (!begins_with_frame(at, 0)) {
			return;
		}
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
			goto filled;
		w->have = 0;
		len = length_of(w->head);
#if SEES_PACKETS
		place_frame(at, w->next);
#endif
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
		return;
	}
filled:
	if (at->late)
		close_gap(at);
}

#endif
