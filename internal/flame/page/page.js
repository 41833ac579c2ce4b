// The page: what is chosen, and what the hand on mouse, keys or glass does.

const $ = (id) => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

const choice = { type: data.value, side: "after", roots: data.roots, process: "", thread: "", state: "", slow: "" };
const picture = new Picture($("graph"), $("extent"), $("canvas"));
let tree, zoomed = 0, flame = data.flame, expression = null, order = data.compares ? "change" : "self", tipped = null;

// rebuild makes the tree again, because something else is chosen; what was
// zoomed into stays so if it is still there.
function rebuild() {
  const path = [];
  for (let i = zoomed; tree && i > 0; i = tree.parent[i]) path.unshift(frame(tree, i).name);
  tree = grow(choice);
  zoomed = 0;
  for (const name of path) {
    const next = childrenOf(tree, zoomed).find((c) => frame(tree, c).name === name && tree.width[c] > 0);
    if (next === undefined) break;
    zoomed = next;
  }
  picture.selected = -1;
  refresh();
}

// refresh shows the tree as it is.
function refresh() {
  const graph = $("table").hidden;
  $("graph").hidden = !graph;
  search();
  if (graph) picture.show(tree, zoomed, flame); else table();
  $("reset").disabled = zoomed === 0;
  $("flip").textContent = flame ? "Root above" : "Root below";
  press("values", choice.type);
  $("show-graph").setAttribute("aria-pressed", graph);
  $("show-table").setAttribute("aria-pressed", !graph);
  detail(picture.selected >= 0 ? picture.selected : zoomed);
  legend();
}

function press(group, value) {
  for (const b of $(group).children) b.setAttribute("aria-pressed", b.dataset.value === String(value));
}

function zoom(node) {
  zoomed = node;
  picture.selected = -1;
  refresh();
  const box = $("graph"), below = Math.max(0, (tree.depth[node] - 6) * picture.row); // some of the callers stay in sight
  box.scrollTop = flame ? box.scrollHeight - box.clientHeight - below : below;
  hideTip();
}

// search marks what the expression finds, above what is zoomed into.
function search() {
  const text = $("query").value;
  expression = null;
  $("query").removeAttribute("aria-invalid");
  $("matched").className = "";
  $("matched").textContent = "";
  picture.matched = null;
  if (text === "") return;
  try {
    expression = new RegExp(text, /[A-Z]/.test(text) ? "u" : "iu");
  } catch {
    $("query").setAttribute("aria-invalid", "true");
    $("matched").className = "bad";
    $("matched").textContent = "not a regular expression";
    return;
  }
  const m = picture.matched = matches(tree, zoomed, expression);
  let found = m.frames === 0 ? "nothing found" : `${percent(m.sum / tree.total[zoomed])} ${zoomed ? "of what is shown" : "of all"} · ${amount(m.sum, choice.type)}`;
  if (m.frames && data.compares) found = `${data.names[0]} ${percent(m.before / tree.before[zoomed])} · ${data.names[1]} ${percent(m.sum / tree.total[zoomed])}`;
  $("matched").textContent = found;
}

// facts are the lines that tell of a frame.
function facts(node) {
  const f = frame(tree, node), lines = [];
  const where = [kindName(f.kind)];
  if (node === 0) where.length = 0;
  if (f.module) where.push(f.module);
  if (f.file) where.push(f.line ? `${f.file}:${f.line}${f.lastLine > f.line ? "–" + f.lastLine : ""}` : f.file);
  if (f.inline) where.push("inlined");
  if (data.compares) {
    const before = tree.before[node] / (tree.before[0] || 1), after = tree.total[node] / (tree.total[0] || 1);
    lines.push(`${data.names[0]}: ${percent(before)} (${amount(tree.before[node], choice.type)})`);
    lines.push(`${data.names[1]}: ${percent(after)} (${amount(tree.total[node], choice.type)})`);
    if (node) lines.push(points(after - before) + (before > 0 && after > 0 ? `, ×${(after / before).toPrecision(2)}` : before > 0 ? ", gone" : ", new"));
  } else {
    lines.push(`${amount(tree.total[node], choice.type)} · ${percent(tree.total[node] / tree.total[0])} of all${node ? ` · ${percent(tree.total[node] / tree.total[tree.parent[node]])} of its caller` : ""}`);
    if (tree.self[node] > 0) lines.push(`itself: ${amount(tree.self[node], choice.type)} · ${percent(tree.self[node] / tree.total[0])} of all`);
  }
  return { name: f.name, where: where.join(" · "), lines };
}

function detail(node) {
  const at = $("detail");
  at.replaceChildren();
  const empty = !tree.width[0];
  $("nothing").hidden = !empty;
  if (empty) {
    $("nothing").textContent = data.samples.node.length ? "No stack has such a value here: choose another value, process or state." : "No stack was seen.";
    return;
  }
  const f = facts(node);
  at.append(make("b", { textContent: middle(f.name, 300) }), ` ${f.lines.join(" · ")}${f.where ? " · " + f.where : ""}`);
}

function showTip(cell, x, y) {
  const tip = $("tip");
  if (cell.node < 0) {
    tip.replaceChildren(make("div", { className: "soft", textContent: `${thousands(-cell.node)} narrower ${cell.node === -1 ? "frame" : "frames"}: zoom in to see more` }));
  } else {
    const f = facts(cell.node);
    tip.replaceChildren(make("b", { textContent: middle(f.name, 700) }), ...f.lines.map((l) => make("div", { textContent: l })), make("div", { className: "soft", textContent: f.where }));
  }
  tip.hidden = false;
  const w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = `${Math.max(6, Math.min(x + 14, innerWidth - w - 8))}px`;
  tip.style.top = `${Math.max(6, y + 20 + h > innerHeight ? y - h - 12 : y + 18)}px`;
}

function hideTip() {
  $("tip").hidden = true;
  $("canvas").className = "";
  tipped = null;
}

function legend() {
  const at = $("legend");
  at.replaceChildren();
  if (data.compares) {
    const scale = make("span", { className: "scale" });
    scale.style.background = `linear-gradient(to right, ${changeColor(-1)}, ${changeColor(0)}, ${changeColor(1)})`;
    at.append(make("span", {}, "smaller share", scale, "larger share"),
      make("span", { className: "note", textContent: `from ${data.names[0]} to ${data.names[1]}, each as a share of its own total · frames are as wide as ${data.names[choice.side === "before" ? 0 : 1]}` }));
    return;
  }
  const sum = [...byKind(tree, waiting(choice.type))].sort((a, b) => b[1] - a[1]);
  for (const [kind, value] of sum) {
    const dot = make("span", { className: "dot" });
    dot.style.background = kindColor(kind);
    at.append(make("span", {}, dot, kind === PROCESS ? "no stack" : kindName(kind), " ", make("small", { textContent: value ? percent(value / tree.total[0]) : "" })));
  }
}

// table lists functions, as many as a person would read.
function table() {
  const sum = tally(tree, waiting(choice.type)), own = waiting(choice.type) ? "waits" : "self", all = tree.total[0] || 1, allBefore = tree.before[0] || 1;
  const delta = (i) => sum.self[i] / all - sum.selfBefore[i] / allBefore;
  const keys = data.compares
    ? { change: ["change", (i) => Math.abs(delta(i))], before: [`${own}, ${data.names[0]}`, (i) => sum.selfBefore[i]], self: [`${own}, ${data.names[1]}`, (i) => sum.self[i]], total: [`total, ${data.names[1]}`, (i) => sum.total[i]] }
    : { self: [own, (i) => sum.self[i]], total: ["total", (i) => sum.total[i]] };
  if (!keys[order]) order = "self";
  const seen = functions.name.map((_, i) => i).filter((i) => (sum.total[i] || sum.totalBefore[i]) && (!expression || expression.test(functions.name[i])));
  const by = keys[order][1];
  seen.sort((a, b) => by(b) - by(a) || sum.total[b] - sum.total[a] || a - b);
  const head = make("tr");
  for (const [key, [label]] of Object.entries(keys)) {
    const th = make("th", { scope: "col" }, make("button", { type: "button", textContent: label, onclick: () => { order = key; table(); } }));
    if (key === order) th.setAttribute("aria-sort", "descending");
    head.append(th);
  }
  head.append(make("th", { scope: "col", textContent: seen.length > 300 ? `function (300 of ${thousands(seen.length)})` : "function" }));
  const body = make("tbody");
  for (const i of seen.slice(0, 300)) {
    const tr = make("tr", { tabIndex: 0 });
    if (data.compares) {
      tr.append(make("td", { textContent: points(delta(i)), className: Math.abs(delta(i)) < 0.0005 ? "soft" : delta(i) > 0 ? "up" : "down" }), make("td", { textContent: percent(sum.selfBefore[i] / allBefore) }),
        make("td", { textContent: percent(sum.self[i] / all) }), make("td", { textContent: percent(sum.total[i] / all) }));
    } else {
      tr.append(make("td", { textContent: percent(sum.self[i] / all) }), make("td", { textContent: percent(sum.total[i] / all) }));
    }
    const dot = make("span", { className: "dot" }), module = data.texts[functions.module[i]];
    dot.style.background = kindColor(data.kinds[functions.kind[i]]);
    tr.append(make("td", {}, dot, middle(functions.name[i], 300), make("small", { textContent: module })));
    tr.onclick = () => findFunction(i);
    tr.onkeydown = (e) => { if (e.key === "Enter") findFunction(i); };
    body.append(tr);
  }
  $("table").replaceChildren(make("table", {}, make("thead", {}, head), body));
}

// findFunction shows in the graph where a function of the table is.
function findFunction(i) {
  $("query").value = `^${functions.name[i].replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")}$`;
  view(false);
}

function view(asTable) {
  $("table").hidden = !asTable;
  hideTip();
  refresh();
}
