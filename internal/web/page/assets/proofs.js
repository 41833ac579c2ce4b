// Proofs: one change made, measured and put back; blocks before, with and after it.

import { say, marks } from "./language.js";
import { h, s, clean, steady, empty, tells } from "./dom.js";
import { nanos, micros, percent, rate, plural } from "./figure.js";
import { clock, ago } from "./clock.js";
import { menu, saveJSON, saveSVG } from "./export.js";

const phases = ["before", "with", "after"], phaseWords = { before: say`before`, with: say`with`, after: say`after` };
const writes = { "1/s": (v) => `${rate(v)}/s`, share: percent, ns: nanos };
const verdicts = { proved: say`proved`, "no effect": say`no effect`, "no-effect": say`no effect`, "made it worse": say`made it worse`, worse: say`worse`, "too little traffic": say`too little traffic`, undecided: say`undecided`, unclear: say`not clear`, "not-made": say`not made`, untried: say`not tried`,
  healthy: say`healthy`, stuck: say`stuck`, time: say`out of time`, interrupted: say`interrupted`, harm: say`harmed`, failed: say`failed`, "dry-run": say`dry run` };
const verdict = (v) => verdicts[v] || clean(v, 40);
const outcomes = { better: say`better`, worse: say`worse`, same: say`the same`, unclear: say`not clear`, shown: say`for comparison` };

// plot draws each block as a point, by phase, with the median of each phase.
function plot(e) {
  const write = writes[e.unit] || rate, all = phases.flatMap((p) => e[p]?.blocks || []), most = Math.max(...all, 0) * 1.1 || 1, wide = 620, high = 118, low = high - 22, one = (wide - 70) / 3;
  const y = (v) => low - v / most * (low - 8);
  const svg = s("svg", { class: "proof-plot", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `${clean(e.metric, 80)}: ${phases.map((p) => `${phaseWords[p]} ${write(e[p]?.median)}`).join(", ")}` },
    [0, most / 2.2, most / 1.1].map((v) => [s("line", { class: v ? "grid" : "base", x1: 64, x2: wide - 4, y1: y(v), y2: y(v) }), s("text", { class: "tick", x: 58, y: y(v) + 3.5, "text-anchor": "end" }, write(v))]),
    phases.map((p, i) => {
      const blocks = e[p]?.blocks || [], x0 = 66 + i * one, med = e[p]?.median;
      return s("g", { class: `phase ${p}` }, s("rect", { class: "ground", x: x0, y: 4, width: one - 4, height: low - 4 }), blocks.map((v, k) => s("circle", { cx: x0 + (k + 1) / (blocks.length + 1) * (one - 4), cy: y(v), r: 4 })),
        med !== undefined && blocks.length ? [s("line", { class: "median", x1: x0 + 6, x2: x0 + one - 10, y1: y(med), y2: y(med) })] : null,
        s("text", { class: "tick", x: x0 + one / 2, y: high - 6, "text-anchor": "middle" }, blocks.length ? `${phaseWords[p]}: ${write(med)}` : `${phaseWords[p]}: –`));
    }));
  return tells(svg, () => [h("b", {}, clean(e.metric, 100)), ...phases.map((p) => h("div", {}, `${phaseWords[p]}: ${(e[p]?.blocks || []).map(write).join(", ") || "–"}`))]);
}

const ms = (v) => v === null || v === undefined ? "–" : micros(v * 1000);

// loop is a run of slowray tune: one change after the other, kept or undone.
function loop(p, i) {
  const row = (f) => f ? [say`${rate(f.good_per_s)}/s good`, `p99 ${ms(f.p99_ms)}`].join(", ") : "–";
  return h("details", { class: `finding ${p.ending === "healthy" ? "proven" : "light"}`, open: i === 0 },
    h("summary", { "data-key": `tune${p.at}` }, h("span", { class: "bar", "aria-hidden": "true" }), h("span", { class: "what" }, h("b", {}, say`Tuning of ${clean(p.service, 80)}`), h("span", { class: "soft" }, `${plural((p.steps || []).length, "step")}: ${row(p.first)} → ${row(p.last)}`)),
      h("span", { class: "much" }, h("span", { class: `badge ${p.ending === "healthy" ? "good" : ""}` }, verdict(p.ending))), h("span", { class: "since" }, [clock(p.at), ", ", ago(p.at)])),
    h("div", { class: "body" }, h("p", {}, clean(p.text, 800)),
      h("table", { class: "plain evidence" }, (p.steps || []).map((x) => h("tr", {}, h("td", {}, h("b", {}, clean(x.title, 120)), h("div", { class: "soft" }, (x.changes || []).map((c) => clean(c.text, 160)).join("; "))),
        h("td", {}, h("span", { class: `badge ${x.verdict === "proved" ? "good" : x.verdict === "worse" ? "bad" : ""}` }, verdict(x.verdict)), x.kept ? say` kept` : say` undone`), h("td", { class: "n" }, `${rate(x.before?.good_per_s)} → ${rate(x.with?.good_per_s)} → ${rate(x.after?.good_per_s)} /s`), h("td", { class: "soft" }, clean(x.text, 300))))),
      p.left?.length ? h("p", { class: "soft" }, say`Left: ${p.left.map((x) => `${clean(x.title, 80)} (${clean(x.because, 160)})`).join("; ")}.`) : null));
}

function proof(p, i) {
  if (String(p.schema).startsWith("slowray.tune/")) return loop(p, i);
  const r = p.result, good = r?.verdict === "proved";
  return h("details", { class: `finding ${good ? "proven" : "light"}`, open: i === 0 },
    h("summary", { "data-key": `${p.cause}${p.at}` }, h("span", { class: "bar", "aria-hidden": "true" }), h("span", { class: "what" }, h("b", {}, clean(p.title || p.cause, 200)), h("span", { class: "soft" }, p.service?.comm ? `${clean(p.service.comm, 60)}${p.service.port ? ` :${p.service.port}` : ""}` : clean(p.host, 60))),
      h("span", { class: "much" }, h("span", { class: `badge ${good ? "good" : ""}` }, r?.verdict ? verdict(r.verdict) : say`not applied`)), h("span", { class: "since" }, p.at ? (typeof p.at === "number" ? [clock(p.at), ", ", ago(p.at)] : clean(p.at, 40)) : "")),
    h("div", { class: "body" }, r ? h("p", {}, clean(r.why, 600)) : h("p", {}, say`What would be changed; nothing was.`),
      (r?.effects || []).map((e) => {
        const svg = plot(e);
        return h("figure", { class: "chart" }, h("figcaption", {}, h("b", {}, clean(e.metric, 80)), h("small", {}, e.better === "higher" ? say`higher is better` : say`lower is better`), h("span", { class: `badge ${e.outcome === "better" ? "good" : e.outcome === "worse" ? "bad" : ""}` }, outcomes[e.outcome] || clean(e.outcome, 20)),
          e.ratio > 0 ? h("small", {}, `×${e.ratio.toPrecision(2)}${e.high > 0 ? say` (${e.low.toPrecision(2)} to ${e.high.toPrecision(2)}, ${percent(e.confidence)} sure)` : ""}`) : null, h("span", { class: "grow" }), menu(e.metric, [[say`Drawing (SVG)`, () => saveSVG(svg, `${p.cause} ${e.metric}`)]])), svg);
      }),
      (p.steps || []).map((x) => h("div", { class: "commands" }, h("span", { class: "soft" }, x.was ? say`was ${clean(x.was, 120)}` : say`changed`), h("pre", { tabindex: "0" }, [...(x.do || []), ...(x.undo || []).map((u) => `# back: ${u}`)].map((c) => clean(c, 1000)).join("\n")))),
      h("p", { class: "soft" }, r ? `${plural(r.rounds || 1, "round")}${marks.stop}${r.undone ? say`The change was put back.` : p.kept ? say`The change was kept: ${clean(p.kept, 300)}.` : say`The change was not put back: slowray undo.`}` : "")));
}

export default function view(app) {
  const bar = h("div", { class: "bar" }), list = h("div", { class: "cards" }), element = h("div", { class: "page" }, bar, list);
  let last = "";
  async function load(range, signal) {
    const d = await app.ask("api/proofs", {}, signal), all = d.proofs || [], sign = JSON.stringify(all);
    app.losses.set("proofs", d.losses);
    if (sign === last) return;
    last = sign;
    steady(bar, h("h1", {}, say`Proofs`), h("small", { class: "soft" }, say`one change, measured before, with and after it`), h("span", { class: "grow" }), menu(say`proofs`, [[say`All of it (JSON)`, () => saveJSON(d, "proofs")]]));
    steady(list, all.length ? all.map(proof) : empty(say`No proof was made on this host yet.`, say`A finding that can be proved says how: slowray prove CAUSE --apply changes one thing, measures, and puts it back.`));
  }
  return { element, load };
}
