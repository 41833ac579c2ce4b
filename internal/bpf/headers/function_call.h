/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * What is done with one call: whether it may be seen at all, its arguments, its
 * CPU time, where it is counted, and how it is handed over.
 */
#ifndef SLOWRAY_FUNCTION_CALL_H
#define SLOWRAY_FUNCTION_CALL_H

#include "function.h"

struct sched_entity {
	__u64 sum_exec_runtime;
} __attribute__((preserve_access_index));

struct task_struct___running {
	struct sched_entity se;
	unsigned long nvcsw;
	unsigned long nivcsw;
} __attribute__((preserve_access_index));

/* How often the thread has left its CPU. In a call in which it never did, all
 * time is on the CPU. */
static __always_inline __u64 switches(void)
{
	struct task_struct___running *t = (void *)bpf_get_current_task();

	return BPF_CORE_READ(t, nvcsw) + BPF_CORE_READ(t, nivcsw);
}

/* CPU time of the thread, to the scheduler's last look: when it got its CPU, or
 * at the last tick. What came since cannot be had here: the clock that the
 * scheduler looked at differs from CPU to CPU. */
static __always_inline __u64 cpu_time(void)
{
	struct task_struct___running *t = (void *)bpf_get_current_task();

	return BPF_CORE_READ(t, se.sum_exec_runtime);
}

static __always_inline __u64 word_at(void *ctx, __u32 offset)
{
	__u64 v = 0;

	bpf_probe_read_kernel(&v, sizeof(v), ctx + offset);
	return v;
}

/* Whether this hit counts. Too many of them end it all. */
static __always_inline int admit(__u64 now)
{
	struct call *c;
	__u32 zero = 0;
	__u64 *n;

	if (!active)
		return 0;
	n = bpf_map_lookup_elem(&hits, &zero);
	if (n)
		__sync_fetch_and_add(n, 1);
	if (now - window_start > window_ns) {
		window_start = now;
		window_hits = 0;
	}
	__sync_fetch_and_add(&window_hits, 1);
	if (window_hits <= window_most)
		return 1;
	active = 0;
	tripped = now;
	/* A record of nothing, to wake who has to detach. */
	c = bpf_ringbuf_reserve(&calls, sizeof(*c), 0);
	if (c) {
		c->probe = ~0U;
		bpf_ringbuf_submit(c, BPF_RB_FORCE_WAKEUP);
	}
	return 0;
}

static __always_inline __u32 bucket_of(__u64 ns)
{
	__u32 e = 0, b;
	__u64 v = ns;

	if (ns < 1024)
		return ns >> 5;
	if (v >> 32) {
		e += 32;
		v >>= 32;
	}
	if (v >> 16) {
		e += 16;
		v >>= 16;
	}
	if (v >> 8) {
		e += 8;
		v >>= 8;
	}
	if (v >> 4) {
		e += 4;
		v >>= 4;
	}
	if (v >> 2) {
		e += 2;
		v >>= 2;
	}
	if (v >> 1)
		e += 1;
	b = ((e - 10 + 1) << 5) + ((ns >> ((e - 5) & 63)) & 31);
	return b < BUCKETS ? b : BUCKETS - 1;
}

static __always_inline struct sums *sums_of(__u32 probe) { return bpf_map_lookup_elem(&sums, &probe); }

static __always_inline void read_argument(void *ctx, const struct argument *a, struct value *v)
{
	__u64 n = 0;
	__u64 size;
	long got;

	v->number = 0;
	v->length = 0;
	if (a->where == NOWHERE) {
		v->length = -1;
		return;
	}
	if (a->where == CONSTANT) {
		n = a->offset;
	} else if (a->where == RECORD || a->where == RECORD_TEXT) {
		if (a->size == 8)
			bpf_probe_read_kernel(&n, 8, ctx + (__u32)a->offset);
		else if (a->size == 4)
			bpf_probe_read_kernel(&n, 4, ctx + (__u32)a->offset);
		else if (a->size == 2)
			bpf_probe_read_kernel(&n, 2, ctx + (__u32)a->offset);
		else
			bpf_probe_read_kernel(&n, 1, ctx + (__u32)a->offset);
		if (a->where == RECORD_TEXT || a->type == TEXT_LENGTH) {
			/* Within the record: at the place that __data_loc names, or here. */
			__u32 at = a->where == RECORD_TEXT ? (__u32)n & 0xffff : (__u32)a->offset;

			v->length = bpf_probe_read_kernel_str(v->text, MAX_STRING, ctx + at);
			return;
		}
	} else {
		n = word_at(ctx, a->reg);
		if (a->where == MEMORY) {
			__u64 at = n + a->offset;

			if (a->second != 0xffff)
				at += word_at(ctx, a->second) * a->scale;
			n = 0;
			if (a->size == 8)
				got = bpf_probe_read_user(&n, 8, (void *)at);
			else if (a->size == 4)
				got = bpf_probe_read_user(&n, 4, (void *)at);
			else if (a->size == 2)
				got = bpf_probe_read_user(&n, 2, (void *)at);
			else
				got = bpf_probe_read_user(&n, 1, (void *)at);
			if (got < 0) {
				v->length = -1;
				return;
			}
		}
	}
	v->number = n;
	if (a->type == TEXT) {
		v->length = bpf_probe_read_user_str(v->text, MAX_STRING, (void *)n);
	} else if (a->type == TEXT_LENGTH) {
		__u64 length = a->second == 0xffff ? 0 : word_at(ctx, a->second);

		v->length = length < MAX_STRING ? length : MAX_STRING;
		size = v->length - (v->length == MAX_STRING);
		/* The verifier of older kernels knows a bound by the mask only. */
		__asm__ volatile("%0 &= 127" : "+r"(size));
		got = bpf_probe_read_user(v->text, size, (void *)n);
		if (got < 0)
			v->length = got;
	}
}

static __always_inline void read_arguments(void *ctx, const struct site *s, struct values *into)
{
	int i;

#pragma unroll
	for (i = 0; i < MAX_ARGS; i++)
		if (i < s->nargs)
			read_argument(ctx, &s->args[i], &into->v[i]);
}

/* Counts for the thread, or for the process of goroutines, which go from thread
 * to thread; 0 ns of a call that has only begun. */
static __always_inline void count_thread(const struct site *s, __u64 pid_tgid, __u64 calls_more, __u64 ns)
{
	struct bystander_key key = { .probe = s->probe, .tid = s->flags & GOROUTINE ? pid_tgid >> 32 : pid_tgid };
	struct bystander *b = bpf_map_lookup_elem(&bystanders, &key);

	if (!b) {
		struct bystander fresh = { .tgid = pid_tgid >> 32 };

		bpf_get_current_comm(&fresh.comm, sizeof(fresh.comm));
		bpf_map_update_elem(&bystanders, &key, &fresh, BPF_NOEXIST);
		b = bpf_map_lookup_elem(&bystanders, &key);
		if (!b) {
			__sync_fetch_and_add(&lost_bystanders, 1);
			return;
		}
	}
	/* An addition of a constant 0 becomes an atomic OR, which kernels before
	 * 5.12 lack. */
	if (calls_more)
		__sync_fetch_and_add(&b->calls, calls_more);
	if (ns)
		__sync_fetch_and_add(&b->total, ns);
	if (ns > b->max)
		b->max = ns;
}

/* Hands a call to user space, by the place s where it ends or is passed. With it
 * go the values that were kept when it began, or those here and now. */
static __always_inline void record(void *ctx, void *stack, __u32 site, __u32 probe, __u64 pid_tgid, __u64 start,
				   __u64 duration, __u64 cpu, __u64 result, const struct site *s, int here,
				   struct values *values)
{
	struct call *c = bpf_ringbuf_reserve(&calls, sizeof(*c), 0);

	if (!c) {
		__sync_fetch_and_add(&lost_records, 1);
		return;
	}
	c->probe = probe;
	c->site = site;
	c->pid_tgid = pid_tgid;
	c->start = start;
	c->duration = duration;
	c->cpu = cpu;
	c->result = result;
	bpf_get_current_comm(&c->comm, sizeof(c->comm));
	c->user_bytes = 0;
	c->kernel_bytes = 0;
	c->caller = 0;
	if (with_stacks) {
		c->user_bytes = bpf_get_stack(stack, c->user, sizeof(c->user), BPF_F_USER_STACK);
		if (s->flags & IN_KERNEL)
			c->kernel_bytes = bpf_get_stack(stack, c->kernel, sizeof(c->kernel), 0);
		/* At its end a function has given its frame back already, and
		 * walking by frame pointers would miss its caller. */
		if (!here && s->flags & BY_STACK && !(s->flags & AFTER_RETURN)) {
			if (machine == X86_64)
				bpf_probe_read_user(&c->caller, sizeof(c->caller), (void *)word_at(ctx, reg_sp));
			else
				c->caller = word_at(ctx, LINK_REGISTER);
		}
	}
	c->with_values = with_args && (here || values);
	if (with_args && here)
		read_arguments(ctx, s, &c->values);
	else if (with_args && values)
		__builtin_memcpy(&c->values, values, sizeof(c->values));
	bpf_ringbuf_submit(c, BPF_RB_NO_WAKEUP);
}

static __always_inline void keep_interval(__u32 probe, __u64 pid_tgid, __u64 start, __u64 took)
{
	struct interval *v = bpf_ringbuf_reserve(&intervals, sizeof(*v), 0);

	if (!v) {
		__sync_fetch_and_add(&lost_intervals, 1);
		return;
	}
	v->pid_tgid = pid_tgid;
	v->start = start;
	v->duration = took;
	v->probe = probe;
	v->pad = 0;
	bpf_ringbuf_submit(v, BPF_RB_NO_WAKEUP);
}

#endif
