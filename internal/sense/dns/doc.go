// Package dns observes the DNS queries of all processes, as packets of their
// own UDP sockets to and from port 53: how long nameservers take, which
// queries get no answer, how many names are not found. It reads the resolver's
// configuration as a process sees it.
//
// In: the BPF program dns.bpf.c, attached to the root of all control groups;
// resolv.conf. Out: observe.DNS. Names are not kept. Queries over TCP, TLS or
// HTTPS are not seen.
package dns
