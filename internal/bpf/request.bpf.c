//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Every request of every TCP connection, with the time it spent in each part,
 * from the moments that a connection's socket shows. No payload is needed to
 * cut requests: one begins with bytes in and ends when the bytes out that
 * follow are acknowledged (called side: bytes out, then bytes in).
 *
 *   tcp_probe              a segment came in (established state only)
 *   tcp_rcv_space_adjust   the application read
 *   inet_sock_set_state    opened, closing, closed
 *   tcp_retransmit_skb     something was sent again
 *   getpeername (cgroup)   accept() gives the application the connection
 *   tcp_sendmsg_locked     since 6.16, and only for the first bytes of an
 *                          answer: its status
 *
 * When the first byte of an answer was sent needs no hook: tcp_sock's
 * first_tx_mstamp is the time of the first segment sent after everything was
 * acknowledged, and keeps it through retransmissions (tcp_rate_skb_sent,
 * net/ipv4/tcp_rate.c). It is read when the acknowledgement comes.
 */
#include "headers/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include "headers/request.h"
#include "headers/connection.h"
#include "headers/memory.h"
#include "headers/ledger.h"
#include "headers/protocol.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Delayed acknowledgements wait at least 40 ms on Linux (TCP_DELACK_MIN,
 * include/net/tcp.h), in jiffies of up to 4 ms; elsewhere longer. */
#define DELAYED_ACK (35 * NSEC_PER_MSEC)

/* bits of struct socket.flags (include/linux/net.h) */
#define SOCK_NOSPACE 2

/* enum tcp_chrono (include/linux/tcp.h) */
#define CHRONO_RWND_LIMITED 2
#define CHRONO_SNDBUF_LIMITED 3

/* A client that closes within this time of its last byte, and a round trip,
 * did not wait for an answer. */
#define FAREWELL (5 * NSEC_PER_MSEC)

/* include/uapi/asm-generic/errno*.h */
#define EPIPE 32
#define ECONNRESET 104

#define CA_LOSS 4 /* enum tcp_ca_state */

#define TCPCB_EVER_RETRANS 0x80
#define TCPHDR_FIN 0x01

/* When the flight that is under way began, but not before what led to it:
 * the kernel's stamp is in whole microseconds. */
static __always_inline __u64 flight_start(struct tcp_sock *tp, __u64 not_before, __u64 now)
{
	return smaller(later(tp->first_tx_mstamp * NSEC_PER_USEC, not_before), now);
}

/* When the last segment was sent for the first time, or 0. */
static __always_inline __u64 last_sent(struct tcp_sock *tp)
{
	struct list_head *node = BPF_CORE_READ(tp, tsorted_sent_queue.prev);
	struct sk_buff *skb = (void *)node - bpf_core_field_offset(struct sk_buff, tcp_tsorted_anchor);
	__u8 sacked = 0;
	__u64 when = 0;

	if (bpf_probe_read_kernel(&sacked, 1, (void *)skb->cb + bpf_core_field_offset(struct tcp_skb_cb, sacked)) ||
	    sacked & TCPCB_EVER_RETRANS)
		return 0;
	bpf_probe_read_kernel(&when, sizeof(when), &skb->skb_mstamp_ns);
	return when;
}

static __always_inline void begin(struct conn *c, struct tcp_sock *tp, __u64 now)
{
	c->flags = !c->opened && !c->seq ? PREEXISTING : 0;
	c->seq++;
	c->requests = 0;
	c->first = c->last = now;
	c->read = c->answer = c->done = 0;
	c->progress = 0;
	c->told_us = 0;
	c->reread = 0;
	c->farewell = 0;
	c->stall = c->send_wait = c->retrans_ns = c->ack_delay = c->due = 0;
	c->in0 = tp->bytes_received;
	c->out0 = tp->bytes_acked + (tp->write_seq - tp->snd_una);
	c->bytes_out = 0;
	c->mark = tp->write_seq;
	c->retrans0 = tp->total_retrans;
	c->segs0 = tp->data_segs_out;
	c->http = 0;
	c->status = STATUS_UNKNOWN;
	c->answered = 0;
	c->reported = 0;
	c->phase = ASKED;
}

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
	struct socket *socket = sk->sk_socket;
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
	c->stall += last - from - min_rtt;
	c->progress = last;
}

/* A segment acknowledges something, seen before the socket has dealt with it. */
static __always_inline void acknowledge(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 ack, __u64 now, int with_data)
{
	__u32 sent = tp->snd_nxt;
	__u64 min_rtt;

	if (c->phase == ASKED && sent != c->mark) {
		begin_answer(c, tp, now);
	} else if ((c->phase == DONE || c->phase == TAKEN) && sent != c->mark) {
		/* More of an answer that seemed complete: the application paused. */
		__u64 again = flight_start(tp, c->done, now);
		__u32 was = c->phase;

		if (__sync_val_compare_and_swap(&c->phase, was, ANSWERING) != was)
			return;
		if (was == TAKEN)
			c->flags |= AMENDED;
		/* An acknowledgement that was late kept nobody from sending. */
		c->stall += again - c->done + c->ack_delay;
		c->progress = again;
		c->ack_delay = 0;
	}
	if (c->phase != ANSWERING)
		return;
	if (!after(ack, tp->snd_una)) { /* a duplicate, or the window opens */
		if (!tp->snd_wnd)
			c->flags |= ZERO_WINDOW;
		return;
	}
	min_rtt = min_rtt_of(tp);
	note_pause(c, sk, tp, now, min_rtt);
	if (c->due && !before(ack, c->recover)) {
		c->retrans_ns += span(c->due, now);
		c->due = 0;
	}
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

/* Bytes of the request that came, or went, after others. */
static __always_inline void ask_more(struct conn *c, __u64 when)
{
	__u64 pause = span(c->last, when) / NSEC_PER_USEC;

	if (pause > c->pause_us)
		c->pause_us = smaller(pause, ~0U);
	c->last = when;
}

/* Whether an asking end that closes now waits for no answer: it has just said
 * something; or nothing was ever answered, it has paused about as long before,
 * and what it says is no protocol of questions: log lines, a copy. */
static __always_inline int is_farewell(struct conn *c, struct tcp_sock *tp, __u64 now)
{
	__u64 silent = span(c->last, now);

	if (c->phase != ASKED)
		return 0;
	return silent <= FAREWELL + 2 * min_rtt_of(tp) ||
	       (c->seq == 1 && c->proto <= PROTO_OTHER && silent <= 2 * c->pause_us * NSEC_PER_USEC);
}

/* New bytes came in at the serving end. */
static __always_inline void receive_request(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u64 now)
{
	switch (c->phase) {
	case ASKED: {
		__u64 gap = now - c->last;

		if (gap > DELAYED_ACK && gap < 6 * DELAYED_ACK && tp->bytes_received - c->in0 < tp->mss_cache)
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
		if (c->http / 100 == 1) { /* "continue": the same request goes on */
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

static __always_inline void served_segment(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 end, __u32 ack, __u32 bytes, __u64 now)
{
	int fresh = bytes && after(end, tp->rcv_nxt);

	acknowledge(c, sk, tp, ack, now, fresh);
	if (fresh)
		receive_request(c, sk, tp, now);
}

/* A request went out since the last segment came in; again is how many segments
 * of it were just sent a second time, and are counted already. */
static __always_inline void called_sent(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u64 now, __u32 again)
{
	/* Nothing is sent before the connection is open; a handshake that had to
	 * be repeated leaves no stamp at all. */
	__u64 sent = smaller(tp->first_tx_mstamp ? later(tp->first_tx_mstamp * NSEC_PER_USEC, c->opened) : now, now);

	if (c->phase == ASKED) {
		/* More of the same request. */
		ask_more(c, smaller(later(later(sent, last_sent(tp)), c->last), now));
		c->mark = tp->snd_nxt;
		return;
	}
	if (c->phase == ANSWERING) {
		if (sent < c->done) { /* it went out before the last answer was in */
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
	__u32 from = c->mark;

	begin(c, tp, sent);
	if (sending_seen)
		next_label(sk);
	else
		look_at_call(c, sk, tp, from);
	/* What went out is part of this request, not before it. */
	c->out0 -= tp->write_seq - tp->snd_una;
	c->segs0 -= tp->packets_out + again;
	c->retrans0 -= again;
	if (tp->packets_out > 1)
		c->last = smaller(later(sent, last_sent(tp)), now);
	c->mark = tp->snd_nxt;
	c->progress = sent;
}

static __always_inline void called_segment(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 end, __u32 ack, __u32 bytes, __u64 now)
{
	if (tp->snd_nxt != c->mark && tp->packets_out && (c->phase != ASKED || after(tp->snd_nxt, c->mark)))
		called_sent(c, sk, tp, now, 0);
	if (c->phase != ASKED && c->phase != ANSWERING && c->phase != TAKEN)
		return;
	if (after(ack, tp->snd_una)) {
		if (c->due && !before(ack, c->recover)) {
			c->retrans_ns += span(c->due, now);
			c->due = 0;
		}
		/* An acknowledgement of its own, and at once, is a round trip; one
		 * that comes with the answer has waited for it. */
		if (!bytes && c->phase == ASKED && span(c->last, now) < min_rtt_of(tp) + DELAYED_ACK)
			c->ack_delay = span(c->last, now);
		c->progress = now;
		c->bytes_out = tp->bytes_acked + (ack - tp->snd_una) - c->out0;
	}
	if (!bytes || !after(end, tp->rcv_nxt))
		return;
	if (c->phase == ASKED) {
		c->answer = now;
		c->phase = ANSWERING;
	} else if (c->phase == ANSWERING) {
		__u64 gap = now - c->done;

		if (gap > min_rtt_of(tp) + NSEC_PER_MSEC)
			c->stall += gap;
	} else { /* its record is written, and the answer goes on */
		if (__sync_val_compare_and_swap(&c->phase, TAKEN, ANSWERING) != TAKEN)
			return;
		c->flags |= AMENDED;
		c->stall += now - c->done;
	}
	c->done = now;
	c->read = 0;
}

/* tcp:tcp_probe(struct sock *sk, struct sk_buff *skb), since 4.16: called first
 * in tcp_rcv_established(), before the acknowledgement is dealt with. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(segment, struct sock *sk, struct sk_buff *skb)
{
	struct tcp_skb_cb *cb;
	struct tcp_sock *tp;
	struct conn *c;
	__u32 bytes, end;
	__u8 fin;
	__u64 now;

	if (side_mask == 1 && !has_port(served_ports, sk->__sk_common.skc_num))
		return 0;
	c = bpf_sk_storage_get(&conns, sk, 0, 0);
	if (!c) {
		c = adopt(sk);
		if (!c)
			return 0;
	}
	if (c->side == SIDE_NONE)
		return 0;
	tp = tcp_of(sk);
	if (!tp)
		return 0;
	now = bpf_ktime_get_ns();
	cb = (void *)skb->cb;
	end = cb->end_seq;
	bytes = end - cb->seq;
	fin = ((struct tcp_skb_cb___flags *)cb)->tcp_flags & TCPHDR_FIN;
	bytes -= fin;
	end -= fin;
	if (bytes && cb->seq != tp->rcv_nxt && after(cb->seq, tp->rcv_nxt))
		c->flags |= REORDERED;
	if (c->side == SERVED)
		served_segment(c, sk, tp, end, cb->ack_seq, bytes, now);
	else
		called_segment(c, sk, tp, end, cb->ack_seq, bytes, now);
	if (!bytes)
		return 0;
	if (c->side == SERVED && (with_labels || (c->proto <= PROTO_OTHER && c->seq <= 4)))
		look_at_request(c, sk, skb, bytes);
	else if (c->side == CALLED && c->proto > PROTO_OTHER && !c->answered)
		look_at_answer_segment(c, skb, bytes);
	return 0;
}

/* tcp:tcp_rcv_space_adjust(struct sock *sk), since 4.18: the application has
 * copied bytes out of the socket; splice and in-kernel readers too. */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(received, struct sock *sk)
{
	struct tcp_sock *tp;
	struct task_struct *task;
	struct conn *c;

	if (side_mask == 1 && !has_port(served_ports, sk->__sk_common.skc_num))
		return 0;
	c = bpf_sk_storage_get(&conns, sk, 0, 0);
	if (!c || c->side == SIDE_NONE)
		return 0;
	tp = tcp_of(sk);
	if (!tp)
		return 0;
	task = bpf_get_current_task_btf();
	c->pid = task->tgid;
	c->tid = task->pid;
	if (c->copied == tp->copied_seq)
		return 0; /* nothing was copied (tcp_read_sock) */
	c->copied = tp->copied_seq;
	if (c->side == CALLED) {
		__u8 state = sk->__sk_common.skc_state;
		int unseen = state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2;

		if (c->phase == ASKED && unseen) {
			/* Half-closed: tcp_probe did not see the answer come. */
			c->phase = ANSWERING;
			c->answer = c->done = c->read = bpf_ktime_get_ns();
			c->flags |= ESTIMATED;
		} else if (c->phase == ANSWERING && unseen) {
			c->done = c->read = bpf_ktime_get_ns();
			c->flags |= ESTIMATED;
		} else if (c->phase == ANSWERING && tp->copied_seq == tp->rcv_nxt) {
			c->read = bpf_ktime_get_ns();
		}
		return 0;
	}
	if (c->phase == IDLE && !c->seq && tp->bytes_received) {
		/* The first bytes came with the end of the handshake, which
		 * tcp_probe does not see (TCP_DEFER_ACCEPT, fast open). */
		begin(c, tp, c->opened ? c->opened : bpf_ktime_get_ns());
		c->in0 = 0;
		c->flags |= ESTIMATED;
	}
	if (c->phase == ASKED && tp->write_seq == c->mark) {
		c->read = bpf_ktime_get_ns();
	} else if (c->phase != IDLE && c->phase != TAKEN && !(c->flags & AMENDED)) {
		/* Part of the answer was out while part of what was asked was
		 * still unread: another request, if an answer follows. None
		 * does after a FIN. */
		confirm_overlap(c, tp->write_seq - c->fin);
		c->reread = !c->fin;
		c->reread_seq = tp->write_seq;
	}
	return 0;
}

/* tcp:tcp_retransmit_skb(sk, skb[, err since 6.17]), since 4.15. */
SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(retransmitted, struct sock *sk, struct sk_buff *skb)
{
	struct conn *c = bpf_sk_storage_get(&conns, sk, 0, 0);
	struct tcp_skb_cb *cb = (void *)skb->cb;
	struct tcp_sock *tp;
	__u64 now, expected;

	/* Handshakes and FINs are nobody's request. */
	if (!c || c->side == SIDE_NONE || sk->__sk_common.skc_state == TCP_SYN_SENT ||
	    sk->__sk_common.skc_state == TCP_SYN_RECV)
		return 0;
	if (c->side == CALLED && sk->__sk_common.skc_state != TCP_ESTABLISHED && sk->__sk_common.skc_state != TCP_CLOSE_WAIT)
		return 0;
	tp = tcp_of(sk);
	if (!tp)
		return 0;
	now = bpf_ktime_get_ns();
	if (BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state) == CA_LOSS)
		c->flags |= TIMEOUT;
	if (c->side == SERVED && c->phase == ASKED && tp->snd_nxt != c->mark)
		begin_answer(c, tp, now);
	if (c->side == CALLED && tp->snd_nxt != c->mark && c->phase != ASKED)
		called_sent(c, sk, tp, now, cb->tcp_gso_segs);
	if (c->due) {
		if (after(cb->end_seq, c->recover))
			c->recover = cb->end_seq;
		return 0;
	}
	/* Without loss the acknowledgement would have come a round trip after
	 * sending, or right after the one before. */
	expected = flight_start(tp, 0, now) + min_rtt_of(tp);
	c->due = later(c->progress, expected);
	if (c->phase == DONE || c->phase == IDLE)
		c->due = 0;
	c->recover = cb->end_seq;
	return 0;
}

static __always_inline void count_connection(struct conn *c, struct tcp_sock *tp, __u64 handshake)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct ring *r = bpf_map_lookup_elem(&rings, &cpu);
	struct counters *n;
	__u32 lane;

	if (!r || c->side == SIDE_NONE)
		return;
	lane = r->busy++ != 0;
	n = counters_of(c->endpoint, cpu, lane);
	if (n) {
		ADD(n, connections, 1);
		ADD(n, handshake_ns, handshake);
		ADD(n, syn_retrans, tp->total_retrans);
		if (handshake > n->handshake_max)
			n->handshake_max = handshake;
	}
	r->busy--;
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
		if (c->due) {
			c->retrans_ns += span(c->due, now);
			c->due = 0;
		}
		c->done = now;
		c->mark = tp->write_seq;
		c->bytes_out = tp->bytes_acked + (tp->write_seq - tp->snd_una) - c->out0 - 1;
		c->flags |= CLOSED;
		c->phase = DONE;
	}
}

/* Whether the connection ends by a reset: one came (tcp_reset sets the error,
 * net/ipv4/tcp_input.c), or this end gave up without a FIN. */
static __always_inline int was_reset(struct sock *sk, int old)
{
	int err = sk->sk_err;

	return err == ECONNRESET || err == EPIPE || (!err && (old == TCP_ESTABLISHED || old == TCP_CLOSE_WAIT));
}

static __always_inline void close_request(struct conn *c, struct sock *sk, struct tcp_sock *tp, int old, __u64 now)
{
	__u32 was = c->phase;

	if (was == IDLE || was == TAKEN)
		return;
	if (__sync_val_compare_and_swap(&c->phase, was, IDLE) != was)
		return;
	if (was == ASKED && c->farewell) {
		c->seq--; /* "quit", close_notify, the end of a stream of log lines */
		return;
	}
	if (c->side == SERVED && was != DONE) {
		if (was == ASKED) {
			c->flags |= UNANSWERED;
		} else {
			c->flags |= TRUNCATED;
			c->bytes_out = tp->bytes_acked + (tp->write_seq - tp->snd_una) - c->out0 - c->fin;
		}
		c->done = now;
	}
	if (c->side == CALLED && was == ASKED) {
		c->flags |= UNANSWERED;
		c->bytes_out = tp->bytes_acked + (tp->write_seq - tp->snd_una) - c->out0 - c->fin;
		c->done = now;
	}
	if (c->flags & (UNANSWERED | TRUNCATED))
		c->status = STATUS_ERROR;
	if (was_reset(sk, old) && (was != DONE || sk->sk_err))
		c->flags |= RESET;
	finish(c, sk, tp);
}

/* sock:inet_sock_set_state(const struct sock *sk, int old, int new), since 4.16 */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state_changed, struct sock *sk, int old, int new)
{
	struct tcp_sock *tp;
	struct conn *c;
	__u64 now;

	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (new == TCP_LISTEN) {
		struct listen_key key = { sk->__sk_common.skc_net.net->ns.inum, sk->__sk_common.skc_num };
		__u8 one = 1;

		bpf_map_update_elem(&listening, &key, &one, BPF_ANY);
		__sync_fetch_and_or(&served_ports[key.port >> 6 & 1023], 1ULL << (key.port & 63));
		return 0;
	}
	if (old == TCP_SYN_RECV && new == TCP_ESTABLISHED) {
		c = watch(sk, SERVED, bpf_ktime_get_ns(), 0);
		tp = tcp_of(sk);
		if (c && tp)
			count_connection(c, tp, 0);
		return 0;
	}
	if (new == TCP_SYN_SENT) {
		__u64 id = bpf_get_current_pid_tgid();

		if (!(side_mask & 2))
			return 0;
		c = watch(sk, CALLED, bpf_ktime_get_ns(), 0);
		if (c) {
			c->pid = id >> 32;
			c->tid = id;
		}
		return 0;
	}
	c = bpf_sk_storage_get(&conns, sk, 0, 0);
	if (!c || c->side == SIDE_NONE)
		return 0;
	tp = tcp_of(sk);
	if (!tp)
		return 0;
	now = bpf_ktime_get_ns();
	if (old == TCP_SYN_SENT && new == TCP_ESTABLISHED) {
		count_connection(c, tp, span(c->opened, now));
		c->lport = sk->__sk_common.skc_num; /* chosen after SYN_SENT */
		c->mark = tp->snd_nxt;
		return 0;
	}
	if (new == TCP_CLOSE_WAIT && (c->phase == ASKED || c->phase == ANSWERING) && c->side == SERVED) {
		c->flags |= HALF_CLOSED;
		c->farewell = tp->write_seq == c->mark && is_farewell(c, tp, now);
	}
	if (new == TCP_FIN_WAIT1 || new == TCP_LAST_ACK) {
		c->fin = 1;
		if (c->side == CALLED && new == TCP_FIN_WAIT1)
			c->farewell = is_farewell(c, tp, now);
		/* The acknowledgements to come are not seen by tcp_probe. */
		if (c->side == SERVED && c->phase == ASKED && tp->snd_nxt != c->mark)
			begin_answer(c, tp, now);
		if (c->side == SERVED && c->phase == ANSWERING)
			note_pause(c, sk, tp, now, min_rtt_of(tp));
		return 0;
	}
	if ((old == TCP_FIN_WAIT1 && new == TCP_FIN_WAIT2) || (old == TCP_LAST_ACK && new == TCP_CLOSE) || old == TCP_CLOSING)
		all_acknowledged(c, sk, tp, now);
	if (new == TCP_CLOSE || (c->side == SERVED && (new == TCP_FIN_WAIT2 || old == TCP_CLOSING)))
		close_request(c, sk, tp, old, now);
	if (new == TCP_CLOSE && with_closed && c->seq)
		report_closed(c, sk, tp);
	return 0;
}

/*
 * accept() asks who is calling when the application wants to know, which nearly
 * all do (inet_getname, net/ipv4/af_inet.c; hook since 5.8). It is the only
 * place where accept() can be seen cheaply: a tracepoint of any system call
 * makes all system calls of all programs slower.
 */
static __always_inline int note_accepted(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct conn *c;

	if (!sk)
		return 1;
	c = bpf_sk_storage_get(&conns, sk, 0, 0);
	if (c && c->side == SERVED && c->opened && !c->accept_us)
		c->accept_us = smaller(span(c->opened, bpf_ktime_get_ns()) / NSEC_PER_USEC, ~0U - 1) + 1;
	return 1;
}

SEC("cgroup/getpeername4")
int accepted4(struct bpf_sock_addr *ctx)
{
	return note_accepted(ctx);
}

SEC("cgroup/getpeername6")
int accepted6(struct bpf_sock_addr *ctx)
{
	return note_accepted(ctx);
}

/* tcp:tcp_sendmsg_locked(sk, msg, skb, size_goal), since 6.16 */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(sending, struct sock *sk, struct msghdr *msg)
{
	struct conn *c;

	if (side_mask == 1 && !has_port(served_ports, sk->__sk_common.skc_num))
		return 0;
	c = bpf_sk_storage_get(&conns, sk, 0, 0);
	if (!c)
		return 0;
	if (c->side == SERVED && c->proto >= PROTO_HTTP1 && c->phase == ASKED && !c->answered)
		look_at_answer(c, msg);
	else if (c->side == CALLED && (with_labels || (c->proto <= PROTO_OTHER && c->seq < 4)))
		look_at_sent_request(c, sk, msg);
	return 0;
}

/* Requests that are over, on connections where nothing happens any more. */
__u64 idle_ns; /* how long nothing has to happen for that */
__u64 unfinished_ns; /* requests that take longer are told of while they last, once */
__u8 again; /* also those that were told of */

SEC("iter/bpf_sk_storage_map")
int flush(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;
	struct conn *c = ctx->value, copy;
	struct tcp_sock *tp;
	__u32 was, over;
	__u64 now, told = 0;

	if (!sk || !c || c->side == SIDE_NONE)
		return 0;
	tp = tcp_of(sk);
	if (!tp)
		return 0;
	now = bpf_ktime_get_ns();
	__builtin_memcpy(&copy, c, sizeof(copy));
	was = copy.phase;
	over = copy.side == SERVED ? DONE : ANSWERING;
	if (was == over) {
		if (span(copy.done, now) < idle_ns)
			return 0;
		if (__sync_val_compare_and_swap(&c->phase, was, TAKEN) != was)
			return 0;
		if (c->seq == copy.seq) {
			c->told_us = copy.stall / NSEC_PER_USEC;
			finish(&copy, sk, tp);
			/* So that user space can stop after some, and make room. */
			bpf_seq_write(ctx->meta->seq, &told, sizeof(told));
		}
		return 0;
	}
	/* From the last byte of the request: a stream of log lines is none. */
	if ((was == ASKED || was == ANSWERING) && (again || !copy.reported) && span(copy.last, now) >= unfinished_ns) {
		c->reported = 1;
		copy.flags |= UNFINISHED;
		copy.done = now;
		if (was == ANSWERING && copy.side == SERVED)
			note_limits(&copy, sk, tp, now, min_rtt_of(tp));
		finish(&copy, sk, tp);
		bpf_seq_write(ctx->meta->seq, &told, sizeof(told));
	}
	return 0;
}

/* Never attached: that it loads says that payload() will. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(payload_probe, struct sock *sk, struct sk_buff *skb)
{
	struct bpf_dynptr p;

	return bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &p);
}
