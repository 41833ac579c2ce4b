/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * What the network does to the streams of a connection, by the sequence numbers of their
 * frames: which waited for a segment that was lost, for a receiver that does not read, and
 * until when the answer was on its way.
 *
 * TCP delivers in order, so a stream waits for what was lost before its own bytes, whosever
 * that is (head-of-line blocking), and for nothing that was lost behind them.
 */
#ifndef SLOWRAY_HTTP2_WIRE_H
#define SLOWRAY_HTTP2_WIRE_H

#define CA_LOSS 4 /* enum tcp_ca_state */

/* enum tcp_chrono (include/linux/tcp.h) */
#define CHRONO_RWND_LIMITED 2
#define CHRONO_SNDBUF_LIMITED 3

/* Microseconds on top of some; those of a stream that lasts for days stay at the most. */
static __always_inline __u32 more(__u32 us, __u64 ns)
{
	return smaller(us + ns / NSEC_PER_USEC, ~0U);
}

/* When a byte was written that leaves now: before, where the socket could not send it at once. */
__noinline __u64 written_at(struct multiplexed *m, __u32 seq)
{
	__u64 now;

	if (!m)
		return 0;
	now = m->leaves;
	for (int i = 0; i < QUEUED; i++) {
		struct written *w = &m->writes[m->oldest & (QUEUED - 1)];

		if (m->oldest == m->newest)
			break;
		if (after(w->upto, seq))
			return smaller(w->at, now);
		m->oldest++;
	}
	return now;
}

/* A process has written, and not all of it could be sent. Where too many writes wait, the later
 * of two stands for both. */
static __always_inline void note_written(struct multiplexed *m, __u32 upto, __u64 now)
{
	__u32 i = m->newest - m->oldest >= QUEUED ? m->newest - 1 : m->newest++;
	struct written *w = &m->writes[i & (QUEUED - 1)];

	w->upto = upto;
	w->at = now;
}

/* Where a frame begins, and when that was written. */
static __always_inline void place_frame(struct at *at, __u32 seq)
{
	at->frame = seq;
	if (at->out)
		at->now = at->m->oldest == at->m->newest ? at->m->leaves : written_at(at->m, seq);
}

/* A stream waited for what was lost, but for what of it is counted already. */
static __always_inline void add_loss(struct stream *s, __u64 from, __u64 to)
{
	from = later(from, s->lost_to);
	if (to <= from)
		return;
	s->lost_us = more(s->lost_us, to - from);
	s->lost_to = to;
}

/* Something was retransmitted and is not acknowledged yet: what a stream has waited for it. */
static __always_inline void note_loss(struct multiplexed *m, struct stream *s, __u64 now)
{
	if (m->due && s->from != s->upto && after(s->upto, m->lost_from) && after(s->upto, m->una))
		add_loss(s, later(m->due, s->flight + m->rtt_us * NSEC_PER_USEC), now);
}

/* A frame of a stream is sent by this end, and was written at a time. Not static, as end_stream(). */
__noinline int note_frame_sent(struct multiplexed *m, struct stream *s, __u32 from, __u32 upto, __u64 written)
{
	if (!m || !s)
		return 0;
	if (s->from == s->upto) {
		s->from = from;
		s->flight = written;
	} else if (!after(s->upto, m->una)) {
		s->flight = written;
	}
	s->upto = upto;
	if (!after(from, m->una)) /* nothing else is on its way */
		m->progress = later(m->progress, written);
	if (written < m->leaves) /* it waited in the socket until what was lost had come */
		add_loss(s, later(written, m->lost_began), smaller(m->leaves, m->lost_ended));
	return 0;
}

/*
 * An answer goes on, or ends, after a pause: all of it so far had arrived, and a round trip had
 * gone by. What passed after the other end last allowed more (WINDOW_UPDATE, RFC 9113, 6.9) is the
 * application's: nothing else kept it. Of what passed before that, it is not known.
 */
static __always_inline int note_pause(struct multiplexed *m, struct stream *s, __u64 now)
{
	__u64 from, allowed, rtt;

	if (!s->answer || !s->sent || (m->side == SERVED && after(s->upto, m->una)))
		return 0;
	rtt = m->rtt_us * NSEC_PER_USEC;
	from = s->sent + rtt;
	if (from + NSEC_PER_MSEC >= now)
		return 0;
	if (m->side == SERVED) {
		if (m->due) { /* when of the time this stream's bytes had come is not known */
			s->held_us = more(s->held_us, span(from, now));
			return 0;
		}
		from = later(from, smaller(m->lost_ended, now)); /* counted as such */
	}
	allowed = s->window_us ? s->sent + s->window_us * NSEC_PER_USEC : 0;
	if (m->window > s->sent)
		allowed = later(allowed, m->window);
	if (m->side == CALLED && allowed)
		allowed += rtt; /* until it is there, and what it allows is here */
	allowed = smaller(later(allowed, from), now);
	s->held_us = more(s->held_us, allowed - from);
	s->stall_us = more(s->stall_us, now - allowed);
	return 0;
}

/* What a stream has waited for up to now. Not static, as end_stream(). */
__noinline int bring_up(struct multiplexed *m, struct stream *s, __u64 now)
{
	if (!m || !s)
		return 0;
	note_loss(m, s, now);
	return note_pause(m, s, now);
}

/* The end that asked allows more to be answered: of a stream, or of all. Not static, as end_stream(). */
__noinline int note_window(struct multiplexed *m, __u32 id, __u64 now)
{
	struct stream *s;

	if (!m)
		return 0;
	if (!id) {
		m->window = now;
		return 0;
	}
	s = stream_of(m, id, 0);
	if (s && s->sent)
		s->window_us = smaller(span(s->sent, now) / NSEC_PER_USEC + 1, ~0U);
	return 0;
}

/* Ends a stream that only waits to be acknowledged, in one of the places that another may have:
 * which, plus 1; 0 = there is none. Not static, as end_stream(). */
__noinline int make_room(struct multiplexed *m, __u32 id, __u64 now)
{
	if (!m)
		return 0;
	for (int i = 0; i < TRIES; i++) {
		__u32 n = ((id >> 1) + i) & (STREAMS - 1);
		struct stream *s = &m->streams[n];

		if (s->over == SENT) {
			end_sent(m, s, 0, now);
			return n + 1;
		}
	}
	return 0;
}

static __always_inline struct stream *room_for(struct multiplexed *m, __u32 id, __u64 now)
{
	int n = make_room(m, id, now);
	struct stream *s = &m->streams[(n - 1) & (STREAMS - 1)];

	return n && !s->id ? s : 0;
}

/* A request has come to its end: upto is the sequence number after it. Not static, as end_stream(). */
__noinline int note_asked(struct multiplexed *m, struct stream *s, __u32 upto)
{
	if (!m || !s || m->side != SERVED || m->next_asked - m->first_asked >= STREAMS)
		return 0;
	s->asked_upto = upto;
	m->asked[m->next_asked & (STREAMS - 1)] = s->id;
	m->next_asked++;
	return 0;
}

/* An answer is sent to its end. 0 = nobody will know when it is acknowledged. */
static __noinline int note_over(struct multiplexed *m, struct stream *s)
{
	if (!m || !s || m->side != SERVED || m->next_over - m->first_over >= STREAMS || s->from == s->upto)
		return 0;
	m->over[m->next_over++ & (STREAMS - 1)] = s->id;
	s->over = SENT;
	return 1;
}

/* A segment that came in, or a read, for a turn of a loop each. */
struct incoming {
	struct multiplexed *m;
	__u64 now;
	__u32 una, ack; /* acknowledged before it, and by it; of a read: read up to */
	__u32 from, upto; /* of what is retransmitted */
	__u32 segments;
};

static long add_recovered(__u32 i, void *context)
{
	struct incoming *in = context;
	struct stream *s = &in->m->streams[i & (STREAMS - 1)];

	if (s->id && s->over != CLAIMED)
		note_loss(in->m, s, in->now);
	return 0;
}

static long add_retransmitted(__u32 i, void *context)
{
	struct incoming *in = context;
	struct stream *s = &in->m->streams[i & (STREAMS - 1)];

	if (s->id && s->from != s->upto && after(s->upto, in->from) && after(in->upto, s->from))
		s->again += in->segments;
	return 0;
}

/* The next answer that is acknowledged to its end; 1 = there is none. */
static long end_acked(__u32 i, void *context)
{
	struct incoming *in = context;
	struct multiplexed *m = in->m;
	struct stream *s;
	__u64 waited, rtt;

	if (m->first_over == m->next_over)
		return 1;
	s = stream_of(m, m->over[m->first_over & (STREAMS - 1)], 0);
	if (s && s->over == SENT) {
		if (after(s->upto, in->ack))
			return 1;
		note_loss(m, s, in->now);
		rtt = m->rtt_us * NSEC_PER_USEC;
		waited = span(later(later(s->sent, m->progress), s->lost_to), in->now);
		/* The other end acknowledges when it likes, and a timer may have begun, and ended, with another
		 * stream's bytes: beyond the shortest round trip nobody is known to have waited. */
		if (!s->lost_us && rtt && waited > rtt)
			s->late_us = (waited - rtt) / NSEC_PER_USEC + 1;
		s->acked = in->now;
		end_sent(m, s, 0, in->now);
	}
	m->first_over++;
	return 0;
}

/* The next request that is read to its end; 1 = there is none. */
static long end_read(__u32 i, void *context)
{
	struct incoming *in = context;
	struct multiplexed *m = in->m;
	struct stream *s;

	if (m->first_asked == m->next_asked)
		return 1;
	s = stream_of(m, m->asked[m->first_asked & (STREAMS - 1)], 0);
	if (s) {
		if (after(s->asked_upto, in->ack))
			return 1;
		if (!s->read)
			s->read = in->now;
	}
	m->first_asked++;
	return 0;
}

/* What keeps bytes back that wait to be sent: since the last acknowledgement, or look. */
static __always_inline void note_limited(struct multiplexed *m, struct tcp_sock *tp, __u64 now)
{
	__u8 chrono = BPF_CORE_READ_BITFIELD(tp, chrono_type);

	if (!tp->snd_wnd)
		m->zero_window = now;
	if (chrono == CHRONO_RWND_LIMITED && tp->write_seq != tp->snd_nxt)
		m->recv_window = now;
	else if (chrono == CHRONO_SNDBUF_LIMITED)
		m->send_buffer = now;
	else
		return;
	m->limited += span(m->progress, now);
	m->progress = now;
}

static __always_inline struct multiplexed *wire_of(struct sock *sk)
{
	struct multiplexed *m = at_place(bpf_sk_storage_get(&place_of, sk, 0, 0));

	return m && m->taken == TAKEN_PLACE && !m->owner ? m : 0;
}

/* tcp:tcp_probe(struct sock *sk, struct sk_buff *skb): a segment came in, and the socket has not
 * dealt with it. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(http2_acked, struct sock *sk, struct sk_buff *skb)
{
	struct multiplexed *m = wire_of(sk);
	struct tcp_skb_cb *cb = (void *)skb->cb;
	struct incoming in = { .m = m };
	struct tcp_sock *tp;

	if (!m)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	in.ack = cb->ack_seq;
	in.una = tp->snd_una;
	if (!after(in.ack, in.una)) { /* a duplicate, or the window opens */
		if (m->open && tp->write_seq != tp->snd_nxt)
			note_limited(m, tp, bpf_ktime_get_ns());
		return 0;
	}
	if (after(in.ack, tp->snd_nxt))
		return 0;
	in.now = bpf_ktime_get_ns();
	m->rtt_us = min_rtt_of(tp) / NSEC_PER_USEC;
	if (m->first_over != m->next_over)
		bpf_loop(STREAMS, end_acked, &in, 0);
	if (in.ack != tp->snd_nxt || tp->write_seq != tp->snd_nxt)
		note_limited(m, tp, in.now);
	if (m->due && !before(in.ack, m->recover)) {
		bpf_loop(STREAMS, add_recovered, &in, 0);
		m->lost_began = m->due;
		m->lost_ended = in.now;
		m->due = 0;
	}
	m->una = in.ack;
	m->progress = in.now;
	return 0;
}

/* tcp:tcp_retransmit_skb(sk, skb[, err since 6.17]) */
SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(http2_retransmitted, struct sock *sk, struct sk_buff *skb)
{
	struct multiplexed *m = wire_of(sk);
	struct tcp_skb_cb *cb = (void *)skb->cb;
	struct incoming in = { .m = m };
	struct tcp_sock *tp;

	if (!m)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	in.now = bpf_ktime_get_ns();
	if (!tp->snd_wnd) { /* a probe: the receiver has no room, and nothing is lost */
		m->zero_window = in.now;
		return 0;
	}
	if (BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state) == CA_LOSS)
		m->timeout = in.now;
	in.from = cb->seq;
	in.upto = cb->end_seq;
	in.segments = cb->tcp_gso_segs ? cb->tcp_gso_segs : 1;
	bpf_loop(STREAMS, add_retransmitted, &in, 0);
	if (m->due) {
		if (after(in.upto, m->recover))
			m->recover = in.upto;
		if (before(in.from, m->lost_from))
			m->lost_from = in.from;
		return 0;
	}
	m->lost_from = in.from;
	m->recover = in.upto;
	/* Without loss the acknowledgement would have come right after the one before, or a round trip
	 * after sending, which is another time for each stream. */
	m->due = later(m->progress, 1);
	return 0;
}

/* tcp:tcp_rcv_space_adjust(struct sock *sk): the application has read. */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(http2_read, struct sock *sk)
{
	struct multiplexed *m = wire_of(sk);
	struct incoming in = { .m = m };
	struct tcp_sock *tp;

	if (!m || m->first_asked == m->next_asked) /* called: always */
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	in.ack = tp->copied_seq;
	in.now = bpf_ktime_get_ns();
	bpf_loop(STREAMS, end_read, &in, 0);
	return 0;
}

/* sock:sock_send_length(struct sock *sk, int ret, int flags), since 6.3: a call that sends returns. */
SEC("tp_btf/sock_send_length")
int BPF_PROG(http2_written, struct sock *sk, int ret)
{
	struct multiplexed *m;
	struct tcp_sock *tp;

	if (ret <= 0 || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	m = wire_of(sk);
	tp = m ? bpf_skc_to_tcp_sock(sk) : 0;
	if (tp && tp->write_seq != tp->snd_nxt)
		note_written(m, tp->write_seq, bpf_ktime_get_ns());
	return 0;
}

#endif
