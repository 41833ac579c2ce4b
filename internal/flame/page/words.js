// Numbers and names as people read them.

function thousands(n) {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ",");
}

function seconds(ns) {
  const three = (x, unit) => `${Number(x.toPrecision(3))} ${unit}`;
  if (ns === 0) return "0 s";
  if (ns < 999.5) return three(ns, "ns");
  if (ns < 999500) return three(ns / 1e3, "µs");
  if (ns < 999.5e6) return three(ns / 1e6, "ms");
  return ns < 999.5e9 ? three(ns / 1e9, "s") : `${thousands(ns / 1e9)} s`;
}

function amount(value, type) {
  const unit = data.types[type].unit;
  if (unit === "nanoseconds") return seconds(value);
  if (unit === "count") return thousands(value);
  return `${thousands(value)} ${unit}`;
}

// percent never rounds something to nothing, or not quite all to all.
function percent(share) {
  if (!(share > 0)) return "0 %";
  if (share >= 1) return "100 %";
  if (share < 0.001) return "under 0.1 %";
  if (share > 0.999) return "over 99.9 %";
  if (share < 0.0995) return `${(share * 100).toFixed(1)} %`;
  return share > 0.99 ? `${(Math.floor(share * 1000) / 10).toFixed(1)} %` : `${(share * 100).toFixed(0)} %`;
}

function points(difference) {
  const text = `${Math.abs(difference * 100).toFixed(1)} points`;
  return text === "0.0 points" ? "unchanged" : (difference > 0 ? "+" : "−") + text;
}

const typeNames = { "cpu": "On CPU", "off-cpu": "Off CPU", "runnable": "Waiting for a CPU", "samples": "Samples" };
const typeName = (type) => Object.hasOwn(typeNames, data.types[type].type) ? typeNames[data.types[type].type] : data.types[type].type;

const kindNames = { kernel: "kernel", native: "native (C, C++, Rust …)", go: "Go", python: "Python", java: "Java", php: "PHP", node: "Node.js", ruby: "Ruby", unknown: "unknown", process: "process", thread: "thread" };
const kindName = (kind) => kindNames[kind] || kind;

// middle leaves out the middle of a text that is too long.
function middle(text, most) {
  return text.length <= most ? text : `${text.slice(0, most / 2)} … ${text.slice(-most / 2)}`;
}

// shorter is a name without what tells least: the packages of Go and Java, the
// arguments and template parameters of C++.
function shorter(name, kind) {
  switch (kind) {
    case "go": return name.slice(name.lastIndexOf("/") + 1);
    case "java": return name.replace(/\(.*$/, "").split(".").slice(-2).join(".");
    case "php": return name.slice(name.lastIndexOf("\\") + 1);
    case "native": {
      if (name.includes("operator")) return name; // has brackets and blanks of its own
      const bare = unbracketed(name.replace(/\(anonymous namespace\)::/g, ""));
      return /\w$/.test(bare) && !/^(::|\[)/.test(bare) ? bare.split(" ").pop() : name; // without the type that it returns
    }
  }
  return name;
}

function unbracketed(name) {
  let depth = 0, out = "";
  for (const c of name) {
    if (c === "<" || c === "(") depth++;
    if (depth === 0) out += c;
    if ((c === ">" || c === ")") && depth > 0) depth--;
  }
  return depth === 0 ? out.replace(/ (const|\[.*\])$/g, "").trim() : name;
}
