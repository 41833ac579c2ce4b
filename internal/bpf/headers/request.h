/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * What request.bpf.c and internal/sense/request share: the layouts of records,
 * counters and rings. kernel_test.go compares the sizes with Go's.
 */
#ifndef SLOWRAY_REQUEST_H
#define SLOWRAY_REQUEST_H

/* The parts of a request's time, in the order of observe.Part. */
enum part {
	ACCEPT_WAIT,
	TLS,
	UPLOAD,
	RECV_WAIT,
	SERVER,
	STALL,
	SEND_WAIT,
	NETWORK,
	RETRANS,
	UNACCOUNTED,
	ACK_DELAY, /* not part of the total */
	PARTS,
};

/* The parts of SERVER, in the order of observe.ServerPart. The first ones are the
 * clocks of a thread. */
enum work {
	WORK_CPU,
	WORK_RUNQ, /* ready, and other threads had the CPUs */
	WORK_THROTTLED, /* ready, and its group's quota was used up */
	WORK_LOCK,
	WORK_DISK,
	WORK_PIPE,
	WORK_NET,
	WORK_SLEEP,
	WORK_OTHER,
	CLOCKS,
	WORK_CALL = CLOCKS, /* waited for another service */
	WORK_HANDOFF, /* passed on, and not seen to whom */
	WORKS,
};

enum side {
	SIDE_NONE, /* not watched */
	SERVED,
	CALLED,
};

enum status {
	STATUS_UNKNOWN,
	STATUS_OK,
	STATUS_ERROR,
};

/* The values of observe.RequestFlags. */
enum flags {
	OVERLAPPED = 1 << 0,
	RESET = 1 << 1,
	UNANSWERED = 1 << 2,
	TRUNCATED = 1 << 3,
	UNFINISHED = 1 << 4,
	HALF_CLOSED = 1 << 5,
	CLOSED = 1 << 6,
	REORDERED = 1 << 7,
	NAGLE = 1 << 8,
	ZERO_WINDOW = 1 << 9,
	SEND_BUFFER = 1 << 10,
	RECV_WINDOW = 1 << 11,
	TIMEOUT = 1 << 12,
	ESTIMATED = 1 << 13,
	PREEXISTING = 1 << 14,
	SLOW = 1 << 15,
	UPLOAD_ACKS = 1 << 16,
	AMENDED = 1 << 17,
	CONTENDED = 1 << 18,
	MULTIPLEXED = 1 << 19,
};

enum record_kind {
	RECORD_REQUEST = 1,
	RECORD_CLOSED = 2,
	RECORD_TLS = 3, /* a handshake of TLS, over or given up (STATUS_ERROR) */
};

/* Of the first bytes of a request: of HTTP/1, for its headers; of other protocols. */
#define HEAD_SIZE 944
#define LABEL_SIZE 40

/* The first bytes of a request, see head.h. */
struct head {
	__u32 len;
	__u32 of; /* which request: its number on the connection */
	__u8 text[HEAD_SIZE] __attribute__((aligned(8)));
};

/*
 * The record that a thread has of its span, up to its attributes (OTEP 4947, Thread-Local
 * Context Record), and then what is ours. See thread_context.h.
 */
struct thread_context {
	__u8 trace[16] __attribute__((aligned(8)));
	__u8 span[8];
	__u8 valid; /* 1 = it is; the rest is of no meaning otherwise */
	__u8 trace_flags;
	__u16 attributes; /* bytes; nobody looks at them */
	__u32 of; /* which request: its number on the connection */
};

#define THREAD_CONTEXT_READ 28 /* bytes of the record */

/* What is kept of a request besides its record. */
#define KEPT_HEAD 1
#define KEPT_CONTEXT 2

/* One slot of a CPU's ring. commit is the slot's number plus one, written last. */
struct record {
	__u64 commit;
	__u8 kind;
	__u8 side;
	__u8 family;
	__u8 status;
	__u32 flags;
	__u64 start; /* ns, CLOCK_MONOTONIC */
	__u64 parts[PARTS]; /* ns */
	__u64 bytes_in;
	__u64 bytes_out;
	__u32 endpoint;
	__u32 seq;
	__u32 pid;
	__u32 tid;
	__u32 requests;
	__u32 weight;
	__u32 retrans;
	__u32 unacked;
	__u32 rtt_us;
	__u32 min_rtt_us;
	/* How the connection of a called request was opened, of its first one. */
	__u32 connect_us; /* SYN to its answer; 0 = not known, or another request, and the next two say nothing */
	__u32 dns_us; /* the lookup before that; 0 = none was seen */
	__u32 idle_us; /* it was open and nobody asked, without the handshake of TLS */
	__u32 pad;
	__u16 mss;
	__u16 http;
	__u16 lport; /* host byte order */
	__u16 pport;
	__u32 netns;
	__u8 proto;
	__u8 kept; /* KEPT_: the slot of the same number in heads, handed_contexts is set */
	__u8 has_work;
	__u8 share; /* one of 2^share connections was followed when it began */
	__u64 first_byte; /* ns from start to the first byte of the answer; 0 = none */
	__u8 laddr[16]; /* IPv4 in the first four bytes */
	__u8 paddr[16];
	__u64 headers; /* of HTTP/2: who said them, see header_block.h; 0 = nobody listens */
	__u64 work[WORKS]; /* not written unless has_work is set */
};

/* A CPU's end of its ring. head and tail lie in cache lines of their own: the
 * one is written here, the other by user space. */
struct ring {
	__u64 head;
	__u64 lost; /* records dropped: the ring was full */
	__u64 skipped; /* requests that were only counted: sampling */
	__u64 busy; /* programs at work on this CPU's counters */
	__u64 left_out; /* requests that others stand for: their connection had not its turn */
	__u64 pad0[3];
	__u64 tail;
	__u64 pad1[7];
};

struct endpoint_key {
	__u32 netns;
	__u16 port; /* host byte order; served: local, called: remote */
	__u8 side;
	__u8 family;
	__u8 addr[16];
};

/* Sums over all requests of an endpoint, whether or not they have a record. */
struct counters {
	__u64 requests;
	__u64 ok;
	__u64 errors;
	__u64 unanswered;
	__u64 overlapped;
	__u64 bytes_in;
	__u64 bytes_out;
	__u64 segments;
	__u64 retrans;
	__u64 connections;
	__u64 handshake_ns;
	__u64 handshake_max;
	__u64 syn_retrans;
	__u64 parts[PARTS];
};

#endif
