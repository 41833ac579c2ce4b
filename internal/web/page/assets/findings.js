// Findings: what is wrong, since when, how sure, and how to fix it.

import { say, columns, marks } from "./language.js";
import { h, clean, button, fill, steady, empty, name, tells } from "./dom.js";
import { count, evidence, micros, percent, plural, rate } from "./figure.js";
import { clock, span, moment, other, now } from "./clock.js";
import { menu, saveCSV, saveJSON } from "./export.js";
import { Plot, spark, right } from "./chart.js";
import { pace, who } from "./endpoints.js";

// level is how grave a finding is, by how much of the trouble it explains.
export const level = (f) => f.role === "consequence" ? "follows" : (f.share ?? 0) >= 0.5 ? "grave" : (f.share ?? 0) >= 0.1 ? "middle" : "light";
// sorted keeps the order of the answer, which is that of every report
// (diagnose.Rank): by weight and by what it cost the host's clients.
export const sorted = (list) => (list || []).slice().sort((a, b) => (a.role === "consequence") - (b.role === "consequence"));
export const levelWords = { grave: say`explains half and more`, middle: say`explains a tenth and more`, light: say`explains less`, follows: say`follows from another finding` };
export const keyOf = (f) => `${f.cause}|${JSON.stringify(f.subject || {})}|${f.onset}`;

// ends is when a finding ended; one that goes on was seen up to the end of its last window.
export const ends = (f, to) => f.end ?? Math.min(to, now(), f.quiet ?? Infinity, f.shares?.length && f.shares.length < MOST ? f.shares.at(-1).to : Infinity);
const MOST = 500; // windows that an answer tells of
const LATE = 150; // s after its last window, from which nobody knows that it goes on: windows of a minute, judged at their end
export const bands = (list, to) => sorted(list).filter((f) => f.role !== "consequence").map((f) => ({ from: f.onset, to: ends(f, to), level: level(f), key: f.key, id: keyOf(f) }));
const over = (f) => f.end || now() - ends(f, now()) > LATE;
const began = (f) => f.before ? say`before ${moment(f.onset)}` : moment(f.onset);
// Nobody knows whether it goes on where nobody asks any more, or where nobody gets an answer.
export const lasted = (f) => over(f) ? say`${began(f)} to ${moment(ends(f, now()))} (${span(ends(f, now()) - f.onset)})` : f.quiet ? say`since ${began(f)}; no answers since ${moment(f.quiet)}` : say`since ${began(f)}, still`;

export function subject(f) {
  const x = f.subject || {}, list = [];
  if (x.comm) list.push(`${clean(x.comm, 60)}${x.pid ? ` (${x.pid})` : ""}`);
  else if (x.pid) list.push(`pid ${x.pid}`);
  if (f.where) list.push(clean(f.where, 200));
  else if (x.container) list.push(say`container ${clean(x.container, 60)}`);
  if (x.addr || x.port) list.push(`${clean(x.addr || "", 60)}${x.port ? `:${x.port}` : ""}`);
  if (x.interface) list.push(clean(x.interface, 40));
  if (x.rule) list.push(clean(x.rule, 120));
  if (x.path) list.push(clean(x.path, 120));
  return list.join(" · ") || clean(x.kind || say`host`, 40);
}

export const sentence = (f) => clean(f.text || f.impact?.text || "", 600);

function brief(f) {
  return [h("b", {}, clean(f.title, 200)), h("div", {}, subject(f)), h("div", {}, lasted(f)), f.share !== undefined && f.share !== null ? h("div", {}, say`${percent(f.share)} of ${clean(f.of, 90)}`) : null, h("div", { class: "soft" }, f.role === "consequence" ? levelWords.follows : levelWords[level(f)])];
}

// Lane draws findings on the time line of the charts below it: from onset to end.
export class Lane extends Plot {
  constructor(link, choose) {
    super(link, say`Findings`, 30);
    this.choose = choose;
    this.rows = h("div", { class: "lane", role: "group", "aria-label": say`Findings on the time line` });
    this.element = h("div", { class: "lanes", hidden: true }, this.rows, this.box);
    this.box.hidden = true;
    this.seen.observe(this.rows);
  }

  set(d) {
    Object.assign(this, d);
    this.list = sorted(d.list).filter((f) => (f.end ?? Infinity) > d.from && f.onset < d.to).slice(0, 8);
    this.element.hidden = !this.list.length;
    this.draw();
  }

  // draw lets findings that do not meet share a row. A title that has no room in
  // its bar stands after it, or before it at the right end.
  draw() {
    if (!this.list) return;
    const wide = this.wide = this.rows.clientWidth || this.wide, rows = [];
    for (const f of this.list) {
      const at = this.reached?.get(keyOf(f)) || { from: f.onset, to: ends(f, this.to) }; // as the charts below it show it
      const a = this.x(Math.max(this.from, at.from)), b = Math.max(a + 4, this.x(Math.min(this.to, at.to))), text = clean(f.title, 90), need = Math.min(columns(text) * 7.3 + 18, 430);
      const side = b - a >= Math.min(need, 150) ? "in" : b + need < wide - right || a < wide / 2 ? "after" : "before";
      const room = side === "in" ? b - a : side === "after" ? Math.min(need, wide - b) : Math.min(need, a), low = side === "before" ? a - room : a, high = side === "after" ? b + room : b;
      let row = rows.find((r) => r.every((o) => high + 4 < o.low || low > o.high + 4));
      if (!row) rows.push(row = []);
      row.push({ f, a, b, low, high, side, room, text });
    }
    steady(this.rows, rows.map((row) => h("div", { class: "row" }, row.map(({ f, a, b, side, room, text }) => tells(h("button", { type: "button", class: `mark ${level(f)}`, "data-act": "1", "data-key": keyOf(f), css: { left: `${a}px`, width: `${b - a}px`, "--room": `${room}px` },
      "aria-label": `${clean(f.title, 120)}, ${lasted(f)}`, on: { click: () => this.choose(f) } }, h("span", { class: side }, text)), () => brief(f))))));
  }

  mark() { /* the charts below show it */ }
  point() { /* as they do */ }
}

const CONVINCE = 3; // lines of evidence that stand there at once

const grounds = (list) => h("dl", { class: "grounds" }, list.map((e) => h("div", {}, h("dt", {}, clean(e.fact, 300)),
  h("dd", {}, clean(evidence(e.value, e.limit, e.unit), 800)), h("dd", { class: "source" }, clean(e.source, 200)))));

// card tells all of a finding; it opens.
export function card(f, app, open = false) {
  const fix = f.fix || {}, box = h("details", { class: `finding ${level(f)}`, open, "data-cause": clean(f.cause, 80) });
  const to = ends(f, now()), pad = Math.max(10, (to - f.onset) * 0.25);
  box.append(h("summary", { "data-key": keyOf(f) }, h("span", { class: "bar", "aria-hidden": "true" }),
    h("span", { class: "what" }, h("b", {}, clean(f.title, 200)), h("span", { class: "soft" }, subject(f))),
    h("span", { class: "much" }, f.share !== undefined && f.share !== null ? [h("b", {}, percent(f.share)), h("small", {}, say`of ${clean(f.of, 90)}`)] : null),
    h("span", { class: "since", title: f.end ? say`${other(f.onset)} to ${other(f.end)}` : other(f.onset) }, f.verdict === "proved" ? h("span", { class: "badge good" }, say`proved`) : null, lasted(f))));
  const body = h("div", { class: "body" }, h("p", {}, sentence(f)), f.shares?.length > 2 ? h("p", { class: "soft shares" }, say`how much, window by window: `, spark(f.shares.map((x) => x.share), Math.min(260, 12 + f.shares.length * 8), 22)) : null,
    f.role === "consequence" ? h("p", { class: "soft" }, f.consequence_of ? say`It follows from ${clean(f.consequence_of, 80)}: fix that first.` : say`It follows from another finding: fix that first.`) : null,
    f.evidence?.length ? [h("h3", {}, say`Evidence`), grounds(f.evidence.slice(0, CONVINCE)),
      f.evidence.length > CONVINCE ? h("details", { class: "more-grounds" }, h("summary", { "data-key": `${keyOf(f)} evidence` }, say`${f.evidence.length - CONVINCE} more`), grounds(f.evidence.slice(CONVINCE))) : null] : null,
    f.chain?.length ? h("p", { class: "soft" }, say`${plural(f.chain.length, "hop")} of waiting: ${f.chain.map((x) => clean(x.comm || x.process?.comm, 30)).join(" → ")}`) : null,
    fix.text ? h("p", {}, h("b", {}, say`Fix: `), clean(fix.text, 800)) : null,
    commands(say`Now`, fix.commands), commands(say`Permanent`, fix.persist),
    f.prove?.command ? commands(say`Prove it`, [f.prove.command]) : null,
    h("p", { class: "acts" }, h("a", { class: "act", href: app.address({ view: "timeline", ep: f.key || app.route.ep, from: f.onset - pad, to: Math.min(now(), to + pad), last: null, sel: [f.onset, to] }) }, say`Show this time`),
      f.key ? h("a", { class: "act", href: app.address({ view: "requests", ep: f.key, from: f.onset, to, last: null, sel: null }) }, say`Slowest requests in it`) : null));
  box.append(body);
  return box;
}

function commands(label, list) {
  if (!list?.length) return null;
  const text = list.map((c) => clean(c, 2000)).join("\n");
  return h("div", { class: "commands" }, h("span", { class: "soft" }, label), h("pre", { tabindex: "0", "aria-label": say`${label}: commands` }, text),
    button(say`Copy`, async (e) => {
      try {
        await navigator.clipboard.writeText(text);
        e.target.textContent = say`Copied`;
      } catch {
        getSelection().selectAllChildren(e.target.previousSibling);
        e.target.textContent = say`Selected`;
      }
    }));
}

// verdict is the first line, as a report has it: PROBLEM, OK or UNKNOWN, of whom, and how
// bad it is.
export function verdict(d, endpoints, app) {
  const roots = (d.findings || []).filter((f) => f.role !== "consequence"), served = (endpoints || []).filter((e) => e.side === "served");
  const line = (word, level, ...text) => h("p", { class: `verdict-line ${level}`, role: "status" }, h("b", {}, word), text);
  if (roots.length) {
    const f = sorted(roots)[0], e = f.key && (endpoints || []).find((x) => x.key === f.key), errors = e?.requests > 0 ? e.errors / e.requests : 0; // all of one finding
    const text = e ? [name(who(e), "strong"), ` ${e.side === "called" ? "→ " : ""}:${e.port}\u2003p99 ${micros(e.total_us?.p99)}`, errors >= 0.005 ? say`, ${percent(errors)} errors` : ""] : [subject(f)];
    return line(say`PROBLEM`, "problem", text, marks.colon, clean(f.title, 200), over(f) || f.quiet ? `${marks.comma}${lasted(f)}` : say` since ${began(f)}`, roots.length > 1 ? `${marks.semicolon}${plural(roots.length, "cause")}` : "");
  }
  if (d.judged === null) return line(say`UNKNOWN`, "unknown", say`nothing was judged in this time yet: a window is judged at its end, each minute by default`);
  const unchecked = d.not_checked?.length || 0, out = d.ruled_out?.length || 0;
  if (unchecked > out) return line(say`UNKNOWN`, "unknown", say`${unchecked} of ${unchecked + out} causes could not be checked`);
  if (!served.length) return line(say`OK`, "ok", say`no TCP service had traffic`);
  return line(say`OK`, "ok", say`${plural(served.length, "service")}, ${rate(served.reduce((a, e) => a + pace(e, app), 0))} req/s, p99 ${micros(Math.max(...served.map((e) => e.total_us?.p99 || 0)))}${served.length > 1 ? say` at most` : ""}`);
}

// rest is what else was looked for, in a line.
const rest = (d, app) => d.judged === null || !d.ruled_out?.length && !d.not_checked?.length ? null
  : h("p", { class: "soft rest-line" }, h("a", { href: app.address({ view: "findings" }) }, say`${count(d.ruled_out?.length || 0)} causes ruled out`), d.not_checked?.length ? say`, ${count(d.not_checked.length)} not checked` : "", say` in the last window`);

// strip shows the gravest findings in a row, above the time line.
export function strip(d, app) {
  const list = d.findings;
  const some = sorted(list).filter((f) => f.role !== "consequence"), follow = (list || []).length - some.length;
  if (!some.length) return rest(d, app);
  return [h("div", { class: "strip-findings" }, some.slice(0, 3).map((f) => h("a", { class: `brief ${level(f)}`, href: app.address({ view: "findings", cause: keyOf(f).slice(0, 200) }), "data-key": keyOf(f) },
    h("b", {}, clean(f.title, 120)), h("span", {}, subject(f)), h("span", { class: "soft" }, [f.share !== undefined && f.share !== null ? [say`${percent(f.share)} of ${clean(f.of, 90)}`, " · "] : "", lasted(f)]), f.fix?.commands?.length ? h("code", { class: "fix", title: say`the fix, first command` }, clean(f.fix.commands[0], 300)) : null)),
    some.length > 3 || follow ? h("a", { class: "brief rest", href: app.address({ view: "findings" }) }, [some.length > 3 ? h("b", {}, say`${some.length - 3} more`) : null, follow ? h("span", { class: "soft" }, plural(follow, "consequence")) : null, h("span", {}, say`All findings`)]) : null), rest(d, app)];
}

// The view of all of them, with what was ruled out and not checked.
export default function view(app) {
  const line = h("div", { class: "verdict" }), top = h("div", { class: "bar" }), list = h("div", { class: "cards" }), others = h("div", {}), element = h("div", { class: "page" }, line, top, list, others), open = new Set();
  let fresh = true, cause = null; // the one that was asked for
  async function load(range, signal) {
    const at = { from: range.from, to: range.to }, [d, known] = await Promise.all([app.ask("api/findings", at, signal), app.ask("api/endpoints", at, signal)]);
    app.losses.set("findings", d.losses);
    const all = sorted(d.findings);
    if (app.route.cause !== cause) fresh = true;
    cause = app.route.cause;
    for (const c of list.querySelectorAll("details")) open[c.open ? "add" : "delete"](c.firstChild.dataset.key);
    steady(line, verdict(d, known.endpoints, app));
    fill(top, h("h1", {}, all.length ? plural(all.filter((f) => f.role !== "consequence").length, "cause") : say`Nothing found`), h("span", { class: "grow" }),
      menu(say`findings`, [[say`Table (CSV)`, () => saveCSV(["cause", "title", "role", "verdict", "share", "of", "subject", "onset", "end", "text"], all.map((f) => [f.cause, f.title, f.role, f.verdict, f.share, f.of, subject(f), clock(f.onset), f.end ? clock(f.end) : "", f.text]), "findings")], [say`All of it (JSON)`, () => saveJSON(d, "findings")], [say`Report (JSON)`, `api/report?from=${range.from}&to=${range.to}`]]));
    steady(list, all.length ? all.map((f, i) => card(f, app, open.has(keyOf(f)) || fresh && (app.route.cause ? keyOf(f).startsWith(app.route.cause) : i === 0)))
      : d.judged === null ? empty(say`Nothing was judged in this time yet.`, say`Findings come at the end of each window, a minute by default.`) : empty(say`No cause of slowness was found in this time.`, say`If something was slow: drag over that time in the time line to see what differed, choose a longer time above, or judge now: ${h("code", {}, "slowray why")}.`));
    for (const c of list.querySelectorAll("details.more-grounds")) c.open = open.has(c.firstChild.dataset.key);
    fill(others, lists(say`Ruled out`, d.ruled_out, say`in the last window`), lists(say`Not checked`, d.not_checked, say`with the reason`));
    if (fresh && cause) list.querySelector(".finding[open]")?.scrollIntoView({ block: "start" });
    fresh = false;
  }
  return { element, load };
}

function lists(title, list, what) {
  if (!list?.length) return null;
  return h("details", { class: "ruled" }, h("summary", {}, `${title} (${count(list.length)})`, h("small", { class: "soft" }, ` ${what}`)),
    h("table", { class: "plain" }, list.map((x) => h("tr", {}, h("td", { class: "mono" }, clean(x.cause, 80)), h("td", {}, clean(x.because, 500))))));
}

