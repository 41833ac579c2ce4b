/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Owners of Go's crypto/tls: a tls.Conn.
 *
 * Clear bytes come in where (*halfConn).decrypt returns them, once for a record and not for
 * each Read, of which HTTP/2 in Go has two for a frame; and go out where (*Conn).Write
 * begins. Whatever wraps the net.Conn, a Conn reads its socket in the goroutine that wants
 * a record. So the one socket that a goroutine read between two records of a Conn, without a
 * record of another in between, is that Conn's. Threads do not matter: in a system call, too,
 * the goroutine is in a register.
 */
#ifndef SLOWRAY_CLEAR_GO_H
#define SLOWRAY_CLEAR_GO_H

/* As in tlslib. The cookie is function, library, and where in a Conn the receiver is. */
enum go_function {
	GO_READ = FREE + 1,
	GO_WRITE,
	GO_HANDSHAKE, /* (*Conn).serverHandshake, clientHandshake: the Conn is new */
	GO_HTTP2, /* a connection of HTTP/2 begins */
};

#define APPLICATION_DATA 23 /* RFC 8446, 5.1 */
#define CHANGE_CIPHER_SPEC 20

/* How often a goroutine has to read the same socket for a Conn; within its handshake once is enough. */
#define GO_AGREE 2

/* How deep in other connections a Conn is looked for: gRPC has it in one, and whoever counts
 * or limits bytes in another. */
#define GO_WRAPPED 3

/* Registers of arguments and results of Go, its stack pointer and its g. Set by user space. */
const volatile __u32 reg_go[5], reg_go_sp, reg_g;

/* A program of Go is watched. */
__u8 watches_go;

struct goroutine {
	__u64 g;
	__u32 tgid;
	__u32 pad;
};

/* What a goroutine does for a Conn whose socket is not known. */
struct searching {
	__u64 object, socket;
	__u32 spoiled; /* it read another one, too */
	__u32 handshake;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct goroutine);
	__type(value, struct searching);
} searches SEC(".maps");

/* A goroutine has read a socket. */
static __noinline int go_read(struct sock *sk)
{
	struct goroutine g = { .tgid = bpf_get_current_pid_tgid() >> 32 };
	struct searching *w;
	__u64 socket;

	if (!sk)
		return 0;
	g.g = register_at((void *)bpf_task_pt_regs(bpf_get_current_task_btf()), reg_g);
	w = bpf_map_lookup_elem(&searches, &g);
	if (!w)
		return 0;
	socket = bpf_get_socket_cookie(sk);
	w->spoiled |= w->socket && w->socket != socket;
	w->socket = socket;
	return 0;
}

/* The next read of a socket binds: by whatever goroutine, since servers read on in another
 * one than the handshake's. */
static __always_inline void name_owner(const struct owner *o, const struct session *s)
{
	if (s->http2 && s->agreed >= GO_AGREE)
		bpf_map_update_elem(&owners, &s->socket, o, BPF_ANY);
}

/* A goroutine has a record of a Conn. Where that has streams its socket is known; else
 * what the goroutine read since the last record is. */
static __noinline int find_socket(struct owner *o, struct goroutine *g, __u32 epoch)
{
	struct searching *w, new = {};
	struct session *s;

	if (!o || !g)
		return 0;
	s = bpf_map_lookup_elem(&sessions, o);
	if (!s)
		return 0;
	if (streams_of(o, s))
		return 0;
	if (s->epoch != epoch) { /* meanwhile it may have become another Conn's memory */
		s->epoch = epoch;
		s->http2 = s->agreed = 0;
		s->socket = 0;
	}
	w = bpf_map_lookup_elem(&searches, g);
	if (w && w->object == o->object && w->socket && !w->spoiled) {
		s->agreed = s->socket == w->socket ? s->agreed + 1 : 1;
		s->socket = w->socket;
		if (w->handshake)
			s->agreed = GO_AGREE;
	}
	if (s->agreed < GO_AGREE) {
		new.object = o->object;
		bpf_map_update_elem(&searches, g, &new, BPF_ANY);
		return 0;
	}
	bpf_map_delete_elem(&searches, g);
	name_owner(o, s);
	return 0;
}

/* A connection of HTTP/2 begins: c net.Conn is the first argument, after the receiver where
 * there is one. Its data is a Conn, or something that has a net.Conn first. */
static __noinline int go_http2(struct owner *o, __u64 data, __u32 epoch)
{
	struct session *s;

	if (!o)
		return 0;
	for (int i = 0; i < GO_WRAPPED; i++) {
		o->object = data;
		s = bpf_map_lookup_elem(&sessions, o);
		if (s) {
			if (s->epoch != epoch)
				return 0;
			s->http2 = 1;
			name_owner(o, s);
			return 0;
		}
		if (bpf_probe_read_user(&data, sizeof(data), (void *)data + sizeof(__u64)))
			return 0;
	}
	return 0;
}

/* What a new Conn is, and what its goroutine reads for it from now on. Calls of their own, these,
 * for the stack of clear_go(): see session_of(). */
static __noinline int go_handshake(struct owner *o, struct goroutine *g, __u32 epoch)
{
	struct session fresh = { .epoch = epoch };
	struct searching search = { .handshake = 1 };

	if (!o || !g)
		return 0;
	search.object = o->object;
	bpf_map_update_elem(&sessions, o, &fresh, BPF_ANY);
	bpf_map_update_elem(&searches, g, &search, BPF_ANY);
	return 0;
}

/* Who calls has said its preface. */
static __noinline int go_asks(struct owner *o, __u32 epoch)
{
	struct session *s = o ? bpf_map_lookup_elem(&sessions, o) : 0;

	if (s && s->epoch == epoch)
		name_owner(o, s);
	return 0;
}

SEC("uprobe")
int clear_go(void *ctx)
{
	struct owner o = { .tgid = bpf_get_current_pid_tgid() >> 32 };
	__u64 cookie = bpf_get_attach_cookie(ctx);
	struct goroutine g = { register_at(ctx, reg_g), o.tgid };
	__u8 function = cookie, type;
	struct clear b = { .when = bpf_ktime_get_ns() };

	__sync_fetch_and_add(&hits, 1);
	b.library = cookie >> 8;
	switch (function) {
	case GO_HTTP2:
		__sync_fetch_and_add(&http2_by[b.library & (LIBRARIES - 1)], 1);
		go_http2(&o, register_at(ctx, reg_go[1]), epoch_of(b.library));
		go_http2(&o, register_at(ctx, reg_go[2]), epoch_of(b.library));
		return 0;
	case GO_HANDSHAKE:
		o.object = register_at(ctx, reg_go[0]);
		go_handshake(&o, &g, epoch_of(b.library));
		return 0;
	case GO_WRITE: /* b []byte */
		o.object = register_at(ctx, reg_go[0]);
		b.bytes = (void *)register_at(ctx, reg_go[1]);
		b.count = register_at(ctx, reg_go[2]);
		if (saw_clear(&o, &b))
			go_asks(&o, epoch_of(b.library));
		return 0;
	case GO_READ: /* ([]byte, recordType, error) */
		type = register_at(ctx, reg_go[3]);
		if (type == CHANGE_CIPHER_SPEC || register_at(ctx, reg_go[4]))
			return 0;
		/* The receiver is where its caller has room for it. */
		if (bpf_probe_read_user(&o.object, sizeof(o.object), (void *)register_at(ctx, reg_go_sp) + 8))
			return 0;
		o.object -= (__u16)(cookie >> 16);
		if (type == APPLICATION_DATA) {
			b.bytes = (void *)register_at(ctx, reg_go[0]);
			b.count = register_at(ctx, reg_go[1]);
			b.in = 1;
			saw_clear(&o, &b);
		}
		find_socket(&o, &g, epoch_of(b.library));
	}
	return 0;
}

#endif
