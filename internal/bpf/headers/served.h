/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The serving end of a connection: segments that bring a request, and those
 * that acknowledge its answer.
 */
#ifndef SLOWRAY_SERVED_H
#define SLOWRAY_SERVED_H

/* bits of struct socket.flags (include/linux/net.h) */
#define SOCK_NOSPACE 2

/* enum tcp_chrono (include/linux/tcp.h) */
#define CHRONO_RWND_LIMITED 2
#define CHRONO_SNDBUF_LIMITED 3

/* The answer is under way. */
static __always_inline void begin_answer(struct conn *c, struct tcp_sock *tp, __u64 now)
{
	c->answer = flight_start(tp, later(c->last, c->read), now);
	c->progress = c->answer;
	c->phase = ANSWERING;
	look_at_sent_answer(c, tp);
}

/* What limits a sender that has bytes to send and does not. */
static __always_inline void note_limits(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u64 now, __u64 min_rtt)
{
	struct socket *socket = bare_sock(sk)->sk_socket;
	__u8 chrono = BPF_CORE_READ_BITFIELD(tp, chrono_type);
	__u32 unsent = tp->write_seq - tp->snd_nxt;
	__u64 waited = span(c->progress, now);

	if (!tp->snd_wnd)
		c->flags |= ZERO_WINDOW;
	if (chrono == CHRONO_RWND_LIMITED)
		c->flags |= RECV_WINDOW;
	if (chrono == CHRONO_SNDBUF_LIMITED)
		c->flags |= SEND_BUFFER;
	if (socket && socket->flags & 1UL << SOCK_NOSPACE) {
		c->flags |= SEND_BUFFER;
		c->send_wait += waited;
	} else if (unsent && chrono == CHRONO_RWND_LIMITED) {
		c->send_wait += waited;
	} else if (unsent && unsent < tp->mss_cache && !(BPF_CORE_READ_BITFIELD(tp, nonagle) & 1) &&
		   tp->packets_out <= 1 && waited > min_rtt + DELAYED_ACK) {
		/* A small rest was held back until this acknowledgement came. */
		c->flags |= NAGLE;
		c->send_wait += waited - min_rtt;
	}
}

/* The answer is acknowledged; how late, beyond a round trip, is the client's
 * business and nobody waited for it. */
static __always_inline void note_ack_delay(struct conn *c, struct tcp_sock *tp, __u64 now, __u64 min_rtt, int with_data)
{
	__u64 sent = later(c->progress, flight_start(tp, c->answer, now)), waited;
	__u32 flight = tp->snd_nxt - tp->snd_una;

	if (c->retrans_ns || !min_rtt)
		return;
	if (tp->packets_out > 1)
		sent = smaller(later(sent, last_sent(tp)), now);
	waited = now - sent;
	if (waited <= min_rtt)
		return;
	/* Only a last small piece makes a receiver wait for more. */
	if (with_data || (waited > min_rtt + DELAYED_ACK && flight < 2 * tp->mss_cache))
		c->ack_delay = waited - min_rtt;
}

/* How long pacing may take to send what is in flight. */
static __always_inline __u64 paced(struct sock *sk, struct tcp_sock *tp)
{
	__u64 flight = tp->snd_nxt - tp->snd_una, rate = sk->sk_pacing_rate;

	if (!sk->sk_pacing_status || !rate)
		return 0;
	return 2 * flight * NSEC_PER_SEC / rate;
}

/* A receiver that delays its acknowledgements leaves the first piece of an
 * answer in flight while the application pauses. Without delay that piece had
 * been acknowledged after a round trip; what passed from then until the last
 * piece was sent is the application's, but for what pacing may take. */
static __always_inline void note_pause(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u64 now, __u64 min_rtt)
{
	__u64 from = later(c->progress, flight_start(tp, c->answer, now)), last;

	if (tp->packets_out <= 1 || !min_rtt || c->due || span(from + min_rtt, now) <= NSEC_PER_MSEC)
		return;
	last = smaller(last_sent(tp), now);
	if (span(from + min_rtt + paced(sk, tp), last) <= NSEC_PER_MSEC)
		return;
	if (tls_tickets(c, 0) && tp->packets_out <= 4 && c->stall <= NSEC_PER_MSEC) {
		c->answer = last;
		c->stall = 0; /* between tickets */
	} else {
		c->stall += last - from - min_rtt;
	}
	c->progress = last;
}

/*
 * All of the answer is acknowledged, and the program did not see it: a kernel
 * runs none where it has interrupted the same one (bpf_prog.active), and there
 * are kernels that run none on top of certain tasks. The socket keeps the time
 * of the last acknowledgement; with_data says that it may have come with data.
 */
static __always_inline void acknowledged_unseen(struct conn *c, struct tcp_sock *tp, __u64 now, int with_data)
{
	__u64 when = smaller(later(tp->delivered_mstamp * NSEC_PER_USEC, later(c->answer, c->progress)), now);

	recovered(c, when);
	note_ack_delay(c, tp, when, min_rtt_of(tp), with_data);
	c->done = when;
	c->mark = tp->write_seq;
	c->bytes_out = tp->bytes_acked - c->out0;
	c->phase = DONE;
}

/* Whether it is so: what looks at sockets finds it, where the client says nothing more. */
static __always_inline int is_acknowledged_unseen(const struct conn *c, const struct tcp_sock *tp)
{
	if (c->side != SERVED || c->fin || tp->snd_una != tp->write_seq || (c->phase != ASKED && c->phase != ANSWERING))
		return 0;
	return after(tp->write_seq, c->mark) && !tls_tickets(c, tp->write_seq - c->mark);
}

/* More of an answer that seemed complete is out, up to sent: the application had
 * paused. Returns 0 where it is a remark of the server. */
static __noinline int go_on(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 sent, __u64 now)
{
	__u64 again;
	__u32 was;

	if (!c || !sk || !tp)
		return 0;
	again = flight_start(tp, c->done, now);
	was = c->phase;
	if (is_remark_of_server(c, c->bytes_out, sent - c->mark, span(c->done, again))) {
		end_before_remark(c, sk, tp, DONE, again);
		c->mark = sent;
		return 0;
	}
	if (__sync_val_compare_and_swap(&c->phase, was, ANSWERING) != was)
		return 0;
	if (was == TAKEN)
		c->flags |= AMENDED;
	if (tls_tickets(c, c->bytes_out) && span(c->done, again) > NSEC_PER_MSEC) {
		c->answer = again; /* so far it was none */
		c->stall = 0;
	} else { /* An acknowledgement that was late kept nobody from sending. */
		c->stall += again - c->done + c->ack_delay;
	}
	c->progress = again;
	c->ack_delay = 0;
	return 1;
}

/* A segment acknowledges something, seen before the socket has dealt with it. */
static __always_inline void acknowledge(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 ack, __u64 now, int with_data)
{
	__u32 sent = tp->snd_nxt;
	__u64 min_rtt;

	if (c->phase == ASKED && after(sent, c->mark))
		begin_answer(c, tp, now);
	else if ((c->phase == DONE || c->phase == TAKEN) && after(sent, c->mark) && !go_on(c, sk, tp, sent, now))
		return;
	if (c->phase != ANSWERING)
		return;
	if (!after(ack, tp->snd_una)) { /* a duplicate, or the window opens */
		if (tp->snd_una == sent && tp->write_seq == sent)
			acknowledged_unseen(c, tp, now, 0);
		else if (!tp->snd_wnd)
			c->flags |= ZERO_WINDOW;
		return;
	}
	min_rtt = min_rtt_of(tp);
	note_pause(c, sk, tp, now, min_rtt);
	if (!before(ack, c->recover))
		recovered(c, now);
	if (ack == sent && tp->write_seq == sent) {
		note_ack_delay(c, tp, now, min_rtt, with_data);
		c->done = now;
		c->mark = sent;
		c->bytes_out = tp->bytes_acked + (sent - tp->snd_una) - c->out0;
		c->phase = DONE;
		return;
	}
	note_limits(c, sk, tp, now, min_rtt);
	c->progress = now;
}

/* Whether the application has read all that came in. */
static __always_inline int is_read(struct conn *c, struct tcp_sock *tp)
{
	return c->read && tp->copied_seq == tp->rcv_nxt;
}

/* New bytes came in at the serving end. */
static __always_inline void receive_request(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u64 now)
{
	switch (c->phase) {
	case IDLE:
		/* In the middle of a request that began out of turn. */
		if (follow_share && before(tp->lsndtime, tp->inet_conn.icsk_ack.lrcvtime)) {
			begin(c, tp, now);
			c->share = UNCOUNTED;
			return;
		}
		break;
	case ASKED: {
		__u64 gap = now - c->last, before = tp->bytes_received - c->in0;

		if (is_apart(tp, gap) && is_remark(c, before, is_read(c, tp))) {
			c->seq--;
			break;
		}
		if (gap > DELAYED_ACK && gap < 6 * DELAYED_ACK && before < tp->mss_cache)
			c->flags |= UPLOAD_ACKS;
		ask_more(c, now);
		return;
	}
	case ANSWERING:
		/* Asked again before the answer was out: pipelined, multiplexed,
		 * or a body that nobody waited for. */
		c->flags |= OVERLAPPED;
		c->requests++;
		return;
	case DONE:
		if (c->http / 100 == 1 && c->http != HTTP_SWITCHING) { /* "continue": the same request goes on */
			c->http = 0;
			c->status = STATUS_UNKNOWN;
			c->answered = 0;
			c->read = c->answer = c->done = 0;
			c->stall = c->ack_delay = 0;
			c->mark = tp->write_seq;
			c->last = now;
			c->phase = ASKED;
			return;
		}
		if (__sync_val_compare_and_swap(&c->phase, DONE, IDLE) == DONE)
			finish_here(c, sk, tp);
	}
	begin(c, tp, now);
}

/*
 * The application has read up to copied_seq, and everything that was seen to
 * come it had read up to was: these bytes were not seen, see
 * acknowledged_unseen(). They are a request of their own where the answer before
 * them is out and acknowledged. Returns 0 where they are none.
 */
static __noinline int request_unseen(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 was)
{
	__u64 now = bpf_ktime_get_ns(), came;
	__u32 unseen;

	if (!c || !sk || !tp)
		return 0;
	if (!c->all_read || c->read < c->last || c->requests || c->reread || c->http / 100 == 1 ||
	    sk->__sk_common.skc_state != TCP_ESTABLISHED || tp->snd_una != tp->write_seq)
		return 0;
	unseen = tp->rcv_nxt - was;
	if (c->phase == ASKED)
		begin_answer(c, tp, now);
	if (c->phase == ANSWERING)
		acknowledged_unseen(c, tp, now, 1);
	if (c->phase != TAKEN) {
		c->in0 += unseen;
		if (__sync_val_compare_and_swap(&c->phase, DONE, IDLE) == DONE)
			finish(c, sk, tp);
	}
	came = smaller(later(tp->tcp_mstamp * NSEC_PER_USEC, c->done), now);
	begin(c, tp, came);
	c->in0 -= unseen;
	return 1;
}

static __always_inline void served_segment(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 end, __u32 ack, __u32 bytes, int closes, __u64 now)
{
	int fresh = bytes && after(end, tp->rcv_nxt);

	acknowledge(c, sk, tp, ack, now, fresh);
	if (closes && c->phase == ASKED && is_remark(c, tp->bytes_received - c->in0, is_read(c, tp))) {
		c->seq--; /* nobody waits for an answer to what was said before */
		c->phase = IDLE;
	} else if (closes)
		tls_close(c, sk);
	else if (fresh)
		receive_request(c, sk, tp, now);
}

#endif
