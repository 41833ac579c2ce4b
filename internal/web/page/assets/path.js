// The path of a request through this host: client → proxy → application → database,
// each step with its own parts, where the server could join their records.

import { h, s, name, clean, tells } from "./dom.js";
import { micros, percent, plural, ticks } from "./figure.js";
import { shares } from "./parts.js";
import { about, pod } from "./endpoints.js";
import { began } from "./requests.js";

const process = (r) => pod(r.process?.workload) || r.process?.container_name || r.process?.comm || "unknown";
const answers = (hop) => hop.served ? process(hop.served) : pod(hop.called.peer_workload) || `${clean(hop.called.peer_addr, 60)}:${hop.called.peer_port}`;
const asks = (hop) => hop.called ? process(hop.called) : pod(hop.served.peer_workload) || clean(hop.served.peer_addr, 60);

// steps are the hops with where they begin and how long they took, in µs from the
// beginning of the first. Who answered knows most of it: where the record of that end
// is there, its parts are shown.
export function steps(hops) {
  const first = Math.min(...hops.map((x) => Math.min(...[x.called, x.served].filter(Boolean).map(began))));
  return hops.map((hop) => {
    const r = hop.served || hop.called, from = (began(r) - first) * 1e6, outer = hop.called || r;
    return { hop, r, who: answers(hop), port: hop.served ? r.port : r.peer_port, from, us: r.total_us, outerFrom: (began(outer) - first) * 1e6, outerUs: outer.total_us };
  });
}

export const length = (hops) => Math.max(...steps(hops).map((x) => Math.max(x.from + x.us, x.outerFrom + x.outerUs)));

// route is the path in words; several calls of one service are one word. brief leaves
// out a client of another host, which has a column of its own.
export function route(hops, brief = false) {
  const list = brief && !hops[0].called ? [] : [{ who: asks(hops[0]), n: 1 }];
  for (const hop of hops) {
    const who = answers(hop), same = list.find((x) => x.hop && x.who === who);
    if (same) same.n++; else list.push({ who, n: 1, hop });
  }
  return h("span", { class: "route" }, list.map((x, i) => [i ? h("span", { class: "soft" }, " → ") : null, h("span", { class: "stop" }, name(x.who, x.hop === hops[0] ? "strong" : ""), x.n > 1 ? h("small", {}, ` ×${x.n}`) : null)]));
}

// own is the time of a step that its own calls do not account for.
function own(list, i) {
  let us = list[i].us;
  for (let k = i + 1; k < list.length && list[k].hop.depth > list[i].hop.depth; k++) if (list[k].hop.depth === list[i].hop.depth + 1) us -= list[k].outerUs;
  return us;
}

// most is the service that took most of the time itself, its share, and its greatest part.
function most(hops) {
  const list = steps(hops), by = new Map();
  list.forEach((x, i) => {
    const have = by.get(x.who) || { who: x.who, us: 0, most: 0, r: x.r }, mine = own(list, i);
    by.set(x.who, { who: x.who, us: have.us + mine, most: Math.max(have.most, mine), r: mine > have.most ? x.r : have.r });
  });
  const x = [...by.values()].sort((a, b) => b.us - a.us)[0], part = shares(x.r.ledger_us, true).filter((p) => p.part.key !== "server.call").sort((a, b) => b.us - a.us)[0];
  return { who: x.who, us: x.us, share: percent(Math.min(1, x.us / (list[0].us || 1))), part: part && `${part.part.name} ${micros(part.us)}` };
}

export function where(hops) {
  const x = most(hops);
  return `${x.who} ${x.share}${x.part ? `, ${x.part}` : ""}`;
}

export function summary(hops) {
  const x = most(hops);
  return `${x.share} of it, ${micros(x.us)}, is spent at ${x.who}${x.part ? `: ${x.part}` : ""}.`;
}

// draw puts the parts of a step into an svg of 1000 units for `end` µs.
function draw(svg, x, end, y, high) {
  const scale = 1000 / end;
  if (x.hop.called && x.hop.served) svg.append(s("rect", { class: "wire", x: x.outerFrom * scale, y: y + high / 2 - 0.5, width: Math.max(0.6, x.outerUs * scale), height: 1 }));
  let at = x.from;
  for (const p of shares(x.r.ledger_us, true)) {
    svg.append(s("rect", { x: (at * scale).toFixed(2), y, width: Math.max(0.6, p.us * scale).toFixed(2), height: high, fill: p.part.hatch ? "url(#hatch)" : p.part.color }));
    at += p.us;
  }
}

const ROWS = 6; // steps that a line of a table has room for

// mini is the waterfall for a line of a table.
export function mini(hops, end) {
  const list = steps(hops).slice(0, ROWS);
  const svg = s("svg", { class: "mini path", viewBox: `0 0 1000 ${list.length * 9 - 2}`, preserveAspectRatio: "none", role: "img", css: { height: `${list.length * 9 - 2}px` }, "aria-label": list.map((x) => `${x.who} ${micros(x.us)}`).join(", ") });
  list.forEach((x, i) => draw(svg, x, end, i * 9, 7));
  return tells(svg, () => list.map((x) => h("div", { class: "hop" }, h("b", {}, `${x.who} `), micros(x.us), h("span", { class: "soft" }, ` after ${micros(Math.max(0, x.from))}`))));
}

// waterfall is the path with a line for each step, which lead to their requests.
export function waterfall(app, hops, id) {
  const list = steps(hops), end = length(hops) || 1, marks = ticks(0, end, 5).filter((t) => t <= end * 0.97);
  return h("div", { class: "waterfall path", role: "table", "aria-label": "The path of the request through this host" },
    h("div", { class: "wf-row head", role: "row" }, h("span", { role: "columnheader" }, "Answered by"), h("span", { role: "columnheader", class: "n" }, "Took"), h("span", { role: "columnheader", class: "n" }, "Itself"), h("div", { role: "columnheader", class: "wf-bar", "aria-label": "When" },
      h("div", { class: "wf-scale", "aria-hidden": "true" }, marks.map((t) => h("span", { css: { left: `${t / end * 100}%` } }, micros(t)))))),
    list.map((x, i) => {
      const bar = s("svg", { class: "wf-svg", viewBox: "0 0 1000 18", preserveAspectRatio: "none", "aria-hidden": "true" }, marks.map((t) => s("line", { class: "grid", x1: t / end * 1000, x2: t / end * 1000, y1: 0, y2: 18 })));
      draw(bar, x, end, 3, 12);
      const ends = [x.hop.served, x.hop.called].filter(Boolean), here = ends.some((r) => r.id === id);
      return h("div", { class: `wf-row hop ${here ? "here" : ""}`, role: "row", data: { hop: String(x.hop.depth) } },
        h("span", { role: "cell", class: "wf-name", css: { "padding-left": `${x.hop.depth * 14}px` } }, h("a", { href: app.address({ view: "request", id: x.r.id }), "aria-current": here ? "true" : undefined, "data-key": x.r.id }, name(x.hop.served ? x.who : x.r.peer_addr)), h("span", { class: "soft mono" }, ` :${x.port}`)),
        h("b", { role: "cell", class: "n" }, micros(x.us)), h("span", { role: "cell", class: "n soft" }, micros(Math.max(0, own(list, i)))),
        tells(h("div", { role: "cell", class: "wf-bar" }, bar), () => about(x.r.ledger_us)),
        h("p", { class: "wf-text", role: "cell" }, x.r.label ? [name(x.r.label, "mono"), " · "] : null, shares(x.r.ledger_us, true).sort((a, b) => b.us - a.us).slice(0, 3).map((p) => `${p.part.name} ${micros(p.us)}`).join(", "),
          x.hop.served ? null : ". The other end is not on this host, or its record is not kept.",
          ends.length === 2 ? [" · ", h("a", { href: app.address({ view: "request", id: x.hop.called.id }), "data-key": x.hop.called.id }, "as its caller saw it")] : null));
    }));
}

export const note = (hops) => `${plural(hops.length, "step")}. Only what certainly belongs to this request is joined.`;
