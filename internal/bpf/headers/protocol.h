/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The little that slowray looks at of what is said: which protocol a
 * connection speaks, from the first bytes of a request, and whether an answer
 * is an error, from its first bytes. Nothing of it is kept but the verdict,
 * unless labels were asked for.
 *
 * HTTP/1: RFC 9112, status line. Redis: RESP, simple errors begin with "-".
 * MySQL: ERR packet, first payload byte 0xff. PostgreSQL: message type 'E'.
 */
#ifndef SLOWRAY_PROTOCOL_H
#define SLOWRAY_PROTOCOL_H

#define PEEK 16

#define HTTP_SWITCHING 101 /* of protocols: WebSocket (RFC 9110, 15.2.2) */

static __always_inline int is_digit(__u8 b) { return b >= '0' && b <= '9'; }

static __always_inline int is_method(const __u8 *b)
{
	__u32 w = *(const __u32 *)b;

	/* little endian */
	return w == 0x20544547 /* "GET " */ || w == 0x54534f50 /* POST */ || w == 0x20545550 /* "PUT " */ ||
	       w == 0x44414548 /* HEAD */ || w == 0x454c4544 /* DELE */ || w == 0x4954504f /* OPTI */ ||
	       w == 0x43544150 /* PATC */ || w == 0x4e4e4f43 /* CONN */;
}

/* What a request's first bytes look like; bytes is how many came. */
static __always_inline __u8 protocol_of(const __u8 *b, __u32 bytes)
{
	__u32 little = *(const __u32 *)b;

	if (is_method(b))
		return PROTO_HTTP1;
	if ((little & 0xffffff) == 0x030317) /* application_data, version: RFC 8446, 5.1 */
		return PROTO_SEALED;
	if (b[0] == '*' && is_digit(b[1]) && (b[2] == '\r' || is_digit(b[2])))
		return PROTO_REDIS;
	/* a command packet: three bytes of length, sequence 0, the command */
	if (little == bytes - 4 && b[4] >= 1 && b[4] <= 0x1f)
		return PROTO_MYSQL;
	/* type byte, then the length of the rest, big endian */
	if ((b[0] == 'Q' || b[0] == 'P' || b[0] == 'B') && b[1] == 0 && (__u32)(b[2] << 16 | b[3] << 8 | b[4]) <= bytes - 1)
		return PROTO_POSTGRES;
	return PROTO_OTHER;
}

__u8 http2_seen; /* user space then attaches http2.bpf.c */

/* Whether a request's first bytes are those of HTTP/2: the preface, or the header
 * of a HEADERS frame with an odd number (RFC 9113, 3.4 and 6.2). */
static __always_inline void notice_http2(const __u8 *b)
{
	if (*(const __u32 *)b == 0x20495250 /* "PRI " */ ||
	    (!b[0] && b[3] == 1 && !(b[4] & ~0x2d) && !(b[5] & 0x80) && b[8] & 1))
		http2_seen = 1;
}

static __always_inline void judge_answer(struct conn *c, const __u8 *b)
{
	switch (c->proto) {
	case PROTO_HTTP1:
		if (b[0] != 'H' || b[4] != '/' || b[8] != ' ' || !is_digit(b[9]))
			return;
		c->http = (b[9] - '0') * 100 + (b[10] - '0') * 10 + (b[11] - '0');
		if (c->http == HTTP_SWITCHING)
			c->proto = PROTO_OTHER; /* WebSocket or the like from here on */
		if (c->http >= 200)
			c->status = c->http >= 400 ? STATUS_ERROR : STATUS_OK;
		return;
	case PROTO_REDIS:
		c->status = b[0] == '-' ? STATUS_ERROR : STATUS_OK;
		return;
	case PROTO_MYSQL:
		c->status = b[4] == 0xff ? STATUS_ERROR : STATUS_OK;
		return;
	case PROTO_POSTGRES:
		c->status = b[0] == 'E' ? STATUS_ERROR : STATUS_OK;
	}
}

/* Where the bytes begin that a program hands to a socket; 0 when not in memory
 * of its own. */
static __always_inline void *handed_over(struct msghdr *msg)
{
	void *from = 0;

	if (msg->msg_iter.iter_type == ITER_UBUF)
		from = BPF_CORE_READ(msg, msg_iter.ubuf);
	else if (msg->msg_iter.iter_type == ITER_IOVEC)
		from = BPF_CORE_READ(msg, msg_iter.__iov, iov_base);
	return from ? from + msg->msg_iter.iov_offset : 0;
}

/* How many bytes lie there, of those that it hands over. */
static __always_inline __u64 handed_over_there(struct msghdr *msg)
{
	__u64 all = msg->msg_iter.count, first;

	if (msg->msg_iter.iter_type != ITER_IOVEC)
		return all;
	first = BPF_CORE_READ(msg, msg_iter.__iov, iov_len) - msg->msg_iter.iov_offset;
	return first < all ? first : all;
}

static __always_inline int peek(void *from, __u8 *b)
{
	return from && (!bpf_probe_read_user(b, PEEK, from) || !bpf_probe_read_user(b, 5, from));
}

/* An answer, on its way into the socket. */
static __noinline int look_at_answer(struct conn *c, struct msghdr *msg)
{
	__u8 b[PEEK] = {};

	if (!c || !msg)
		return 0;
	c->answered = 1;
	if (peek(handed_over(msg), b))
		judge_answer(c, b);
	return 0;
}

/* A request, on its way into the socket. */
static __noinline int look_at_sent_request(struct conn *c, struct sock *sk, struct msghdr *msg)
{
	struct tcp_sock *tp;
	__u8 b[PEEK] = {};
	void *from;

	if (!c || !sk || !msg)
		return 0;
	from = handed_over(msg);
	if ((c->proto <= PROTO_OTHER || (c->proto == PROTO_HTTP1 && c->seq < 4 && c->phase != ASKED)) && peek(from, b)) {
		if (is_client_hello(b)) {
			if (c->proto == PROTO_HTTP1) /* CONNECT: a request */
				tls_close(c, sk);
			c->proto = PROTO_TLS;
		} else if (c->proto <= PROTO_OTHER) {
			c->proto = protocol_of(b, msg->msg_iter.count);
			if (c->proto == PROTO_OTHER)
				notice_http2(b);
		}
	}
	if (!with_labels || c->phase == ASKED)
		return 0;
	tp = tcp_of(sk);
	if (tp)
		keep_next_head(c, sk, tp, from, handed_over_there(msg));
	return 0;
}

static __noinline int look_at_request(struct conn *c, struct sock *sk, struct sk_buff *skb, __u32 bytes)
{
	__u64 words[PEEK / 8] = {};
	__u8 *b = (__u8 *)words;
	struct tcp_sock *tp;
	struct head *h;
	__u32 have, size;
	int shows;

	if (!c || !sk || !skb)
		return 0;
	/* A connection that is kept may be the only one for long. */
	shows = shows_pages(skb, bytes);
	if (c->proto <= PROTO_OTHER || shows) {
		have = payload(skb, bytes, b, PEEK);
		if (have >= 5 && c->proto <= PROTO_OTHER) /* early data comes behind a ClientHello */
			c->proto = c->tls == TLS_READY ? PROTO_SEALED : protocol_of(b, bytes);
		if (have == PEEK && c->proto == PROTO_OTHER)
			notice_http2(b);
		if (have == PEEK && shows)
			find_page_constant(skb, bytes, words);
	}
	size = head_size(c->proto);
	tp = tcp_of(sk);
	if (!with_labels || !size || !tp)
		return 0;
	/* Only what the request begins with, and that has come for the first time. */
	if (tp->bytes_received != c->in0 || ((struct tcp_skb_cb *)skb->cb)->seq != tp->rcv_nxt)
		return 0;
	h = head_of(sk);
	if (h) {
		h->len = payload(skb, bytes, h->text, size);
		h->of = c->seq;
	}
	return 0;
}

/* An answer that waits to be acknowledged. */
static __always_inline void look_at_sent_answer(struct conn *c, struct tcp_sock *tp)
{
	__u64 words[PEEK / 8] = {};

	if (c->answered || c->proto < PROTO_HTTP1 || !page_constant)
		return;
	c->answered = 1;
	if (sent_payload(tp, c->mark, 0, words, PEEK) >= 5)
		judge_answer(c, (__u8 *)words);
}

/* A call that waits to be acknowledged, when it was not seen on its way into the
 * socket. */
static __always_inline void look_at_call(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 seq)
{
	__u64 words[PEEK / 8] = {};
	struct head *h;
	__u32 have, size;

	if (!page_constant || (!with_labels && (c->proto > PROTO_HTTP1 || c->seq > 4)))
		return;
	have = sent_payload(tp, seq, 0, words, PEEK);
	if (have < 5)
		return;
	if (c->proto <= PROTO_HTTP1 && have > TLS_HEADER && is_client_hello((__u8 *)words))
		c->proto = PROTO_TLS;
	else if (c->proto <= PROTO_OTHER)
		c->proto = protocol_of((__u8 *)words, tp->snd_nxt - seq);
	size = head_size(c->proto);
	if (!with_labels || !size)
		return;
	h = head_of(sk);
	if (h) {
		h->len = sent_copy(tp, seq, h->text, size);
		h->of = c->seq;
	}
}

static __noinline int look_at_answer_segment(struct conn *c, struct sk_buff *skb, __u32 bytes)
{
	__u8 b[PEEK] = {};

	if (!c || !skb)
		return 0;
	c->answered = 1;
	if (payload(skb, bytes, b, PEEK) >= 5)
		judge_answer(c, b);
	return 0;
}

#endif
