// What belongs to a request on the other side: what its process called
// meanwhile, and how the other end on this host saw the same request.

import { h, fill } from "./dom.js";
import { began, rows } from "./requests.js";

// beside fills a place with the calls that a served request may have waited for,
// or with the served request that a call was. It is an addition: when it cannot
// be had, the place stays empty.
export async function beside(app, r, at, signal) {
  const from = began(r), to = from + Math.max(r.total_us / 1e6, 0.001), around = { from: from - 1, to: to + 1 };
  if (r.side === "served" && !(r.ledger_us?.["server.call"] > 0) && r.ledger_us?.["server.cpu"] !== undefined) return;
  try {
    const { endpoints = [] } = await app.ask("api/endpoints", around, signal);
    if (r.side === "served") {
      const calls = endpoints.filter((e) => e.side === "called" && e.process && (e.process.pid === r.process?.pid || e.process.comm === r.process?.comm)).slice(0, 40).map((e) => e.key);
      if (!calls.length) return;
      const d = await app.ask("api/requests", { from, to, ep: calls, sort: "slow", limit: 5 }, signal);
      if (d.requests?.length) fill(at, h("h2", {}, "What its process called meanwhile"), h("p", { class: "soft" }, "The slowest; where a process has several requests at once, some may belong to another one."), rows(app, d.requests));
      return;
    }
    const other = endpoints.filter((e) => e.side === "served" && e.addr === r.peer_addr && e.port === r.peer_port).map((e) => e.key);
    if (!other.length) return;
    const d = await app.ask("api/requests", { from: from - 0.05, to, ep: other, sort: "time", limit: 1000 }, signal);
    const same = (d.requests || []).filter((x) => x.peer_addr === r.addr && x.peer_port === r.port).sort((a, b) => Math.abs(began(a) - from) - Math.abs(began(b) - from)).slice(0, 1);
    if (same.length) fill(at, h("h2", {}, "The same request, as the other end saw it"), rows(app, same));
  } catch (e) {
    if (e.name === "AbortError") throw e;
  }
}
