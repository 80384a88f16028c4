// Live alerts, the most urgent first.
import { call, get, place, post, query } from "./api.js";
import { ago, ask, field, fill, h, moment, number, toast } from "./dom.js";

// Of a long one the list has the beginning.
const says = ({ beginning, bytes }) => (new TextEncoder().encode(beginning).length < bytes ? `${beginning}…` : beginning || "–");

export function show(main, wanted = "") {
  const channels = h("select", { "aria-label": "Channel", onchange: () => look() });
  const topics = h("input", { type: "search", className: "wide mono", placeholder: "Topics: TAG:^db,disk;USER:ann", "aria-label": "Topics", onchange: () => look() });
  const rows = h("tbody", {});
  const live = h("span", { className: "badge" }, "");
  fill(main, h("div", { className: "head" }, h("h1", {}, "Alerts"), live, h("span", { className: "grow" }), h("button", { className: "main", type: "button", onclick: publish }, "Publish…")),
    h("section", { className: "sheet" }, h("div", { className: "filters" }, channels, topics),
      h("div", { className: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "priority"), h("th", {}, "to"), h("th", {}, "what it says"), h("th", {}, "from"), h("th", {}, "since"), h("th", {}, "lasts until"), h("th", { className: "number" }, "delivered"), h("th", { className: "number" }, "acknowledged"), h("th", {}, ""))), rows))));

  const none = (words) => fill(rows, h("tr", {}, h("td", { colSpan: 9, className: "none" }, words)));

  async function find() {
    try {
      const found = await get("destinations?kind=alerts&limit=100");
      const names = found.destinations.map((each) => each.address);
      const before = channels.value || wanted;
      fill(channels, names.map((name) => h("option", { value: name }, name)));
      if (names.includes(before)) channels.value = before;
      if (!names.length) { channels.append(h("option", { value: "" }, "no channel yet")); none("There is no channel yet: publish an alert, and there is one."); }
    } catch (error) { none(error.message); }
  }

  async function look() {
    if (!channels.value) return;
    try {
      const page = await get(`alerts/${place(channels.value)}${query({ topics: topics.value.trim() })}`);
      live.textContent = `${number(page.live)} live`;
      fill(rows, page.alerts.map((alert) => h("tr", {},
        h("td", {}, h("span", { className: `level ${alert.priority >= 8 ? "high" : alert.priority >= 5 ? "middle" : ""}` }, alert.priority)),
        h("td", { className: "name" }, alert.destination), h("td", { className: "text" }, says(alert)), h("td", {}, alert.user), h("td", {}, ago(alert.arrived)), h("td", {}, alert.expires ? moment(alert.expires) : "it is cancelled"), h("td", { className: "number" }, number(alert.delivered)), h("td", { className: "number" }, number(alert.acknowledged)),
        h("td", {}, h("button", { type: "button", className: "danger", onclick: () => cancel(alert) }, "Cancel…")))));
      if (!page.alerts.length) none("All is quiet.");
    } catch (error) { none(error.message); }
  }

  async function cancel(alert) {
    if (!(await ask(`Cancel the alert to ${alert.destination}`, [], { yes: "Cancel it", danger: true, says: "Nobody gets it from then on." }))) return;
    try { await call("DELETE", `alerts/${place(channels.value)}/${alert.id}`); toast("It is cancelled."); } catch (error) { toast(error.message, true); }
    look();
  }

  async function publish() {
    const said = await ask("Publish an alert", [field("Channel", "channel", { value: channels.value || "alerts:ops", required: true }), field("To: TAG:…, PROFILE:… or USER:…", "destination", { required: true, value: "TAG:" }), field("What there is to say", "body", { rows: 3 }), field("Priority, 10 is the most urgent", "priority", { type: "number", min: 1, max: 10, value: 5 }), field("Seconds it lasts, 0: until it is cancelled", "duration", { type: "number", min: 0, value: 0 })], { yes: "Publish" });
    if (!said) return;
    try {
      await post(`alerts/${place(said.channel)}`, { destination: said.destination, body: said.body, priority: Number(said.priority), duration: Number(said.duration) });
      toast("It is live.");
      await find();
      channels.value = said.channel;
    } catch (error) { toast(error.message, true); }
    look();
  }

  find().then(look);
  const timer = setInterval(look, 3000);
  return () => clearInterval(timer);
}
