// The map of the cluster: who is here, who leads, in which state each sub-cluster is, and what that means now.
import { call, post } from "./api.js";
import { world } from "./app.js";
import { ask, bytes, fill, h, number, span, toast } from "./dom.js";

const MEANS = {
  A: "Every message manager is here. Everything is handed out.",
  B: "This part goes on with everything from before the cut, and with what comes now. Most of the cluster may be elsewhere, and is restricted.",
  C: "This part goes on with everything from before the cut, and with what comes now. Most of the cluster is here.",
  D: "This part is restricted: it stores all that is sent, and of queues hands out only what it accepted itself. Another part may be handing out the rest.",
};
const known = new Map();
const story = [];

// Nodes that were here once are drawn as gone, and what changed is told.
export function remember(map) {
  for (const node of map.nodes) if (node.ok) known.set(node.node, node);
  for (const [name, view] of Object.entries(map.sub_clusters)) {
    const last = story.findLast((each) => each.name === name);
    const words = view.state ? `${view.state}, ${view.title}${view.leads ? `, ${view.leads} leads` : ", nobody leads"}` : "no view";
    if (last?.words !== words) story.push({ name, words, at: new Date(), state: view.state });
  }
  if (story.length > 100) story.shift();
}

const role = (node) => [node["client-manager"] && "client manager", node["message-manager"] && "message manager"].filter(Boolean).join(", ");

function card(node, { leads = false, gone = false } = {}) {
  const clients = node["client-manager"];
  const manager = node["message-manager"];
  const what = gone ? "out of reach from here" : node.lacks ? `waits for ${node.lacks}` : manager?.standing ? manager.standing : "serves clients";
  return h("div", { className: `node ${leads ? "leads" : ""} ${gone ? "gone" : ""} ${node.lacks ? "waits" : ""}` },
    h("div", { className: "who" }, h("i", { className: "dot", "aria-hidden": "true" }), node.node, leads && h("span", { className: "badge sun" }, "leads"), gone && h("span", { className: "badge bad" }, "gone")),
    h("small", {}, role(node) || "node"), h("small", {}, what),
    !gone && clients && h("small", {}, `${number(clients.connections)} connections, ${clients.address || "no port"}`),
    !gone && manager && "journal_bytes" in manager && h("small", {}, `journal ${bytes(manager.journal_bytes)}`),
    !gone && node.uptime_seconds && h("small", {}, `up for ${span(node.uptime_seconds)}`));
}

export function show(main) {
  const body = h("div", {});
  const told = h("ol", { className: "story" });
  const past = h("section", { className: "sheet", hidden: true }, h("div", { className: "title" }, h("h2", {}, "How it went")), told);
  fill(main, h("div", { className: "head" }, h("div", {}, h("h1", {}, "Cluster"), h("p", { className: "lead" }, "As this node sees it."))), body,
    past);

  function draw() {
    const map = world.cluster;
    if (!map) return;
    const here = new Map(map.nodes.filter((node) => node.ok).map((node) => [node.node, node]));
    const parts = Object.entries(map.sub_clusters);
    past.hidden = !parts.length;
    if (!parts.length) {
      fill(body, h("section", { className: "sheet" }, h("div", { className: "title" }, h("h2", {}, "This server stands alone")), h("p", {}, "It is not a node of a cluster, so nothing can part."), h("div", { className: "map" }, map.nodes.map((node) => card(node)))));
      return;
    }
    const inSub = (name) => [...new Set([...here.values(), ...known.values()].filter((node) => node["message-manager"]?.sub_cluster === name).map((node) => node.node))];
    const clients = [...new Set([...here.keys(), ...known.keys()])].filter((name) => { const node = here.get(name) ?? known.get(name); return node["client-manager"]; });
    fill(body,
      parts.map(([name, view]) => {
        const missing = (view.missing ?? []).filter((each) => !known.has(each) || known.get(each)["message-manager"]);
        const names = [...new Set([...inSub(name), ...missing])].sort();
        return h("section", { className: `sheet state ${view.state ?? ""}`, "aria-label": `Sub-cluster ${name}` },
          h("div", { className: "title" }, h("span", { className: "letter" }, view.state ?? "?"),
            h("div", { className: "words" }, h("h2", {}, `${name}: ${view.title ?? "no view"}`),
              h("div", {}, view.state === "A" && !view.in_force ? "Every message manager is here. What each part did is being put together." : view.state ? MEANS[view.state] : "The nodes that are here have to agree first."),
              view.sentence && view.state !== "A" && h("div", { className: "lead" }, `Why: ${view.sentence.split(": ").slice(1).join(": ")} It ends when: ${view.ends}`)),
            h("div", { className: "actions" }, h("span", { className: "badge" }, `view ${view.view ?? "–"}`), ["A", "B", "C"].includes(view.state) && (view.in_force ? h("span", { className: "badge good" }, "in force") : h("span", { className: "badge warn" }, "not in force yet")), view.state === "D" && h("button", { type: "button", className: "danger", onclick: override }, "Override…"))),
          view.awaited?.length > 0 && h("div", { className: "held" }, `Nothing is decided before more is heard from ${view.awaited.join(", ")}.`),
          view.held_back > 0 && h("div", { className: "held" }, h("b", {}, `${number(view.held_back)} messages are held back: `), view.held_back_why),
          h("div", { className: "map" }, names.map((each) => here.has(each) ? card(here.get(each), { leads: view.leads === each }) : card(known.get(each) ?? { node: each }, { gone: true })),
            missing.length > 0 && h("button", { type: "button", className: "danger", onclick: () => removeNode(missing) }, "A node is gone for good…")));
      }),
      h("section", { className: "sheet" }, h("div", { className: "title" }, h("h2", {}, "Client managers")), h("div", { className: "map" }, clients.sort().map((each) => here.has(each) ? card(here.get(each)) : card(known.get(each), { gone: true })))));
    fill(told, story.slice().reverse().map((each) => h("li", {}, h("time", {}, each.at.toLocaleTimeString("en-GB")), h("span", { className: "node-name" }, each.name), h("span", { className: "said" }, h("span", { className: `badge ${{ A: "good", D: "bad" }[each.state] ?? "warn"}` }, each.state ?? "?"), ` ${each.words}`))));
  }

  async function override() {
    if (!(await ask("Hand out everything", [], { yes: "Override", danger: true, says: "Only if the other part is gone for good: what it handed out is handed out here again, and what it stored comes too late." }))) return;
    try { await post("cluster/override"); toast("This part is unrestricted."); } catch (error) { toast(error.message, true); }
  }

  async function removeNode(missing) {
    const said = await ask("Which node is gone for good?", h("label", { className: "field" }, "Node", h("select", { name: "node" }, missing.map((node) => h("option", { value: node }, node)))), { yes: "Remove it", danger: true, says: "The others do not wait for it any more. What only it has is lost." });
    if (!said) return;
    try { await call("DELETE", `cluster/nodes/${said.node}`); toast(`${said.node} is removed.`); } catch (error) { toast(error.message, true); }
  }

  addEventListener("cluster", draw);
  draw();
  return () => removeEventListener("cluster", draw);
}
