//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * How long the nameservers take to answer, and which queries they do not
 * answer: per process, from the packets of its own UDP sockets to and from port
 * 53 (RFC 1035). What is asked for is not kept, but for the last bytes of some
 * names that were not found, which tell whether they ended in a search domain.
 * Addresses that came are kept for who connects to them (headers/lookup.h).
 *
 * The programs are run for every packet of every socket of the host: what is no
 * UDP packet of port 53 is left after a few instructions.
 */
#include "headers/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "headers/lookup.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define IPPROTO_UDP 17
#define DNS_PORT 53
#define DNS_HEADER 12
#define NAME_MAX 128 /* bytes of a name that are read; longer ones are cut (RFC 1035 allows 255) */
#define TAIL 64 /* bytes of a name's end; a power of two */
#define MESSAGE 256 /* room for the beginning of a message; a power of two */
#define TAILS 4 /* ends of names kept for a process */
#define MSEC 1000000ULL
/* The addresses of a name are asked for at once, in a query for each family;
 * what is asked again later than this is asked again because no answer came. */
#define TOGETHER (40 * MSEC)
#define ANEW (1000 * MSEC)
#define SLOW (100 * MSEC)

/* The context as programs see it (include/uapi/linux/bpf.h). */
struct __sk_buff {
	__u32 len;
	__u32 before[18];
	__u32 data;
	__u32 data_end;
};

/* What kernel.h does not have of it. */
struct task_struct___dns {
	struct task_struct___dns *group_leader;
	char comm[16];
} __attribute__((preserve_access_index));

struct server_key {
	__u32 tgid;
	__u32 netns;
	__u16 family;
	__u16 pad[3];
	__u8 addr[16]; /* IPv4 in the first four bytes */
};

struct server {
	__u64 queries;
	__u64 answered;
	__u64 given_up; /* asked again, or elsewhere, before an answer came */
	__u64 lost_ns; /* the time until then */
	__u64 answer_ns; /* of those answered */
	__u64 answer_max;
	__u64 slow; /* answers that took longer than SLOW */
	__u64 not_found; /* NXDOMAIN */
	__u64 failed; /* SERVFAIL, REFUSED and other errors */
	__u64 halves; /* of given_up: the other query for the name, sent at once, was answered */
	char comm[16];
};

struct lookup {
	struct server_key server; /* asked last */
	__u64 first;
	__u64 last;
	__u32 open; /* queries of the last round without an answer */
	__u32 told; /* of the last round some were answered with other than an error */
};

struct query_key {
	__u64 cookie; /* of the socket */
	__u32 id;
	__u32 pad;
};

struct query {
	struct lookup_key lookup;
	struct server_key server;
	__u64 sent;
	__u8 tail[TAIL];
	__u32 tail_len;
	__u32 name_len; /* with its last byte, 0 */
};

struct process {
	__u64 lookups; /* that came to an end */
	__u64 lookup_ns;
	__u64 lookup_max;
	__u64 not_found; /* of the lookups */
	__u64 seen; /* names that were not found; the ends of the last TAILS are kept */
	__u8 tails[TAILS][TAIL];
	__u32 tail_len[TAILS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct server_key);
	__type(value, struct server);
} dns_servers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__type(key, __u32);
	__type(value, struct process);
} dns_processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct lookup_key);
	__type(value, struct lookup);
} dns_lookups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct query_key);
	__type(value, struct query);
} dns_queries SEC(".maps");

struct scratch {
	__u8 message[MESSAGE];
	struct server server; /* a fresh one */
	struct process process;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2); /* out, in: an answer may interrupt who sends */
	__type(key, __u32);
	__type(value, struct scratch);
} dns_scratch SEC(".maps");

__u64 last_seen; /* when a nameserver was asked, or answered, last */
__u64 last_meant; /* when a process made ready to ask one */
__u64 lost_dns; /* queries of more processes and servers than there is room for */

/* dns_at gives where the DNS message begins when the packet is UDP with port 53
 * at the far end; 0 when it is none. */
static __always_inline __u32 dns_at(struct __sk_buff *skb, int out, __u16 *family)
{
	__u8 *data = (__u8 *)(long)skb->data, *end = (__u8 *)(long)skb->data_end;
	__u32 at;
	__be16 port;

	if (data + 28 > end)
		return 0;
	if (data[0] >> 4 == 4) {
		if (data[9] != IPPROTO_UDP)
			return 0;
		*family = AF_INET;
		at = (data[0] & 15) * 4;
	} else {
		if (data[6] != IPPROTO_UDP)
			return 0;
		*family = AF_INET6;
		at = 40;
	}
	if (bpf_skb_load_bytes(skb, at + (out ? 2 : 0), &port, sizeof(port)) || bpf_ntohs(port) != DNS_PORT)
		return 0;
	return at + 8;
}

/* load reads 1 to mask + 1 bytes, in a way that the verifier of Linux 5.10 can
 * follow. */
static __always_inline long load(struct __sk_buff *skb, __u32 at, void *to, __u32 len, __u32 mask)
{
	len--;
	asm volatile("%0 &= %1" : "+r"(len) : "i"(mask));
	return bpf_skb_load_bytes(skb, at, to, len + 1);
}

static __always_inline struct server *find_server(const struct server_key *key, struct scratch *s)
{
	struct server *v = bpf_map_lookup_elem(&dns_servers, key);
	struct task_struct___dns *leader;

	if (v)
		return v;
	__builtin_memset(&s->server, 0, sizeof(s->server));
	leader = BPF_CORE_READ((struct task_struct___dns *)bpf_get_current_task(), group_leader);
	bpf_core_read_str(&s->server.comm, sizeof(s->server.comm), &leader->comm);
	bpf_map_update_elem(&dns_servers, key, &s->server, BPF_NOEXIST);
	v = bpf_map_lookup_elem(&dns_servers, key);
	if (!v)
		__sync_fetch_and_add(&lost_dns, 1);
	return v;
}

/* name_of reads the length of the name with its last byte, 0, and its hash. The
 * letters count without their case. */
static __always_inline __u32 name_of(const __u8 *name, __u32 len, __u64 *hash)
{
	__u64 h = 14695981039346656037ULL; /* FNV-1a */
	__u32 left = 0, i;

	for (i = 0; i < NAME_MAX; i++) {
		__u8 b;

		if (i >= len)
			break;
		b = name[i];
		if (!left) {
			if (!b) {
				*hash = h;
				return i + 1;
			}
			left = b & 63;
		} else {
			left--;
			if (b >= 'A' && b <= 'Z')
				b += 'a' - 'A';
		}
		h = (h ^ b) * 1099511628211ULL;
	}
	*hash = h;
	return i;
}

static __always_inline void note_query(struct __sk_buff *skb, __u32 at, __u16 family, struct scratch *s)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct query fresh_query = {}, *q = &fresh_query;
	struct query_key key = {};
	struct lookup *l, fresh = {};
	struct server *v;
	__u64 now = bpf_ktime_get_ns();
	__u32 len = skb->len, name, pid;

	if (len < at + DNS_HEADER + 5)
		return;
	len -= at;
	if (len > DNS_HEADER + NAME_MAX)
		len = DNS_HEADER + NAME_MAX;
	if (load(skb, at, s->message, len, MESSAGE - 1))
		return;
	/* A standard query with one question. */
	if (s->message[2] & 0xf8 || s->message[4] || s->message[5] != 1)
		return;

	q->sent = now;
	pid = BPF_CORE_READ(task, pid);
	q->server.tgid = BPF_CORE_READ(task, tgid);
	q->server.netns = BPF_CORE_READ(task, nsproxy, net_ns, ns.inum);
	q->server.family = family;
	if (!q->server.tgid)
		return; /* not sent by a process: what was held back is sent on */
	if (family == AF_INET ? bpf_skb_load_bytes(skb, 16, q->server.addr, 4) : bpf_skb_load_bytes(skb, 24, q->server.addr, 16))
		return;
	q->lookup.thread = (__u64)q->server.tgid << 32 | pid;
	name = name_of(s->message + DNS_HEADER, len - DNS_HEADER, &q->lookup.name);
	q->name_len = name;
	if (name >= TAIL) {
		bpf_skb_load_bytes(skb, at + DNS_HEADER + name - TAIL, q->tail, TAIL);
		q->tail_len = TAIL;
	} else if (name) {
		q->tail_len = name;
		load(skb, at + DNS_HEADER, q->tail, name, TAIL - 1);
	}

	v = find_server(&q->server, s);
	if (!v)
		return;
	__sync_fetch_and_add(&v->queries, 1);
	l = bpf_map_lookup_elem(&dns_lookups, &q->lookup);
	if (!l) {
		fresh.server = q->server;
		fresh.first = fresh.last = now;
		fresh.open = 1;
		bpf_map_update_elem(&dns_lookups, &q->lookup, &fresh, BPF_ANY);
	} else if (now - l->last < TOGETHER) {
		l->open++;
	} else {
		struct server *before = bpf_map_lookup_elem(&dns_servers, &l->server);

		if (before && l->open) {
			__sync_fetch_and_add(&before->given_up, l->open);
			if (l->told)
				__sync_fetch_and_add(&before->halves, l->open);
			__sync_fetch_and_add(&before->lost_ns, now - l->last);
		}
		/* All that was known were errors, some time ago: it begins anew. */
		if (!l->open && now - l->last > ANEW)
			l->first = now;
		l->server = q->server;
		l->last = now;
		l->open = 1;
		l->told = 0;
	}
	key.cookie = bpf_get_socket_cookie(skb);
	key.id = s->message[0] << 8 | s->message[1];
	bpf_map_update_elem(&dns_queries, &key, q, BPF_ANY);
}

/* end_lookup is called with the last answer to the queries for a name. */
static __always_inline void end_lookup(const struct query *q, const struct lookup *l, __u64 now, int not_found, struct scratch *s)
{
	__u32 tgid = q->server.tgid, slot, len;
	struct process *p = bpf_map_lookup_elem(&dns_processes, &tgid);
	__u64 took = now - l->first;

	if (!p) {
		__builtin_memset(&s->process, 0, sizeof(s->process));
		bpf_map_update_elem(&dns_processes, &tgid, &s->process, BPF_NOEXIST);
		p = bpf_map_lookup_elem(&dns_processes, &tgid);
		if (!p)
			return;
	}
	__sync_fetch_and_add(&p->lookups, 1);
	__sync_fetch_and_add(&p->lookup_ns, took);
	if (took > p->lookup_max)
		p->lookup_max = took;
	if (!not_found)
		return;
	__sync_fetch_and_add(&p->not_found, 1);
	slot = p->seen % TAILS;
	__sync_fetch_and_add(&p->seen, 1);
	len = q->tail_len;
	__builtin_memcpy(p->tails[slot], q->tail, TAIL);
	p->tail_len[slot] = len;
}

#include "headers/addresses.h"

static __always_inline void note_answer(struct __sk_buff *skb, __u32 at, struct scratch *s)
{
	struct query_key key = {};
	struct query copy, *q;
	struct server *v;
	struct lookup *l;
	__u64 now = bpf_ktime_get_ns(), took;
	__u8 head[4], code;

	if (bpf_skb_load_bytes(skb, at, head, sizeof(head)) || !(head[2] & 0x80))
		return;
	key.cookie = bpf_get_socket_cookie(skb);
	key.id = head[0] << 8 | head[1];
	q = bpf_map_lookup_elem(&dns_queries, &key);
	if (!q)
		return;
	copy = *q;
	q = &copy;
	bpf_map_delete_elem(&dns_queries, &key);
	code = head[3] & 15;
	took = now - q->sent;
	v = bpf_map_lookup_elem(&dns_servers, &q->server);
	if (v) {
		__sync_fetch_and_add(&v->answered, 1);
		__sync_fetch_and_add(&v->answer_ns, took);
		if (took > v->answer_max)
			v->answer_max = took;
		if (took > SLOW)
			__sync_fetch_and_add(&v->slow, 1);
		if (code == 3)
			__sync_fetch_and_add(&v->not_found, 1);
		else if (code)
			__sync_fetch_and_add(&v->failed, 1);
	}
	l = bpf_map_lookup_elem(&dns_lookups, &q->lookup);
	/* A late answer to an earlier try ends nothing: most resolvers no longer
	 * listen. After nothing but errors the next server is asked. */
	if (!l || q->sent < l->last)
		return;
	if (!code || code == 3)
		l->told = 1;
	if (!code) {
		struct looked_up done = { l->first, now };

		bpf_map_update_elem(&lookups_done, &q->lookup, &done, BPF_ANY);
		note_addresses(skb, at, q, l->first, now);
	}
	if (l->open)
		l->open--;
	if (l->open || !l->told)
		return;
	end_lookup(q, l, now, code == 3, s);
	bpf_map_delete_elem(&dns_lookups, &q->lookup);
}

SEC("cgroup_skb/egress")
int dns_out(struct __sk_buff *skb)
{
	__u32 out = 0, at;
	__u16 family = 0;
	struct scratch *s;

	at = dns_at(skb, 1, &family);
	if (!at)
		return 1;
	last_seen = bpf_ktime_get_ns();
	s = bpf_map_lookup_elem(&dns_scratch, &out);
	if (s)
		note_query(skb, at, family, s);
	return 1;
}

SEC("cgroup_skb/ingress")
int dns_in(struct __sk_buff *skb)
{
	__u32 in = 1, at;
	__u16 family = 0;
	struct scratch *s;

	at = dns_at(skb, 0, &family);
	if (!at)
		return 1;
	last_seen = bpf_ktime_get_ns();
	s = bpf_map_lookup_elem(&dns_scratch, &in);
	if (s)
		note_answer(skb, at, s);
	return 1;
}

/* Whoever asks a nameserver connects to it before, or names it with each query
 * (udp_pre_connect and udp_sendmsg, net/ipv4/udp.c; hooks since 4.17 and 4.18): this is
 * seen where the packets of busy hosts are not. */
static __always_inline int note_meant(struct bpf_sock_addr *ctx)
{
	if (ctx->protocol == IPPROTO_UDP && ctx->user_port == bpf_htons(DNS_PORT))
		last_meant = bpf_ktime_get_ns();
	return 1;
}

SEC("cgroup/connect4")
int dns_connect4(struct bpf_sock_addr *ctx)
{
	return note_meant(ctx);
}

SEC("cgroup/connect6")
int dns_connect6(struct bpf_sock_addr *ctx)
{
	return note_meant(ctx);
}

SEC("cgroup/sendmsg4")
int dns_sendmsg4(struct bpf_sock_addr *ctx)
{
	return note_meant(ctx);
}

SEC("cgroup/sendmsg6")
int dns_sendmsg6(struct bpf_sock_addr *ctx)
{
	return note_meant(ctx);
}
