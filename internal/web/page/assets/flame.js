// Flame graphs of a time: on the CPU and off it, alone or against another time.

import { say } from "./language.js";
import { h, fill, steady, choice, clean } from "./dom.js";
import { between } from "./clock.js";
import { seconds } from "./figure.js";
import { Flame, nothing } from "./flamegraph.js";
import { query } from "./api.js";

export default function view(app) {
  const bar = h("div", { class: "bar" }), note = h("p", { class: "soft" }), room = h("div", {}), element = h("div", { class: "page wide" }, bar, note, room);
  const flame = new Flame({});
  let sign = "";

  async function load(range, signal) {
    const r = app.route, kind = r.kind === "off" ? "off" : "cpu", sel = r.sel, at = sel ? { from: sel[0], to: sel[1] } : { from: range.from, to: range.to };
    const against = r.against || (sel ? "rest" : "none"), half = (at.to - at.from);
    const other = against === "none" ? null : against === "rest" && sel ? rest(range, sel) : { from: at.from - half, to: at.from };
    const own = r.ep && r.of === "ep", q = { ...at, kind, ...(own ? { ep: r.ep } : {}), ...(other ? { against_from: other.from, against_to: other.to } : {}) };
    const list = [["none", say`alone`], ["before", say`against the time before`]];
    if (sel) list.push(["rest", say`against the rest`]);
    steady(bar, h("h1", {}, say`Flame graph`), choice(say`What is shown`, [["cpu", say`on CPU`, say`where threads computed`], ["off", say`off CPU`, say`where threads waited`]], kind, (v) => app.go({ kind: v === "cpu" ? null : v })),
      r.ep ? choice(say`Whose`, [["all", say`all processes`], ["ep", clean(r.ep.split("|").pop(), 24)]], own ? "ep" : "all", (v) => app.go({ of: v === "ep" ? v : null })) : null,
      choice(say`Compared`, list, other ? against : "none", (v) => app.go({ against: v })), h("span", { class: "grow" }),
      h("a", { class: "act", href: query("flame", q) }, say`Full page`), h("a", { class: "act", href: query("flame.svg", q), download: "slowray-flame.svg" }, "SVG"));
    const d = await app.ask("api/stacks", q, signal);
    app.losses.set("stacks", d.losses);
    fill(note, `${between(at.from, at.to)}${other ? say`, against ${between(other.from, other.to)}` : ""}${d.window_s ? say` · ${seconds(d.window_s)} recorded` : ""}${d.hz ? say` · CPU at ${d.hz} Hz` : ""}`, (d.notes || []).map((n) => h("span", {}, ` · ${clean(n, 200)}`)));
    const now = JSON.stringify(d.frames || null) + kind + against + own;
    if (now === sign) return;
    sign = now;
    if (!d.frames || !(d.frames.value > 0)) return fill(room, nothing(d.because && clean(d.because, 300)));
    if (!room.contains(flame.element)) fill(room, flame.element);
    flame.names = against === "rest" ? [say`the rest`, say`the selected range`] : [say`before`, say`now`];
    flame.show(d.frames, { compares: d.compares ?? !!other, unit: d.unit || "nanoseconds" });
  }
  return { element, load, end: () => flame.end() };
}

// rest is the longer part of what is shown next to a selection: the server compares with one range.
function rest(range, sel) {
  return sel[0] - range.from >= range.to - sel[1] ? { from: range.from, to: sel[0] } : { from: sel[1], to: range.to };
}
