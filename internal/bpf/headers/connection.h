/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * What is known of one TCP connection, and how it is found: by its socket's
 * storage, which the kernel frees with the socket.
 *
 * All hooks but the iterator run under the socket's lock, so nothing here needs
 * one of its own. The iterator takes a finished request away by changing phase
 * with a compare-and-swap.
 */
#ifndef SLOWRAY_CONNECTION_H
#define SLOWRAY_CONNECTION_H

enum phase {
	IDLE, /* no request known */
	ASKED, /* request bytes came in (called: went out), no answer yet */
	ANSWERING, /* part of the answer is out (called: came in) */
	DONE, /* the answer is out and acknowledged; more may follow */
	TAKEN, /* as DONE, and its record is already written */
	AWAY, /* nothing is known, out of its turn: IDLE once it has it again */
};

enum proto {
	PROTO_NEW, /* not looked at yet */
	PROTO_SEALED, /* data of TLS: what is in it is not known */
	PROTO_OTHER,
	PROTO_HTTP1,
	PROTO_REDIS,
	PROTO_MYSQL,
	PROTO_POSTGRES,
	PROTO_HTTP2, /* and its streams are distinguished: http2.bpf.c has its requests */
	PROTO_TLS, /* in its handshake, see tls.h; then PROTO_OTHER */
};

enum tls {
	TLS_NONE,
	TLS_HELLO, /* the asking end has said its ClientHello */
	TLS_CIPHER, /* and change_cipher_spec */
	TLS_FLIGHT, /* TLS 1.3: it answers the other end's Hello: certificates, Finished */
	TLS_READY, /* its part is over: the first request may be answered by tickets first */
};

/* What is known of a handshake; tls_is of internal/sense/request has the same. */
enum tls_is {
	TLS_V12 = 1 << 0,
	TLS_V13 = 1 << 1,
	TLS_FULL = 1 << 2, /* with the signature of a certificate */
	TLS_RESUMED = 1 << 3,
	TLS_OFFERED = 1 << 4, /* a session of TLS 1.3 was offered */
	TLS_PSK = 1 << 5, /* and taken */
	TLS_LOOKED = 1 << 6, /* whether it was is known */
	TLS_UNTIL = 1 << 7, /* over with what the serving end says next: its Finished */
};

/* Both versions: the first request came with the ClientHello. While the handshake's end is to
 * come it is TLS_OFFERED, and TLS_FULL once the request is known to have been taken; TLS_LOOKED
 * when the end was read and tickets are next. */
#define TLS_EARLY (TLS_V12 | TLS_V13)

/*
 * At most 184 bytes: with the kernel's own 72 for an element of socket storage
 * it then fits 256 (kmalloc), instead of 512.
 *
 * Segments and reads are often dealt with by different CPUs, and each cache
 * line that the one writes and the other looks at costs as much as a whole
 * program. So whatever a read has to do with is in the first line, which ends
 * where the kernel's own word and 56 bytes do.
 */
struct conn {
	__u32 phase;
	__u8 side;
	__u8 proto;
	__u8 family : 6;
	__u8 owner_gone : 1; /* the process that had it ended with it open */
	__u8 kept : 1; /* counted in kept */
	__u8 status;
	__u32 flags; /* of the request under way */
	__u32 seq;
	__u64 read; /* it was read; called: the answer was */
	__u32 pid, tid;
	__u32 copied; /* receive sequence number up to which the application has read */
	/* Send sequence number: when the request began; once the answer is
	 * done, up to where; called: up to where sending was seen. */
	__u32 mark;
	union {
		__u32 told_us; /* the stall that a record already has */
		__u32 pause_us; /* before the answer: the longest pause in the request */
		__u32 reread_seq; /* in the answer: how much was sent at a read (reread) */
	};
	__u16 requests; /* overlapped ones under way, besides the first */
	__u8 answered : 1; /* the first bytes of the answer were looked at */
	__u8 reread : 1;
	__u8 reported : 1; /* as unfinished */
	__u8 fin : 1; /* this end has sent a FIN: one more in write_seq */
	__u8 farewell : 1; /* the asking end closed: it waits for no answer */
	__u8 prompt : 1; /* the request came right after the answer before it */
	__u8 in_hand : 1; /* what is done with the request is followed, see work.h */
	__u8 all_read : 1; /* at read, nothing was left unread */
	__u8 tls_is; /* enum tls_is: what is known of its handshake */
	__u64 first; /* first request byte */

	__u64 last; /* last request byte */
	__u64 answer; /* first byte of the answer */
	__u64 done; /* last byte of the answer acknowledged; called: received */
	__u64 progress; /* last acknowledgement of new bytes while some were in flight */
	__u64 stall;
	union {
		__u64 send_wait;
		__u64 established; /* called, but for a handshake of TLS under way: when connect() was answered */
	};
	__u64 retrans_ns;
	__u64 ack_delay; /* called: a round trip, where one was seen */
	__u64 due; /* when what had to be retransmitted should have been acknowledged; 0 = nothing */
	union {
		__u64 opened; /* handshake complete (called: begun); 0 = older than slowray */
		__u64 tls_ns; /* from TLS_READY on: how long that of TLS took, at least 1 */
	};
	__u64 in0, out0; /* bytes in and out before the request */
	__u64 bytes_out;
	union {
		__u32 accept_us; /* from opened to accept(), plus 1; 0 = not known */
		__u32 connect_us; /* called: from opened to established, at least 1; 0 = not known */
	};
	__u32 recover; /* acknowledged beyond this, the loss is recovered */
	__u32 retrans0;
	__u32 segs0;
	__u16 endpoint;
	__u16 lport; /* the socket gives it back before it is closed */
	__u16 http;
	__u8 tls : 3; /* enum tls */
	__u8 sent_share : 5; /* called: share, but UNCOUNTED_SENT, of what was sent last and not noticed yet */
	__u8 share; /* follow_share when the request began, or UNCOUNTED */
};

_Static_assert(sizeof(struct conn) <= 184, "does not fit 256 bytes with the kernel's part");
_Static_assert(__builtin_offsetof(struct conn, last) == 56, "the first cache line has room");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct conn);
} conns SEC(".maps");

/* How long the lookup took that a connection of ours was opened after, µs, at least 1. Most
 * connections have none, and struct conn has no room. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} lookup_of SEC(".maps");

struct listen_key {
	__u32 netns;
	__u32 port;
};

/* Who listens where: tells the side of connections older than slowray. User
 * space fills it, listen() adds. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct listen_key);
	__type(value, __u8);
} listening SEC(".maps");

/* A process that opened a connection, as it was then: many are gone before user
 * space looks for them in /proc. */
struct caller {
	char comm[16];
	__u32 parent; /* tgid */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32); /* tgid */
	__type(value, struct caller);
} callers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct endpoint_key);
	__type(value, __u32);
} endpoints SEC(".maps");

/* [endpoint][CPU][lane], see count(). Sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counts SEC(".maps");

/* [CPU][slot], mapped by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct record);
} records SEC(".maps");

/* [CPU], mapped by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ring);
} rings SEC(".maps");

/* Set by user space before loading. */
const volatile __u32 side_mask = 3; /* bit 0: served, bit 1: called */
const volatile __u32 cpus = 1;
const volatile __u32 max_endpoints = 1; /* the last one stands for all that found no place */
const volatile __u32 slots = 1; /* of each ring, a power of two */
const volatile __u8 some_ports; /* only those of want_ports */
const volatile __u8 with_labels;
const volatile __u8 ordered_stores; /* as on x86 */
const volatile __u8 with_closed;
const volatile __u64 want_ports[1024];

/* Changed while running. */
__u64 served_ports[1024]; /* something listens there, in any namespace */
__u32 sample_mask; /* one request of sample_mask+1 gets a record */
__u64 slow_ns; /* slower ones always do */
__u8 sending_seen; /* tcp_sendmsg_locked is attached */

/*
 * Which connections are followed: one of 2^follow_share at a time, each in its turn. In a
 * round of a second or two a connection has its place by the kernel's own hash of its addresses
 * and ports, and it is followed for a slice of the round from there on. A request that begins
 * in it is followed to its end and stands for 2^follow_share; so each has the same chance,
 * however many others its connection carries and however long it takes. Time goes by jiffies
 * here: to read them is one load (bpf_jiffies64, inlined since Linux 5.6).
 */
__u32 follow_shift; /* of the hash, to its place in the round */
__u32 follow_mask; /* a round less 1, in jiffies: a power of two less 1 */
__u32 follow_slice; /* jiffies */
__u32 follow_reach; /* jiffies in which connections are looked at: longer, where a call is seen late */
__u8 follow_share; /* 0 = all are followed, whatever the others say */

__u8 follow_sends; /* what is sent is seen when it is sent */

#define UNCOUNTED_SENT 31
#define UNCOUNTED 255 /* instead of follow_share: the request did not begin in its connection's turn */

__u32 next_endpoint;
__u64 lost_conns; /* connections without storage: no memory */
__u64 untaken; /* requests left over by processes that ended, see is_left_over() */
__u64 lost_endpoints; /* addresses counted under "other" */

#define NSEC_PER_USEC 1000ULL
#define NSEC_PER_MSEC 1000000ULL
#define NSEC_PER_SEC 1000000000ULL

static __always_inline int before(__u32 a, __u32 b) { return (__s32)(a - b) < 0; }
static __always_inline int after(__u32 a, __u32 b) { return (__s32)(b - a) < 0; }
static __always_inline __u64 span(__u64 from, __u64 to) { return to > from ? to - from : 0; }
static __always_inline __u64 later(__u64 a, __u64 b) { return a > b ? a : b; }
static __always_inline __u64 smaller(__u64 a, __u64 b) { return a < b ? a : b; }

/* How long, in jiffies, a connection's turn has lasted at a time; as much as a round long
 * where it is to come. Since Linux 6.15 the kernel only adds the own port to its hash, which
 * would have all callers of a service take their turn together: 2^32 by the golden ratio
 * spreads them. */
static __always_inline __u32 turn_of(__u32 hash, __u32 jiffies)
{
	__u32 place = hash * 0x9e3779b1U;

	return (jiffies - (place >> (follow_shift & 31))) & follow_mask;
}

static __always_inline __u32 turn_at(struct sock *sk, __u32 jiffies) { return turn_of(sk->__sk_common.skc_hash, jiffies); }

/* What stands for a request that begins now, or UNCOUNTED. */
static __always_inline __u8 share_of_hash(__u32 hash)
{
	return !follow_share || turn_of(hash, bpf_jiffies64()) < follow_slice ? follow_share : UNCOUNTED;
}

static __always_inline __u8 share_now(struct sock *sk) { return share_of_hash(sk->__sk_common.skc_hash); }

/* Whether a connection has its turn: one load and a branch while all are followed. */
static __always_inline int in_turn(struct sock *sk)
{
	return !follow_share || turn_at(sk, bpf_jiffies64()) < follow_reach;
}

static __always_inline int has_port(const volatile __u64 *ports, __u16 port)
{
	__u32 i = port >> 6;

	/* The compiler knows that a port has 16 bits, the verifier does not know
	 * it of one whose bytes were swapped (before 6.6). */
	barrier_var(i);
	return ports[i & 1023] >> (port & 63) & 1;
}

/* The TCP socket behind a file, or 0: for iterators over files only. */
static __always_inline struct tcp_sock *tcp_of_file(struct file *file)
{
	struct socket *s = file ? bpf_sock_from_file(file) : 0;

	return s ? bpf_skc_to_tcp_sock(s->sk) : 0;
}

#endif
