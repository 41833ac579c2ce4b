// Package drop watches where packets die.
//
// In: tracepoint skb:kfree_skb, through a BPF program that counts in the
// kernel; and of a network namespace its firewall rules, devices, queueing
// disciplines, filters, neighbours and routes, through netlink.
//
// Out: observe.Drop, and the parts of observe.NetNS that drop.go there
// declares, as increases over a window.
//
// It changes nothing: no counter is reset, no table is created, no rule is
// traced.
package drop
