//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Calls of functions: how many there are, how long they take, and the slowest
 * of them with arguments and stacks. User space decides where the programs are
 * attached, and describes each place in `sites`; a place has its number as
 * cookie, or, where the kernel has no cookies, as a constant of its own copy of
 * the program.
 *
 * A call is an entry in the list of its thread. A return belongs to the entry
 * of the same function with the same stack pointer. What lies deeper in the
 * stack by then, or when another function is entered above it, was left without
 * a return: by longjmp(), an exception, or a thread's end.
 */
#include "headers/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "headers/function.h"
#include "headers/function_call.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline void set_key(struct thread_key *key, void *ctx, const struct site *s, __u64 pid_tgid)
{
	key->tgid = pid_tgid >> 32;
	key->id = s->flags & GOROUTINE ? word_at(ctx, reg_goroutine) : pid_tgid;
	key->domain = s->flags & BY_STACK ? 0 : s->flags & SINGLE ? ~0U : s->probe + 1;
}

/* Where in the stack a call is: what stays the same from its entry to its
 * return. A goroutine's stack may be copied to another place, but its end is
 * copied with it (runtime/stack.go); its bounds are the first two words of g. */
static __always_inline __u64 place_of(void *ctx, const struct site *s, __u64 goroutine)
{
	__u64 sp, end = 0;

	if (!(s->flags & BY_STACK))
		return 0;
	sp = word_at(ctx, reg_sp);
	if (s->flags & GOROUTINE) {
		bpf_probe_read_user(&end, sizeof(end), (void *)(goroutine + 8));
		/* as all others: what is called has the smaller number */
		return (1ULL << 62) - (end - sp);
	}
	if (s->flags & AFTER_RETURN && machine == X86_64)
		sp -= 8;
	return sp;
}

/*
 * Whether an entry at the place of the last one is a jump from that function
 * (a tail call), which leaves both to be returned from. The return address is
 * then that of the uprobe trampoline, in the last pages of the address space, which
 * has 2^36 to 2^56 bytes. Otherwise the last one was left without a return.
 */
static __always_inline int is_tail_call(void *ctx, const struct site *s, __u64 sp)
{
	__u64 back = 0;

	if (s->flags & GOROUTINE)
		return 1;
	if (machine == X86_64)
		bpf_probe_read_user(&back, sizeof(back), (void *)sp);
	else
		back = word_at(ctx, LINK_REGISTER);
	back >>= 16;
	return back >= (1 << 20) - 1 && !(back & (back + 1));
}

/* Forgets calls that can be under way no more, as there is one at place. */
static __always_inline void drop_left(void *ctx, struct thread *t, const struct site *s, __u64 place)
{
	int i;

	for (i = 0; i < MAX_FRAMES; i++) {
		__u32 top = t->depth - 1;
		struct sums *sum;
		struct frame *f;

		if (top >= MAX_FRAMES)
			return;
		f = frame_at(t, top);
		if (f->sp > place || (f->sp == place && f->probe != s->probe && is_tail_call(ctx, s, place)))
			return;
		sum = sums_of(f->probe);
		if (sum)
			__sync_fetch_and_add(&sum->left, 1);
		t->depth = top;
	}
}

static __always_inline int entered(void *ctx, __u32 number, __u64 now)
{
	struct site *s = bpf_map_lookup_elem(&sites, &number);
	__u64 pid_tgid = bpf_get_current_pid_tgid(), place;
	struct scratch *scratch;
	struct values *values;
	struct thread_key key;
	struct thread *t;
	struct frame *f;
	struct sums *sum;
	__u32 zero = 0, depth;

	if (!s)
		return 0;
	sum = sums_of(s->probe);
	if (!sum)
		return 0;
	scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!scratch)
		return 0;
	set_key(&key, ctx, s, pid_tgid);
	place = place_of(ctx, s, key.id);
	t = bpf_map_lookup_elem(&threads, &key);
	if (!t) {
		scratch->thread.pid_tgid = pid_tgid;
		bpf_map_update_elem(&threads, &key, &scratch->thread, BPF_NOEXIST);
		t = bpf_map_lookup_elem(&threads, &key);
	} else if (s->flags & SINGLE && t->depth > 0) {
		struct sums *before = sums_of(frame_at(t, 0)->probe);

		if (before)
			__sync_fetch_and_add(&before->left, 1);
		t->depth = 0;
	} else if (s->flags & BY_STACK) {
		__u32 top = t->depth - 1;

		if (s->flags & RESTARTS && top < MAX_FRAMES && frame_at(t, top)->sp == place &&
		    frame_at(t, top)->probe == s->probe)
			return 0;
		drop_left(ctx, t, s, place);
	}
	__sync_fetch_and_add(&sum->calls, 1);
	count_thread(s, pid_tgid, 1, 0);
	if (!t) {
		__sync_fetch_and_add(&sum->untimed, 1);
		return 0;
	}
	depth = t->depth;
	if (depth >= MAX_FRAMES) {
		__sync_fetch_and_add(&sum->deep, 1);
		return 0;
	}
	f = frame_at(t, depth);
	f->sp = place;
	f->site = number;
	f->probe = s->probe;
	if (!(s->flags & NO_CPU)) {
		f->cpu = cpu_time();
		f->switches = switches();
	}
	if (with_args && s->nargs) {
		struct argument_key at = { .thread = key, .depth = depth };

		bpf_map_update_elem(&arguments, &at, &scratch->values, BPF_ANY);
		values = bpf_map_lookup_elem(&arguments, &at);
		if (values)
			read_arguments(ctx, s, values);
	}
	t->pid_tgid = pid_tgid;
	f->start = now;
	t->depth = depth + 1;
	return 0;
}

static __always_inline int has_failed(const struct site *s, __u64 result)
{
	switch (s->failed) {
	case FAILED_NEGATIVE:
		return (__s32)result < 0;
	case FAILED_NULL:
		return result == 0;
	case FAILED_ERRNO:
		return (__s64)result < 0 && (__s64)result >= -4095;
	case FAILED_NONZERO:
		return (__u32)result != 0;
	}
	return 0;
}

/* The entry that a return belongs to, or MAX_FRAMES. */
static __always_inline __u32 find(struct thread *t, __u32 probe, __u64 place)
{
	struct frame *f;
	int i;

	for (i = 1; i <= MAX_FRAMES; i++) {
		__u32 n = t->depth - i;

		if (n >= MAX_FRAMES)
			return MAX_FRAMES;
		f = frame_at(t, n);
		if (f->sp == place && f->probe == probe)
			return n;
		if (f->sp > place)
			return MAX_FRAMES;
	}
	return MAX_FRAMES;
}

/* ctx has the registers; stack is what the program was called with. */
static __always_inline int left(void *ctx, void *stack, struct site *s, __u64 now, __u64 result)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), place, took, cpu = 0, *limit;
	struct values *values = 0;
	struct histogram *h;
	struct thread_key key;
	struct thread *t;
	struct sums *sum;
	struct frame *f;
	__u32 n, b, probe, i;

	set_key(&key, ctx, s, pid_tgid);
	place = place_of(ctx, s, key.id);
	t = bpf_map_lookup_elem(&threads, &key);
	n = t ? find(t, s->probe, place) : MAX_FRAMES;
	if (!t || n >= MAX_FRAMES) {
		/* Deeper than what is kept is no loss but that one. */
		if (!t || t->depth < MAX_FRAMES || (frame_at(t, MAX_FRAMES - 1)->sp <= place && place)) {
			sum = sums_of(s->probe);
			if (sum)
				__sync_fetch_and_add(&sum->early, 1);
		}
		return 0;
	}
	for (i = 0; i < MAX_FRAMES; i++) {
		__u32 above = n + 1 + i;

		if (above >= MAX_FRAMES || above >= t->depth)
			break;
		sum = sums_of(frame_at(t, above)->probe);
		if (sum)
			__sync_fetch_and_add(&sum->left, 1);
	}
	f = frame_at(t, n);
	probe = f->probe;
	sum = sums_of(probe);
	if (!sum)
		return 0;
	took = now - f->start;
	if (now < f->start)
		took = 0;
	if (!(s->flags & NO_CPU)) {
		cpu = f->switches == switches() ? took : cpu_time() - f->cpu;
		if (cpu > took)
			cpu = took;
	}
	__sync_fetch_and_add(&sum->returns, 1);
	__sync_fetch_and_add(&sum->total, took);
	if (cpu) /* as in count_thread */
		__sync_fetch_and_add(&sum->cpu, cpu);
	if (took > sum->max)
		sum->max = took;
	if (has_failed(s, result))
		__sync_fetch_and_add(&sum->failed, 1);
	h = bpf_map_lookup_elem(&histograms, &probe);
	b = bucket_of(took);
	if (h && b < BUCKETS)
		__sync_fetch_and_add(&h->counts[b], 1);
	count_thread(s, pid_tgid, 0, took);
	if (took >= interval_ns)
		keep_interval(probe, pid_tgid, f->start, took);
	limit = bpf_map_lookup_elem(&limits, &probe);
	if (with_args && s->nargs) {
		struct argument_key at = { .thread = key, .depth = n };

		values = bpf_map_lookup_elem(&arguments, &at);
		if (limit && took >= *limit)
			record(ctx, stack, f->site, probe, pid_tgid, f->start, took, cpu, result, s, 0, values);
		bpf_map_delete_elem(&arguments, &at);
	} else if (limit && took >= *limit) {
		record(ctx, stack, f->site, probe, pid_tgid, f->start, took, cpu, result, s, 0, 0);
	}
	t->depth = n;
	if (n == 0)
		bpf_map_delete_elem(&threads, &key);
	return 0;
}

/* A place that is passed: no end, no duration. */
static __always_inline int passed(void *ctx, __u32 number, __u64 now)
{
	struct site *s = bpf_map_lookup_elem(&sites, &number);
	__u64 pid_tgid = bpf_get_current_pid_tgid(), *limit;
	struct sums *sum;

	if (!s)
		return 0;
	sum = sums_of(s->probe);
	if (!sum)
		return 0;
	__sync_fetch_and_add(&sum->calls, 1);
	count_thread(s, pid_tgid, 1, 0);
	limit = bpf_map_lookup_elem(&limits, &s->probe);
	if (!limit || *limit)
		return 0; /* there are enough examples */
	record(ctx, ctx, number, s->probe, pid_tgid, now, 0, 0, 0, s, 1, 0);
	return 0;
}

static __always_inline __u32 site_of(void *ctx)
{
	return with_cookie ? bpf_get_attach_cookie(ctx) : fixed_site;
}

SEC("uprobe")
int enter(void *ctx)
{
	__u64 now = bpf_ktime_get_ns();

	KEEP_OWN_STACK(ctx, nowhere_uprobe);
	return admit(now) ? entered(ctx, site_of(ctx), now) : 0;
}

SEC("uprobe")
int leave(void *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	struct site *s;
	__u32 number;

	KEEP_OWN_STACK(ctx, nowhere_uprobe);
	if (!admit(now))
		return 0;
	number = site_of(ctx);
	s = bpf_map_lookup_elem(&sites, &number);
	return s ? left(ctx, ctx, s, now, word_at(ctx, reg_result)) : 0;
}

SEC("uprobe")
int pass(void *ctx)
{
	__u64 now = bpf_ktime_get_ns();

	KEEP_OWN_STACK(ctx, nowhere_uprobe);
	return admit(now) ? passed(ctx, site_of(ctx), now) : 0;
}

static __always_inline int is_target(void)
{
	return !only_tgid || bpf_get_current_pid_tgid() >> 32 == only_tgid;
}

SEC("tracepoint")
int pass_tracepoint(void *ctx)
{
	__u64 now;

	KEEP_OWN_STACK(ctx, nowhere_tracepoint);
	if (!is_target())
		return 0;
	now = bpf_ktime_get_ns();
	return admit(now) ? passed(ctx, site_of(ctx), now) : 0;
}

struct bpf_raw_tracepoint_args {
	__u64 args[2];
};

#define PT_REGS_CS 136 /* x86-64 */
#define USER32_CS 0x23
#define PT_REGS_PSTATE 264 /* arm64 */
#define PSR_MODE32_BIT 0x10

/* The site of a system call's number; 32-bit programs number theirs otherwise. */
static __always_inline __u32 *site_of_syscall(__u64 nr, void *regs)
{
	__u32 key = nr, *number;

	number = bpf_map_lookup_elem(&syscall_sites, &key);
	if (!number || !*number)
		return 0;
	if (machine == X86_64 && word_at(regs, PT_REGS_CS) == USER32_CS)
		return 0;
	if (machine == ARM64 && word_at(regs, PT_REGS_PSTATE) & PSR_MODE32_BIT)
		return 0;
	return number;
}

SEC("raw_tracepoint/sys_enter")
int enter_syscall(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 *number;
	__u64 now;

	KEEP_OWN_STACK(ctx, nowhere_raw);
	if (!is_target())
		return 0;
	number = site_of_syscall(ctx->args[1], (void *)ctx->args[0]);
	if (!number)
		return 0;
	now = bpf_ktime_get_ns();
	return admit(now) ? entered((void *)ctx->args[0], *number - 1, now) : 0;
}

SEC("raw_tracepoint/sys_exit")
int leave_syscall(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), now;
	struct thread_key key = { .id = pid_tgid, .tgid = pid_tgid >> 32, .domain = ~0U };
	struct thread *t;
	struct site *s;
	__u32 number;

	KEEP_OWN_STACK(ctx, nowhere_raw);
	if (!is_target())
		return 0;
	t = bpf_map_lookup_elem(&threads, &key);
	if (!t || !t->depth)
		return 0;
	now = bpf_ktime_get_ns();
	if (!admit(now))
		return 0;
	number = t->frames[0].site;
	s = bpf_map_lookup_elem(&sites, &number);
	return s ? left((void *)ctx->args[0], ctx, s, now, ctx->args[1]) : 0;
}
