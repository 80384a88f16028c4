// One destination: how it is, who consumes, what waits, and what can be done about it.
import { call, get, listen, place, post } from "./api.js";
import { ago, ask, bytes, field, fill, h, many, number, plain, rate, set, toast } from "./dom.js";
import { Messages } from "./messages.js";
import { Plot, Rates } from "./plot.js";

export function show(main, name) {
  const path = `destinations/${place(name)}`;
  const isQueue = name.startsWith("queue:");
  const rates = new Rates("published", "delivered", "settled");
  const plot = new Plot(rates, [["published", "in", "in"], ["delivered", "out", "out"]]);
  const values = {};
  const tile = (key, what) => h("div", { className: "tile" }, h("div", { className: "what" }, what), (values[key] = h("div", { className: "value" }, "–")));
  const badges = h("span", { className: "actions" });
  const consumers = h("tbody", {});
  const subscribers = h("tbody", {});
  const unitRows = h("tbody", {});
  const unitSheet = h("section", { className: "sheet", hidden: true });
  const policy = h("dl", { className: "facts columns-of-facts" });
  const pauseButton = h("button", { type: "button", onclick: pauseOrResume }, "Pause");
  let last = null;
  let current = {};

  const messages = !isQueue ? null : new Messages(name, { actions: (list) => [
    h("button", { type: "button", onclick: () => move(list) }, "Move…"),
    h("button", { type: "button", className: "danger", onclick: () => remove(list) }, "Delete…")] });

  fill(main,
    h("div", { className: "head" }, h("h1", {}, name), badges, h("span", { className: "grow" }),
      h("div", { className: "actions" }, name.startsWith("alerts:") ? h("a", { className: "button", href: `#/alerts/${encodeURIComponent(name)}` }, "Live alerts") : h("button", { className: "main", type: "button", onclick: send }, "Send…"), pauseButton,
        h("button", { type: "button", className: "danger", onclick: purge }, "Purge…"), h("button", { type: "button", className: "danger", onclick: destroy }, "Delete…"))),
    h("div", { className: "grid" }, tile("in", "In a second"), tile("out", "Out a second"), tile("depth", "Waiting"), tile("in_flight", "With consumers"), tile("consumers", "Consumers"), tile("oldest", "Oldest waits since"), tile("bytes", "About so much held")),
    h("section", { className: "sheet" }, h("div", { className: "title" }, h("h2", {}, "The last two minutes")), plot.element),
    unitSheet,
    messages && h("section", { className: "sheet" }, h("div", { className: "title" }, h("h2", {}, "What waits"), h("span", { className: "grow" }), h("button", { type: "button", onclick: () => messages.look() }, "Look again")), messages.element),
    name.startsWith("topic:") && h("section", { className: "sheet" }, h("div", { className: "title" }, h("h2", {}, "Subscriptions")), h("div", { className: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["name", "client", "kind", "selector"].map((words) => h("th", {}, words)), ["waiting", "in flight", "consumers"].map((words) => h("th", { className: "number" }, words)))), subscribers))),
    h("section", { className: "sheet" }, h("div", { className: "title" }, h("h2", {}, "Who consumes")), h("div", { className: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["user", "client", "session"].map((words) => h("th", {}, words)), ["in flight", "room for"].map((words) => h("th", { className: "number" }, words)), h("th", {}, ""))), consumers))),
    h("section", { className: "sheet" }, h("div", { className: "title" }, h("h2", {}, "Policy"), h("span", { className: "grow" }), h("button", { type: "button", onclick: change }, "Change…")), policy));

  fill(unitSheet, h("div", { className: "title" }, h("h2", {}, "Units of order that wait")), h("div", { className: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "unit"), h("th", { className: "number" }, "waiting"), h("th", {}, "why"), h("th", {}, ""))), unitRows)));

  function draw(each) {
    last = each;
    rates.add(each);
    set(values.in, rate(rates.now.published));
    set(values.out, rate(rates.now.delivered));
    set(values.depth, number(each.depth));
    set(values.in_flight, number(each.in_flight));
    set(values.consumers, number(each.consumers));
    set(values.bytes, bytes(each.held_bytes));
    plot.draw();
    set(pauseButton, each.consumption_paused || each.production_paused ? "Resume" : "Pause…");
    fill(badges, h("span", { className: "badge sun" }, each.kind), each.production_paused && h("span", { className: "badge warn" }, "production paused"), each.consumption_paused && h("span", { className: "badge warn" }, "consumption paused"), each.blocked && h("span", { className: "badge warn" }, each.blocked), each.held_back > 0 && h("span", { className: "badge warn", title: each.held_back_why }, `${number(each.held_back)} held back`), each.stopped_units > 0 && h("span", { className: "badge bad" }, `${many(each.stopped_units, "unit")} stuck`));
    fill(subscribers, (each.subscribers ?? []).map((one) => h("tr", {}, h("td", { className: "name" }, one.name || "–"), h("td", {}, one.client || "–"), h("td", {}, [one.durable && "durable", one.shared && "shared"].filter(Boolean).join(", ") || "while connected"), h("td", {}, one.selector ? h("code", {}, one.selector) : "–"), [one.depth, one.in_flight, one.consumers].map((value) => h("td", { className: "number" }, number(value))))));
    if (!subscribers.children.length) fill(subscribers, h("tr", {}, h("td", { colSpan: 7, className: "none" }, "Nobody subscribes.")));
  }

  async function slow() {
    const settled = await Promise.allSettled([get(`${path}/consumers`), isQueue ? get(`${path}/messages?limit=1`) : null, get(`${path}/units`)]);
    const [who, first, units] = settled.map((each) => each.value);
    if (who) {
      fill(consumers, who.consumers.map((each) => h("tr", {}, h("td", {}, each.user), h("td", {}, each.client || "–"), h("td", { className: "mono" }, each.session), h("td", { className: "number" }, number(each.in_flight)), h("td", { className: "number" }, number(each.credit)), h("td", {}, each.away && h("span", { className: "badge warn" }, "away")))));
      if (!who.consumers.length) fill(consumers, h("tr", {}, h("td", { colSpan: 6, className: "none" }, "Nobody consumes here.")));
    }
    set(values.oldest, first?.messages.length ? ago(first.messages[0].timestamp).replace(" ago", "") : "–");
    if (units) {
      unitSheet.hidden = !units.units.length;
      fill(unitRows, units.units.slice(0, 20).map((unit) => h("tr", {}, h("td", { className: "name" }, unit.name || unit.unit), h("td", { className: "number" }, number(unit.waiting)), h("td", {}, unit.sentence), h("td", {}, unit.reason === "stopped" && h("a", { href: "#/units" }, "stuck")))));
    }
  }

  async function describe() {
    try {
      const each = await get(path);
      draw(each);
      current = each.policy;
      fill(policy, Object.entries(each.policy).map(([key, value]) => h("div", {}, h("dt", {}, key.replaceAll("_", " ")), h("dd", {}, said(key, value)))));
    } catch (error) { fill(main, h("div", { className: "trouble" }, error.message), h("a", { href: "#/destinations" }, "All destinations")); }
  }

  function said(key, value) {
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value === "number") return key.endsWith("bytes") && value ? bytes(value) : plain(value);
    return value === "" ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);
  }

  function json(text) {
    try { return JSON.parse(text); } catch { throw new Error("That is no JSON: names and texts stand in double quotes, and no comma behind the last."); }
  }

  async function attempt(work, words) {
    try { const done = await work(); toast(typeof words === "function" ? words(done) : words); await describe(); messages?.look(); }
    catch (error) { toast(error.message, true); }
  }

  async function send() {
    const said = await ask(`Send to ${name}`, [field("Body: text, or JSON", "body", { rows: 6 }), field("Properties, as JSON", "properties", { value: "{}", className: "mono" }), field("Priority, 0 to 9", "priority", { type: "number", min: 0, max: 9, value: 4 }), field("Unit of order", "unit_of_order")], { yes: "Send" });
    if (!said) return;
    let body = said.body;
    try { const parsed = JSON.parse(said.body); if (typeof parsed === "object" && parsed) body = parsed; } catch { /* it is text */ }
    await attempt(() => post(`${path}/messages`, { body, properties: json(said.properties || "{}"), priority: Number(said.priority), unit_of_order: said.unit_of_order || null }), (done) => `${done.id} is stored.`);
  }

  async function pauseOrResume() {
    if (last?.consumption_paused || last?.production_paused) { await attempt(() => post(`${path}/resume`), "It goes on."); return; }
    const said = await ask(`Pause ${name}`, [h("label", { className: "tick" }, h("input", { type: "checkbox", name: "consumption", checked: true }), "consumers get nothing more"), h("label", { className: "tick" }, h("input", { type: "checkbox", name: "production" }), "producers are told to wait")], { yes: "Pause" });
    if (said) await attempt(() => post(`${path}/pause`, { consumption: "consumption" in said, production: "production" in said }), "It is paused.");
  }

  const chosen = (list) => (list.chosen.size ? { ids: [...list.chosen] } : { selector: list.selector });
  const which = (list) => (list.chosen.size ? `${list.chosen.size} messages` : list.selector ? "all that the selector selects" : "all that wait");

  // What is moved or deleted must not be with a consumer meanwhile.
  async function whilePaused(work) {
    const wasPaused = last?.consumption_paused;
    if (!wasPaused) await post(`${path}/pause`, { consumption: true });
    try { return await work(); } finally { if (!wasPaused) await post(`${path}/resume`, { consumption: true }); }
  }

  async function move(list) {
    const said = await ask(`Move ${which(list)}`, field("To which queue", "target", { required: true, value: "queue:", pattern: "queue:.+" }), { yes: "Move", says: last?.consumption_paused ? "" : "Consumption is paused for as long as it takes." });
    if (said) await attempt(() => whilePaused(() => post(`${path}/messages/move`, { target: said.target, ...chosen(list) })), (done) => `${number(done.messages)} moved to ${said.target}.`);
  }

  async function remove(list) {
    const said = await ask(`Delete ${which(list)}`, [], { yes: "Delete", danger: true, says: "They are gone for good." });
    if (said) await attempt(() => whilePaused(() => post(`${path}/messages/delete`, chosen(list))), (done) => `${number(done.messages)} deleted.`);
  }

  async function purge() {
    if (await ask(`Purge ${name}`, [], { yes: "Purge", danger: true, says: "All that waits is gone for good." })) await attempt(() => post(`${path}/purge`), (done) => `${number(done.messages)} dropped.`);
  }

  async function destroy() {
    const said = await ask(`Delete ${name}`, h("label", { className: "tick" }, h("input", { type: "checkbox", name: "force" }), "though it has consumers or messages"), { yes: "Delete", danger: true });
    if (!said) return;
    try { await call("DELETE", `${path}${"force" in said ? "?force=true" : ""}`); toast(`${name} is gone.`); location.hash = "#/destinations"; } catch (error) { toast(error.message, true); }
  }

  async function change() {
    const said = await ask("Change the policy", field("As JSON; what you leave as it is stays", "policy", { rows: 20, value: JSON.stringify(current, null, 2), className: "tall" }), { yes: "Change" });
    if (!said) return;
    await attempt(async () => {
      const changed = Object.entries(json(said.policy)).filter(([key, value]) => JSON.stringify(value) !== JSON.stringify(current[key]));
      return changed.length ? call("PATCH", path, { policy: Object.fromEntries(changed) }) : null;
    }, (done) => (done ? "It is changed." : "Nothing was changed."));
  }

  describe();
  slow();
  messages?.look();
  const end = listen({ topics: "overview", destination: name }, { destination: draw });
  const timer = setInterval(slow, 4000);
  return () => { end(); clearInterval(timer); };
}
