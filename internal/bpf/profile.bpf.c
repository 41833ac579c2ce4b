//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * CPU samples by thread, kernel stack and, of processes that user space asks
 * for, user stack. Works without hardware counters: the event is the software
 * CPU clock. User space gives the stacks a meaning, and only when there is a
 * reason to: symbol tables are expensive to read.
 */
#include "headers/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define MAX_DEPTH 32
#define BPF_F_USER_STACK (1ULL << 8)

/* What of a task headers/kernel.h does not need. */
struct task_struct___family {
	struct task_struct___family *real_parent;
	int tgid;
	int static_prio; /* 120 and the nice value */
} __attribute__((preserve_access_index));

#define USER_MODE -1 /* the CPU was not in the kernel */
#define NOT_KEPT -2 /* no room for the stack */

#define EFAULT 14

struct sample_key {
	__u32 tgid;
	__u32 tid;
	__s32 kernel; /* id in stacks, or one of the below */
	__s32 user;   /* id in user_stacks; negative when not taken or not kept */
};

struct sample_count {
	__u64 samples;
	__u32 parent; /* tgid */
	__s32 nice;
	char comm[16]; /* of the thread */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct sample_key);
	__type(value, struct sample_count);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16384);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, MAX_DEPTH * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16384);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, MAX_DEPTH * sizeof(__u64));
} user_stacks SEC(".maps");

/* Processes whose user stacks are taken, and those of their children. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} wanted SEC(".maps");

__u64 lost_samples;
__u64 lost_stacks;

#define DEFAULT_PRIO 120

static __always_inline __s32 user_stack(struct bpf_perf_event_data *ctx, __u32 tgid, __u32 parent)
{
	__s32 id;

	if (!bpf_map_lookup_elem(&wanted, &tgid) && !bpf_map_lookup_elem(&wanted, &parent))
		return -1;
	id = bpf_get_stackid(ctx, &user_stacks, BPF_F_USER_STACK);
	if (id >= 0)
		return id;
	__sync_fetch_and_add(&lost_stacks, 1);
	return -1;
}

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct sample_key key = { .tgid = id >> 32, .tid = (__u32)id };
	struct task_struct___family *task = (void *)bpf_get_current_task();
	struct sample_count *c;
	__u32 parent;

	if (key.tgid == 0)
		return 0; /* idle */
	parent = BPF_CORE_READ(task, real_parent, tgid);
	key.kernel = bpf_get_stackid(ctx, &stacks, 0);
	if (key.kernel == -EFAULT) {
		key.kernel = USER_MODE;
	} else if (key.kernel < 0) {
		key.kernel = NOT_KEPT;
		__sync_fetch_and_add(&lost_stacks, 1);
	}
	key.user = user_stack(ctx, key.tgid, parent);
	c = bpf_map_lookup_elem(&counts, &key);
	if (!c) {
		struct sample_count fresh = { .parent = parent };

		fresh.nice = BPF_CORE_READ(task, static_prio) - DEFAULT_PRIO;
		bpf_get_current_comm(&fresh.comm, sizeof(fresh.comm));
		bpf_map_update_elem(&counts, &key, &fresh, BPF_NOEXIST);
		c = bpf_map_lookup_elem(&counts, &key);
		if (!c) {
			__sync_fetch_and_add(&lost_samples, 1);
			return 0;
		}
	}
	__sync_fetch_and_add(&c->samples, 1);
	return 0;
}
