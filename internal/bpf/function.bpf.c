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

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_F_USER_STACK (1ULL << 8)
#define BPF_RB_NO_WAKEUP 1
#define BPF_RB_FORCE_WAKEUP 2

#define MAX_FRAMES 32
#define MAX_ARGS 4
#define MAX_STRING 128
#define MAX_STACK 64
#define BUCKETS 1280 /* observe.Histogram */

/* Machines. */
#define X86_64 1
#define ARM64 2

/* struct site.flags */
#define BY_STACK 1 /* entries are told apart by the stack pointer */
#define GOROUTINE 2 /* a thread is a goroutine, whose stack may move */
#define RESTARTS 4 /* the entry is passed again when the stack grows */
#define SINGLE 8 /* a thread is in one call at a time */
#define AFTER_RETURN 16 /* the return has taken the return address off the stack */
#define NO_CPU 32 /* the CPU time of a call is not known */
#define IN_KERNEL 64 /* the kernel's stack says something */

/* struct site.failed: what says that a call failed. */
#define FAILED_NEVER 0
#define FAILED_NEGATIVE 1 /* as a 32-bit or 64-bit number */
#define FAILED_NULL 2
#define FAILED_ERRNO 3 /* of system calls: -4095 to -1 */
#define FAILED_NONZERO 4 /* as a 32-bit number */

/* struct argument.where */
#define NOWHERE 0
#define REGISTER 1
#define MEMORY 2
#define CONSTANT 3
#define RECORD 4 /* in a tracepoint's record */
#define RECORD_TEXT 5 /* text in it, by the word that tells its place (__data_loc) */

/* struct argument.type */
#define NUMBER 0
#define TEXT 1 /* a pointer to text that ends with a zero */
#define TEXT_LENGTH 2 /* a pointer to text; its length is in the second register */

struct argument {
	__u8 where;
	__u8 type;
	__u8 size; /* bytes of a number in memory: 1, 2, 4, 8 */
	__u8 scale; /* of the index register */
	__u16 reg; /* where the register lies in the context, bytes */
	__u16 second; /* index register, or the register of a length; 0xffff = none */
	__s64 offset; /* of memory, or the constant */
};

struct site {
	__u32 probe;
	__u8 flags;
	__u8 failed;
	__u8 nargs;
	__u8 pad;
	struct argument args[MAX_ARGS];
};

struct value {
	__u64 number;
	__s32 length; /* of text; negative = it could not be read */
	__u32 pad;
	char text[MAX_STRING];
};

struct values {
	struct value v[MAX_ARGS];
};

struct frame {
	__u64 sp; /* a goroutine's: how deep in the stack */
	__u64 start; /* bpf_ktime_get_ns */
	__u64 cpu; /* of the thread */
	__u64 switches;
	__u32 site;
	__u32 probe;
};

struct thread_key {
	__u64 id; /* pid_tgid, or the goroutine */
	__u32 tgid;
	__u32 domain; /* 0 = by stack; otherwise 1 + the probe, or ~0 = system calls */
};

struct thread {
	__u64 pid_tgid;
	__u32 depth;
	__u32 pad;
	struct frame frames[MAX_FRAMES];
};

/* Entry n, which is known to be less than MAX_FRAMES: the compiler must not take
 * away the mask for that, by which the verifier knows it too. */
static __always_inline struct frame *frame_at(struct thread *t, __u32 n)
{
	__asm__ volatile("" : "+r"(n));
	return &t->frames[n & (MAX_FRAMES - 1)];
}

struct sums {
	__u64 calls;
	__u64 returns;
	__u64 total; /* ns, of calls that returned */
	__u64 cpu;
	__u64 max;
	__u64 failed;
	__u64 left; /* without a return */
	__u64 deep; /* not timed: too many calls within each other */
	__u64 early; /* returns of calls that began before */
	__u64 untimed; /* for want of room */
};

struct bystander_key {
	__u32 probe;
	__u32 tid;
};

struct bystander {
	__u64 calls;
	__u64 total;
	__u64 max;
	__u32 tgid;
	__u32 pad;
	char comm[16];
};

/* A call that was slow, or one of the first at a point. */
struct call {
	__u32 probe;
	__u32 site;
	__u64 pid_tgid;
	__u64 start;
	__u64 duration;
	__u64 cpu;
	__u64 result;
	__s32 user_bytes; /* of the stacks; negative = an error */
	__s32 kernel_bytes;
	char comm[16];
	__u64 with_values;
	__u64 caller; /* where the function returns to, when the stack begins in it; 0 = not there */
	__u64 user[MAX_STACK];
	__u64 kernel[MAX_STACK];
	struct values values;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading */
	__type(key, __u32);
	__type(value, struct site);
} sites SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32); /* 1 + site */
} syscall_sites SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* set before loading: probes */
	__type(key, __u32);
	__type(value, struct sums);
} sums SEC(".maps");

struct histogram {
	__u64 counts[BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading: probes */
	__type(key, __u32);
	__type(value, struct histogram);
} histograms SEC(".maps");

/* From how many nanoseconds on a call has a record. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading: probes */
	__type(key, __u32);
	__type(value, __u64);
} limits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct thread_key);
	__type(value, struct thread);
} threads SEC(".maps");

struct argument_key {
	struct thread_key thread;
	__u64 depth;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading */
	__type(key, struct argument_key);
	__type(value, struct values);
} arguments SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct bystander_key);
	__type(value, struct bystander);
} bystanders SEC(".maps");

/* What is too large for the stack: new entries of maps. Never written to, but
 * for the thread's number. */
struct scratch {
	struct thread thread;
	struct values values;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} calls SEC(".maps");

/* Calls that are long enough to matter to a request, when requests are asked
 * for. */
struct interval {
	__u64 pid_tgid;
	__u64 start;
	__u64 duration;
	__u32 probe;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* set before loading */
} intervals SEC(".maps");

const volatile __u64 interval_ns = ~0ULL; /* from how long on */
const volatile __u8 machine = X86_64;
const volatile __u8 with_cookie = 1;
const volatile __u8 with_args;
const volatile __u8 with_stacks = 1;
const volatile __u32 fixed_site; /* without cookies */
const volatile __u32 only_tgid; /* of tracepoints and system calls; 0 = all */
const volatile __u64 window_ns = 250000000;

/* Where registers lie in struct pt_regs. */
const volatile __u32 reg_sp = 152, reg_result = 80, reg_goroutine = 8;

__u32 active;
__u64 tripped; /* when there were too many hits, bpf_ktime_get_ns */
__u64 window_start;
__u64 window_hits;
__u64 window_most; /* hits in window_ns */
__u64 lost_records;
__u64 lost_intervals;
__u64 lost_bystanders;

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
	__u32 size = MAX_STRING;
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

		if (length < size)
			size = length;
		v->length = 0;
		if (size == 0)
			return;
		if (size > MAX_STRING)
			size = MAX_STRING;
		got = bpf_probe_read_user(v->text, size, (void *)n);
		v->length = got < 0 ? got : size;
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
			__sync_fetch_and_add(&lost_bystanders, calls_more);
			return;
		}
	}
	__sync_fetch_and_add(&b->calls, calls_more);
	__sync_fetch_and_add(&b->total, ns);
	if (ns > b->max)
		b->max = ns;
}

/* Hands a call to user space, by the place where it ends or is passed, with the values that were kept when it began, or
 * those here and now. */
static __always_inline void record(void *ctx, void *stack, __u32 site, __u32 probe, __u64 pid_tgid, __u64 start, __u64 duration,
				   __u64 cpu, __u64 result, const struct site *s, int here, struct values *values)
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
				c->caller = word_at(ctx, 30 * 8);
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
 * then that of the uprobe trampoline, in the last pages of the address space.
 * Otherwise the last one was left without a return.
 */
static __always_inline int is_tail_call(const struct site *s, __u64 sp)
{
	__u64 back = 0;

	if (machine != X86_64 || s->flags & GOROUTINE)
		return 1;
	bpf_probe_read_user(&back, sizeof(back), (void *)sp);
	return back >> 16 == 0x7fffffff || back >> 16 == 0xffffffffff;
}

/* Forgets calls that can be under way no more, as there is one at place. */
static __always_inline void drop_left(struct thread *t, const struct site *s, __u64 place)
{
	int i;

	for (i = 0; i < MAX_FRAMES; i++) {
		__u32 top = t->depth - 1;
		struct sums *sum;
		struct frame *f;

		if (top >= MAX_FRAMES)
			return;
		f = frame_at(t, top);
		if (f->sp > place || (f->sp == place && f->probe != s->probe && is_tail_call(s, place)))
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
		drop_left(t, s, place);
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

	return admit(now) ? entered(ctx, site_of(ctx), now) : 0;
}

SEC("uprobe")
int leave(void *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	struct site *s;
	__u32 number;

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

	if (!is_target())
		return 0;
	now = bpf_ktime_get_ns();
	return admit(now) ? passed(ctx, site_of(ctx), now) : 0;
}

struct bpf_raw_tracepoint_args {
	__u64 args[2];
};

#define PT_REGS_CS 136
#define USER32_CS 0x23

/* The site of a system call's number; 32-bit programs number theirs otherwise. */
static __always_inline __u32 *site_of_syscall(__u64 nr, void *regs)
{
	__u32 key = nr, *number;

	number = bpf_map_lookup_elem(&syscall_sites, &key);
	if (!number || !*number)
		return 0;
	if (machine == X86_64 && word_at(regs, PT_REGS_CS) == USER32_CS)
		return 0;
	return number;
}

SEC("raw_tracepoint/sys_enter")
int enter_syscall(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 *number;
	__u64 now;

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
