// The console: which page is shown, who is logged in, and the news that all pages share.
import { call, get, listen, post } from "./api.js";
import { ask, field, fill, h, set, toast } from "./dom.js";
import { Rates } from "./plot.js";
import * as alerts from "./alerts.js";
import * as cluster from "./cluster.js";
import * as dead from "./dead.js";
import * as destination from "./destination.js";
import * as destinations from "./destinations.js";
import * as log from "./log.js";
import * as overview from "./overview.js";
import * as server from "./server.js";
import * as units from "./units.js";

const PAGES = [
  ["overview", "Overview", overview],
  ["destinations", "Destinations", destinations],
  ["dead", "Dead messages", dead],
  ["units", "Stuck units", units],
  ["alerts", "Alerts", alerts],
  ["cluster", "Cluster", cluster],
  ["log", "Events", log],
  ["server", "Server", server],
];
const main = document.getElementById("main");
const links = new Map();

// What every page may look at: the last totals, rates, the map of the cluster, the last events.
export const world = { rates: new Rates("published", "delivered", "settled"), totals: null, cluster: null, events: [], user: "" };
let leave = () => {};
let silence = () => {};
let shown = "";
let isIn = false;

function show() {
  const [name = "overview", ...rest] = location.hash.replace(/^#\//, "").split("/");
  const argument = decodeURIComponent(rest.join("/"));
  const found = name === "d" ? destination : PAGES.find(([id]) => id === name)?.[2];
  if (!found) { location.hash = "#/overview"; return; }
  leave();
  fill(main);
  for (const [id, link] of links) {
    const isHere = id === name || (name === "d" && id === "destinations");
    if (isHere) { link.setAttribute("aria-current", "page"); link.scrollIntoView({ block: "nearest", inline: "center" }); } else link.removeAttribute("aria-current");
  }
  document.title = `${argument || PAGES.find(([id]) => id === name)?.[1] || "Heliograph"} · Heliograph`;
  leave = found.show(main, argument) ?? (() => {});
  if (shown && shown !== location.hash) main.focus({ preventScroll: true });
  if (shown !== location.hash) scrollTo(0, 0);
  shown = location.hash;
}

function count(id, many) {
  const link = links.get(id);
  const badge = link.querySelector(".count");
  if (badge) { set(badge, many > 999 ? "999+" : many); badge.hidden = !many; }
}

function hear() {
  const pulse = document.getElementById("pulse");
  const mark = document.getElementById("mark");
  silence = listen({ topics: "overview,log,cluster" }, {
    overview(totals) {
      const before = world.totals;
      world.totals = totals;
      world.rates.add(totals);
      if (before && totals.published > before.published) {
        mark.classList.remove("flash");
        void mark.getBoundingClientRect();
        mark.classList.add("flash");
      }
      count("dead", totals.dead);
      count("units", totals.stopped_units);
      pulse.className = "pulse";
      set(pulse, "live");
      dispatchEvent(new CustomEvent("totals"));
    },
    log({ events }) {
      const said = new Set(world.events.map((event) => JSON.stringify(event)));  // a new stream begins with old news
      world.events = [...world.events, ...events.filter((event) => !said.has(JSON.stringify(event)))].slice(-500);
      dispatchEvent(new CustomEvent("events"));
    },
    cluster(map) {
      world.cluster = map;
      cluster.remember(map);
      dispatchEvent(new CustomEvent("cluster"));
    },
    trouble({ sentence }) { set(pulse, sentence); pulse.className = "pulse lost"; },
    lost() { set(pulse, "no news from the server"); pulse.className = "pulse lost"; },
  });
}

async function begin() {
  const me = await get("me");
  world.user = me.user;
  document.getElementById("bar").hidden = false;
  document.getElementById("leave").hidden = me.user === "guest";
  try { await get("overview"); } catch (error) {
    if (error.status !== 403) throw error;
    fill(main, h("div", { className: "login" }, h("div", { className: "sheet" }, h("h1", {}, "Not an administrator"), h("p", {}, `${me.user} may not administer this server, which is what the console is for. What your rights allow, the API at /api/v1 does.`))));
    document.getElementById("nav").hidden = true;
    return;
  }
  document.getElementById("nav").hidden = false;
  isIn = true;
  hear();
  show();
}

function logIn() {
  isIn = false;
  leave(); silence();
  leave = silence = () => {};
  document.getElementById("bar").hidden = true;
  document.title = "Log in · Heliograph";
  const trouble = h("div", { className: "trouble", role: "alert", hidden: true });
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    const said = Object.fromEntries(new FormData(form));
    try {
      await post("login", said);
      fill(main);
      await begin();
    } catch (error) {
      trouble.hidden = false;
      set(trouble, error.message);
      form.querySelector("[name=password]").select();
    }
  } },
    h("h1", {}, "Log in"), trouble,
    field("User", "user", { autocomplete: "username", required: true, autofocus: true }),
    field("Password", "password", { type: "password", autocomplete: "current-password", required: true }),
    h("button", { className: "main" }, "Log in"));
  fill(main, h("div", { className: "login" }, h("img", { src: "mark.svg", alt: "" }), h("div", { className: "sheet" }, form)));
  form.querySelector("input").focus();
}

let isAsked = false;
addEventListener("strangers", () => {
  if (isAsked || document.querySelector(".login")) return;
  isAsked = true;
  queueMicrotask(() => { isAsked = false; logIn(); });
});
addEventListener("hashchange", () => { if (isIn) show(); });

// ---- light and dark

function theme(wanted) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = wanted ?? (dark ? "dark" : "light");
}
theme(localStorage.getItem("theme"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(localStorage.getItem("theme")));
document.getElementById("theme").addEventListener("click", () => {
  const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", other);
  theme(other);
});

// ---- keys

document.getElementById("leave").addEventListener("click", async () => { await call("POST", "logout").catch(() => {}); logIn(); });
document.getElementById("keys").addEventListener("click", keys);
function keys() {
  const rows = [...PAGES.map(([, words], at) => [String(at + 1), words]), ["/", "Find"], ["t", "Light or dark"], ["?", "This"]];
  ask("What keys do", h("table", {}, h("tbody", {}, rows.map(([key, words]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, words))))), { yes: "Thanks", no: "" });
}
addEventListener("keydown", (event) => {
  if (event.target.closest?.("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
  const at = Number(event.key) - 1;
  if (PAGES[at]) location.hash = `#/${PAGES[at][0]}`;
  else if (event.key === "/") { const box = main.querySelector("input[type=search]"); if (box) { event.preventDefault(); box.focus(); } }
  else if (event.key === "t") document.getElementById("theme").click();
  else if (event.key === "?") keys();
});

const nav = document.getElementById("nav");
for (const [id, words] of PAGES) {
  const link = h("a", { href: `#/${id}` }, words, ["dead", "units"].includes(id) && h("span", { className: "count", hidden: true }));
  links.set(id, link);
  nav.append(link);
}
begin().catch((error) => { if (error.status !== 401) toast(error.message, true); });
