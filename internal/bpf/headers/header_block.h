/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Header blocks of HTTP/2 (RFC 9113, 4.3) on their way to user space, which unpacks them
 * (HPACK, RFC 7541): only where labels are asked for. Whoever sees frames fills a piece:
 * http2.bpf.c from packets, in the clear.
 *
 * What a block means depends on all blocks before it in its direction. So each has a
 * number, and a number that is left out says that some were not seen.
 */
#ifndef SLOWRAY_HEADER_BLOCK_H
#define SLOWRAY_HEADER_BLOCK_H

#ifndef BPF_MAP_TYPE_RINGBUF
#define BPF_MAP_TYPE_RINGBUF 27 /* enum bpf_map_type */
#endif

#define BLOCK_SIZE 1024 /* of a piece; most are far smaller */
#define SMALL_BLOCK 128

enum block_flags {
	BLOCK_BEGINS = 1, /* the piece is the block's first one */
	BLOCK_ENDS = 2, /* and its last one, whole */
	BLOCK_CLOSED = 4, /* no piece: the connection is over */
};

struct header_block {
	__u64 headers; /* the connection, as in struct record */
	__u32 number; /* of the block, in its direction: 1 is the connection's first */
	__u32 stream;
	__u16 len;
	__u8 answers; /* it goes from the server to the caller */
	__u8 flags;
	__u32 pad;
	__u8 bytes[BLOCK_SIZE];
};

#define BLOCK_HEADER __builtin_offsetof(struct header_block, bytes)

/* Sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} header_blocks SEC(".maps");

__u64 lost_blocks; /* pieces without room */

/* Room for a piece of up to room bytes, a constant: SMALL_BLOCK or BLOCK_SIZE. To be given
 * to bpf_ringbuf_submit() with BPF_RB_NO_WAKEUP, or discarded. */
static __always_inline struct header_block *block_for(const __u32 room, __u64 headers, __u32 number, __u32 stream, __u32 len, __u8 answers, __u8 flags)
{
	struct header_block *b = bpf_ringbuf_reserve(&header_blocks, BLOCK_HEADER + room, 0);

	if (!b) {
		__sync_fetch_and_add(&lost_blocks, 1);
		return 0;
	}
	b->headers = headers;
	b->number = number;
	b->stream = stream;
	b->len = len;
	b->answers = answers;
	b->flags = flags;
	return b;
}

#ifndef BPF_RB_NO_WAKEUP
#define BPF_RB_NO_WAKEUP 1 /* include/uapi/linux/bpf.h */
#endif

/* A connection is over. */
static __always_inline void no_more_blocks(__u64 headers)
{
	struct header_block *b = block_for(SMALL_BLOCK, headers, 0, 0, 0, 0, BLOCK_CLOSED);

	if (b)
		bpf_ringbuf_submit(b, BPF_RB_NO_WAKEUP);
}

#endif
