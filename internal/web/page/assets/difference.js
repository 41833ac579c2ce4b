// What was different in a selected range, in words.

import { say } from "./language.js";
import { h, fill, clean, button, steady } from "./dom.js";
import { micros, percent, small, count, times } from "./figure.js";
import { between, isRelative } from "./clock.js";
import { part } from "./parts.js";
import { sorted, level, subject, lasted, sentence, keyOf } from "./findings.js";
import { menu, saveCSV } from "./export.js";

const titles = { "ledger part": say`Time breakdown`, peer: say`Clients`, process: say`Processes`, status: say`Answers`, stack: say`What the threads did`, flag: say`Remarks on requests`, label: say`What was asked for`, rate: say`How much`, network: say`On the network`, endpoint: say`Other endpoints` };

export class Difference {
  constructor(app, zoom) {
    Object.assign(this, { app, zoom });
    this.body = h("div", { class: "body", "aria-live": "polite" });
    this.element = h("aside", { class: "difference", hidden: true, "aria-label": say`What was different in the selected range` }, this.body);
  }

  async load(range, sel, ep, signal) {
    this.element.hidden = !sel;
    this.element.parentElement?.classList.toggle("selected", !!sel);
    if (!sel) { this.at = null; return; }
    const { app } = this, at = { from: sel[0], to: sel[1] }, sign = `${sel} ${ep} ${isRelative()}`;
    if (this.sign !== sign) fill(this.body, this.top(sel, ep, null), h("p", { class: "wait" }, say`Comparing…`));
    this.sign = sign;
    // While the page is live the rest grows; it is compared anew only now and then.
    if (this.at && this.at.sign === sign && Date.now() - this.at.when < 30000) return;
    const [d, found] = await Promise.all([app.ask("api/difference", { ...at, ep }, signal), app.ask("api/findings", at, signal)]);
    this.at = { sign, when: Date.now() };
    app.losses.set("difference", d.losses);
    const rows = d.rows || [], causes = sorted(found.findings).filter((f) => f.role !== "consequence");
    const own = (d.endpoints || []).find((e) => e.key === ep);
    steady(this.body, this.top(sel, ep, rows), own?.text ? h("p", { class: "summary" }, clean(own.text, 400)) : null,
      d.because ? h("p", { class: "soft" }, clean(d.because, 300)) : null,
      h("h3", {}, causes.length ? say`Causes found in it` : say`No cause was found in it`),
      causes.slice(0, 5).map((f) => h("a", { class: `brief ${level(f)}`, href: app.address({ view: "findings", cause: keyOf(f).slice(0, 200), sel: null }), "data-key": keyOf(f) }, h("b", {}, clean(f.title, 160)), h("span", {}, subject(f)), h("span", { class: "soft" }, `${f.share !== undefined && f.share !== null ? `${say`${percent(f.share)} of ${clean(f.of, 90)}`} · ` : ""}${lasted(f)}`), h("span", {}, sentence(f).slice(0, 220)))),
      causes.length ? null : h("p", { class: "soft" }, say`What differs below is what was measured; no cause of the catalogue stands out.`),
      this.rows(rows));
  }

  top(sel, ep, rows) {
    const { app } = this, q = { from: sel[0], to: sel[1], last: null, sel: null };
    return [h("div", { class: "bar" }, h("h2", {}, say`Selected`), h("span", { class: "soft" }, between(sel[0], sel[1])), h("span", { class: "grow" }),
      rows?.length ? menu(say`the difference`, [[say`Table (CSV)`, () => saveCSV(["dimension", "name", "inside", "outside", "ratio", "unit", "text"], rows.map((r) => [r.dimension, r.name, r.inside, r.outside, r.ratio, r.unit, r.text]), "difference")]]) : null,
      button("✕", () => app.go({ sel: null }, true), { "aria-label": say`Leave the selection`, title: say`Leave the selection (Esc)` })),
    h("p", { class: "acts" }, button(say`Look closer`, () => this.zoom(sel), { class: "act" }),
      h("a", { class: "act", href: app.address({ ...q, view: "requests", ep }) }, say`Its slowest requests`),
      h("a", { class: "act", href: app.address({ view: "flame", sel }) }, say`Stacks against the rest`),
      h("a", { class: "act", href: app.address({ ...q, view: "waits" }) }, say`Waits`))];
  }

  rows(rows) {
    if (!rows.length) return h("p", { class: "soft" }, say`Nothing differs from the rest of the time that is shown.`);
    const groups = Map.groupBy ? Map.groupBy(rows, (r) => r.dimension) : rows.reduce((m, r) => m.set(r.dimension, [...(m.get(r.dimension) || []), r]), new Map());
    return [...groups].map(([dimension, list]) => h("section", {}, h("h3", {}, titles[dimension] || clean(dimension, 60)), h("ul", { class: "differs" }, list.slice(0, 8).map((r) => this.row(r)))));
  }

  row(r) {
    const unit = r.unit || (r.dimension === "ledger part" ? "us" : r.inside <= 1 && r.outside <= 1 ? "share" : "count");
    const write = unit === "us" ? micros : unit === "share" ? small : count, most = Math.max(r.inside || 0, r.outside || 0) || 1;
    const p = r.dimension === "ledger part" ? part(r.name) : null, color = p ? p.color : "var(--accent)";
    return h("li", {}, h("p", {}, p ? h("i", { class: "dot", css: { background: color } }) : null, clean(r.text || say`${p ? p.name : r.name}: ${write(r.inside)} instead of ${write(r.outside)}`, 300), r.few ? h("span", { class: "badge", title: say`of few requests: chance may have made it` }, say`few`) : null),
      h("div", { class: "two", role: "img", "aria-label": say`here ${write(r.inside)}, rest ${write(r.outside)}, ${times(r.inside, r.outside)}` },
        h("span", { class: "soft" }, say`here`), h("i", { css: { width: `${(r.inside || 0) / most * 100}%`, background: color } }), h("b", {}, write(r.inside)),
        h("span", { class: "soft" }, say`rest`), h("i", { class: "pale", css: { width: `${(r.outside || 0) / most * 100}%`, background: color } }), h("b", {}, write(r.outside))));
  }
}
