// The time line: the charts of an endpoint, with findings on them, and what was
// different in a range that is selected.

import { say } from "./language.js";
import { h, fill, steady, name, empty, quiet, choice } from "./dom.js";
import { micros, rate, permille, count } from "./figure.js";
import { clock } from "./clock.js";
import { Link, Chart } from "./chart.js";
import { Heat, bars } from "./heat.js";
import { parts, serverParts } from "./parts.js";
import { Endpoints, first, place, who, mean, pace, idle, latest } from "./endpoints.js";
import { Lane, bands, strip, verdict as judged, keyOf } from "./findings.js";
import { Difference } from "./difference.js";
import { reach } from "./reach.js";
import { rows, unlabelled } from "./requests.js";

const blue = "#3f6fd1", ink = "var(--line-total)";

export default function timeline(app) {
  const link = new Link((sel) => app.go({ sel }, true), (sel) => {
    if (sel) return app.go({ from: sel[0], to: sel[1], last: null, sel: null });
    const { from, to } = app.range, half = (to - from) / 2;
    app.go({ from: from - half, to: to + half, last: null, sel: null });
  });
  const charts = {
    time: new Chart(link, { title: say`Response time`, height: 190, format: micros, series: [
      { key: "p99_us", name: "p99", color: ink, cls: "total" }, { key: "p50_us", name: "p50", color: ink, dash: "4 3" },
      { key: "server_p99_us", name: say`server p99`, color: blue }, { key: "server_p50_us", name: say`server p50`, color: blue, dash: "4 3" }] }),
    ledger: new Chart(link, { title: say`Time breakdown`, note: say`mean of each request`, height: 170, format: micros, stack: true, series: parts.map((p) => ({ ...p })) }),
    rps: new Chart(link, { title: say`Requests`, note: say`per second`, height: 130, format: rate, series: [{ key: "rps", name: say`requests`, color: "#5a7a96", area: true }, { key: "errors", name: say`errors`, color: "#cf3b36" }] }),
    net: new Chart(link, { title: say`Network`, height: 130, format: micros, series: [{ key: "network_us", name: say`network`, color: "#2f8a45" }, { key: "rtt_us", name: say`round trip`, color: "#a87b00", dash: "4 3" }] }),
    loss: new Chart(link, { title: say`Loss`, note: say`segments retransmitted`, height: 130, format: permille, series: [{ key: "loss_permille", name: say`lost`, color: "#cf3b36", area: true }] }),
  };
  charts.loss.nothing = say`nothing was sent`;
  const heat = new Heat(link, 130), lane = new Lane(link, (f) => app.go({ view: "findings", cause: keyOf(f).slice(0, 200) }));
  const endpoints = new Endpoints(app), verdict = h("div", { class: "verdict" }), title = h("div", { class: "title" });
  const difference = new Difference(app, (sel) => link.zoom(sel)), slow = h("section", { class: "slow" }), histogram = h("div", {});
  let split = true, log = false, shown = null;
  const center = h("div", { class: "center" }, title, lane.element, charts.time.element, charts.ledger.element,
    h("div", { class: "pair" }, charts.rps.element, charts.net.element, charts.loss.element, heat.element), slow, histogram);
  const element = h("div", { class: "timeline" }, verdict, endpoints.element, center, difference.element); // what is wrong comes first
  knobs();

  function knobs() {
    fill(charts.time.tools, choice(say`Scale`, [["lin", say`linear`], ["log", say`log`]], log ? "log" : "lin", (v) => { log = charts.time.log = v === "log"; knobs(); charts.time.draw(); }));
    fill(charts.ledger.tools, choice(say`Server time`, [["one", say`parts`], ["split", say`server split`]], split ? "split" : "one", (v) => { split = v === "split"; knobs(); if (shown) ledger(shown); }));
  }

  function ledger(d) {
    const parted = split && serverParts.some((x) => d.series.ledger_us?.[x.key]?.some((v) => v > 0));
    charts.ledger.series = parts.flatMap((p) => parted && p.key === "server" ? [...serverParts, { ...p, name: say`server (rest)` }] : [p]).map((p) => ({ ...p }));
    const values = { ...d.series.ledger_us };
    if (parted && values.server) {
      values.server = values.server.map((v, i) => {
        if (v === null) return v;
        let rest = v;
        for (const x of serverParts) rest -= values[x.key]?.[i] || 0;
        return rest > v * 0.01 ? rest : 0;
      });
    }
    charts.ledger.set({ ...d.frame, values });
  }

  async function load(range, signal) {
    const { from, to } = range, at = { from, to };
    // A cursor on the last look's charts stays. What the list needs comes first: it says which endpoint is shown.
    const [list, found, lines] = await Promise.all([app.ask("api/endpoints", at, signal), app.ask("api/findings", at, signal), app.ask("api/series", { ...at, points: 40, ledger: 0 }, signal)]);
    const known = list.endpoints || [], chosen = known.find((e) => e.key === app.route.ep) || !app.route.ep && first(known, found.findings);
    app.losses.set("endpoints", list.losses);
    app.losses.set("findings", found.losses);
    endpoints.set(known, new Map((lines.series || []).map((x) => [x.key, x.p99_us?.some((v) => v > 0) ? x.p99_us : x.rps || []])), chosen?.key, found.findings);
    link.selection = app.route.sel;
    steady(verdict, judged(found, known, app), strip(found, app));
    center.classList.toggle("none", !chosen);
    if (!chosen) {
      lane.set({ from, to, list: found.findings });
      steady(title, known.length || app.route.ep ? empty(say`This endpoint had no request in this time.`, say`Choose another one, or a longer time.`) : quiet(app));
      return difference.load(range, null, null, signal);
    }
    const ep = chosen.key, q = { ...at, ep };
    const [series, histo, slowest] = await Promise.all([app.ask("api/series", { ...q, points: 300 }, signal), app.ask("api/histogram", q, signal),
      app.ask("api/requests", { ...q, ...(app.route.sel ? { from: app.route.sel[0], to: app.route.sel[1] } : {}), sort: "slow", limit: 8, side: ep.startsWith("called|") ? "called" : "served", paths: 1 }, signal)]);
    app.losses.set("series", series.losses);
    app.losses.set("requests", slowest.losses);
    head(chosen);
    const one = (series.series || []).find((x) => x.key === ep) || (series.series || [])[0] || {};
    const all = bands(found.findings, to), step = series.step || 1, t = series.t || [], reached = all.map((f) => reach(f, { t, step, lists: [one.p99_us, one.p50_us, one.network_us, one.loss_permille] }, all));
    const frame = { from, to, step, t, findings: reached.map((f) => ({ ...f, far: f.key && f.key !== ep })) };
    lane.set({ from, to, list: found.findings, reached: new Map(reached.map((f) => [f.id, f])) });
    shown = { series: one, frame };
    for (const k of ["time", "rps", "net", "loss"]) charts[k].set({ ...frame, values: one });
    ledger(shown);
    const ht = histo.heat?.t || [];
    heat.set({ ...frame, heat: histo.heat, heatStep: histo.heat?.step || (ht.length > 1 ? ht[1] - ht[0] : step) });
    link.mark(app.route.sel);
    steady(slow, h("div", { class: "bar" }, h("h2", {}, say`Slowest requests`), h("small", { class: "soft" }, app.route.sel ? say`in the selected range` : say`in this time`), h("span", { class: "grow" }), h("a", { class: "act", href: app.address({ view: "requests", ep, ...(app.route.sel ? { from: app.route.sel[0], to: app.route.sel[1], sel: null, last: null } : {}) }) }, say`All requests`)),
      rows(app, slowest.requests, { brief: true }), unlabelled(slowest.requests));
    fill(histogram, bars(histo.buckets));
    await difference.load(range, app.route.sel, ep, signal);
  }

  function head(e) {
    const p = e.process || {};
    steady(title, h("h1", {}, h("span", { class: `way ${e.side}` }, e.side === "served" ? say`served` : say`called`), name(who(e)), h("bdi", { class: "name mono soft" }, place(e))),
      h("p", { class: "soft where" }, [e.side === "served" ? say`requests answered here` : say`requests sent from here`, p.comm && p.comm !== who(e) ? name(p.comm) : null, p.pid ? `pid ${p.pid}` : null, p.container_name || p.container ? name(say`container ${p.container_name || p.name || p.container}`) : null, p.unit ? name(p.unit) : null, idle(e, app) ? h("b", {}, say`no request since ${clock(latest(e, app))}`) : null].filter(Boolean).flatMap((x, i) => i ? [" · ", x] : [x])),
      h("dl", { class: "facts" }, [[say`requests`, count(e.requests)], [say`per second`, rate(pace(e, app))], [say`errors`, count(e.errors), e.errors > 0 ? "bad" : ""], [say`mean`, micros(mean(e))], ["p50", micros(e.total_us?.p50)], ["p99", micros(e.total_us?.p99)], [say`slowest`, micros(e.total_us?.max)], [say`server p99`, micros(e.server_us?.p99)], [say`round trip`, micros(e.rtt_us)], [say`loss`, permille(e.loss_permille)]]
        .map(([k, v, cls = ""]) => h("div", { class: cls }, h("dt", {}, k), h("dd", {}, v)))));
  }

  return { element, load, end: () => link.charts.forEach((c) => c.end()) };
}

