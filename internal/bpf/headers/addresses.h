/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The addresses in an answer of a nameserver (RFC 1035, 4.1), for who connects to them: lookup.h.
 */
#ifndef SLOWRAY_ADDRESSES_H
#define SLOWRAY_ADDRESSES_H

#define TYPE_A 1
#define TYPE_AAAA 28
#define CLASS_IN 1
#define ADDRESSES 8 /* of an answer that are kept: who has more connects to one of the first */
#define STEPS 64 /* labels and records that are looked at */

/* The rest of a record after its name (RFC 1035, 4.1.3), and the data of an address. */
struct resource {
	__be16 type, class;
	__be32 ttl;
	__be16 length;
} __attribute__((packed));

/* Writes down which addresses came, for the process as well as for the thread. */
static __noinline int note_address(struct __sk_buff *skb, __u32 at, __u32 length, struct answer *a)
{
	struct answer_key key = {};
	struct answer copy; /* what a function gets that is verified alone is no value of a map (Linux 6.1) */

	if (!skb || !a)
		return 0;
	if (length == 4) {
		map_ipv4(&key);
		if (bpf_skb_load_bytes(skb, at, key.addr + 12, 4))
			return 0;
	} else if (bpf_skb_load_bytes(skb, at, key.addr, 16)) {
		return 0;
	}
	copy = *a;
	key.tgid = copy.lookup.thread >> 32;
	bpf_map_update_elem(&answers, &key, &copy, BPF_ANY);
	key.tid = copy.lookup.thread;
	bpf_map_update_elem(&answers, &key, &copy, BPF_ANY);
	return 1;
}

struct addresses {
	struct answer answer;
	__u32 at;
	__u32 records; /* to come */
	__u32 noted;
	__u32 pad;
};

/* Takes in a label, or a record from the end of its name on; 0 = there is no more.
 *
 * Not static, so that the verifier looks at it once and not for each way that leads here. */
__noinline int note_step(struct __sk_buff *skb, struct addresses *a)
{
	struct resource r;
	__u32 length, type;
	__u8 label = 0;

	if (!skb || !a || !a->records || a->noted >= ADDRESSES || bpf_skb_load_bytes(skb, a->at, &label, 1))
		return 0;
	if (label && label < 0xc0) { /* of a name that is no pointer */
		a->at += 1 + label;
		return 1;
	}
	a->at += label ? 2 : 1;
	if (bpf_skb_load_bytes(skb, a->at, &r, sizeof(r)))
		return 0;
	a->at += sizeof(r);
	length = bpf_ntohs(r.length);
	type = bpf_ntohs(r.type);
	if (bpf_ntohs(r.class) == CLASS_IN && ((type == TYPE_A && length == 4) || (type == TYPE_AAAA && length == 16)))
		a->noted += note_address(skb, a->at, length, &a->answer);
	a->at += length;
	a->records--;
	return 1;
}

static __always_inline void note_addresses(struct __sk_buff *skb, __u32 at, const struct query *q, __u64 first, __u64 now)
{
	struct addresses a = { { q->lookup, first, now }, at + DNS_HEADER + q->name_len + 4 };
	__u8 counts[4]; /* of questions and records */

	if (bpf_skb_load_bytes(skb, at + 4, counts, sizeof(counts)) || counts[0] || counts[1] != 1)
		return;
	a.records = counts[2] << 8 | counts[3];
	for (__u32 i = 0; i < STEPS; i++) {
		if (!note_step(skb, &a))
			return;
	}
}

#endif
