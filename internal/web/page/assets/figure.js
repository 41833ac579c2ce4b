// Numbers as people read them. null and NaN are "–": nothing was measured.

import { say, counted } from "./language.js";

const known = (x) => x !== null && x !== undefined && !Number.isNaN(x);

export const count = (n) => known(n) ? String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ",") : "–";

const three = (x, unit) => `${Number(x.toPrecision(3))} ${unit}`;

// micros writes a duration given in microseconds.
export function micros(us) {
  if (!known(us)) return "–";
  if (us === 0) return "0";
  if (us < 0) return "−" + micros(-us);
  if (us < 0.9995) return three(us * 1e3, "ns");
  if (us < 999.5) return three(us, "µs");
  if (us < 999.5e3) return three(us / 1e3, "ms");
  if (us < 599.5e6) return three(us / 1e6, "s");
  return us < 7200e6 ? `${Math.round(us / 60e6)} min` : three(us / 3600e6, "h");
}

export const seconds = (s) => known(s) ? micros(s * 1e6) : "–";
export const nanos = (ns) => known(ns) ? micros(ns / 1e3) : "–";

// percent never rounds something to nothing, or not quite all to all.
export function percent(share) {
  if (!known(share)) return "–";
  if (share <= 0) return "0 %";
  if (share >= 1) return "100 %";
  if (share < 0.001) return say`under 0.1 %`;
  if (share > 0.999) return say`over 99.9 %`;
  if (share < 0.0995) return `${(share * 100).toFixed(1)} %`;
  return share > 0.99 ? `${(Math.floor(share * 1000) / 10).toFixed(1)} %` : `${(share * 100).toFixed(0)} %`;
}

// small is percent where there is little room.
export const small = (share) => share > 0 && share < 0.001 ? "<0.1 %" : share > 0.999 && share < 1 ? ">99.9 %" : percent(share);

// rate writes a number per second.
export function rate(n) {
  if (!known(n)) return "–";
  if (n >= 1000) return count(n);
  return n === 0 ? "0" : n >= 100 ? n.toFixed(0) : String(Number(n.toPrecision(2)));
}

export const permille = (n) => !known(n) ? "–" : n === 0 ? "0 ‰" : `${Number(n.toPrecision(2))} ‰`;

export function bytes(n) {
  if (!known(n)) return "–";
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) if (n >= size) return three(n / size, unit);
  return `${n} B`;
}

// times compares two numbers in words.
export function times(inside, outside) {
  if (!(outside > 0)) return inside > 0 ? say`only here` : "";
  const r = inside / outside;
  if (r >= 1.05) return say`${r >= 10 ? count(r) : Number(r.toPrecision(2))} times`;
  return r <= 0.95 ? say`down to ${percent(r)}` : say`the same`;
}

// number writes a figure of an evidence: four significant digits, no exponent.
function number(x) {
  const size = Math.abs(x);
  if (Number.isInteger(x) || size >= 999.95) return `${x < 0 ? "-" : ""}${count(size)}`;
  return size < 1e-9 ? "0" : x.toFixed(3 - Math.floor(Math.log10(size))).replace(/0+$/, "").replace(/\.$/, "");
}

// evidence writes what was found, of which limit, in its unit, as internal/figure does.
export function evidence(value, limit, unit = "") {
  const one = (v) => typeof v === "number" ? number(v) : typeof v === "string" ? v : JSON.stringify(v), some = limit !== undefined && limit !== null && limit !== "";
  if (/^share( |$)/.test(unit) && value >= 0 && value <= 1) return `${percent(value)}${some && limit !== 1 ? ` of ${percent(limit)}` : ""}${unit.slice(5)}`;
  const above = some && Number(value) > Number(limit);
  return `${one(value)}${some && !above ? ` of ${one(limit)}` : ""}${unit ? ` ${unit}` : ""}${above ? `, limit ${one(limit)}` : ""}`;
}

// ticks are about n round values from 0 (or low) to high.
export function ticks(low, high, n) {
  const raw = (high - low) / Math.max(1, n);
  if (!(raw > 0)) return [low];
  const ten = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 2.5, 5, 10].find((m) => m * ten >= raw * 0.999) * ten;
  const list = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high * 1.0001; v += step) list.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return list;
}

// logTicks are the powers of ten, and their halves where there are few.
export function logTicks(low, high) {
  const list = [];
  for (let e = Math.floor(Math.log10(low)); 10 ** e <= high; e++) {
    if (10 ** e >= low) list.push(10 ** e);
    if (Math.log10(high / low) < 2) for (const m of [2, 5]) if (m * 10 ** e >= low && m * 10 ** e <= high) list.push(m * 10 ** e);
  }
  return list;
}

export const plural = (n, one, many = one + "s") => counted(count(n), n === 1 ? one : many, many);
