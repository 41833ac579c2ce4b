// The shell: what is shown is in the address; views are loaded when they are needed.

import { say, languageButton } from "./language.js";
import { $, h, fill, steady, once, button, setTheme, isDark, empty, clean, tip } from "./dom.js";
import { read, go, listen, address } from "./route.js";
import { ask } from "./api.js";
import { now, setNow, setRelative, isRelative, between, span } from "./clock.js";
import { bytes, count, percent, plural, seconds } from "./figure.js";
import { when } from "./when.js";
import { help, closeHelp } from "./help.js";

const tabs = [["timeline", say`Time line`], ["findings", say`Findings`], ["requests", say`Requests`], ["waits", say`Waits`], ["flame", say`Flame graph`], ["drops", say`Drops`], ["proofs", say`Proofs`]];
const modules = { timeline: "timeline", findings: "findings", requests: "requests", request: "request", waits: "waits", flame: "flame", drops: "drops", proofs: "proofs" };
const EVERY = 5000, BUSY = 700; // ms between two looks while live
const LATE = 10; // s that a target may be behind before it is reported

// app is what every view may use.
export const app = { route: read(), status: null, range: null, paused: false, losses: new Map(), go, address, ask, reload: () => load() };

let view = null, shown = "", running = null, timer = 0, turn = 0, picked = 0; // ms: when somebody last used a list to choose from

// rangeOf is the time that is shown: chosen, or the last while up to now.
function rangeOf(route, status) {
  const span = status?.span || {}, end = status?.recording === false ? span.to || now() : now();
  if (route.from) return { from: route.from, to: route.to, live: false };
  const last = route.last || 900;
  const first = span.from ? Math.max(end - last, Math.min(span.from, end - 60)) : end - last;
  const step = Math.max(1, Math.round((end - first) / 300)); // whole steps, so that what is drawn moves and does not tremble
  return { from: Math.floor(first / step) * step, to: Math.ceil(end / step) * step, live: true };
}

async function start() {
  try {
    setRelative(localStorage.getItem("slowray-clock") === "relative");
  } catch { /* storage is switched off */ }
  look();
  fill($("views"), tabs.map(([id, text], i) => h("a", { data: { view: id }, href: address({ view: id }), title: `${text} (${i + 1})` }, text)));
  document.addEventListener("keydown", keys);
  for (const what of ["pointerdown", "keydown"]) document.addEventListener(what, (e) => { if (e.target.tagName === "SELECT") picked = Date.now(); });
  listen(changed);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) load(); });
  addEventListener("slowray-theme", () => load());
  await changed(app.route);
}

function look() {
  let theme = app.route.theme;
  try {
    theme ||= localStorage.getItem("slowray-theme");
  } catch { /* storage is switched off */ }
  setTheme(["light", "dark"].includes(theme) ? theme : "auto");
}

async function changed(route) {
  const before = app.route;
  app.route = route;
  if (before.theme !== route.theme) look();
  tip.hide();
  nav();
  leave(route.view);
  $("main").classList.add("stale"); // until what the new address asks for is there
  await load();
}

// leave takes away what is shown of another view: what stands under a tab is always its own,
// however long its answer takes.
function leave(next) {
  if (!view || shown === next) return;
  view.end?.();
  view = null;
  app.losses.clear();
  fill($("main"), h("p", { class: "wait" }, say`Loading…`));
  delete $("main").dataset.view;
  scrollTo(0, 0);
}

function nav() {
  const shown = app.route.view === "request" ? "requests" : app.route.view;
  for (const a of $("views").children) {
    a.setAttribute("href", address({ view: a.dataset.view }));
    if (a.dataset.view === shown) {
      a.setAttribute("aria-current", "page");
      if (a.offsetLeft + a.offsetWidth > $("views").clientWidth + $("views").scrollLeft || a.offsetLeft < $("views").scrollLeft) $("views").scrollLeft = a.offsetLeft - 20;
    } else a.removeAttribute("aria-current");
  }
  const host = app.status?.host?.name;
  document.title = `${tabs.find(([id]) => id === shown)[1]}${host ? ` · ${clean(host, 60)}` : ""} · slowray`;
}

// load asks for what the view shows, and makes the view first where it is another one.
async function load() {
  clearTimeout(timer);
  running?.abort();
  const mine = running = new AbortController(), signal = mine.signal, my = ++turn;
  document.documentElement.dataset.busy = String(my);
  try {
    const status = await ask("api/status", {}, signal);
    if (my !== turn) return;
    app.status = status;
    setNow(app.status.now);
    app.range = rangeOf(app.route, app.status);
    nav();
    head();
    if (!view) {
      const name = app.route.view, made = (await import(`./${modules[name]}.js`)).default(app);
      if (my !== turn) return;
      [view, shown] = [made, name];
      fill($("main"), view.element);
      $("main").dataset.view = name;
    }
    await view.load(app.range, signal);
    if (my !== turn) return;
    $("main").classList.remove("stale");
    notice(null);
  } catch (e) {
    if (e.name === "AbortError" || my !== turn) return;
    notice(e);
    if (!view) fill($("main"), empty(say`Nothing can be shown.`, e.message)); // the message has a button that tries again
    if (!e.status && !("message" in e && e.name === "Error")) console.error(e);
  }
  document.documentElement.dataset.ready = String(my);
  delete document.documentElement.dataset.busy;
  foot();
  const live = !app.paused && app.range?.live && !document.hidden && view?.live !== false && app.status?.recording !== false;
  tip.tidy();
  if (live || !app.status) timer = setTimeout(again, EVERY);
}

// again looks anew, but not under the hands of somebody who chooses, drags or marks text.
function again() {
  const chooses = document.querySelector("details.menu[open], dialog[open], .dragging") || Date.now() - picked < 8000 && document.activeElement?.tagName === "SELECT" || !getSelection().isCollapsed && $("main").contains(getSelection().anchorNode);
  if (chooses) timer = setTimeout(again, BUSY); else load();
}

function notice(e) {
  const at = $("notice");
  at.hidden = !e;
  if (e) fill(at, h("span", {}, clean(e.message || e, 300)), button(say`Try again`, () => load()));
}

function head() {
  const { status, range } = app, host = status.host || {};
  fill($("host"), h("bdi", { class: "name", title: clean(host.name, 300) }, clean(host.name, 60)), h("small", {}, [host.cpus && plural(host.cpus, "CPU"), host.kernel && `Linux ${clean(host.kernel, 40)}`].filter(Boolean).join(" · ")));
  when(app);
  const stopped = status.recording === false, live = range.live && !app.paused && !stopped;
  const text = stopped ? say`Recording ended` : live ? say`Live` : app.paused ? say`Paused` : say`Held`;
  once($("state"), [text, live, range.live], () => steady($("state"), button([h("i", { class: `lamp ${live ? "on" : ""}` }), text], () => {
    if (!range.live) {
      app.paused = false;
      return go({ from: null, to: null, sel: null });
    }
    app.paused = !app.paused;
    load();
  }, { id: "live", "aria-pressed": String(live), disabled: stopped && range.live, title: live ? say`Pause (L)` : range.live ? say`Go on (L)` : say`Back to now (L)` })));
  if ($("knobs").childElementCount) return;
  fill($("knobs"),
    languageButton(button),
    button("", clockwise, { id: "clock", title: say`Time of day or time before now (C)` }),
    button(h("i", { class: "theme", "aria-hidden": "true" }), themed, { id: "theme", "aria-label": say`Light or dark`, title: say`Light or dark (T)` }),
    button("?", help, { id: "help", "aria-label": say`Help and keys`, title: say`Help and keys (?)` }));
  $("clock").textContent = isRelative() ? say`ago` : say`clock`;
  $("clock").setAttribute("aria-label", isRelative() ? say`Times are before now; show time of day` : say`Times are of day; show time before now`);
}

function clockwise() {
  setRelative(!isRelative());
  remember("slowray-clock", isRelative() ? "relative" : "clock");
  $("clock").textContent = isRelative() ? say`ago` : say`clock`;
  $("clock").setAttribute("aria-label", isRelative() ? say`Times are before now; show time of day` : say`Times are of day; show time before now`);
  load();
}

function themed() {
  const theme = isDark() ? "light" : "dark";
  remember("slowray-theme", theme);
  setTheme(theme);
  if (app.route.theme) go({ theme }, true); else load();
}

function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch { /* storage is switched off: it holds for this page */ }
}

// foot says what of all that is shown was sampled or lost.
function foot() {
  const { status } = app, lost = new Map();
  for (const list of [status?.losses, ...app.losses.values()]) for (const l of list || []) lost.set(l.what, Math.max(lost.get(l.what) || 0, l.count || 0));
  const cost = status?.stats?.cost_cpu_share;
  const rows = [...lost].map(([what, n]) => h("li", {}, n > 0 ? say`${clean(what, 300)}: ${count(n)}` : clean(what, 300)));
  const open = $("lost")?.open || false;
  steady($("foot"), rows.length ? h("details", { id: "lost", open }, h("summary", {}, say`Sampled or lost: ${plural(rows.length, "entry", "entries")}`), h("ul", {}, rows)) : h("span", { id: "lost" }, say`Complete: nothing of this was sampled or lost.`),
    sent(status?.shipping),
    h("span", { class: "grow" }),
    app.range ? h("span", { title: say`times are those of ${Intl.DateTimeFormat().resolvedOptions().timeZone}` }, between(app.range.from, app.range.to)) : null,
    cost !== undefined && cost !== null ? h("span", { title: say`of the time of one CPU` }, say`slowray takes ${percent(cost)} of a CPU`) : null,
    status?.span?.from ? h("span", {}, say`history: ${span(status.span.to - status.span.from)}`) : null,
    status?.version ? h("span", {}, clean(status.version, 40)) : null);
}

// sent is how far each target is that what is recorded is sent to (record --to).
function sent(list) {
  return (list || []).map((t) => {
    const late = t.behind_seconds >= LATE, lost = (t.gave_up > 0 ? say`, ${count(t.gave_up)} given up` : "") + (t.refused > 0 ? say`, ${count(t.refused)} refused` : "");
    const how = t.history ? (t.waiting_bytes > 0 ? say`about ${count(t.waiting)} records wait` : say`all sent`) : late ? say`${seconds(t.behind_seconds)} behind, ${bytes(t.waiting_bytes)} wait` : say`up to date`;
    const last = t.last_error ? say`, last error: ${clean(t.last_error, 300)}` : "";
    return h("span", { class: t.error || late || lost ? "bad" : "", data: { sent: "" }, title: say`${count(t.sent)} records sent, about ${count(t.waiting)} wait${lost}${last}` },
      say`to ${clean(t.url, 60)}: ${how}${lost}${t.error ? say`; fails: ${clean(t.error, 120)}` : ""}`);
  });
}

function keys(e) {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const typing = e.target.closest?.("input, select, textarea");
  if (e.key === "Escape" && closeHelp()) return;
  if (typing) {
    if (e.key === "Escape") e.target.blur();
    return;
  }
  const n = Number(e.key), { range } = app;
  if (n >= 1 && n <= tabs.length) go({ view: tabs[n - 1][0] });
  else if (e.key === "?") help();
  else if (e.key === "/" && document.querySelector("[data-search]")) document.querySelector("[data-search]").focus();
  else if (e.key === "l") $("live")?.click();
  else if (e.key === "t") themed();
  else if (e.key === "c") clockwise();
  else if ("[]+-".includes(e.key) && range) move(e.key);
  else return;
  e.preventDefault();
}

// move shifts the range by half of it, or halves or doubles it.
function move(key) {
  const { from, to } = app.range, half = (to - from) / 2, by = { "[": [-half, -half], "]": [half, half], "+": [half / 2, -half / 2], "-": [-half, half] }[key];
  const end = Math.min(now(), to + by[1]);
  if (end - (from + by[0]) >= 2) go({ from: from + by[0], to: end, last: null });
}

start();
