/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Reading kernel memory with plain loads, and the payload of buffers that wait
 * to be acknowledged.
 */
#ifndef SLOWRAY_MEMORY_H
#define SLOWRAY_MEMORY_H

#ifndef bpf_ksym_exists
#define bpf_ksym_exists(sym) (!!(sym))
#endif

/* Since Linux 6.2. The verifier replaces the call by nothing: what is read
 * through the result is a load that gives zero where there is no memory. */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

#define CAST(type, pointer) ((type *)bpf_rdonly_cast((const void *)(pointer), bpf_core_type_id_kernel(type)))

/* The TCP socket that a socket of a TCP hook is. */
static __always_inline struct tcp_sock *tcp_of(struct sock *sk)
{
	if (bpf_ksym_exists(bpf_rdonly_cast))
		return CAST(struct tcp_sock, sk);
	return bpf_skc_to_tcp_sock(sk);
}

/*
 * The same without what the verifier knows of them: for each pointer that is read from
 * what it trusts, it looks for a name among all types of the kernel, which took half of
 * the time to load these programs (btf_nested_type_is_trusted, kernel/bpf/btf.c, Linux
 * 6.2 to 6.18).
 */
static __always_inline struct sock *bare_sock(struct sock *sk)
{
	return bpf_ksym_exists(bpf_rdonly_cast) ? CAST(struct sock, sk) : sk;
}

static __always_inline struct task_struct *bare_task(struct task_struct *task)
{
	return bpf_ksym_exists(bpf_rdonly_cast) ? CAST(struct task_struct, task) : task;
}

static __always_inline __u32 netns_of(struct sock *sk) { return bare_sock(sk)->__sk_common.skc_net.net->ns.inum; }

/* Any two words of memory: a timespec64 is nothing else. */
#define FIRST_WORD(pointer) ((__u64)CAST(struct timespec64, pointer)->tv_sec)
#define SECOND_WORD(pointer) ((__u64)CAST(struct timespec64, pointer)->tv_nsec)

/* Gives the payload of a received buffer wherever it lies; since Linux 6.12
 * for buffers of a tracepoint. */
struct bpf_dynptr {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct __sk_buff {
	__u32 len;
};
extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags, struct bpf_dynptr *ptr) __ksym __weak;

/* Set before loading when payload_probe loads: from Linux 6.4 to 6.11 the
 * function is there, but tracing programs may not call it. */
const volatile __u8 with_payload;

/* The payload of a segment that just came in, from its beginning; into holds at
 * least size bytes. 0 when it cannot be had. */
static __always_inline __u32 payload(struct sk_buff *skb, __u32 bytes, __u8 *into, __u32 size)
{
	struct bpf_dynptr p;
	__u32 header = skb->len - bytes;

	if (!with_payload || !bpf_ksym_exists(bpf_dynptr_from_skb))
		return 0;
	if (bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &p))
		return 0;
	if (bytes < size)
		size = bytes;
	if (bpf_dynptr_read(into, size, (void *)&p, header, 0))
		return 0;
	return size;
}

/*
 * Sent bytes lie in pages of which a buffer has the struct page. A page's
 * address is linear in its struct's (both regions are linear in the frame
 * number):
 *
 *	address = (page << PAGE_SHIFT) / sizeof(struct page) + page_constant
 *
 * which is a shift by 6 for pages of 4 KiB (10 for arm64's of 64 KiB) and structures
 * of 64 bytes. The constant differs from boot to boot (CONFIG_RANDOMIZE_MEMORY) and
 * is not to be had by name, but it is a multiple of 1 GiB, as both regions begin at
 * such addresses. So there is one candidate for each GiB of memory, and a received
 * buffer whose payload is known shows which one is right.
 */
const volatile __u32 page_to_address = 6; /* the shift; set before loading */
__u64 page_constant; /* 0 = not found yet */
__u32 page_tries; /* candidates of this pass that were tried, each on one buffer */
__u32 page_passes;

#define GIB (1ULL << 30)
#define TRIES 16 /* for each buffer */
#define NEAR 64 /* candidates of the first pass; each further one has twice as many */
#define PASSES 9 /* in the last one: 8 TiB either way */

/* Where the first fragment of a buffer begins: its page, offset and size. */
static __always_inline int first_fragment(struct sk_buff *skb, __u64 *page, __u32 *offset, __u32 *size)
{
	__u64 frags = (__u64)skb->head + skb->end, second;

	if (!CAST(struct skb_shared_info, frags)->nr_frags)
		return 0;
	frags += bpf_core_field_offset(struct skb_shared_info, frags);
	*page = FIRST_WORD(frags);
	second = SECOND_WORD(frags);
	*size = second;
	*offset = second >> 32;
	return *page && !(*page & 1); /* odd: no page of memory (netmem) */
}

/* Whether a received buffer can help to find page_constant. */
static __always_inline int shows_pages(struct sk_buff *skb, __u32 bytes)
{
	return !page_constant && page_passes < PASSES && bpf_ksym_exists(bpf_rdonly_cast) && skb->data_len == bytes;
}

/* Tries some candidates of page_constant on a received buffer whose payload
 * begins with b and lies in fragments. A candidate is how far the payload lies
 * from the buffer's header, and that is another one for each buffer: one that was
 * tried on a buffer may be right for the next. So what is near is tried again,
 * before what is twice as far. */
static __noinline int find_page_constant(struct sk_buff *skb, __u32 bytes, __u64 *b)
{
	__u64 page, low, anchor;
	__u32 offset, size, i;

	if (!skb || !b)
		return 0;
	if (!first_fragment(skb, &page, &offset, &size) || size < 16 || !b[0] || !b[1])
		return 0; /* zeros lie everywhere */
	low = (page << page_to_address) + offset;
	anchor = (__u64)skb->head / GIB * GIB + low % GIB;
	for (i = 0; i < TRIES; i++) {
		/* 0, 1, -1, 2, -2 … GiB from where the buffer's header lies */
		__u32 n = page_tries + i;
		__u64 address = n & 1 ? anchor + (n / 2 + 1) * GIB : anchor - n / 2 * GIB;

		if (FIRST_WORD(address) == b[0] && SECOND_WORD(address) == b[1]) {
			page_constant = address - low;
			return 1;
		}
	}
	page_tries += TRIES;
	if (page_tries >= NEAR << page_passes) {
		page_tries = 0;
		page_passes++;
	}
	return 0;
}

/* Where the byte at of what was sent from sequence number seq on lies, and is not
 * acknowledged yet, and how many follow it; 0 when that is not known. */
static __always_inline __u64 sent_at(struct tcp_sock *tp, __u32 seq, __u32 at, __u32 *have)
{
	__u64 node = (__u64)tp->tsorted_sent_queue.next, page;
	__u32 offset;
	struct sk_buff *skb;

	if (!page_constant || !bpf_ksym_exists(bpf_rdonly_cast))
		return 0;
	skb = CAST(struct sk_buff, node - bpf_core_field_offset(struct sk_buff, tcp_tsorted_anchor));
	if (CAST(struct tcp_skb_cb, (__u64)skb + bpf_core_field_offset(struct sk_buff, cb))->seq != seq)
		return 0;
	if (skb->len != skb->data_len || !first_fragment(skb, &page, &offset, have))
		return 0;
	if (at >= *have)
		return 0;
	*have -= at;
	return (page << page_to_address) + page_constant + offset + at;
}

/* Up to size of those bytes, in words; how many there are. */
static __always_inline __u32 sent_payload(struct tcp_sock *tp, __u32 seq, __u32 at, __u64 *words, __u32 size)
{
	__u32 have = 0, i;
	__u64 address = sent_at(tp, seq, at, &have);

	if (!address)
		return 0;
#pragma unroll
	for (i = 0; i < size / 8; i += 2) {
		words[i] = FIRST_WORD(address + i * 8);
		if (i + 1 < size / 8)
			words[i + 1] = SECOND_WORD(address + i * 8);
	}
	return have < size ? have : size;
}

/* As many of them as there are from the first on, up to size: for more than a few words. */
static __always_inline __u32 sent_copy(struct tcp_sock *tp, __u32 seq, void *into, __u32 size)
{
	__u32 have = 0;
	__u64 address = sent_at(tp, seq, 0, &have);

	if (!address)
		return 0;
	if (have < size)
		size = have;
	return bpf_probe_read_kernel(into, size, (void *)address) ? 0 : size;
}

#endif
