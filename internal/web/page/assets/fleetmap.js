// The service map: who calls whom, how often, how long it takes, and what is abnormal.

import { say } from "./language.js";
import { h, s, name, clean, steady, fill, tells } from "./dom.js";
import { count, micros, rate, percent, plural } from "./figure.js";
import { layers } from "./layout.js";
import { menu, saveSVG, savePNG, saveCSV } from "./export.js";

const HIGH = 62, WIDE = 178, LABELS = 40; // px; links up to which each is labelled

const kinds = { service: "", caller: say`calls only`, address: say`address, not recorded` };

// serviceMap draws data.map; choose is called with the node's ID that was chosen, or null.
export function serviceMap(choose) {
  const graph = h("div", { class: "graph", tabindex: "0", role: "region", "aria-label": say`Service map, can be scrolled` }), note = h("p", { class: "soft" }), about = h("div", { class: "about", "aria-live": "polite" });
  const head = h("div", { class: "bar" }, h("h2", { tabindex: "-1" }, say`Who calls whom`), h("span", { class: "grow" }), menu(say`the map`, [[say`Picture (PNG)`, () => savePNG(graph.querySelector("svg"), say`service map`)], [say`Drawing (SVG)`, () => saveSVG(graph.querySelector("svg"), say`service map`)],
    [say`Table (CSV)`, () => saveCSV(["from", "to", "hosts", "abnormal", "rps", "errors_per_s", "mean_us", "p50_us", "p99_us", "worst_p99_us", "worst_host", "wire_share", "joined"], shown.links.map((l) => [titles.get(l.from), titles.get(l.to), l.hosts, l.abnormal, l.rps, l.errors, l.mean_us, l.p50_us, l.p99_us, l.worst_p99_us, l.worst_host, l.wire_share, l.joined]), "service-map")]]));
  const element = h("section", { id: "map", "aria-label": say`Service map` }, head, graph, note, about);
  let shown = { nodes: [], links: [] }, titles = new Map(), chosen = null, causes = [], wide = 0, looked = null;
  new ResizeObserver(() => { if (graph.clientWidth !== wide) { wide = graph.clientWidth; draw(); } }).observe(graph);

  function show(map, told, choice) {
    shown = map;
    causes = told;
    titles = new Map(map.nodes.map((n) => [n.id, n.title]));
    chosen = titles.has(choice) ? choice : null;
    draw();
  }

  function draw() {
    const { nodes, links } = shown, by = new Map(nodes.map((n) => [n.id, n]));
    graph.hidden = !nodes.length;
    if (!nodes.length) {
      fill(about);
      return fill(note, say`No service was seen to answer or to call in this time.`);
    }
    const left = picture(nodes, links, by) + (shown.left_out || 0);
    fill(note, left ? say`Not drawn: ${plural(left, "program")} with fewer requests. ` : "", say`A line is as wide as there are calls. Rates and p99 are of all requests of all hosts; after ▲, how long it took when it was abnormal.`);
    if (chosen) tell(by.get(chosen), links, by); else fill(about, h("span", { class: "soft" }, say`Choose a program to see who calls it, and whom it calls.`));
  }

  function picture(nodes, links, by) {
    // What is abnormal is drawn before what is merely busy.
    const l = layers(nodes, links.map((e) => ({ ...e, seconds: e.rps + (e.abnormal ? 1e9 : 0) }))), upright = graph.clientWidth < 640, gapX = upright ? 14 : 150, gapY = upright ? 58 : 22;
    const reach = Math.max(...[...l.place.values()].map(Math.abs), 0.5), most = (reach + 0.5) * 2, along = l.rows.length;
    const across = upright ? most * (WIDE + gapX) + 16 : along * WIDE + (along - 1) * gapX + 20, tall = upright ? along * HIGH + (along - 1) * gapY + 20 : most * (HIGH + gapY) + 12;
    const at = new Map();
    l.rows.forEach((r, i) => r.forEach((id) => {
      const mid = l.place.get(id);
      at.set(id, upright ? { x: across / 2 + mid * (WIDE + gapX) - WIDE / 2, y: 10 + i * (HIGH + gapY) } : { x: 10 + i * (WIDE + gapX), y: tall / 2 + mid * (HIGH + gapY) - HIGH / 2 });
    }));
    const ins = new Map(), outs = new Map();
    for (const e of l.edges) {
      ins.set(e.to, (ins.get(e.to) || 0) + 1);
      outs.set(e.from, (outs.get(e.from) || 0) + 1);
    }
    const top = Math.max(...l.edges.map((e) => e.rps)) || 1;
    const labels = []; // on top of all lines
    const lines = l.edges.map((e) => {
      const a = at.get(e.from), b = at.get(e.to), back = l.back.has(e), w = 1.2 + 5 * Math.sqrt(e.rps / top);
      const [x1, y1, x2, y2] = upright ? [a.x + WIDE / 2, a.y + HIGH, b.x + WIDE / 2, b.y - 5] : [a.x + WIDE, a.y + HIGH / 2, b.x - 5, b.y + HIGH / 2];
      const passed = (l.via.get(e) || []).map((id) => at.get(id)).flatMap((p) => upright ? [[p.x + WIDE / 2, p.y], [p.x + WIDE / 2, p.y + HIGH]] : [[p.x, p.y + HIGH / 2], [p.x + WIDE, p.y + HIGH / 2]]);
      const d = !back ? curve([[x1, y1], ...passed, [x2, y2]], upright) : upright ? `M${a.x} ${a.y + HIGH / 2}C${a.x - 50} ${a.y},${b.x - 50} ${b.y + HIGH},${b.x - 4} ${b.y + HIGH / 2}`
        : `M${a.x + WIDE / 2} ${a.y + HIGH}C${a.x + WIDE / 2} ${a.y + HIGH + 44},${b.x + WIDE / 2} ${b.y + HIGH + 44},${b.x + WIDE / 2} ${b.y + HIGH + 5}`;
      // Its label stands where fewer lines meet: before what is called, or behind who calls.
      const [lx, ly] = passed[0] || [x2, y2], on = chosen && (e.from === chosen || e.to === chosen), late = !passed.length && ins.get(e.to) === 1, early = outs.get(e.from) === 1;
      const [tx, ty] = upright ? late ? [x2, y2 - 12] : early ? [x1, y1 + 16] : [(x1 + lx) / 2, (y1 + ly) / 2] : late ? [x2 - 58, y2 - 5 - w / 2] : early ? [x1 + 62, y1 - 5 - w / 2] : [(x1 + lx) / 2, (y1 + ly) / 2 - 5 - w / 2];
      const g = s("g", { class: `wait-edge call ${e.abnormal ? "bad" : ""} ${on ? "on" : ""}` }, s("path", { d, "stroke-width": w, "marker-end": e.abnormal ? "url(#call-bad)" : "url(#call)" }));
      if (!back && (l.edges.length <= LABELS || on || e.abnormal)) labels.push(s("g", { class: `edge-label call ${e.abnormal ? "bad" : ""}` }, s("text", { x: tx, y: ty, "text-anchor": "middle" }, figures(e))));
      return tells(g, () => linkTold(e, by));
    });
    const boxes = l.rows.flat().filter((id) => by.has(id)).map((id) => {
      const n = by.get(id), p = at.get(id), title = clean(n.title, 200), fit = Math.floor((WIDE - 22) / 8.3), wrong = n.abnormal > 0;
      const line = n.kind === "service" ? figures(n) : kinds[n.kind];
      const state = wrong ? say`▲ abnormal on ${count(n.abnormal)} of ${count(n.hosts)}` : [n.hosts ? plural(n.hosts, "host") : "", n.errors > 0 ? say`${rate(n.errors)} errors/s` : ""].filter(Boolean).join(" · ");
      const g = s("g", { class: `wait-node ${n.kind === "address" ? "thing" : "actor"} ${wrong ? "abnormal" : ""} ${id === chosen ? "on" : ""}`, tabindex: "0", role: "button", "data-key": String(id), "aria-pressed": String(id === chosen), "aria-label": `${clean(title, 120)}, ${line}, ${state}`, transform: `translate(${p.x} ${p.y})` },
        s("rect", { width: WIDE, height: HIGH, rx: 8 }), s("text", { class: "title", x: 11, y: 20 }, title.length > fit ? `${title.slice(0, fit - 1)}…` : title),
        s("text", { class: "kind", x: 11, y: 37 }, line), s("text", { class: "kind state", x: 11, y: 53 }, state));
      const pick = () => choose(chosen === id ? null : id);
      g.addEventListener("click", pick);
      g.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); pick(); } });
      return tells(g, () => nodeTold(n));
    });
    const under = l.back.size ? 40 : 0, room = graph.clientWidth - 18, fit = across > room && across < room * 1.3 ? room / across : 1;
    const head = (id) => s("marker", { id, viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, s("path", { d: "M0 0 8 4 0 8z" }));
    steady(graph, s("svg", { viewBox: `0 0 ${across} ${tall + under}`, width: across * fit, height: (tall + under) * fit, role: "group", "aria-label": say`Service map` }, s("defs", {}, head("call"), head("call-bad")), lines, labels, boxes));
    // A map that is larger than its place begins at its first program that is abnormal, or else calls or is called.
    const drawn = l.rows.flat().filter((id) => by.has(id)), linked = (id) => ins.has(id) || outs.has(id);
    const first = at.get(chosen) || at.get(drawn.find((id) => by.get(id).abnormal > 0 && linked(id)) ?? drawn.find(linked) ?? drawn[0]);
    if (first && looked !== (chosen || "")) {
      looked = chosen || "";
      graph.scrollTo((first.x + WIDE / 2) * fit - graph.clientWidth / 2, (first.y + HIGH / 2) * fit - graph.clientHeight / 2);
    }
    return l.left;
  }

  // tell tells of the chosen program: in and out, with figures.
  function tell(n, links, by) {
    const list = (title, all, end) => all.length ? [h("h3", {}, title), h("div", { class: "scroll" }, h("table", { class: "plain" }, h("tbody", {}, all.slice(0, 50).map((l) => h("tr", {}, h("td", {}, name(by.get(l[end])?.title, "strong")), h("td", { class: "n" }, `${rate(l.rps)}/s`), h("td", { class: "n" }, l.errors > 0 ? say`${rate(l.errors)} errors/s` : say`no errors`), h("td", { class: "n" }, say`mean ${micros(l.mean_us)}`), h("td", { class: "n" }, `p50 ${micros(l.p50_us)}`), h("td", { class: "n" }, `p99 ${micros(l.p99_us)}`), h("td", {}, l.hosts > 1 ? say`${micros(l.worst_p99_us)} on ${name(l.worst_host)}` : ""),
      h("td", {}, l.wire_share === null ? "" : say`${percent(l.wire_share)} on the wire, of ${plural(l.joined, "request")}`), h("td", {}, l.abnormal ? h("span", { class: "badge bad" }, say`abnormal on ${plural(l.abnormal, "host")}`) : ""))))))] : null;
    const part = causes.map((c, i) => [c, i]).filter(([c]) => c.programs.includes(n.title));
    steady(about, h("h2", {}, name(n.title), " ", h("small", {}, nodeFacts(n))), n.why ? h("p", { class: "soft" }, clean(n.why, 300)) : null,
      part.map(([c, i]) => h("p", {}, h("b", {}, say`Cause ${i + 1}: `), clean(c.text, 600))),
      list(say`Called by`, links.filter((l) => l.to === n.id), "from"), list(say`Calls`, links.filter((l) => l.from === n.id), "to"));
  }

  return { element, show };
}

// figures are the rate, and how long it takes: what was abnormal of it, else p99.
const figures = (x) => `${rate(x.rps)}/s · ${x.wrong?.unit === "us" ? `▲ ${micros(x.wrong.value)}` : `p99 ${micros(x.p99_us)}`}${x.errors > 0 && x.wrong?.unit === "share" ? say` · ${rate(x.errors)} errors/s` : ""}`;

const nodeFacts = (n) => [n.hosts ? say`on ${plural(n.hosts, "host")}` : "", n.ports.length ? say`port ${n.ports.slice(0, 8).join(", ")}${n.ports.length > 8 ? say` and ${n.ports.length - 8} more` : ""}` : "", kinds[n.kind]].filter(Boolean).join(", ");

const nodeTold = (n) => [h("b", {}, clean(n.title, 120)), h("div", { class: "soft" }, nodeFacts(n)), n.kind === "caller" ? null : h("div", {}, say`${rate(n.rps)} requests/s, ${n.errors > 0 ? say`${rate(n.errors)} errors/s` : say`no errors`}, mean ${micros(n.mean_us)}, p50 ${micros(n.p50_us)}, p99 ${micros(n.p99_us)}; p99 ${micros(n.worst_p99_us)} on ${clean(n.worst_host, 60)}`), n.abnormal ? h("div", { class: "bad" }, say`abnormal on ${count(n.abnormal)} of its hosts; ${clean(n.wrong.text, 300)}`) : null];

const linkTold = (e, by) => [h("b", {}, `${clean(by.get(e.from)?.title, 60)} → ${clean(by.get(e.to)?.title, 60)}`), h("div", {}, say`${rate(e.rps)} calls/s from ${plural(e.hosts, "host")}, ${e.errors > 0 ? say`${rate(e.errors)} errors/s` : say`no errors`}`), h("div", {}, say`mean ${micros(e.mean_us)}, p50 ${micros(e.p50_us)}, p99 ${micros(e.p99_us)}; p99 ${micros(e.worst_p99_us)} on ${clean(e.worst_host, 60)}`),
  e.wire_share === null ? null : h("div", {}, say`${percent(e.wire_share)} of it on the wire (${plural(e.joined, "request")} seen at both ends)`), e.abnormal ? h("div", { class: "bad" }, say`abnormal from ${plural(e.abnormal, "host")}; ${clean(e.wrong.text, 300)}`) : null];

// curve goes through places: bent between two, straight where it passes a layer.
function curve(points, upright) {
  let d = `M${points[0].join(" ")}`;
  for (let i = 1; i < points.length; i++) {
    const [x0, y0] = points[i - 1], [x, y] = points[i], bend = upright ? Math.abs(y - y0) / 2 : Math.abs(x - x0) / 2;
    d += i % 2 === 0 ? `L${x} ${y}` : upright ? `C${x0} ${y0 + bend},${x} ${y - bend},${x} ${y}` : `C${x0 + bend} ${y0},${x - bend} ${y},${x} ${y}`;
  }
  return d;
}

