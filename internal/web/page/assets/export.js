// Pictures and tables to keep.

import { say, columns } from "./language.js";
import { h, button, clean } from "./dom.js";

function save(blob, file) {
  const url = URL.createObjectURL(blob);
  const a = h("a", { href: url, download: file });
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const kept = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "stroke-linejoin", "opacity", "font-size", "font-weight", "font-family", "text-anchor", "dominant-baseline", "paint-order"];

function element(tag, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}

// picture is a copy of a drawing that needs no style sheet, on paper, with its
// title and what its colours mean: legend is [{name, color, hatch, line, dash}].
export function picture(svg, title, legend = []) {
  const copy = svg.cloneNode(true), from = svg.querySelectorAll("*"), to = copy.querySelectorAll("*");
  from.forEach((e, i) => {
    const look = getComputedStyle(e);
    for (const k of kept) {
      const v = look.getPropertyValue(k);
      if (v && v !== "normal" && v !== "auto") to[i].setAttribute(k, v);
    }
    to[i].removeAttribute("class");
  });
  for (const e of copy.querySelectorAll("[data-unsaved]")) e.remove();
  const box = svg.viewBox.baseVal, w = box.width || svg.clientWidth, high = box.height || svg.clientHeight, body = getComputedStyle(document.body);
  const ground = svg.closest(".chart, .graph"), paper = ground ? getComputedStyle(ground).backgroundColor : body.backgroundColor, marks = [];
  let x = 10, row = 0;
  for (const l of legend) {
    const wide = columns(clean(l.name, 40)) * 7 + 30;
    if (x + wide > w) { x = 10; row++; }
    marks.push([l, x, row]);
    x += wide;
  }
  const head = 28 + (legend.length ? (row + 1) * 18 : 0), top = box.y - head;
  const root = element("svg", { xmlns: "http://www.w3.org/2000/svg", width: w, height: high + head, viewBox: `${box.x} ${top} ${w} ${high + head}`, "font-family": "system-ui, 'DejaVu Sans', sans-serif", color: body.color });
  root.append(document.querySelector("#defs defs").cloneNode(true), // the hatching
    element("rect", { x: box.x, y: top, width: w, height: high + head, fill: paper }), element("text", { x: box.x + 10, y: top + 19, "font-size": 13, "font-weight": 600, fill: body.color }, clean(title, 120)));
  for (const [l, at, line] of marks) {
    const color = document.createElement("i"); // what a variable stands for now
    color.style.color = l.color;
    document.body.append(color);
    root.append(element("rect", { x: box.x + at, y: top + (l.line ? 32 : 29) + line * 18, width: 12, height: l.line ? 3 : 10, rx: 2, fill: l.hatch ? "url(#hatch)" : getComputedStyle(color).color, "fill-opacity": l.dash ? 0.5 : 1 }), element("text", { x: box.x + at + 17, y: top + 38 + line * 18, "font-size": 12, fill: body.color }, clean(l.name, 40)));
    color.remove();
  }
  root.append(...copy.childNodes);
  return { text: new XMLSerializer().serializeToString(root), width: w, height: high + head };
}

export function saveSVG(svg, title, legend) {
  save(new Blob([picture(svg, title, legend).text], { type: "image/svg+xml" }), file(title, "svg"));
}

export async function savePNG(svg, title, legend) {
  const p = picture(svg, title, legend), url = URL.createObjectURL(new Blob([p.text], { type: "image/svg+xml" }));
  try {
    const image = new Image(p.width, p.height);
    image.src = url;
    await image.decode();
    const canvas = h("canvas", { width: p.width * 2, height: p.height * 2 }), pen = canvas.getContext("2d");
    pen.scale(2, 2);
    pen.drawImage(image, 0, 0);
    saveCanvas(canvas, title);
  } finally {
    URL.revokeObjectURL(url);
  }
}

export function saveCanvas(canvas, title) {
  canvas.toBlob((blob) => save(blob, file(title, "png")), "image/png");
}

// cell is a value as CSV has it (RFC 4180); what a spreadsheet would take for a formula is made text.
function cell(v) {
  if (v === null || v === undefined) return "";
  let t = String(v);
  if (typeof v === "string" && /^[=+\-@\t\r]/.test(t)) t = "'" + t;
  return /[",\n\r]/.test(t) ? `"${t.replaceAll('"', '""')}"` : t;
}

export const table = (head, rows) => [head, ...rows].map((r) => r.map(cell).join(",")).join("\r\n") + "\r\n";

export function saveCSV(head, rows, title) {
  save(new Blob([table(head, rows)], { type: "text/csv" }), file(title, "csv"));
}

export function saveJSON(value, title) {
  save(new Blob([JSON.stringify(value, null, 1)], { type: "application/json" }), file(title, "json"));
}

const file = (title, end) => `slowray-${title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "view"}.${end}`;

// menu offers to save something: a list of [what it is called, how].
export function menu(of, list) {
  const box = h("details", { class: "menu" }, h("summary", { "aria-label": say`Save ${clean(of, 60)}` }, say`Save`));
  box.append(h("div", {}, list.map(([text, how]) => typeof how === "string"
    ? h("a", { href: how, download: "", on: { click: () => { box.open = false; } } }, text)
    : button(text, () => { box.open = false; how(); }))));
  box.addEventListener("focusout", (e) => { if (!box.contains(e.relatedTarget)) box.open = false; });
  box.addEventListener("keydown", (e) => {
    if (e.key !== "Escape" || !box.open) return;
    box.open = false;
    box.firstChild.focus();
    e.stopPropagation();
  });
  return box;
}
