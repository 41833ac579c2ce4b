// Package nl speaks netlink(7): sockets, dumps, messages and attributes.
//
// In: requests of sock_diag, nfnetlink and rtnetlink. Out: the payloads that the
// kernel answers with, and their attributes. It knows no family's messages; who
// asks does. Answers come from network namespaces that others have filled: what
// is malformed ends where it is, and nothing waits longer than Timeout.
package nl
