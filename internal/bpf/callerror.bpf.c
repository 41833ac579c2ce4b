//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * System calls that fail because something ran out that the host has to give: space,
 * memory, descriptors, a right. Counted by process, call and error, with what
 * the first one of them was about. A tracepoint of system calls makes each of
 * them slower, so user space attaches this for a part of the time only.
 */
#include "headers/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The registers that hold a system call's number and first arguments. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs___call_x86 {
	unsigned long orig_ax;
	unsigned long di;
	unsigned long si;
};

struct pt_regs___call_arm64 {
	__u64 regs[31];
	__u64 orig_x0;
	__s32 syscallno;
};

struct super_block {
	__u32 s_dev; /* major << 20 | minor */
};

struct inode___super {
	struct super_block *i_sb;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct path {
	struct dentry *dentry;
};

struct file___path {
	struct path f_path;
};

#pragma clang attribute pop

struct error_key {
	__u32 tgid;
	__u32 nr; /* number of the system call */
	__u32 error;
};

struct error_count {
	__u64 calls;
	__u64 args[2]; /* of the first one */
	__u32 tid; /* who made it */
	__u32 netns;
	__u32 device; /* of the file that the first argument of the first one stands for, or 0 */
	__u32 pad;
	char comm[16];
	char path[96]; /* what an argument of the first one points to, or the name of that file */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__type(key, struct error_key);
	__type(value, struct error_count);
} call_errors SEC(".maps");

#define MAX_CALLS 512
#define CALL_PATH0 1 /* the first argument is a path */
#define CALL_PATH1 2 /* the second one is */
#define CALL_FILE 8 /* the first argument is a descriptor */
#define CALL_ADDRESS 16 /* the second one is an address (sockaddr) */
#define CALL_AGAIN 4 /* EAGAIN means that a limit has been reached, not that it is to be asked later */

/* What is to be known of each system call of this machine. */
__u8 call_kinds[MAX_CALLS];

/* Failures not counted because the map was full. */
__u64 lost_errors;

#define EAGAIN 11

/* The errors below 128 that are counted, one bit each (asm-generic/errno.h):
 * EPERM 1, EIO 5, ENOMEM 12, EACCES 13, ENFILE 23, EMFILE 24, EFBIG 27,
 * ENOSPC 28, EROFS 30, EADDRINUSE 98, ENETUNREACH 101, EHOSTUNREACH 113,
 * ESTALE 116, EUCLEAN 117, EDQUOT 122. */
#define BIT(n) (1ULL << (n))
#define LOW_ERRORS (BIT(1) | BIT(5) | BIT(12) | BIT(13) | BIT(23) | BIT(24) | BIT(27) | BIT(28) | BIT(30))
#define HIGH_ERRORS (BIT(98 - 64) | BIT(101 - 64) | BIT(113 - 64) | BIT(116 - 64) | BIT(117 - 64) | BIT(122 - 64))

static __always_inline int counts(__u32 error)
{
	if (error < 64)
		return (LOW_ERRORS >> error) & 1;
	return error < 128 && ((HIGH_ERRORS >> (error - 64)) & 1);
}

/* describe_file notes which file a descriptor stands for. */
static __always_inline void describe_file(struct task_struct *task, __u32 fd, struct error_count *c)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files = BPF_CORE_READ(table, fd);
	struct file *file = NULL;
	struct dentry *dentry;
	struct inode *inode;

	if (fd >= BPF_CORE_READ(table, max_fds) || bpf_probe_read_kernel(&file, sizeof(file), &files[fd]) || !file)
		return;
	inode = BPF_CORE_READ(file, f_inode);
	c->device = BPF_CORE_READ((struct inode___super *)inode, i_sb, s_dev);
	dentry = BPF_CORE_READ((struct file___path *)file, f_path.dentry);
	bpf_probe_read_kernel_str(c->path, sizeof(c->path), BPF_CORE_READ(dentry, d_name.name));
}

/* raw_syscalls:sys_exit(struct pt_regs *regs, long ret) */
SEC("tp_btf/sys_exit")
int BPF_PROG(call_error, struct pt_regs *regs, long ret)
{
	struct error_key key = {};
	struct error_count *c, fresh = {};
	struct task_struct *task;
	__u64 id, args[2] = {};
	__u8 kind = 0;

	if (ret >= 0 || ret < -127 || (ret != -EAGAIN && !counts(-ret)))
		return 0;
	if (bpf_core_field_exists(((struct pt_regs___call_x86 *)regs)->orig_ax)) {
		key.nr = BPF_CORE_READ((struct pt_regs___call_x86 *)regs, orig_ax);
		args[0] = BPF_CORE_READ((struct pt_regs___call_x86 *)regs, di);
		args[1] = BPF_CORE_READ((struct pt_regs___call_x86 *)regs, si);
	} else if (bpf_core_field_exists(((struct pt_regs___call_arm64 *)regs)->syscallno)) {
		key.nr = (__u32)BPF_CORE_READ((struct pt_regs___call_arm64 *)regs, syscallno);
		args[0] = BPF_CORE_READ((struct pt_regs___call_arm64 *)regs, orig_x0);
		args[1] = BPF_CORE_READ((struct pt_regs___call_arm64 *)regs, regs[1]);
	} else {
		return 0;
	}
	if (key.nr < MAX_CALLS)
		kind = call_kinds[key.nr];
	if (ret == -EAGAIN && !(kind & CALL_AGAIN))
		return 0;
	id = bpf_get_current_pid_tgid();
	key.tgid = id >> 32;
	key.error = -ret;
	c = bpf_map_lookup_elem(&call_errors, &key);
	if (c) {
		__sync_fetch_and_add(&c->calls, 1);
		return 0;
	}
	task = (struct task_struct *)bpf_get_current_task();
	fresh.calls = 1;
	fresh.args[0] = args[0];
	fresh.args[1] = args[1];
	fresh.tid = (__u32)id;
	fresh.netns = BPF_CORE_READ(task, nsproxy, net_ns, ns.inum);
	bpf_get_current_comm(&fresh.comm, sizeof(fresh.comm));
	if (kind & CALL_PATH0)
		bpf_probe_read_user_str(fresh.path, sizeof(fresh.path), (void *)args[0]);
	else if (kind & CALL_PATH1)
		bpf_probe_read_user_str(fresh.path, sizeof(fresh.path), (void *)args[1]);
	else if (kind & CALL_ADDRESS) { /* sockaddr_in6 is the longest but for a unix path */
		if (bpf_probe_read_user(fresh.path, sizeof(fresh.path), (void *)args[1]))
			bpf_probe_read_user(fresh.path, 28, (void *)args[1]);
	} else if (kind & CALL_FILE)
		describe_file(task, (__u32)args[0], &fresh);
	if (bpf_map_update_elem(&call_errors, &key, &fresh, BPF_NOEXIST)) {
		c = bpf_map_lookup_elem(&call_errors, &key);
		if (c)
			__sync_fetch_and_add(&c->calls, 1);
		else
			__sync_fetch_and_add(&lost_errors, 1);
	}
	return 0;
}
