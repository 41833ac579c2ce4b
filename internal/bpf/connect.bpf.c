//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * What became of connect() and accept(), per process and address, and how the
 * TCP handshakes ended. Everything is summed in maps that user space reads
 * once, at the end of the window; nothing wakes it.
 *
 * TCP connections are seen where their socket changes its state. What only the
 * result of a system call tells (connect() to a unix socket, accept() without
 * a descriptor) needs tracepoints of system calls, and one of those makes every
 * system call of every thread slower (TIF_SYSCALL_TRACEPOINT, kernel/tracepoint
 * .c, syscall_regfunc): user space attaches them for a part of the time only.
 */
#include "headers/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct outcome {
	__u64 calls;
	__u64 failed; /* TCP: EADDRNOTAVAIL, no free local port; unix: EAGAIN, the backlog is full */
	__u64 other; /* unix: any other error */
	__u32 netns;
	char comm[16];
	__u32 pad;
};

struct inet_key {
	__u32 tgid;
	__u16 family;
	__u16 port; /* host byte order */
	__u8 addr[16]; /* IPv4 in the first four bytes */
};

struct unix_key {
	__u32 tgid;
	char path[108];
};

struct handshake_key {
	__u32 netns;
	__u16 family;
	__u16 port; /* host byte order; passive: the local one */
	__u8 addr[16]; /* passive: the local one */
	__u32 passive;
};

struct handshake {
	__u64 established;
	__u64 failed; /* for whatever reason; of these: */
	__u64 refused; /* ECONNREFUSED: a reset came back */
	__u64 timed_out; /* ETIMEDOUT: all SYNs went without an answer */
	__u64 unreachable; /* EHOSTUNREACH, ENETUNREACH: ICMP said so, or ARP had no answer */
};

struct accept_outcome {
	__u64 accepted;
	__u64 mfile; /* EMFILE: the process has no descriptor left */
	__u64 nfile; /* ENFILE: the system has none left */
	__u64 nobufs; /* ENOBUFS, ENOMEM */
	__u64 other;
	char comm[16];
};

struct pending {
	__u64 addr; /* user pointer to the sockaddr */
	__u32 len;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH); /* a thread killed inside connect() leaves its entry */
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct pending);
} inflight SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct inet_key);
	__type(value, struct outcome);
} inet_connects SEC(".maps");

/* The calls of one process to one address after another, on one CPU: nearly all that there
 * are where there are many. They are not in inet_connects yet. The kernel lets no program
 * interrupt itself (prog->active, kernel/trace/bpf_trace.c), so nothing else changes it. */
struct inet_row {
	struct inet_key key;
	__u64 calls;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inet_row);
} inet_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct unix_key);
	__type(value, struct outcome);
} unix_connects SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct handshake_key);
	__type(value, struct handshake);
} handshakes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct accept_outcome);
} accepts SEC(".maps");

/* Events not counted because a map was full, by place. */
__u64 lost_connects;
__u64 lost_handshakes;
__u64 lost_accepts;

/* Linux error numbers are the same on x86-64 and arm64 (asm-generic/errno.h). */
#define EISCONN 106
#define EAGAIN 11
#define EMFILE 24
#define ENFILE 23
#define ENOBUFS 105
#define ENOMEM 12
#define ECONNABORTED 103
#define EINTR 4
#define ECONNREFUSED 111
#define ETIMEDOUT 110
#define EHOSTUNREACH 113
#define ENETUNREACH 101

/* find returns what is known of a key, which begins empty; NULL when the map is
 * full, which is counted. */
static __always_inline struct outcome *find(void *map, const void *key)
{
	struct outcome *o = bpf_map_lookup_elem(map, key);
	struct outcome fresh = {};
	struct task_struct *task;

	if (o)
		return o;
	task = (struct task_struct *)bpf_get_current_task();
	fresh.netns = BPF_CORE_READ(task, nsproxy, net_ns, ns.inum);
	bpf_get_current_comm(&fresh.comm, sizeof(fresh.comm));
	bpf_map_update_elem(map, key, &fresh, BPF_NOEXIST);
	o = bpf_map_lookup_elem(map, key);
	if (!o)
		__sync_fetch_and_add(&lost_connects, 1);
	return o;
}

SEC("tracepoint/syscalls/sys_enter_connect")
int connect_enter(struct syscall_enter *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct pending p = {
		.addr = ctx->args[1],
		.len = (__u32)ctx->args[2],
	};
	__u16 family = 0;

	if (bpf_probe_read_user(&family, sizeof(family), (void *)p.addr) || family != AF_UNIX)
		return 0;
	bpf_map_update_elem(&inflight, &id, &p, BPF_ANY);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_connect")
int connect_exit(struct syscall_exit *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct pending *pp = bpf_map_lookup_elem(&inflight, &id);
	struct unix_key key = { .tgid = id >> 32 };
	struct outcome *o;
	struct pending p;
	__u32 len;

	if (!pp)
		return 0;
	p = *pp;
	bpf_map_delete_elem(&inflight, &id);
	if (ctx->ret == -EISCONN || ctx->ret == -EINTR)
		return 0;

	/* An address may be shorter than the structure and need not end in a
	 * NUL; a leading NUL marks an abstract name (unix(7)). */
	len = p.len > 2 ? p.len - 2 : 0;
	if (len > sizeof(key.path))
		len = sizeof(key.path);
	bpf_probe_read_user(&key.path, len, (void *)(p.addr + 2));
	o = find(&unix_connects, &key);
	if (!o)
		return 0;
	__sync_fetch_and_add(&o->calls, 1);
	if (ctx->ret == -EAGAIN)
		__sync_fetch_and_add(&o->failed, 1);
	else if (ctx->ret < 0)
		__sync_fetch_and_add(&o->other, 1);
	return 0;
}

static __always_inline int count_accept(__s64 ret)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct accept_outcome *a;

	if (ret == -EAGAIN || ret == -EINTR || ret == -ECONNABORTED)
		return 0;
	a = bpf_map_lookup_elem(&accepts, &tgid);
	if (!a) {
		struct accept_outcome fresh = {};

		bpf_get_current_comm(&fresh.comm, sizeof(fresh.comm));
		bpf_map_update_elem(&accepts, &tgid, &fresh, BPF_NOEXIST);
		a = bpf_map_lookup_elem(&accepts, &tgid);
		if (!a) {
			__sync_fetch_and_add(&lost_accepts, 1);
			return 0;
		}
	}
	if (ret >= 0)
		__sync_fetch_and_add(&a->accepted, 1);
	else if (ret == -EMFILE)
		__sync_fetch_and_add(&a->mfile, 1);
	else if (ret == -ENFILE)
		__sync_fetch_and_add(&a->nfile, 1);
	else if (ret == -ENOBUFS || ret == -ENOMEM)
		__sync_fetch_and_add(&a->nobufs, 1);
	else
		__sync_fetch_and_add(&a->other, 1);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_accept4")
int accept4_exit(struct syscall_exit *ctx)
{
	return count_accept(ctx->ret);
}

SEC("tracepoint/syscalls/sys_exit_accept")
int accept_exit(struct syscall_exit *ctx)
{
	return count_accept(ctx->ret);
}

static __always_inline void far_end(const struct sock *sk, __u16 *port, __u8 *addr)
{
	*port = bpf_ntohs(sk->__sk_common.skc_dport);
	if (sk->__sk_common.skc_family == AF_INET)
		__builtin_memcpy(addr, &sk->__sk_common.skc_daddr, 4);
	else
		bpf_core_read(addr, 16, &sk->__sk_common.skc_v6_daddr);
}

/*
 * A TCP connect() puts the socket into SYN_SENT, with the far end known, and
 * then looks for a local port (tcp_v4_connect, tcp_v6_connect). If there is
 * none, the socket is closed again in the same call, with no error on it and no
 * SYN in its queue, as it has when the caller changes its mind later.
 */
static __always_inline void count_call(struct sock *sk, int no_port)
{
	struct inet_key key = {
		.tgid = bpf_get_current_pid_tgid() >> 32,
		.family = sk->__sk_common.skc_family,
	};
	struct inet_row *row;
	struct outcome *o;
	__u32 zero = 0;

	far_end(sk, &key.port, key.addr);
	row = bpf_map_lookup_elem(&inet_rows, &zero);
	if (row && !no_port && !__builtin_memcmp(&key, &row->key, sizeof(key))) {
		row->calls++;
		return;
	}
	if (row && !no_port) {
		o = row->calls ? bpf_map_lookup_elem(&inet_connects, &row->key) : 0;
		if (o)
			__sync_fetch_and_add(&o->calls, row->calls);
		row->calls = 0;
	}
	o = find(&inet_connects, &key); /* it says who calls */
	if (!o)
		return;
	__sync_fetch_and_add(no_port ? &o->failed : &o->calls, 1);
	if (row && !no_port)
		row->key = key;
}

/* Who gives up by itself closes the socket with no error on it. */
static __always_inline void count_failure(struct handshake *h, int err)
{
	__sync_fetch_and_add(&h->failed, 1);
	if (err == ECONNREFUSED)
		__sync_fetch_and_add(&h->refused, 1);
	else if (err == ETIMEDOUT)
		__sync_fetch_and_add(&h->timed_out, 1);
	else if (err == EHOSTUNREACH || err == ENETUNREACH)
		__sync_fetch_and_add(&h->unreachable, 1);
}

/* sock:inet_sock_set_state(const struct sock *sk, const int old, const int new), since 4.16 */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(set_state, struct sock *sk, int old, int new)
{
	struct handshake_key key = {};
	struct handshake *h;
	int failed = 0;

	/* Most changes are none of these: what lies in a register tells it. */
	if (old != TCP_SYN_SENT && new != TCP_SYN_SENT && old != TCP_SYN_RECV)
		return 0;
	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (old == TCP_CLOSE && new == TCP_SYN_SENT) {
		count_call(sk, 0);
		return 0;
	}
	if (old == TCP_SYN_SENT && new == TCP_ESTABLISHED) {
		;
	} else if (old == TCP_SYN_SENT && new == TCP_CLOSE) {
		if (!sk->sk_err && !sk->tcp_rtx_queue.rb_node) {
			count_call(sk, 1);
			return 0;
		}
		failed = 1;
	} else if (old == TCP_SYN_RECV && new == TCP_ESTABLISHED) {
		key.passive = 1;
	} else {
		return 0;
	}

	key.netns = sk->__sk_common.skc_net.net->ns.inum;
	key.family = sk->__sk_common.skc_family;
	if (key.passive) {
		key.port = sk->__sk_common.skc_num;
		if (key.family == AF_INET)
			__builtin_memcpy(key.addr, &sk->__sk_common.skc_rcv_saddr, 4);
		else
			BPF_CORE_READ_INTO(&key.addr, sk, __sk_common.skc_v6_rcv_saddr);
	} else {
		far_end(sk, &key.port, key.addr);
	}
	h = bpf_map_lookup_elem(&handshakes, &key);
	if (!h) {
		struct handshake fresh = {};

		bpf_map_update_elem(&handshakes, &key, &fresh, BPF_NOEXIST);
		h = bpf_map_lookup_elem(&handshakes, &key);
		if (!h) {
			__sync_fetch_and_add(&lost_handshakes, 1);
			return 0;
		}
	}
	if (failed)
		count_failure(h, sk->sk_err);
	else
		__sync_fetch_and_add(&h->established, 1);
	return 0;
}
