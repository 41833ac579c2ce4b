// Requests one by one: the slowest, or as they came.

import { say, marks } from "./language.js";
import { h, s, name, clean, steady, empty, quiet, choice, tells } from "./dom.js";
import { micros, count, percent, plural } from "./figure.js";
import { moment, other } from "./clock.js";
import { shares } from "./parts.js";
import { about, pod } from "./endpoints.js";
import { query } from "./api.js";
import { menu } from "./export.js";
import { mini, length, route, where } from "./path.js";

export const began = (r) => r.start_s ?? new Date(r.start).getTime() / 1000;

// status is how a request ended, in words.
export function status(r) {
  if (r.http_status) return String(r.http_status);
  return r.status === "ok" ? "ok" : r.status === "error" ? say`error` : "–";
}
export const failed = (r) => r.status === "error" || r.http_status >= 500;

// bar is a request's ledger on a scale that the requests of a table share.
function bar(r, most) {
  const list = shares(r.ledger_us, true), overlap = (r.flags || []).includes("overlapped");
  const svg = s("svg", { class: "mini", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": list.map((x) => `${x.part.name} ${micros(x.us)}`).join(", ") });
  let at = 0;
  for (const x of list) {
    const w = x.us / most * 1000;
    svg.append(s("rect", { x: at.toFixed(2), y: 0, width: Math.max(0.6, w).toFixed(2), height: 10, fill: x.part.hatch ? "url(#hatch)" : overlap ? "#8b949e" : x.part.color }));
    at += w;
  }
  return tells(svg, () => about(r.ledger_us));
}

export function top(r) {
  const list = shares(r.ledger_us, true).sort((a, b) => b.us - a.us), sum = r.total_us || 1;
  return list.slice(0, 2).filter((x, i) => i === 0 || x.us / sum > 0.1).map((x) => `${x.part.name} ${percent(x.us / sum)}`).join(marks.comma);
}

// label is what was asked for, of the first step that tells it.
const label = (r) => r.label || r.hops?.map((x) => x.served?.label || x.called?.label).find(Boolean);

// unlabelled tells how to get URLs and statements, where none of the requests has one.
export const unlabelled = (list) => list?.length && !list.some(label) ? h("p", { class: "soft hint" }, say`No URL or statement is recorded. To keep them: ${h("code", {}, "slowray record --labels")} (not of TLS).`) : null;

// rows is the table of requests, one line for all of a path; brief leaves out what the
// place already tells.
export function rows(app, list, { brief = false } = {}) {
  if (!list?.length) return empty(say`No such request.`, brief ? say`None was stored in this time.` : say`Choose a longer time above, or ask for less: a smaller least time, any status, both sides, all endpoints.`);
  const most = Math.max(...list.map((r) => r.hops ? length(r.hops) : r.total_us)) || 1;
  const open = (r) => app.address({ view: "request", id: r.id });
  return h("table", { class: `requests ${brief ? "few" : ""}` },
    h("thead", {}, h("tr", {}, [[say`Began`], brief ? null : [say`Endpoint`], [say`Client`], [say`Status`], [say`Total`, "n"], [say`Time breakdown`]].filter(Boolean).map(([t, cls = ""]) => h("th", { scope: "col", class: cls }, t)))),
    h("tbody", {}, list.map((r) => h("tr", { data: { go: r.id }, on: { click: (e) => { if (!e.target.closest("a")) location.hash = open(r); } } },
      h("td", { class: "when" }, h("a", { href: open(r), "data-key": r.id, title: other(began(r), 1) }, moment(began(r), 1))),
      brief ? null : h("td", { class: "ep" }, h("span", { class: `way ${r.side}` }, r.side === "served" ? say`served` : say`called`), r.hops ? route(r.hops, true)
        : [name(pod(r.process?.workload) || r.process?.container_name || r.process?.comm || "?", "strong"), " ", h("bdi", { class: "mono soft name" }, r.side === "called" ? `${clean(r.peer_addr, 60)}:${r.peer_port}` : `${clean(r.addr, 60)}:${r.port}`)]),
      h("td", { class: "mono soft client" }, r.side === "called" ? `${clean(r.addr, 60)}:${r.port}` : pod(r.peer_workload) || `${clean(r.peer_addr, 60)}:${r.peer_port}`),
      h("td", { class: failed(r) ? "bad" : "" }, status(r)),
      h("td", { class: "n strong" }, micros(r.total_us), r.weight > 1 ? h("small", { class: "soft", title: say`stands for ${r.weight} requests like it` }, ` ×${count(r.weight)}`) : null),
      h("td", { class: "where" }, r.hops ? mini(r.hops, most) : bar(r, most), h("span", { class: "soft" }, label(r) ? [name(label(r), "mono label"), " · "] : null, r.hops ? where(r.hops) : top(r), r.retrans > 0 ? say` · ${r.retrans} retransmitted` : ""))))));
}

const MOST = 1000; // that the server gives at once

const least = [["", say`any time`], ["1000", say`1 ms and more`], ["10000", say`10 ms and more`], ["100000", say`100 ms and more`], ["1000000", say`1 s and more`]];

export default function view(app) {
  const bar = h("div", { class: "bar" }), list = h("div", {}), element = h("div", { class: "page wide" }, bar, list);
  let limit = 100;
  async function load(range, signal) {
    const r = app.route, q = { from: range.from, to: range.to, ep: r.ep, slow_us: r.slow, status: r.status, side: r.side, trace: r.trace, sort: r.sort || "slow" };
    const [d, known] = await Promise.all([app.ask("api/requests", { ...q, limit, paths: 1 }, signal), app.ask("api/endpoints", { from: range.from, to: range.to }, signal)]);
    app.losses.set("requests", d.losses);
    const lines = d.requests?.length || 0, total = d.total_matching ?? null, shown = Math.min(limit, total ?? limit), more = total === null ? lines > 0 : shown < total;
    const pick = (label, key, options) => {
      const e = h("select", { "aria-label": label, "data-key": key, on: { change: () => { limit = 100; app.go({ [key]: e.value || null }); } } }, options.map(([v, t]) => h("option", { value: v }, t)));
      e.value = r[key] || "";
      return e;
    };
    const eps = (known.endpoints || []).slice(0, 300).map((e) => [e.key, clean(`${e.side === "served" ? say`served` : say`called`} ${e.process?.comm || "?"} ${e.addr}:${e.port}`, 60)]);
    if (r.ep && !eps.some(([k]) => k === r.ep)) eps.push([r.ep, clean(r.ep.split("|").slice(2).join(" "), 60)]);
    steady(bar, h("h1", {}, say`Requests`), h("small", { class: "soft" }, [total === null ? d.stand_for ? plural(d.stand_for, "request") : say`more than can be counted` : d.stand_for > total ? say`${count(total)} stored, which stand for ${count(d.stand_for)}` : plural(total, "request"), more ? r.sort === "time" ? say`the latest ${count(shown)} are shown` : say`the slowest ${count(shown)} are shown` : "", lines < shown && total !== null ? say`drawn in ${plural(lines, "line")}` : ""].filter(Boolean).join(marks.comma)), h("span", { class: "grow" }),
      r.trace ? h("a", { class: "act", href: app.address({ trace: null }), title: say`All requests again` }, `${say`trace`} ${clean(r.trace, 32)} ×`) : null,
      pick(say`Endpoint`, "ep", [["", say`all endpoints`], ...eps]), pick(say`Side`, "side", [["", say`served and called`], ["served", say`served: answered here`], ["called", say`called: from here`]]), pick(say`Least time`, "slow", least), pick(say`Status`, "status", [["", say`any status`], ["ok", "ok"], ["error", say`errors`]]),
      choice(say`Order`, [["slow", say`slowest`], ["time", say`latest`]], r.sort || "slow", (v) => app.go({ sort: v === "slow" ? null : v })),
      menu(say`requests`, [[say`Table (CSV)`, query("api/requests", { ...q, limit: MOST, format: "csv" })], [say`All of it (JSON)`, query("api/requests", { ...q, limit: MOST })]]));
    steady(list, unlabelled(d.requests), !lines && !known.endpoints?.length ? quiet(app) : rows(app, d.requests), more && limit < MOST ? h("p", { class: "acts" }, h("button", { type: "button", class: "act", on: { click: () => { limit = Math.min(MOST, limit * 3); app.reload(); } } }, say`Show more`)) : null);
  }
  return { element, load };
}

