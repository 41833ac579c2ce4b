//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Loses packets that come in at a device: every n-th of those that match, or
 * a share by chance.
 */
#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before the program is loaded. */
const volatile __u32 every;  /* lose each every-th match; 0 = none */
const volatile __u32 ppm;    /* lose this many of a million matches by chance */
const volatile __u16 port;   /* TCP port of either end; 0 = any packet of IP */
const volatile __u8 payload; /* TCP segments with payload only */

__u64 packets, matches, dropped;

/* The TCP header's offset from the network header; -1 if there is none. */
static __always_inline int tcp_at(struct __sk_buff *skb, int *end)
{
	struct ipv6hdr ip6;
	struct iphdr ip;

	switch (skb->protocol) {
	case bpf_htons(ETH_P_IP):
		if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), BPF_HDR_START_NET))
			return -1;
		if (ip.protocol != IPPROTO_TCP || ip.frag_off & bpf_htons(0x1fff))
			return -1;
		*end = bpf_ntohs(ip.tot_len);
		return ip.ihl * 4;
	case bpf_htons(ETH_P_IPV6):
		if (bpf_skb_load_bytes_relative(skb, 0, &ip6, sizeof(ip6), BPF_HDR_START_NET))
			return -1;
		if (ip6.nexthdr != IPPROTO_TCP)
			return -1;
		*end = sizeof(ip6) + bpf_ntohs(ip6.payload_len);
		return sizeof(ip6);
	}
	return -1;
}

static __always_inline bool match(struct __sk_buff *skb)
{
	struct tcphdr tcp;
	int at, end = 0;

	if (!port && !payload)
		return skb->protocol == bpf_htons(ETH_P_IP) || skb->protocol == bpf_htons(ETH_P_IPV6);
	at = tcp_at(skb, &end);
	if (at < 0 || bpf_skb_load_bytes_relative(skb, at, &tcp, sizeof(tcp), BPF_HDR_START_NET))
		return false;
	if (port && tcp.source != bpf_htons(port) && tcp.dest != bpf_htons(port))
		return false;
	return !payload || end > at + tcp.doff * 4;
}

SEC("tc")
int lose(struct __sk_buff *skb)
{
	bool lost = false;
	__u64 n;

	__sync_fetch_and_add(&packets, 1);
	if (!match(skb))
		return TC_ACT_OK;
	n = __sync_fetch_and_add(&matches, 1) + 1;
	if (every)
		lost = n % every == 0;
	if (ppm)
		lost = lost || ((__u64)bpf_get_prandom_u32() * 1000000 >> 32) < ppm;
	if (!lost)
		return TC_ACT_OK;
	__sync_fetch_and_add(&dropped, 1);
	return TC_ACT_SHOT;
}
