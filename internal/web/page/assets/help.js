// What the page can do, and its keys.

import { say } from "./language.js";
import { h, button } from "./dom.js";

const keys = [["1 … 7", say`views`], ["/", say`search or filter`], ["[ ]", say`earlier, later`], ["+ −", say`closer, wider`], ["L", say`pause, go on`], ["T", say`light or dark`], ["C", say`time of day, or before now`],
  ["↑ ↓", say`in the list of endpoints: move`], ["← →", say`in a chart: move; with Shift: select`], ["S", say`in a chart: save it`], ["Enter", say`in a chart: look closer at what is selected; in a table: open`], [say`two clicks`, say`in a chart: twice as much time`], ["Esc", say`leave a selection, a menu, this help`]];

let open = null, before = null;

export function help() {
  if (closeHelp()) return;
  before = document.activeElement;
  open = h("dialog", { "aria-label": say`Help and keys`, on: { close: closeHelp, click: (e) => { if (e.target === open) closeHelp(); } } },
    h("h2", {}, say`From “it was slow” to the cause`),
    h("ol", {},
      h("li", {}, say`Findings stand above the time line, the gravest first: what is wrong, since when, and how much of the trouble it explains.`),
      h("li", {}, say`Drag over a time that was slow: what was different then stands next to it.`),
      h("li", {}, say`Choose one of the slowest requests: its time, part by part, and who waited for whom.`)),
    h("p", { class: "soft" }, say`Everything shown here has an address: copy it to show somebody else the same. Every picture and table can be saved.`),
    h("h2", {}, say`Keys`), h("dl", { class: "keys" }, keys.map(([k, text]) => [h("dt", {}, h("kbd", {}, k)), h("dd", {}, text)])),
    button(say`Close`, closeHelp, { autofocus: true }));
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
