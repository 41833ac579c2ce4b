// The language of the page: that of its address (?lang=zh), or else the one that was chosen
// last, or else the browser's. Its words are a catalogue of internal/language, which is
// there before any other module of the page runs: a constant may be made of words.

const KEY = "slowray-lang";
const known = ["en", "zh"];

function wanted() {
  const asked = new URLSearchParams(location.search).get("lang");
  if (known.includes(asked)) return asked;
  try {
    const chosen = localStorage.getItem(KEY);
    if (known.includes(chosen)) return chosen;
  } catch { /* storage is switched off */ }
  return /^zh\b/i.test(navigator.language) ? "zh" : "en";
}

export let language = wanted();
let words = null;
if (language !== "en") {
  try {
    words = await (await fetch(`assets/${language}.json`, { credentials: "same-origin" })).json();
  } catch {
    language = "en"; // the page in English rather than none
  }
}

const WIDE = "[\\p{sc=Han}，。；：、（）“”]", ends = new RegExp(`${WIDE}$`, "u"), begins = new RegExp(`^${WIDE}`, "u");
const read = new WeakMap();

// say is a sentence in the language of the page: say`${n} of ${all}` is "{1} of {2}" in the
// catalogue. With elements in it, it is a list.
export function say(sentence, ...values) {
  let pieces = read.get(sentence);
  if (!pieces) read.set(sentence, pieces = translated(sentence));
  const list = pieces.map((p) => typeof p === "number" ? values[p] : p);
  return values.some((v) => typeof v === "object" && v !== null) ? list : joined(list);
}

// translated is a sentence in pieces: text, and for a place the number of its value.
function translated(sentence) {
  const key = sentence.reduce((a, text, i) => `${a}{${i}}${text}`), core = key.trim(), found = words?.[core];
  let text = key;
  if (found !== undefined) {
    text = (begins.test(found) && /^[，。；：、（）]/.test(found) ? "" : key.slice(0, key.indexOf(core))) + found + (/[，。；：、（）]$/.test(found) ? "" : key.slice(key.indexOf(core) + core.length));
  }
  return text.split(/\{(\d)\}/).map((p, i) => i % 2 ? Number(p) - 1 : p);
}

// joined leaves out blanks between Chinese characters, which a place that is filled with
// such may have next to it.
function joined(list) {
  let out = "";
  for (const one of list) {
    const text = String(one);
    if (words && out.endsWith(" ") && ends.test(out.slice(0, -1)) && begins.test(text)) out = out.slice(0, -1);
    out += words && text.startsWith(" ") && begins.test(text.slice(1)) && ends.test(out) ? text.slice(1) : text;
  }
  return out;
}

// columns is how wide a text is, in Latin letters: Chinese characters are nearly two.
export const columns = (text) => text.length + (text.match(/[\u2e80-\uffef]/gu)?.length || 0) * 0.8;

// marks are the punctuation between texts.
export const marks = words ? { comma: "，", semicolon: "；", colon: "：", stop: "。" } : { comma: ", ", semicolon: "; ", colon: ": ", stop: ". " };

// counted is a number of things: plural of figure.js.
export const counted = (n, one, many) => words?.[`{1} ${many}`]?.replace("{1}", () => n) ?? `${n} ${one}`;

// languageButton changes to the other language, and remembers it.
export function languageButton(button) {
  const other = language === "zh" ? "en" : "zh";
  return button(other === "zh" ? "中文" : "EN", () => {
    try {
      localStorage.setItem(KEY, other);
    } catch { /* storage is switched off: the address has it */ }
    const at = new URL(location.href);
    at.searchParams.set("lang", other);
    history.replaceState(null, "", at);
    location.reload();
  }, { id: "lang", lang: other === "zh" ? "zh-CN" : "en", title: other === "zh" ? "简体中文" : "English", "aria-label": other === "zh" ? "简体中文" : "English" });
}

// What stands in the HTML file itself.
if (words) {
  document.documentElement.lang = "zh-CN";
  for (const e of document.querySelectorAll("a.skip, p.wait")) e.textContent = words[e.textContent] ?? e.textContent;
  for (const e of document.querySelectorAll("[aria-label]")) e.setAttribute("aria-label", words[e.getAttribute("aria-label")] ?? e.getAttribute("aria-label"));
}
