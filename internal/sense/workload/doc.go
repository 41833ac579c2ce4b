// Package workload remembers who had a container id or an address, and when.
//
// In: claims of whoever knows (the container runtime, the kubelet, the API server), late
// and in any order. Out: the observe.Workload of a key at a time, or nothing: addresses
// and names are used again, so what is not known for that time is not guessed from what is
// known for another. It touches no system.
package workload
