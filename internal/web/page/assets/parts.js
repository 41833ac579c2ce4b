// The parts of a request's time: in their order, with their words. The colours
// are docs/ledger.svg's; retrans is hatched too, for who cannot tell it from network.

import { say } from "./language.js";

export const parts = [
  { key: "accept_wait", name: say`accept_wait`, color: "#c45fc4", who: say`the client waits for accept()`,
    text: say`The connection was complete and the application had not accepted it: its workers or its event loop were busy.` },
  { key: "tls", name: say`tls`, color: "#6b7f1d", who: say`the client waits for the handshake of TLS`,
    text: say`From the ClientHello to the end of the handshake, on a new connection: signatures, round trips, and whatever either end asks meanwhile.` },
  { key: "upload", name: say`upload`, color: "#16888a", who: say`the application waits for the rest of the request`,
    text: say`From the first to the last byte of the request: a slow or distant client, or segments lost on the way here.` },
  { key: "recv_wait", name: say`recv_wait`, color: "#a87b00", who: say`the request waits to be read`,
    text: say`The request lay complete in the socket and nobody read it: a blocked event loop, too few threads, or a full CPU.` },
  { key: "server", name: say`server`, color: "#3f6fd1", who: say`the client waits for the application`,
    text: say`From the request read to the first byte of the answer: the application worked, or waited for something.` },
  { key: "stall", name: say`stall`, color: "#8a3fa0", who: say`the client waits for the rest of the answer`,
    text: say`A pause in the middle of the answer with nothing on its way: the application was not sending. It is not the network.` },
  { key: "send_wait", name: say`send_wait`, color: "#d9ac1c", who: say`the answer waits for room`,
    text: say`Bytes of the answer waited in the send queue: the receiver does not read, or the buffer is too small.` },
  { key: "network", name: say`network`, color: "#2f8a45", who: say`the answer is on its way`,
    text: say`From the answer sent to its acknowledgement: one round trip of a short answer, more of a long one.` },
  { key: "retrans", name: say`retrans`, color: "#cf3b36", hatch: true, who: say`the answer is retransmitted`,
    text: say`A packet was lost. From when its acknowledgement was due until it came; 200 ms and more means that only a timer noticed.` },
  { key: "unaccounted", name: say`unaccounted`, color: "#8b949e", who: say`not known`,
    text: say`Known to have passed, and not known with what: requests that overlap are not split.` },
];

export const ackDelay = { key: "ack_delay", name: say`ack_delay`, color: "#8b949e", who: say`nobody waited`,
  text: say`The client had its answer and said so later, at the latest with its next request. It is not part of the total.` };

export const serverParts = [
  { key: "server.cpu", name: say`server cpu`, color: "#3f6fd1", who: say`computes`, text: say`The threads that had the request in hand computed, in the application or in the kernel.` },
  { key: "server.runq", name: say`server runq`, color: "#9db8f0", who: say`waits for a CPU`, text: say`Its threads were ready, and other threads had the CPUs.` },
  { key: "server.throttled", name: say`server throttled`, color: "#173a80", who: say`waits for its quota`, text: say`Its threads were ready, and the control group's CPU quota was used up.` },
  { key: "server.blocked.lock", name: say`server lock`, color: "#c2571a", who: say`waits for a lock`, text: say`Its threads waited until another thread of the process let go of a lock.` },
  { key: "server.blocked.disk", name: say`server disk`, color: "#7a5a3a", who: say`waits for storage`, text: say`Its threads waited for a file or a device: fsync, a page that is not in memory.` },
  { key: "server.blocked.pipe", name: say`server pipe`, color: "#b0448f", who: say`waits for a pipe`, text: say`Its threads read or wrote a pipe; the wait graph tells who has its other end.` },
  { key: "server.blocked.net", name: say`server net`, color: "#4f9d8f", who: say`waits for a socket`, text: say`Its threads waited for a socket that is no call: a unix socket, the name service, poll.` },
  { key: "server.blocked.sleep", name: say`server sleep`, color: "#a9a29a", who: say`sleeps`, text: say`Its threads slept of their own will: look for retries and back-off in the code.` },
  { key: "server.blocked.other", name: say`server other`, color: "#8d99ae", who: say`waits`, text: say`Its threads waited for something else; of an event loop: for a timer, or work that cannot be seen.` },
  { key: "server.call", name: say`server call`, color: "#5fb3e6", who: say`waits for another service`, text: say`Its threads waited for what another service answers over TCP; that has its own requests, on the called side.` },
  { key: "server.handoff", name: say`server handoff`, color: "#c3c9d1", who: say`not followed`, text: say`The thread that answered is not seen to have got the request from the one that read it.` },
];

const calledText = {
  upload: [say`this host sends the request`, say`From the first to the last byte of the request leaving: a large request, or a window that is closed.`],
  server: [say`this host waits for the other end`, say`From the request sent to the first byte of the answer, less one round trip: the other end's time, with its queues and its own calls.`],
  network: [say`the answer is on its way`, say`One round trip of the connection, and the transfer of the answer.`],
  stall: [say`this host waits for the rest of the answer`, say`Gaps in the answer longer than a round trip: the other end pauses, or its bytes wait or get lost.`],
  recv_wait: [say`the answer waits to be read`, say`The answer lay in the socket here: this application is late, not the one it calls.`],
  retrans: [say`the request is retransmitted`, say`What had to be retransmitted of the request: loss on the way there.`],
};

const all = new Map([...parts, ackDelay, ...serverParts].map((p) => [p.key, p]));

export const part = (key) => all.get(key) || { key, name: key, color: "#8b949e", who: "", text: "" };

// words are who waited and why, of a part on a side.
export function words(key, side) {
  const p = part(key), own = side === "called" ? calledText[key] : null;
  return own ? { who: own[0], text: own[1] } : { who: p.who, text: p.text };
}

// shares lists a ledger's parts that are not zero, in order; split puts server's own parts in its place.
export function shares(ledger, split = false) {
  const list = [];
  for (const p of parts) {
    const v = ledger?.[p.key] || 0;
    if (p.key === "server" && split && serverParts.some((x) => ledger?.[x.key] > 0)) {
      let rest = v;
      for (const x of serverParts) if (ledger[x.key] > 0) { list.push({ part: x, us: ledger[x.key] }); rest -= ledger[x.key]; }
      if (rest > v * 0.01) list.push({ part: p, us: rest });
    } else if (v > 0) list.push({ part: p, us: v });
  }
  return list;
}

export const flags = {
  overlapped: say`overlapped others on its connection: not split`, reset: say`the connection was reset`, unanswered: say`never answered`, truncated: say`cut short`,
  unfinished: say`still under way`, half_closed: say`the client had closed its sending side`, closed: say`the connection was closed with it`, reordered: say`segments came out of order`,
  nagle: say`a small piece waited for an acknowledgement: set TCP_NODELAY`, zero_window: say`the receiver had no room`, send_buffer: say`the send buffer was full`, receive_window: say`the receiver's window was too small`,
  timeout: say`a retransmission timer ran out`, estimated: say`times are estimated`, preexisting: say`the connection is older than the recording`, slow: say`slow for its endpoint`,
  upload_acks: say`the upload waited for acknowledgements`, amended: say`takes the place of an earlier record`, contended: say`several threads had it in hand`,
  multiplexed: say`one of several on its connection (HTTP/2)`, thread_context: say`the trace is that of its thread`,
};
