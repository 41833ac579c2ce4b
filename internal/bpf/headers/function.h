/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * What the programs that watch functions share with user space: the places, the
 * threads with the calls that they are in, and what is counted. The structures
 * have their like in internal/sense/function/layout.go.
 */
#ifndef SLOWRAY_FUNCTION_H
#define SLOWRAY_FUNCTION_H

#define BPF_MAP_TYPE_PROG_ARRAY 3
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
#define LINK_REGISTER (30 * 8) /* of arm64, in struct pt_regs */

/* struct site.flags */
#define BY_STACK 1 /* entries are distinguished by the stack pointer */
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
	__s32 length; /* of text; MAX_STRING = it is cut by at least one byte; negative = it could not be read */
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
	__u64 untimed; /* without room */
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
	__uint(max_entries, 1 << 16); /* set before loading; at least the largest page there is */
} intervals SEC(".maps");

const volatile __u64 interval_ns = ~0ULL; /* from how long on */
/*
 * From Linux 6.13 on programs of these types have a stack for each CPU
 * (bpf_enable_priv_stack, kernel/bpf/verifier.c), as if nothing could come
 * between. A program on a uprobe can be preempted, and then the same program,
 * for another thread, writes over its stack: with luck a return is missed,
 * without the kernel dies. No program with a tail call has such a stack. None of
 * these calls ever happens; each type of program needs a map of its own.
 */
#define NOWHERE_TO_CALL(name)                          \
	struct {                                       \
		__uint(type, BPF_MAP_TYPE_PROG_ARRAY); \
		__uint(max_entries, 1);                \
		__type(key, __u32);                    \
		__type(value, __u32);                  \
	} name SEC(".maps")

NOWHERE_TO_CALL(nowhere_uprobe);
NOWHERE_TO_CALL(nowhere_tracepoint);
NOWHERE_TO_CALL(nowhere_raw);

const volatile __u8 never;

#define KEEP_OWN_STACK(ctx, nowhere)                   \
	do {                                           \
		if (never)                             \
			bpf_tail_call(ctx, &nowhere, 0); \
	} while (0)

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

#endif
