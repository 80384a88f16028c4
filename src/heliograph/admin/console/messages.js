// A list of messages that wait: filter, select, look inside.
import { get, place, query } from "./api.js";
import { ago, bytes, fill, h, moment, toast } from "./dom.js";

const SHOWN = ["user", "priority", "deliveries", "correlation_id", "reply_to", "type", "unit_of_order", "group_id"];

export class Messages {
  // `actions`: buttons for what is selected; `line`: what to say of a message instead of its beginning.
  constructor(destination, { actions = () => [], line = null, limit = 50, words = "Nothing waits here." } = {}) {
    Object.assign(this, { destination, line, limit, words, skip: 0, chosen: new Set(), turn: 0 });
    this.search = h("input", { type: "search", className: "wide mono", placeholder: "Selector: priority > 4 AND region = 'eu'", "aria-label": "Selector" });
    this.list = h("div", {});
    this.all = h("input", { type: "checkbox", "aria-label": "Select all that are shown", onchange: () => this.chooseAll(this.all.checked) });
    this.older = h("button", { type: "button", onclick: () => this.turnTo(this.skip - this.limit) }, "Earlier");
    this.newer = h("button", { type: "button", onclick: () => this.turnTo(this.next) }, "Later");
    this.actions = h("div", { className: "actions" }, actions(this));
    const form = h("form", { className: "filters", onsubmit: (event) => { event.preventDefault(); this.turnTo(0); } }, h("label", { className: "tick" }, this.all, h("span", { className: "hidden" }, "Select all")), this.search, h("button", {}, "Look"), this.older, this.newer);
    this.element = h("div", {}, form, this.actions, this.list);
  }

  get selector() { return this.search.value.trim(); }

  turnTo(skip) { this.skip = Math.max(0, skip); this.look(); }

  async look() {
    const turn = (this.turn += 1);
    try {
      const page = await get(`destinations/${place(this.destination)}/messages${query({ selector: this.selector, skip: this.skip, limit: this.limit })}`);
      if (turn !== this.turn) return [];
      this.chosen.clear();
      this.all.checked = false;
      this.next = page.next;
      this.found = page.messages;
      this.older.disabled = !this.skip;
      this.newer.disabled = !page.next;
      fill(this.list, page.messages.length ? page.messages.map((each) => this.row(each)) : h("div", { className: "none" }, this.words));
      return page.messages;
    } catch (error) {
      fill(this.list, h("div", { className: "trouble" }, error.message));
      return [];
    }
  }

  row(message) {
    const tick = h("input", { type: "checkbox", "aria-label": `Select ${message.id}`, onchange: () => this.choose(message.id, tick.checked) });
    const inside = h("div", { className: "inside" });
    const details = h("details", { ontoggle: () => { if (details.open && !inside.children.length) this.open(message, inside); } },
      h("summary", {}, h("span", { className: "mono name" }, message.id), h("span", {}, ago(message.timestamp)), h("span", { className: "preview" }, this.line ? this.line(message) : h("code", {}, message.preview || "(no body)")), h("span", { className: "size number" }, bytes(message.size))),
      inside);
    message.tick = tick;
    return h("div", { className: "message" }, tick, details);
  }

  choose(id, isChosen) { if (isChosen) this.chosen.add(id); else this.chosen.delete(id); }

  chooseAll(isChosen) { for (const each of this.found ?? []) { each.tick.checked = isChosen; this.choose(each.id, isChosen); } }

  async open(message, inside) {
    const body = h("pre", { className: "body", tabIndex: 0 }, "…");
    const forms = ["auto", "text", "json", "hex"].map((form) => h("button", { type: "button", onclick: () => load(form) }, form));
    const load = async (form) => {
      try {
        const whole = await get(`destinations/${place(this.destination)}/messages/${place(message.id)}?body=${form}`);
        for (const button of forms) button.setAttribute("aria-pressed", String(button.textContent === whole.body_form));
        body.textContent = whole.body_form === "json" ? JSON.stringify(whole.body, null, 2) : whole.body_form === "hex" ? whole.body.match(/.{1,64}/g)?.map((line) => line.match(/../g).join(" ")).join("\n") ?? "" : whole.body ?? "(too large to show: receive it)";
      } catch (error) { toast(error.message, true); body.textContent = message.preview; }
    };
    const facts = [["sent", moment(message.timestamp)], ...SHOWN.filter((key) => message[key]).map((key) => [key.replaceAll("_", " "), message[key]]), ["kept on disk", message.persistent ? "yes" : "no"], message.expiry ? ["expires", moment(message.expiry)] : null, message.delivery_time ? ["not before", moment(message.delivery_time)] : null, ...Object.entries(message.properties).map(([key, value]) => [key, key === "JMS_helio_died_at" ? moment(value) : value])].filter(Boolean);
    fill(inside, h("dl", { className: "facts" }, facts.map(([key, value]) => [h("dt", {}, key), h("dd", {}, String(value))])),
      h("div", { className: "actions" }, forms, h("a", { href: `/api/v1/destinations/${place(this.destination)}/messages/${place(message.id)}?body=raw`, download: "" }, "download")),
      body);
    await load("auto");
  }
}
