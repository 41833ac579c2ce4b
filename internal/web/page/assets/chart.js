// Charts over time, as SVG. Charts with one Link share cursor and selection.

import { say } from "./language.js";
import { h, s, fill } from "./dom.js";
import { ticks, logTicks } from "./figure.js";
import { timeTicks, clock, span } from "./clock.js";
import { menu, saveSVG, savePNG, saveCSV } from "./export.js";

export const left = 56, right = 12;

// Link is what charts side by side have in common: the moment under the cursor
// and the range that is being selected. select is called when one is chosen.
export class Link {
  constructor(select, zoom) {
    Object.assign(this, { cursor: null, selection: null, charts: [], select, zoom });
  }

  point(t) {
    if (t === this.cursor) return;
    this.cursor = t;
    for (const c of this.charts) c.point();
  }

  mark(selection) {
    this.selection = selection;
    for (const c of this.charts) c.mark();
  }
}

// Plot is the ground of anything with time from left to right: it turns
// pointer and keys into cursor and selection.
export class Plot {
  constructor(link, label, height) {
    Object.assign(this, { link, label, height, from: 0, to: 1, step: 1, wide: 600 });
    this.svg = s("svg", { "aria-hidden": "true" });
    this.box = h("div", { class: "plot", tabindex: "0", role: "slider", "aria-label": say`${label}: arrow keys move, with Shift they select, Enter looks closer, Escape leaves, S saves`, "aria-valuemin": "0", "aria-valuemax": "1" }, this.svg);
    link.charts.push(this);
    this.hand();
    this.seen = new ResizeObserver(() => {
      const wide = this.box.clientWidth || this.rows?.clientWidth;
      if (wide && wide !== this.wide) { this.wide = wide; this.draw(); }
    });
    this.seen.observe(this.box);
  }

  // saves is its menu, which S opens: a chart is one stop of Tab.
  saves(list) {
    this.menu = menu(this.label, list);
    this.menu.firstChild.tabIndex = -1;
    return this.menu;
  }

  x(t) { return left + (t - this.from) / (this.to - this.from) * (this.wide - left - right); }
  time(px) { return Math.min(this.to, Math.max(this.from, this.from + (px - left) / (this.wide - left - right) * (this.to - this.from))); }

  hand() {
    const { box, link } = this;
    let start = null;
    const at = (e) => this.time(e.clientX - box.getBoundingClientRect().left);
    box.addEventListener("pointerdown", (e) => {
      if (e.button !== 0 || e.target.closest("[data-act]")) return;
      start = { t: at(e), x: e.clientX, moved: false, before: link.selection };
      box.setPointerCapture(e.pointerId);
    });
    box.addEventListener("pointermove", (e) => {
      const t = at(e);
      link.point(t);
      if (!start || !start.moved && Math.abs(e.clientX - start.x) < 5) return;
      start.moved = true;
      box.classList.add("dragging");
      link.mark([Math.min(start.t, t), Math.max(start.t, t)]);
    });
    box.addEventListener("pointerup", () => {
      box.classList.remove("dragging");
      if (start?.moved) link.select(this.whole(link.selection));
      else if (start && link.selection) link.select(null);
      else if (start) link.point(start.t); // a touch leaves the cursor where it was
      start = null;
    });
    box.addEventListener("pointercancel", () => {
      box.classList.remove("dragging");
      if (start?.moved) link.mark(start.before);
      start = null;
    });
    box.addEventListener("pointerleave", (e) => { if (!start && e.pointerType !== "touch") link.point(null); });
    box.addEventListener("dblclick", () => link.zoom(null));
    box.addEventListener("keydown", (e) => this.key(e));
    box.addEventListener("blur", () => link.point(null));
  }

  // whole is a selection in whole steps, at least one of them.
  whole([a, b]) {
    const one = this.step;
    const low = Math.floor(a / one) * one;
    return [low, Math.max(Math.ceil(b / one) * one, low + one)];
  }

  key(e) {
    const { link } = this, go = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[e.key];
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    if (e.key.toLowerCase() === "s" && this.menu) {
      this.menu.open = true;
      this.menu.querySelector("button, a").focus();
    } else if (go !== undefined) {
      const was = link.cursor ?? (this.from + this.to) / 2;
      const t = Math.min(this.to, Math.max(this.from, was + go * Math.max(this.step, (this.to - this.from) / 150)));
      if (e.shiftKey) {
        this.anchor ??= was;
        link.mark([Math.min(this.anchor, t), Math.max(this.anchor, t)]);
        clearTimeout(this.soon);
        this.soon = setTimeout(() => { if (link.selection) link.select(this.whole(link.selection)); }, 350);
      } else {
        this.anchor = null;
      }
      link.point(t);
    } else if (e.key === "Enter" && link.selection) {
      clearTimeout(this.soon);
      link.zoom(this.whole(link.selection));
    } else if (e.key === "Escape" && link.selection) {
      clearTimeout(this.soon);
      this.anchor = null;
      link.select(null);
    } else return;
    e.preventDefault();
    e.stopPropagation();
  }

  // ground draws what all plots have: time, findings, selection, cursor.
  ground(low) {
    const { svg, wide, height } = this, n = Math.max(2, Math.floor((wide - left) / 92));
    svg.setAttribute("viewBox", `0 0 ${wide} ${height}`);
    svg.setAttribute("height", height);
    this.box.style.height = `${height}px`;
    const axis = timeTicks(this.from, this.to, n).filter(([t]) => this.x(t) < wide - 14).map(([t, text]) => [
      s("line", { class: "grid", x1: this.x(t), x2: this.x(t), y1: 4, y2: low }),
      s("text", { class: "tick", x: this.x(t), y: height - 4, "text-anchor": "middle" }, text)]);
    this.bands = s("g", {}, (this.findings || []).map((f) => {
      const a = this.x(Math.max(this.from, f.from)), b = this.x(Math.min(this.to, f.to));
      return b < left || a > wide - right ? null : s("rect", { class: `band ${f.level} ${f.far ? "far" : ""}`, x: a, y: 4, width: Math.max(1.5, b - a), height: low - 4 });
    }));
    this.chosen = s("g", { "data-unsaved": "1" });
    this.hair = s("g", { class: "hair", "data-unsaved": "1" });
    return { axis, over: [this.chosen, this.hair] };
  }

  mark() {
    if (!this.chosen) return;
    const sel = this.link.selection, low = this.low;
    if (!sel || sel[1] < this.from || sel[0] > this.to) return fill(this.chosen);
    const a = Math.max(left, this.x(sel[0])), b = Math.min(this.wide - right, this.x(sel[1]));
    fill(this.chosen, s("rect", { class: "dim", x: left, y: 0, width: Math.max(0, a - left), height: low }), s("rect", { class: "dim", x: b, y: 0, width: Math.max(0, this.wide - right - b), height: low }),
      s("line", { class: "edge", x1: a, x2: a, y1: 0, y2: low }), s("line", { class: "edge", x1: b, x2: b, y1: 0, y2: low }));
  }

  point() {
    if (!this.hair) return;
    const t = this.link.cursor;
    if (t === null || t < this.from || t > this.to) { fill(this.hair); this.tell?.(null); return; }
    const x = this.x(t), text = clock(t), w = text.length * 6.3 + 10, tx = Math.min(this.wide - w / 2, Math.max(w / 2, x));
    fill(this.hair, s("line", { x1: x, x2: x, y1: 0, y2: this.low }), s("rect", { class: "flag", x: tx - w / 2, y: this.height - 16, width: w, height: 16, rx: 3 }),
      s("text", { class: "flagtext", x: tx, y: this.height - 4, "text-anchor": "middle" }, text));
    this.tell?.(t);
  }

  end() { this.seen.disconnect(); }
}

// Chart draws lines, or a stack of areas. series: [{key, name, cls, color, hatch, dash, area}].
export class Chart extends Plot {
  constructor(link, { title, note, format, series, height = 150, stack = false }) {
    super(link, title, height);
    Object.assign(this, { title, format, series, stack, log: false, t: [], values: {} });
    this.legend = h("div", { class: "legend" });
    this.since = h("span", { class: "since-when" });
    this.tools = h("span", { class: "tools" });
    this.note = h("small", {}, note || "");
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, h("b", {}, title), this.note, h("span", { class: "grow" }), this.tools,
      this.saves([[say`Picture (PNG)`, () => savePNG(this.svg, title, this.shown)], [say`Drawing (SVG)`, () => saveSVG(this.svg, title, this.shown)], [say`Table (CSV)`, () => this.csv()]])), this.legend, this.box);
  }

  // set shows values: {from, to, step, t, values: {key: []}, findings}.
  set(d) {
    Object.assign(this, d);
    this.box.setAttribute("aria-valuemin", Math.round(this.from));
    this.box.setAttribute("aria-valuemax", Math.round(this.to));
    this.shown = this.series.filter((x) => !this.stack || (this.values[x.key] || []).some((v) => v > 0));
    fill(this.legend, this.shown.map((x) => {
      x.reading = h("b", {});
      x.line = !this.stack && !x.area;
      const swatch = s("svg", { class: "swatch", viewBox: "0 0 14 10", "aria-hidden": "true" }, this.stack || x.area
        ? s("rect", { width: 14, height: 10, rx: 2, fill: x.hatch ? "url(#hatch)" : x.color }) : s("line", { x1: 0, x2: 14, y1: 5, y2: 5, stroke: x.color, "stroke-width": 2.4, "stroke-dasharray": x.dash || "none" }));
      return h("span", { class: "key" }, swatch, x.name, x.reading);
    }), this.since);
    this.draw();
    this.tell(this.link.cursor);
  }

  index(t) {
    if (t === null || !this.t.length) return -1;
    return Math.min(this.t.length - 1, Math.max(0, Math.floor((t - this.t[0]) / this.step)));
  }

  // tell writes the values under the cursor, else those of the latest moment with any,
  // and which that is when it is not the end: all of one moment, or a rate of now would
  // stand next to a p99 of before.
  tell(t) {
    const has = (k) => (this.shown || []).some((x) => { const v = (this.values[x.key] || [])[k]; return v !== null && v !== undefined; });
    let i = this.index(t);
    if (t === null) for (i = this.t.length - 1; i >= 0 && !has(i);) i--;
    const said = (this.shown || []).map((x) => {
      const v = i >= 0 ? (this.values[x.key] || [])[i] : null;
      x.reading.textContent = this.format(v);
      return `${x.name} ${this.format(v)}`;
    });
    const old = t === null && i >= 0 && this.t[i] + 3 * this.step < this.to;
    this.since.textContent = old ? say`at ${clock(this.t[i])}, the latest` : "";
    this.box.setAttribute("aria-valuenow", Math.round(t ?? this.to));
    this.box.setAttribute("aria-valuetext", `${t !== null ? clock(t) : old ? this.since.textContent : say`latest`}: ${said.join(", ") || say`nothing`}`);
  }

  draw() {
    if (!this.wide) return;
    const low = this.low = this.height - 20, { over, axis } = this.ground(low);
    const layers = this.stack ? this.pile() : this.shown?.map((x) => [x, this.values[x.key] || []]) || [];
    let top = 0, least = Infinity, some = false;
    for (const [, v] of layers) for (const y of v) if (y !== null && y !== undefined) { some = true; if (y > top) top = y; if (y > 0 && y < least) least = y; }
    const log = this.log && top > least;
    if (!(top > 0)) top = 1;
    const bottom = log ? 10 ** Math.floor(Math.log10(least)) : 0;
    top *= log ? 1.3 : 1.06;
    const y = log ? (v) => v <= bottom ? low : low - Math.log10(v / bottom) / Math.log10(top / bottom) * (low - 8) : (v) => low - v / top * (low - 8);
    const scale = (log ? logTicks(bottom, top) : ticks(0, top, Math.max(2, Math.floor(low / 44)))).map((v) => [
      s("line", { class: v === 0 ? "base" : "grid", x1: left, x2: this.wide - right, y1: y(v), y2: y(v) }),
      s("text", { class: "tick", x: left - 7, y: y(v) + 3.5, "text-anchor": "end" }, this.format(v))]);
    const mid = this.step / 2, px = this.t.map((t) => +this.x(Math.min(this.to, t + mid)).toFixed(1));
    const drawn = this.stack ? layers.map(([x, up, down]) => s("path", { class: "layer", fill: x.hatch ? "url(#hatch)" : x.color, d: area(px, up, down, y) }))
      : layers.map(([x, v]) => [x.area ? s("path", { class: "area", fill: x.color, d: area(px, v, null, y) }) : null,
        s("path", { class: "line", stroke: x.color, "stroke-dasharray": x.dash || "none", d: line(px, v, y) })]);
    fill(this.svg, axis, scale, this.bands, drawn, some ? null : s("text", { class: "none", x: (this.wide + left) / 2, y: low / 2 + 4, "text-anchor": "middle" }, this.nothing || say`nothing was measured here`), over);
    this.mark();
    this.point();
  }

  // pile adds the layers up: [series, upper edge, lower edge].
  pile() {
    let under = this.t.map(() => 0);
    return (this.shown || []).map((x) => {
      const v = this.values[x.key] || [], down = under, up = down.map((u, i) => v[i] === null || v[i] === undefined ? this.anything(i) ? u : null : u + v[i]);
      under = up.map((u, i) => u ?? down[i]);
      return [x, up, down];
    });
  }

  anything(i) { return this.shown.some((x) => (this.values[x.key] || [])[i] > 0); }

  csv() {
    const list = this.shown || [];
    saveCSV(["time", ...list.map((x) => x.name)], this.t.map((t, i) => [new Date(t * 1000).toISOString(), ...list.map((x) => (this.values[x.key] || [])[i])]), this.title);
  }
}

function runs(v) {
  const list = [];
  for (let i = 0, start = -1; i <= v.length; i++) {
    const has = i < v.length && v[i] !== null && v[i] !== undefined;
    if (has && start < 0) start = i;
    if (!has && start >= 0) { list.push([start, i]); start = -1; }
  }
  return list;
}

function line(px, v, y) {
  let d = "";
  for (const [a, b] of runs(v)) {
    d += `M${px[a] - (b - a === 1 ? 1 : 0)} ${y(v[a]).toFixed(1)}`;
    for (let i = a + 1; i < b; i++) d += `L${px[i]} ${y(v[i]).toFixed(1)}`;
    if (b - a === 1) d += "h2";
  }
  return d;
}

function area(px, v, down, y) {
  let d = "";
  for (const [a, b] of runs(v)) {
    const pad = b - a === 1 ? 1.5 : 0;
    d += `M${px[a] - pad} ${y(down ? down[a] : 0).toFixed(1)}`;
    for (let i = a; i < b; i++) d += `L${px[i] - (i === a ? pad : 0)} ${y(v[i]).toFixed(1)}${pad ? `h${2 * pad}` : ""}`;
    for (let i = b - 1; i >= a; i--) d += `L${px[i] + (i === a ? pad : 0)} ${y(down ? down[i] : 0).toFixed(1)}`;
    d += "Z";
  }
  return d;
}

// spark is a tiny line without axes.
export function spark(v, wide = 92, high = 22, cls = "spark") {
  const top = Math.max(...v.filter((x) => x !== null && x !== undefined), 0) || 1;
  const px = v.map((_, i) => +(v.length > 1 ? i / (v.length - 1) * (wide - 2) + 1 : wide / 2).toFixed(1)), y = (x) => high - 1 - x / top * (high - 3);
  return s("svg", { class: cls, viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, "aria-hidden": "true" }, s("path", { class: "sparkarea", d: area(px, v, null, y) }), s("path", { class: "sparkline", d: line(px, v, y) }));
}

export const spanText = (sel) => span(sel[1] - sel[0]);
