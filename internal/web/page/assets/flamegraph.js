// A flame graph on a canvas, root above. The colours by kind of frame are those
// of internal/flame/page/draw.js.

import { say } from "./language.js";
import { h, fill, clean, isDark, tip, empty, button } from "./dom.js";
import { nanos, percent, count } from "./figure.js";
import { saveCanvas, saveCSV, menu } from "./export.js";

const colors = {
  kernel: [20, 88, 69], native: [44, 88, 66], go: [187, 58, 62], python: [213, 78, 75], java: [145, 42, 63],
  php: [262, 68, 80], node: [80, 55, 60], ruby: [345, 75, 77], unknown: [215, 8, 76], process: [215, 18, 84], thread: [215, 16, 90],
};
const kindNames = { kernel: say`kernel`, native: say`native (C, C++, Rust …)`, go: "Go", python: "Python", java: "Java", php: "PHP", node: "Node.js", ruby: "Ruby", unknown: say`unknown`, process: say`process`, thread: say`thread` };
const narrowest = 0.6; // pixels: what is less wide is drawn together

function kindColor(kind, name) {
  const [hue, sat, light] = Object.hasOwn(colors, kind) ? colors[kind] : colors.unknown;
  let v = 0;
  for (let i = 0; i < Math.min(name.length, 80); i++) v = (v * 31 + name.charCodeAt(i)) | 0;
  v = ((v >>> 0) % 9) - 4;
  return isDark() ? `hsl(${hue} ${sat * 0.72}% ${light - 13 + v}%)` : `hsl(${hue} ${sat}% ${light + v}%)`;
}

function changeColor(d) {
  const plain = isDark() ? [160, 167, 176] : [232, 234, 237], full = d > 0 ? [236, 92, 72] : [76, 144, 240], part = Math.min(1, Math.abs(d));
  return `rgb(${plain.map((c, i) => Math.round(c + (full[i] - c) * part)).join(" ")})`;
}

// flatten makes lists of a tree, without recursion: stacks may be deep.
export function flatten(root) {
  const t = { name: [], kind: [], where: [], value: [], before: [], parent: [], depth: [], children: [] }, todo = [[root, -1]];
  while (todo.length) {
    const [n, up] = todo.pop(), i = t.name.length;
    t.name.push(String(n.name ?? "?"));
    t.kind.push(n.kind || "unknown");
    t.where.push([n.module, n.file && (n.line ? `${n.file}:${n.line}` : n.file)].filter(Boolean).join(" · "));
    t.value.push(n.value || 0);
    t.before.push(n.before || 0);
    t.parent.push(up);
    t.depth.push(up < 0 ? 0 : t.depth[up] + 1);
    t.children.push([]);
    if (up >= 0) t.children[up].push(i);
    for (const c of n.children || []) todo.push([c, i]);
  }
  for (const c of t.children) c.sort((a, b) => Math.max(t.value[b], 0) - Math.max(t.value[a], 0) || (t.name[a] < t.name[b] ? -1 : 1));
  return t;
}

export class Flame {
  constructor({ unit = "nanoseconds", compact = false, compares = false, names = [say`before`, say`after`] } = {}) {
    Object.assign(this, { unit, compares, names, top: 0, picked: -1, rows: [], query: null });
    this.canvas = h("canvas", {});
    this.box = h("div", { class: "flame-box", tabindex: "0", role: "application", "aria-label": say`Flame graph: arrow keys move, Enter zooms, Escape zooms out` }, this.canvas);
    this.said = h("p", { class: "flame-said", "aria-live": "polite" });
    this.legend = h("p", { class: "flame-legend" });
    this.find = h("input", { type: "search", placeholder: say`Search functions`, "aria-label": say`Search functions by regular expression`, "data-search": "1", autocomplete: "off", spellcheck: "false", on: { input: () => this.search() } });
    this.found = h("output", { class: "soft" });
    this.back = button(say`Reset zoom`, () => this.zoom(0), { class: "act", disabled: true });
    this.element = h("div", { class: "flame" }, h("div", { class: "bar" }, this.find, this.found, h("span", { class: "grow" }), this.back,
      menu(say`the flame graph`, [[say`Picture (PNG)`, () => saveCanvas(this.canvas, say`flame graph`)], [say`Functions (CSV)`, () => this.csv()]])), this.box, this.said, this.legend);
    this.element.flame = this;
    if (compact) this.element.classList.add("compact");
    this.hand();
    this.seen = new ResizeObserver(() => this.layout());
    this.seen.observe(this.box);
  }

  end() { this.seen.disconnect(); }

  amount(v) { return this.unit === "nanoseconds" ? nanos(v) : count(v); }

  show(root, { compares = this.compares, unit = this.unit } = {}) {
    const path = [];
    for (let i = this.top; this.tree && i > 0; i = this.tree.parent[i]) path.unshift(this.tree.name[i]);
    Object.assign(this, { tree: flatten(root), compares, unit, picked: -1, top: 0 });
    for (const n of path) {
      const next = this.tree.children[this.top].find((c) => this.tree.name[c] === n);
      if (next === undefined) break;
      this.top = next;
    }
    this.describe();
    this.search();
  }

  describe() {
    const { tree } = this, sums = new Map();
    tree.value.forEach((v, i) => {
      const own = v - tree.children[i].reduce((a, c) => a + tree.value[c], 0);
      if (own > 0 && i > 0) sums.set(tree.kind[i], (sums.get(tree.kind[i]) || 0) + own);
    });
    if (this.compares) {
      const scale = h("span", { class: "scale", "aria-hidden": "true" });
      for (let d = -1; d <= 1; d += 0.25) scale.append(h("i", { css: { background: changeColor(d) } }));
      fill(this.legend, h("span", {}, say`smaller share`, scale, say`larger share`), h("span", { class: "soft" }, say`from ${this.names[0]} to ${this.names[1]}, each as a share of its own total`));
      return;
    }
    fill(this.legend, [...sums].sort((a, b) => b[1] - a[1]).map(([k, v]) => h("span", {}, h("i", { class: "dot", css: { background: kindColor(k, "") } }), kindNames[k] || clean(k, 30), " ", h("small", { class: "soft" }, percent(v / tree.value[0])))));
  }

  search() {
    const text = this.find.value;
    this.query = null;
    this.find.removeAttribute("aria-invalid");
    if (text) {
      try {
        this.query = new RegExp(text, /[A-Z]/.test(text) ? "u" : "iu");
      } catch {
        this.find.setAttribute("aria-invalid", "true");
      }
    }
    this.hits = null;
    this.found.textContent = text && !this.query ? say`not a regular expression` : "";
    if (this.query && this.tree) {
      this.hits = this.tree.name.map((n) => this.query.test(n));
      let sum = 0;
      const todo = [this.top];
      while (todo.length) {
        const i = todo.pop();
        if (this.hits[i]) sum += this.tree.value[i]; else todo.push(...this.tree.children[i]);
      }
      this.found.textContent = sum ? `${percent(sum / (this.tree.value[this.top] || 1))} · ${this.amount(sum)}` : say`nothing found`;
    }
    this.layout();
  }

  layout() {
    const { tree, top, box } = this;
    if (!tree || !box.clientWidth) return;
    this.row = matchMedia("(pointer: coarse)").matches ? 25 : 20;
    const wide = this.wide = box.clientWidth, scale = tree.value[top] > 0 ? wide / tree.value[top] : 0;
    this.rows = [];
    const put = (i, x, w, depth) => (this.rows[depth] ||= []).push({ i, x, w });
    for (let i = tree.parent[top]; i >= 0; i = tree.parent[i]) put(i, 0, wide, tree.depth[i]);
    const todo = scale ? [[top, 0]] : [];
    while (todo.length) {
      const [i, x] = todo.pop();
      put(i, x, tree.value[i] * scale, tree.depth[i]);
      let at = x;
      for (const c of tree.children[i]) {
        const w = tree.value[c] * scale;
        if (w < narrowest) break; // the rest is narrower still
        todo.push([c, at]);
        at += w;
      }
    }
    this.back.disabled = top === 0;
    this.draw();
    this.tell(this.picked >= 0 ? this.picked : top);
  }

  draw() {
    const { canvas, tree, wide, row } = this, ratio = devicePixelRatio || 1, high = Math.max(1, this.rows.length) * row;
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${high}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
    pen.textBaseline = "middle";
    const letter = pen.measureText("M".repeat(20)).width / 20;
    this.rows.forEach((list, depth) => list?.forEach(({ i, x, w }) => {
      const y = depth * row, gap = w > 3 ? 1 : 0, hit = this.hits?.[i];
      pen.globalAlpha = this.hits && !hit ? 0.35 : depth < tree.depth[this.top] ? 0.6 : 1;
      pen.fillStyle = hit && !this.compares ? (isDark() ? "#e26ee6" : "#ee5cf0") : this.color(i);
      pen.fillRect(x, y, Math.max(0.4, w - gap), row - 1);
      const letters = Math.floor((w - 8) / letter);
      if (letters >= 2) {
        const n = clean(tree.name[i], 300);
        pen.fillStyle = isDark() && pen.globalAlpha < 0.5 ? "#e6edf3" : "#14171a";
        pen.fillText(n.length > letters ? n.slice(0, letters - 1) + "…" : n, x + 4, y + row / 2);
      }
      pen.globalAlpha = 1;
      if (i === this.picked) {
        pen.lineWidth = 2;
        pen.strokeStyle = isDark() ? "#fff" : "#000";
        pen.strokeRect(x + 1, y + 1, Math.max(1, w - 3), row - 3);
      }
    }));
  }

  color(i) {
    const { tree } = this;
    if (!this.compares) return kindColor(tree.kind[i], tree.name[i]);
    const before = tree.before[i] / (tree.before[0] || 1), after = tree.value[i] / (tree.value[0] || 1);
    return changeColor(i === 0 ? 0 : Math.sign(after - before) * Math.min(1, Math.sqrt(Math.abs(after - before) * 3)));
  }

  lines(i) {
    const { tree } = this, list = [];
    if (this.compares) {
      const before = tree.before[i] / (tree.before[0] || 1), after = tree.value[i] / (tree.value[0] || 1), d = (after - before) * 100;
      list.push(`${this.names[0]}: ${percent(before)} (${this.amount(tree.before[i])})`, `${this.names[1]}: ${percent(after)} (${this.amount(tree.value[i])})`, Math.abs(d) < 0.05 ? say`unchanged` : say`${`${d > 0 ? "+" : "−"}${Math.abs(d).toFixed(1)}`} points`);
    } else list.push(say`${this.amount(tree.value[i])} · ${percent(tree.value[i] / (tree.value[0] || 1))} of all`);
    return { lines: list, where: [i ? kindNames[tree.kind[i]] || clean(tree.kind[i], 30) : "", clean(tree.where[i], 300)].filter(Boolean).join(" · ") };
  }

  tell(i) {
    if (!this.tree?.value[0]) return fill(this.said, say`No stack has time in it here.`);
    const x = this.lines(i);
    fill(this.said, h("b", { class: "mono" }, clean(this.tree.name[i], 300)), ` ${x.lines.join(" · ")}${x.where ? ` · ${x.where}` : ""}`);
  }

  at(e) {
    const area = this.canvas.getBoundingClientRect(), x = e.clientX - area.left, list = this.rows[Math.floor((e.clientY - area.top) / this.row)];
    return list?.find((c) => x >= c.x && x < c.x + c.w)?.i ?? -1;
  }

  // find is where a function is drawn, in the window, if it is.
  locate(name) {
    const area = this.canvas.getBoundingClientRect();
    for (const [depth, list] of this.rows.entries()) for (const c of list || []) if (this.tree.name[c.i] === name) return { x: area.left + c.x, y: area.top + depth * this.row, width: c.w, height: this.row };
    return null;
  }

  zoom(i) {
    this.top = i;
    this.picked = -1;
    tip.hide();
    this.search();
  }

  hand() {
    const { canvas, box } = this;
    let touched = -1, kind = "mouse";
    canvas.addEventListener("pointerdown", (e) => { kind = e.pointerType; });
    canvas.addEventListener("pointermove", (e) => {
      if (e.pointerType === "touch") return;
      const i = this.at(e);
      canvas.style.cursor = i < 0 ? "" : "pointer";
      if (i < 0) return tip.hide();
      const x = this.lines(i);
      tip.show(e.clientX, e.clientY, h("b", { class: "mono" }, clean(this.tree.name[i], 600)), x.lines.map((l) => h("div", {}, l)), h("div", { class: "soft" }, x.where));
    });
    canvas.addEventListener("pointerleave", tip.hide);
    canvas.addEventListener("click", (e) => {
      const i = this.at(e);
      if (i < 0) return;
      if (kind === "touch" && touched !== i) { touched = i; this.picked = i; this.draw(); return this.tell(i); } // the first touch tells, the second zooms
      touched = -1;
      this.zoom(i);
    });
    box.addEventListener("keydown", (e) => {
      const { tree } = this, i = this.picked >= 0 ? this.picked : this.top;
      if (!tree || e.ctrlKey || e.metaKey || e.altKey) return;
      const seen = (list) => list.filter((c) => this.rows[tree.depth[c]]?.some((x) => x.i === c));
      let next = -1;
      if (e.key === "ArrowDown") next = seen(tree.children[i])[0] ?? -1;
      else if (e.key === "ArrowUp") next = tree.parent[i];
      else if ((e.key === "ArrowLeft" || e.key === "ArrowRight") && i > 0) {
        const list = seen(tree.children[tree.parent[i]]);
        next = list[list.indexOf(i) + (e.key === "ArrowLeft" ? -1 : 1)] ?? -1;
      } else if (e.key === "Enter") { e.preventDefault(); return this.zoom(i); } else if (e.key === "Escape" && this.top) { e.stopPropagation(); return this.zoom(0); } else return;
      e.preventDefault();
      if (next >= 0) { this.picked = next; this.draw(); this.tell(next); }
    });
  }

  csv() {
    const { tree } = this, sum = new Map();
    tree.value.forEach((v, i) => {
      if (!i) return;
      const s = sum.get(tree.name[i]) || [0, 0];
      s[0] += Math.max(0, v - tree.children[i].reduce((a, c) => a + tree.value[c], 0));
      let again = false;
      for (let up = tree.parent[i]; up > 0 && !again; up = tree.parent[up]) again = tree.name[up] === tree.name[i];
      if (!again) s[1] += v;
      sum.set(tree.name[i], s);
    });
    saveCSV(["function", `self_${this.unit}`, `total_${this.unit}`], [...sum].sort((a, b) => b[1][0] - a[1][0]).map(([n, [own, all]]) => [n, own, all]), "functions");
  }
}

export const nothing = (because) => empty(because || say`No stack was recorded in this time.`, say`Stacks are recorded all the time at a low rate; choose a longer time, or record now: slowray flame -o flame.html`);
