// Package request records every request of every TCP connection of the host,
// with the time it spent in each part.
//
// In: the BPF programs of internal/bpf/request.bpf.c, which cut requests in the
// kernel and write a record for each into rings in shared memory. Out:
// observe.Request, one by one (Recorder.Poll), exact sums (Recorder.Counters),
// and observe.Endpoint, summed up (Table). It keeps no payload, wakes up for
// no request, and never judges what it saw.
package request
