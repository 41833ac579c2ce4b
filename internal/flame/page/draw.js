// The picture: what of the tree can be seen, and its colours.

// Hue, saturation and lightness by kind; in the dark, lightness is less.
const colors = {
  kernel: [20, 88, 69], native: [44, 88, 66], go: [187, 58, 62], python: [213, 78, 75], java: [145, 42, 63],
  php: [262, 68, 80], node: [80, 55, 60], ruby: [345, 75, 77], unknown: [215, 8, 76], process: [215, 18, 84], thread: [215, 16, 90],
};
const darkScheme = matchMedia("(prefers-color-scheme: dark)");
const narrowest = 0.6; // pixels: what is less wide is drawn together

function kindColor(kind, variant = 0) {
  const [h, s, l] = colors[kind] || colors.unknown;
  return darkScheme.matches ? `hsl(${h} ${s * 0.72}% ${l - 13 + variant}%)` : `hsl(${h} ${s}% ${l + variant}%)`;
}

// nameVariant tells neighbours of one kind apart: the same for a name everywhere.
function nameVariant(name) {
  let h = 0;
  for (let i = 0; i < Math.min(name.length, 80); i++) h = (h * 31 + name.charCodeAt(i)) | 0;
  return ((h >>> 0) % 9) - 4;
}

function changeColor(d) {
  const plain = darkScheme.matches ? [160, 167, 176] : [232, 234, 237];
  const full = d > 0 ? [236, 92, 72] : [76, 144, 240];
  const part = Math.min(1, Math.abs(d));
  return `rgb(${plain.map((c, i) => Math.round(c + (full[i] - c) * part)).join(" ")})`;
}

class Picture {
  constructor(box, extent, canvas) {
    Object.assign(this, { box, extent, canvas, pen: canvas.getContext("2d") });
    this.rows = [];
    this.fills = new Map();
    this.selected = -1;
    this.matched = null;
  }

  // show lays out what is above a node of a tree.
  show(tree, top, flame) {
    if (tree !== this.tree) this.fills.clear();
    Object.assign(this, { tree, top, flame });
    this.layout();
  }

  layout() {
    const { tree, top } = this;
    this.row = matchMedia("(pointer: coarse)").matches ? 24 : 19;
    this.wide = Math.max(60, this.box.clientWidth);
    this.rows = [];
    const put = (depth, node, x, w) => (this.rows[depth] ||= []).push({ node, x, w });
    for (let i = tree.parent[top]; i >= 0; i = tree.parent[i]) put(tree.depth[i], i, 0, this.wide);
    const scale = tree.width[top] > 0 ? this.wide / tree.width[top] : 0;
    const todo = scale ? [[top, 0]] : [];
    while (todo.length) {
      const [i, x] = todo.pop();
      put(tree.depth[i], i, x, tree.width[i] * scale);
      let at = x;
      const next = [];
      for (const child of childrenOf(tree, i)) {
        const w = tree.width[child] * scale;
        if (w < narrowest) break; // the rest is narrower still
        next.push([child, at]);
        at += w;
      }
      const rest = childrenOf(tree, i).subarray(next.length);
      let w = 0;
      for (const child of rest) w += tree.width[child] * scale;
      if (w >= narrowest) put(tree.depth[i] + 1, -rest.length, at, w);
      todo.push(...next.reverse());
    }
    for (const row of this.rows) row?.sort((a, b) => a.x - b.x);
    this.high = Math.max(1, this.rows.length) * this.row;
    this.extent.style.height = `${Math.max(this.high, this.box.clientHeight)}px`;
    this.draw();
  }

  // y is where a depth is drawn, in pixels from the top of the whole picture.
  y(depth) {
    return this.flame ? Math.max(this.high, this.box.clientHeight) - (depth + 1) * this.row : depth * this.row;
  }

  draw() {
    const { canvas, pen, box } = this, ratio = devicePixelRatio || 1;
    const width = this.wide, height = Math.max(1, box.clientHeight), from = box.scrollTop;
    canvas.style.height = `${height}px`;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
    pen.textBaseline = "middle";
    this.letter = pen.measureText("M".repeat(50)).width / 50;
    this.drawn = 0;
    this.rows.forEach((row, depth) => {
      const y = this.y(depth) - from;
      if (y > -this.row && y < height) for (const cell of row) this.cell(cell, y);
    });
    this.outline(this.selected, from);
  }

  cell({ node, x, w }, y) {
    const { pen, tree } = this, gap = w > 3 ? 1 : w > 1.4 ? 0.4 : 0;
    this.drawn++;
    if (node < 0) {
      pen.globalAlpha = this.matched ? 0.12 : 0.3;
      pen.fillStyle = kindColor("unknown");
      pen.fillRect(x, y, w - gap, this.row - 1);
      pen.globalAlpha = 1;
      return;
    }
    const hit = this.matched && this.matched.is(node);
    pen.globalAlpha = this.matched && !hit ? 0.32 : tree.depth[node] < tree.depth[this.top] ? 0.6 : 1;
    pen.fillStyle = hit && !data.compares ? (darkScheme.matches ? "#e26ee6" : "#ee5cf0") : this.fill(node);
    pen.fillRect(x, y, w - gap, this.row - 1);
    if (hit && data.compares) {
      pen.strokeStyle = darkScheme.matches ? "#fff" : "#000";
      pen.strokeRect(x + 0.5, y + 0.5, Math.max(0, w - gap - 1), this.row - 2);
    }
    const letters = Math.floor((w - gap - 7) / this.letter);
    if (letters >= 2) {
      pen.fillStyle = darkScheme.matches && pen.globalAlpha < 0.5 ? "#e6edf3" : "#14171a";
      if (pen.globalAlpha < 1) pen.globalAlpha = Math.max(pen.globalAlpha, 0.7);
      pen.fillText(this.label(node, letters), x + 4, y + this.row / 2, w - gap - 6);
    }
    pen.globalAlpha = 1;
  }

  label(node, letters) {
    const f = frame(this.tree, node);
    let name = f.name;
    if (name.length > letters) name = shorter(name, f.kind);
    return name.length > letters ? name.slice(0, letters - 1) + "…" : name;
  }

  fill(node) {
    let fill = this.fills.get(node);
    if (!fill) {
      const { tree } = this, f = frame(tree, node);
      fill = data.compares
        ? changeColor(node === 0 ? 0 : change(tree.before[node] / (tree.before[0] || 1), tree.total[node] / (tree.total[0] || 1)))
        : kindColor(f.kind, nameVariant(f.name));
      this.fills.set(node, fill);
    }
    return fill;
  }

  outline(node, from) {
    const place = this.find(node);
    if (!place) return;
    this.pen.lineWidth = 2;
    this.pen.strokeStyle = darkScheme.matches ? "#fff" : "#000";
    this.pen.strokeRect(place.x + 1, this.y(place.depth) - from + 1, Math.max(1, place.w - 2), this.row - 3);
    this.pen.lineWidth = 1;
  }

  // find is where a node is drawn, if it is.
  find(node) {
    if (node < 0) return null;
    const depth = this.tree.depth[node];
    const cell = (this.rows[depth] || []).find((c) => c.node === node);
    return cell ? { x: cell.x, w: cell.w, depth } : null;
  }

  // at is the cell under a point of the window.
  at(clientX, clientY) {
    const area = this.canvas.getBoundingClientRect();
    const x = clientX - area.left, y = clientY - area.top + this.box.scrollTop;
    const depth = Math.floor(this.flame ? (Math.max(this.high, this.box.clientHeight) - y) / this.row : y / this.row);
    const row = this.rows[depth];
    if (!row || x < 0 || y < 0) return null;
    let low = 0, high = row.length - 1;
    while (low < high) { // the last one that begins at x or before
      const half = (low + high + 1) >> 1;
      if (row[half].x <= x) low = half; else high = half - 1;
    }
    return row[low] && row[low].x <= x && x < row[low].x + row[low].w ? row[low] : null;
  }
}
