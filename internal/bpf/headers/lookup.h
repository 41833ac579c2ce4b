/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Which addresses a name had that a process has just looked up: dns.bpf.c writes it down from
 * the answer, and request.bpf.c takes it when the process connects to one of them.
 */
#ifndef SLOWRAY_LOOKUP_H
#define SLOWRAY_LOOKUP_H

/* A name that a thread looks up: queries for it, until all are answered. */
struct lookup_key {
	__u64 thread; /* as bpf_get_current_pid_tgid tells it */
	__u64 name; /* hash */
};

struct answer_key {
	__u32 tgid;
	__u32 tid; /* of who asked; 0 = whoever in the process did last: many look up in another thread than they connect in */
	__u8 addr[16]; /* IPv4 as ::ffff:a.b.c.d */
};

struct answer {
	struct lookup_key lookup;
	__u64 first; /* query */
	__u64 at; /* when the address came */
};

/* The same of all answers to the queries for a name, those without an address included: the
 * resolver of the C library waits for both families. */
struct looked_up {
	__u64 first; /* query */
	__u64 last; /* answer */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2048);
	__type(key, struct answer_key);
	__type(value, struct answer);
} answers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2048);
	__type(key, struct lookup_key);
	__type(value, struct looked_up);
} lookups_done SEC(".maps");

static __always_inline void map_ipv4(struct answer_key *key)
{
	key->addr[10] = key->addr[11] = 0xff;
}

#endif
