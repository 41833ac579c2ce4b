// The stacks of the page, and the tree that is drawn of them.

const data = JSON.parse(document.getElementById("data").textContent);
const functions = data.functions, threads = data.threads, samples = data.samples;
const PROCESS = "process", THREAD = "thread";

// A stack is a node: the stack below it, and a function. Node 0 is empty.
const stackParent = new Int32Array(data.nodes.function.length);
data.nodes.up.forEach((up, i) => { stackParent[i] = i - up; });
const stackFunction = Int32Array.from(data.nodes.function);

// grow makes the tree for what is chosen. Samples come thread by thread, so
// that the ones on one root are neighbours, and a stack needs no key to be found.
function grow(choice) {
  const tree = { parent: [-1], function: [-1], self: [0], before: [0], roots: [null] };
  const mark = new Int32Array(stackParent.length), place = new Int32Array(stackParent.length);
  const now = samples.values[choice.type], then = data.compares ? samples.before[choice.type] : null;
  const roots = new Map(), pending = [];
  const append = (parent, f) => {
    tree.self.push(0);
    tree.before.push(0);
    tree.function.push(f);
    return tree.parent.push(parent) - 1;
  };
  const rootFor = (t) => {
    const comm = data.texts[threads.comm[t]], pid = threads.pid[t], tid = threads.tid[t], name = data.texts[threads.name[t]];
    const path = [choice.roots === "comm" ? { name: comm, kind: PROCESS } : { name: `${comm} (${pid})`, kind: PROCESS }];
    if (choice.roots === "thread") path.push({ name: tid ? `${name} (${tid})` : name, kind: THREAD });
    let at = 0, key = "";
    for (const step of path) {
      key += step.name + "\n";
      let next = roots.get(key);
      if (next === undefined) {
        tree.roots.push(step);
        next = append(at, -tree.roots.length);
        roots.set(key, next);
      }
      at = next;
    }
    return at;
  };
  let root = 0, last = -1;
  for (let i = 0; i < samples.node.length; i++) {
    const t = samples.thread[i];
    if (!now[i] && !(then && then[i]) || !chosen(choice, i, t)) continue;
    if (t !== last) {
      last = t;
      root = rootFor(t);
    }
    let n = samples.node[i];
    while (n && mark[n] !== root) {
      pending.push(n);
      n = stackParent[n];
    }
    let at = n ? place[n] : root;
    while (pending.length) {
      n = pending.pop();
      at = append(at, stackFunction[n]);
      mark[n] = root;
      place[n] = at;
    }
    tree.self[at] += now[i];
    if (then) tree.before[at] += then[i];
  }
  return complete(tree, choice);
}

function chosen(choice, i, t) {
  if (choice.process !== "" && processes.of[t] !== +choice.process) return false;
  if (choice.thread !== "" && t !== +choice.thread) return false;
  if (choice.state !== "" && samples.state[i] !== +choice.state) return false;
  return choice.slow === "" || samples.slow[i] === +choice.slow;
}

// complete adds the totals and the lists of children.
function complete(tree, choice) {
  const n = tree.parent.length;
  tree.parent = Int32Array.from(tree.parent);
  tree.function = Int32Array.from(tree.function);
  tree.self = Float64Array.from(tree.self);
  tree.selfBefore = Float64Array.from(tree.before);
  tree.total = tree.self.slice();
  tree.before = tree.selfBefore.slice();
  tree.first = new Int32Array(n + 1);
  tree.deep = 0;
  const depth = new Int32Array(n);
  for (let i = n - 1; i > 0; i--) {
    tree.total[tree.parent[i]] += tree.total[i];
    tree.before[tree.parent[i]] += tree.before[i];
    tree.first[tree.parent[i] + 1]++;
  }
  for (let i = 1; i <= n; i++) tree.first[i] += tree.first[i - 1];
  tree.children = new Int32Array(n - 1);
  const fill = tree.first.slice();
  for (let i = 1; i < n; i++) {
    tree.children[fill[tree.parent[i]]++] = i;
    depth[i] = depth[tree.parent[i]] + 1;
    tree.deep = Math.max(tree.deep, depth[i]);
  }
  tree.depth = depth;
  tree.sorted = new Uint8Array(n);
  tree.width = choice.side === "before" ? tree.before : tree.total;
  return tree;
}

// childrenOf are the children of a node, the widest first.
function childrenOf(tree, i) {
  const list = tree.children.subarray(tree.first[i], tree.first[i + 1]);
  if (!tree.sorted[i]) {
    const w = tree.width, f = tree.function;
    if (list.length > 1) list.sort((a, b) => w[b] - w[a] || (f[a] < 0 ? a - b : f[a] - f[b]));
    tree.sorted[i] = 1;
  }
  return list;
}

// frame tells what a node of the tree is.
function frame(tree, i) {
  const f = tree.function[i];
  if (i === 0) return { name: "all", kind: PROCESS };
  if (f < 0) return tree.roots[-f - 1];
  return {
    name: functions.name[f], kind: data.kinds[functions.kind[f]], module: data.texts[functions.module[f]],
    file: data.texts[functions.file[f]], line: functions.line[f], lastLine: functions.last[f], inline: functions.inline[f] === 1,
  };
}

// waiting says that a type is time in which a thread did not run. It always ends
// in the scheduler of the kernel, which tells nothing.
const waiting = (type) => ["off-cpu", "runnable"].includes(data.types[type].type);

// blamed is the node to which a node's own value counts: that one itself or, of
// a wait, the innermost that is not in the kernel, or at least not the scheduler.
function blamed(tree, node, wait) {
  if (!wait) return node;
  const kernel = (i) => tree.function[i] >= 0 && data.kinds[functions.kind[tree.function[i]]] === "kernel";
  let user = node;
  while (kernel(user)) user = tree.parent[user];
  if (tree.function[user] >= 0) return user;
  while (tree.function[node] >= 0 && functions.name[tree.function[node]].includes("schedule") && tree.function[tree.parent[node]] >= 0) node = tree.parent[node];
  return node;
}

// tally sums up by function: self, and total with recursion counted once.
function tally(tree, wait) {
  const n = functions.name.length;
  const sum = { self: new Float64Array(n), total: new Float64Array(n), selfBefore: new Float64Array(n), totalBefore: new Float64Array(n) };
  const active = new Int32Array(n), todo = [0];
  while (todo.length) {
    const i = todo.pop();
    if (i < 0) { // leave
      active[tree.function[~i]]--;
      continue;
    }
    const f = tree.function[i];
    if (f >= 0) {
      const own = tree.self[i] || tree.selfBefore[i] ? tree.function[blamed(tree, i, wait)] : f;
      sum.self[own] += tree.self[i];
      sum.selfBefore[own] += tree.selfBefore[i];
      if (active[f]++ === 0) {
        sum.total[f] += tree.total[i];
        sum.totalBefore[f] += tree.before[i];
      }
      todo.push(~i);
    }
    for (let c = tree.first[i]; c < tree.first[i + 1]; c++) todo.push(tree.children[c]);
  }
  return sum;
}

// byKind sums up the self values by kind of frame, of all kinds that there are;
// "process" has no stack.
function byKind(tree, wait) {
  const sum = new Map(), present = new Set();
  for (let i = 1; i < tree.self.length; i++) {
    if (tree.function[i] >= 0) present.add(data.kinds[functions.kind[tree.function[i]]]);
    if (!tree.self[i]) continue;
    const f = tree.function[blamed(tree, i, wait)];
    const kind = f < 0 ? PROCESS : data.kinds[functions.kind[f]];
    sum.set(kind, (sum.get(kind) || 0) + tree.self[i]);
  }
  for (const kind of present) if (!sum.has(kind)) sum.set(kind, 0);
  return sum;
}

// matches are the functions and roots whose names a regular expression finds,
// and their share of the values of a node: a match on a match counts once.
function matches(tree, top, expression) {
  const hit = functions.name.map((name) => expression.test(name));
  const rootHit = tree.roots.map((r) => r !== null && expression.test(r.name));
  const is = (i) => i > 0 && (tree.function[i] < 0 ? rootHit[-tree.function[i] - 1] : hit[tree.function[i]]);
  let sum = 0, before = 0, frames = 0;
  const todo = [top];
  while (todo.length) {
    const i = todo.pop();
    if (is(i)) {
      sum += tree.total[i];
      before += tree.before[i];
      frames++;
      continue;
    }
    for (let c = tree.first[i]; c < tree.first[i + 1]; c++) todo.push(tree.children[c]);
  }
  return { is, sum, before, frames };
}

// change is how strongly a change is coloured, by how much of its larger share a
// frame lost (to -1) or won (to 1): what is a little more or less stays pale.
// Less than half a percent of all is not told from chance, and fades.
function change(before, after) {
  const most = Math.max(before, after);
  if (most <= 0) return 0;
  const d = (after - before) / most;
  return d * Math.sqrt(Math.abs(d)) * Math.min(1, Math.abs(after - before) / 0.005);
}

// The processes of the threads, and which thread is of which. Where two windows
// are compared, all of one name are one: a service has other pids after a restart.
const processes = (() => {
  const list = [], of = [];
  for (let t = 0; t < threads.pid.length; t++) {
    const last = list[list.length - 1];
    if (!last || last.comm !== threads.comm[t] || last.pid !== threads.pid[t] && !data.compares) {
      const comm = data.texts[threads.comm[t]];
      list.push({ pid: threads.pid[t], comm: threads.comm[t], name: data.compares ? comm : `${comm} (${threads.pid[t]})`, threads: [] });
    }
    list[list.length - 1].threads.push(t);
    of.push(list.length - 1);
  }
  return { list, of };
})();
