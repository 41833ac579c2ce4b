// Dropped packets, layer by layer, in the order a packet meets them.

import { say, marks } from "./language.js";
import { h, name, clean, steady, empty } from "./dom.js";
import { count, percent, plural } from "./figure.js";
import { menu, saveCSV, saveJSON } from "./export.js";

const titles = { nic: say`Network card`, "link-errors": say`Link errors`, xdp: "XDP", "softnet-backlog": say`Backlog of the CPU`, "tc-ingress": say`tc, inward`, fragments: say`Fragments`, "rp-filter": say`Reverse path filter`, routing: say`Routing`, firewall: say`Firewall`, conntrack: say`Connection tracking`, ipsec: "IPsec", checksum: say`Checksums`,
  "accept-queue": say`Accept queue`, "syn-queue": say`SYN queue`, "socket-buffer": say`Socket buffer`, "no-socket": say`No socket`, tcp: "TCP", udp: "UDP", "cgroup-bpf": say`Control group's BPF`, neighbour: say`Neighbours`, mtu: "MTU", "tc-egress": say`tc, outward`, qdisc: say`Queueing discipline`, device: say`Device`, other: say`Elsewhere` };
const title = (l) => clean(l.title || titles[l.layer] || l.layer, 60);

// ends are where most of the packets were going, of those that were looked into.
function ends(flows) {
  const sums = new Map();
  for (const f of flows || []) if (f.to?.addr || f.to?.port) {
    const to = `${clean(f.to.addr || "", 60)}${f.to.port ? `:${f.to.port}` : ""}`;
    sums.set(to, (sums.get(to) || 0) + (f.segments || 1));
  }
  const list = [...sums].sort((a, b) => b[1] - a[1]);
  return list.length ? h("div", {}, name(say`to ${list.slice(0, 3).map(([to]) => to).join(", ")}${list.length > 3 ? say` and ${list.length - 3} more` : ""}`)) : null;
}

export default function view(app) {
  const bar = h("div", { class: "bar" }), list = h("div", {}), element = h("div", { class: "page" }, bar, list);
  async function load(range, signal) {
    const d = await app.ask("api/drops", { from: range.from, to: range.to }, signal), layers = (d.layers || []).filter((l) => l.packets > 0);
    app.losses.set("drops", d.losses);
    const all = layers.reduce((a, l) => a + l.packets, 0), most = Math.max(...layers.map((l) => l.packets), 1);
    steady(bar, h("h1", {}, say`Dropped packets`), h("small", { class: "soft" }, layers.length ? say`${plural(all, "packet")} at ${plural(layers.length, "layer")}, in the order a packet meets them` : ""), h("span", { class: "grow" }),
      menu(say`drops`, [[say`Table (CSV)`, () => saveCSV(["layer", "what", "where", "source", "packets"], layers.flatMap((l) => (l.rows || []).map((r) => [l.layer, r.what, r.where, r.source, r.packets])), "drops")], [say`All of it (JSON)`, () => saveJSON(d, "drops")]]));
    steady(list, layers.length ? h("ol", { class: "layers" }, layers.map((l) => h("li", { data: { layer: clean(l.layer, 40) } },
      h("div", { class: "head" }, h("b", {}, title(l)), h("span", { class: "n" }, count(l.packets)), h("span", { class: "n soft" }, percent(l.share ?? l.packets / all)), h("span", { class: "meter", "aria-hidden": "true" }, h("i", { css: { width: `${Math.max(0.6, l.packets / most * 100)}%` } }))),
      h("table", { class: "plain" }, (l.rows || []).slice(0, 40).map((r) => h("tr", {}, h("td", { class: "n" }, count(r.packets)), h("td", {}, r.way ? h("span", { class: "way" }, clean(r.way, 8)) : null, " ", name(r.what || say`not known`)), h("td", { class: "soft" }, name(r.where), ends(r.flows)), h("td", { class: "soft source" }, r.source ? name(r.source) : "")))))))
      : empty(d.because ? clean(d.because, 300) : say`No packet was dropped on this host in this time.`, d.because ? "" : say`Loss on the way to another host shows as retransmissions in the time line.`),
    layers.length && d.clean?.length ? h("p", { class: "soft" }, say`No drops at: ${d.clean.map((x) => titles[x] || clean(x, 40)).join(marks.comma)}.`) : null,
    d.not_checked?.length ? h("p", { class: "soft" }, say`Not watched: ${d.not_checked.map((x) => `${clean(x.cause, 60)} (${clean(x.because, 200)})`).join("; ")}.`) : null);
  }
  return { element, load };
}
