// The list of endpoints: which there are, and how they do.

import { say } from "./language.js";
import { h, s, name, steady, empty, tells, clean } from "./dom.js";
import { count, micros, rate, percent } from "./figure.js";
import { clock } from "./clock.js";
import { shares, part } from "./parts.js";
import { spark } from "./chart.js";
import { query } from "./api.js";

const MOST = 200; // that are listed

export const place = (e) => `${String(e.addr).includes(":") ? `[${clean(e.addr, 60)}]` : clean(e.addr, 60)}:${e.port}`;
// pod is what kubectl calls a workload, empty where that is not known.
export const pod = (w) => w ? clean(`${w.namespace}/${w.pod || w.name}`, 120) : "";
export const who = (e) => pod(e.process?.workload) || e.process?.container_name || e.process?.name || e.process?.unit?.replace(/\.service$/, "") || e.process?.comm || say`unknown`;
export const weight = (e) => (e.requests || 0) * mean(e);

// mean is the mean total of an endpoint's requests in µs, from its ledger.
export function mean(e) {
  let sum = 0;
  for (const [k, v] of Object.entries(e.ledger_us || {})) if (!k.includes(".") && k !== "ack_delay") sum += v.mean || 0;
  return sum || e.total_us?.p50 || 0;
}

// latest is when an endpoint had its last request: it may be known to ten seconds only,
// and is not after the last second of the history.
export const latest = (e, app) => Math.min(e.last, app.status?.span?.to ?? e.last);

// pace is requests per second of the time in which there were any: over all of the
// time that is shown it would fall from look to look once they have stopped.
export const pace = (e, app) => e.last > e.first ? e.requests / Math.max(1, latest(e, app) - Math.max(e.first, app.status?.span?.from ?? 0, app.range.from)) : e.rps;

const QUIET = 15; // s without a request, from which it is said
export const idle = (e, app) => app.range.live && e.last > 0 && app.range.to - e.last > Math.max(QUIET, (app.range.to - app.range.from) / 60);

// first is the endpoint shown when none is chosen: served, with most time, or
// with some and a grave finding; of a path through this host the one that is asked from
// elsewhere.
export function first(list, findings) {
  const share = new Map();
  for (const f of findings || []) if (f.key && f.role !== "consequence") share.set(f.key, Math.max(share.get(f.key) || 0, f.share || 0));
  const inner = new Set(list.filter((e) => e.side === "called").map((e) => `${e.netns} ${e.addr} ${e.port}`));
  const score = (e) => (e.side !== "served" ? 1e-6 : inner.has(`${e.netns} ${e.addr} ${e.port}`) ? 0.1 : 1) * weight(e) * (1 + 4 * (share.get(e.key) || 0));
  return list.slice().sort((a, b) => score(b) - score(a) || (a.key < b.key ? -1 : 1))[0];
}

// strip is a ledger as one bar.
export function strip(ledger, cls = "strip") {
  const list = shares(ledger), sum = list.reduce((a, x) => a + x.us, 0);
  const bar = s("svg", { class: cls, viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": list.map((x) => `${x.part.name} ${percent(x.us / sum)}`).join(", ") });
  let at = 0;
  for (const x of list) {
    const w = x.us / sum * 100;
    bar.append(s("rect", { x: at, y: 0, width: Math.max(0.1, w), height: 6, fill: x.part.color }));
    at += w;
  }
  return bar;
}

export const ledgerOf = (e) => Object.fromEntries(Object.entries(e.ledger_us || {}).map(([k, v]) => [k, v.mean || 0]));

// about is what a bar shows, in words.
export function about(ledger) {
  const list = shares(ledger, true), sum = list.reduce((a, x) => a + x.us, 0);
  return [h("b", {}, say`Time breakdown`), h("table", { class: "plain" }, list.map((x) => h("tr", {}, h("td", {}, h("i", { class: "dot", css: { background: x.part.color } }), x.part.name), h("td", { class: "n" }, micros(x.us)), h("td", { class: "n" }, percent(x.us / sum)))))];
}

export class Endpoints {
  constructor(app) {
    this.app = app;
    this.find = h("input", { type: "search", placeholder: say`Filter endpoints`, "aria-label": say`Filter endpoints`, "data-search": "1", autocomplete: "off", spellcheck: "false", on: { input: () => this.draw() } });
    this.sort = h("select", { "aria-label": say`Order of endpoints`, on: { change: () => this.draw() } },
      [["time", say`by time`], ["p99", say`by p99`], ["rps", say`by rate`], ["errors", say`by errors`], ["name", say`by name`]].map(([v, t]) => h("option", { value: v }, t)));
    this.list = h("ul", { class: "endpoints", on: { keydown: (e) => this.key(e) } });
    this.element = h("aside", { class: "side", "aria-label": say`Endpoints` }, h("div", { class: "filter" }, this.find, this.sort), this.list);
  }

  set(endpoints, sparks, chosen, findings) {
    Object.assign(this, { endpoints, sparks, chosen, findings });
    this.draw();
  }

  // stop makes one of the endpoints the only one that Tab comes to: there may be hundreds
  // before the first chart.
  stop(at) {
    const all = [...this.list.querySelectorAll("a.endpoint")];
    at ??= all.find((a) => a === document.activeElement) || all.find((a) => a.getAttribute("aria-current")) || all[0];
    for (const a of all) a.tabIndex = a === at ? 0 : -1;
  }

  key(e) {
    const all = [...this.list.querySelectorAll("a.endpoint")], was = all.indexOf(document.activeElement), go = { ArrowUp: -1, ArrowDown: 1, Home: -all.length, End: all.length }[e.key];
    if (go === undefined || was < 0 || e.ctrlKey || e.altKey || e.metaKey || e.shiftKey) return;
    const to = all[Math.min(all.length - 1, Math.max(0, was + go))];
    this.stop(to);
    to.focus();
    e.preventDefault();
    e.stopPropagation();
  }

  draw() {
    const text = this.find.value.toLowerCase(), by = { time: (e) => -weight(e), p99: (e) => -(e.total_us?.p99 || 0), rps: (e) => -(pace(e, this.app) || 0), errors: (e) => -(e.errors || 0) }[this.sort.value];
    const list = (this.endpoints || []).filter((e) => !text || `${e.side} ${e.process?.comm || ""} ${who(e)} ${place(e)}`.toLowerCase().includes(text));
    list.sort(by ? (a, b) => by(a) - by(b) || (a.key < b.key ? -1 : 1) : (a, b) => who(a).localeCompare(who(b)) || a.port - b.port);
    if (!list.length) {
      steady(this.list, h("li", {}, text ? empty(say`No endpoint is called so.`, say`Shorten what is searched for.`) : h("p", { class: "soft more" }, say`No endpoint in this time.`)));
      return;
    }
    steady(this.list, list.slice(0, MOST).map((e) => h("li", {}, this.item(e))), list.length > MOST ? h("li", { class: "soft more" }, say`${count(list.length - MOST)} more: filter to see them.`) : null,
      h("li", { class: "soft more" }, h("a", { href: query("api/endpoints", { from: this.app.range.from, to: this.app.range.to, format: "csv" }), download: "" }, say`Save this list (CSV)`)));
    this.stop();
  }

  item(e) {
    const chosen = e.key === this.chosen, found = (this.findings || []).filter((f) => f.key === e.key && f.role !== "consequence").length, line = this.sparks?.get(e.key);
    const ledger = ledgerOf(e), bar = strip(ledger);
    const row = h("a", { class: "endpoint", href: this.app.address({ ep: e.key }), "data-key": e.key, "aria-current": chosen ? "true" : undefined },
      h("span", { class: "line" }, h("span", { class: `way ${e.side}`, title: e.side === "served" ? say`requests answered on this host` : say`requests sent from this host` }, e.side === "served" ? say`served` : say`called`),
        name(who(e), "strong"), found ? h("span", { class: "badge", title: say`findings on this endpoint` }, count(found)) : null, h("span", { class: "grow" }), line ? spark(line) : null),
      h("span", { class: "line soft" }, h("bdi", { class: "name mono" }, place(e)), h("span", { class: "grow" }), idle(e, this.app) ? h("span", { title: say`no request since then` }, say`until ${clock(latest(e, this.app))}`) : h("span", {}, `${rate(pace(e, this.app))}/s`), e.errors > 0 ? h("span", { class: "bad" }, say`${count(e.errors)} errors`) : null),
      h("span", { class: "line figures" }, h("span", {}, "p50 ", h("b", {}, micros(e.total_us?.p50))), h("span", {}, "p99 ", h("b", {}, micros(e.total_us?.p99))), h("span", {}, say`server `, h("b", {}, micros(e.server_us?.p99)))),
      bar);
    tells(bar, () => about(ledger));
    return row;
  }
}

// most is the part that takes most, in words.
export function most(ledger) {
  const list = shares(ledger, true).sort((a, b) => b.us - a.us), sum = list.reduce((a, x) => a + x.us, 0);
  return list.length ? `${part(list[0].part.key).name} ${percent(list[0].us / sum)}` : "";
}
