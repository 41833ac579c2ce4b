/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * What of HTTP/2's frames (RFC 9113) and of its packed headers (HPACK, RFC 7541)
 * can be recognized by a few bytes.
 */
#ifndef SLOWRAY_HTTP2_FRAME_H
#define SLOWRAY_HTTP2_FRAME_H

/* Types and flags of frames, RFC 9113, 6 */
enum frame_type {
	DATA,
	HEADERS,
	PRIORITY,
	RST_STREAM,
	SETTINGS,
	PUSH_PROMISE,
	PING,
	GOAWAY,
	WINDOW_UPDATE,
	CONTINUATION,
};

#define END_STREAM 0x1
#define END_HEADERS 0x4
#define PADDED 0x8
#define WITH_PRIORITY 0x20

#define FRAME_HEADER 9
#define PREFACE 24 /* "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" */
#define USUAL 16384 /* SETTINGS_MAX_FRAME_SIZE, unless the other end allows more */

static __always_inline __u32 length_of(const __u8 *b) { return b[0] << 16 | b[1] << 8 | b[2]; }
static __always_inline __u32 id_of(const __u8 *b) { return (b[5] << 24 | b[6] << 16 | b[7] << 8 | b[8]) & 0x7fffffff; }

/* Whether nine bytes look like the header of a frame. */
static __always_inline int is_frame(const __u8 *b)
{
	__u32 len = length_of(b), id = id_of(b);

	if (b[5] & 0x80)
		return 0;
	switch (b[3]) {
	case DATA:
		return id & 1 && len <= USUAL && !(b[4] & ~(END_STREAM | PADDED));
	case HEADERS:
		return id & 1 && len && len <= USUAL && !(b[4] & ~(END_STREAM | 0x4 | PADDED | WITH_PRIORITY));
	case PRIORITY:
		return id && len == 5;
	case RST_STREAM:
		return id & 1 && len == 4;
	case SETTINGS:
		return !id && !(len % 6) && len <= 6 * 32 && b[4] <= 1;
	case PING:
		return !id && len == 8 && b[4] <= 1;
	case GOAWAY:
		return !id && len >= 8 && len <= USUAL;
	case WINDOW_UPDATE:
		return len == 4 && !b[4];
	}
	return 0;
}

/*
 * The status of an answer, from the first field of its HEADERS: :status comes
 * first (RFC 9113, 8.3). Seven usual ones have a number of their own in HPACK
 * (RFC 7541, appendix A, 8 to 14); others are spelled out, here in digits or in
 * Huffman's code (appendix B: 0 to 2 have five bits, 3 to 9 have six).
 */
static __always_inline __u16 status_of(const __u8 *b)
{
	const __u16 usual[] = { 200, 204, 206, 304, 400, 404, 500, 0 };
	__u32 name = b[0] & 0x3f, bits;

	if (b[0] & 0x80)
		return b[0] >= 0x88 && b[0] <= 0x8e ? usual[(b[0] - 0x88) & 7] : 0;
	/* The name by number, to be remembered or not (6.2): any of the seven has it. */
	if (!(b[0] & 0x40))
		name &= 0xf;
	if (name < 8 || name > 14)
		return 0;
	if (b[1] == 3 && b[2] >= '1' && b[2] <= '5')
		return (b[2] - '0') * 100; /* the class will do */
	if (b[1] != 0x82 && b[1] != 0x83)
		return 0;
	bits = b[2] >> 3;
	if (bits == 1 || bits == 2)
		return bits * 100;
	bits = b[2] >> 2; /* 3 is 011001, 4 is 011010, 5 is 011011 */
	if (bits >= 0x19 && bits <= 0x1b)
		return (bits - 0x19 + 3) * 100;
	return 0;
}

#endif
