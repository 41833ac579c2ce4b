/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The few kernel types that slowray's BPF programs read, declared by hand so
 * that no 3 MB vmlinux.h is needed. Every struct is relocated at load time
 * (preserve_access_index): only the member names must match the kernel's, not
 * their order or offsets.
 */
#ifndef SLOWRAY_KERNEL_H
#define SLOWRAY_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

enum bpf_map_type_used {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
};

#define BPF_ANY 0
#define BPF_NOEXIST 1

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10

#define IPPROTO_TCP 6

/* include/net/tcp_states.h */
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_SYN_RECV 3
#define TCP_TIME_WAIT 6
#define TCP_CLOSE 7
#define TCP_NEW_SYN_RECV 12

/* include/uapi/linux/stat.h */
#define S_IFMT 0170000
#define S_IFSOCK 0140000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

struct nsproxy {
	struct net *net_ns;
};

struct task_struct {
	struct nsproxy *nsproxy;
	int pid;
	int tgid;
};

struct inode {
	__u16 i_mode;
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
};

struct socket {
	int type;
};

struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
};

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	struct socket *sk_socket;
};

struct tcp_sock;
struct seq_file;

/* Contexts of BPF iterators (include/linux/bpf.h, net/ipv4/tcp_ipv4.c,
 * kernel/bpf/task_iter.c). */
struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

#pragma clang attribute pop

/*
 * Layout of the syscall tracepoints (tracefs events/syscalls/.../format): an
 * 8 byte header, the syscall number, then the arguments or the result.
 */
struct syscall_enter {
	__u64 header;
	__s64 nr;
	__u64 args[6];
};

struct syscall_exit {
	__u64 header;
	__s64 nr;
	__s64 ret;
};

struct bpf_perf_event_data;

#endif
