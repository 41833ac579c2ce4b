//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * What the packets that come in are: one of SAMPLE_EVERY on each CPU is counted
 * by namespace, interface, protocol, port and source. It runs for each packet,
 * so it is attached only for moments in which packets take a good part of a
 * CPU.
 */
#include "headers/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SAMPLE_EVERY 16

#define ETH_P_IP 0x0800
#define ETH_P_ARP 0x0806
#define ETH_P_IPV6 0x86dd
#define IPPROTO_ICMP 1
#define IPPROTO_UDP 17
#define IPPROTO_ICMPV6 58

/* Members that headers/kernel.h does not need. */
struct net_device___flow {
	char name[16];
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

struct sk_buff___flow {
	struct net_device___flow *dev;
	__be16 protocol;
	unsigned char *data;
} __attribute__((preserve_access_index));

/* The same numbers as in flow.go. */
enum proto {
	OTHER,
	TCP_SYN,
	TCP,
	UDP,
	ICMP,
	ARP,
	TCP_RESET,
};

struct flow_key {
	__u32 netns;
	__u16 port; /* destination, host byte order */
	__u16 proto;
	char interface[16];
};

struct peer_key {
	struct flow_key flow;
	__u8 addr[16]; /* IPv4 in the first four bytes */
	__u32 family;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct flow_key);
	__type(value, __u64);
} flows SEC(".maps");

/* Sources may be forged, each packet another one: the oldest give way. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct peer_key);
	__type(value, __u64);
} peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} packets SEC(".maps");

__u64 lost_flows; /* samples of more flows than there is room for */

static __always_inline void count(void *map, void *key)
{
	__u64 *n = bpf_map_lookup_elem(map, key);
	__u64 one = 1;

	if (n)
		__sync_fetch_and_add(n, 1);
	else if (bpf_map_update_elem(map, key, &one, BPF_NOEXIST) && map == &flows)
		__sync_fetch_and_add(&lost_flows, 1);
}

/* transport reads the ports and flags behind an IP header. */
static __always_inline void transport(struct flow_key *k, __u8 protocol, unsigned char *at)
{
	__u8 head[14] = {};

	switch (protocol) {
	case IPPROTO_TCP:
		k->proto = TCP;
		if (bpf_probe_read_kernel(head, 14, at))
			return;
		if ((head[13] & 0x12) == 0x02) /* SYN without ACK */
			k->proto = TCP_SYN;
		else if (head[13] & 0x04)
			k->proto = TCP_RESET;
		break;
	case IPPROTO_UDP:
		k->proto = UDP;
		if (bpf_probe_read_kernel(head, 4, at))
			return;
		break;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		k->proto = ICMP;
		return;
	default:
		return;
	}
	k->port = head[2] << 8 | head[3];
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(received, struct sk_buff *skb_arg)
{
	struct sk_buff___flow *skb = (void *)skb_arg;
	struct peer_key p = { .family = AF_INET };
	__u32 zero = 0;
	__u64 *seen = bpf_map_lookup_elem(&packets, &zero);
	unsigned char *data;
	__u8 ip[40] = {};

	if (!seen || (*seen)++ % SAMPLE_EVERY)
		return 0;
	data = BPF_CORE_READ(skb, data); /* the network header, here */
	p.flow.netns = BPF_CORE_READ(skb, dev, nd_net.net, ns.inum);
	BPF_CORE_READ_STR_INTO(&p.flow.interface, skb, dev, name);
	switch (bpf_ntohs(BPF_CORE_READ(skb, protocol))) {
	case ETH_P_IP:
		if (bpf_probe_read_kernel(ip, 20, data))
			break;
		__builtin_memcpy(p.addr, ip + 12, 4);
		transport(&p.flow, ip[9], data + (ip[0] & 15) * 4);
		break;
	case ETH_P_IPV6:
		if (bpf_probe_read_kernel(ip, 40, data))
			break;
		p.family = AF_INET6;
		__builtin_memcpy(p.addr, ip + 8, 16);
		transport(&p.flow, ip[6], data + 40);
		break;
	case ETH_P_ARP:
		p.flow.proto = ARP;
		break;
	}
	count(&flows, &p.flow);
	count(&peers, &p);
	return 0;
}
