/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Requests that are over, on connections where nothing happens any more: user space looks for
 * them now and then, and when a window ends (flush.go).
 */
#ifndef SLOWRAY_FLUSH_H
#define SLOWRAY_FLUSH_H

__u64 idle_ns; /* how long nothing has to happen for that */
__u64 unfinished_ns; /* requests that take longer are reported while they last, once */
__u8 again; /* also those that were reported */

static __always_inline int flush_conn(struct seq_file *seq, struct sock *sk, struct conn *c)
{
	struct conn copy;
	struct tcp_sock *tp;
	__u32 was, over;
	__u64 now, told = 0;

	if (!sk || !c || c->side == SIDE_NONE || c->share == UNCOUNTED)
		return 0;
	tp = tcp_of(sk);
	if (!tp)
		return 0;
	now = bpf_ktime_get_ns();
	__builtin_memcpy(&copy, c, sizeof(copy));
	was = copy.phase;
	over = copy.side == SERVED ? DONE : ANSWERING;
	if (is_acknowledged_unseen(&copy, tp)) {
		if (was == ASKED)
			begin_answer(&copy, tp, now);
		acknowledged_unseen(&copy, tp, now, 0);
		if (span(copy.done, now) < idle_ns)
			return 0;
		c->mark = copy.mark;
		c->done = copy.done;
		c->answer = copy.answer;
		c->bytes_out = copy.bytes_out;
		over = was;
	}
	if (is_more_out(&copy, tp->write_seq - copy.fin)) {
		/* An answer of which nobody has the rest. */
		copy.stall += span(copy.done, flight_start(tp, copy.done, now));
		copy.progress = later(copy.done, flight_start(tp, copy.done, now));
		if (tp->inet_conn.icsk_retransmits)
			copy.due = copy.progress + min_rtt_of(tp);
		was = ANSWERING;
	} else if (was == over && copy.side == CALLED && tp->out_of_order_queue.rb_node) {
		/* An answer with a hole in it. */
		copy.due = copy.done;
	} else if (was == over) {
		if (span(copy.done, now) < idle_ns)
			return 0;
		if (__sync_val_compare_and_swap(&c->phase, was, TAKEN) != was)
			return 0;
		if (c->seq == copy.seq) {
			c->told_us = copy.stall / NSEC_PER_USEC;
			finish(&copy, sk, tp);
			/* So that user space can stop after some, and make room. */
			bpf_seq_write(seq, &told, sizeof(told));
		}
		return 0;
	}
	if (was_remark(&copy, sk, tp))
		return 0;
	/* From the last byte of the request: a stream of log lines is none. */
	if ((was == ASKED || was == ANSWERING) && (again || !copy.reported) && !copy.owner_gone && span(copy.last, now) >= unfinished_ns) {
		c->reported = 1;
		copy.flags |= UNFINISHED;
		copy.done = now;
		recovered(&copy, now);
		if (was == ANSWERING && copy.side == SERVED)
			note_limits(&copy, sk, tp, now, min_rtt_of(tp));
		finish(&copy, sk, tp);
		bpf_seq_write(seq, &told, sizeof(told));
	}
	return 0;
}

#endif
