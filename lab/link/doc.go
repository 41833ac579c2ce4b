// Package link is a network link that is as bad as it is asked to be: two TUN
// devices in two network namespaces and, between them, delay, jitter, loss, a
// rate and a queue for each direction.
//
// In: two namespaces, addresses, and settings that may change while it runs;
// packets of chosen kinds can be lost on purpose. Out: [Counters], which are
// the truth that measurements of loss and delay are held against. It needs no
// kernel module, which is why it exists: netem is missing on many kernels.
//
// What is lost is a function of the seed and of the order of the packets. What
// is late is reported: how long after its due time each packet was passed on is in
// the counters (that the thread was late to take it in is not: a packet counts
// from then on). No packet overtakes another. Payload is never looked at.
package link
