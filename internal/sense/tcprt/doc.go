// Package tcprt reads TCPRT's text logs, version 6, as its kernel module and
// slowray requests --format tcprt write them: requests with their ledger as far as
// such a line tells, and averages by port.
//
// In: a file, also a compressed one. Out: observe.Request, one by one, and an
// observe.Observation that holds their endpoints and says of everything else that
// the log does not tell. Lines that cannot be right are skipped and counted.
//
// What a line tells, and what it does not:
//
//   - Of a served request: when its first segment came, how long the upload took,
//     how long it was until the first byte of the answer (waiting in the socket
//     and for accept() is part of that), and until the last acknowledgement.
//   - What passed after the first byte of the answer is one figure. As much of it
//     is network as the least round trip of the connection allows for; with
//     segments retransmitted the rest is retransmission, and otherwise unaccounted:
//     a pause of the application, a slow receiver, or an acknowledgement that came
//     late, which TCPRT counts as response time.
//   - No status, no process, no network namespace.
package tcprt
