// The control of the time that is shown.

import { say } from "./language.js";
import { $, h, steady, once, button } from "./dom.js";
import { now, span, local, parse, clock, isRelative } from "./clock.js";

// app.presets are other lengths to choose from; then all that is stored is no choice.
const lengths = [300, 900, 3600, 6 * 3600, 86400, 7 * 86400];

export function when(app) {
  const { range, route, status } = app, at = $("when");
  once(at, [route.from, route.to, route.last, range.live, !!status.span, isRelative()], () => draw(app, at));
}

function draw(app, at) {
  const { range, route, status, presets = lengths } = app;
  const chosen = route.from ? "range" : String(route.last || 900);
  const select = h("select", { "aria-label": say`Time that is shown`, on: { change: () => pick(select.value) } },
    presets.map((p) => h("option", { value: String(p) }, say`last ${span(p)}`)),
    presets.includes(route.last || 900) || route.from ? null : h("option", { value: String(route.last) }, say`last ${span(route.last)}`),
    app.presets ? null : h("option", { value: "all" }, say`all that is stored`),
    route.from ? h("option", { value: "range" }, `${clock(range.from)} – ${clock(range.to)}`) : null);
  select.value = chosen;
  const from = h("input", { type: "datetime-local", step: "1", "aria-label": say`From`, value: local(range.from) }), to = h("input", { type: "datetime-local", step: "1", "aria-label": say`To`, value: local(range.to) });
  const form = h("form", { on: { submit: (e) => {
    e.preventDefault();
    const a = parse(from.value), b = parse(to.value);
    to.setCustomValidity(a < b ? "" : say`The end must be after the beginning.`);
    if (!to.reportValidity()) return;
    box.open = false;
    app.go({ from: a, to: b, last: null, sel: null });
  } } }, h("label", {}, say`From `, from), h("label", {}, say`To `, to), h("button", { type: "submit" }, say`Show`),
    range.live ? button(say`Hold this time in the address`, () => { box.open = false; app.go({ from: range.from, to: range.to, last: null }); }, { title: say`so that whoever gets the address sees the same` }) : null);
  const box = h("details", { class: "menu" }, h("summary", { "aria-label": say`Choose from and to`, title: say`From … to …` }, "⋯"), form);
  const shift = (share) => {
    const by = (range.to - range.from) * share;
    app.go({ from: range.from + by, to: Math.min(range.to + by, now()), last: null });
  };
  steady(at, button("‹", () => shift(-0.5), { "aria-label": say`Earlier`, title: say`Earlier ([)` }), select,
    button("›", () => shift(0.5), { "aria-label": say`Later`, title: say`Later (])`, disabled: range.live }), box);
  function pick(value) {
    if (value === "range") return;
    if (value === "all" && status.span?.from) return app.go({ from: Math.floor(status.span.from), to: Math.ceil(status.span.to), last: null, sel: null });
    app.go({ from: null, to: null, sel: null, last: value === "900" ? null : Number(value) });
  }
}
