// What happened, the latest first.
import { world } from "./app.js";
import { clock, fill, h } from "./dom.js";

const KNOWN = ["time", "node", "event"];

export function sentence(event) {
  const rest = Object.entries(event).filter(([key, value]) => !KNOWN.includes(key) && value !== "");
  return [h("b", {}, event.event), rest.length ? " — " : "", rest.map(([key, value]) => `${key.replaceAll("_", " ")} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ")];
}

export function show(main) {
  const search = h("input", { type: "search", className: "wide", placeholder: "Find  ( / )", "aria-label": "Find in events" });
  const list = h("ol", { className: "story" });
  const draw = () => {
    const part = search.value.toLowerCase();
    const found = world.events.filter((event) => !part || JSON.stringify(event).toLowerCase().includes(part)).slice(-200).reverse();
    fill(list, found.map((event) => h("li", {}, h("time", {}, clock(event.time)), h("span", { className: "node-name" }, event.node), h("span", { className: "said" }, sentence(event)))));
    if (!found.length) fill(list, h("li", { className: "none" }, "Nothing happened that would be called so."));
  };
  fill(main, h("div", { className: "head" }, h("div", {}, h("h1", {}, "Events"), h("p", { className: "lead" }, "What the nodes noted, as it happens."))),
    h("section", { className: "sheet" }, h("div", { className: "filters" }, search), list));
  search.addEventListener("input", draw);
  addEventListener("events", draw);
  draw();
  return () => removeEventListener("events", draw);
}
