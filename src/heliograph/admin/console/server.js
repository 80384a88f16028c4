// The server itself: users, sessions, settings.
import { call, get, place, post } from "./api.js";
import { ago, ask, field, fill, h, toast } from "./dom.js";

export function show(main) {
  const users = h("tbody", {});
  const sessions = h("tbody", {});
  const settings = h("div", {});
  fill(main, h("div", { className: "head" }, h("h1", {}, "Server")),
    h("section", { className: "sheet" }, h("div", { className: "title" }, h("h2", {}, "Users"), h("span", { className: "grow" }), h("button", { type: "button", onclick: add }, "Add…")), h("div", { className: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "name"), h("th", {}, "roles"), h("th", {}, "clearance"), h("th", {}, ""))), users))),
    h("section", { className: "sheet" }, h("div", { className: "title" }, h("h2", {}, "Sessions"), h("span", { className: "grow" }), h("button", { type: "button", onclick: look }, "Look again")), h("div", { className: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "session"), h("th", {}, "user"), h("th", {}, "connected"), h("th", { className: "number" }, "sends to"))), sessions))),
    h("section", { className: "sheet" }, h("div", { className: "title" }, h("h2", {}, "Settings of this node")), settings));

  async function look() {
    const [who, open, set] = await Promise.allSettled([get("users"), get("sessions"), get("configuration")]);
    const failed = (body, columns, result) => fill(body, h("tr", {}, h("td", { colSpan: columns, className: "none" }, result.reason.message)));
    if (who.value) {
      fill(users, who.value.users.map((user) => h("tr", {}, h("td", { className: "name" }, user.name), h("td", {}, user.roles.length ? user.roles.map((role) => h("span", { className: "badge" }, role, " ")) : "–"), h("td", {}, user.clearance), h("td", {}, h("button", { type: "button", className: "danger", onclick: () => remove(user.name) }, "Remove…")))));
      if (!who.value.users.length) fill(users, h("tr", {}, h("td", { colSpan: 4, className: "none" }, "There are no users: whoever is on this machine may do everything.")));
    } else failed(users, 4, who);
    if (open.value) {
      fill(sessions, open.value.sessions.map((each) => h("tr", {}, h("td", { className: "mono" }, each.session), h("td", {}, each.user), h("td", {}, each.connected ? h("span", { className: "badge good" }, "yes") : h("span", { className: "badge warn" }, `lost ${ago(each.lost_at)}`)), h("td", { className: "number" }, each.lanes))));
      if (!open.value.sessions.length) fill(sessions, h("tr", {}, h("td", { colSpan: 4, className: "none" }, "No client has a session.")));
    } else failed(sessions, 4, open);
    if (set.value) fill(settings, Object.entries(set.value).filter(([, part]) => part && typeof part === "object" && !Array.isArray(part)).map(([name, part]) => h("details", {}, h("summary", {}, h("b", {}, name)), h("dl", { className: "facts" }, Object.entries(part).map(([key, value]) => [h("dt", {}, key), h("dd", {}, typeof value === "object" ? JSON.stringify(value) : String(value) || "–")])))));
    else fill(settings, set.reason.message);
  }

  async function add() {
    const said = await ask("Add a user", [field("Name", "name", { required: true }), field("Password", "password", { type: "password", required: true, autocomplete: "new-password" }), field("Roles, with commas between them", "roles")], { yes: "Add" });
    if (!said) return;
    try { await post("users", { name: said.name, password: said.password, roles: said.roles.split(",").map((role) => role.trim()).filter(Boolean) }); toast(`${said.name} is a user.`); } catch (error) { toast(error.message, true); }
    look();
  }

  async function remove(name) {
    if (!(await ask(`Remove ${name}`, [], { yes: "Remove", danger: true }))) return;
    try { await call("DELETE", `users/${place(name)}`); toast(`${name} is removed.`); } catch (error) { toast(error.message, true); }
    look();
  }
  look();
}
