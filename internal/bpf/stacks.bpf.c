//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Call stacks of threads, on the CPU and off it.
 *
 * On the CPU: the software CPU clock interrupts each CPU so many times a
 * second; what ran there leaves a record. Off it: where a thread leaves the CPU
 * its user stack is kept, because only there its memory can be read; the kernel
 * stack does not change while it waits, and is taken when it comes back after
 * long enough. Time off the CPU is cut where the thread is woken: before, it
 * was blocked; after, it wanted a CPU.
 *
 * Records go into one ring that user space empties several times a second. It
 * is woken only for a process that was not seen before, whose memory map it
 * must read before the process ends.
 */
#include "headers/kernel.h"
#include "headers/caller.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define KERNEL_DEPTH 64
#define USER_DEPTH 127 /* kernel.perf_event_max_stack, as it is by default */
#define USER_BYTES (USER_DEPTH * 8) /* a mask: no bit is missing between its first and last */

#define BPF_MAP_TYPE_PROG_ARRAY 3
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_F_USER_STACK (1ULL << 8)
#define BPF_RB_NO_WAKEUP 1
#define BPF_RB_FORCE_WAKEUP 2

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */
#define GONE 0x80 /* TASK_DEAD */

enum kind {
	ON_CPU = 1,
	OFF_CPU = 2,
	EXECUTED = 3,
};

/* What a thread was doing. ips holds kernel frames, then user frames, each
 * leaf first. */
struct record {
	__u64 time; /* off the CPU: since when */
	__u64 blocked; /* ns until it was woken */
	__u64 runnable; /* ns from then until it ran */
	__u64 caller; /* of the innermost user frame, if it has not put it elsewhere */
	__u32 tgid;
	__u32 tid;
	__u16 kind;
	__u16 kernel_frames;
	__u16 user_frames;
	__u16 flags;
	char comm[16];
	__u64 ips[KERNEL_DEPTH + USER_DEPTH];
};

#define HEADER __builtin_offsetof(struct record, ips)
#define KTHREAD 1 /* flags */
#define NO_KERNEL_STACK 2

/* A thread that is off the CPU, or was (time is 0 while it runs). */
struct parked {
	__u64 time;
	__u64 woken;
	__u64 caller; /* as in record */
	__u32 state; /* 0: it still wanted to run */
	__u32 user; /* bytes of ips */
	__u32 tgid;
	__u16 flags; /* as in record */
	__u16 deep; /* its stack is worth unwinding in full */
	char comm[16];
	__u64 ips[USER_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4); /* scheduler, interrupt, exec, and the one that stays empty */
	__type(key, __u32);
	__type(value, struct record);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32); /* tid */
	__type(value, struct parked);
} off SEC(".maps");

/* Processes that are looked at, when not all are. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32); /* tgid */
	__type(value, __u8);
} targets SEC(".maps");

/* Processes that user space knows. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32); /* tgid */
	__type(value, __u8);
} seen SEC(".maps");

/* A program that unwinds stacks in full, with the frames of interpreters; empty
 * when there is none. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} unwinder SEC(".maps");

/* How a thread's waits at one place were: how many more short ones it takes
 * until they are no longer expected to be long. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u32);
} habits SEC(".maps");

struct allowance {
	__u64 window;
	__u32 used;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct allowance);
} allowances SEC(".maps");

/* Kernels name the state of a task differently: __state since Linux 5.14. */
struct task_struct___stacks {
	int pid;
	int tgid;
	unsigned int flags;
	char comm[16];
	unsigned int __state;
} __attribute__((preserve_access_index));

struct task_struct___before_5_14 {
	long state;
} __attribute__((preserve_access_index));

const volatile __u8 some_pids;
const volatile __u8 has_prev_state; /* sched_switch tells the state: since Linux 5.18 */
const volatile __u8 has_task_stack; /* a stack of another task can be had here */
const volatile __u32 self; /* this tgid is left out */
const volatile __u64 min_ns;
const volatile __u8 has_unwinder;
const volatile __u8 with_waits; /* the scheduler's programs are attached */

__u64 lost_records; /* the ring was full */
__u64 lost_threads; /* times a thread left the CPU and there was no room to keep it */
__u64 lost_children; /* processes that were started and are not followed */

static __always_inline int wanted(__u32 tgid)
{
	if (some_pids)
		return bpf_map_lookup_elem(&targets, &tgid) != 0;
	return tgid != self;
}

/* Hands a record over: header, and so many bytes of frames. */
static __always_inline void submit(struct record *r, __u64 bytes)
{
	__u64 wake = BPF_RB_NO_WAKEUP;
	__u32 tgid = r->tgid;
	__u8 one = 1;

	if (!bpf_map_lookup_elem(&seen, &tgid)) {
		bpf_map_update_elem(&seen, &tgid, &one, BPF_ANY);
		wake = BPF_RB_FORCE_WAKEUP;
	}
	if (bytes > sizeof(r->ips))
		return;
	if (bpf_ringbuf_output(&records, r, HEADER + bytes, wake))
		__sync_fetch_and_add(&lost_records, 1);
}

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct record *r;
	__u32 slot = 1;
	long kernel, user;

	if (!(__u32)id || !wanted(id >> 32))
		return 0;
	r = bpf_map_lookup_elem(&scratch, &slot);
	if (!r)
		return 0;
	r->time = bpf_ktime_get_ns();
	r->blocked = r->runnable = r->caller = 0;
	r->tgid = id >> 32;
	r->tid = id;
	r->kind = ON_CPU;
	r->flags = 0;
	bpf_get_current_comm(&r->comm, sizeof(r->comm));
	kernel = bpf_get_stack(ctx, r->ips, KERNEL_DEPTH * 8, 0);
	if (kernel < 0)
		kernel = 0;
	user = bpf_get_stack(ctx, (void *)r->ips + kernel, USER_DEPTH * 8, BPF_F_USER_STACK);
	if (user < 0) {
		struct task_struct___stacks *task = (void *)bpf_get_current_task();

		user = 0;
		if (BPF_CORE_READ(task, flags) & PF_KTHREAD)
			r->flags |= KTHREAD;
	} else {
		r->caller = left_by_call();
	}
	r->kernel_frames = kernel / 8;
	r->user_frames = user / 8;
	submit(r, kernel + user);
	if (!(r->flags & KTHREAD))
		bpf_tail_call(ctx, &unwinder, 0);
	return 0;
}

/* The software event of a context switch, which comes after the tracepoint and
 * before the switch. */
SEC("perf_event")
int leaving(struct bpf_perf_event_data *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct parked *p = bpf_map_lookup_elem(&off, &tid);

	if (p && p->time && p->deep)
		bpf_tail_call(ctx, &unwinder, 0);
	return 0;
}

#define SHORT_ONES 64 /* until waits at a place are no longer expected to be long */
#define WINDOW_SHIFT 27 /* 2^27 ns = 0.13 s */
#define ANY_WAITS 64 /* in a window on one CPU, whatever is expected */
#define LONG_WAITS 384 /* those that are expected to be long */

/* What tells a thread's waits at one place from its others. */
static __always_inline __u64 place(__u32 tid, struct parked *p)
{
	return ((__u64)tid << 40) ^ p->ips[0] ^ (p->user > 8 ? p->ips[1] * 31 : 0);
}

/* Whether a wait that begins is worth unwinding: few are anyway. Of many, those
 * that were long before at this place. */
static __always_inline int worthwhile(__u32 tid, struct parked *p, __u64 now)
{
	__u64 at = place(tid, p);
	__u32 zero = 0, *left;
	struct allowance *a = bpf_map_lookup_elem(&allowances, &zero);

	if (!a)
		return 0;
	if (a->window != now >> WINDOW_SHIFT) {
		a->window = now >> WINDOW_SHIFT;
		a->used = 0;
	}
	if (a->used >= LONG_WAITS)
		return 0;
	if (a->used >= ANY_WAITS) {
		left = bpf_map_lookup_elem(&habits, &at);
		if (left && !*left)
			return 0;
	}
	a->used++;
	return 1;
}

/* Remembers how long a wait was. */
static __always_inline void learn(__u32 tid, struct parked *p, int is_long)
{
	__u64 at = place(tid, p);
	__u32 *left = bpf_map_lookup_elem(&habits, &at), fresh = SHORT_ONES;

	if (!left)
		bpf_map_update_elem(&habits, &at, &fresh, BPF_ANY);
	else if (is_long)
		*left = SHORT_ONES;
	else if (*left)
		--*left;
}

/* The entry of a thread, made when there is none. */
static __always_inline struct parked *parked_of(__u32 tid)
{
	struct parked *p = bpf_map_lookup_elem(&off, &tid);
	/* No room for the value on the stack: a record that is never written to
	 * is as good. */
	__u32 empty = 3;
	struct record *zero;

	if (p)
		return p;
	zero = bpf_map_lookup_elem(&scratch, &empty);
	if (!zero || bpf_map_update_elem(&off, &tid, zero, BPF_ANY)) {
		__sync_fetch_and_add(&lost_threads, 1);
		return 0;
	}
	return bpf_map_lookup_elem(&off, &tid);
}

/* Keeps where a thread leaves the CPU. */
static __always_inline void leaves(__u64 *ctx, struct task_struct___stacks *prev, __u64 now)
{
	__u32 tid = prev->pid, state;
	struct parked *p;
	long user = 0;

	if (has_prev_state)
		state = ctx[3];
	else if (bpf_core_field_exists(prev->__state))
		state = prev->__state;
	else
		state = ((struct task_struct___before_5_14 *)prev)->state;
	if (ctx[0])
		state = 0; /* preempted, whatever it was about to do */
	if (state & GONE) {
		bpf_map_delete_elem(&off, &tid);
		return;
	}
	p = parked_of(tid);
	if (!p)
		return;
	if (!(prev->flags & PF_KTHREAD)) {
		user = bpf_get_stack(ctx, p->ips, sizeof(p->ips), BPF_F_USER_STACK);
		if (user < 0)
			user = 0;
	}
	p->caller = user ? left_by_call() : 0;
	p->user = user;
	p->deep = has_unwinder && !(prev->flags & PF_KTHREAD) && worthwhile(tid, p, now);
	p->state = state;
	p->tgid = prev->tgid;
	p->flags = prev->flags & PF_KTHREAD ? KTHREAD : 0;
	bpf_probe_read_kernel(&p->comm, sizeof(p->comm), &prev->comm);
	p->woken = 0;
	p->time = now;
}

/* The kernel's frames of a thread that does not run; their bytes. */
static __always_inline long kernel_stack(__u64 *ctx, struct record *r)
{
	long bytes;

	if (!has_task_stack) {
		r->flags |= NO_KERNEL_STACK;
		return 0;
	}
	bytes = bpf_get_task_stack((struct task_struct *)ctx[2], r->ips, KERNEL_DEPTH * 8, 0);
	return bytes < 0 ? 0 : bytes;
}

/* Tells of a thread that was off the CPU already when the programs were
 * attached: since when is not known, and of its stack only the kernel's part. */
static __always_inline void appears(__u64 *ctx, struct task_struct___stacks *next, __u64 now)
{
	__u32 slot = 0;
	struct record *r = bpf_map_lookup_elem(&scratch, &slot);
	long kernel;

	if (!r || lost_threads) /* it may be one for which there was no room */
		return;
	r->time = r->caller = 0;
	r->blocked = now;
	r->runnable = 0;
	r->tgid = next->tgid;
	r->tid = next->pid;
	r->kind = OFF_CPU;
	r->flags = next->flags & PF_KTHREAD ? KTHREAD : 0;
	bpf_probe_read_kernel(&r->comm, sizeof(r->comm), &next->comm);
	kernel = kernel_stack(ctx, r);
	r->kernel_frames = kernel / 8;
	r->user_frames = 0;
	submit(r, kernel);
}

/* Tells of a thread that comes back to the CPU after long enough. */
static __always_inline void returns(__u64 *ctx, struct task_struct___stacks *next, __u64 now)
{
	__u32 tid = next->pid, slot = 0;
	struct parked *p = bpf_map_lookup_elem(&off, &tid);
	long kernel;
	struct record *r;
	__u32 user;
	__u64 since;

	if (!p) {
		appears(ctx, next, now);
		return;
	}
	if (!p->time)
		return;
	since = p->time;
	p->time = 0;
	if (has_unwinder && !(p->flags & KTHREAD))
		learn(tid, p, now - since >= min_ns);
	if (now - since < min_ns)
		return;
	r = bpf_map_lookup_elem(&scratch, &slot);
	if (!r)
		return;
	r->time = since;
	r->caller = p->caller;
	r->blocked = r->runnable = 0;
	if (!p->state)
		r->runnable = now - since;
	else if (p->woken > since && p->woken < now) {
		r->blocked = p->woken - since;
		r->runnable = now - p->woken;
	} else
		r->blocked = now - since;
	r->tgid = p->tgid;
	r->tid = tid;
	r->kind = OFF_CPU;
	r->flags = p->flags;
	__builtin_memcpy(&r->comm, &p->comm, sizeof(r->comm));
	kernel = kernel_stack(ctx, r);
	user = p->user & USER_BYTES; /* a bound that old verifiers understand */
	if (user && bpf_probe_read_kernel((void *)r->ips + kernel, user, p->ips))
		user = 0;
	r->kernel_frames = kernel / 8;
	r->user_frames = user / 8;
	submit(r, kernel + user);
}

/* (bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state) */
SEC("tp_btf/sched_switch")
int switched(__u64 *ctx)
{
	struct task_struct___stacks *prev = (void *)ctx[1], *next = (void *)ctx[2];
	__u64 now = bpf_ktime_get_ns();

	if (prev->pid && wanted(prev->tgid))
		leaves(ctx, prev, now);
	if (next->pid && wanted(next->tgid))
		returns(ctx, next, now);
	return 0;
}

/* (struct task_struct *p) */
SEC("tp_btf/sched_waking")
int woken(__u64 *ctx)
{
	struct task_struct___stacks *task = (void *)ctx[0];
	__u32 tid = task->pid;
	struct parked *p = bpf_map_lookup_elem(&off, &tid);

	if (p && p->time && !p->woken)
		p->woken = bpf_ktime_get_ns();
	return 0;
}

/* (struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm): the memory
 * map that user space knows is no longer that of the process. */
SEC("tp_btf/sched_process_exec")
int executed(__u64 *ctx)
{
	struct task_struct___stacks *task = (void *)ctx[0];
	__u32 tgid = task->tgid, slot = 2;
	struct record *r;

	if (!wanted(tgid) || !bpf_map_lookup_elem(&seen, &tgid))
		return 0;
	r = bpf_map_lookup_elem(&scratch, &slot);
	if (!r)
		return 0;
	r->time = bpf_ktime_get_ns();
	r->caller = 0;
	r->tgid = tgid;
	r->tid = task->pid;
	r->kind = EXECUTED;
	r->kernel_frames = r->user_frames = r->flags = 0;
	if (bpf_ringbuf_output(&records, r, HEADER, BPF_RB_FORCE_WAKEUP))
		__sync_fetch_and_add(&lost_records, 1);
	return 0;
}

/* (struct task_struct *parent, struct task_struct *child): what a process that
 * is looked at starts is looked at too. A thread that is new wants a CPU. */
SEC("tp_btf/sched_process_fork")
int forked(__u64 *ctx)
{
	struct task_struct___stacks *parent = (void *)ctx[0], *child = (void *)ctx[1];
	__u32 of = parent->tgid, tgid = child->tgid;
	struct parked *p;
	__u8 one = 1;

	if (some_pids && of != tgid && bpf_map_lookup_elem(&targets, &of) &&
	    bpf_map_update_elem(&targets, &tgid, &one, BPF_ANY))
		__sync_fetch_and_add(&lost_children, 1);
	if (!with_waits || !wanted(tgid))
		return 0;
	p = parked_of(child->pid);
	if (!p)
		return 0;
	p->tgid = tgid;
	p->flags = child->flags & PF_KTHREAD ? KTHREAD : 0;
	bpf_probe_read_kernel(&p->comm, sizeof(p->comm), &child->comm);
	p->user = p->state = p->deep = p->woken = p->caller = 0;
	p->time = bpf_ktime_get_ns();
	return 0;
}
