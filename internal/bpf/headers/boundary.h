/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The boundaries of a request that both ends have in common: when bytes left,
 * where a request begins, and what is none because nobody waits for an answer.
 */
#ifndef SLOWRAY_BOUNDARY_H
#define SLOWRAY_BOUNDARY_H

/* Delayed acknowledgements wait at least 40 ms on Linux (TCP_DELACK_MIN,
 * include/net/tcp.h), in jiffies of up to 4 ms; elsewhere longer. */
#define DELAYED_ACK (35 * NSEC_PER_MSEC)

/* What follows within this time, and two round trips, follows at once: a client
 * that closes so soon after its last byte did not wait for an answer. */
#define AT_ONCE (5 * NSEC_PER_MSEC)

/* Writes of one request follow each other within this time, and two round trips
 * where Nagle's algorithm is at work. */
#define WRITES (NSEC_PER_MSEC / 2)

/* Acknowledgements in HTTP/2 (SETTINGS, WINDOW_UPDATE, PING: RFC 9113, 6), the
 * end of a TLS 1.3 handshake and the like are no longer than this, with what
 * TLS adds. */
#define REMARK 96

/* KeyUpdate of TLS 1.3, alone in its record (RFC 8446, 4.6.3, 5.2): header; type and length,
 * what is asked for; content type and tag. So long is also COM_PING of MySQL, which is answered. */
#define KEY_UPDATE (5 + 4 + 1 + 1 + 16)

/* COM_STMT_CLOSE of MySQL, which has no answer: header, command, number. */
#define MYSQL_STMT_CLOSE 9

#define TCPCB_EVER_RETRANS 0x80

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

static __always_inline __u64 at_once(struct tcp_sock *tp) { return AT_ONCE + 2 * min_rtt_of(tp); }

/* What stands for a request that begins, or began a moment ago, see follow_share. */
static __always_inline __u8 share_of(struct conn *c, struct tcp_sock *tp, __u64 when)
{
	__u32 jiffies;

	if (!follow_share)
		return 0;
	if (c->side == SERVED)
		return share_now((struct sock *)tp);
	if (follow_sends)
		return c->sent_share == UNCOUNTED_SENT ? UNCOUNTED : c->sent_share;
	jiffies = (__u32)bpf_jiffies64() - span(when, bpf_ktime_get_ns()) / jiffy_ns();
	return turn_at((struct sock *)tp, jiffies) < follow_slice ? follow_share : UNCOUNTED;
}

static __always_inline void begin(struct conn *c, struct tcp_sock *tp, __u64 now)
{
	c->share = share_of(c, tp, now);
	c->prompt = c->done && span(later(c->done, c->read), now) <= at_once(tp);
	c->flags = !c->opened && !c->seq ? PREEXISTING : 0;
	c->seq++;
	c->requests = 0;
	c->first = c->last = now;
	c->read = c->answer = c->done = 0;
	c->progress = 0;
	c->told_us = 0;
	c->reread = 0;
	c->farewell = 0;
	c->all_read = 0;
	c->stall = c->retrans_ns = c->ack_delay = c->due = 0;
	if (c->side == SERVED)
		c->send_wait = 0;
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
	c->in_hand = 0;
	c->phase = ASKED;
}

/* What had to be retransmitted is acknowledged. What passed since it should have
 * been is retransmission. */
static __always_inline void recovered(struct conn *c, __u64 now)
{
	if (!c->due)
		return;
	c->retrans_ns += span(c->due, now);
	c->due = 0;
}

/* Bytes of the request that came, or went, after others. */
static __always_inline void ask_more(struct conn *c, __u64 when)
{
	__u64 pause = span(c->last, when) / NSEC_PER_USEC;

	if (pause > c->pause_us)
		c->pause_us = smaller(pause, ~0U);
	c->last = when;
}

/*
 * Whether what was said may be a remark and no request: something that the other
 * end takes note of and does not answer. Where the protocol is not known, as
 * under TLS, it is short and follows an answer at once, or new keys. bytes is how much was
 * said, heard whether the other end has all of it.
 *
 * This decides only what is otherwise not known: when more comes after a pause,
 * that is the request; when nothing comes, nobody is waiting.
 */
static __always_inline int is_remark(struct conn *c, __u64 bytes, int heard)
{
	if (c->phase != ASKED || !heard)
		return 0;
	if (c->proto == PROTO_MYSQL)
		return bytes == MYSQL_STMT_CLOSE;
	if (c->tls == TLS_READY && bytes == KEY_UPDATE)
		return c->proto <= PROTO_OTHER;
	return c->proto <= PROTO_OTHER && c->prompt && bytes <= REMARK;
}

/*
 * Whether bytes that come from the answering end of their own accord, so long
 * after its answer, are a remark too: a TLS connection that is closed for being
 * idle, a PING of HTTP/2, a heartbeat, an event. If so, the answer ends before
 * them. So far it is answered bytes long: what is no longer than a remark may
 * have been one itself, and this the answer.
 */
static __always_inline int is_remark_of_server(struct conn *c, __u64 answered, __u32 bytes, __u64 pause)
{
	return c->proto <= PROTO_OTHER && answered > REMARK && bytes <= REMARK && pause > NSEC_PER_SEC;
}

/* Ends a request, complete in phase over, before a remark. */
static __always_inline void end_before_remark(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 over, __u64 now)
{
	if (c->phase == over && __sync_val_compare_and_swap(&c->phase, over, TAKEN) == over) {
		c->told_us = c->stall / NSEC_PER_USEC;
		finish(c, sk, tp);
	}
	c->read = now; /* what follows at once follows this */
}

/* Whether what comes after a pause may be something else. A pause as long as the
 * other end's delayed acknowledgement says nothing: Nagle's algorithm holds the
 * rest of a request back for it, 40 ms on Linux, 200 elsewhere. */
static __always_inline int is_apart(struct tcp_sock *tp, __u64 pause)
{
	__u64 rtt = min_rtt_of(tp);

	return pause > WRITES + 2 * rtt &&
	       !(pause >= DELAYED_ACK && pause <= rtt + 48 * NSEC_PER_MSEC) &&
	       !(pause >= 196 * NSEC_PER_MSEC && pause <= rtt + 212 * NSEC_PER_MSEC);
}

/* Whether an asking end that closes now waits for no answer: it has just said
 * something; or nothing was ever answered, it has paused about as long before,
 * and what it says is no protocol of questions: log lines, a copy. HTTP/1 has no
 * word of farewell: whoever closes there has given up. */
static __always_inline int is_farewell(struct conn *c, struct tcp_sock *tp, __u64 now)
{
	__u64 silent = span(c->last, now);

	if (c->phase != ASKED || c->proto == PROTO_HTTP1)
		return 0;
	return silent <= at_once(tp) ||
	       (c->seq == 1 && c->proto <= PROTO_OTHER && silent <= 2 * c->pause_us * NSEC_PER_USEC);
}

/* Whether more of an answer than was taken for all of it is out, up to sent; a
 * remark is none. */
static __always_inline int is_more_out(const struct conn *c, __u32 sent)
{
	return c->side == SERVED && (c->phase == DONE || c->phase == TAKEN) &&
	       (__s32)(sent - c->mark) > (c->proto <= PROTO_OTHER ? REMARK : 0);
}

#endif
