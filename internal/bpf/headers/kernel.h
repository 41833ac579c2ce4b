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
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

/* Only those whose presence is asked for. */
enum bpf_func_id {
	BPF_FUNC_task_pt_regs = 175,
};

#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_F_NO_PREALLOC (1U << 0)
#define BPF_F_MMAPABLE (1U << 10)
#define BPF_SK_STORAGE_GET_F_CREATE 1
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10

#define IPPROTO_TCP 6

/* include/net/tcp_states.h */
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_SYN_RECV 3
#define TCP_FIN_WAIT1 4
#define TCP_FIN_WAIT2 5
#define TCP_TIME_WAIT 6
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_LAST_ACK 9
#define TCP_LISTEN 10
#define TCP_CLOSING 11
#define TCP_NEW_SYN_RECV 12

#define SHUTDOWN_MASK 3 /* both directions, include/net/sock.h */

/* include/uapi/linux/stat.h */
#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define S_IFREG 0100000
#define S_IFIFO 0010000

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

struct bpf_local_storage;
struct fdtable;

struct files_struct {
	struct fdtable *fdt;
};

struct cfs_bandwidth {
	__u64 throttled_time; /* ns, of all CPUs together */
};

struct task_group {
	struct cfs_bandwidth cfs_bandwidth; /* CONFIG_CFS_BANDWIDTH */
	struct task_group *parent;
};

struct task_struct {
	struct nsproxy *nsproxy;
	int pid;
	int tgid;
	unsigned int __state;
	unsigned int flags;
	unsigned in_iowait : 1;
	struct files_struct *files;
	struct task_group *sched_task_group; /* CONFIG_CGROUP_SCHED */
	struct bpf_local_storage *bpf_storage; /* since 5.11 */
};

/* Before 2f064a59a11f (5.14). */
struct task_struct___state {
	volatile long state;
};

struct inode {
	__u16 i_mode;
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

/* Registers of the system call that a thread is in, by architecture. */
struct pt_regs {
};

struct pt_regs___x86 {
	unsigned long orig_ax;
	unsigned long di;
};

struct pt_regs___arm64 {
	__u64 orig_x0;
	__s32 syscallno;
};

struct socket {
	short type;
	unsigned long flags;
	struct sock *sk;
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
	unsigned long skc_flags;
	possible_net_t skc_net;
	unsigned int skc_hash; /* of addresses and ports, once they are known (inet_ehashfn) */
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct rb_node;

struct rb_root {
	struct rb_node *rb_node;
};

struct sock {
	struct sock_common __sk_common;
	struct rb_root tcp_rtx_queue;
	__u16 sk_protocol;
	struct socket *sk_socket;
	__u8 sk_shutdown;
	int sk_err;
	__u32 sk_pacing_status;
	unsigned long sk_pacing_rate; /* bytes per second */
	struct bpf_local_storage *sk_bpf_storage;
};

struct inet_connection_sock {
	__u8 icsk_ca_state : 5; /* a whole byte before 5.6 */
	__u8 icsk_retransmits;
	struct {
		__u32 lrcvtime; /* jiffies: when bytes came in last */
	} icsk_ack;
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct list_head {
	struct list_head *next;
	struct list_head *prev;
};

struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 write_seq;
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 snd_wnd;
	__u32 mss_cache;
	__u32 srtt_us; /* eight times the smoothed round trip, microseconds */
	__u32 packets_out;
	__u32 total_retrans;
	__u32 data_segs_out;
	__u64 bytes_received;
	__u64 bytes_acked;
	__u32 lsndtime; /* jiffies: when bytes were sent last */
	__u64 first_tx_mstamp; /* microseconds, CLOCK_MONOTONIC */
	__u64 delivered_mstamp; /* the same: when bytes were acknowledged last */
	__u64 tcp_mstamp; /* the same: when a segment came or went last */
	struct minmax rtt_min; /* microseconds */
	struct list_head tsorted_sent_queue;
	struct rb_root out_of_order_queue;
	__u8 chrono_type : 2;
	__u8 nonagle : 4;
};

/* Only what lies in sk_buff.cb while TCP owns the buffer (include/net/tcp.h). */
struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
	union {
		struct {
			__u16 tcp_gso_segs;
		};
	};
	__u8 sacked;
	__u32 ack_seq;
};

/* Where the flag byte lies; it is 16 bits wide since Linux 6.16, of which the
 * low byte is the same. */
struct tcp_skb_cb___flags {
	__u8 tcp_flags;
};

/* struct bio_vec before Linux 6.8; the members are read by their place. */
struct skb_frag {
};

struct skb_shared_info {
	__u8 nr_frags;
	struct skb_frag frags[1];
};

struct sk_buff {
	struct list_head tcp_tsorted_anchor;
	__u64 skb_mstamp_ns;
	unsigned int len;
	unsigned int data_len;
	unsigned int end; /* an offset from head on 64-bit machines */
	unsigned char *head;
	char cb[48];
};

struct iovec {
	void *iov_base;
	unsigned long iov_len;
};

struct iov_iter {
	__u8 iter_type;
	unsigned long iov_offset;
	unsigned long count;
	const struct iovec *__iov;
	void *ubuf;
};

struct msghdr {
	struct iov_iter msg_iter;
};

enum iter_type {
	ITER_UBUF,
	ITER_IOVEC,
};

struct bpf_map;
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

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
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

/* Context of cgroup/getpeername programs (include/uapi/linux/bpf.h): offsets are
 * fixed. */
struct bpf_sock;

struct bpf_sock_addr {
	__u32 user_family;
	__u32 user_ip4;
	__u32 user_ip6[4];
	__u32 user_port;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 msg_src_ip4;
	__u32 msg_src_ip6[4];
	struct bpf_sock *sk __attribute__((aligned(8)));
};

struct bpf_perf_event_data;

#endif
