/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The calling end of a connection: a request that went out, and the segments
 * that bring its answer.
 */
#ifndef SLOWRAY_CALLED_H
#define SLOWRAY_CALLED_H

struct task_struct___caller {
	struct task_struct___caller *real_parent, *group_leader;
	int tgid;
	char comm[16];
} __attribute__((preserve_access_index));

/* The current process opens a connection. Its name is that of the process, and
 * not of one of its threads. */
static __always_inline void note_caller(__u32 tgid)
{
	struct task_struct___caller *task = (void *)bpf_get_current_task();
	struct task_struct___caller *leader = BPF_CORE_READ(task, group_leader);
	struct caller fresh = {};

	fresh.parent = BPF_CORE_READ(leader, real_parent, tgid);
	bpf_core_read(&fresh.comm, sizeof(fresh.comm), &leader->comm);
	bpf_map_update_elem(&callers, &tgid, &fresh, BPF_ANY);
}

/* The first bytes go out since something was noticed: what they begin stands for others, or
 * does not count, by when they are sent and not by when that is noticed. sent is how many of
 * them are out already. */
static __always_inline void note_share(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 sent)
{
	if (follow_share && c->side == CALLED && c->phase != ASKED && tp->write_seq - sent == c->mark)
		c->sent_share = share_now(sk);
}

/* A connection is met in its turn. What it has sent before, and has no answer yet, does not
 * count; sent says that it has just sent. */
static __always_inline void meet(struct conn *c, struct sock *sk, int sent)
{
	struct tcp_sock *tp = tcp_of(sk);

	if (!follow_share || !follow_sends || !tp || c->side != CALLED)
		return;
	if (!sent && (tp->packets_out || after(tp->lsndtime, tp->inet_conn.icsk_ack.lrcvtime))) {
		begin(c, tp, bpf_ktime_get_ns());
		c->share = UNCOUNTED;
	}
	c->mark = sent ? tp->snd_una : tp->snd_nxt;
}

/* Whether what came first after a handshake of TLS has not been read, and the process goes on
 * asking: its first words did not wait for that, as the preface of HTTP/2 and the SETTINGS that
 * acknowledge it (RFC 9113, 3.4). */
static __always_inline int is_not_awaited(const struct conn *c, const struct tcp_sock *tp)
{
	return c->tls == TLS_READY && c->seq == 1 && tp->rcv_nxt - tp->copied_seq >= (__u32)(tp->bytes_received - c->in0);
}

/* A request went out since the last segment came in; again is how many segments
 * of it were just sent a second time, and are counted already. */
static __always_inline void called_sent(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u64 now, __u32 again)
{
	/* Nothing is sent before the connection is open; a handshake that had to
	 * be repeated leaves no stamp at all. */
	__u32 from, before;
	__u64 sent;

	if (is_early_open(c, 0) && tls_early_sent(c, sk, 0, tp->snd_nxt - c->mark)) {
		c->mark = tp->snd_nxt;
		return;
	}
	sent = smaller(tp->first_tx_mstamp ? later(tp->first_tx_mstamp * NSEC_PER_USEC, c->opened) : now, now);

	if (c->phase == ASKED) {
		__u64 pause = span(c->last, sent);

		if (is_apart(tp, pause) &&
		    is_remark(c, tp->bytes_acked - c->out0, tp->snd_una == c->mark)) {
			c->seq--;
			goto fresh;
		}
		/* More of the same request. */
		ask_more(c, smaller(later(later(sent, last_sent(tp)), c->last), now));
		c->mark = tp->snd_nxt;
		return;
	}
	if (c->phase == ANSWERING) {
		if (sent < c->done || is_not_awaited(c, tp)) { /* it went out before the last answer was in */
			c->flags |= OVERLAPPED;
			c->requests++;
			c->mark = tp->snd_nxt;
			return;
		}
		c->segs0 += tp->packets_out + again; /* of the next one */
		c->retrans0 += again;
		if (__sync_val_compare_and_swap(&c->phase, ANSWERING, IDLE) == ANSWERING)
			finish(c, sk, tp);
	}
fresh:
	from = c->mark;
	before = tp->snd_una;
	if (c->tls == TLS_READY && !c->seq && after(from, before)) {
		/* A Finished that is not acknowledged yet went out before it. */
		before = from;
		sent = smaller(later(last_sent(tp), sent), now);
	}
	if (c->tls == TLS_READY && is_tls_alert_sent(tp, from)) {
		c->mark = tp->snd_nxt;
		c->phase = IDLE;
		return;
	}
	begin(c, tp, sent);
	if (sending_seen)
		take_next_head(c, sk, from);
	else
		look_at_call(c, sk, tp, from);
	if (c->proto == PROTO_TLS) {
		tls_begin(c, tp, from, sent);
		c->mark = from;
		if (!tls_sent(c, sk) || c->mark == tp->snd_nxt) {
			c->mark = tp->snd_nxt;
			return;
		}
		begin(c, tp, sent); /* early data */
	}
	take_next_context(c, sk, from);
	/* What went out is part of this request, not before it. */
	c->out0 -= tp->write_seq - before;
	c->segs0 -= tp->packets_out + again;
	c->retrans0 -= again;
	if (tp->packets_out > 1)
		c->last = smaller(later(sent, last_sent(tp)), now);
	c->mark = tp->snd_nxt;
	c->progress = sent;
}

/*
 * The application has read, up to copied_seq, what was not seen to come: see
 * acknowledged_unseen(). Everything before it was read up to was; where the
 * request that it answers was not noticed either, it went out since.
 */
static __noinline int answer_unseen(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 was)
{
	__u64 now = bpf_ktime_get_ns(), sent;
	__u32 unseen, from;

	if (!c || !sk || !tp)
		return 0;
	unseen = tp->rcv_nxt - was;
	sent = smaller(later(tp->first_tx_mstamp * NSEC_PER_USEC, c->done), now);
	if (c->phase != ASKED) {
		from = c->mark;
		c->segs0++; /* of the next one */
		c->in0 += unseen;
		if (__sync_val_compare_and_swap(&c->phase, ANSWERING, IDLE) == ANSWERING)
			finish(c, sk, tp);
		begin(c, tp, sent);
		take_next_context(c, sk, from);
		if (sending_seen)
			take_next_head(c, sk, from);
		c->in0 -= unseen;
		c->out0 -= tp->write_seq - from;
		c->segs0--;
		c->mark = tp->snd_nxt;
	}
	c->bytes_out = tp->bytes_acked - c->out0;
	c->answer = c->done = smaller(later(tp->tcp_mstamp * NSEC_PER_USEC, later(sent, c->last)), now);
	c->read = tp->copied_seq == tp->rcv_nxt ? now : 0;
	c->phase = ANSWERING;
	return 1;
}

/* Whether what the application has just read was not seen to come. */
static __always_inline int is_answer_unseen(struct conn *c, struct tcp_sock *tp)
{
	if (c->phase == ASKED) /* more was read than had come before the request went out */
		return (__s64)(tp->bytes_received - (tp->rcv_nxt - tp->copied_seq) - c->in0) > 0;
	return c->read && (c->phase == ANSWERING || c->phase == TAKEN) && tp->snd_nxt != c->mark;
}

static __always_inline void called_segment(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 end, __u32 ack, __u32 bytes, __u64 now)
{
	if (tp->snd_nxt != c->mark && tp->packets_out && ((c->phase != ASKED && !c->tls) || after(tp->snd_nxt, c->mark)))
		called_sent(c, sk, tp, now, 0);
	if (c->phase != ASKED && c->phase != ANSWERING && c->phase != TAKEN)
		return;
	if (after(ack, tp->snd_una)) {
		if (!before(ack, c->recover))
			recovered(c, now);
		/* An acknowledgement of its own, and at once, is a round trip; one
		 * that comes with the answer has waited for it. */
		if (!bytes && c->phase == ASKED && span(c->last, now) < min_rtt_of(tp) + DELAYED_ACK)
			c->ack_delay = span(c->last, now);
		c->progress = now;
		c->bytes_out = tp->bytes_acked + (ack - tp->snd_una) - c->out0;
	}
	if (!bytes || !after(end, tp->rcv_nxt))
		return;
	if ((c->phase == ANSWERING || c->phase == TAKEN) &&
	    is_remark_of_server(c, tp->bytes_received - c->in0, bytes, span(c->done, now))) {
		end_before_remark(c, sk, tp, ANSWERING, now);
		return;
	}
	if (c->phase == ASKED) {
		c->answer = now;
		c->phase = ANSWERING;
	} else if (c->phase == ANSWERING) {
		__u64 gap = now - c->done;

		if (gap > min_rtt_of(tp) + NSEC_PER_MSEC) {
			if (tls_tickets(c, tp->bytes_received - c->in0)) {
				c->answer = now; /* so far it was none */
				c->stall = 0;
			} else {
				c->stall += gap;
			}
		}
	} else { /* its record is written, and the answer goes on */
		if (__sync_val_compare_and_swap(&c->phase, TAKEN, ANSWERING) != TAKEN)
			return;
		c->flags |= AMENDED;
		c->stall += now - c->done;
	}
	c->done = now;
	c->read = 0;
}

#endif
