//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Iterators that hand out all TCP sockets of a network namespace, and the
 * owner of every socket, ten times cheaper than sock_diag and /proc/PID/fd.
 */
#include "headers/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* One record for each TCP socket; the same layout as in socket.go. */
struct tcp_record {
	__u64 inode; /* 0 when no file holds the socket */
	__u16 sport; /* host byte order */
	__u16 dport;
	__u8 family;
	__u8 state;
	__u16 pad;
	__u8 saddr[16]; /* IPv4 in the first four bytes */
	__u8 daddr[16];
};

struct owner_record {
	__u64 inode;
	__u32 tgid;
	__u32 pad;
};

SEC("iter/tcp")
int dump_tcp(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sk = ctx->sk_common;
	struct tcp_record r = {};

	if (!sk)
		return 0;
	r.family = sk->skc_family;
	r.state = sk->skc_state;
	r.sport = sk->skc_num;
	r.dport = bpf_ntohs(sk->skc_dport);
	if (r.family == AF_INET6) {
		BPF_CORE_READ_INTO(&r.saddr, sk, skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&r.daddr, sk, skc_v6_daddr);
	} else {
		__builtin_memcpy(r.saddr, &sk->skc_rcv_saddr, 4);
		__builtin_memcpy(r.daddr, &sk->skc_daddr, 4);
	}
	/* TIME_WAIT and request sockets are smaller structures, without a file. */
	if (r.state != TCP_TIME_WAIT && r.state != TCP_NEW_SYN_RECV) {
		struct sock *full = (struct sock *)sk;
		struct socket *s = BPF_CORE_READ(full, sk_socket);

		if (s) {
			struct socket_alloc *a = (void *)s - bpf_core_field_offset(struct socket_alloc, socket);

			r.inode = BPF_CORE_READ(a, vfs_inode.i_ino);
		}
	}
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

SEC("iter/task_file")
int dump_owners(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct owner_record r = {};

	if (!task || !file)
		return 0;
	if ((BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	r.inode = BPF_CORE_READ(file, f_inode, i_ino);
	r.tgid = task->tgid;
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}
