// The page of a fleet: one view, whose time and chosen program are in the address.

import { say, languageButton } from "./language.js";
import { $, h, fill, steady, once, button, setTheme, isDark, clean, tip } from "./dom.js";
import { read, go, listen } from "./route.js";
import { ask } from "./api.js";
import { now, setNow, setRelative, isRelative, between } from "./clock.js";
import { plural } from "./figure.js";
import { when } from "./when.js";
import { serviceMap } from "./fleetmap.js";
import { whyList, tables } from "./fleetrows.js";

const EVERY = 10000, LAST = 900; // ms between two looks while live; s
const sections = [["why", say`What is wrong`], ["map", say`Map`], ["services", say`Services`], ["hosts", say`Hosts`]];
const keyList = [["1 … 4", say`sections`], ["/", say`filter services and hosts`], ["[ ]", say`earlier, later`], ["+ −", say`closer, wider`], ["L", say`pause, go on`], ["T", say`light or dark`], ["C", say`time of day, or before now`], ["Enter", say`on a program: show who calls it`], ["Esc", say`choose none, leave this help`]];

const app = { route: read(), status: {}, range: null, presets: [300, LAST, 3600, 6 * 3600, 86400], go };
const why = whyList(), map = serviceMap(choose), rows = tables((id) => { choose(id); jump("map"); });
let data = null, running = null, timer = 0, turn = 0, paused = false, help = null;

function choose(id) { go({ service: id }, true); }

function start() {
  try {
    setRelative(localStorage.getItem("slowray-clock") === "relative");
  } catch { /* storage is switched off */ }
  look();
  fill($("views"), sections.map(([id, text], i) => h("a", { href: `#${id}`, data: { to: id }, title: `${text} (${i + 1})` }, text)));
  for (const a of document.querySelectorAll("[data-to]")) a.addEventListener("click", (e) => { e.preventDefault(); jump(a.dataset.to); });
  document.addEventListener("keydown", keys);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) load(); });
  addEventListener("slowray-theme", show);
  listen(changed);
  load();
}

// jump goes to a section: the address has the time, not the place.
function jump(id) {
  const at = $(id);
  if (!at) return;
  at.scrollIntoView({ block: "start" });
  at.querySelector("h2").focus({ preventScroll: true });
}

function look() {
  let theme = app.route.theme;
  try {
    theme ||= localStorage.getItem("slowray-theme");
  } catch { /* storage is switched off */ }
  setTheme(["light", "dark"].includes(theme) ? theme : "auto");
}

function changed(route) {
  const before = app.route;
  app.route = route;
  if (before.theme !== route.theme) look();
  tip.hide();
  if (data && before.from === route.from && before.to === route.to && before.last === route.last) show(); else load();
}

async function load() {
  clearTimeout(timer);
  running?.abort();
  const mine = running = new AbortController(), my = ++turn, { route } = app;
  document.documentElement.dataset.busy = String(my);
  app.range = route.from ? { from: route.from, to: route.to, live: false } : { from: now() - (route.last || LAST), to: now(), live: true };
  head();
  try {
    const told = await ask("api/fleet", route.from ? { from: route.from, to: route.to } : { last: route.last || LAST }, mine.signal);
    if (my !== turn) return;
    data = told;
    setNow(data.now);
    app.range = { from: data.from, to: data.to, live: !route.from };
    show();
    notice(null);
  } catch (e) {
    if (e.name === "AbortError" || my !== turn) return;
    notice(e);
    if (!data) fill($("main"), h("p", { class: "wait" }, say`Nothing can be shown.`));
    if (!e.status && !("message" in e && e.name === "Error")) console.error(e);
  }
  document.documentElement.dataset.ready = String(my);
  delete document.documentElement.dataset.busy;
  if (app.range.live && !paused && !document.hidden) timer = setTimeout(again, EVERY);
}

// again looks anew, but not under the hands of somebody who chooses or marks text.
function again() {
  if (document.querySelector("details.menu[open], dialog[open]") || document.activeElement?.tagName === "SELECT" || !getSelection().isCollapsed && $("main").contains(getSelection().anchorNode)) timer = setTimeout(again, 700);
  else load();
}

function show() {
  if (!data) return;
  if (!$("why")) {
    fill($("main"), h("div", { class: "page wide fleet" }, why.element, map.element, rows.elements));
    $("main").dataset.view = "fleet";
  }
  head();
  why.show(data.why);
  map.show(data.map, data.why.causes, app.route.service);
  rows.show(data, app.route.service);
  const n = data.why.causes.length + data.why.alone.length;
  document.title = say`${n ? `▲ ${n} · ` : ""}Fleet · slowray`;
  fill($("host"), h("b", {}, plural(data.fleet.hosts, "host")), h("small", {}, [data.fleet.silent ? say`${data.fleet.silent} silent` : "", plural(data.fleet.endpoints, "endpoint")].filter(Boolean).join(" · ")));
  fill($("foot"), h("span", {}, between(data.from, data.to)), h("span", { class: "grow" }), h("span", {}, clean(data.version, 40)));
  tip.tidy();
}

function notice(e) {
  const at = $("notice");
  at.hidden = !e;
  if (e) fill(at, h("span", {}, clean(e.message || e, 300)), button(say`Try again`, () => load()));
}

function head() {
  const { range } = app, live = range.live && !paused;
  when(app);
  const text = live ? say`Live` : paused && range.live ? say`Paused` : say`Held`;
  once($("state"), [text, live], () => steady($("state"), button([h("i", { class: `lamp ${live ? "on" : ""}` }), text], () => {
    if (!app.range.live) {
      paused = false;
      return go({ from: null, to: null });
    }
    paused = !paused;
    load();
  }, { id: "live", "aria-pressed": String(live), title: live ? say`Pause (L)` : range.live ? say`Go on (L)` : say`Back to now (L)` })));
  if ($("knobs").childElementCount) return;
  fill($("knobs"), languageButton(button), button("", clockwise, { id: "clock", title: say`Time of day or time before now (C)` }), button(h("i", { class: "theme", "aria-hidden": "true" }), themed, { id: "theme", "aria-label": say`Light or dark`, title: say`Light or dark (T)` }),
    button("?", helped, { id: "help", "aria-label": say`Help and keys`, title: say`Help and keys (?)` }));
  clockTold();
}

function clockTold() {
  $("clock").textContent = isRelative() ? say`ago` : say`clock`;
  $("clock").setAttribute("aria-label", isRelative() ? say`Times are before now; show time of day` : say`Times are of day; show time before now`);
}

function clockwise() {
  setRelative(!isRelative());
  remember("slowray-clock", isRelative() ? "relative" : "clock");
  clockTold();
  show();
}

function themed() {
  const theme = isDark() ? "light" : "dark";
  remember("slowray-theme", theme);
  setTheme(theme);
  if (app.route.theme) go({ theme }, true);
}

function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch { /* storage is switched off: it holds for this page */ }
}

function helped() {
  if (closeHelp()) return;
  const before = document.activeElement;
  help = h("dialog", { "aria-label": say`Help and keys`, on: { close: () => { closeHelp(); before?.focus?.(); }, click: (e) => { if (e.target === help) closeHelp(); } } }, h("h2", {}, say`The fleet`),
    h("p", {}, say`What is abnormal, what the abnormal have in common, and where it comes from stands above; then who calls whom, the services and the hosts. All of it is of the time that is chosen above, which is in the address: copy it to show somebody else the same.`),
    h("h2", {}, say`Keys`), h("dl", { class: "keys" }, keyList.map(([k, text]) => [h("dt", {}, h("kbd", {}, k)), h("dd", {}, text)])), button(say`Close`, closeHelp, { autofocus: true }));
  document.body.append(help);
  help.showModal();
}

function closeHelp() {
  if (!help) return false;
  help.remove();
  help = null;
  return true;
}

function keys(e) {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === "Escape" && closeHelp()) return;
  if (e.target.closest?.("input, select, textarea")) {
    if (e.key === "Escape") e.target.blur();
    return;
  }
  const n = Number(e.key);
  if (n >= 1 && n <= sections.length) jump(sections[n - 1][0]);
  else if (e.key === "Escape" && app.route.service) choose(null);
  else if (e.key === "?") helped();
  else if (e.key === "/" && document.querySelector("[data-search]")) document.querySelector("[data-search]").focus();
  else if (e.key === "l") $("live")?.click();
  else if (e.key === "t") themed();
  else if (e.key === "c") clockwise();
  else if ("[]+-".includes(e.key) && app.range) move(e.key);
  else return;
  e.preventDefault();
}

// move shifts the range by half of it, or halves or doubles it.
function move(key) {
  const { from, to } = app.range, half = (to - from) / 2, by = { "[": [-half, -half], "]": [half, half], "+": [half / 2, -half / 2], "-": [-half, half] }[key];
  const end = Math.min(now(), to + by[1]), length = end - (from + by[0]);
  if (length >= 60 && length <= 86400) go({ from: from + by[0], to: end, last: null });
}

start();
