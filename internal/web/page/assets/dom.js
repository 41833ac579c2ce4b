// Elements. Text from the host is only ever set as text: nothing here takes markup.

import { say } from "./language.js";

const SVG = "http://www.w3.org/2000/svg";

// h makes an element. props: on (listeners), css (properties, set through the
// object model, which the page's policy allows), data, and anything else as an attribute
// or, for true and false, a property.
export function h(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  dress(e, props);
  append(e, children);
  return e;
}

// s is h for SVG.
export function s(tag, props = {}, ...children) {
  const e = document.createElementNS(SVG, tag);
  dress(e, props);
  append(e, children);
  return e;
}

function dress(e, props) {
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (key === "on") for (const [name, f] of Object.entries(value)) e.addEventListener(name, f);
    else if (key === "css") for (const [name, v] of Object.entries(value)) e.style.setProperty(name, v);
    else if (key === "data") Object.assign(e.dataset, value);
    else if (key === "text") e.textContent = value;
    else if (key === "value" || typeof value === "boolean" && !key.startsWith("aria-")) e[key] = value;
    else e.setAttribute(key, value);
  }
}

function append(e, children) {
  for (const c of children.flat(3)) if (c !== null && c !== undefined && c !== false) e.append(c);
}

export const $ = (id) => document.getElementById(id);

export function fill(e, ...children) {
  e.replaceChildren();
  append(e, children);
  return e;
}

// steady is fill that keeps the focus where it was: on the element with the same key or place.
export function steady(at, ...children) {
  const old = document.activeElement, inside = at !== old && at.contains(old), key = inside ? old.dataset.key : null;
  const reach = () => [...at.querySelectorAll("a[href], button, input, select, summary, [tabindex]")];
  const place = inside ? reach().indexOf(old) : -1, down = at.scrollTop;
  fill(at, children);
  at.scrollTop = down;
  if (inside) (key && reach().find((e) => e.dataset.key === key) || reach()[place])?.focus({ preventScroll: true });
  return at;
}

// once calls f when what it is made from has changed since it was last called for an element.
const made = new WeakMap();
export function once(at, from, f) {
  const sign = JSON.stringify(from);
  if (made.get(at) === sign) return;
  made.set(at, sign);
  f();
}

// clean is a name from the host that may hold anything: what would move the
// text about or hide is made visible, and its middle is left out when it is long.
export function clean(text, most = 160) {
  let t = String(text ?? "");
  if (t.length > most) t = `${t.slice(0, most * 0.6)} … ${t.slice(-most * 0.3)}`;
  return t.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, "\ufffd");
}

// name shows a name from the host: cut to the room there is, whole in its title.
export function name(text, cls = "") {
  return h("bdi", { class: `name ${cls}`, title: clean(text, 600) }, clean(text));
}

// tip is the one floating explanation. It follows the pointer and never takes focus.
export const tip = {
  owner: null, // the element it tells of; without it, it hides
  tidy() { if (tip.owner && !tip.owner.isConnected) tip.hide(); },
  show(x, y, ...children) {
    tip.owner = null;
    const e = fill($("tip"), children);
    e.hidden = false;
    const w = e.offsetWidth, high = e.offsetHeight;
    e.style.left = `${Math.max(6, Math.min(x + 14, innerWidth - w - 8))}px`;
    e.style.top = `${Math.max(6, y + 18 + high > innerHeight ? y - high - 12 : y + 16)}px`;
  },
  hide() { $("tip").hidden = true; },
};

// tells gives an element an explanation on hovering and on focus.
export function tells(e, make) {
  e.addEventListener("pointermove", (ev) => { if (ev.pointerType !== "touch") { tip.show(ev.clientX, ev.clientY, make()); tip.owner = e; } });
  e.addEventListener("pointerleave", tip.hide);
  e.addEventListener("focus", () => {
    if (!e.matches(":focus-visible")) return;
    const box = e.getBoundingClientRect();
    tip.show(box.left, box.bottom - 8, make());
    tip.owner = e;
  });
  e.addEventListener("blur", tip.hide);
  return e;
}

export const button = (text, click, props = {}) => h("button", { type: "button", on: { click }, ...props }, text);

// choice is a row of buttons of which one is pressed.
export function choice(label, list, chosen, choose) {
  return h("div", { class: "choice", role: "group", "aria-label": label },
    list.map(([value, text, title]) => button(text, () => choose(value), { "aria-pressed": String(value === chosen), title })));
}

export const empty = (what, ...todo) => h("div", { class: "empty" }, h("p", {}, what), todo.length ? h("p", { class: "soft" }, todo) : null);

// quiet says what to do where no request is in the time that is shown.
export function quiet(app) {
  const { status, range } = app, span = status?.span, all = span && h("a", { class: "act", href: app.address({ from: Math.floor(span.from), to: Math.ceil(span.to), last: null, sel: null }) }, say`Show all that is stored`);
  if (!span && status?.recording === false) return empty(say`This history is empty.`, say`Record one: ${h("code", {}, "slowray record")}, and open the address that it prints.`);
  if (!span) return empty(say`Nothing is recorded yet.`, say`Requests of every TCP service on this host appear here by themselves, within seconds: send one, for example with ${h("code", {}, "curl")}.`);
  const older = span.from < range.from - 1 || span.to > range.to + 60;
  return empty(say`No request was seen in this time.`, status.recording === false ? say`Nobody records into this history now. ` : say`Requests of every TCP service on this host appear by themselves: send one, or choose a longer time above. With --own-namespace only those of one network namespace are recorded. `, older ? all : null);
}

let dark = null;
const prefers = matchMedia("(prefers-color-scheme: dark)");

// isDark says how the page looks now; setTheme chooses "light", "dark" or "auto".
export const isDark = () => dark ?? prefers.matches;
export function setTheme(theme) {
  dark = theme === "dark" ? true : theme === "light" ? false : null;
  document.documentElement.dataset.theme = theme;
}
prefers.addEventListener("change", () => dispatchEvent(new Event("slowray-theme")));
