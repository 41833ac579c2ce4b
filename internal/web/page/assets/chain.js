// Chains of waits, hop by hop: schema/wait.schema.json.

import { h, name, clean } from "./dom.js";
import { nanos, plural } from "./figure.js";

const kinds = { lock: "a lock", channel: "a channel", thread: "a thread's end", pipe: "a pipe", unix: "a unix socket", tcp: "a TCP connection", udp: "a UDP socket", socket: "a socket", child: "a child", "file-lock": "a file lock",
  disk: "storage", fuse: "a file system in user space", kernel: "the kernel", cond: "being woken", epoll: "any of its descriptors", accept: "a connection", event: "an event", terminal: "the terminal", sleep: "a time", stopped: "going on", runnable: "a CPU", ended: "nothing", unknown: "something unknown" };
const wants = { release: "to be let go", room: "to be read: it is full", accept: "to be taken up", answer: "to answer", data: "to write", end: "to end", request: "to ask for something" };
export const endWords = { cycle: "comes back to itself", stopped: "stopped by a signal", traced: "held by a debugger", frozen: "frozen with its control group", gone: "its owner is gone", remote: "leaves this host", disk: "storage", fuse: "a file system in user space", kernel: "the kernel",
  running: "runs", mutual: "each waits for the other to speak", "no-owner": "nobody is written down", idle: "ready for work", sleep: "sleeps", ended: "has ended", unseen: "could not be seen further", "too-long": "too long to follow", "no-holder": "nobody is at the other end" };

export function hop(x, last) {
  const p = x.process || {};
  return h("li", { class: last ? "last" : "" },
    h("div", { class: "who" }, x.why ? h("span", { class: "soft" }, `${clean(x.why, 120)} `) : null, name(x.comm || p.comm || "?", "strong"), x.comm && p.comm && x.comm !== p.comm ? [" of ", name(p.comm, "strong")] : null, h("span", { class: "soft mono" }, ` ${p.pid || ""}${x.tid && x.tid !== p.pid ? `/${x.tid}` : ""}`), p.container_name || p.container ? h("span", { class: "soft" }, [" in ", name(p.container_name || p.container)]) : null),
    h("div", {}, `waits for ${kinds[x.kind] || clean(x.kind, 40)}${x.wants ? ` ${wants[x.wants] || clean(x.wants, 40)}` : ""}`, x.object ? [": ", name(x.object, "mono")] : null, x.at_least_ns > 0 ? h("b", {}, ` ${nanos(x.at_least_ns)}${x.moving ? "" : " and more"}`) : null),
    x.detail || x.remote || x.syscall || x.inside ? h("div", { class: "soft" }, [x.detail && clean(x.detail, 200), x.remote && `other end ${clean(x.remote, 80)}`, x.syscall && `in ${clean(x.syscall, 40)}()`, x.inside && clean(x.inside, 80)].filter(Boolean).join(" · ")) : null,
    x.stack?.length ? h("ol", { class: "mono stack" }, x.stack.slice(0, 8).map((f) => h("li", {}, name(f)))) : null);
}

const demands = (hops) => hops.some((x) => ["release", "room", "accept", "answer"].includes(x.wants));

// blames says whether the first thread is held up by somebody else, or by
// something to be fixed: observe.WaitChain.Culprit.
export function blames(c) {
  const hops = c.hops || [];
  if (c.culprit !== undefined) return c.culprit;
  if (!hops.length || hops[0].moving) return false;
  const before = hops.slice(0, -1);
  if (["cycle", "stopped", "traced", "frozen", "disk", "fuse", "kernel", "gone", "mutual"].includes(c.end)) return true;
  if (["remote", "no-holder", "unseen", "no-owner"].includes(c.end)) return demands(hops);
  if (["running", "too-long"].includes(c.end)) return before.length > 0;
  return demands(before);
}

export function chains(list) {
  return h("div", { class: "chains" }, list.slice(0, 12).map((c) => h("section", { class: `chain ${blames(c) ? "culprit" : ""}` },
    h("header", {}, h("b", {}, c.deadlock ?? (c.back_to >= 0 && c.sure) ? "Deadlock" : plural(c.count || c.threads?.length || 1, "thread")), h("span", { class: "soft" }, blames(c) ? "held up" : "waits; nobody stands in the way")),
    h("ol", { class: "hops" }, (c.hops || []).map((x, i, all) => hop(x, i === all.length - 1))),
    h("p", { class: "end" }, c.back_to >= 0 ? `…which waits for hop ${c.back_to + 1} again: ` : "", clean(c.text || endWords[c.end] || "", 400)),
    c.advice ? h("p", {}, clean(c.advice, 400)) : null, c.command ? h("pre", { tabindex: "0" }, clean(c.command, 500)) : null)),
  list.length > 12 ? h("p", { class: "soft" }, `${list.length - 12} more chains are in the JSON.`) : null);
}
