//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * CPU samples by process and kernel stack. Works without hardware counters:
 * the event is the software CPU clock. User space gives the stacks a meaning,
 * and only when there is a reason to: the kernel's symbol table is dear to read.
 */
#include "headers/kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define MAX_DEPTH 32

struct sample_key {
	__u32 tgid;
	__s32 stack; /* id in stacks; negative when the CPU was in user mode */
};

struct sample_count {
	__u64 samples;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct sample_key);
	__type(value, struct sample_count);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16384);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, MAX_DEPTH * sizeof(__u64));
} stacks SEC(".maps");

__u64 lost_samples;

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	struct sample_key key = { .tgid = bpf_get_current_pid_tgid() >> 32 };
	struct sample_count *c;

	if (key.tgid == 0)
		return 0; /* idle */
	key.stack = bpf_get_stackid(ctx, &stacks, 0);
	if (key.stack < 0)
		key.stack = -1;
	c = bpf_map_lookup_elem(&counts, &key);
	if (!c) {
		struct sample_count fresh = {};

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
