// The parts of a request's time: in their order, with their words. The colours
// are docs/ledger.svg's; retrans is hatched too, for who cannot tell it from network.

export const parts = [
  { key: "accept_wait", name: "accept wait", color: "#c45fc4", who: "the client waits for accept()",
    text: "The connection was complete and the application had not accepted it: its workers or its event loop were busy." },
  { key: "upload", name: "upload", color: "#16888a", who: "the application waits for the rest of the request",
    text: "From the first to the last byte of the request: a slow or distant client, or segments lost on the way here." },
  { key: "recv_wait", name: "receive wait", color: "#a87b00", who: "the request waits to be read",
    text: "The request lay complete in the socket and nobody read it: a blocked event loop, too few threads, or a full CPU." },
  { key: "server", name: "server", color: "#3f6fd1", who: "the client waits for the application",
    text: "From the request read to the first byte of the answer: the application worked, or waited for something." },
  { key: "stall", name: "stall", color: "#8a3fa0", who: "the client waits for the rest of the answer",
    text: "A pause in the middle of the answer with nothing on its way: the application was not sending. It is not the network." },
  { key: "send_wait", name: "send wait", color: "#d9ac1c", who: "the answer waits for room",
    text: "Bytes of the answer waited in the send queue: the receiver does not read, or the buffer is too small." },
  { key: "network", name: "network", color: "#2f8a45", who: "the answer is on its way",
    text: "From the answer sent to its acknowledgement: one round trip of a short answer, more of a long one." },
  { key: "retrans", name: "retransmission", color: "#cf3b36", hatch: true, who: "the answer is retransmitted",
    text: "A packet was lost. From when its acknowledgement was due until it came; 200 ms and more means that only a timer noticed." },
  { key: "unaccounted", name: "unaccounted", color: "#8b949e", who: "not known",
    text: "Known to have passed, and not known with what: requests that overlap are not split." },
];

export const ackDelay = { key: "ack_delay", name: "acknowledged late", color: "#8b949e", who: "nobody waited",
  text: "The client had its answer and said so later, at the latest with its next request. It is not part of the total." };

export const serverParts = [
  { key: "server.cpu", name: "on CPU", color: "#3f6fd1", who: "computes", text: "The threads that had the request in hand computed, in the application or in the kernel." },
  { key: "server.runq", name: "waiting for a CPU", color: "#9db8f0", who: "waits for a CPU", text: "Its threads were ready, and other threads had the CPUs." },
  { key: "server.throttled", name: "throttled", color: "#173a80", who: "waits for its quota", text: "Its threads were ready, and the control group's CPU quota was used up." },
  { key: "server.blocked.lock", name: "lock", color: "#c2571a", who: "waits for a lock", text: "Its threads waited until another thread of the process let go of a lock." },
  { key: "server.blocked.disk", name: "disk", color: "#7a5a3a", who: "waits for storage", text: "Its threads waited for a file or a device: fsync, a page that is not in memory." },
  { key: "server.blocked.pipe", name: "pipe", color: "#b0448f", who: "waits for a pipe", text: "Its threads read or wrote a pipe; the wait graph tells who has its other end." },
  { key: "server.blocked.net", name: "socket", color: "#4f9d8f", who: "waits for a socket", text: "Its threads waited for a socket that is no call: a unix socket, the name service, poll." },
  { key: "server.blocked.sleep", name: "sleep", color: "#a9a29a", who: "sleeps", text: "Its threads slept of their own will: look for retries and back-off in the code." },
  { key: "server.blocked.other", name: "other wait", color: "#8d99ae", who: "waits", text: "Its threads waited for something else; of an event loop: for a timer, or work that cannot be seen." },
  { key: "server.call", name: "call", color: "#5fb3e6", who: "waits for another service", text: "Its threads waited for what another service answers over TCP; that has its own requests, on the called side." },
  { key: "server.handoff", name: "handed off", color: "#c3c9d1", who: "not followed", text: "The thread that answered is not seen to have got the request from the one that read it." },
];

const calledText = {
  upload: ["this host sends the request", "From the first to the last byte of the request leaving: a large request, or a window that is closed."],
  server: ["this host waits for the other end", "From the request sent to the first byte of the answer, less one round trip: the other end's time, with its queues and its own calls."],
  network: ["the answer is on its way", "One round trip of the connection, and the transfer of the answer."],
  stall: ["this host waits for the rest of the answer", "Gaps in the answer longer than a round trip: the other end pauses, or its bytes wait or get lost."],
  recv_wait: ["the answer waits to be read", "The answer lay in the socket here: this application is late, not the one it calls."],
  retrans: ["the request is retransmitted", "What had to be retransmitted of the request: loss on the way there."],
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
  overlapped: "overlapped others on its connection: not split", reset: "the connection was reset", unanswered: "never answered", truncated: "cut short",
  unfinished: "still under way", half_closed: "the client had closed its sending side", closed: "the connection was closed with it", reordered: "segments came out of order",
  nagle: "a small piece waited for an acknowledgement: set TCP_NODELAY", zero_window: "the receiver had no room", send_buffer: "the send buffer was full", receive_window: "the receiver's window was too small",
  timeout: "a retransmission timer ran out", estimated: "times are estimated", preexisting: "the connection is older than the recording", slow: "slow for its endpoint",
  upload_acks: "the upload waited for acknowledgements", amended: "takes the place of an earlier record", contended: "several threads had it in hand",
  multiplexed: "one of several on its connection (HTTP/2)",
};
