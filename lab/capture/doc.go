// Package capture is the independent witness of what TCP connections did: the
// packets themselves, with the kernel's time stamps.
//
// In: a network interface of a network namespace. Out: the TCP packets seen
// there ([Capture]), and the connections and requests that [Cut] finds in
// them, seen from one end. It never looks at sockets or at slowray's BPF
// programs: its only source is what crossed the interface, so slowray's own
// figures can be held against it.
package capture
