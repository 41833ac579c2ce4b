/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * What is known of a connection, and when it is forgotten: where not all are followed, it
 * is known in its turn only, and until what began in it is over.
 */
#ifndef SLOWRAY_TURN_H
#define SLOWRAY_TURN_H

/* Whether nothing is under way, on a connection that is out of its turn, that counts. What
 * was sent may be a call, which is seen only when something comes back. */
static __always_inline int is_left(struct conn *c, struct sock *sk)
{
	struct tcp_sock *tp;

	if ((c->phase != IDLE && c->phase != TAKEN && c->share != UNCOUNTED) || c->side == SIDE_NONE || c->proto == PROTO_TLS)
		return 0;
	tp = tcp_of(sk);
	return tp && (c->side == SERVED || tp->snd_nxt == c->mark);
}

/* Forgets a connection until it has its turn again, but for what it could not be asked
 * anew. All others pass without a look at what is known of them. */
static __noinline int leave(struct conn *c, struct sock *sk)
{
	if (!c || !sk)
		return 0;
	keep_no_more(c, sk);
	if (c->proto == PROTO_HTTP2 || c->tls == TLS_READY) {
		c->phase = AWAY;
		c->flags = 0;
		return 0;
	}
	if (with_work && c->side == SERVED && !bpf_sk_storage_delete(&hands, sk))
		hand_is_gone(sk);
	bpf_sk_storage_delete(&conns, sk);
	return 0;
}

/* What is known of a socket; 0 for who is out of turn and has nothing under way. */
static __always_inline struct conn *known(struct sock *sk)
{
	struct conn *c;

	if (in_turn(sk)) {
		c = bpf_sk_storage_get(&conns, sk, 0, 0);
		/* Not kept: it began to connect while all were followed. */
		if (c && (c->phase == AWAY || (follow_share && !c->kept && c->side != SIDE_NONE))) {
			c->phase = IDLE;
			meet(c, sk, 0);
			keep(c, sk);
		}
		return c;
	}
	if (!*kept_like(sk) || !bare_sock(sk)->sk_bpf_storage)
		return 0;
	c = bpf_sk_storage_get(&conns, sk, 0, 0);
	if (!c || c->phase == AWAY)
		return 0;
	if (is_left(c, sk)) {
		leave(c, sk);
		return 0;
	}
	return c;
}

#endif
