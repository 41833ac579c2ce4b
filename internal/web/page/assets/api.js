// Questions to the server this page came from. Nothing else is ever asked.

import { say, language } from "./language.js";

export class Trouble extends Error {
  constructor(text, status = 0) { super(text); this.status = status; }
}

export function query(path, params = {}) {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(params)) {
    if (v === undefined || v === null || v === "") continue;
    for (const one of Array.isArray(v) ? v : [v]) q.append(k, typeof one === "number" ? +one.toFixed(3) : one);
  }
  const text = q.toString();
  return text ? `${path}?${text}` : path;
}

// ask gives an answer, or throws a Trouble whose message says what to do.
export async function ask(path, params, signal) {
  let answer, body;
  try {
    answer = await fetch(query(path, language === "en" ? params : { ...params, lang: language }), { signal, headers: { Accept: "application/json" }, credentials: "same-origin" });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Trouble(say`The server does not answer. Is slowray still running there?`);
  }
  try {
    body = await answer.json();
  } catch {
    if (signal?.aborted) throw new DOMException("", "AbortError");
    throw new Trouble(answer.ok ? say`The answer is not JSON.` : say`The server says ${answer.status}.`, answer.status);
  }
  if (answer.status === 401 || answer.status === 403) throw new Trouble(say`A token is needed: open the whole address that slowray printed.`, answer.status);
  if (!answer.ok) throw new Trouble(String(body?.error || say`The server says ${answer.status}.`), answer.status);
  return body || {};
}
