/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Whether a handshake of TLS 1.3 offers a session, and whether the other end takes it.
 * Included by tls.h.
 */
#ifndef SLOWRAY_TLS_SESSION_H
#define SLOWRAY_TLS_SESSION_H

/* Of a ServerHello: header, type and length, version; a HelloRetryRequest has one that is
 * known (RFC 8446, 4.1.3), here its first four bytes as a little-endian number. */
#define TLS_RANDOM (TLS_HEADER + 4 + 2)
#define TLS_HELLO_RETRY 0x74ad21cf

/* Extensions of a ServerHello that are looked at: of TLS 1.3 it has three. */
#define TLS_EXTENSIONS 6

/* Four bytes of the ServerHello: of a segment that came in, or of what went out from seq
 * on and is not acknowledged. */
static __noinline int tls_peek(struct tcp_sock *tp, struct sk_buff *skb, __u32 seq, __u32 at, __u8 *b)
{
	struct bpf_dynptr p;
	__u64 words[1] = {};

	if (!b)
		return 0;
	if (skb) {
		if (!with_payload || !bpf_ksym_exists(bpf_dynptr_from_skb) || bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &p))
			return 0;
		return !bpf_dynptr_read(b, 4, (void *)&p, seq + at, 0);
	}
	if (!tp || sent_payload(tp, seq, at, words, sizeof(words)) < 4)
		return 0;
	__builtin_memcpy(b, words, 4);
	return 1;
}

/* Whether the session that was offered is taken: the ServerHello of TLS 1.3 says so by
 * pre_shared_key (RFC 8446, 4.2.11). from is where it begins: in skb, or in what was sent. */
static __noinline int tls_look(struct conn *c, struct tcp_sock *tp, struct sk_buff *skb, __u32 from)
{
	__u8 words[8] = {}, *b = words;
	__u32 at, end, i;

	if (!c || c->tls_is & TLS_LOOKED)
		return 0;
	if (!tls_peek(tp, skb, from, 0, b) || b[0] != TLS_HANDSHAKE)
		return 0;
	if (!tls_peek(tp, skb, from, TLS_HEADER, b) || b[0] != TLS_SERVER_HELLO)
		return 0;
	if (!tls_peek(tp, skb, from, TLS_RANDOM, b) || *(__u32 *)b == TLS_HELLO_RETRY)
		return 0;
	if (!tls_peek(tp, skb, from, TLS_RANDOM + 32, b))
		return 0;
	at = TLS_RANDOM + 32 + 1 + b[0] + 3; /* session, cipher, compression */
	if (!tls_peek(tp, skb, from, at, b))
		return 0;
	at += 2;
	end = at + (b[0] << 8 | b[1]);
	for (i = 0; i < TLS_EXTENSIONS; i++) {
		if (at + 4 > end)
			break;
		if (!tls_peek(tp, skb, from, at, b))
			return 0;
		if ((b[0] << 8 | b[1]) == TLS_PRE_SHARED_KEY)
			c->tls_is |= TLS_PSK;
		at += 4 + (b[2] << 8 | b[3]);
	}
	c->tls_is |= TLS_LOOKED;
	return 0;
}

/* Whether a ClientHello that ends here offers a session: pre_shared_key is its last
 * extension, and what that ends with is a hash (RFC 8446, 4.2.11.2). tail are the four
 * bytes before the hash. */
static __always_inline int is_binder(const __u8 *tail, __u8 hash) { return !tail[0] && tail[1] == hash + 1 && tail[2] == hash; }

static __noinline int tls_offer(struct conn *c, struct sk_buff *skb, void *from, __u32 header, __u32 end)
{
	struct bpf_dynptr p;
	__u8 a[4] = {}, b[4] = {};

	if (!c || end < 3 + 48)
		return 0;
	if (skb) {
		if (!with_payload || !bpf_ksym_exists(bpf_dynptr_from_skb) || bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &p) ||
		    bpf_dynptr_read(a, 4, (void *)&p, header + end - 3 - 32, 0) || bpf_dynptr_read(b, 4, (void *)&p, header + end - 3 - 48, 0))
			return 0;
	} else if (bpf_probe_read_user(a, 4, from + end - 3 - 32) || bpf_probe_read_user(b, 4, from + end - 3 - 48)) {
		return 0;
	}
	if (is_binder(a, 32) || is_binder(b, 48))
		c->tls_is |= TLS_OFFERED;
	return 0;
}

#endif
