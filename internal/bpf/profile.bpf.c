//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * CPU samples by process, with those counted apart whose kernel stack passes
 * through a function of interest. Works without hardware counters: the event
 * is the software CPU clock.
 */
#include "headers/kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define MAX_DEPTH 32
#define MAX_RANGES 4

struct range {
	__u64 start;
	__u64 end; /* exclusive */
};

/* Address ranges of the kernel functions that search for a free local port;
 * set before the program is loaded, zero when unused. */
volatile const struct range port_search[MAX_RANGES];

struct samples {
	__u64 all;
	__u64 port_search;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct samples);
} by_process SEC(".maps");

struct stack {
	__u64 ip[MAX_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack);
} scratch SEC(".maps");

__u64 lost_samples;

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	__u32 zero = 0;
	struct samples *s;
	struct stack *st;
	int found = 0;
	long size;

	if (tgid == 0)
		return 0; /* idle */
	st = bpf_map_lookup_elem(&scratch, &zero);
	if (!st)
		return 0;
	size = bpf_get_stack(ctx, st->ip, sizeof(st->ip), 0);
	for (int i = 0; i < MAX_DEPTH && i * 8 < size; i++) {
		__u64 ip = st->ip[i];

		for (int r = 0; r < MAX_RANGES; r++)
			if (ip >= port_search[r].start && ip < port_search[r].end)
				found = 1;
	}
	s = bpf_map_lookup_elem(&by_process, &tgid);
	if (!s) {
		struct samples fresh = {};

		bpf_get_current_comm(&fresh.comm, sizeof(fresh.comm));
		bpf_map_update_elem(&by_process, &tgid, &fresh, BPF_NOEXIST);
		s = bpf_map_lookup_elem(&by_process, &tgid);
		if (!s) {
			__sync_fetch_and_add(&lost_samples, 1);
			return 0;
		}
	}
	__sync_fetch_and_add(&s->all, 1);
	if (found)
		__sync_fetch_and_add(&s->port_search, 1);
	return 0;
}
