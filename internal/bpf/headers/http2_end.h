/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The ends of streams that no frame tells of: their connection is closed; and those
 * that take long, which are reported while they last.
 */
#ifndef SLOWRAY_HTTP2_END_H
#define SLOWRAY_HTTP2_END_H

__u64 unfinished_ns; /* requests that take longer are reported while they last, once */
__u8 again; /* also those that were reported */
__u8 give_back; /* nobody sees frames any more: connections are request.bpf.c's again */

/* The streams of a connection, for a turn of a loop each. */
struct all {
	struct multiplexed *m;
	__u64 now, told;
	__u32 una; /* acknowledged */
};

static __always_inline int find_streams(struct all *all, struct sock *sk, struct tcp_sock *tp)
{
	all->m = at_place(bpf_sk_storage_get(&place_of, sk, 0, 0));
	if (!all->m || !tp)
		return 0;
	all->una = tp->snd_una;
	all->now = bpf_ktime_get_ns();
	return 1;
}

static long close_stream(__u32 i, void *context)
{
	struct all *all = context;
	struct stream *s = &all->m->streams[i & (STREAMS - 1)];

#if SEES_PACKETS
	if (s->over) {
		all->told |= end_sent(all->m, s, after(s->upto, all->una) ? TRUNCATED : 0, all->now);
		return 0;
	}
	if (s->id)
		bring_up(all->m, s, all->now);
#endif
	if (s->id)
		all->told |= end_stream(all->m, s, s->answer ? TRUNCATED : UNANSWERED, all->now);
	free_stream(all->m, s);
	return 0;
}

#if SEES_PACKETS
/* Nobody will see acknowledgements any more. */
static long end_if_sent(__u32 i, void *context)
{
	struct all *all = context;

	all->told |= end_sent(all->m, &all->m->streams[i & (STREAMS - 1)], 0, all->now);
	return 0;
}

/* An answer is sent so long ago that its acknowledgement was not seen, where there was one: in
 * some states of a connection it is not. */
#define UNSEEN NSEC_PER_SEC
#endif

static long tell_unfinished(__u32 i, void *context)
{
	struct all *all = context;
	struct stream *s = &all->m->streams[i & (STREAMS - 1)], copy;

#if SEES_PACKETS
	if (s->over) {
		if (span(s->sent, all->now) > UNSEEN && !after(s->upto, all->una))
			all->told |= end_sent(all->m, s, 0, all->now);
		return 0;
	}
#endif
	__builtin_memcpy(&copy, s, sizeof(copy));
	if (!copy.id || (copy.reported && !again) || span(copy.first, all->now) < unfinished_ns)
		return 0;
	s->reported = 1;
#if SEES_PACKETS
	bring_up(all->m, &copy, all->now);
#endif
	all->told |= end_stream(all->m, &copy, UNFINISHED, all->now);
	return 0;
}

/* sock:inet_sock_set_state(const struct sock *sk, int old, int new): a connection
 * is over; requests that have no answer get none. Where clear bytes are seen, all were
 * when this end sends its FIN; packets may follow. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(http2_closed, struct sock *sk, int old, int new)
{
	struct all all = {};
	int sent = new == TCP_FIN_WAIT1 || new == TCP_LAST_ACK;

	if ((new != TCP_CLOSE && !sent) || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (!find_streams(&all, sk, bpf_skc_to_tcp_sock(sk)))
		return 0;
	if (sent && !all.m->owner)
		return 0;
	/* shutdown(SHUT_WR): who has asked all may well wait for the answers. */
	if (sent && all.m->side == CALLED && sk->sk_shutdown != SHUTDOWN_MASK)
		return 0;
	bpf_loop(STREAMS, close_stream, &all, 0);
	if (new == TCP_CLOSE)
		free_place(all.m);
	else
		drop_streams(all.m);
	return 0;
}

/* Requests that take long are reported while they last. */
static __always_inline int flush_streams(struct seq_file *seq, struct sock *sk)
{
	struct all all = {};
	struct tcp_sock *tp;

	if (!sk)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!find_streams(&all, sk, tp))
		return 0;
	if (give_back) {
		struct conn *c = bpf_sk_storage_get(&conns, sk, 0, 0);
		__u32 *place = bpf_sk_storage_get(&place_of, sk, 0, 0);

		if (c && place) {
			c->proto = PROTO_SEALED;
			c->share = UNCOUNTED; /* what is under way now */
#if SEES_PACKETS
			bpf_loop(STREAMS, end_if_sent, &all, 0);
#endif
			free_place(all.m);
			*place = 0;
		}
		return 0;
	}
#if SEES_PACKETS
	if (all.m->open && tp->write_seq != tp->snd_nxt)
		note_limited(all.m, tp, all.now);
#endif
	bpf_loop(STREAMS, tell_unfinished, &all, 0);
	/* So that user space can stop after some, and make room. */
	if (all.told)
		bpf_seq_write(seq, &all.told, sizeof(all.told));
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int http2_flush(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	return flush_streams(ctx->meta->seq, ctx->sk);
}

/* The same for kernels that refuse iterators over maps. */
SEC("iter/task_file")
int http2_flush_files(struct bpf_iter__task_file *ctx)
{
	return flush_streams(ctx->meta->seq, (struct sock *)tcp_of_file(ctx->file));
}

#endif
