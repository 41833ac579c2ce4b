/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The first bytes of requests, kept only when labels are asked for: user space
 * finds in them what was asked for and, in the headers of HTTP/1, the trace.
 * Searching them here would cost more than ten times as much as handing them over.
 *
 * A head says of which request it is: bytes of another one would give a request
 * a wrong trace.
 */
#ifndef SLOWRAY_HEAD_H
#define SLOWRAY_HEAD_H

_Static_assert(sizeof(struct head) <= 952, "does not fit 1024 bytes with the kernel's part of a socket's storage");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct head);
} conn_heads SEC(".maps");

/* Those of the next call: it is sent before the kernel side learns that the call before
 * it is over. of is the sequence number of the first byte. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct head);
} next_heads SEC(".maps");

/* [CPU][slot] as records, mapped by user space; a single one without labels. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct head);
} heads SEC(".maps");

/* How much of a request is kept: of a protocol without labels nothing. */
static __always_inline __u32 head_size(__u8 proto)
{
	if (proto == PROTO_HTTP1)
		return HEAD_SIZE;
	return proto > PROTO_HTTP1 && proto <= PROTO_POSTGRES ? LABEL_SIZE : 0;
}

static __always_inline struct head *head_of(struct sock *sk)
{
	return bpf_sk_storage_get(&conn_heads, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
}

#define HEAD_STEP 240

/* Most heads end in the first or second step. */
static __always_inline void copy_head(struct head *to, const struct head *from)
{
	__u32 len = from->len;

	to->len = len;
	__builtin_memcpy(to->text, from->text, HEAD_STEP);
	if (len <= HEAD_STEP)
		return;
	__builtin_memcpy(to->text + HEAD_STEP, from->text + HEAD_STEP, HEAD_STEP);
	if (len <= 2 * HEAD_STEP)
		return;
	__builtin_memcpy(to->text + 2 * HEAD_STEP, from->text + 2 * HEAD_STEP, HEAD_SIZE - 2 * HEAD_STEP);
}

/* A call is on its way into the socket, count bytes in memory of the program. */
static __always_inline void keep_next_head(struct conn *c, struct sock *sk, struct tcp_sock *tp, void *from, __u64 count)
{
	__u32 size = head_size(c->proto);
	struct head *h;

	if (!size || !from)
		return;
	h = bpf_sk_storage_get(&next_heads, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!h || (h->len && !before(h->of, c->mark)))
		return; /* there is one that waits for its call to begin */
	if (count > size)
		count = size;
	h->len = bpf_probe_read_user(h->text, count, from) ? 0 : count;
	h->of = tp->write_seq;
}

/* A call has begun whose first byte has this sequence number: what was kept is its. */
static __always_inline void take_next_head(struct conn *c, struct sock *sk, __u32 seq)
{
	struct head *next, *h;

	if (!with_labels)
		return;
	next = bpf_sk_storage_get(&next_heads, sk, 0, 0);
	if (!next || !next->len)
		return;
	if (next->of == seq) {
		h = head_of(sk);
		if (h) {
			copy_head(h, next);
			h->of = c->seq;
		}
	}
	next->len = 0;
}

/* Hands the head of a request over, to the slot of its record. */
static __always_inline __u8 hand_head(struct conn *c, struct sock *sk, __u32 cpu, __u64 number)
{
	__u32 i = cpu * slots + (number & (slots - 1));
	struct head *h = bpf_sk_storage_get(&conn_heads, sk, 0, 0), *to;

	if (!h || !h->len || h->of != c->seq)
		return 0;
	to = bpf_map_lookup_elem(&heads, &i);
	if (!to)
		return 0;
	copy_head(to, h);
	return KEPT_HEAD;
}

#endif
