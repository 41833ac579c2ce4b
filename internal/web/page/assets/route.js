// The address keeps what is shown: #/?view=…&from=…&to=…&ep=…&id=…&sel=from,to

const listeners = new Set();
export const views = ["timeline", "findings", "requests", "request", "waits", "flame", "drops", "proofs"];

export function read() {
  const query = location.hash.replace(/^#\/?\??/, "");
  const p = Object.fromEntries(new URLSearchParams(query));
  if (!views.includes(p.view)) p.view = "timeline";
  for (const key of ["from", "to", "last"]) {
    if (p[key] === undefined) continue;
    const n = Number(p[key]);
    if (Number.isFinite(n) && (n > 0 || key !== "last")) p[key] = n; else delete p[key];
  }
  if (!(p.from < p.to)) { delete p.from; delete p.to; }
  const sel = (p.sel || "").split(",").map(Number);
  p.sel = sel.length === 2 && sel[0] < sel[1] ? sel : null;
  return p;
}

export function address(changes = {}) {
  const p = { ...read(), ...changes };
  if (p.sel) p.sel = p.sel.map((t) => t.toFixed(1)).join(",");
  if (p.from) { p.from = +Number(p.from).toFixed(1); p.to = +Number(p.to).toFixed(1); }
  if (p.view === "timeline") delete p.view;
  if (p.view !== "request") delete p.id;
  if (p.view !== "findings") delete p.cause;
  if (p.view !== "requests") delete p.trace;
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(p)) if (v !== undefined && v !== null && v !== "") q.set(k, v);
  const text = q.toString();
  return text ? `#/?${text}` : "#/";
}

// go changes the address; replace leaves no step to go back to.
export function go(changes, replace = false) {
  const to = address(changes);
  if (to === location.hash) return;
  if (replace) {
    history.replaceState(null, "", to);
    tell();
  } else {
    location.hash = to;
  }
}

function tell() { for (const f of listeners) f(read()); }
export const listen = (f) => { listeners.add(f); };
addEventListener("hashchange", tell);
