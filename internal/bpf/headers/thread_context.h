/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The span that a thread has in hand, where its process publishes it (OTEP 4947, Thread
 * Context): a thread-local pointer leads to a record, and user space has found where that
 * pointer lies. It is read only when labels are asked for, by the very thread that is about
 * to send the first bytes of an answer or of a call: nothing changes it meanwhile.
 *
 * Everything here is the program's own word, and read as its memory: it may give its own
 * requests a wrong trace, as it may by a header.
 */
#ifndef SLOWRAY_THREAD_CONTEXT_H
#define SLOWRAY_THREAD_CONTEXT_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_struct___x86 {
	unsigned long fsbase;
};

struct task_struct___x86 {
	struct thread_struct___x86 thread;
};

struct thread_struct___arm64 {
	struct {
		unsigned long tp_value;
	} uw;
};

struct task_struct___arm64 {
	struct thread_struct___arm64 thread;
};

struct task_struct___memory {
	struct mm_struct *mm;
};

#pragma clang attribute pop

/* Where the threads of a process have their pointer. */
struct publisher {
	__u64 mm; /* its memory when it was met first: after exec() it has another one */
	__s64 offset; /* of the pointer: from the thread pointer, or in its module's block */
	/* Of a module whose block a thread gets when it first needs it: where, from the thread
	 * pointer, the address of the thread's vector of blocks lies, */
	__s64 vector;
	__s64 length; /* where, from the vector, the number of its last entry lies, */
	__u32 module; /* the number of the entry, 0 = the offset is from the thread pointer, */
	__u32 entry; /* and how large each is, bytes */
	__u32 faults; /* reads in a row that failed */
	__u32 other; /* it has executed a program since: nothing is read */
};

#define PUBLISHERS 256

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PUBLISHERS);
	__type(key, __u32); /* tgid */
	__type(value, struct publisher);
} publishers SEC(".maps");

__u32 publishing; /* so many processes do */
__u64 lost_contexts; /* that could not be read */

/* A process whose contexts cannot be read so often in a row has said something wrong of
 * them; each costs a page fault. */
#define MAX_FAULTS 64

/* Those of the request under way, and of the next call: see next_heads. */
struct contexts {
	struct thread_context now, next;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct contexts);
} conn_contexts SEC(".maps");

/* [CPU][slot] as records, mapped by user space; a single one without labels. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct thread_context);
} handed_contexts SEC(".maps");

/* include/linux/sched.h: threads that work for others, and have the thread pointer of
 * whoever started them. */
#define PF_IO_WORKER 0x00000010
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000

#define NR_IO_URING_ENTER 426 /* of both architectures */

/* A thread that hands several sends over at once has the context of one of them at most. */
static __always_inline int sends_by_ring(struct task_struct *task)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);

	if (bpf_core_field_exists(((struct pt_regs___x86 *)regs)->orig_ax))
		return ((struct pt_regs___x86 *)regs)->orig_ax == NR_IO_URING_ENTER;
	if (bpf_core_field_exists(((struct pt_regs___arm64 *)regs)->syscallno))
		return ((struct pt_regs___arm64 *)regs)->syscallno == NR_IO_URING_ENTER;
	return 1;
}

/* As the kernel saved it last: programs set it when a thread begins, and never again. */
static __always_inline __u64 thread_pointer(struct task_struct *task)
{
	if (bpf_core_field_exists(((struct task_struct___x86 *)task)->thread.fsbase))
		return ((struct task_struct___x86 *)task)->thread.fsbase;
	if (bpf_core_field_exists(((struct task_struct___arm64 *)task)->thread.uw.tp_value))
		return ((struct task_struct___arm64 *)task)->thread.uw.tp_value;
	return 0;
}

#define UNREADABLE (~0ULL)

static __always_inline __u64 user_word(__u64 at)
{
	__u64 word;

	return bpf_probe_read_user(&word, sizeof(word), (void *)at) ? UNREADABLE : word;
}

/* Where the thread's pointer lies; 0 where it has none yet, or UNREADABLE. */
static __always_inline __u64 pointer_at(const struct publisher *p, __u64 tp)
{
	__u64 vector, length, block;

	if (!p->module)
		return tp + p->offset;
	vector = user_word(tp + p->vector);
	if (vector == UNREADABLE)
		return vector;
	length = user_word(vector + p->length);
	if (length == UNREADABLE)
		return length;
	if (length < p->module)
		return 0;
	/* Of a module that the thread has not used: 0 (musl), all ones (glibc). */
	block = user_word(vector + (__u64)p->module * p->entry);
	return block && block != UNREADABLE ? block + p->offset : 0;
}

/* Whether there is a span in what was read. */
static __always_inline int has_span(const struct thread_context *x)
{
	const __u64 *words = (const __u64 *)x;

	return x->valid == 1 && (words[0] | words[1]) && words[2];
}

static __always_inline int fault(struct publisher *p)
{
	p->faults++;
	__sync_fetch_and_add(&lost_contexts, 1);
	return 0;
}

/* Written only where it changes: all CPUs that run threads of the process read it. */
static __always_inline void readable(struct publisher *p)
{
	if (p->faults)
		p->faults = 0;
}

/* The first bytes of an answer, or of a call, are about to be sent by the current thread. */
static __noinline int note_context(struct conn *c, struct sock *sk)
{
	struct task_struct *real = bpf_get_current_task_btf(), *task = bare_task(real);
	struct tcp_sock *tp;
	__u64 at, record, mm;
	struct thread_context *x;
	struct publisher *p;
	struct contexts *all;
	__u32 tgid, begins;

	if (!c || !sk || c->proto >= PROTO_HTTP2) /* it says of itself whose bytes these are, or asks for nothing */
		return 0;
	tp = tcp_of(sk);
	if (!tp)
		return 0;
	begins = tp->write_seq;
	/* Else the compiler reads it again, by an instruction that it shares with another pointer. */
	barrier_var(begins);
	if (c->side == SERVED ? c->phase != ASKED || begins != c->mark : c->phase == ASKED)
		return 0;
	tgid = task->tgid;
	p = bpf_map_lookup_elem(&publishers, &tgid);
	if (!p || p->faults >= MAX_FAULTS || task->flags & (PF_IO_WORKER | PF_USER_WORKER | PF_KTHREAD) || sends_by_ring(real))
		return 0;
	mm = (__u64)((struct task_struct___memory *)task)->mm;
	if (!p->mm)
		p->mm = mm;
	if (p->mm != mm) {
		p->other = 1;
		return 0;
	}
	at = pointer_at(p, thread_pointer(task));
	if (!at)
		return 0;
	record = at == UNREADABLE ? at : user_word(at);
	if (record == UNREADABLE)
		return fault(p);
	if (!record) { /* no span is in hand */
		readable(p);
		return 0;
	}
	all = bpf_sk_storage_get(&conn_contexts, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!all) {
		__sync_fetch_and_add(&lost_contexts, 1);
		return 0;
	}
	x = &all->now;
	if (c->side == CALLED) {
		x = &all->next;
		if (x->valid && !before(x->of, c->mark))
			return 0; /* there is one that waits for its call to begin */
	}
	x->of = 0; /* of no request, while it is read */
	if (bpf_probe_read_user(x, THREAD_CONTEXT_READ, (void *)record)) {
		x->valid = 0;
		return fault(p);
	}
	readable(p);
	if (!has_span(x)) {
		x->valid = 0;
		return 0;
	}
	x->of = c->side == SERVED ? c->seq : begins;
	return 0;
}

/* A call has begun whose first byte has this sequence number, as with its head. */
static __always_inline void take_next_context(struct conn *c, struct sock *sk, __u32 seq)
{
	struct contexts *all;

	if (!with_labels || !publishing)
		return;
	all = bpf_sk_storage_get(&conn_contexts, sk, 0, 0);
	if (!all)
		return;
	all->now.of = 0; /* numbers are given again where what they counted was no request */
	if (!all->next.valid)
		return;
	if (all->next.of == seq) {
		all->now = all->next;
		all->now.of = c->seq;
	}
	all->next.valid = 0;
}

/* Hands the context of a request over, to the slot of its record. */
static __always_inline __u8 hand_context(struct conn *c, struct sock *sk, __u32 cpu, __u64 number)
{
	struct contexts *all;
	struct thread_context *to;
	__u32 i = cpu * slots + (number & (slots - 1));

	if (!publishing)
		return 0;
	all = bpf_sk_storage_get(&conn_contexts, sk, 0, 0);
	if (!all || all->now.of != c->seq || all->now.valid != 1)
		return 0;
	to = bpf_map_lookup_elem(&handed_contexts, &i);
	if (!to)
		return 0;
	*to = all->now;
	return KEPT_CONTEXT;
}

#endif
