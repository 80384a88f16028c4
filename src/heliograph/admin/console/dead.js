// Dead messages: why they died, and how they go again.
import { get, place, post } from "./api.js";
import { ago, ask, field, fill, h, number, toast } from "./dom.js";
import { Messages } from "./messages.js";

const OF = "JMS_helio_";
const WORDS = { "redelivery-limit": "failed too often", expired: "expired", undelivered: "nobody took it in time" };

export function show(main) {
  const groups = h("tbody", {});
  const queues = h("div", {});
  const lead = h("p", { className: "lead" }, "…");
  const heading = h("h2", {}, "Where they come from, and why");
  fill(main, h("div", { className: "head" }, h("div", {}, h("h1", {}, "Dead messages"), lead)),
    h("section", { className: "sheet" }, h("div", { className: "title" }, heading), h("div", { className: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "from"), h("th", {}, "why"), h("th", { className: "number" }, "how many"), h("th", {}, "last error"), h("th", {}, ""))), groups))),
    queues);
  const lists = new Map();

  async function redrive(queue, which, words) {
    const said = await ask(`Send ${words} again`, field("To (empty: where each came from)", "to", { placeholder: "queue:…" }), { yes: "Send again", says: "They leave here when they are stored there, in one transaction." });
    if (!said) return;
    try {
      let redriven = 0;
      let done;
      do {
        done = await post(`destinations/${place(queue)}/messages/redrive`, { ...which, to: said.to });
        redriven += done.redriven;
      } while (done.has_more && done.redriven && !which.ids);
      const why = Object.entries(done.why).map(([sentence, many]) => ` ${many} stayed: ${sentence}`).join("");
      toast(`${number(redriven)} sent again.${why}`, Boolean(why));
    } catch (error) { toast(error.message, true); }
    look();
  }

  function list(queue) {
    if (!lists.has(queue)) {
      const messages = new Messages(queue, {
        words: "No message is dead.",
        line: (each) => `${each.properties[`${OF}original_destination`] ?? "?"}: ${WORDS[each.properties[`${OF}reason`]] ?? each.properties[`${OF}reason`] ?? "?"}${each.properties[`${OF}last_error`] ? ` — ${each.properties[`${OF}last_error`]}` : ""}`,
        actions: (self) => [h("button", { type: "button", className: "main", onclick: () => redrive(queue, self.chosen.size ? { ids: [...self.chosen] } : { selector: self.selector }, self.chosen.size ? `${self.chosen.size} messages` : self.selector ? "all that the selector selects" : "all of them") }, "Send again…")],
      });
      lists.set(queue, messages);
      queues.append(h("section", { className: "sheet" }, h("div", { className: "title" }, h("h2", {}, queue === "queue:_DMQ" ? "All dead messages" : queue), h("span", { className: "grow" }), h("button", { type: "button", onclick: look }, "Look again")), messages.element));
    }
    return lists.get(queue);
  }

  async function look() {
    try {
      const found = await get("destinations?contains=_DMQ&own=true&kind=queue");
      const dead = found.destinations.filter((each) => /:_DMQ(@|$)/.test(each.address));
      const kinds = new Map();
      let many = 0;
      let seen = 0;
      for (const { address, depth } of dead) {
        many += depth;
        for (const each of await list(address).look()) {
          seen += 1;
          const from = each.properties[`${OF}original_destination`] ?? "?";
          const why = each.properties[`${OF}reason`] ?? "?";
          const key = JSON.stringify([address, from, why]);
          const group = kinds.get(key) ?? { address, from, why, many: 0, error: "", last: 0 };
          group.many += 1;
          group.error = each.properties[`${OF}last_error`] || group.error;
          group.last = Math.max(group.last, each.properties[`${OF}died_at`] ?? 0);
          kinds.set(key, group);
        }
      }
      heading.textContent = seen < many ? `Where they come from, and why: the first ${number(seen)}` : "Where they come from, and why";
      lead.textContent = many ? `${number(many)} ${many === 1 ? "message" : "messages"} could not be delivered. They stay here until somebody decides.` : "No message is dead: all went where they should.";
      fill(groups, [...kinds.values()].sort((a, b) => b.many - a.many).map((group) => h("tr", {}, h("td", {}, h("a", { className: "name", href: `#/d/${encodeURIComponent(group.from)}` }, group.from)), h("td", {}, WORDS[group.why] ?? group.why, h("div", { className: "lead" }, `last ${ago(group.last)}`)), h("td", { className: "number" }, number(group.many)), h("td", {}, group.error || "–"),
        h("td", {}, h("button", { type: "button", onclick: () => redrive(group.address, { selector: `${OF}original_destination = '${group.from.replaceAll("'", "''")}' AND ${OF}reason = '${group.why}'` }, `what died of ${group.from}`) }, "Send again…")))));
      if (!kinds.size) fill(groups, h("tr", {}, h("td", { colSpan: 5, className: "none" }, "Nothing to decide.")));
    } catch (error) { lead.textContent = error.message; }
  }
  look();
}
