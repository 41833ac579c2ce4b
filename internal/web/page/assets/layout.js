// Where the nodes of a wait graph are drawn: in layers, who waits before what is
// waited for. Pure.

const CAP = 60; // nodes that are drawn, those with most time

// cycles are the groups of nodes that wait for each other (Tarjan's strongly
// connected components of two and more, or of one that waits for itself).
export function cycles(nodes, edges) {
  const out = new Map(nodes.map((n) => [n.id, []]));
  for (const e of edges) out.get(e.from)?.push(e.to);
  const index = new Map(), low = new Map(), on = new Set(), stack = [], found = [];
  const visit = (root) => {
    const work = [[root, 0]];
    while (work.length) {
      const top = work.at(-1), [v, i] = top;
      if (i === 0) { index.set(v, index.size); low.set(v, index.get(v)); stack.push(v); on.add(v); }
      const next = out.get(v) || [];
      if (i < next.length) {
        top[1]++;
        const w = next[i];
        if (!index.has(w) && out.has(w)) work.push([w, 0]);
        else if (on.has(w)) low.set(v, Math.min(low.get(v), index.get(w)));
        continue;
      }
      work.pop();
      if (work.length) low.set(work.at(-1)[0], Math.min(low.get(work.at(-1)[0]), low.get(v)));
      if (low.get(v) !== index.get(v)) continue;
      const group = [];
      let w;
      do { w = stack.pop(); on.delete(w); group.push(w); } while (w !== v);
      if (group.length > 1 || (out.get(v) || []).includes(v)) found.push(group);
    }
  };
  for (const n of nodes) if (!index.has(n.id)) visit(n.id);
  return found;
}

// layers puts each node one further than all that wait for it; edges that close
// a cycle are left out of the count. Within a layer, nodes stand by where those
// next to them stand.
export function layers(nodes, edges) {
  const sum = new Map();
  for (const e of edges) for (const id of [e.from, e.to]) sum.set(id, (sum.get(id) || 0) + (e.seconds || 0));
  const kept = nodes.length > CAP ? nodes.slice().sort((a, b) => (sum.get(b.id) || 0) - (sum.get(a.id) || 0) || (a.id < b.id ? -1 : 1)).slice(0, CAP) : nodes;
  const ids = new Set(kept.map((n) => n.id)), list = edges.filter((e) => ids.has(e.from) && ids.has(e.to));
  const back = new Set(), state = new Map();
  const out = new Map(kept.map((n) => [n.id, []]));
  for (const e of list) out.get(e.from).push(e);
  const incoming = new Set(list.map((e) => e.to));
  const walk = (root) => {
    const work = [[root, 0]];
    state.set(root, 1);
    while (work.length) {
      const top = work.at(-1), e = out.get(top[0])[top[1]++];
      if (!e) { state.set(top[0], 2); work.pop(); continue; }
      if (state.get(e.to) === 1) back.add(e);
      else if (!state.has(e.to)) { state.set(e.to, 1); work.push([e.to, 0]); }
    }
  };
  for (const n of kept.filter((n) => !incoming.has(n.id)).concat(kept)) if (!state.has(n.id)) walk(n.id);
  const depth = new Map(kept.map((n) => [n.id, 0]));
  for (let round = 0, moved = true; moved && round <= kept.length; round++) {
    moved = false;
    for (const e of list) if (!back.has(e) && depth.get(e.to) < depth.get(e.from) + 1) { depth.set(e.to, depth.get(e.from) + 1); moved = true; }
  }
  // Who waits stands next to what it waits for, not far to the left of it.
  for (let round = 0; round < kept.length; round++) {
    let moved = false;
    for (const n of kept) {
      const to = list.filter((e) => e.from === n.id && !back.has(e)).map((e) => depth.get(e.to));
      if (!to.length || list.some((e) => e.to === n.id && !back.has(e))) continue;
      const best = Math.min(...to) - 1;
      if (best > depth.get(n.id)) { depth.set(n.id, best); moved = true; }
    }
    if (!moved) break;
  }
  // A line that passes a layer has a place of its own there, so that it crosses no node.
  const rows = [], via = new Map(), neighbours = new Map(kept.map((n) => [n.id, []]));
  for (const n of kept) (rows[depth.get(n.id)] ||= []).push(n.id);
  for (let i = 0; i < rows.length; i++) rows[i] ||= [];
  const join = (a, b) => { neighbours.get(a).push(b); neighbours.get(b).push(a); };
  list.forEach((e, k) => {
    if (back.has(e)) return;
    let last = e.from;
    const passed = [];
    for (let d = depth.get(e.from) + 1; d < depth.get(e.to); d++) {
      const id = { line: k, layer: d };
      neighbours.set(id, []);
      rows[d].push(id);
      join(last, id);
      passed.push(last = id);
    }
    join(last, e.to);
    via.set(e, passed);
  });
  const place = new Map(), sizes = (id) => typeof id === "object" ? 0.45 : 1;
  const set = (r) => {
    let at = -r.reduce((a, id) => a + sizes(id), 0) / 2;
    for (const id of r) { place.set(id, at + sizes(id) / 2); at += sizes(id); }
  };
  rows.forEach(set);
  for (let round = 0; round < 8; round++) {
    for (const r of round % 2 ? rows.slice().reverse() : rows) {
      const wish = new Map(r.map((id) => {
        const near = neighbours.get(id).map((o) => place.get(o));
        return [id, near.length ? near.reduce((a, b) => a + b, 0) / near.length : place.get(id)];
      }));
      r.sort((a, b) => wish.get(a) - wish.get(b));
      set(r);
    }
  }
  return { rows, place, via, edges: list, back, left: nodes.length - kept.length };
}
