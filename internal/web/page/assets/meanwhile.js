// What else the process of a request called meanwhile: calls that may belong to it,
// and are not certain to (those are in its path).

import { say } from "./language.js";
import { h, fill } from "./dom.js";
import { began, rows } from "./requests.js";

// meanwhile fills a place with them. It is an addition: when it cannot be had, the place
// stays empty.
export async function meanwhile(app, r, hops, at, signal) {
  const from = began(r), to = from + Math.max(r.total_us / 1e6, 0.001), around = { from: from - 1, to: to + 1 };
  if (r.side !== "served" || !(r.ledger_us?.["server.call"] > 0) && r.ledger_us?.["server.cpu"] !== undefined) return;
  try {
    const { endpoints = [] } = await app.ask("api/endpoints", around, signal);
    const calls = endpoints.filter((e) => e.side === "called" && e.process && (e.process.pid === r.process?.pid || e.process.comm === r.process?.comm)).slice(0, 40).map((e) => e.key);
    if (!calls.length) return;
    const known = new Set(hops.map((x) => x.called?.id)), d = await app.ask("api/requests", { from, to, ep: calls, sort: "slow", limit: 20 }, signal);
    const others = (d.requests || []).filter((x) => !known.has(x.id)).slice(0, 5);
    if (others.length) fill(at, h("h2", {}, hops.length ? say`What else its process called meanwhile` : say`What its process called meanwhile`), h("p", { class: "soft" }, say`The slowest. It is not certain that they were made for this request: the process may have had several in hand.`), rows(app, others));
  } catch (e) {
    if (e.name === "AbortError") throw e;
  }
}
