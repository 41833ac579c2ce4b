// Chains of waits, hop by hop: schema/wait.schema.json.

import { say } from "./language.js";
import { h, name, clean } from "./dom.js";
import { nanos, plural } from "./figure.js";

const kinds = { lock: say`a lock`, channel: say`a channel`, thread: say`a thread's end`, pipe: say`a pipe`, unix: say`a unix socket`, tcp: say`a TCP connection`, udp: say`a UDP socket`, socket: say`a socket`, child: say`a child`, "file-lock": say`a file lock`,
  disk: say`storage`, fuse: say`a file system in user space`, kernel: say`the kernel`, cond: say`being woken`, epoll: say`any of its descriptors`, accept: say`a connection`, event: say`an event`, terminal: say`the terminal`, sleep: say`a time`, stopped: say`going on`, runnable: say`a CPU`, ended: say`nothing`, unknown: say`something unknown` };
const wants = { release: say`to be let go`, room: say`to be read: it is full`, accept: say`to be taken up`, answer: say`to answer`, data: say`to write`, end: say`to end`, request: say`to ask for something` };
export const endWords = { cycle: say`comes back to itself`, stopped: say`stopped by a signal`, traced: say`held by a debugger`, frozen: say`frozen with its control group`, gone: say`its owner is gone`, remote: say`leaves this host`, disk: say`storage`, fuse: say`a file system in user space`, kernel: say`the kernel`,
  running: say`runs`, mutual: say`each waits for the other to speak`, "no-owner": say`nobody is written down`, idle: say`ready for work`, sleep: say`sleeps`, ended: say`has ended`, unseen: say`could not be seen further`, "too-long": say`too long to follow`, "no-holder": say`nobody is at the other end` };

export function hop(x, last) {
  const p = x.process || {};
  return h("li", { class: last ? "last" : "" },
    h("div", { class: "who" }, x.why ? h("span", { class: "soft" }, `${clean(x.why, 120)} `) : null, name(x.comm || p.comm || "?", "strong"), x.comm && p.comm && x.comm !== p.comm ? say`, a thread of ${name(p.comm, "strong")}` : null, h("span", { class: "soft mono" }, ` ${p.pid || ""}${x.tid && x.tid !== p.pid ? `/${x.tid}` : ""}`), p.container_name || p.container ? h("span", { class: "soft" }, say` (container ${name(p.container_name || p.container)})`) : null),
    h("div", {}, say`waits for ${kinds[x.kind] || clean(x.kind, 40)}${x.wants ? ` ${wants[x.wants] || clean(x.wants, 40)}` : ""}`, x.object ? [": ", name(x.object, "mono")] : null, x.at_least_ns > 0 ? h("b", {}, ` ${nanos(x.at_least_ns)}${x.moving ? "" : say` and more`}`) : null),
    x.detail || x.remote || x.syscall || x.inside ? h("div", { class: "soft" }, [x.detail && clean(x.detail, 200), x.remote && say`other end ${clean(x.remote, 80)}`, x.syscall && say`in ${clean(x.syscall, 40)}()`, x.inside && clean(x.inside, 80)].filter(Boolean).join(" · ")) : null,
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
    h("header", {}, h("b", {}, c.deadlock ?? (c.back_to >= 0 && c.sure) ? say`Deadlock` : plural(c.count || c.threads?.length || 1, "thread")), h("span", { class: "soft" }, blames(c) ? say`held up` : say`waits; nobody stands in the way`)),
    h("ol", { class: "hops" }, (c.hops || []).map((x, i, all) => hop(x, i === all.length - 1))),
    h("p", { class: "end" }, c.back_to >= 0 ? say`…which waits for hop ${c.back_to + 1} again: ` : "", clean(c.text || endWords[c.end] || "", 400)),
    c.advice ? h("p", {}, clean(c.advice, 400)) : null, c.command ? h("pre", { tabindex: "0" }, clean(c.command, 500)) : null)),
  list.length > 12 ? h("p", { class: "soft" }, say`${list.length - 12} more chains are in the JSON.`) : null);
}
