/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Handshakes of TLS, which are no requests: their flights are recognized by the
 * headers of their records, which are in the clear (RFC 8446, 5.1; RFC 5246,
 * 6.2.1). The asking end's part is over with its Finished:
 *
 *   TLS 1.2   the first record of type handshake after its change_cipher_spec
 *   TLS 1.3   a record of type application_data of the length of a Finished: what
 *             it says before that (certificates) has other lengths. Who puts all of it into one
 *             record (BoringSSL, rustls) is done where the other end speaks again:
 *             a request that goes out before that is not seen
 *
 * A server whose kernel waits for the first bytes before it tells of a connection
 * (TCP_DEFER_ACCEPT) has its ClientHello unseen: it begins where the connection does. A
 * tunnel through a proxy begins after CONNECT (RFC 9110, 9.3.6), which is a request.
 *
 * Then the serving end may send session tickets, which look like an answer to the
 * first request; what follows them after a pause is the answer.
 */
#ifndef SLOWRAY_TLS_H
#define SLOWRAY_TLS_H

#define TLS_CHANGE_CIPHER_SPEC 20
#define TLS_HANDSHAKE 22
#define TLS_APPLICATION_DATA 23
#define TLS_CLIENT_HELLO 1
#define TLS_SERVER_HELLO 2
#define TLS_CERTIFICATE 11
#define TLS_CLIENT_KEY_EXCHANGE 16
#define TLS_PRE_SHARED_KEY 41

#define TLS_HEADER 5

/* A Finished of TLS 1.3: header and hash (SHA-256 or SHA-384), content type, tag. */
#define TLS13_FINISHED_256 (4 + 32 + 1 + 16)
#define TLS13_FINISHED_384 (4 + 48 + 1 + 16)

/* A Finished of TLS 1.2 is no longer, with whatever cipher; a second ClientHello
 * (HelloRetryRequest) is. */
#define TLS12_FINISHED 96

/* Session tickets, as many as are usual. */
#define TLS_TICKETS 1400

/* An alert is two bytes, alone in its record (RFC 8446, 6): of TLS 1.3 with its
 * content type and tag, of TLS 1.2 with whatever its cipher adds. */
#define TLS_ALERT 21
#define TLS13_ALERT (2 + 1 + 16)
#define TLS12_ALERT 80

/* Records that are looked at in one segment or call. */
#define TLS_RECORDS 5

/* The same of a header as a little-endian number, and the length of its record. */
static __always_inline int is_tls_head(__u64 head)
{
	__u8 type = head;

	return type >= TLS_CHANGE_CIPHER_SPEC && type <= TLS_APPLICATION_DATA && (__u8)(head >> 8) == 3 && (__u8)(head >> 16) <= 4;
}

#define HEAD_LENGTH(head) ((__u32)((head) >> 24 & 0xff) << 8 | (__u32)((head) >> 32 & 0xff))

static __always_inline int is_tls(const __u8 *b) { return b[0] >= TLS_CHANGE_CIPHER_SPEC && b[0] <= TLS_APPLICATION_DATA && b[1] == 3 && b[2] <= 4; }

static __always_inline int is_client_hello(const __u8 *b)
{
	return b[0] == TLS_HANDSHAKE && b[1] == 3 && b[2] <= 4 && b[TLS_HEADER] == TLS_CLIENT_HELLO;
}

#include "tls_session.h"
#include "tls_early.h"

/* A connection begins a handshake; what was said before it (STARTTLS) is no request. */
static __always_inline void tls_begin(struct conn *c, struct tcp_sock *tp, __u32 seq, __u64 now)
{
	if (c->proto == PROTO_HTTP1) /* CONNECT was its first request */
		c->accept_us = 0;
	c->proto = PROTO_TLS;
	c->tls = TLS_HELLO;
	c->tls_is = 0;
	c->phase = IDLE;
	c->seq = 0;
	c->status = STATUS_UNKNOWN;
	c->flags = 0;
	c->first = c->last = now;
	c->answer = 0;
	c->send_wait = c->stall = c->retrans_ns = 0;
	c->requests = 0;
	c->in0 = tp->bytes_received;
	c->bytes_out = seq; /* meanwhile: the sequence number at which the next record begins */
	c->recover = tp->snd_nxt;
}

/*
 * Who is waited for meanwhile: the serving end (stall), the asking end (send_wait), or
 * the way there and back (retrans_ns), which is seen where one waits for the other. last is
 * when the asking end spoke, answer when the serving end did since.
 */
static __always_inline void tls_asks(struct conn *c, struct tcp_sock *tp, __u64 when)
{
	__u64 wait = span(c->answer ? c->answer : c->last, when);

	if (c->answer && c->side == SERVED)
		c->retrans_ns += take(&wait, min_rtt_of(tp));
	c->send_wait += wait;
	c->last = later(c->last, when);
	c->answer = 0;
	c->recover = tp->snd_nxt;
}

static __always_inline void tls_answers(struct conn *c, struct tcp_sock *tp, __u64 when)
{
	__u64 wait = span(c->answer ? c->answer : c->last, when);

	if (c->side == SERVED && c->answer)
		return; /* the rest of the flight is on its way */
	if (c->side == CALLED && !c->answer)
		c->retrans_ns += take(&wait, min_rtt_of(tp));
	c->stall += wait;
	c->answer = when;
}

/* Takes in the header of a record of the asking end, and the byte after it, as a little-endian number; says whether
 * its part is over: 1 after this record, 2 before it. silent: the serving end has said nothing. requests counts
 * meanwhile what is none. Not static, so that the verifier looks at it once. */
__noinline int tls_record(struct conn *c, __u64 head, __u32 silent)
{
	__u32 length = HEAD_LENGTH(head);
	__u8 type = head;

	if (!c || !is_tls_head(head))
		return 2;
	if (type == TLS_CHANGE_CIPHER_SPEC) {
		c->tls = TLS_CIPHER;
	} else if (type == TLS_HANDSHAKE && c->tls == TLS_CIPHER && length <= TLS12_FINISHED) {
		/* Who has sent its key before has the other end's Finished to come. */
		c->tls_is |= TLS_V12 | (c->tls_is & TLS_FULL ? TLS_UNTIL : TLS_RESUMED);
		return 1;
	} else if (type == TLS_HANDSHAKE && c->tls == TLS_HELLO && (__u8)(head >> 8 * TLS_HEADER) != TLS_CLIENT_HELLO) {
		c->tls_is |= TLS_FULL;
	} else if (type == TLS_APPLICATION_DATA) {
		c->tls_is |= TLS_V13;
		if (silent && !c->answer && !c->stall && !c->retrans_ns) {
			c->tls_is |= TLS_RESUMED | TLS_OFFERED;
			return 2;
		}
		c->tls = TLS_FLIGHT;
		if (length == TLS13_FINISHED_256 || length == TLS13_FINISHED_384)
			return 1;
		if (++c->requests >= TLS_RECORDS)
			return 2; /* an unusual cipher */
	}
	return 0;
}

/* The handshake is over. Its part of the ledger begins once the connection was accepted:
 * what passed before is accept_wait. */
static __noinline int tls_over(struct conn *c, struct sock *sk, __u64 when)
{
	struct tcp_sock *tp = sk ? tcp_of(sk) : 0;
	__u64 from, established;

	if (!c || !tp)
		return 0;
	established = c->opened + c->connect_us * NSEC_PER_USEC;
	from = c->first;
	if (c->side == SERVED && c->accept_us)
		from = later(from, c->opened + (c->accept_us - 1) * NSEC_PER_USEC);
	c->tls_ns = later(span(from, when), 1);
	if (c->tls_is & TLS_V13 && c->tls_is & TLS_LOOKED)
		c->tls_is |= c->tls_is & TLS_PSK ? TLS_RESUMED : TLS_FULL;
	c->tls_is &= ~TLS_UNTIL;
	c->status = STATUS_OK;
	report(c, sk, tp, RECORD_TLS);
	c->status = STATUS_UNKNOWN;
	if (c->side == CALLED)
		c->established = established;
	return 0;
}

/* Whether a handshake may begin: in HTTP/1 only after an answer, that to CONNECT. */
static __always_inline int may_begin_tls(const struct conn *c, const struct tcp_sock *tp)
{
	return c->proto <= PROTO_OTHER || (c->proto == PROTO_HTTP1 && (c->phase != ASKED || tp->snd_nxt != c->mark));
}

/* Whether these are the first bytes that a server sees of a handshake whose ClientHello it
 * did not: change_cipher_spec, Certificate or ClientKeyExchange (RFC 5246, 7.4). */
static __always_inline int is_tls_later(const __u8 *b)
{
	if (!is_tls(b))
		return 0;
	return (b[0] == TLS_CHANGE_CIPHER_SPEC && b[3] == 0 && b[4] == 1 && b[TLS_HEADER] == 1) ||
	       (b[0] == TLS_HANDSHAKE && (b[TLS_HEADER] == TLS_CERTIFICATE || b[TLS_HEADER] == TLS_CLIENT_KEY_EXCHANGE));
}

/* What the asking end says next is a request. */
static __always_inline void tls_ready(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 mark, __u64 when)
{
	tls_asks(c, tp, when);
	c->proto = PROTO_OTHER;
	c->tls = TLS_READY;
	c->bytes_out = 0;
	c->requests = 0;
	c->mark = mark;
	c->done = c->read = 0;
	if (!(c->tls_is & TLS_UNTIL))
		tls_over(c, sk, when);
	if ((c->tls_is & (TLS_V13 | TLS_RESUMED | TLS_LOOKED)) == (TLS_V13 | TLS_RESUMED)) {
		c->tls_is |= TLS_EARLY;
		c->proto = PROTO_SEALED; /* nobody looks at how it begins */
	}
}

/* The serving end's Finished is out (in), or can be no more: the asking end says more. */
static __noinline int tls_finished(struct conn *c, struct sock *sk, __u32 bytes)
{
	struct tcp_sock *tp = sk ? tcp_of(sk) : 0;
	__u64 now = bpf_ktime_get_ns(), when;

	if (!c || !tp)
		return 0;
	if (c->side == SERVED && !bytes && !after(tp->snd_nxt, c->recover))
		return 0;
	if (c->side == CALLED && !bytes)
		return 0;
	when = c->side == SERVED && after(tp->snd_nxt, c->recover) ? smaller(later(tp->first_tx_mstamp * NSEC_PER_USEC, c->last), now) : now;
	tls_answers(c, tp, when);
	tls_over(c, sk, when);
	return 0;
}

/* Whether what went out so far in answer to the first request may be no more than
 * session tickets. */
static __always_inline int tls_tickets(const struct conn *c, __u64 bytes)
{
	return c->tls == TLS_READY && c->seq == 1 && bytes <= TLS_TICKETS;
}

/* Whether all that is said, bytes long and with this header, is an alert. */
static __always_inline int is_tls_alert(const __u8 *b, __u32 bytes)
{
	__u32 length = b[3] << 8 | b[4];

	return is_tls(b) && bytes == TLS_HEADER + length &&
	       ((b[0] == TLS_ALERT && length <= TLS12_ALERT) || (b[0] == TLS_APPLICATION_DATA && length == TLS13_ALERT));
}

static __noinline int is_tls_alert_segment(struct sk_buff *skb, __u32 bytes)
{
	__u8 b[8] = {};

	if (!skb || bytes <= TLS_HEADER || bytes > TLS_HEADER + TLS12_ALERT)
		return 0;
	return payload(skb, bytes, b, sizeof(b)) == sizeof(b) && is_tls_alert(b, bytes);
}

static __noinline int is_tls_alert_sent(struct tcp_sock *tp, __u32 from)
{
	__u32 bytes = tp ? tp->snd_nxt - from : 0;
	__u64 words[1] = {};

	return bytes > TLS_HEADER && bytes <= TLS_HEADER + TLS12_ALERT &&
	       sent_payload(tp, from, 0, words, sizeof(words)) >= TLS_HEADER && is_tls_alert((__u8 *)words, bytes);
}

/* The asking end says an alert, nearly always that it closes: that is no request, and
 * what the other end says to it belongs to none. */
static __noinline int tls_close(struct conn *c, struct sock *sk)
{
	struct tcp_sock *tp = sk ? tcp_of(sk) : 0;
	__u32 over = c ? (c->side == SERVED ? DONE : ANSWERING) : IDLE;

	if (tp && over && c->phase == over && __sync_val_compare_and_swap(&c->phase, over, IDLE) == over)
		finish(c, sk, tp);
	return 0;
}

/* Who goes on has the answer, also where this segment is the first that acknowledges it. */
static __always_inline void answered_by_now(struct conn *c, struct tcp_sock *tp, __u64 now)
{
	if (c->phase == ASKED)
		c->answer = smaller(later(tp->first_tx_mstamp * NSEC_PER_USEC, c->last), now);
	else if (c->phase != ANSWERING)
		return;
	c->done = now;
	c->bytes_out = tp->bytes_acked + (tp->snd_nxt - tp->snd_una) - c->out0;
	c->phase = DONE;
}

/* The serving end: a segment came in. Returns 1 while it is nothing but handshake. */
static __noinline int tls_segment(struct conn *c, struct sock *sk, struct sk_buff *skb, __u32 bytes)
{
	__u32 seq = ((struct tcp_skb_cb *)skb->cb)->seq, header = skb->len - bytes, at;
	struct tcp_sock *tp = sk ? tcp_of(sk) : 0;
	__u64 now = bpf_ktime_get_ns(), said;
	struct bpf_dynptr p;
	__u64 head = 0;
	__u8 *b = (__u8 *)&head;
	int i, over;

	if (!c || !tp || !with_payload || !bpf_ksym_exists(bpf_dynptr_from_skb))
		return 0;
	if (c->tls == TLS_FLIGHT && after(tp->snd_nxt, c->recover)) {
		tls_ready(c, sk, tp, tp->write_seq, c->last);
		return 0;
	}
	if (c->proto == PROTO_TLS && after(tp->snd_nxt, c->recover)) {
		tls_look(c, tp, 0, c->recover);
		tls_answers(c, tp, smaller(later(tp->first_tx_mstamp * NSEC_PER_USEC, c->last), now));
	}
	if (!bytes)
		return 0;
	if (seq != tp->rcv_nxt) /* again, or before others */
		return c->proto == PROTO_TLS;
	if (bytes < TLS_HEADER + 1 && c->proto != PROTO_TLS)
		return 0;
	if (bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &p))
		return 0;
	if (c->proto != PROTO_TLS) {
		if (bpf_dynptr_read(b, TLS_HEADER + 1, (void *)&p, header, 0))
			return 0;
		if (is_client_hello(b)) {
			if (c->proto == PROTO_HTTP1) { /* CONNECT: a request */
				answered_by_now(c, tp, now);
				tls_close(c, sk);
			}
			tls_begin(c, tp, seq, now);
		} else if (c->seq == 1 && c->proto != PROTO_HTTP1 && c->opened && is_tls_later(b)) {
			said = c->answer; /* it was taken for a request and its answer */
			if (!said && after(tp->snd_nxt, c->mark))
				said = smaller(later(tp->first_tx_mstamp * NSEC_PER_USEC, c->opened), now);
			tls_begin(c, tp, seq, c->opened);
			tls_answers(c, tp, said ? said : now);
		} else {
			return 0;
		}
	}
	at = c->bytes_out - seq;
	if (at > 1U << 30)
		at = 0; /* some were not seen */
	if (at && at <= bytes && !c->tls_is)
		tls_offer(c, skb, 0, header, at);
	for (i = 0; i < TLS_RECORDS; i++) {
		if (at + TLS_HEADER > bytes)
			break;
		if (bpf_dynptr_read(b, TLS_HEADER + 1, (void *)&p, header + at, 0))
			break;
		over = tls_record(c, head, 1);
		if (over < 2)
			at += TLS_HEADER + (b[3] << 8 | b[4]);
		if (over) {
			tls_ready(c, sk, tp, tp->write_seq, now);
			return at >= bytes;
		}
		if (is_client_hello(b) && at <= bytes)
			tls_offer(c, skb, 0, header, at);
	}
	tls_asks(c, tp, now);
	c->bytes_out = seq + at;
	return 1;
}

/* The asking end: bytes are on their way into the socket, from memory of the program. */
static __noinline int tls_sending(struct conn *c, struct sock *sk, void *from, __u64 count)
{
	struct tcp_sock *tp = sk ? tcp_of(sk) : 0;
	__u64 now = bpf_ktime_get_ns();
	__u64 head = 0;
	__u8 *b = (__u8 *)&head;
	__u32 at;
	int i, over;

	if (!c || !tp)
		return 0;
	if (c->tls == TLS_READY && c->proto != PROTO_TLS) {
		if (is_early_open(c, 0) && tls_early_sent(c, sk, from, count)) {
			c->mark = tp->write_seq + count;
			return 0;
		}
		if (count > TLS_HEADER && count <= TLS_HEADER + TLS12_ALERT && !bpf_probe_read_user(b, TLS_HEADER, from) && is_tls_alert(b, count)) {
			c->mark = tp->write_seq + count;
			tls_close(c, sk);
		}
		return 0;
	}
	if (c->tls == TLS_NONE)
		tls_begin(c, tp, tp->write_seq, now);
	at = c->bytes_out - tp->write_seq;
	if (at > 1U << 30)
		at = 0;
	for (i = 0; i < TLS_RECORDS; i++) {
		if (at + TLS_HEADER > count || bpf_probe_read_user(b, TLS_HEADER + 1, from + at))
			break;
		over = tls_record(c, head, tp->bytes_received == c->in0);
		if (over < 2)
			at += TLS_HEADER + (b[3] << 8 | b[4]);
		if (over) {
			tls_ready(c, sk, tp, tp->write_seq + (at < count ? at : count), now);
			return 0;
		}
		if (is_client_hello(b) && at <= count)
			tls_offer(c, 0, from, 0, at);
	}
	tls_asks(c, tp, now);
	c->bytes_out = tp->write_seq + at;
	return 0;
}

/* The same once the bytes are out, where that hook is not used: up to mark they were
 * looked at. Returns 1 when the handshake is over. */
static __noinline int tls_sent(struct conn *c, struct sock *sk)
{
	struct tcp_sock *tp = sk ? tcp_of(sk) : 0;
	__u64 words[2], when;
	__u32 at = 0;
	int i, over;

	if (!c || !tp || !after(tp->snd_nxt, c->mark) || !tp->packets_out)
		return 0;
	when = smaller(later(tp->first_tx_mstamp * NSEC_PER_USEC, later(c->answer, c->last)), bpf_ktime_get_ns());
	for (i = 0; i < TLS_RECORDS; i++) {
		words[0] = 0;
		if (sent_payload(tp, c->mark, at, words, sizeof(words)) < TLS_HEADER) {
			if (at) /* the rest is in another buffer */
				return 0;
			c->mark = tp->snd_nxt;
			tls_ready(c, sk, tp, tp->snd_nxt, when);
			return 1;
		}
		over = tls_record(c, words[0], tp->bytes_received == c->in0);
		if (over < 2)
			at += TLS_HEADER + (((__u8 *)words)[3] << 8 | ((__u8 *)words)[4]);
		if (over) {
			at += c->mark;
			tls_ready(c, sk, tp, before(at, tp->snd_nxt) ? at : tp->snd_nxt, when);
			return 1;
		}
		if (c->mark + at == tp->snd_nxt) {
			c->mark += at;
			tls_asks(c, tp, when);
			return 0;
		}
	}
	return 0;
}

/* The asking end: a segment came in. Returns 1 while it is nothing but handshake. */
static __noinline int tls_called_segment(struct conn *c, struct sock *sk, struct sk_buff *skb, __u32 bytes)
{
	struct tcp_sock *tp = sk ? tcp_of(sk) : 0;

	if (!c || !tp || !skb)
		return 0;
	if (!sending_seen && tls_sent(c, sk) && c->tls_is & TLS_UNTIL)
		tls_finished(c, sk, bytes);
	if (c->tls == TLS_FLIGHT && bytes && after(((struct tcp_skb_cb *)skb->cb)->end_seq, tp->rcv_nxt)) {
		tls_ready(c, sk, tp, tp->write_seq, c->last);
		return 0;
	}
	if (c->proto == PROTO_TLS && bytes) {
		tls_look(c, tp, skb, skb->len - bytes);
		tls_answers(c, tp, bpf_ktime_get_ns());
	}
	return c->proto == PROTO_TLS;
}

#endif
