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
 *   tcp_retransmit_skb     something was retransmitted
 *   getpeername (cgroup)   accept() gives the application the connection
 *   tcp_sendmsg_locked     since 6.16, and only for the first bytes of an
 *                          answer: its status, which thread sends it, and the
 *                          span that it has in hand
 *   sock_send_length       the latter, from 6.3 to 6.15
 *   sched_switch, sched_waking   what threads do that have a request in hand
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
#include "headers/jiffies.h"
#include "headers/memory.h"
#include "headers/watch.h"
#include "headers/work.h"
#include "headers/sched.h"
#include "headers/record.h"
#include "headers/head.h"
#include "headers/thread_context.h"
#include "headers/ledger.h"
#include "headers/tls.h"
#include "headers/protocol.h"
#include "headers/boundary.h"
#include "headers/served.h"
#include "headers/called.h"
#include "headers/closing.h"
#include "headers/turn.h"
#include "headers/opening.h"
#include "headers/flush.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define CA_LOSS 4 /* enum tcp_ca_state */

#define TCPHDR_FIN 0x01

/* Where only what is served is wanted, most other sockets are recognized by their
 * port, which is much cheaper than looking for their connection. */
static __always_inline int unwanted(struct sock *sk)
{
	return side_mask == 1 && !has_port(served_ports, sk->__sk_common.skc_num);
}

/* The connection of a socket; 0 when it is not known or not watched. */
static __always_inline struct conn *watched(struct sock *sk)
{
	struct conn *c = known(sk);

	return c && c->side != SIDE_NONE ? c : 0;
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
	int closes = 0;
	__u8 fin;
	__u64 now;

	if (unwanted(sk))
		return 0;
	c = known(sk);
	if (!c) {
		if (!in_turn(sk))
			return 0;
		c = adopt(sk);
		if (!c)
			return 0;
		meet(c, sk, 0);
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
	if (c->tls_is & TLS_UNTIL)
		tls_finished(c, sk, bytes);
	if (c->proto == PROTO_TLS && c->side == CALLED && tls_called_segment(c, sk, skb, bytes))
		return 0;
	if (c->side == SERVED && c->tls < TLS_READY && (c->proto == PROTO_TLS || (bytes && c->seq <= 3 && may_begin_tls(c, tp))) &&
	    tls_segment(c, sk, skb, bytes))
		return 0;
	if (c->side == SERVED && bytes && is_early_open(c, after(tp->snd_nxt, c->mark)) && tls_early_segment(c, sk, skb, bytes))
		bytes = 0;
	if (bytes && cb->seq != tp->rcv_nxt && after(cb->seq, tp->rcv_nxt))
		c->flags |= REORDERED;
	if (c->side == SERVED && c->tls == TLS_READY && is_tls_alert_segment(skb, bytes))
		closes = 1;
	if (c->side == SERVED)
		served_segment(c, sk, tp, end, cb->ack_seq, bytes, closes, now);
	else
		called_segment(c, sk, tp, end, cb->ack_seq, bytes, now);
	if (closes)
		return 0;
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
	__u32 was;
	int same;

	if (unwanted(sk))
		return 0;
	c = watched(sk);
	if (!c) {
		/* Who calls may be followed, though the connection is not. */
		if (with_work && follow_share && !has_port(served_ports, sk->__sk_common.skc_num) && *handed_like(sk))
			work_heard(sk);
		return 0;
	}
	tp = tcp_of(sk);
	if (!tp)
		return 0;
	task = bpf_get_current_task_btf();
	same = c->tid == task->pid;
	c->pid = task->tgid;
	c->tid = task->pid;
	if (c->copied == tp->copied_seq)
		return 0; /* nothing was copied (tcp_read_sock) */
	was = c->copied;
	c->copied = tp->copied_seq;
	if (c->side == CALLED) {
		if (with_work)
			work_heard(sk);
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
		} else if (state == TCP_ESTABLISHED && is_answer_unseen(c, tp)) {
			answer_unseen(c, sk, tp, was);
		} else if (c->phase == ANSWERING && tp->copied_seq == tp->rcv_nxt) {
			c->read = bpf_ktime_get_ns();
		}
		return 0;
	}
	if (c->phase == IDLE && !c->seq && !c->tls && tp->bytes_received && (c->opened || !follow_share)) {
		/* The first bytes came with the end of the handshake, which
		 * tcp_probe does not see (TCP_DEFER_ACCEPT, fast open). */
		begin(c, tp, c->opened ? c->opened : bpf_ktime_get_ns());
		c->in0 = 0;
		c->flags |= ESTIMATED;
	}
	if (may_be_early(c) && is_early_end_read(c, tp->copied_seq == tp->rcv_nxt))
		return 0;
	if ((c->phase == ASKED || c->phase == ANSWERING || c->phase == DONE) && tp->write_seq != c->mark &&
	    tls_tickets(c, tp->write_seq - c->mark)) {
		/* It is read only now: what went out are session tickets. */
		same = 0;
		c->phase = ASKED;
		c->mark = tp->write_seq;
		c->answer = c->done = 0;
		c->ack_delay = 0;
	}
	if ((c->phase == ASKED && tp->write_seq == c->mark) ||
	    (c->phase != IDLE && request_unseen(c, sk, tp, was))) {
		__u64 now = bpf_ktime_get_ns();
		/* All of it had come, and the same thread has just read a part of it: it is in hand. */
		same = same && c->in_hand && c->read > c->last && now - c->read < AT_ONCE / 50;
		c->read = now;
		c->all_read = tp->copied_seq == tp->rcv_nxt;
		if (with_work && !same && c->share != UNCOUNTED)
			work_read(c, sk);
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
	struct conn *c = watched(sk);
	struct tcp_skb_cb *cb = (void *)skb->cb;
	struct tcp_sock *tp;
	__u64 now, expected;

	/* Handshakes and FINs are nobody's request. */
	if (!c || c->proto == PROTO_TLS || sk->__sk_common.skc_state == TCP_SYN_SENT || sk->__sk_common.skc_state == TCP_SYN_RECV)
		return 0;
	if (c->side == CALLED && sk->__sk_common.skc_state != TCP_ESTABLISHED && sk->__sk_common.skc_state != TCP_CLOSE_WAIT)
		return 0;
	tp = tcp_of(sk);
	if (!tp)
		return 0;
	now = bpf_ktime_get_ns();
	if (!tp->snd_wnd) { /* a probe: the receiver has no room, and nothing is lost */
		c->flags |= ZERO_WINDOW;
		c->retrans0 += cb->tcp_gso_segs ? cb->tcp_gso_segs : 1;
		return 0;
	}
	if (BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state) == CA_LOSS)
		c->flags |= TIMEOUT;
	if (c->side == SERVED && c->phase == ASKED && after(tp->snd_nxt, c->mark))
		begin_answer(c, tp, now);
	if (is_more_out(c, tp->snd_nxt))
		go_on(c, sk, tp, tp->snd_nxt, now);
	if (c->side == CALLED && tp->snd_nxt != c->mark && c->phase != ASKED)
		called_sent(c, sk, tp, now, cb->tcp_gso_segs);
	if (c->due) {
		if (after(cb->end_seq, c->recover))
			c->recover = cb->end_seq;
		return 0;
	}
	c->recover = cb->end_seq;
	if (c->phase == DONE || c->phase == IDLE)
		return 0;
	/* Without loss the acknowledgement would have come a round trip after
	 * sending, or right after the one before. */
	expected = flight_start(tp, 0, now) + min_rtt_of(tp);
	c->due = later(c->progress, expected);
	return 0;
}

/* A connection was opened, is closing or is closed. */
static __noinline int change_state(struct sock *sk, int old, int new)
{
	struct tcp_sock *tp;
	struct conn *c;
	__u64 now;
	__u32 over, abrupt, ends, acknowledged;

	if (!sk)
		return 0;
	/* Only TCP's sockets are ever watched: of the rest that is checked where it can begin. */
	if ((new == TCP_LISTEN || new == TCP_SYN_SENT || old == TCP_SYN_SENT || old == TCP_SYN_RECV) &&
	    sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (new == TCP_LISTEN) {
		struct listen_key key = { netns_of(sk), sk->__sk_common.skc_num };
		__u8 one = 1;

		bpf_map_update_elem(&listening, &key, &one, BPF_ANY);
		__sync_fetch_and_or(&served_ports[key.port >> 6 & 1023], 1ULL << (key.port & 63));
		return 0;
	}
	if (old == TCP_SYN_RECV && new == TCP_ESTABLISHED) {
		if (!in_turn(sk))
			return count_left_out(sk, SERVED);
		c = watch(sk, SERVED, bpf_ktime_get_ns());
		tp = tcp_of(sk);
		if (c && tp && c->side != SIDE_NONE) {
			keep(c, sk);
			count_connection(c, sk, SERVED, tp, 0);
		}
		return 0;
	}
	if (new == TCP_SYN_SENT) {
		__u64 id = bpf_get_current_pid_tgid();

		if (!(side_mask & 2))
			return 0;
		if (follow_share) { /* its place is not known before it has a port */
			if (!is_wanted(sk, CALLED))
				return 0;
			if (!(bpf_get_prandom_u32() & ((1U << (follow_share & 31)) - 1)))
				note_caller(id >> 32);
			if (with_work)
				work_calls(sk);
			return 0;
		}
		c = watch(sk, CALLED, bpf_ktime_get_ns());
		if (c) {
			c->pid = id >> 32;
			c->tid = id;
			if (c->side == CALLED)
				note_caller(id >> 32);
			if (with_work && c->side == CALLED)
				work_calls(sk);
		}
		return 0;
	}
	c = watched(sk);
	if (!c && follow_share && old == TCP_SYN_SENT && new == TCP_ESTABLISHED && is_wanted(sk, CALLED)) {
		tp = tcp_of(sk);
		if (!in_turn(sk) || !tp)
			return count_left_out(sk, CALLED);
		c = watch(sk, CALLED, bpf_ktime_get_ns() - smoothed_rtt(tp));
	}
	if (!c) {
		if (new == TCP_CLOSE && with_work && (!follow_share || !has_port(served_ports, sk->__sk_common.skc_num)))
			work_over(sk);
		return 0;
	}
	tp = tcp_of(sk);
	if (!tp)
		return 0;
	now = bpf_ktime_get_ns();
	if (new == TCP_CLOSE)
		keep_no_more(c, sk);
	if (old == TCP_SYN_SENT && new == TCP_ESTABLISHED) {
		note_established(c, tp, now);
		keep(c, sk);
		count_connection(c, sk, CALLED, tp, span(c->opened, now));
		c->lport = sk->__sk_common.skc_num; /* chosen after SYN_SENT */
		c->mark = tp->snd_nxt;
		return 0;
	}
	if (new == TCP_CLOSE_WAIT && (c->phase == ASKED || c->phase == ANSWERING) && c->side == SERVED) {
		c->flags |= HALF_CLOSED;
		c->farewell = tp->write_seq == c->mark && is_farewell(c, tp, now);
	}
	/* The handshake was not completed, or the serving end did not take it. */
	if (new == TCP_CLOSE && (c->proto == PROTO_TLS || c->tls_is & TLS_UNTIL)) {
		c->tls_is &= ~TLS_UNTIL;
		c->status = STATUS_ERROR;
		report(c, sk, tp, RECORD_TLS);
		c->status = STATUS_UNKNOWN;
		c->tls_ns = 1;
	}
	if (c->proto == PROTO_TLS)
		goto closed;
	/* Asked, and closed before anything came back. */
	if (c->side == CALLED && (old == TCP_ESTABLISHED || old == TCP_CLOSE_WAIT) && new != TCP_CLOSE_WAIT &&
	    tp->packets_out && after(tp->snd_nxt, c->mark))
		called_sent(c, sk, tp, now, 0);
	if (new == TCP_FIN_WAIT1 || new == TCP_LAST_ACK) {
		if (c->side == CALLED && new == TCP_FIN_WAIT1)
			c->farewell = is_farewell(c, tp, now);
		give_up(c, sk);
		c->fin = 1;
		/* The acknowledgements to come are not seen by tcp_probe. */
		if (c->side == SERVED && c->phase == ASKED && after(tp->snd_nxt, c->mark))
			begin_answer(c, tp, now);
		if (is_more_out(c, tp->write_seq))
			go_on(c, sk, tp, tp->write_seq, now);
		if (c->side == SERVED && c->phase == ANSWERING)
			note_pause(c, sk, tp, now, min_rtt_of(tp));
		return 0;
	}
	over = new == TCP_CLOSE;
	abrupt = old == TCP_ESTABLISHED || old == TCP_CLOSE_WAIT;
	ends = over || (c->side == SERVED && (new == TCP_FIN_WAIT2 || old == TCP_CLOSING));
	acknowledged = (old == TCP_FIN_WAIT1 && new == TCP_FIN_WAIT2) || (old == TCP_LAST_ACK && over) || old == TCP_CLOSING;
	/* From here on these count and not the states: else the verifier looks at what follows for each pair. */
	asm volatile("" : "+r"(over), "+r"(abrupt), "+r"(ends), "+r"(acknowledged));
	if (acknowledged)
		all_acknowledged(c, sk, tp, now);
	if (ends)
		close_request(c, sk, abrupt);
	if (over && with_closed && c->seq)
		report(c, sk, tp, RECORD_CLOSED);
closed:
	if (new == TCP_CLOSE && with_work)
		work_over(sk);
	return 0;
}

/* What counts calls of connect(): a program of its own (connect.bpf.c), which is not attached
 * but called from here where they begin and where they fail; those that succeed are counted
 * here anyhow. The way into a program costs as much as what these two do, and a connection
 * changes its state five times at each end. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} on_connect SEC(".maps");

const volatile __u8 with_tail_calls; /* the kernel lets programs with functions do so */

/* sock:inet_sock_set_state(const struct sock *sk, int old, int new), since 4.16 */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state_changed, struct sock *sk, int old, int new)
{
	/* Of ten changes of a connection that is not followed six end here. */
	if (follow_share && old != TCP_SYN_SENT && old != TCP_SYN_RECV && new != TCP_SYN_SENT && new != TCP_LISTEN &&
	    !*kept_like(sk) && !*handed_like(sk))
		return 0;
	/* Before the rest, after which the verifier need not know the states any more. */
	if (new == TCP_SYN_SENT && lookups_seen)
		take_lookup(sk, bpf_get_current_pid_tgid());
	change_state(sk, old, new);
	if (with_tail_calls && (new == TCP_SYN_SENT || (old == TCP_SYN_SENT && new == TCP_CLOSE)))
		bpf_tail_call(ctx, &on_connect, 0);
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
	struct tcp_sock *tp;
	struct conn *c;

	if (!sk)
		return 1;
	if (follow_share) {
		tp = bpf_skc_to_tcp_sock(sk);
		if (!tp || !*kept_like((struct sock *)tp))
			return 1;
	}
	c = bpf_sk_storage_get(&conns, sk, 0, 0);
	if (c && c->side == SERVED && c->opened && !c->accept_us && c->tls != TLS_READY)
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

/* The current thread sends on a connection. */
static __always_inline void note_sender(struct conn *c, struct sock *sk)
{
	/* After the call its answer may be acknowledged already. */
	if (c->side == SERVED && c->in_hand)
		work_answered(c, sk, c->tls == TLS_READY && c->seq == 1 && is_tls_next(c, sk));
	else if (c->side == CALLED)
		work_calls(sk);
}

/* A connection sends that is not known. Where it has its turn, it is known from now on:
 * what is sent is seen only when something comes back, which may be later. sent says that
 * the bytes are out already. */
static __always_inline struct conn *sends(struct sock *sk, int sent)
{
	struct conn *c;

	if (!follow_share)
		return 0;
	if (!in_turn(sk)) {
		/* Who calls may be followed, though the connection is not. */
		if (with_work && !has_port(served_ports, sk->__sk_common.skc_num))
			work_calls(sk);
		return 0;
	}
	c = adopt(sk);
	if (c)
		meet(c, sk, sent);
	return c;
}

/* sock:sock_send_length(struct sock *sk, int ret, int flags), since 6.3: a call
 * that sends returns. Only where the next hook is missing. */
SEC("tp_btf/sock_send_length")
int BPF_PROG(sent, struct sock *sk, int ret)
{
	struct tcp_sock *tp;
	struct conn *c;

	if (ret <= 0 || sk->sk_protocol != IPPROTO_TCP || unwanted(sk))
		return 0;
	c = watched(sk);
	if (!c)
		c = sends(sk, 1);
	tp = tcp_of(sk);
	if (!c || !tp)
		return 0;
	note_share(c, sk, tp, ret);
	note_sender(c, sk);
	return 0;
}

/* tcp:tcp_sendmsg_locked(sk, msg, skb, size_goal), since 6.16 */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(sending, struct sock *sk, struct msghdr *msg)
{
	struct tcp_sock *tp;
	struct conn *c;

	if (unwanted(sk))
		return 0;
	c = known(sk);
	if (!c) {
		c = sends(sk, 0);
		if (!c)
			return 0;
	}
	if (follow_share) {
		tp = tcp_of(sk);
		if (tp)
			note_share(c, sk, tp, 0);
	}
	if (with_work)
		note_sender(c, sk);
	if (with_labels && publishing)
		note_context(c, sk);
	if (!sending_seen)
		return 0;
	if (c->side == SERVED && c->proto >= PROTO_HTTP1 && c->phase == ASKED && !c->answered)
		look_at_answer(c, msg);
	else if (c->side == CALLED && (with_labels || (c->proto <= PROTO_HTTP1 && c->seq < 4)) && c->proto != PROTO_TLS)
		look_at_sent_request(c, sk, msg);
	if (c->side == CALLED && (c->proto == PROTO_TLS || c->tls == TLS_READY))
		tls_sending(c, sk, handed_over(msg), msg->msg_iter.count);
	return 0;
}

/* Bytes that nobody has read for so long are a request that waits; shorter is
 * traffic. */
#define WAITS (100 * NSEC_PER_MSEC)

/*
 * Requests that came before slowray began, and that the application has not
 * read since. Of those that it has read it cannot be known whether they still
 * wait for an answer.
 */
SEC("iter/tcp")
int waiting(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	__u64 now = bpf_ktime_get_ns(), age;
	struct tcp_sock *tp;
	struct conn *c;
	__u32 unread;

	if (!hz)
		find_hz(now);
	if (!skc || skc->skc_state != TCP_ESTABLISHED)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	unread = tp->rcv_nxt - tp->copied_seq;
	if (!unread || unread > 1U << 30 || tp->write_seq != tp->snd_una)
		return 0;
	age = (__u64)((__u32)bpf_jiffies64() - tp->inet_conn.icsk_ack.lrcvtime) * NSEC_PER_SEC / hz;
	if (age < WAITS || age > now)
		return 0;
	if (bpf_sk_storage_get(&conns, tp, 0, 0))
		return 0; /* slowray saw it come */
	c = adopt((struct sock *)tp);
	if (!c || c->side != SERVED)
		return 0;
	begin(c, tp, now - age);
	c->flags |= ESTIMATED;
	/* Not given to the application yet: it waits in the accept queue. */
	if (!((struct sock *)tp)->sk_socket)
		c->opened = c->first;
	c->in0 = tp->bytes_received - unread;
	c->copied = tp->copied_seq;
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int flush(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	return flush_conn(ctx->meta->seq, ctx->sk, ctx->value);
}

/* The same for kernels that refuse iterators over maps: the sockets of all files that
 * processes hold, in whatever network namespace (as selftests/bpf/progs/
 * bpf_iter_bpf_sk_storage_helpers.c does). What nobody holds any more is reported at its end. */
SEC("iter/task_file")
int flush_files(struct bpf_iter__task_file *ctx)
{
	struct tcp_sock *tp = tcp_of_file(ctx->file);

	if (!tp)
		return 0;
	return flush_conn(ctx->meta->seq, (struct sock *)tp, bpf_sk_storage_get(&conns, tp, 0, 0));
}

/* Never attached: that it loads says that flush() will. */
SEC("iter/bpf_sk_storage_map")
int over_maps(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	return 0;
}

/* Never attached: that it loads says that state_changed() may call another program. */
static __noinline int some_function(struct sock *sk, int old)
{
	return sk && old ? 1 : 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(tail_call_probe, struct sock *sk, int old, int new)
{
	some_function(sk, old);
	bpf_tail_call(ctx, &on_connect, 0);
	return 0;
}

/* Never attached: that it loads says that payload() will. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(payload_probe, struct sock *sk, struct sk_buff *skb)
{
	struct bpf_dynptr p;

	return bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &p);
}
