/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * What is done with a request between its being read and its answer: the SERVER
 * part of the ledger, split by what the threads that had it in hand were doing.
 *
 * Each thread that takes part has clocks of its own: how long it computed, was
 * ready and had no CPU, was blocked on what (sched.h). A request in hand is a
 * baton: what was spent on it so far, and where the clocks of the thread that
 * holds it stood. It passes
 *
 *   from the connection to the thread that reads the request,
 *   from the thread to each connection on which it calls another service, and
 *   from there to the thread that reads what came back,
 *   from the thread to every thread of its process that it wakes, and
 *   from the thread to the connection when the answer is sent.
 *
 * So a thread that has many requests in hand, as an event loop, is charged to
 * the one it last read, or whose call it last read, and a request is charged
 * only with what the holders of its baton did. Where the answer is sent by a
 * thread that does not hold the request's baton, all of its time is HANDOFF.
 */
#ifndef SLOWRAY_WORK_H
#define SLOWRAY_WORK_H

/* What a thread is doing; see sched.h. A thread that is not known to do
 * anything else computes. */
enum doing {
	COMPUTING,
	READY,
	BLOCKED,
	ON_FUTEX, /* as BLOCKED: on a lock, or asleep for a time */
};

struct baton {
	__u64 id; /* of the request; 0 = none */
	__u64 at; /* when it was taken */
	__u64 parts[WORKS]; /* spent so far, ns */
	__u64 mark[CLOCKS]; /* the thread's clocks when it was taken */
};

/* Which batons a thread holds. */
#define OWN 1
#define OFFERED 2

/* What the scheduler's hooks look at for a thread with nothing in hand is in the first
 * cache line, as in struct conn. */
struct thread {
	__u32 holds;
	__u32 doing;
	__u64 since; /* it does what it does, the same */
	__u64 throttled; /* its groups', when it became ready */
	__u32 blocked_on; /* one of the clocks */
	__u32 contended; /* a thread with another request in hand ended its wait for a lock */
	__u64 clocks[CLOCKS]; /* ns, up to since; of no meaning while it has nothing in hand */
	struct baton own;
	struct baton offered; /* by the thread that woke this one last */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

/* What a connection keeps of it. Served: the request under way; called: the
 * request on whose behalf the call is made. */
struct hand {
	__u64 id;
	__u64 at; /* served: it was read; called: asked, or last heard */
	__u32 seq; /* served: of the request that parts are of; 0 = not answered yet */
	__u32 heard; /* called: something was answered */
	__u64 parts[WORKS];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct hand);
} hands SEC(".maps");

const volatile __u8 with_work;

/* Changed while running. */
__u32 work_mask; /* one request of work_mask+1 is followed */
__u64 lost_work; /* requests that could not be followed: no memory, too many connections */
__u32 hand_count; /* connections that keep one */

/* So many at 192 bytes each, on top of what each connection takes anyway. */
#define MAX_HANDS 20000

/*
 * How many of those connections lie in memory like this. Of a socket without any nothing
 * has to be looked at that another CPU has just written, as with kept (watch.h); unlike the
 * kernel's hash, where it lies is known before it has a port.
 */
#define HANDED 1024 /* 2^10 */

__u32 handed[HANDED];

static __always_inline __u32 *handed_like(struct sock *sk)
{
	/* The verifier makes a number of the distance of two pointers, and of nothing else. */
	__u64 place = (__u64)sk - (__u64)handed;

	barrier_var(place);
	return &handed[place * 0x9e3779b97f4a7c15ULL >> 54];
}

/* What a connection keeps; it is made room for. */
static __always_inline struct hand *hand_of(struct sock *sk)
{
	struct hand *h = bpf_sk_storage_get(&hands, sk, 0, 0);

	if (h)
		return h;
	if (hand_count < MAX_HANDS)
		h = bpf_sk_storage_get(&hands, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (h) {
		__sync_fetch_and_add(&hand_count, 1);
		__sync_fetch_and_add(handed_like(sk), 1);
	} else {
		__sync_fetch_and_add(&lost_work, 1);
	}
	return h;
}

static __always_inline void hand_is_gone(struct sock *sk)
{
	__sync_fetch_and_add(&hand_count, -1);
	__sync_fetch_and_add(handed_like(sk), -1);
}

/* A connection is over; the kernel frees what it kept. */
static __always_inline void work_over(struct sock *sk)
{
	if (*handed_like(sk) && bpf_sk_storage_get(&hands, sk, 0, 0))
		hand_is_gone(sk);
}

static __always_inline struct thread *known_thread(struct task_struct *task)
{
	/* Nearly all threads have none, which one load shows. */
	if (!bare_task(task)->bpf_storage)
		return 0;
	return bpf_task_storage_get(&threads, task, 0, 0);
}

/* The current thread's clocks, up to now. It computes, but for when its wake-up
 * and its coming back to a CPU were not seen: on busy CPUs Linux 6.18 leaves the
 * programs out for about one wake-up in 500. Then what it was last seen to do
 * took the time. */
static __always_inline void bring_up(struct thread *t, __u64 now)
{
	__u32 on = t->doing == COMPUTING ? WORK_CPU : t->doing == READY ? WORK_RUNQ : t->blocked_on;

	t->clocks[on < CLOCKS ? on : WORK_OTHER] += span(t->since, now);
	t->since = later(t->since, now);
	t->doing = COMPUTING;
}

/* The current thread; it is made known. */
static __always_inline struct thread *this_thread(__u64 now)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t) {
		__sync_fetch_and_add(&lost_work, 1);
		return 0;
	}
	if (!t->since)
		t->since = now;
	bring_up(t, now);
	return t;
}

static __always_inline void take_baton(struct thread *t, __u32 which, __u64 id, __u64 now)
{
	struct baton *b = which == OWN ? &t->own : &t->offered;

	t->holds |= which;
	b->id = id;
	b->at = now;
	__builtin_memcpy(b->mark, t->clocks, sizeof(b->mark));
}

/* Adds what the thread did since it took the baton, or since the last time. */
static __always_inline void charge(struct baton *b, const struct thread *t)
{
#pragma unroll
	for (int i = 0; i < CLOCKS; i++)
		b->parts[i] += t->clocks[i] - b->mark[i];
	__builtin_memcpy(b->mark, t->clocks, sizeof(b->mark));
}

/* The baton of a request is given back, whichever of the two it is. */
static __always_inline void let_go(struct thread *t, __u64 id)
{
	if (t->own.id == id) {
		t->own.id = 0;
		t->holds &= ~OWN;
	}
	if (t->offered.id == id) {
		t->offered.id = 0;
		t->holds &= ~OFFERED;
	}
}

/* What the thread has in hand, what it took last; only then its clocks run. */
static __always_inline struct baton *in_hand(struct thread *t)
{
	if (!t->holds)
		return 0;
	return t->holds & OFFERED && (!(t->holds & OWN) || t->offered.at > t->own.at) ? &t->offered : &t->own;
}

/* A request was read. */
static __noinline int work_read(struct conn *c, struct sock *sk)
{
	struct thread *t;
	struct hand *h;
	__u64 now;

	if (!c || !sk)
		return 0;
	c->in_hand = 0;
	if (work_mask && bpf_get_prandom_u32() & work_mask)
		return 0;
	now = c->read;
	t = this_thread(now);
	h = t ? hand_of(sk) : 0;
	if (!t || !h)
		return 0;
	h->id = now ^ (__u64)c->tid << 48;
	h->at = now;
	h->seq = 0;
	__builtin_memset(t->own.parts, 0, sizeof(t->own.parts));
	t->contended = 0;
	take_baton(t, OWN, h->id, now);
	c->in_hand = 1;
	return 0;
}

/* The first bytes of an answer are about to be sent by the current thread; perhaps: what
 * is sent may be none of it, and the thread goes on. */
static __noinline int work_answered(struct conn *c, struct sock *sk, int perhaps)
{
	__u64 now = bpf_ktime_get_ns();
	struct baton *b = 0;
	struct thread *t;
	struct hand *h;

	if (!c || !sk)
		return 0;
	c->in_hand = perhaps;
	h = bpf_sk_storage_get(&hands, sk, 0, 0);
	t = this_thread(now);
	if (!h || !t)
		return 0;
	if (t->own.id == h->id)
		b = &t->own;
	/* Passed on, and come back: who had it last knows what it was. */
	if (t->offered.id == h->id && (!b || t->offered.at > b->at))
		b = &t->offered;
	h->seq = c->seq;
	if (b) {
		if (t->contended)
			c->flags |= CONTENDED;
		t->contended = 0;
		charge(b, t);
		__builtin_memcpy(h->parts, b->parts, sizeof(h->parts));
		if (perhaps)
			return 0;
		let_go(t, h->id);
		/* Where few requests are followed, a thread passes the scheduler's hooks
		 * with one load in between. */
		if (follow_share && !t->holds)
			bpf_task_storage_delete(&threads, bpf_get_current_task_btf());
		return 0;
	}
	__builtin_memset(h->parts, 0, sizeof(h->parts));
	h->parts[WORK_HANDOFF] = span(h->at, now);
	return 0;
}

/* The current thread sends on a connection to another service, or begins to
 * connect. Until something is answered, the call is that of one request, whatever
 * else the thread has taken in hand meanwhile. */
static __noinline int work_calls(struct sock *sk)
{
	struct thread *t = known_thread(bpf_get_current_task_btf());
	struct baton *b;
	struct hand *h;
	__u64 now;

	if (!sk || !t)
		return 0;
	b = in_hand(t);
	if (!b && !*handed_like(sk))
		return 0;
	now = bpf_ktime_get_ns();
	bring_up(t, now);
	h = bpf_sk_storage_get(&hands, sk, 0, 0);
	if (h && h->id && !h->heard && (!b || b->id != h->id))
		return 0;
	if (!b) {
		if (h)
			h->id = 0;
		return 0;
	}
	if (!h) {
		h = hand_of(sk);
		if (!h)
			return 0;
	}
	charge(b, t);
	h->id = b->id;
	h->at = now;
	h->heard = 0;
	__builtin_memcpy(h->parts, b->parts, sizeof(h->parts));
	return 0;
}

/* The current thread has read what the other service answered. */
static __noinline int work_heard(struct sock *sk)
{
	struct hand *h = sk ? bpf_sk_storage_get(&hands, sk, 0, 0) : 0;
	__u64 now, waited;
	struct thread *t;

	if (!h || !h->id)
		return 0;
	now = bpf_ktime_get_ns();
	t = this_thread(now);
	if (!t)
		return 0;
	if (t->own.id == h->id) {
		/* It did nothing else: its waiting was for this. */
		waited = t->clocks[WORK_NET] - t->own.mark[WORK_NET] + t->clocks[WORK_OTHER] - t->own.mark[WORK_OTHER];
		t->own.mark[WORK_NET] = t->clocks[WORK_NET];
		t->own.mark[WORK_OTHER] = t->clocks[WORK_OTHER];
		charge(&t->own, t);
		t->own.parts[WORK_CALL] += waited;
		t->own.at = now;
	} else {
		__builtin_memcpy(t->own.parts, h->parts, sizeof(h->parts));
		t->own.parts[WORK_CALL] += span(h->at, now);
		take_baton(t, OWN, h->id, now);
	}
	h->at = now;
	h->heard = 1;
	__builtin_memcpy(h->parts, t->own.parts, sizeof(h->parts));
	return 0;
}

/* The split of a request whose record is being written; 0 when there is none. */
static __always_inline struct hand *work_of(struct conn *c, struct sock *sk)
{
	struct hand *h;

	if (!with_work || c->side != SERVED)
		return 0;
	h = bpf_sk_storage_get(&hands, sk, 0, 0);
	return h && h->seq && h->seq == c->seq ? h : 0;
}

#endif
