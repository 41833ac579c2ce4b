// How many requests took how long: over time as a heat map, and together as bars.

import { say } from "./language.js";
import { h, s, fill, isDark, tip } from "./dom.js";
import { count, micros } from "./figure.js";
import { clock } from "./clock.js";
import { Plot, left, right } from "./chart.js";
import { menu, saveCanvas, saveCSV, saveSVG } from "./export.js";

// Heat is a chart of latencies: each cell is as dark as requests are many, by
// the logarithm, so that one slow request among a million is seen.
export class Heat extends Plot {
  constructor(link, height = 150) {
    super(link, say`Latencies`, height);
    this.canvas = h("canvas", { class: "heat" });
    this.box.prepend(this.canvas);
    this.svg.classList.add("above");
    this.reading = h("div", { class: "legend" });
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, h("b", {}, say`Latencies`), h("small", {}, say`every request, logarithmic`), h("span", { class: "grow" }),
      this.saves([[say`Picture (PNG)`, () => saveCanvas(this.canvas, say`latencies`)], [say`Table (CSV)`, () => this.csv()]])), this.reading, this.box);
  }

  set(d) {
    Object.assign(this, d);
    this.trim();
    this.draw();
    this.tell(null);
  }

  // trim leaves out the rows above and below that are empty throughout.
  trim() {
    const { heat } = this;
    this.first = Infinity;
    this.last = -1;
    this.most = 0;
    (heat?.counts || []).forEach((row) => row?.forEach((n, j) => {
      if (!(n > 0)) return;
      this.first = Math.min(this.first, j);
      this.last = Math.max(this.last, j);
      this.most = Math.max(this.most, n);
    }));
  }

  draw() {
    const low = this.low = this.height - 20, { over, axis } = this.ground(low), { heat, canvas } = this, ratio = devicePixelRatio || 1;
    canvas.width = this.wide * ratio;
    canvas.height = this.height * ratio;
    const some = this.last >= 0, rows = this.last - this.first + 1, pen = canvas.getContext("2d");
    const y = (j) => low - (j - this.first) / rows * (low - 4);
    if (some) {
      pen.scale(ratio, ratio);
      const wide = Math.max(1, (this.wide - left - right) * (this.heatStep || this.step) / (this.to - this.from)), dark = isDark();
      heat.counts.forEach((row, i) => row?.forEach((n, j) => {
        if (!(n > 0)) return;
        const a = Math.max(left, this.x(heat.t[i])), b = Math.min(this.wide - right, this.x(heat.t[i]) + wide);
        pen.fillStyle = shade(Math.log1p(n) / Math.log1p(this.most), dark);
        if (b > a) pen.fillRect(a, y(j + 1), b - a + 0.3, (low - 4) / rows + 0.3);
      }));
    }
    const marks = [];
    for (let j = this.first, at = 1e9; some && j <= this.last + 1; j++) {
      const us = heat.us[j];
      if (us === undefined || at - y(j) < 26) continue;
      at = y(j);
      marks.push(s("text", { class: "tick", x: left - 7, y: at + 3.5, "text-anchor": "end" }, micros(us)));
    }
    fill(this.svg, axis, marks, s("line", { class: "base", x1: left, x2: this.wide - right, y1: low, y2: low }), some ? null : s("text", { class: "none", x: (this.wide + left) / 2, y: low / 2, "text-anchor": "middle" }, say`no request was seen here`), over);
    this.mark();
    this.point();
  }

  tell(t) {
    const { heat } = this;
    if (!heat?.t?.length) return fill(this.reading);
    const i = t === null ? -1 : Math.floor((t - heat.t[0]) / (this.heatStep || this.step)), row = i >= 0 ? heat.counts[i] : null;
    const sum = row ? row.reduce((a, b) => a + b, 0) : heat.counts.flat().reduce((a, b) => a + b, 0);
    let top = -1;
    (row ? [row] : heat.counts).forEach((r) => r?.forEach((n, j) => { if (n > 0 && j > top) top = j; }));
    const scale = h("span", { class: "scale", "aria-hidden": "true" });
    for (let k = 1; k <= 8; k++) scale.append(h("i", { css: { background: shade(k / 8, isDark()) } }));
    fill(this.reading, h("span", { class: "key" }, say`requests`, h("b", {}, count(sum))), h("span", { class: "key" }, say`slowest from`, h("b", {}, top < 0 ? "–" : micros(heat.us[top]))), h("span", { class: "key" }, "1", scale, count(this.most)));
    this.box.setAttribute("aria-valuetext", say`${t === null ? say`all` : clock(t)}: ${count(sum)} requests, slowest from ${top < 0 ? "–" : micros(heat.us[top])}`);
  }

  csv() {
    const { heat } = this, rows = [];
    heat?.counts?.forEach((row, i) => row?.forEach((n, j) => { if (n > 0) rows.push([new Date(heat.t[i] * 1000).toISOString(), heat.us[j], n]); }));
    saveCSV(["time", "from_us", "requests"], rows, "latencies");
  }
}

// shade goes from pale to deep in one hue, told apart by lightness alone.
function shade(part, dark) {
  const p = Math.min(1, 0.12 + part * 0.88);
  return dark ? `hsl(${212 - 160 * Math.max(0, p - 0.55)} ${45 + 30 * p}% ${18 + 58 * p}%)` : `hsl(${205 + 30 * p} ${55 + 15 * p}% ${92 - 66 * p}%)`;
}

// bars is the histogram of a range.
export function bars(buckets, title = say`How long requests took`) {
  const list = (buckets || []).slice();
  while (list.length && !list[0].count) list.shift();
  while (list.length && !list.at(-1).count) list.pop();
  if (!list.length) return h("p", { class: "soft" }, say`No request in this range.`);
  const wide = 560, high = 120, low = high - 18, most = Math.max(...list.map((b) => b.count)), one = wide / list.length;
  const svg = s("svg", { class: "bars", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": say`${title}: most take ${micros(list.find((b) => b.count === most).from_us)}` },
    list.map((b, i) => {
      const tall = b.count ? Math.max(1.5, Math.log1p(b.count) / Math.log1p(most) * (low - 6)) : 0;
      const bar = s("rect", { class: "bar", x: i * one + 0.5, y: low - tall, width: Math.max(1, one - 1), height: tall });
      const hit = s("rect", { class: "hit", x: i * one, y: 0, width: one, height: low });
      hit.addEventListener("pointermove", (e) => tip.show(e.clientX, e.clientY, h("b", {}, say`${micros(b.from_us)} to ${micros(b.to_us)}`), h("div", {}, say`${count(b.count)} requests`)));
      hit.addEventListener("pointerleave", tip.hide);
      return [bar, hit];
    }), s("line", { class: "base", x1: 0, x2: wide, y1: low, y2: low }),
    [0, 0.25, 0.5, 0.75, 1].map((p) => {
      const b = list[Math.min(list.length - 1, Math.round(p * list.length))];
      return s("text", { class: "tick", x: p * wide, y: high - 4, "text-anchor": p === 0 ? "start" : p === 1 ? "end" : "middle" }, micros(p === 1 ? list.at(-1).to_us : b.from_us));
    }));
  return h("figure", { class: "chart" }, h("figcaption", {}, h("b", {}, title), h("small", {}, say`heights are logarithmic`), h("span", { class: "grow" }),
    menu(title, [[say`Drawing (SVG)`, () => saveSVG(svg, title)], [say`Table (CSV)`, () => saveCSV(["from_us", "to_us", "requests"], list.map((b) => [b.from_us, b.to_us, b.count]), title)]])), svg);
}
