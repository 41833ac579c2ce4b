/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * From the moments of a stream to its ledger, its place in the sums, and its record.
 */
#ifndef SLOWRAY_HTTP2_LEDGER_H
#define SLOWRAY_HTTP2_LEDGER_H

/* What a connection took before its first stream: read where it is wanted, for end_stream() may
 * have 128 bytes of stack, with what calls it (Linux 6.1). */
#define BEFORE(m, what) (*(const volatile __u32 *)&(m)->what * NSEC_PER_USEC)

/*
 * The sums are kept with atomics, in the lane of programs that interrupt others:
 * these run in tasks, too, which may be preempted.
 */
static __always_inline void count_stream(const struct multiplexed *m, const __u64 *parts, int first, __u8 status, __u32 flags, __u32 cpu, __u32 share)
{
	struct counters *n = counters_of(m->endpoint, cpu, 1);
	const __u32 lane = 1;

	if (!n)
		return;
	ADD(n, requests, 1ULL << share);
	if (flags & UNANSWERED)
		ADD(n, unanswered, 1ULL << share);
	else if (status == STATUS_OK)
		ADD(n, ok, 1ULL << share);
	else if (status == STATUS_ERROR)
		ADD(n, errors, 1ULL << share);
#pragma unroll
	for (int i = 0; i < PARTS; i++) {
		if (parts[i])
			ADD(n, parts[i], parts[i] << share);
	}
	if (first) {
		ADD(n, parts[ACCEPT_WAIT], BEFORE(m, accept_us) << share);
		ADD(n, parts[TLS], BEFORE(m, tls_us) << share);
	}
}

/* Takes up to want out of what is left. */
static __always_inline __u64 take(__u64 *left, __u64 want)
{
	__u64 got = smaller(*left, want);

	*left -= got;
	return got;
}

#if SEES_PACKETS
/* What followed the first byte of the answer, by what it waited for; gives the time of all. */
static __noinline __u64 split_answer(struct multiplexed *m, struct stream *s, __u64 *parts, __u64 left, __u32 flags)
{
	__u64 lost, rtt, total = 0;

	if (!m || !s || !parts)
		return 0;
	rtt = m->rtt_us * NSEC_PER_USEC;
	lost = s->lost_us * NSEC_PER_USEC;
	if (m->side == CALLED) {
		parts[RETRANS] = take(&parts[SERVER], lost);
		parts[NETWORK] = take(&parts[SERVER], rtt);
		lost -= parts[RETRANS];
	}
	parts[ACK_DELAY] = take(&left, s->late_us * NSEC_PER_USEC);
	parts[STALL] = take(&left, s->stall_us * NSEC_PER_USEC);
	parts[RETRANS] += take(&left, lost);
	parts[UNACCOUNTED] = take(&left, s->held_us * NSEC_PER_USEC);
	if (m->side == SERVED) {
		if (s->answer)
			parts[SEND_WAIT] = take(&left, span(s->limited, m->limited));
		if (!s->acked && !(flags & (UNFINISHED | UNANSWERED)))
			left += rtt; /* until it is there, at the least */
	}
	parts[NETWORK] += left;
#pragma unroll
	for (int i = 0; i < ACK_DELAY; i++)
		total += parts[i];
	return total;
}

/* What else is known of a stream. */
static __noinline __u32 flags_of(struct multiplexed *m, struct stream *s)
{
	__u32 flags = MULTIPLEXED;

	if (!m || !s)
		return flags;
	if (m->side == SERVED && s->answer) {
		flags |= m->zero_window > s->answer ? ZERO_WINDOW : 0;
		flags |= m->recv_window > s->answer ? RECV_WINDOW : 0;
		flags |= m->send_buffer > s->answer ? SEND_BUFFER : 0;
	}
	if (s->lost_us && m->timeout > s->first)
		flags |= TIMEOUT;
	return flags;
}

#else
/*
 * Where no packets are seen, what followed the first byte of the answer is not told apart: the
 * application may pause, the network be slow, or the caller not have asked for more (flow control).
 */
static __always_inline __u64 split_answer(struct multiplexed *m, struct stream *s, __u64 *parts, __u64 left, __u32 flags)
{
	__u64 rtt = m->rtt_us * NSEC_PER_USEC;
	__u64 total = parts[UPLOAD] + parts[RECV_WAIT] + parts[SERVER] + left;

	parts[UNACCOUNTED] = left;
	if (m->side == CALLED) {
		parts[NETWORK] = smaller(rtt, parts[SERVER]);
		parts[SERVER] -= parts[NETWORK];
	} else if (!(flags & (UNFINISHED | UNANSWERED))) {
		parts[NETWORK] = rtt; /* until it is there, at the least */
		total += rtt;
	}
	return total;
}

static __always_inline __u32 flags_of(struct multiplexed *m, struct stream *s) { return MULTIPLEXED; }
#endif

/*
 * Sums a request up that is over now, or that goes on (UNFINISHED). What the
 * server had to do ends with the first byte of the answer. Returns 1 when that has a record.
 *
 * Not static, so that the verifier looks at it once and not for each way that leads here:
 * in the loops over frames Linux 7.2 came to more than a million instructions.
 */
__noinline int end_stream(struct multiplexed *m, struct stream *s, __u32 flags, __u64 now)
{
	__u64 parts[PARTS] = {}, total, number, asked, read, answer;
	__u8 status = STATUS_UNKNOWN;
	struct record *rec;
	struct ring *r;
	__u32 cpu = bpf_get_smp_processor_id(), share, weight;

	if (!m || !s)
		return 0;
	r = bpf_map_lookup_elem(&rings, &cpu);
	if (!r)
		return 0;
	share = s->share & 31;
	weight = 1U << share;
#if SEES_PACKETS
	if (s->over)
		now = s->acked ? s->acked : s->sent;
#endif
	answer = s->answer ? later(s->answer, s->first) : now;
	/* An answer may begin before all was asked, as in streams of gRPC. */
	asked = s->asked ? smaller(later(s->asked, s->first), answer) : answer;
	parts[UPLOAD] = span(s->first, asked);
	read = smaller(later(s->read, asked), answer);
	parts[RECV_WAIT] = span(asked, read);
	parts[SERVER] = span(read, answer);
	total = split_answer(m, s, parts, span(answer, now), flags);
	if (s->id == m->opening)
		total += BEFORE(m, accept_us) + BEFORE(m, tls_us);
	if (flags & (RESET | UNANSWERED | TRUNCATED) || s->http >= 400)
		status = STATUS_ERROR;
	else if (s->http >= 200 && !s->trailers)
		status = STATUS_OK;
	if (flags & UNFINISHED)
		status = STATUS_UNKNOWN;
	else
		count_stream(m, parts, s->id == m->opening, status, flags, cpu, share);
	if (share && !(flags & UNFINISHED))
		__sync_fetch_and_add(&r->left_out, (1ULL << share) - 1);

	if (sample_mask && total < slow_ns && status != STATUS_ERROR && !(flags & UNFINISHED)) {
		if (bpf_get_prandom_u32() & sample_mask) {
			__sync_fetch_and_add(&r->skipped, 1);
			return 0;
		}
		weight = (sample_mask + 1) << share;
	}
	rec = reserve(r, cpu, &number);
	if (!rec)
		return 0;
	rec->kind = RECORD_REQUEST;
	rec->side = m->side;
	rec->family = m->family;
	rec->status = status;
	rec->flags = flags | flags_of(m, s) | (sample_mask && weight == 1U << share ? SLOW : 0);
	rec->start = s->first;
	__builtin_memcpy(rec->parts, parts, sizeof(parts));
	rec->bytes_in = m->side == SERVED ? s->bytes_asked : s->bytes_answered;
	rec->bytes_out = m->side == SERVED ? s->bytes_answered : s->bytes_asked;
	rec->endpoint = m->endpoint;
	rec->seq = (s->id + 1) / 2;
	rec->pid = m->pid;
	rec->tid = m->tid;
	rec->requests = 1;
	rec->weight = weight;
	rec->retrans = s->again;
	rec->unacked = 0;
	rec->rtt_us = rec->min_rtt_us = m->rtt_us;
	rec->mss = 0;
	rec->http = s->http;
	rec->netns = m->netns;
	rec->proto = PROTO_HTTP2;
	rec->kept = 0;
	rec->headers = m->headers;
	rec->has_work = 0;
	rec->share = share;
	rec->first_byte = s->answer ? span(s->first, s->answer) : 0;
	if (s->id == m->opening) {
		rec->parts[ACCEPT_WAIT] = BEFORE(m, accept_us);
		rec->parts[TLS] = BEFORE(m, tls_us);
		rec->start -= rec->parts[ACCEPT_WAIT] + rec->parts[TLS];
		if (rec->first_byte)
			rec->first_byte += rec->parts[ACCEPT_WAIT] + rec->parts[TLS];
	}
	rec->connect_us = rec->dns_us = rec->idle_us = 0;
	if (s->id == m->opening && m->connect_us) {
		rec->connect_us = m->connect_us;
		rec->dns_us = m->dns_us;
		rec->idle_us = smaller(span(m->established + BEFORE(m, tls_us), s->first) / NSEC_PER_USEC, ~0U);
	}
	rec->lport = m->lport;
	rec->pport = m->peer;
	__builtin_memcpy(rec->laddr, m->laddr, 16);
	__builtin_memcpy(rec->paddr, m->paddr, 16);
	commit(rec, number);
	return 1;
}

#if SEES_PACKETS
/* The answer of a stream is sent, and what waited for its acknowledgement ends here. */
static __always_inline __u64 end_sent(struct multiplexed *m, struct stream *s, __u32 flags, __u64 now)
{
	__u64 told;

	if (__sync_val_compare_and_swap(&s->over, SENT, CLAIMED) != SENT)
		return 0;
	told = end_stream(m, s, flags, now);
	free_stream(m, s);
	return told;
}
#endif

#endif
