// Everything at a glance.
import { get } from "./api.js";
import { world } from "./app.js";
import { bytes, clock, fill, h, many, number, rate, set, span } from "./dom.js";
import { sentence } from "./log.js";
import { Plot } from "./plot.js";

export function show(main) {
  const values = {};
  const tile = (name, what, href) => {
    values[name] = h("div", { className: "value" }, "–");
    values[`${name}_more`] = h("div", { className: "more" }, "");
    const inside = [h("div", { className: "what" }, what), values[name], values[`${name}_more`]];
    return (values[`${name}_tile`] = href ? h("a", { className: "tile", href }, inside) : h("div", { className: "tile" }, inside));
  };
  const plot = new Plot(world.rates, [["published", "in", "in"], ["delivered", "out", "out"]]);
  const deepest = h("tbody", {});
  const last = h("ol", { className: "story" });
  const state = h("div", {});
  const facts = h("p", { className: "lead" }, "…");
  fill(main,
    h("div", { className: "head" }, h("div", {}, h("h1", {}, "Overview"), facts)),
    h("div", { className: "grid" },
      tile("in", "In a second"), tile("out", "Out a second"), tile("depth", "Waiting", "#/destinations"),
      tile("in_flight", "With consumers"), tile("consumers", "Consumers"), tile("dead", "Dead", "#/dead"), tile("stopped", "Stuck units", "#/units"), tile("held", "Held back", "#/cluster")),
    state,
    h("section", { className: "sheet" }, h("div", { className: "title" }, h("h2", {}, "The last two minutes")), plot.element),
    h("div", { className: "two" },
      h("section", { className: "sheet" }, h("div", { className: "title" }, h("h2", {}, "Where most waits"), h("span", { className: "grow" }), h("a", { href: "#/destinations" }, "all destinations")),
        h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "destination"), h("th", { className: "number" }, "waiting"), h("th", { className: "number" }, "consumers"))), deepest)),
      h("section", { className: "sheet" }, h("div", { className: "title" }, h("h2", {}, "What happened last"), h("span", { className: "grow" }), h("a", { href: "#/log" }, "all events")), last)));

  const drawTotals = () => {
    const totals = world.totals;
    if (!totals) return;
    set(values.in, rate(world.rates.now.published));
    set(values.out, rate(world.rates.now.delivered));
    set(values.in_more, `${number(totals.published)} so far`);
    set(values.out_more, `${number(totals.delivered)} so far`);
    set(values.depth, number(totals.depth));
    set(values.depth_more, `in ${many(totals.queues, "queue")}, ${many(totals.topics, "topic")}`);
    set(values.in_flight, number(totals.in_flight));
    set(values.consumers, number(totals.consumers));
    set(values.consumers_more, many(totals.subscriptions, "subscription"));
    for (const [name, key, words, level] of [["dead", "dead", "none died", "warn"], ["stopped", "stopped_units", "all units move", "bad"], ["held", "held_back", "the cluster is whole", "warn"]]) {
      set(values[name], number(totals[key]));
      set(values[`${name}_more`], totals[key] ? "look into it" : words);
      values[`${name}_tile`].classList.toggle(level, Boolean(totals[key]));
    }
    plot.draw();
  };
  const drawEvents = () => fill(last, world.events.slice(-8).reverse().map((event) => h("li", {}, h("time", {}, clock(event.time)), h("span", { className: "node-name" }, event.node), h("span", { className: "said" }, sentence(event)))));
  const drawState = () => {
    const parts = Object.entries(world.cluster?.sub_clusters ?? {}).filter(([, view]) => view.state);
    fill(state, parts.map(([name, view]) => h("a", { className: `sheet state ${view.state} tile`, href: "#/cluster" }, h("div", { className: "title" }, h("span", { className: "letter" }, view.state), h("div", { className: "words" }, h("h2", {}, name), h("div", {}, view.sentence))))));
  };
  const refresh = async () => {
    try {
      const [found, { server }] = await Promise.all([get("destinations?sort=depth&limit=8"), get("overview")]);
      const most = Math.max(1, ...found.destinations.map((each) => each.depth));
      fill(deepest, found.destinations.filter((each) => each.depth).map((each) => {
        const bar = h("i", {});
        bar.style.width = `${(100 * each.depth) / most}%`;
        return h("tr", { className: "link" }, h("td", {}, h("a", { className: "name", href: `#/d/${encodeURIComponent(each.address)}` }, each.address), h("div", { className: "meter" }, bar)), h("td", { className: "number" }, number(each.depth)), h("td", { className: "number" }, number(each.consumers)));
      }));
      if (!deepest.children.length) fill(deepest, h("tr", {}, h("td", { colSpan: 3, className: "none" }, "Nothing waits anywhere.")));
      set(facts, `Node ${server.node}, up for ${span(server.uptime_seconds)}, ${many(server.connections, "connection")}, ${bytes(server.rss_bytes)} of memory, journal ${bytes(server.journal_bytes)}${server.disk_full ? ", the disk is full" : ""}.`);
    } catch { /* the bar says so */ }
  };
  const heard = [["totals", drawTotals], ["events", drawEvents], ["cluster", drawState]];
  for (const [name, draw] of heard) { addEventListener(name, draw); draw(); }
  refresh();
  const timer = setInterval(refresh, 3000);
  return () => { clearInterval(timer); for (const [name, draw] of heard) removeEventListener(name, draw); };
}
