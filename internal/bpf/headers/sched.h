/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The clocks of threads that have a request in hand (work.h): when the scheduler
 * takes them off a CPU, wakes them and puts them on one. All other threads pass
 * with one load.
 */
#ifndef SLOWRAY_SCHED_H
#define SLOWRAY_SCHED_H

#define SYSCALLS 512

/* Classes of system calls that block, set by user space, as numbers differ by
 * architecture. */
enum call_class {
	CALL_OTHER,
	CALL_LOCK,
	CALL_DISK,
	CALL_NET,
	CALL_SLEEP,
	CALL_FILE, /* the first argument is a descriptor: of what, tells */
	CALL_FUTEX,
};

const volatile __u8 call_classes[SYSCALLS];

#define TASK_RUNNING 0

/* A futex wait that a timer ends sooner is one for a lock: threads that take
 * turns, as Python's with the global interpreter lock, look every 5 ms whether
 * who holds it may be asked to let go, and wait again
 * (sys.getswitchinterval). */
#define TURN (10 * NSEC_PER_MSEC)

/* How long the groups of a thread were throttled so far, by their CPU quota. */
static __always_inline __u64 throttled_time(struct task_struct *task)
{
	struct task_group *group = 0;
	__u64 sum = 0;

	if (!bpf_core_field_exists(task->sched_task_group) || !bpf_core_field_exists(group->cfs_bandwidth))
		return 0;
	group = bare_task(task)->sched_task_group;
#pragma unroll
	for (int i = 0; i < 5; i++) {
		if (!group)
			break;
		sum += group->cfs_bandwidth.throttled_time;
		group = group->parent;
	}
	return sum;
}

/* What a thread that reads or writes a descriptor waits for. */
static __always_inline __u32 clock_of_file(struct task_struct *task, __u64 fd)
{
	struct fdtable *table;
	struct file **files, *file = 0;
	__u16 mode = 0;

	if (bpf_ksym_exists(bpf_rdonly_cast)) { /* plain loads: a call for each word costs more than all of them */
		__u64 at;

		table = bare_task(task)->files->fdt;
		if (!table || fd >= table->max_fds)
			return WORK_OTHER;
		at = FIRST_WORD((__u64)table->fd + fd * sizeof(file));
		if (!at)
			return WORK_OTHER;
		mode = CAST(struct file, at)->f_inode->i_mode;
		goto known;
	}
	table = BPF_CORE_READ(task, files, fdt);
	if (!table || fd >= BPF_CORE_READ(table, max_fds))
		return WORK_OTHER;
	files = BPF_CORE_READ(table, fd);
	if (bpf_probe_read_kernel(&file, sizeof(file), files + fd) || !file)
		return WORK_OTHER;
	mode = BPF_CORE_READ(file, f_inode, i_mode);
known:
	switch (mode & S_IFMT) {
	case S_IFIFO:
		return WORK_PIPE;
	case S_IFSOCK:
		return WORK_NET;
	case S_IFREG:
		return WORK_DISK;
	}
	return WORK_OTHER;
}

/* Which of its clocks runs for a thread that goes to sleep now; *doing is
 * BLOCKED. */
static __always_inline __u32 clock_of(struct task_struct *task, __u32 *doing)
{
	struct pt_regs *regs;
	__u64 nr = ~0ULL, argument = 0;

	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		return WORK_DISK;
	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return WORK_OTHER; /* before 5.15 */
	regs = (void *)bpf_task_pt_regs(task);
	if (bpf_core_type_exists(struct pt_regs___x86) && bpf_core_field_exists(((struct pt_regs___x86 *)regs)->orig_ax)) {
		nr = ((struct pt_regs___x86 *)regs)->orig_ax;
		argument = ((struct pt_regs___x86 *)regs)->di;
	} else if (bpf_core_field_exists(((struct pt_regs___arm64 *)regs)->syscallno)) {
		nr = (__u32)((struct pt_regs___arm64 *)regs)->syscallno;
		argument = ((struct pt_regs___arm64 *)regs)->orig_x0;
	}
	if (nr >= SYSCALLS)
		return WORK_OTHER; /* no system call: a page that is not there, a signal */
	switch (call_classes[nr & (SYSCALLS - 1)]) {
	case CALL_FUTEX:
		*doing = ON_FUTEX;
		return WORK_LOCK;
	case CALL_LOCK:
		return WORK_LOCK;
	case CALL_DISK:
		return WORK_DISK;
	case CALL_NET:
		return WORK_NET;
	case CALL_SLEEP:
		return WORK_SLEEP;
	case CALL_FILE:
		return clock_of_file(task, argument);
	}
	return WORK_OTHER;
}

static __always_inline __u32 state_of(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return BPF_CORE_READ((struct task_struct___state *)task, state);
}

/* sched:sched_switch(bool preempt, struct task_struct *prev, *next[, unsigned
 * int prev_state since 5.18]). prev is the current thread. */
SEC("tp_btf/sched_switch")
int BPF_PROG(switched, int preempt, struct task_struct *prev, struct task_struct *next)
{
	struct thread *t;
	__u64 now = 0;

	t = known_thread(prev);
	if (t) {
		int ready = preempt & 1 || state_of(prev) == TASK_RUNNING;

		if (!t->holds) {
			t->doing = ready ? READY : BLOCKED;
		} else {
			now = bpf_ktime_get_ns();
			bring_up(t, now);
			if (ready) {
				t->doing = READY;
				t->throttled = throttled_time(prev);
			} else {
				t->doing = BLOCKED;
				t->blocked_on = clock_of(prev, &t->doing);
			}
		}
	}
	t = known_thread(next);
	if (t && !t->holds) {
		t->doing = COMPUTING;
	} else if (t) {
		__u64 waited;

		if (!now)
			now = bpf_ktime_get_ns();
		waited = span(t->since, now);
		if (t->doing >= BLOCKED) { /* the wake-up was not seen */
			t->clocks[t->blocked_on < CLOCKS ? t->blocked_on : WORK_OTHER] += waited;
		} else {
			__u64 throttled = smaller(span(t->throttled, throttled_time(next)), waited);

			t->clocks[WORK_THROTTLED] += throttled;
			t->clocks[WORK_RUNQ] += waited - throttled;
		}
		t->since = now;
		t->doing = COMPUTING;
	}
	return 0;
}

/* sched:sched_waking(struct task_struct *p): the current thread, or an interrupt
 * over it, wakes p. */
SEC("tp_btf/sched_waking")
int BPF_PROG(waking, struct task_struct *p)
{
	struct thread *t = known_thread(p), *waker = 0;
	struct baton *b = 0, *held;
	struct task_struct *task;
	__u64 now, waited;
	__u32 on;

	if (!t || t->doing < BLOCKED)
		return 0;
	task = bpf_get_current_task_btf();
	if (task->tgid == p->tgid && task->pid != p->pid)
		waker = known_thread(task);
	if (waker)
		b = in_hand(waker);
	if (!t->holds) {
		t->doing = READY;
		if (!b)
			return 0;
		now = bpf_ktime_get_ns();
		t->since = now;
		t->throttled = throttled_time(p);
		goto pass_on;
	}
	now = bpf_ktime_get_ns();
	on = t->blocked_on < CLOCKS ? t->blocked_on : WORK_OTHER;
	waited = span(t->since, now);
	/* A lock is released by a thread of the process; a timer, which sleepers
	 * of the JVM wait for in the same call, interrupts whoever runs. */
	if (t->doing == ON_FUTEX && task->tgid != p->tgid && waited > TURN)
		on = WORK_SLEEP;
	t->clocks[on] += waited;
	t->since = later(t->since, now);
	t->doing = READY;
	t->throttled = throttled_time(p);

	if (!b)
		return 0;
	held = in_hand(t);
	if (on == WORK_LOCK && held && held->id != b->id && waited > NSEC_PER_MSEC)
		t->contended = 1;
pass_on:
	if (!waker)
		return 0;
	bring_up(waker, now);
	charge(b, waker);
	__builtin_memcpy(t->offered.parts, b->parts, sizeof(b->parts));
	take_baton(t, OFFERED, b->id, now);
	return 0;
}

#endif
