/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * How connections begin and end, and with them their last request. tcp_probe
 * sees only segments of established connections.
 */
#ifndef SLOWRAY_CLOSING_H
#define SLOWRAY_CLOSING_H

/* include/uapi/asm-generic/errno*.h */
#define EPIPE 32
#define ECONNRESET 104

#define PF_EXITING 0x4 /* include/linux/sched.h */

/* c is 0 for a connection that is not followed. */
static __always_inline void count_connection(struct conn *c, struct sock *sk, int side, struct tcp_sock *tp, __u64 handshake)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct ring *r = bpf_map_lookup_elem(&rings, &cpu);
	struct counters *n;
	__u32 lane;

	if (!r)
		return;
	lane = r->busy++ != 0;
	n = counters_of(c ? c->endpoint : lane ? find_endpoint(sk, side) : remember_endpoint(sk, side), cpu, lane);
	if (n) {
		ADD(n, connections, 1);
		ADD(n, handshake_ns, handshake);
		ADD(n, syn_retrans, tp->total_retrans);
		if (handshake > n->handshake_max)
			n->handshake_max = handshake;
	}
	r->busy--;
}

/* The same of a connection that is not followed: there are sums of all. */
static __noinline int count_left_out(struct sock *sk, int side)
{
	struct tcp_sock *tp;

	if (!sk || !is_wanted(sk, side))
		return 0;
	tp = tcp_of(sk);
	if (tp) /* how long a handshake took that was not seen to begin, its round trip tells */
		count_connection(0, sk, side, tp, side == CALLED ? smoothed_rtt(tp) : 0);
	return 0;
}

/* Everything sent is acknowledged, the FIN too (its sequence number is in
 * write_seq). */
static __always_inline void all_acknowledged(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u64 now)
{
	if (c->side != SERVED)
		return;
	if (c->phase == ASKED && tp->write_seq - 1 != c->mark)
		begin_answer(c, tp, now);
	if (c->phase == ANSWERING) {
		recovered(c, now);
		c->done = now;
		c->mark = tp->write_seq;
		c->bytes_out = tp->bytes_acked + (tp->write_seq - tp->snd_una) - c->out0 - 1;
		c->flags |= CLOSED;
		c->phase = DONE;
	}
}

/* Whether the connection ends by a reset: one came (tcp_reset sets the error,
 * net/ipv4/tcp_input.c), or this end gave up without a FIN: the connection was open still (abrupt). */
static __always_inline int was_reset(struct sock *sk, int abrupt)
{
	int err = sk->sk_err;

	return err == ECONNRESET || err == EPIPE || (!err && abrupt);
}

/*
 * Whether the kernel gave up what an ended process had sent (tcp_write_err, after minutes):
 * its answer was never taken, so nobody waits at either end. A crash alone does not do that:
 * the other end, where there is one, acknowledges or resets.
 */
static __always_inline int is_left_over(struct conn *c, struct sock *sk, struct tcp_sock *tp)
{
	return c->owner_gone && c->side == SERVED && tp->snd_una != tp->write_seq && sk->sk_err != ECONNRESET && sk->sk_err != EPIPE;
}

/* Whether what was said last on a connection is none that anybody answers. */
static __always_inline int was_remark(struct conn *c, struct sock *sk, struct tcp_sock *tp)
{
	if (c->side == SERVED)
		return is_remark(c, bytes_received(sk, tp) - c->in0, c->read >= c->last);
	return is_remark(c, tp->bytes_acked - c->out0, tp->snd_una - c->mark <= c->fin);
}

static __noinline int close_request(struct conn *c, struct sock *sk, int abrupt)
{
	struct tcp_sock *tp = sk ? tcp_of(sk) : 0;
	__u64 now = bpf_ktime_get_ns();
	__u32 was;
	int remark;

	if (!c || !tp)
		return 0;
	remark = !sk->sk_err && was_remark(c, sk, tp);
	if (is_more_out(c, tp->write_seq - c->fin))
		go_on(c, sk, tp, tp->write_seq - c->fin, now);
	was = c->phase;
	if (was == IDLE || was == TAKEN)
		return 0;
	if (__sync_val_compare_and_swap(&c->phase, was, IDLE) != was)
		return 0;
	if (was == ASKED && (c->farewell || remark)) {
		c->seq--; /* "quit", close_notify, the end of a stream of log lines */
		return 0;
	}
	if (was != DONE && is_left_over(c, sk, tp)) {
		c->seq--;
		__sync_fetch_and_add(&untaken, 1ULL << (c->share & 31));
		return 0;
	}
	if (was == ASKED || (c->side == SERVED && was != DONE)) {
		c->flags |= was == ASKED ? UNANSWERED : TRUNCATED;
		if (was != ASKED || c->side == CALLED)
			c->bytes_out = tp->bytes_acked + (tp->write_seq - tp->snd_una) - c->out0 - c->fin;
		c->done = now;
	}
	if (c->side == CALLED && was == ANSWERING && tp->out_of_order_queue.rb_node) { /* with a hole in it */
		c->flags |= TRUNCATED;
		c->due = c->done;
		recovered(c, now);
		c->done = now;
	}
	if (c->flags & (UNANSWERED | TRUNCATED))
		c->status = STATUS_ERROR;
	if (was_reset(sk, abrupt) && (was != DONE || sk->sk_err))
		c->flags |= RESET;
	return finish(c, sk, tp);
}

/* A process closes its end (not shutdown() of one direction): who called waits no longer,
 * whatever the kernel still tries; who served may have ended. */
static __always_inline void give_up(struct conn *c, struct sock *sk)
{
	if (sk->sk_shutdown != SHUTDOWN_MASK)
		return;
	if (bpf_get_current_task_btf()->flags & PF_EXITING)
		c->owner_gone = 1;
	if (c->side == CALLED && c->phase == ASKED)
		close_request(c, sk, 0);
}

#endif
