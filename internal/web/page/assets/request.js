// One request: its time part by part, who waited for what, and what its thread did.

import { say, marks } from "./language.js";
import { h, s, name, clean, fill, empty } from "./dom.js";
import { micros, percent, small, bytes, count, plural, ticks } from "./figure.js";
import { clock, ago } from "./clock.js";
import { parts, serverParts, ackDelay, words, flags, shares } from "./parts.js";
import { began, status, failed } from "./requests.js";
import { pod } from "./endpoints.js";
import { chains } from "./chain.js";
import { card, sorted } from "./findings.js";
import { Flame } from "./flamegraph.js";
import { meanwhile } from "./meanwhile.js";
import { waterfall as path, route, note, summary as spent } from "./path.js";
import { menu, saveSVG, savePNG, saveJSON, saveCSV } from "./export.js";

// steps are the rows of a waterfall: parts in their order, each from where the
// one before ended; server's own parts beneath it, whose order is not known.
export function steps(r) {
  const list = [], ledger = r.ledger_us || {};
  let at = 0;
  for (const p of parts) {
    const us = ledger[p.key];
    if (!(us > 0)) continue;
    list.push({ p, at, us, ...words(p.key, r.side) });
    let inner = at;
    if (p.key === "server") for (const x of serverParts) if (ledger[x.key] > 0) {
      list.push({ p: x, at: inner, us: ledger[x.key], inner: true, ...words(x.key, r.side) });
      inner += ledger[x.key];
    }
    at += us;
  }
  if (ledger.ack_delay > 0) list.push({ p: ackDelay, at, us: ledger.ack_delay, after: true, ...words("ack_delay", r.side) });
  return list;
}

// summary says in a sentence where a request's time went.
export function summary(r) {
  const list = shares(r.ledger_us, true).sort((a, b) => b.us - a.us);
  if ((r.flags || []).includes("overlapped")) return say`It overlapped other requests on its connection, so its time is not split.`;
  if (!list.length) return say`No part of its time is known.`;
  const x = list[0], w = words(x.part.key, r.side);
  return say`${percent(x.us / (r.total_us || 1))} of it, ${micros(x.us)}, is “${x.part.name}”: ${w.text.charAt(0).toLowerCase()}${w.text.slice(1)}`;
}

function waterfall(r) {
  const list = steps(r), end = Math.max(r.total_us || 0, ...list.map((x) => x.at + x.us)) || 1, marks = ticks(0, end, 5).filter((t) => t <= end * 0.97);
  const scale = h("div", { class: "wf-scale", "aria-hidden": "true" }, marks.map((t) => h("span", { css: { left: `${t / end * 100}%` } }, micros(t))));
  return h("div", { class: "waterfall", role: "table", "aria-label": say`The request's time, part by part` },
    h("div", { class: "wf-row head", role: "row" }, h("span", { role: "columnheader" }, say`Part`), h("span", { role: "columnheader", class: "n" }, say`Took`), h("span", { role: "columnheader", class: "n" }, say`Share`), h("div", { role: "columnheader", class: "wf-bar", "aria-label": say`When` }, scale)),
    list.map((x) => {
      const bar = s("svg", { class: "wf-svg", viewBox: "0 0 1000 18", preserveAspectRatio: "none", "aria-hidden": "true" }, marks.map((t) => s("line", { class: "grid", x1: t / end * 1000, x2: t / end * 1000, y1: 0, y2: 18 })),
        s("rect", { x: x.at / end * 1000, y: x.inner ? 5 : 3, width: Math.max(2.5, x.us / end * 1000), height: x.inner ? 8 : 12, fill: x.after ? "none" : x.p.hatch ? "url(#hatch)" : x.p.color, class: x.after ? "after" : "" }));
      const minor = x.after || x.us < (r.total_us || 1) * 0.02; // in one line
      return h("div", { class: `wf-row ${x.inner ? "inner" : ""} ${x.after ? "aside" : ""} ${minor ? "minor" : ""}`, role: "row", data: { part: x.p.key } },
        h("span", { role: "cell", class: "wf-name" }, h("i", { class: "dot", css: { background: x.after ? "transparent" : x.p.color } }), x.p.name), h("b", { role: "cell", class: "n" }, micros(x.us)),
        h("span", { role: "cell", class: "n soft" }, x.after ? say`not in total` : small(x.us / (r.total_us || 1))), h("div", { role: "cell", class: "wf-bar" }, bar),
        h("p", { class: "wf-text", role: "cell", title: minor ? x.text : null }, h("b", {}, x.who), x.who ? marks.stop : "", x.text, x.p.key === "server" && list.some((y) => y.inner) ? say` What it did then stands beneath, summed up, in no order.` : ""));
    }),
    h("div", { class: "wf-row sum", role: "row" }, h("span", { role: "cell" }, say`Total`), h("b", { role: "cell", class: "n" }, micros(r.total_us)), h("span", { role: "cell", class: "n soft" }, "100 %"), h("div", { role: "cell", class: "wf-bar" })));
}

// drawing is the waterfall as a picture to keep.
function drawing(r) {
  const list = steps(r), end = Math.max(r.total_us || 0, ...list.map((x) => x.at + x.us)) || 1, wide = 900;
  return s("svg", { viewBox: `0 0 ${wide} ${list.length * 24 + 10}` }, list.map((x, i) => [
    s("text", { x: x.inner ? 26 : 10, y: i * 24 + 18, "font-size": 12, fill: "currentColor" }, x.p.name), s("text", { x: 220, y: i * 24 + 18, "font-size": 12, "text-anchor": "end", fill: "currentColor" }, micros(x.us)),
    s("rect", { x: 236 + x.at / end * 650, y: i * 24 + 7, width: Math.max(1.5, x.us / end * 650), height: x.inner ? 10 : 14, fill: x.after ? "none" : x.p.hatch ? "url(#hatch)" : x.p.color, stroke: x.after ? "currentColor" : "none", "stroke-dasharray": "4 3" })]));
}

function save(r, d) {
  const title = say`request ${micros(r.total_us)}`;
  const drawn = (how) => {
    const svg = drawing(r), room = h("div", { class: "offstage" }, svg);
    document.body.append(room);
    return Promise.resolve(how(svg, title)).finally(() => room.remove());
  };
  return menu(say`this request`, [[say`Picture (PNG)`, () => drawn(savePNG)], [say`Drawing (SVG)`, () => drawn(saveSVG)], [say`Table (CSV)`, () => saveCSV(["part", "from_us", "took_us"], steps(r).map((x) => [x.p.key, x.at, x.us]), title)], [say`All of it (JSON)`, () => saveJSON(d, title)]]);
}

export default function view(app) {
  const element = h("div", { class: "page request" });
  let flame = null;
  async function load(range, signal) {
    if (!app.route.id) return fill(element, empty(say`No request is chosen.`, h("a", { href: app.address({ view: "requests" }) }, say`Choose one of the slowest`)));
    if (element.dataset.id === app.route.id) return;
    let d = {};
    try {
      d = await app.ask("api/request", { id: app.route.id }, signal);
    } catch (e) {
      if (e.status !== 404) throw e;
    }
    const r = d.request;
    if (!r) return fill(element, empty(say`This request is not stored any more.`, say`History is kept for as long and as large as the flags of slowray record allow.`));
    if (element.dataset.id) scrollTo(0, 0); // another one, from a table beneath
    element.dataset.id = app.route.id;
    app.losses.set("request", d.losses);
    draw(d, r);
    await meanwhile(app, r, d.hops || [], element.querySelector(".meanwhile"), signal);
  }

  function draw(d, r) {
    const t = began(r), p = r.process || {}, ep = r.side === "called" ? `${clean(r.peer_addr, 60)}:${r.peer_port}` : `${clean(r.addr, 60)}:${r.port}`, key = r.key || d.key;
    const pad = Math.max(30, r.total_us / 1e6 * 3), why = (part) => typeof d.because === "object" && d.because ? d.because[part] : d.because;
    flame?.end();
    flame = d.stacks ? new Flame({ unit: d.unit || "nanoseconds", compact: true }) : null;
    const own = typeof d.wait === "object" && d.wait ? d.wait.chains || d.wait : null;
    fill(element,
      h("div", { class: "bar" }, h("a", { class: "act", href: app.address({ view: "requests" }) }, say`‹ Requests`), h("span", { class: "grow" }), h("a", { class: "act", href: app.address({ view: "timeline", ep: key || app.route.ep, from: t - pad * 4, to: t + pad * 4, last: null, sel: [t, t + Math.max(1, r.total_us / 1e6)] }) }, say`On the time line`), save(r, d)),
      h("h1", {}, h("span", {}, micros(r.total_us)), h("span", { class: "soft" }, r.side === "served" ? say` answered by ` : say` called by `), name(pod(p.workload) || p.container_name || p.comm || say`an unknown process`), " ", h("bdi", { class: "name mono soft" }, ep)),
      r.label ? h("p", { class: "label" }, name(r.label, "mono")) : null,
      h("p", { class: "summary" }, d.hops?.length > 1 ? spent(d.hops) : summary(r)),
      d.hops?.length ? [h("h2", {}, route(d.hops)), path(app, d.hops, r.id), h("p", { class: "soft joined" }, note(d.hops)), h("h2", {}, say`Its own parts`)] : null,
      waterfall(r),
      h("dl", { class: "facts" }, facts(app, r, t).map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v)))),
      (r.flags || []).length ? h("ul", { class: "flags" }, r.flags.map((f) => h("li", {}, h("b", {}, clean(f, 40).replaceAll("_", " ")), flags[f] ? `: ${flags[f]}` : ""))) : null,
      h("div", { class: "meanwhile" }),
      h("h2", {}, say`What its process waited for then`),
      own?.length ? chains(own) : empty(why("wait") || say`No wait was recorded at that moment.`, say`Waits are sampled; those of services whose requests are slow most often.`),
      h("h2", {}, say`What its threads did then`),
      flame ? flame.element : empty(why("stacks") || say`No stack was recorded at that moment.`, say`Stacks are recorded for services that compute while their requests are slow.`),
      d.findings?.length ? [h("h2", {}, say`Findings of that moment`), h("div", { class: "cards" }, sorted(d.findings).map((f) => card(f, app)))] : null);
    flame?.show(d.stacks.frames || d.stacks);
  }

  return { element, load, live: false, end: () => flame?.end() };
}

function facts(app, r, t) {
  const p = r.process || {}, list = [[say`began`, `${clock(t, 1)} (${ago(t)})`], [say`status`, h("span", { class: failed(r) ? "bad" : "" }, status(r))], [r.side === "served" ? say`client` : say`from`, name(r.side === "served" ? `${r.peer_addr}:${r.peer_port}` : `${r.addr}:${r.port}`, "mono")],
    [say`process`, [name(p.comm || "–"), p.pid ? ` ${p.pid}` : ""]], [say`on its connection`, say`number ${count(r.seq)}`], [say`received`, bytes(r.bytes_in)], [say`sent`, bytes(r.bytes_out)], [say`round trip`, micros(r.rtt_us)], [say`smallest round trip`, micros(r.min_rtt_us)], [say`retransmitted`, plural(r.retrans || 0, "segment")]];
  const owner = (w) => name([pod(w), `${w.kind} ${w.name}`, w.node].filter(Boolean).join(", "));
  if (p.workload) list.push([say`pod`, owner(p.workload)]);
  if (r.peer_workload) list.push([say`other end`, owner(r.peer_workload)]);
  if (p.container || p.container_name) list.push([say`container`, name(p.container_name || p.container)]);
  if (r.trace_id) list.push([say`trace`, h("a", { class: "mono", href: app.address({ view: "requests", trace: r.trace_id, from: t - 60, to: t + r.total_us / 1e6 + 60, last: null }) }, clean(r.trace_id, 32))]);
  const opened = r.connection_us;
  if (opened?.dns > 0) list.push([say`name lookup before`, micros(opened.dns)]);
  if (opened?.connect > 0) list.push([say`connect before`, micros(opened.connect)], [say`open and idle before`, micros(opened.idle)]);
  if (p.unit) list.push([say`unit`, name(p.unit)]);
  if (r.weight > 1) list.push([say`stands for`, say`${count(r.weight)} requests (sampled)`]);
  if (r.requests > 1) list.push([say`overlapped`, say`${count(r.requests)} requests`]);
  return list;
}
