// Package nat asks the kernel where connections go whose destination it changes on the
// way (DNAT): to a service's address of Kubernetes, to a port that Docker publishes, to a
// proxy that iptables redirects to. A socket only knows the address that was asked for.
//
// In: a request with the ends of its connection. Out: who really has it, by the
// connection tracking of the network namespace that translates. Asking is a look-up: no
// entry is made, renewed or changed, and no module is loaded.
package nat
