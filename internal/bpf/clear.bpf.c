//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The requests of HTTP/2 connections under TLS, by the clear bytes that pass functions
 * of OpenSSL and its like in the process that encrypts them: frames' headers as in
 * http2.bpf.c, and no more of them than that needs.
 *
 * Which socket an SSL object has, nothing in a call says. There are two ways to use one:
 *
 *   direct   the library reads the socket (nginx, curl, Envoy, most programs in C): a
 *            read of a socket within SSL_read is of this object's. A library that reads ahead
 *            (nginx) may have all that was asked before, with the handshake's end: then what
 *            is sent within SSL_write is of this object's
 *   memory   the program reads the socket, hands over what came, and asks for clear
 *            bytes (node, Python's asyncio): SSL_read follows the read of the socket on
 *            the same thread. So several times in a row, with nothing of another
 *            connection in between and as many bytes more as records of TLS have
 *            (RFC 8446, 5.2; RFC 5246, 6.2.3), it is this object's
 *
 * That it speaks HTTP/2 the agreed protocol says (ALPN, RFC 7301), or its first frames.
 */
#define SEES_PACKETS 0
#include "headers/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include "headers/request.h"
#include "headers/connection.h"
#include "headers/record.h"
#include "headers/http2_frame.h"
#include "headers/header_block.h"
#include "headers/http2_stream.h"
#include "headers/http2_ledger.h"

#define load(at, off, to, n) bpf_probe_read_user(to, n, (at)->bytes + (off))

#include "headers/http2_walk.h"
#include "headers/http2_end.h"
#include "headers/clear.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Where arguments and results lie in struct pt_regs. Set by user space. */
const volatile __u32 reg_args[4], reg_result;

/* Which function a probe is at, in the order of tlslib.Kind: the cookie's first byte. The
 * rest of it is the number of the library. */
enum function {
	READ = 1, /* SSL_read(ssl, buffer, bytes) */
	READ_EX, /* SSL_read_ex(ssl, buffer, bytes, &read) */
	WRITE,
	WRITE_EX,
	ALPN, /* SSL_get0_alpn_selected(ssl, &name, &length) */
	FREE,
};

__u64 hits; /* of probes */

/* How often reads of a socket and clear bytes have to agree. */
#define AGREE 3

/* What TLS adds to a record: header and tag at the least, and header, vector, hash and
 * padding at the most. */
#define LEAST_ADDED (5 + 16)
#define MOST_ADDED (5 + 16 + 48 + 16)

/* What a thread does with TLS. */
struct call {
	struct owner owner; /* of the call under way */
	__u64 buffer, length_at, began;
	__u8 function; /* 0 = none is under way */
	__u8 direct; /* it has read a socket */
	__u8 library;
	__u32 epoch; /* in which the call began */
	/* Memory: the socket that was read last, and what was made of it. */
	__u8 spoiled; /* two sockets, or two owners */
	__u64 socket;
	__u64 reader; /* owner of the clear bytes since; 0 = none yet */
	__u32 sealed, clear, returns;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct call);
} calls SEC(".maps");

/* How far a socket was read, of those whose owner is not known. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} read_up_to SEC(".maps");

static __always_inline __u64 register_at(const void *ctx, __u32 offset)
{
	__u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), ctx + offset);
	return value;
}

static __always_inline struct call *call_of(int create)
{
	return bpf_task_storage_get(&calls, bpf_get_current_task_btf(), 0, create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
}

#include "headers/clear_go.h"

SEC("uprobe")
int clear_enter(void *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u8 function = cookie;
	struct call *t;

	__sync_fetch_and_add(&hits, function == FREE ? 1 : 2); /* and where it ends */
	if (function == FREE) {
		struct owner o = { register_at(ctx, reg_args[0]), bpf_get_current_pid_tgid() >> 32 };
		struct session *s = bpf_map_lookup_elem(&sessions, &o);
		struct multiplexed *m = s ? place_as(&o, s, RESERVED) : 0;

		if (m)
			free_place(m);
		bpf_map_delete_elem(&sessions, &o);
		return 0;
	}
	t = call_of(1);
	if (!t)
		return 0;
	t->owner.object = register_at(ctx, reg_args[0]);
	t->owner.tgid = bpf_get_current_pid_tgid() >> 32;
	t->buffer = register_at(ctx, reg_args[1]);
	t->length_at = register_at(ctx, function == ALPN ? reg_args[2] : reg_args[3]);
	t->began = bpf_ktime_get_ns();
	t->direct = 0;
	t->library = cookie >> 8;
	t->epoch = epoch_of(t->library);
	t->function = function;
	return 0;
}

/* The agreed protocol of a connection. */
static __always_inline void see_protocol(struct call *t)
{
	struct session new = { .http2 = 1 }, *s;
	__u32 length = 0;
	void *name = 0;
	char b[2];

	if (bpf_probe_read_user(&length, sizeof(length), (void *)t->length_at) || length != 2)
		return;
	if (bpf_probe_read_user(&name, sizeof(name), (void *)t->buffer) || bpf_probe_read_user(b, sizeof(b), name))
		return;
	if (b[0] != 'h' || b[1] != '2')
		return;
	__sync_fetch_and_add(&http2_by[t->library & (LIBRARIES - 1)], 1);
	bpf_map_update_elem(&sessions, &t->owner, &new, BPF_NOEXIST);
	s = bpf_map_lookup_elem(&sessions, &t->owner);
	if (s)
		s->http2 = 1;
}

/* At the instructions by which functions are left: see package exits. */
SEC("uprobe")
int clear_leave(void *ctx)
{
	struct call *t = call_of(0);
	struct clear b = {};
	struct owner o;
	__u32 function;
	__u64 n = 0;

	if (!t || !t->function)
		return 0;
	function = t->function;
	if (function != (__u8)bpf_get_attach_cookie(ctx))
		return 0;
	t->function = 0;
	if (t->epoch != epoch_of(t->library))
		return 0; /* of another call: this one was not seen to begin */
	if (function == ALPN) {
		see_protocol(t);
		return 0;
	}
	if ((__s32)register_at(ctx, reg_result) <= 0)
		return 0;
	if (function == READ || function == WRITE)
		n = (__u32)register_at(ctx, reg_result);
	else if (bpf_probe_read_user(&n, sizeof(n), (void *)t->length_at))
		return 0;
	if (!n || n > 1U << 30)
		return 0;
	o = t->owner;
	b.bytes = (void *)t->buffer;
	b.count = n;
	b.library = t->library;
	b.in = function < WRITE;
	b.when = b.in ? bpf_ktime_get_ns() : t->began;
	if (b.in && !t->direct && t->socket) {
		t->spoiled |= t->reader && t->reader != o.object;
		t->reader = o.object;
		t->clear += n;
		t->returns++;
	}
	saw_clear(&o, &b);
	return 0;
}

/* What the thread made of the socket that it read last says whose it is, or nothing. */
static __noinline int judge(struct call *t)
{
	struct owner o = {};
	struct session *s;
	__u32 added;
	int bound;

	if (!t || t->spoiled || !t->reader)
		return 0;
	added = t->sealed - t->clear;
	o.object = t->reader;
	o.tgid = bpf_get_current_pid_tgid() >> 32;
	s = bpf_map_lookup_elem(&sessions, &o);
	if (!s || s->direct)
		return 0;
	bound = streams_of(&o, s) != 0;
	if (bound && s->socket != t->socket) {
		forget(&o, s);
		return 0;
	}
	if (bound || (__s32)added < LEAST_ADDED || added > MOST_ADDED * t->returns)
		return 0;
	if (s->socket != t->socket) {
		s->socket = t->socket;
		s->agreed = 0;
	}
	if (++s->agreed >= AGREE)
		bpf_map_update_elem(&owners, &t->socket, &o, BPF_ANY);
	return 0;
}

/* A thread that reads sockets for an SSL object has read one. */
static __noinline int note_read(struct call *t, struct sock *sk, __u32 copied_seq)
{
	__u32 *up_to, bytes;
	__u64 socket;

	if (!t || !sk)
		return 0;
	up_to = bpf_sk_storage_get(&read_up_to, sk, &copied_seq, BPF_SK_STORAGE_GET_F_CREATE);
	if (!up_to)
		return 0;
	bytes = copied_seq - *up_to;
	*up_to = copied_seq;
	socket = bpf_get_socket_cookie(sk);
	if (!t->socket || t->reader) {
		judge(t);
		t->spoiled = !bytes; /* the first read of it that is seen: how much it was is not known */
		t->sealed = t->clear = t->returns = 0;
		t->reader = 0;
	} else if (t->socket != socket) {
		t->spoiled = 1;
	}
	t->socket = socket;
	t->sealed += bytes;
	return 0;
}

#define ARRIVALS 16 /* a power of two */

/* When the last segments came that nobody has read: what a process reads late is older. */
struct arrivals {
	__u32 next;
	__u32 copied; /* read up to here */
	__u32 end[ARRIVALS]; /* sequence numbers, each the one after a segment */
	__u64 at[ARRIVALS];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct arrivals);
} arrivals_of SEC(".maps");

/* tcp:tcp_probe(struct sock *sk, struct sk_buff *skb): a segment came in. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(clear_arrived, struct sock *sk, struct sk_buff *skb)
{
	struct conn *c = bpf_sk_storage_get(&conns, sk, 0, 0);
	struct tcp_skb_cb *cb = (void *)skb->cb;
	struct arrivals *a, none = {};
	struct multiplexed *m;
	struct tcp_sock *tp;
	__u32 i;

	if (!c || c->proto != PROTO_HTTP2 || cb->end_seq == cb->seq)
		return 0;
	m = at_place(bpf_sk_storage_get(&place_of, sk, 0, 0));
	tp = m && m->owner ? bpf_skc_to_tcp_sock(sk) : 0;
	if (!tp || after(cb->seq, tp->rcv_nxt)) /* it cannot be read before what is missing */
		return 0;
	none.copied = tp->copied_seq;
	a = bpf_sk_storage_get(&arrivals_of, sk, &none, BPF_SK_STORAGE_GET_F_CREATE);
	if (!a)
		return 0;
	i = a->next++ & (ARRIVALS - 1);
	a->end[i] = cb->end_seq;
	a->at[i] = bpf_ktime_get_ns();
	return 0;
}

/* When the byte before a number came. */
static __noinline __u64 arrival(struct arrivals *a, __u32 seq)
{
	__u64 at = 0;

	if (!a)
		return 0;
	for (__u32 n = 1; n <= ARRIVALS; n++) { /* the newest first */
		__u32 i = (a->next - n) & (ARRIVALS - 1);

		if (!a->at[i] || (at && before(a->end[i], seq)))
			break;
		at = a->at[i];
	}
	return at;
}

/* The process has read of a socket whose streams are distinguished; more says that it did so
 * before, in the same call. */
static __noinline int note_reading(struct multiplexed *m, struct sock *sk, int more)
{
	struct arrivals *a = sk ? bpf_sk_storage_get(&arrivals_of, sk, 0, 0) : 0;
	struct tcp_sock *tp = a ? bpf_skc_to_tcp_sock(sk) : 0;

	if (!m || !tp)
		return 0;
	m->rtt_us = min_rtt_of(tp) / NSEC_PER_USEC;
	if (!more || !m->reading)
		m->reading = arrival(a, a->copied + 1);
	a->copied = tp->copied_seq;
	m->arrived = arrival(a, a->copied);
	return 0;
}

/* tcp:tcp_rcv_space_adjust(struct sock *sk): the application has read. */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(clear_received, struct sock *sk)
{
	struct conn *c = bpf_sk_storage_get(&conns, sk, 0, 0);
	struct session *s, new = {};
	struct tcp_sock *tp;
	struct owner o, *known;
	struct call *t;
	__u64 socket;

	if (!c || c->side == SIDE_NONE || (c->proto > PROTO_OTHER && c->proto < PROTO_HTTP2))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	t = call_of(0);
	if (c->proto == PROTO_HTTP2) {
		struct multiplexed *m = at_place(bpf_sk_storage_get(&place_of, sk, 0, 0));

		if (!m) /* http2.bpf.c has it */
			return 0;
		if (!released(sk, c, m))
			note_reading(m, sk, t && t->function && t->epoch == epoch_of(t->library) && t->direct);
	}
	if (t && t->epoch == epoch_of(t->library) && (t->function == READ || t->function == READ_EX)) {
		t->direct = 1;
		o = t->owner;
		s = bpf_map_lookup_elem(&sessions, &o);
		if (!s) {
			new.direct = 1;
			bpf_map_update_elem(&sessions, &o, &new, BPF_NOEXIST);
			return 0;
		}
		s->direct = 1;
		socket = bpf_get_socket_cookie(sk);
		if (s->socket && s->socket != socket) {
			if (streams_of(&o, s))
				forget(&o, s);
			/* SSL_clear: the object is another connection's now, which may speak something else. */
			s->http2 = s->framed = 0;
			s->socket = 0;
		}
		if (!streams_of(&o, s))
			bind(&o, sk, tp, c);
		return 0;
	}
	if (t)
		note_read(t, sk, tp->copied_seq);
	if (watches_go)
		go_read(sk);
	if (c->proto > PROTO_OTHER)
		return 0;
	socket = bpf_get_socket_cookie(sk);
	known = bpf_map_lookup_elem(&owners, &socket);
	if (!known)
		return 0;
	o = *known;
	bpf_map_delete_elem(&owners, &socket);
	bind(&o, sk, tp, c);
	return 0;
}

struct arrival {
	struct multiplexed *m;
	__u64 first, last;
};

static long set_arrival(__u32 i, void *context)
{
	struct arrival *a = context;
	struct stream *s = &a->m->streams[i & (STREAMS - 1)];

	if (!s->id)
		return 0;
	s->first = smaller(s->first, a->first);
	s->read = s->asked;
	s->asked = smaller(s->asked, a->last);
	return 0;
}

/* A thread sends to a socket, within SSL_write for an object whose socket no read has told: all that
 * was read of it so far came with the handshake's end. */
static __noinline int note_sending(struct sock *sk)
{
	struct call *t = call_of(0);
	struct arrival a = {};
	struct session *s;
	struct tcp_sock *tp;
	struct conn *c;
	struct owner o;

	if (!sk || !t || t->epoch != epoch_of(t->library) || (t->function != WRITE && t->function != WRITE_EX))
		return 0;
	o = t->owner;
	s = bpf_map_lookup_elem(&sessions, &o);
	if (!s || !s->http2 || s->socket || streams_of(&o, s))
		return 0;
	c = bpf_sk_storage_get(&conns, sk, 0, 0);
	tp = c ? bpf_skc_to_tcp_sock(sk) : 0;
	if (!tp || c->side != SERVED || c->proto > PROTO_OTHER || c->tls != TLS_READY || c->seq != 1)
		return 0;
	a.first = c->first;
	a.last = later(c->last, c->first);
	bind(&o, sk, tp, c);
	a.m = streams_of(&o, s);
	if (a.m)
		bpf_loop(STREAMS, set_arrival, &a, 0);
	return 0;
}

/* tcp:tcp_sendmsg_locked(sk, msg, skb, size_goal), since 6.16 */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(clear_sending, struct sock *sk) { return note_sending(sk); }

/* sock:sock_send_length(struct sock *sk, int ret, int flags), since 6.3: only where the hook before is missing. */
SEC("tp_btf/sock_send_length")
int BPF_PROG(clear_sent, struct sock *sk, int ret) { return sk->sk_protocol == IPPROTO_TCP ? note_sending(sk) : 0; }
