// The wait graph: who waits for whom, to the last hop.

import { say, marks } from "./language.js";
import { h, s, name, clean, steady, fill, empty, choice, tells } from "./dom.js";
import { seconds, plural } from "./figure.js";
import { cycles, layers } from "./layout.js";
import { menu, saveSVG, savePNG, saveCSV, saveJSON } from "./export.js";

const signs = { process: say`process`, thread: say`thread`, pipe: say`pipe`, unix: say`unix`, tcp: "TCP", udp: "UDP", socket: say`sock`, lock: say`lock`, "file-lock": say`file lock`, disk: say`disk`, fuse: "FUSE", kernel: say`kernel`, remote: say`remote`, child: say`child` };
const actors = new Set(["process", "thread", "remote"]);
const MANY = 14; // nodes, from which threads are drawn as their process
const DRAWN = 14; // chains
const ENDS = 4; // that stand out

export default function view(app) {
  const bar = h("div", { class: "bar" }), told = h("div", {}), graph = h("div", { class: "graph", tabindex: "0", role: "region", "aria-label": say`Wait graph, can be scrolled` }), about = h("div", { class: "about", "aria-live": "polite" }), list = h("div", {});
  const element = h("div", { class: "page wide waits" }, bar, told, graph, about, list);
  let data = null, chosen = null, detail = null;
  const seen = new ResizeObserver(() => { if (data && graph.clientWidth !== seen.wide) { seen.wide = graph.clientWidth; draw(); } });
  seen.observe(graph);

  async function load(range, signal) {
    const d = await app.ask("api/waits", { from: range.from, to: range.to }, signal);
    app.losses.set("waits", d.losses);
    if (data && JSON.stringify(d) === JSON.stringify(data)) return;
    data = d;
    draw();
  }

  function draw() {
    const all = data.nodes || [], many = all.length > MANY && shown(data, "process").nodes.length > 1, whole = detail ?? (many ? "process" : "thread"), { nodes, edges, chains: drawn } = shown(data, whole), by = new Map(nodes.map((n) => [n.id, n]));
    const stuck = (data.chains || []).filter((c) => c.deadlock || c.cycle && c.deadlock === undefined), names = new Map(all.map((n) => [n.id, n]));
    const round = data.chains ? drawn.filter((c) => c.cycle).map((c) => c.nodes) : cycles(nodes, edges), held = new Set(round.flat()), ends = endsOf(nodes, edges, held);
    const several = all.some((n) => n.kind === "thread");
    steady(bar, h("h1", {}, say`Who waits for whom`), several ? choice(say`What a box is`, [["process", say`processes`], ["thread", say`threads`]], whole, (v) => { detail = v; draw(); }) : null, h("span", { class: "grow" }), menu(say`the wait graph`, [[say`Picture (PNG)`, () => savePNG(graph.querySelector("svg"), say`wait graph`)], [say`Drawing (SVG)`, () => saveSVG(graph.querySelector("svg"), say`wait graph`)],
      [say`Table (CSV)`, () => saveCSV(["from", "to", "seconds", "how", "text"], (data.edges || []).map((e) => [names.get(e.from)?.title, names.get(e.to)?.title, e.seconds, e.how, e.text]), "waits")], [say`All of it (JSON)`, () => saveJSON(data, "waits")]]));
    graph.hidden = !nodes.length;
    if (!nodes.length) {
      fill(about);
      fill(list);
      return fill(told, empty(data.because ? clean(data.because, 300) : say`No thread was seen waiting for another in this time.`, say`Waits are sampled while requests are slow. Choose a time in which something was slow, or ask now: slowray wait PID.`));
    }
    const culprits = nodes.filter((n) => ends.has(n.id)).sort((a, b) => (ends.get(b.id) || 0) - (ends.get(a.id) || 0));
    fill(told, stuck.slice(0, 3).map((c) => h("p", { class: "alarm" }, h("b", {}, c.nodes.length > 1 ? say`They wait for each other: ` : say`It waits for itself: `), c.nodes.map((id) => label(names.get(id))).join(" → "), marks.stop, say`None of them can go on by itself.`)),
      culprits.length ? h("p", { class: "summary" }, say`At the end of the chains: `, culprits.slice(0, 3).map((n, i) => [i ? marks.comma : "", name(label(n), "strong"), ends.get(n.id) > 0 ? say` (${seconds(ends.get(n.id))} of waiting)` : ""]), marks.stop) : null);
    picture(nodes, edges, by, held, ends);
    worded(names);
    const left = (data.chains || []).length - drawn.length;
    if (left > 0) told.append(h("p", { class: "soft" }, say`Not drawn: ${plural(left, "chain")} with less time. The JSON has all.`));
    if (chosen && by.has(chosen)) tell(by.get(chosen), edges, by); else fill(about, h("span", { class: "soft" }, say`Choose a node to see what is known of it.`));
  }

  function picture(nodes, edges, by, held, ends) {
    const l = layers(nodes, edges), upright = graph.clientWidth < 640, high = 52, gapX = upright ? 12 : 62, gapY = upright ? 64 : 20;
    const twins = new Set(nodes.map((n) => n.title).filter((t, i, list) => list.indexOf(t) !== i)); // told apart by their numbers
    // A layer is as wide as its longest title needs.
    const widths = l.rows.map((r) => upright ? 146 : Math.min(196, Math.max(104, ...r.map((id) => by.has(id) ? clean(twins.has(by.get(id).title) ? label(by.get(id)) : by.get(id).title || "", 40).length * 7.8 + (actors.has(by.get(id).kind) ? 24 : 40) + (ends.has(id) ? 12 : 0) : 0))));
    const one = widths[0] || 146, lefts = widths.map((_, i) => 10 + widths.slice(0, i).reduce((a, w) => a + w + gapX, 0)), across = lefts.at(-1) + widths.at(-1) + 10, size = new Map();
    const reach = [...l.place.values()], most = (Math.max(...reach.map(Math.abs)) + 0.5) * 2, along = l.rows.length;
    const wide = upright ? most * (one + gapX) + 20 : across, tall = upright ? along * high + (along - 1) * gapY + 24 : most * (high + gapY) + 16;
    const at = new Map();
    l.rows.forEach((r, i) => r.forEach((id) => {
      const mid = l.place.get(id);
      size.set(id, widths[i]);
      at.set(id, upright ? { x: wide / 2 + mid * (one + gapX) - one / 2, y: 10 + i * (high + gapY) } : { x: lefts[i], y: tall / 2 + mid * (high + gapY) - high / 2 });
    }));
    const top = Math.max(...l.edges.map((e) => e.seconds || 0)) || 1;
    const labels = []; // on top of all lines
    const lines = l.edges.map((e) => {
      const a = at.get(e.from), b = at.get(e.to), bad = held.has(e.from) && held.has(e.to), back = l.back.has(e), w = 1.2 + 5 * Math.sqrt((e.seconds || 0) / top);
      const [x1, y1, x2, y2] = upright ? [a.x + one / 2, a.y + high, b.x + one / 2, b.y - 5] : [a.x + size.get(e.from), a.y + high / 2, b.x - 5, b.y + high / 2];
      const passed = (l.via.get(e) || []).map((id) => [at.get(id), size.get(id)]).flatMap(([p, w]) => upright ? [[p.x + w / 2, p.y], [p.x + w / 2, p.y + high]] : [[p.x, p.y + high / 2], [p.x + w, p.y + high / 2]]);
      const d = !back ? curve([[x1, y1], ...passed, [x2, y2]], upright) : upright ? `M${a.x} ${a.y + high / 2}C${a.x - 50} ${a.y},${b.x - 50} ${b.y + high},${b.x - 4} ${b.y + high / 2}`
        : `M${a.x + size.get(e.from) / 2} ${a.y + high}C${a.x + size.get(e.from) / 2} ${a.y + high + 44},${b.x + size.get(e.to) / 2} ${b.y + high + 44},${b.x + size.get(e.to) / 2} ${b.y + high + 5}`;
      const [lx, ly] = passed[0] || [x2, y2];
      const g = s("g", { class: `wait-edge ${bad ? "bad" : ""} ${chosen && (e.from === chosen || e.to === chosen) ? "on" : ""}` }, s("path", { d, "stroke-width": w, "marker-end": bad ? "url(#arrow-bad)" : "url(#arrow)" }));
      if (e.seconds > 0 && !back) labels.push(s("g", { class: "edge-label" }, s("text", { x: (x1 + lx) / 2, y: (y1 + ly) / 2 - (upright ? -4 : 7), "text-anchor": "middle" }, seconds(e.seconds))));
      return tells(g, () => [h("b", {}, `${clean(by.get(e.from)?.title, 60)} → ${clean(by.get(e.to)?.title, 60)}`), h("div", {}, clean(e.text || e.how || "", 300)), e.seconds > 0 ? h("div", {}, say`${seconds(e.seconds)} of waiting`) : null, e.how && e.text ? h("div", { class: "soft" }, say`known by: ${clean(e.how, 80)}`) : null]);
    });
    const boxes = l.rows.flat().filter((id) => by.has(id)).map((id) => {
      const n = by.get(id), p = at.get(id), one = size.get(id), end = ends.has(id), actor = actors.has(n.kind), title = clean(twins.has(n.title) ? label(n) : n.title || n.comm || id, 400), fit = Math.floor((one - (actor ? 20 : 34)) / 7.7);
      const g = s("g", { class: `wait-node ${actor ? "actor" : "thing"} ${end ? "culprit" : ""} ${held.has(id) ? "held" : ""} ${id === chosen ? "on" : ""}`, tabindex: "0", role: "button", "data-key": String(id), "aria-label": `${signs[n.kind] || clean(n.kind, 20)} ${clean(title, 120)}${end ? say`, end of the chain` : ""}${held.has(id) ? say`, in a cycle` : ""}`, transform: `translate(${p.x} ${p.y})` },
        s("rect", { width: one, height: high, rx: actor ? 7 : 22 }), s("text", { class: "kind", x: actor ? 11 : 18, y: 19 }, end && one < 150 ? "" : kindOf(n)),
        end ? s("text", { class: "kind end", x: one < 150 ? (actor ? 11 : 18) : one - (actor ? 11 : 18), y: 19, "text-anchor": one < 150 ? "start" : "end" }, say`end of the chain`) : null,
        s("text", { class: "title", x: actor ? 11 : 18, y: 38 }, title.length > fit ? `${title.slice(0, fit - 2)}…` : title));
      const choose = () => { chosen = chosen === id ? null : id; draw(); };
      g.addEventListener("click", choose);
      g.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); choose(); } });
      return tells(g, () => [h("b", {}, title), n.text || n.detail ? h("div", {}, clean(n.text || n.detail, 300)) : null, n.within > 0 ? h("div", {}, say`its threads waited for each other for ${seconds(n.within)}`) : null, n.container ? h("div", { class: "soft" }, say`container ${clean(n.container, 60)}`) : null]);
    });
    const under = l.back.size ? 40 : 0; // for lines that lead back
    const room = graph.clientWidth - 18, fit = wide > room && wide < room * 1.3 ? room / wide : 1; // a little smaller rather than cut off
    const head = (id) => s("marker", { id, viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, s("path", { d: "M0 0 8 4 0 8z" }));
    steady(graph, s("svg", { viewBox: `0 0 ${wide} ${tall + under}`, width: wide * fit, height: (tall + under) * fit, role: "group", "aria-label": say`Wait graph` }, s("defs", {}, head("arrow"), head("arrow-bad")), lines, labels, boxes));
    if (l.left) told.append(h("p", { class: "soft" }, say`${plural(l.left, "node")} with less time are left out of the drawing.`));
  }

  function tell(n, edges, by) {
    const rows = edges.filter((e) => e.from === n.id || e.to === n.id);
    fill(about, h("h2", {}, name(n.title || n.id)), h("p", { class: "soft" }, [signs[n.kind] || n.kind, n.pid ? `pid ${n.pid}` : "", n.threads > 1 ? plural(n.threads, "thread") : "", n.within > 0 ? say`its threads waited for each other for ${seconds(n.within)}` : "", n.container ? say`container ${n.container}` : ""].filter(Boolean).map((x) => clean(x, 80)).join(" · ")), n.text || n.detail ? [n.text, ...String(n.detail || "").split("\n").slice(0, 12)].filter(Boolean).map((line) => h("p", {}, name(line))) : null,
      h("ul", {}, rows.map((e) => h("li", {}, e.from === n.id ? say`waits for ${name(by.get(e.to)?.title)}` : say`${name(by.get(e.from)?.title)} waits for it`, e.seconds > 0 ? ` ${seconds(e.seconds)}` : "", e.text ? h("span", { class: "soft" }, ` · ${clean(e.text, 200)}`) : null))));
  }

  // worded tells the same in words, for who cannot see the drawing.
  function worded(by) {
    const some = (data.chains || []).slice(0, 20).sort((a, b) => (b.seconds || 0) - (a.seconds || 0)); // of those that held up slow requests most
    fill(list, some.length ? [h("h2", {}, say`Chains that held up slow requests, longest first`), h("ol", { class: "worded" }, some.map((c) => h("li", {}, h("b", {}, seconds(c.seconds)), " ", (c.nodes || []).map((id, i) => [i ? h("span", { class: "soft" }, " → ") : null, name(by.has(id) ? label(by.get(id)) : id)]), c.cycle ? h("span", { class: "badge" }, say`cycle`) : null, c.text ? h("div", { class: "soft" }, clean(c.text, 300)) : null)))] : null);
  }
  return { element, load, end: () => seen.disconnect() };
}

const kindOf = (n) => n.kind === "thread" ? say`thread` : n.kind === "process" && n.threads > 1 ? plural(n.threads, "thread") : n.kind === "process" && n.pid ? say`process ${n.pid}` : signs[n.kind] || clean(n.kind, 14);
const label = (n) => n ? `${clean(n.title, 60)}${n.kind === "thread" && n.tid ? ` ${n.tid}` : ""}` : "?";

// main is the chains that hold most of the time, and those that never end.
function main(list) {
  const sum = list.reduce((a, c) => a + (c.seconds || 0), 0);
  let seen = 0;
  return list.filter((c, i) => {
    const keep = i < 3 || i < DRAWN && seen < sum * 0.85 || c.deadlock;
    seen += c.seconds || 0;
    return keep;
  });
}

// shown is what is drawn: the chains with most time, and, of boxes that are
// processes, all threads of one as one.
function shown(data, whole) {
  const chains = main(data.chains || []), used = new Set(chains.flatMap((c) => c.nodes)), inside = data.chains ? (id) => used.has(id) : () => true;
  const steps = new Set(chains.flatMap((c) => c.nodes.flatMap((id, i) => [...(i ? [`${c.nodes[i - 1]}\n${id}`] : []), ...(c.cycle ? [`${c.nodes.at(-1)}\n${id}`] : [])])));
  const nodes = (data.nodes || []).filter((n) => inside(n.id)), edges = (data.edges || []).filter((e) => inside(e.from) && inside(e.to) && (!data.chains || steps.has(`${e.from}\n${e.to}`)));
  if (whole !== "process") return { nodes, edges: joined(edges), chains };
  const of = new Map(nodes.map((n) => [n.id, n.kind === "thread" && n.pid ? `p${n.pid}` : n.id])), kept = new Map();
  for (const n of nodes) {
    const id = of.get(n.id), have = kept.get(id);
    if (!have) kept.set(id, { ...n, id, kind: n.kind === "thread" ? "process" : n.kind, title: n.kind === "thread" ? n.comm || n.title : n.title, threads: 1 });
    else Object.assign(have, { culprit: have.culprit || n.culprit, threads: have.threads + 1, text: have.text || n.text });
  }
  const inner = joined(edges.map((e) => ({ ...e, from: of.get(e.from), to: of.get(e.to) })));
  for (const e of inner) if (e.from === e.to) kept.get(e.from).within = e.seconds;
  return { nodes: [...kept.values()], edges: inner.filter((e) => e.from !== e.to), chains: chains.map((c) => ({ ...c, nodes: [...new Set(c.nodes.map((id) => of.get(id)))] })) };
}

// curve goes through points, bending between every second pair.
function curve(points, upright) {
  let d = `M${points[0].join(" ")}`;
  for (let i = 1; i < points.length; i++) {
    const [x0, y0] = points[i - 1], [x, y] = points[i], bend = upright ? Math.abs(y - y0) / 2 : Math.abs(x - x0) / 2;
    d += i % 2 === 0 ? `L${x} ${y}` : upright ? `C${x0} ${y0 + bend},${x} ${y - bend},${x} ${y}` : `C${x0 + bend} ${y0},${x - bend} ${y},${x} ${y}`;
  }
  return d;
}

// joined puts edges between the same two nodes together: they wait there for
// several things.
function joined(list) {
  const all = new Map();
  for (const e of list) {
    if (e.from === undefined || e.to === undefined) continue;
    const key = `${e.from}\n${e.to}`, have = all.get(key);
    if (!have) { all.set(key, { ...e }); continue; }
    have.seconds = (have.seconds || 0) + (e.seconds || 0);
    if (e.text && !String(have.text).includes(e.text)) have.text = `${have.text}; ${e.text}`;
  }
  return [...all.values()];
}

// endsOf are the nodes at the end of chains with the time that comes to them.
function endsOf(nodes, edges, held) {
  const said = nodes.filter((n) => n.culprit), leaves = new Set(edges.map((e) => e.from)), list = said.length ? said : nodes.filter((n) => !leaves.has(n.id) && !held.has(n.id));
  const all = list.map((n) => [n.id, edges.filter((e) => e.to === n.id).reduce((a, e) => a + (e.seconds || 0), 0)]).sort((a, b) => b[1] - a[1]);
  return new Map(all.filter(([, s], i) => i < ENDS && s >= all[0][1] * 0.05)); // the others are ends too, of little
}
