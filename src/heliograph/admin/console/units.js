// Units of order that wait for somebody.
import { get, place, post } from "./api.js";
import { ask, fill, h, number, toast } from "./dom.js";

export function show(main) {
  const rows = h("tbody", {});
  fill(main, h("div", { className: "head" }, h("div", {}, h("h1", {}, "Stuck units"), h("p", { className: "lead" }, "A message of a unit of order failed as often as its destination's policy allows. What is behind it waits, so that its order holds."))),
    h("section", { className: "sheet" }, h("div", { className: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "unit"), h("th", {}, "destination"), h("th", { className: "number" }, "waiting"), h("th", {}, "what to do"), h("th", {}, ""))), rows))));

  async function resume(unit, gives) {
    const said = await ask(`${gives ? "Give up the message of" : "Resume"} ${unit.name || unit.unit}`, [], { yes: gives ? "Give it up" : "Resume", danger: gives, says: gives ? "The message for which it stopped goes to the dead; the rest goes on." : "The same message is tried again: mend its consumer first." });
    if (!said) return;
    try { await post(`destinations/${place(unit.destination)}/units/${place(unit.name || unit.unit)}/resume`, { give_up: gives }); toast("It goes on."); } catch (error) { toast(error.message, true); }
    look();
  }

  async function look() {
    try {
      const { units } = await get("units");
      fill(rows, units.map((unit) => h("tr", {}, h("td", { className: "name" }, unit.name || unit.unit), h("td", {}, h("a", { className: "name", href: `#/d/${encodeURIComponent(unit.destination)}` }, unit.destination)), h("td", { className: "number" }, number(unit.waiting)), h("td", {}, unit.sentence),
        h("td", {}, h("div", { className: "actions" }, h("button", { type: "button", onclick: () => resume(unit, false) }, "Resume…"), h("button", { type: "button", className: "danger", onclick: () => resume(unit, true) }, "Give up…"))))));
      if (!units.length) fill(rows, h("tr", {}, h("td", { colSpan: 5, className: "none" }, "All units move.")));
    } catch (error) { fill(rows, h("tr", {}, h("td", { colSpan: 5 }, h("div", { className: "trouble" }, error.message)))); }
  }
  look();
  const timer = setInterval(look, 5000);
  return () => clearInterval(timer);
}
