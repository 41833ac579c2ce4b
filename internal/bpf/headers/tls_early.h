/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Early data of TLS 1.3 (RFC 8446, 2.3): application_data that comes before the serving end
 * has said anything. It is the first request, which waits for no handshake; what the serving
 * end says to the ClientHello looks like tickets. When that is in, the asking end says
 * EndOfEarlyData, unless it was refused and is said again, and Finished. Included by tls.h.
 */
#ifndef SLOWRAY_TLS_EARLY_H
#define SLOWRAY_TLS_EARLY_H

/* An EndOfEarlyData: header, content type, tag (RFC 8446, 4.5). */
#define TLS13_EARLY_END (4 + 1 + 16)

/* Cheap, for the paths of all requests: where it is not so, nothing below is called. */
static __always_inline int may_be_early(const struct conn *c) { return (c->tls_is & TLS_EARLY) == TLS_EARLY; }

static __always_inline int is_early(const struct conn *c) { return c->seq == 1 && may_be_early(c); }

/* … and the asking end has not ended the handshake yet, though the serving end has answered: the called one has
 * heard it, or the serving one has sent something. These and others below are not static, so that the verifier looks at them once. */
__noinline int early_is_open(struct conn *c, __u32 sent)
{
	return c && is_early(c) && c->tls_is & TLS_OFFERED && (c->side == CALLED ? c->phase == ANSWERING : c->phase != ASKED || sent);
}

static __always_inline int is_early_open(struct conn *c, __u32 sent) { return may_be_early(c) && early_is_open(c, sent); }

/* The served end has read; all: what has come. Says whether that was the end of the handshake, after all of the request. */
__noinline int is_early_end_read(struct conn *c, __u32 all)
{
	if (!c || !is_early(c))
		return 0;
	if (!c->all_read && !(!(c->tls_is & TLS_OFFERED) && c->read > c->last && all))
		return 0;
	if (!(c->tls_is & TLS_OFFERED))
		c->tls_is |= TLS_LOOKED;
	return 1;
}

/* Takes in the header of a record of the asking end after early data, as a little-endian number: 0 where it
 * belongs to a request, 1 where it is of the handshake, 2 where that is over with it. */
__noinline int tls_early_record(struct conn *c, __u64 head)
{
	__u32 length = HEAD_LENGTH(head);
	__u8 type = head;

	if (!c || !is_tls_head(head))
		return 0;
	if (type == TLS_CHANGE_CIPHER_SPEC)
		return 1;
	if (type != TLS_APPLICATION_DATA)
		return 0;
	if (length == TLS13_EARLY_END) {
		c->tls_is |= TLS_FULL;
		return 1;
	}
	return length == TLS13_FINISHED_256 || length == TLS13_FINISHED_384 ? 2 : 0;
}

/* Whether the serving end of TLS 1.3 has its part of the handshake, or session tickets, to
 * send, though the first request is in hand: it has sent nothing since the asking end's part,
 * or has just read the end of that. */
static __noinline int is_tls_next(struct conn *c, struct sock *sk)
{
	struct tcp_sock *tp = sk ? tcp_of(sk) : 0;
	int early;

	if (!c || !tp || !(c->tls_is & TLS_V13))
		return 0;
	early = is_early(c) && c->tls_is & TLS_LOOKED;
	if (early)
		c->tls_is &= ~TLS_LOOKED;
	return early || (tp->write_seq == c->mark && tp->write_seq == c->recover);
}

/* The asking end has ended the handshake. Where the serving end did not take the early data
 * there was no request yet, and the next one had to wait for the handshake. */
static __always_inline void tls_early_over(struct conn *c, struct tcp_sock *tp, __u64 when)
{
	c->tls_is &= ~TLS_OFFERED;
	if (c->tls_is & TLS_FULL)
		return;
	c->tls_is &= ~TLS_V12;
	c->tls_ns += span(c->first, when);
	c->recover = tp->snd_nxt;
	c->seq = 0;
	c->phase = IDLE;
}

/* The serving end: a segment came in. Returns 1 where it is but the end of the handshake. */
static __noinline int tls_early_segment(struct conn *c, struct sock *sk, struct sk_buff *skb, __u32 bytes)
{
	struct tcp_sock *tp = sk ? tcp_of(sk) : 0;
	__u32 header, at = 0;
	struct bpf_dynptr p;
	__u64 head = 0;
	int i, kind;

	if (!c || !tp || !skb || !with_payload || !bpf_ksym_exists(bpf_dynptr_from_skb) || bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &p))
		return 0;
	if (((struct tcp_skb_cb *)skb->cb)->seq != tp->rcv_nxt)
		return 0;
	header = skb->len - bytes;
	for (i = 0; i < TLS_RECORDS; i++) {
		if (at + TLS_HEADER > bytes || bpf_dynptr_read(&head, TLS_HEADER, (void *)&p, header + at, 0))
			break;
		kind = tls_early_record(c, head);
		if (!kind)
			break;
		at += TLS_HEADER + HEAD_LENGTH(head);
		if (kind == 2) {
			tls_early_over(c, tp, bpf_ktime_get_ns());
			break;
		}
	}
	return at >= bytes;
}

/* The asking end: bytes are on their way into the socket (from), or out already. Returns 1 where
 * they are but the end of the handshake. */
static __noinline int tls_early_sent(struct conn *c, struct sock *sk, void *from, __u64 count)
{
	struct tcp_sock *tp = sk ? tcp_of(sk) : 0;
	__u64 words[1] = {};
	__u32 at = 0;
	int i, kind;

	if (!c || !tp)
		return 0;
	for (i = 0; i < TLS_RECORDS; i++) {
		if (at + TLS_HEADER > count)
			break;
		words[0] = 0;
		if (from ? bpf_probe_read_user(words, TLS_HEADER, from + at) : sent_payload(tp, c->mark, at, words, sizeof(words)) < TLS_HEADER)
			break;
		kind = tls_early_record(c, words[0]);
		if (!kind)
			break;
		at += TLS_HEADER + HEAD_LENGTH(words[0]);
		if (kind == 2) {
			tls_early_over(c, tp, bpf_ktime_get_ns());
			break;
		}
	}
	return at && at >= count;
}

#endif
