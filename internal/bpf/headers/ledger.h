/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * From the moments of a request to its ledger, its place in the sums, and its
 * record.
 */
#ifndef SLOWRAY_LEDGER_H
#define SLOWRAY_LEDGER_H

struct ledger {
	__u64 start;
	__u64 total; /* without ACK_DELAY */
	__u64 parts[PARTS];
};

/* Takes up to want out of what is left. */
static __always_inline __u64 take(__u64 *left, __u64 want)
{
	__u64 got = smaller(*left, want);

	*left -= got;
	return got;
}

/* Whether it is the first request after a handshake of TLS, which is a part of it. */
static __always_inline int is_after_tls(const struct conn *c)
{
	return c->seq == 1 && c->tls == TLS_READY && !(c->tls_is & TLS_UNTIL);
}

/*
 * Served: the time line is cut at moments that never run backwards, so the
 * parts add up whatever was or was not seen.
 */
static __always_inline void ledger_served(struct ledger *l, const struct conn *c)
{
	__u64 from = c->first, upto, left;

	l->start = c->first;
	if (is_after_tls(c)) {
		/* What passed between the handshake and the request is the client's. */
		if (c->accept_us)
			l->parts[ACCEPT_WAIT] = (c->accept_us - 1) * NSEC_PER_USEC;
		l->parts[TLS] = c->tls_ns;
		l->start -= l->parts[ACCEPT_WAIT] + l->parts[TLS];
	} else if (c->seq == 1 && c->opened && c->accept_us) {
		__u64 accepted;

		l->parts[ACCEPT_WAIT] = (c->accept_us - 1) * NSEC_PER_USEC;
		accepted = c->opened + l->parts[ACCEPT_WAIT];
		if (accepted > c->first) {
			/* The request waited in the queue with its connection. */
			from = accepted;
			l->start = smaller(c->opened, c->first);
			l->parts[ACCEPT_WAIT] = from - l->start;
		} else {
			l->start -= l->parts[ACCEPT_WAIT];
		}
	}
	upto = later(c->done, from);
	if (c->flags & OVERLAPPED) {
		l->parts[UNACCOUNTED] = upto - from;
		return;
	}
	left = upto - from;
	l->parts[UPLOAD] = take(&left, span(from, c->last));
	from = later(from, c->last);
	/* Bytes that come before the read call returns were waited for by it. */
	if (c->read) {
		l->parts[RECV_WAIT] = take(&left, span(from, c->read));
		from = later(from, c->read);
	}
	if (!c->answer) { /* none came */
		l->parts[c->read ? SERVER : RECV_WAIT] += left;
		return;
	}
	l->parts[SERVER] = take(&left, span(from, c->answer));
	l->parts[ACK_DELAY] = take(&left, c->ack_delay);
	l->parts[STALL] = take(&left, c->stall);
	l->parts[RETRANS] = take(&left, c->retrans_ns);
	l->parts[SEND_WAIT] = take(&left, c->send_wait);
	l->parts[NETWORK] = left;
}

/*
 * Called: the other end's time cannot be seen from here but for one round
 * trip, so SERVER is what remains of the wait for the first byte.
 */
static __always_inline void ledger_called(struct ledger *l, const struct conn *c, __u64 min_rtt)
{
	__u64 left = span(c->first, later(c->done, c->last)), wait;

	l->start = c->first;
	if (is_after_tls(c)) {
		l->parts[TLS] = c->tls_ns;
		l->start -= c->tls_ns;
	}
	if (c->flags & OVERLAPPED) {
		l->parts[UNACCOUNTED] = left;
		return;
	}
	l->parts[UPLOAD] = take(&left, span(c->first, c->last));
	wait = c->answer ? take(&left, span(c->last, c->answer)) : take(&left, left);
	l->parts[RETRANS] = take(&wait, c->retrans_ns);
	l->parts[NETWORK] = take(&wait, min_rtt);
	l->parts[SERVER] = wait;
	l->parts[STALL] = take(&left, c->stall);
	l->parts[RETRANS] += take(&left, span(l->parts[RETRANS], c->retrans_ns));
	l->parts[NETWORK] += left;
	if (c->answer)
		l->parts[RECV_WAIT] = span(c->done, c->read);
}

static __always_inline void count(struct conn *c, struct ledger *l, struct tcp_sock *tp, struct ring *r, __u32 cpu,
				  __u32 retrans, __u64 bytes_in, __u64 bytes_out)
{
	/* Whoever interrupts this sees busy set, and leaves it as it was. */
	__u32 lane = r->busy++ != 0, share = c->share & 31;
	struct counters *n = counters_of(c->endpoint, cpu, lane);

	if (share)
		__sync_fetch_and_add(&r->left_out, (1ULL << share) - 1);

	if (n) {
		if (c->flags & AMENDED) {
			ADD(n, parts[STALL], span(c->told_us * NSEC_PER_USEC, l->parts[STALL]) << share);
		} else {
			ADD(n, bytes_in, bytes_in << share);
			ADD(n, bytes_out, bytes_out << share);
			ADD(n, segments, (__u64)(tp->data_segs_out - c->segs0) << share);
			if (retrans)
				ADD(n, retrans, (__u64)retrans << share);
		}
		if (!(c->flags & AMENDED) && c->proto != PROTO_HTTP2) {
			ADD(n, requests, (1ULL + c->requests) << share);
			if (c->flags & UNANSWERED)
				ADD(n, unanswered, 1ULL << share);
			else if (c->status == STATUS_OK)
				ADD(n, ok, 1ULL << share);
			else if (c->status == STATUS_ERROR)
				ADD(n, errors, 1ULL << share);
			if (c->flags & OVERLAPPED)
				ADD(n, overlapped, (1ULL + c->requests) << share);
#pragma unroll
			for (int i = 0; i < PARTS; i++) {
				if (l->parts[i])
					ADD(n, parts[i], l->parts[i] << share);
			}
		}
	}
	r->busy--;
}

static __always_inline void fill_addresses(struct record *rec, struct conn *c, struct sock *sk)
{
	rec->lport = c->lport;
	rec->pport = bpf_ntohs(sk->__sk_common.skc_dport);
	if (sk->__sk_common.skc_family == AF_INET6) {
		BPF_CORE_READ_INTO(&rec->laddr, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&rec->paddr, sk, __sk_common.skc_v6_daddr);
	} else {
		*(__u32 *)rec->laddr = sk->__sk_common.skc_rcv_saddr;
		*(__u32 *)rec->paddr = sk->__sk_common.skc_daddr;
	}
}

static __always_inline __u32 in_micros(__u64 ns) { return smaller(ns / NSEC_PER_USEC, ~0U); }

/* How the connection was opened, of its first request: that was before its ledger begins. */
static __always_inline void fill_opening(struct record *rec, const struct conn *c, struct sock *sk)
{
	__u64 idle;
	__u32 *dns_us;

	rec->connect_us = 0;
	if (c->seq != 1 || c->side != CALLED || !c->connect_us)
		return;
	idle = span(c->established, c->first);
	if (is_after_tls(c))
		idle = span(c->tls_ns, idle);
	dns_us = bpf_sk_storage_get(&lookup_of, sk, 0, 0);
	rec->connect_us = c->connect_us;
	rec->dns_us = dns_us ? *dns_us : 0;
	rec->idle_us = in_micros(idle);
}

/* How many requests its record stands for, 0 = it has none; slow and failed ones that
 * are followed always have one. */
static __always_inline __u32 weight_of(struct conn *c, struct ledger *l)
{
	__u32 share = c->share & 31;

	if (!sample_mask || l->total >= slow_ns || c->status == STATUS_ERROR ||
	    c->flags & (RESET | UNANSWERED | TRUNCATED | UNFINISHED | AMENDED))
		return 1U << share;
	if (bpf_get_prandom_u32() & sample_mask)
		return 0;
	return (sample_mask + 1) << share;
}

/* enum sock_flags (include/net/sock.h): a FIN came in (tcp_fin, net/ipv4/tcp_input.c). */
#define SOCK_DONE 1

/* Payload received; a FIN counts as a byte in the kernel's figure. */
static __always_inline __u64 bytes_received(struct sock *sk, struct tcp_sock *tp)
{
	return tp->bytes_received - (sk->__sk_common.skc_flags >> SOCK_DONE & 1);
}

/* A read in the middle of an answer was of another request if more was sent
 * after it, up to sent; else of what nobody needed, as the end of a body. */
static __always_inline void confirm_overlap(struct conn *c, __u32 sent)
{
	if (!c->reread || sent == c->reread_seq)
		return;
	c->flags |= OVERLAPPED;
	c->requests++;
	c->reread = 0;
}

/* Sums the request up and writes its record. c may be a copy. */
static __always_inline int finish_here(struct conn *c, struct sock *sk, struct tcp_sock *tp)
{
	struct ledger l = {};
	struct record *rec;
	struct ring *r;
	__u64 number, min_rtt, bytes_in;
	__u32 cpu, retrans, weight;

	if (!c || !sk || !tp || c->share == UNCOUNTED)
		return 0;
	cpu = bpf_get_smp_processor_id();
	r = bpf_map_lookup_elem(&rings, &cpu);
	if (!r)
		return 0;
	if (c->reread)
		confirm_overlap(c, tp->write_seq - c->fin);
	min_rtt = min_rtt_of(tp);
	bytes_in = bytes_received(sk, tp) - c->in0;
	if ((__s64)bytes_in < 0)
		bytes_in = 0; /* it began after the other end's FIN, which in0 counts */
	retrans = tp->total_retrans - c->retrans0;
	if (c->side == SERVED)
		ledger_served(&l, c);
	else
		ledger_called(&l, c, min_rtt);
#pragma unroll
	for (int i = 0; i < ACK_DELAY; i++)
		l.total += l.parts[i];
	if (!(c->flags & UNFINISHED))
		count(c, &l, tp, r, cpu, retrans, bytes_in, c->bytes_out);
	if (c->proto == PROTO_HTTP2)
		return 0;

	weight = weight_of(c, &l);
	if (!weight) {
		__sync_fetch_and_add(&r->skipped, 1);
		return 0;
	}
	rec = reserve(r, cpu, &number);
	if (!rec)
		return 0;
	rec->kind = RECORD_REQUEST;
	rec->side = c->side;
	rec->family = c->family;
	rec->status = c->status;
	rec->flags = c->flags | (sample_mask && weight == 1U << (c->share & 31) ? SLOW : 0);
	rec->start = l.start;
	__builtin_memcpy(rec->parts, l.parts, sizeof(l.parts));
	rec->bytes_in = bytes_in;
	rec->bytes_out = c->bytes_out;
	rec->endpoint = c->endpoint;
	rec->seq = c->seq;
	rec->pid = c->pid;
	rec->tid = c->tid;
	rec->requests = 1 + c->requests;
	rec->weight = weight;
	rec->retrans = retrans;
	rec->unacked = c->flags & (TRUNCATED | UNFINISHED) ? tp->write_seq - tp->snd_una - c->fin : 0;
	/* One flight without loss is a round trip of its own. TCP's smoothed one
	 * has the other end's time in it where answers acknowledge requests. */
	if (c->side == CALLED)
		rec->rtt_us = (c->ack_delay && !retrans ? c->ack_delay : min_rtt) / NSEC_PER_USEC;
	else if (!retrans && !l.parts[STALL] && l.parts[NETWORK] && c->bytes_out <= 10 * tp->mss_cache)
		rec->rtt_us = l.parts[NETWORK] / NSEC_PER_USEC;
	else
		rec->rtt_us = tp->srtt_us >> 3;
	rec->min_rtt_us = min_rtt / NSEC_PER_USEC;
	rec->mss = tp->mss_cache;
	rec->http = c->http;
	rec->netns = netns_of(sk);
	rec->proto = c->proto;
	rec->headers = 0;
	rec->has_work = 0;
	rec->share = c->share;
	rec->first_byte = c->answer && !(c->flags & OVERLAPPED) ? span(l.start, c->answer) : 0;
	fill_opening(rec, c, sk);
	fill_addresses(rec, c, sk);
	rec->kept = with_labels ? hand_head(c, sk, cpu, number) | hand_context(c, sk, cpu, number) : 0;
	if (with_work) {
		struct hand *h = work_of(c, sk);

		if (h) {
			rec->has_work = 1;
			__builtin_memcpy(rec->work, h->parts, sizeof(rec->work));
		}
	}
	commit(rec, number);
	return 0;
}

/* The same, for all but the way that nearly every request takes: a call costs as
 * much as some of what it does. */
static __noinline int finish(struct conn *c, struct sock *sk, struct tcp_sock *tp)
{
	finish_here(c, sk, tp);
	/* Nobody looks at the result, so the compiler leaves there what it likes, and the verifier
	 * refuses the address of the caller's copy. */
	asm volatile("r0 = 0" ::: "r0");
	return 0;
}

/* Tells of a connection: that it is closed, for those who asked for it; that its
 * handshake of TLS is over. */
static __noinline int report(struct conn *c, struct sock *sk, struct tcp_sock *tp, __u32 kind)
{
	struct record *rec;
	struct ring *r;
	__u64 number;
	__u32 cpu = bpf_get_smp_processor_id();

	if (!c || !sk || !tp)
		return 0;
	r = bpf_map_lookup_elem(&rings, &cpu);
	if (!r)
		return 0;
	rec = reserve(r, cpu, &number);
	if (!rec)
		return 0;
	rec->kind = kind;
	rec->side = c->side;
	rec->family = c->family;
	rec->status = c->status;
	rec->flags = c->flags;
	rec->start = bpf_ktime_get_ns();
	if (kind == RECORD_TLS) { /* see tls.h */
		rec->parts[TLS] = c->send_wait + c->stall + c->retrans_ns;
		rec->parts[UPLOAD] = c->send_wait;
		rec->parts[SERVER] = c->stall;
		rec->parts[NETWORK] = c->retrans_ns;
		rec->http = c->tls_is;
		rec->share = follow_share;
	}
	rec->bytes_in = bytes_received(sk, tp);
	rec->bytes_out = tp->bytes_acked;
	rec->endpoint = c->endpoint;
	rec->seq = c->seq;
	rec->retrans = tp->total_retrans;
	rec->unacked = tp->write_seq - tp->snd_una;
	rec->min_rtt_us = min_rtt_of(tp) / NSEC_PER_USEC;
	rec->mss = tp->mss_cache;
	rec->netns = netns_of(sk);
	fill_addresses(rec, c, sk);
	commit(rec, number);
	return 0;
}

#endif
