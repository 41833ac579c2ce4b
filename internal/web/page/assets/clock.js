// Time as people read it, of day or before now; where the host's clock, not this
// computer's, is "now".

import { say } from "./language.js";

let offset = 0; // s, the host's clock less this one's
let relative = false;

export const setNow = (s) => { if (s > 0) offset = s - Date.now() / 1000; };
export const now = () => Date.now() / 1000 + offset;
export const isRelative = () => relative;
export const setRelative = (yes) => { relative = yes; };

const two = (n) => String(n).padStart(2, "0");
const day = (d) => `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;

// clock is a time of day; fine adds milliseconds. Another day is named.
export function clock(t, fine = 0) {
  const d = new Date(t * 1000);
  const text = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}${fine ? "." + String(d.getMilliseconds()).padStart(3, "0") : ""}`;
  return day(d) === day(new Date(now() * 1000)) ? text : `${day(d)} ${text}`;
}

export function ago(t) {
  const s = now() - t;
  if (s < -1) return say`in ${span(-s)}`;
  return s < 2 ? say`now` : say`${span(s)} ago`;
}

// span is a length of time in words, of one or two units.
export function span(s) {
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h${Math.round(s / 60) % 60 ? ` ${Math.round(s / 60) % 60} min` : ""}`;
  return say`${Math.round(s / 86400)} days`;
}

// moment is a time in the way that is chosen; title the other way.
export const moment = (t, fine = 0) => relative ? ago(t) : clock(t, fine);
export const other = (t, fine = 0) => relative ? clock(t, fine) : ago(t);

// between is a range: "11:40:00 – 11:55:00 (15 min)".
export function between(from, to) {
  if (relative) return say`${ago(from)} to ${ago(to)}`;
  return `${clock(from)} – ${clock(to)} (${span(to - from)})`;
}

const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

// timeTicks are at most n round moments of a range with their labels.
export function timeTicks(from, to, n) {
  const step = steps.find((x) => (to - from) / x <= n) || steps.at(-1) * Math.ceil((to - from) / steps.at(-1) / n);
  const list = [];
  if (relative) {
    for (let k = Math.ceil((now() - to) / step); now() - k * step >= from; k++) list.push([now() - k * step, k === 0 ? say`now` : `−${span(k * step)}`]);
    return list.reverse();
  }
  const zone = new Date(from * 1000).getTimezoneOffset() * 60;
  for (let t = Math.ceil((from - zone) / step) * step + zone; t <= to; t += step) {
    const d = new Date(t * 1000);
    list.push([t, step >= 86400 ? day(d) : `${two(d.getHours())}:${two(d.getMinutes())}${step < 60 ? ":" + two(d.getSeconds()) : ""}`]);
  }
  return list;
}

// local is a time as an input of type datetime-local has it; parse is the way back.
export function local(t) {
  const d = new Date(t * 1000);
  return `${day(d)}T${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}
export const parse = (text) => new Date(text).getTime() / 1000;
