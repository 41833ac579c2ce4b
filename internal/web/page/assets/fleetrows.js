// What is wrong in the fleet, in the sentences of slowray fleet why, and the tables of
// services and hosts.

import { say } from "./language.js";
import { h, name, clean, steady } from "./dom.js";
import { count, micros, rate, permille, plural } from "./figure.js";
import { moment, other, ago } from "./clock.js";

const ROWS = 200; // that are drawn of a table
const scheme = ["http", "//"].join(":"); // of addresses that are shown; the page asks for none of them

// whyList shows the causes. What was opened stays open when it is drawn anew.
export function whyList() {
  const body = h("div", { class: "cards" }), element = h("section", { id: "why", "aria-label": say`What is wrong` }, h("h2", { tabindex: "-1" }, say`What is wrong`), body), opened = new Map();
  const folded = (key, title, open, ...children) => h("details", { class: "ruled", open: opened.get(key) ?? open, on: { toggle: (e) => opened.set(key, e.target.open) } }, h("summary", { data: { key } }, title), children);
  const lines = (list, left = 0) => h("ul", { class: "told" }, list.map((t) => h("li", {}, clean(t, 600))), left > 0 ? h("li", { class: "soft" }, say`… and ${count(left)} more`) : null);
  const unchecked = (list) => h("ul", { class: "told" }, list.map((u) => h("li", {}, h("b", {}, clean(u.what, 200)), `: ${clean(u.because, 400)}`)));
  const findings = (list) => list.map((f) => h("div", { class: "told" }, h("p", {}, clean(f.text, 600)), h("ul", {}, f.lines.map((t) => h("li", { class: "soft" }, clean(t, 400))))));
  const part = (title, content, n) => n ? h("div", {}, h("h3", {}, title), content) : null;

  function cause(c, i) {
    const key = `cause ${c.text}`;
    return h("details", { class: `finding ${c.lasts ? "grave" : "follows"}`, open: opened.get(key) ?? i === 0, on: { toggle: (e) => opened.set(key, e.target.open) } },
      h("summary", { data: { key } }, h("span", { class: "bar" }), h("span", { class: "what" }, h("b", {}, `${i + 1}. ${clean(c.text, 800)}`), h("span", { class: "soft" }, clean(c.extent, 200))), h("span", { class: "since" }, c.lasts ? h("span", { class: "badge" }, say`lasts`) : say`over`)),
      h("div", { class: "body" }, findings(c.findings),
        h("div", { class: "halves" }, part(say`Path`, h("ol", { class: "told" }, c.chain.map((t) => h("li", {}, clean(t, 400)))), c.chain.length > 1),
          part(say`Evidence`, lines(c.evidence), c.evidence.length), part(say`Ruled out`, unchecked(c.ruled_out), c.ruled_out.length)),
        folded(`affected ${c.text}`, say`Affected: ${plural(c.affected.length + c.left_out, "endpoint")}`, false, lines(c.affected, c.left_out))));
  }

  function show(why) {
    const wrong = why.causes.length + why.alone.length;
    steady(body, h("p", { class: "soft" }, `${clean(why.head, 300)}.`),
      wrong ? null : h("p", { class: "fine" }, h("i", { class: `tick ${why.healthy && !why.in_part ? "" : "none"}` }), h("span", {}, why.healthy ? clean(why.healthy, 300) : say`Nothing could be judged.`)),
      why.causes.map(cause), why.left_out.causes ? h("p", { class: "soft" }, say`… and ${plural(why.left_out.causes, "cause")} more`) : null,
      why.alone.length ? folded("alone", say`Abnormal, and sharing nothing that others have not: ${count(why.alone.length + why.left_out.alone)}`, !why.causes.length, lines(why.alone, why.left_out.alone)) : null,
      why.findings.length ? folded("findings", say`Findings of hosts${why.causes.length ? say`, in addition to these` : ""}: ${count(why.findings.length + why.left_out.findings)}`, false, findings(why.findings)) : null,
      why.clocks.length ? folded("clocks", say`Clocks`, false, lines(why.clocks)) : null,
      why.not_checked.length ? folded("unchecked", say`Not checked: ${count(why.not_checked.length)}`, why.in_part || !wrong && !why.healthy, unchecked(why.not_checked)) : null);
  }
  return { element, show };
}

// tables shows services and hosts; choose is called with a service's node in the map.
// failing marks errors where one request of a hundred fails, as the models have it: some fail anywhere.
const failing = (r) => r.errors > 0 && r.errors >= r.rps / 100 ? "bad" : "";

export function tables(choose) {
  const search = h("input", { type: "search", placeholder: say`Filter: name, label, address`, "aria-label": say`Filter services and hosts`, data: { search: "" }, on: { input: () => draw() } });
  const services = h("div", { class: "scroll" }), hosts = h("div", { class: "scroll" });
  const servicePart = h("section", { id: "services", "aria-label": say`Services` }, h("div", { class: "bar" }, h("h2", { tabindex: "-1" }, say`Services`), h("span", { class: "grow" }), search), services);
  const hostPart = h("section", { id: "hosts", "aria-label": say`Hosts` }, h("h2", { tabindex: "-1" }, say`Hosts`), hosts);
  let data = null, chosen = null;

  function show(d, choice) {
    data = d;
    chosen = choice;
    draw();
  }

  const head = (...cells) => h("thead", {}, h("tr", {}, cells.map(([text, cls, title]) => h("th", { class: cls || "", scope: "col", title }, text))));
  const mark = (n, of) => h("td", {}, n ? h("span", { class: "badge bad" }, `▲ ${count(n)}${of ? say` of ${count(of)}` : ""}`) : h("span", { class: "soft" }, "–"));
  const rest = (all, drawn, left) => all - drawn + left > 0 ? h("p", { class: "soft" }, say`${plural(all - drawn + left, "row")} more${left ? "" : say`: filter to see them`}.`) : null;

  function draw() {
    const want = search.value.trim().toLowerCase(), hit = (...texts) => !want || texts.some((t) => String(t).toLowerCase().includes(want));
    const some = data.services.filter((r) => hit(r.service, r.worst_host)), machines = data.hosts.filter((r) => hit(r.host, ...r.addresses, ...Object.entries(r.labels).map(([k, v]) => `${k}=${v}`)));
    steady(services, some.length ? h("table", { class: "rows" }, head([say`service`], [say`abnormal`, "", say`hosts`], [say`hosts`, "n"], [say`requests/s`, "n"], [say`errors/s`, "n"], ["p50", "n", say`of all requests of all hosts`], ["p99", "n", say`of all requests of all hosts`], [say`worst host`], [say`its p99`, "n"]),
      h("tbody", {}, some.slice(0, ROWS).map((r) => h("tr", { class: `${r.abnormal ? "abnormal" : ""} ${nodeOf(r.service) === chosen ? "chosen" : ""}` }, h("th", { scope: "row" }, h("button", { type: "button", class: "link", data: { key: `service ${r.service}` }, title: say`Show in the map`, on: { click: () => choose(nodeOf(r.service)) } }, name(r.service))),
        mark(r.abnormal, r.hosts), h("td", { class: "n" }, count(r.hosts)), h("td", { class: "n" }, rate(r.rps)), h("td", { class: `n ${failing(r)}` }, rate(r.errors)), h("td", { class: "n" }, micros(r.p50_us)), h("td", { class: "n" }, micros(r.p99_us)), h("td", {}, name(r.worst_host)), h("td", { class: "n" }, micros(r.worst_p99_us))))))
      : h("p", { class: "soft" }, want ? say`No service is called so.` : say`No service answered in this time.`), rest(some.length, Math.min(some.length, ROWS), data.left_out.services));
    steady(hosts, machines.length ? h("table", { class: "rows" }, head([say`host`], [say`abnormal`, "", say`endpoints`], [say`last heard of`], [say`labels`], [say`services`, "n"], [say`requests/s`, "n"], [say`errors/s`, "n"], [say`worst service`], [say`its p99`, "n"], [say`retransmitted`, "n", say`TCP segments`]),
      h("tbody", {}, machines.slice(0, ROWS).map((r) => h("tr", { class: r.abnormal || r.silent ? "abnormal" : "" }, h("th", { scope: "row" }, h("details", { class: "host" }, h("summary", { data: { key: `host ${r.host}` } }, name(r.host)), ownPage(r))),
        mark(r.abnormal), h("td", {}, heard(r)), h("td", { class: "labels" }, Object.entries(r.labels).map(([k, v]) => [h("bdi", { class: "badge" }, clean(`${k}=${v}`, 60)), " "])), h("td", { class: "n" }, count(r.services)), h("td", { class: "n" }, rate(r.rps)), h("td", { class: `n ${failing(r)}` }, rate(r.errors)), h("td", {}, name(r.worst_service)), h("td", { class: "n" }, r.worst_service ? micros(r.worst_p99_us) : "–"), h("td", { class: "n" }, permille(r.loss_permille))))))
      : h("p", { class: "soft" }, want ? say`No host is called so.` : say`No host ships here.`), rest(machines.length, Math.min(machines.length, ROWS), data.left_out.hosts));
  }

  function heard(r) {
    const t = Date.parse(r.last) / 1000;
    if (!(t > 0)) return h("span", { class: "soft" }, say`never`);
    return h("span", { class: r.silent ? "bad" : "", title: other(t) }, r.silent ? say`silent since ${moment(t)}` : ago(t));
  }

  // ownPage tells where the host's own page is, as text: it listens on loopback unless it
  // learned otherwise.
  function ownPage(r) {
    const at = `#/?from=${data.from}&to=${data.to}`, plain = /^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(r.host), addresses = r.addresses.filter((a) => /^[0-9A-Fa-f:.]+$/.test(a)).slice(0, 4), reach = plain ? r.host : addresses[0];
    return h("div", { class: "own" }, h("p", { class: "soft" }, [r.kernel && `Linux ${clean(r.kernel, 60)}`, r.cpus && plural(r.cpus, "CPU"), r.version && `slowray ${clean(r.version, 40)}`, r.addresses.map((a) => clean(a, 60)).slice(0, 8).join(", ")].filter(Boolean).join(" · ")),
      reach ? [h("p", {}, say`Its own page, of this time:`), h("pre", {}, `ssh -L 7788:127.0.0.1:7788 ${reach}\n${scheme}localhost:7788/${at}`)] : h("p", { class: "soft" }, say`No address of it is known.`),
      addresses.length ? [h("p", { class: "soft" }, say`or, where it listens there (slowray record --listen):`), h("pre", {}, addresses.map((a) => `${scheme}${a.includes(":") ? `[${a}]` : a}:7788/${at}`).join("\n"))] : null);
  }

  return { elements: [servicePart, hostPart], show };
}

// nodeOf is the node of a service in the map: all its ports are one.
export function nodeOf(service) {
  const i = service.lastIndexOf(":");
  return `s:${i > 0 ? service.slice(0, i) : service}`;
}
