// What the page can do, and its keys.

import { h, button } from "./dom.js";

const keys = [["1 … 7", "views"], ["/", "search or filter"], ["[ ]", "earlier, later"], ["+ −", "closer, wider"], ["L", "pause, go on"], ["T", "light or dark"], ["C", "time of day, or before now"],
  ["↑ ↓", "in the list of endpoints: move"], ["← →", "in a chart: move; with Shift: select"], ["S", "in a chart: save it"], ["Enter", "in a chart: look closer at what is selected; in a table: open"], ["two clicks", "in a chart: twice as much time"], ["Esc", "leave a selection, a menu, this help"]];

let open = null, before = null;

export function help() {
  if (closeHelp()) return;
  before = document.activeElement;
  open = h("dialog", { "aria-label": "Help and keys", on: { close: closeHelp, click: (e) => { if (e.target === open) closeHelp(); } } },
    h("h2", {}, "From “it was slow” to the cause"),
    h("ol", {},
      h("li", {}, "Findings stand above the time line, the gravest first: what is wrong, since when, and how much of the trouble it explains."),
      h("li", {}, "Drag over a time that was slow: what was different then stands next to it."),
      h("li", {}, "Choose one of the slowest requests: its time, part by part, and who waited for whom.")),
    h("p", { class: "soft" }, "Everything shown here has an address: copy it to show somebody else the same. Every picture and table can be saved."),
    h("h2", {}, "Keys"), h("dl", { class: "keys" }, keys.map(([k, text]) => [h("dt", {}, h("kbd", {}, k)), h("dd", {}, text)])),
    button("Close", closeHelp, { autofocus: true }));
  document.body.append(open);
  open.showModal();
}

export function closeHelp() {
  if (!open) return false;
  const was = open;
  open = null;
  was.remove();
  before?.focus?.();
  return true;
}
