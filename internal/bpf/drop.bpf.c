//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Packets that the kernel throws away (skb:kfree_skb): counted by reason,
 * place, namespace, device, direction and kind, exactly; and by their
 * addresses and ports as far as there is room. A flood of drops costs little:
 * of many that are alike only one of DETAIL_EVERY is looked at closely.
 */
#include "headers/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define NOT_SPECIFIED 2 /* SKB_DROP_REASON_NOT_SPECIFIED; those below are no drops */
#define DETAIL_ALWAYS 256
#define DETAIL_EVERY 16

#define ETH_P_IP 0x0800
#define ETH_P_ARP 0x0806
#define ETH_P_IPV6 0x86dd
#define IPPROTO_ICMP 1
#define IPPROTO_UDP 17
#define IPPROTO_FRAGMENT 44
#define IPPROTO_ICMPV6 58

/* Members that headers/kernel.h does not need. */
struct net_device___drop {
	int ifindex;
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

struct sk_buff___drop {
	struct net_device___drop *dev;
	struct sock *sk;
	unsigned int len;
	int skb_iif;
	__be16 protocol;
	__u16 network_header;
	unsigned int end;
	unsigned char *head;
} __attribute__((preserve_access_index));

struct skb_shared_info___drop {
	unsigned short gso_segs;
} __attribute__((preserve_access_index));

/* The same numbers as in drop.go. */
enum kind {
	OTHER,
	TCP_SYN,
	TCP_SYN_ACK,
	TCP_DATA,
	TCP_ACK,
	TCP_RESET,
	UDP,
	ICMP,
	ARP,
	FRAGMENT,
};

struct drop_key {
	__u64 location;
	__u32 reason;
	__u32 netns;
	__u32 ifindex;
	__u8 kind;
	__u8 in;     /* it came in at a device */
	__u8 family; /* of the addresses; 0 where there are none */
	__u8 unused;
};

struct drop_count {
	__u64 packets;
	__u64 segments; /* of the wire, where one packet stands for several */
	__u64 bytes;
	__u32 longest;
	__u32 shortest;
};

struct flow_key {
	struct drop_key drop;
	__u16 sport, dport; /* host byte order */
	__u32 unused;
	__u8 saddr[16]; /* IPv4 in the first four bytes */
	__u8 daddr[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct drop_key);
	__type(value, struct drop_count);
} drops SEC(".maps");

/* Sources may be forged, each packet another one: the oldest give way. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct flow_key);
	__type(value, __u64);
} dropped_flows SEC(".maps");

__u64 lost_drops; /* packets for whose like there was no room */

/* Reasons, by number, for which no packet is missed: one bit each. */
const volatile __u64 harmless[4];

/* transport reads what is behind an IP header; payload is the bytes from there on. */
static __always_inline void transport(struct flow_key *f, __u8 protocol, unsigned char *at, int payload)
{
	__u8 head[14] = {};

	switch (protocol) {
	case IPPROTO_TCP:
		f->drop.kind = TCP_ACK;
		if (bpf_probe_read_kernel(head, 14, at))
			return;
		if (head[13] & 0x04)
			f->drop.kind = TCP_RESET;
		else if (head[13] & 0x02)
			f->drop.kind = head[13] & 0x10 ? TCP_SYN_ACK : TCP_SYN;
		else if (payload > (head[12] >> 4) * 4)
			f->drop.kind = TCP_DATA;
		break;
	case IPPROTO_UDP:
		f->drop.kind = UDP;
		if (bpf_probe_read_kernel(head, 4, at))
			return;
		break;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		f->drop.kind = ICMP;
		return;
	default:
		return;
	}
	f->sport = head[0] << 8 | head[1];
	f->dport = head[2] << 8 | head[3];
}

/* headless tells a segment that TCP could not even hand to IP: it has no
 * addresses yet, but its socket has. */
static __always_inline int headless(struct flow_key *f, struct sock *sk)
{
	__u16 family;

	if (!sk || f->drop.reason <= NOT_SPECIFIED || BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (family == AF_INET) {
		BPF_CORE_READ_INTO((__u32 *)f->saddr, sk, __sk_common.skc_rcv_saddr);
		BPF_CORE_READ_INTO((__u32 *)f->daddr, sk, __sk_common.skc_daddr);
	} else if (family == AF_INET6) {
		bpf_core_read(f->saddr, 16, &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_core_read(f->daddr, 16, &sk->__sk_common.skc_v6_daddr);
	} else {
		return 0;
	}
	f->drop.family = family;
	f->drop.kind = TCP_DATA;
	f->sport = BPF_CORE_READ(sk, __sk_common.skc_num);
	f->dport = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	return 1;
}

static __always_inline int classify(struct flow_key *f, struct sk_buff___drop *skb, struct sock *sk)
{
	__u16 protocol = bpf_ntohs(skb->protocol);
	unsigned char *at;
	__u8 ip[40] = {};

	/* Messages of unix and netlink sockets are no packets. */
	if (protocol == ETH_P_ARP) {
		f->drop.kind = ARP;
		return 1;
	}
	if (!protocol)
		return headless(f, sk);
	if (protocol != ETH_P_IP && protocol != ETH_P_IPV6)
		return 0;
	at = skb->head + skb->network_header;
	if (protocol == ETH_P_IP) {
		if (bpf_probe_read_kernel(ip, 20, at) || ip[0] >> 4 != 4)
			return 1;
		f->drop.family = AF_INET;
		__builtin_memcpy(f->saddr, ip + 12, 4);
		__builtin_memcpy(f->daddr, ip + 16, 4);
		if ((ip[6] << 8 | ip[7]) & 0x3fff) /* more fragments, or an offset */
			f->drop.kind = FRAGMENT;
		else
			transport(f, ip[9], at + (ip[0] & 15) * 4, (ip[2] << 8 | ip[3]) - (ip[0] & 15) * 4);
	} else {
		if (bpf_probe_read_kernel(ip, 40, at) || ip[0] >> 4 != 6)
			return 1;
		f->drop.family = AF_INET6;
		__builtin_memcpy(f->saddr, ip + 8, 16);
		__builtin_memcpy(f->daddr, ip + 24, 16);
		if (ip[6] == IPPROTO_FRAGMENT)
			f->drop.kind = FRAGMENT;
		else
			transport(f, ip[6], at + 40, ip[4] << 8 | ip[5]);
	}
	return 1;
}

static __always_inline int count(struct sk_buff___drop *skb, void *location, __u32 reason)
{
	struct flow_key f = {};
	struct drop_count *n, first = {};
	struct skb_shared_info___drop *shared;
	struct net_device___drop *dev;
	struct sock *sk = skb->sk;
	__u32 len = skb->len;
	__u64 segments, weight = 1, *flow;

	f.drop.location = (__u64)location;
	f.drop.reason = reason;
	if (!classify(&f, skb, sk))
		return 0;
	dev = skb->dev;
	f.drop.in = skb->skb_iif != 0;
	if (dev) { /* while a segment is in one of TCP's queues, something else lies here */
		f.drop.ifindex = BPF_CORE_READ(dev, ifindex);
		f.drop.netns = BPF_CORE_READ(dev, nd_net.net, ns.inum);
	}
	if (sk && !f.drop.in) /* the device may be nobody's yet */
		f.drop.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	shared = (void *)(skb->head + skb->end);
	segments = BPF_CORE_READ(shared, gso_segs);
	if (!segments)
		segments = 1;
	n = bpf_map_lookup_elem(&drops, &f.drop);
	if (!n) {
		first.shortest = len;
		bpf_map_update_elem(&drops, &f.drop, &first, BPF_NOEXIST);
		n = bpf_map_lookup_elem(&drops, &f.drop);
		if (!n) {
			__sync_fetch_and_add(&lost_drops, 1);
			return 0;
		}
	}
	n->packets++;
	n->segments += segments;
	n->bytes += len;
	if (len > n->longest)
		n->longest = len;
	if (len < n->shortest || !n->shortest)
		n->shortest = len;
	if (n->packets > DETAIL_ALWAYS) {
		if (n->packets % DETAIL_EVERY)
			return 0;
		weight = DETAIL_EVERY;
	}
	/* The client's port of a handshake is another one each time. */
	if (f.drop.kind == TCP_SYN)
		f.sport = 0;
	else if (f.drop.kind == TCP_SYN_ACK)
		f.dport = 0;
	weight *= segments;
	flow = bpf_map_lookup_elem(&dropped_flows, &f);
	if (flow)
		__sync_fetch_and_add(flow, weight);
	else
		bpf_map_update_elem(&dropped_flows, &f, &weight, BPF_NOEXIST);
	return 0;
}

/* The reason is there since Linux 5.17 (c504e5c2f964). */
SEC("tp_btf/kfree_skb")
int BPF_PROG(dropped, struct sk_buff *skb, void *location, unsigned int reason)
{
	if (reason < 256 && harmless[reason >> 6] >> (reason & 63) & 1)
		return 0;
	return count((void *)skb, location, reason);
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(dropped_unexplained, struct sk_buff *skb, void *location)
{
	return count((void *)skb, location, 0);
}
