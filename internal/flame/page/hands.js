// What belongs to each control, and the start.

function options(select, list, kept) {
  select.replaceChildren(...list.map(([value, text]) => make("option", { value, textContent: middle(text, 60) })));
  select.value = kept;
  if (select.value !== kept) select.value = "";
  select.disabled = list.length < 2;
}

function fillThreads() {
  const list = [["", "all"]];
  if (choice.process !== "") {
    for (const t of processes.list[+choice.process].threads) {
      list.push([String(t), data.texts[threads.name[t]] + (threads.tid[t] ? ` (${threads.tid[t]})` : "")]);
    }
  }
  options($("thread"), list.length === 2 ? list.slice(0, 1) : list, choice.thread);
  choice.thread = $("thread").value;
}

function start() {
  document.querySelector("h1").textContent = data.title;
  $("subtitle").textContent = data.subtitle;
  data.types.forEach((t, i) => {
    const sum = samples.values[i].reduce((a, b) => a + b, 0), before = data.compares ? samples.before[i].reduce((a, b) => a + b, 0) : 0;
    if (!sum && !before && i !== data.value) return;
    const b = make("button", { type: "button", onclick: () => { choice.type = i; rebuild(); } }, typeName(i), data.compares ? "" : make("small", { textContent: amount(sum, i) }));
    b.dataset.value = i;
    $("values").append(b);
  });
  if (data.compares) {
    $("side").parentElement.hidden = false;
    options($("side"), [["before", data.names[0]], ["after", data.names[1]]], "after");
  }
  const list = processes.list.map((p, i) => [String(i), p.name + (p.threads.length > 1 && !data.compares ? `, ${p.threads.length} threads` : "")]);
  if (list.length === 1) {
    options($("process"), list, "0");
    choice.process = "0";
  } else {
    options($("process"), [["", `all ${thousands(list.length)}`], ...list], "");
  }
  $("thread").parentElement.hidden = data.compares;
  fillThreads();
  if (data.states.length > 1) {
    $("state").parentElement.hidden = false;
    options($("state"), [["", "all"], ...data.states.map((s, i) => [String(i), s || "on CPU"])], "");
  }
  $("slow").parentElement.hidden = !samples.slow.includes(1);
  $("roots").value = choice.roots;
  const missing = data.losses.map((l) => `${l.what}${l.count > 0 ? `: ${thousands(l.count)}` : ""}`).concat(data.notes);
  if (missing.length) {
    $("incomplete").hidden = false;
    $("incomplete").querySelector("summary").textContent = `Losses and notes (${missing.length})`;
    $("incomplete").querySelector("ul").append(...missing.map((text) => make("li", { textContent: text })));
  }
  listen();
  rebuild();
  if (flame) $("graph").scrollTop = $("graph").scrollHeight;
}

function listen() {
  for (const id of ["side", "roots", "process", "thread", "state", "slow"]) {
    $(id).onchange = () => {
      choice[id] = $(id).value;
      if (id === "process") {
        choice.thread = "";
        fillThreads();
      }
      rebuild();
    };
  }
  $("show-graph").onclick = () => view(false);
  $("show-table").onclick = () => view(true);
  $("reset").onclick = () => zoom(0);
  $("flip").onclick = flip;
  $("more").onclick = () => $("more").setAttribute("aria-expanded", $("picks").classList.toggle("open"));
  let soon = 0;
  $("query").oninput = () => {
    clearTimeout(soon);
    soon = setTimeout(refresh, 80);
  };
  const box = $("graph"), canvas = $("canvas");
  let touched = -1, pointer = "mouse";
  box.onscroll = () => picture.draw();
  canvas.onpointerdown = (e) => { pointer = e.pointerType; };
  canvas.onpointermove = (e) => {
    if (e.pointerType === "touch") return;
    const cell = picture.at(e.clientX, e.clientY);
    if (!cell) return hideTip();
    canvas.className = "over";
    if (tipped !== cell && cell.node >= 0) detail(cell.node);
    tipped = cell;
    showTip(cell, e.clientX, e.clientY);
  };
  canvas.onpointerleave = () => {
    hideTip();
    detail(picture.selected >= 0 ? picture.selected : zoomed);
  };
  canvas.onclick = (e) => {
    const cell = picture.at(e.clientX, e.clientY);
    if (!cell || cell.node < 0) return;
    // On glass nothing hovers: the first touch tells, the second zooms.
    if (pointer === "touch" && touched !== cell.node) {
      touched = cell.node;
      return select(cell.node);
    }
    touched = -1;
    zoom(cell.node);
  };
  document.onkeydown = keys;
  new ResizeObserver(() => { if (tree && !box.hidden) picture.layout(); }).observe(box);
  darkScheme.addEventListener("change", () => {
    picture.fills.clear();
    refresh();
  });
}

function flip() {
  flame = !flame;
  refresh();
  $("graph").scrollTop = flame ? $("graph").scrollHeight : 0;
}

function select(node) {
  picture.selected = node;
  const y = picture.y(tree.depth[node]), box = $("graph");
  if (y < box.scrollTop) box.scrollTop = y;
  if (y + picture.row > box.scrollTop + box.clientHeight) box.scrollTop = y + picture.row - box.clientHeight;
  picture.draw();
  detail(node);
}

function keys(e) {
  const typing = e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement;
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === "/" && !typing) {
    e.preventDefault();
    $("query").focus();
    $("query").select();
  } else if (e.key === "Escape") {
    if ($("query").value !== "") {
      $("query").value = "";
      refresh();
    } else if (!typing) {
      zoom(0);
    }
    if (typing) e.target.blur();
  } else if (e.target === $("graph")) {
    walk(e);
  }
}

// walk moves through the frames with the arrow keys.
function walk(e) {
  const at = picture.selected >= 0 ? picture.selected : zoomed;
  const seen = (list) => [...list].filter((n) => picture.find(n));
  const deeper = flame ? "ArrowUp" : "ArrowDown", back = flame ? "ArrowDown" : "ArrowUp";
  let next;
  if (e.key === deeper) next = seen(childrenOf(tree, at))[0];
  else if (e.key === back) next = tree.parent[at];
  else if (e.key === "ArrowLeft" || e.key === "ArrowRight") {
    if (at === 0) return;
    const list = seen(childrenOf(tree, tree.parent[at]));
    next = list[list.indexOf(at) + (e.key === "ArrowLeft" ? -1 : 1)];
  } else if (e.key === "Enter") return zoom(at);
  else return;
  e.preventDefault();
  if (next !== undefined && next >= 0) select(next);
}

// What tests and other pages may read: where a frame is, and what is shown.
window.slowrayFlame = {
  find(name) {
    const area = $("canvas").getBoundingClientRect();
    for (const row of picture.rows) {
      for (const cell of row || []) {
        if (cell.node < 0 || frame(tree, cell.node).name !== name) continue;
        const y = picture.y(tree.depth[cell.node]) - $("graph").scrollTop;
        return { x: area.left + cell.x, y: area.top + y, width: cell.w, height: picture.row };
      }
    }
    return null;
  },
  state() {
    return {
      zoomed: frame(tree, zoomed).name, value: data.types[choice.type].type, total: tree.total[0], frames: picture.drawn,
      deep: tree.deep, nodes: tree.self.length, matched: picture.matched ? picture.matched.sum : -1, flame,
    };
  },
};

start();
