// All destinations, however many: a page at a time as one scrolls, and only what is in sight is kept up to date.
import { get, post, query } from "./api.js";
import { ask, fill, field, h, number, rate, set, toast } from "./dom.js";

const PAGE = 100;
const COLUMNS = [["published", "in /s"], ["delivered", "out /s"], ["depth", "waiting"], ["in_flight", "in flight"], ["consumers", "consumers"], ["bytes", "bytes in /s"]];
const NARROW = ["depth", "consumers"];
const ICONS = { queue: "▤", topic: "◉", alerts: "▲" };

export function show(main, wanted) {
  const state = { contains: wanted, kind: "", sort: "name", own: false, pages: [], next: "", isLoading: false, last: new Map(), turn: 0 };
  const rows = new Map();
  const list = h("div", { className: "rows" });
  const end = h("div", { className: "none" }, "…");
  const total = h("span", { className: "badge" }, "");
  const search = h("input", { type: "search", className: "wide", placeholder: "Find by name  ( / )", value: wanted, "aria-label": "Find by name" });
  const kinds = h("select", { "aria-label": "Kind" }, [["", "all kinds"], ["queue", "queues"], ["topic", "topics"], ["alerts", "alert channels"]].map(([value, words]) => h("option", { value }, words)));
  const own = h("input", { type: "checkbox" });
  const heads = COLUMNS.map(([key, words]) => h("button", { type: "button", className: NARROW.includes(key) ? "" : "rest", "aria-pressed": "false", onclick: () => sortBy(key) }, words));
  const byName = h("button", { type: "button", "aria-pressed": "true", onclick: () => sortBy("name") }, "destination");
  fill(main,
    h("div", { className: "head" }, h("h1", {}, "Destinations"), total, h("span", { className: "grow" }), h("button", { className: "main", type: "button", onclick: create }, "Create")),
    h("section", { className: "sheet" },
      h("div", { className: "filters" }, search, kinds, h("label", { className: "tick" }, own, "the server's own")),
      h("div", { className: "columns", role: "group", "aria-label": "Sort by" }, byName, heads),
      list, end));

  function row(each) {
    const cells = COLUMNS.map(([key]) => h("span", { className: NARROW.includes(key) ? "" : "rest" }, ""));
    const badges = h("span", {});
    const element = h("a", { className: "row", href: `#/d/${encodeURIComponent(each.address)}` },
      h("span", { className: "name" }, h("span", { className: "icon", "aria-hidden": "true" }, ICONS[each.kind] ?? "·"), h("span", {}, each.address), badges), cells);
    return { element, cells, badges, said: "" };
  }

  function update(each) {
    const found = rows.get(each.address);
    if (!found) return;
    const now = performance.now() / 1000;
    const last = state.last.get(each.address);
    state.last.set(each.address, { at: now, published: each.published, delivered: each.delivered, bytes: each.bytes });
    COLUMNS.forEach(([key], at) => {
      if (key in (last ?? {})) set(found.cells[at], now - last.at > 0.3 ? rate(Math.max(0, each[key] - last[key]) / (now - last.at)) : found.cells[at].textContent);
      else set(found.cells[at], ["published", "delivered", "bytes"].includes(key) ? "–" : number(each[key]));
    });
    const said = [each.consumption_paused || each.production_paused ? ["warn", "paused"] : null, each.blocked ? ["warn", "asks to wait"] : null, each.stopped_units ? ["bad", `${each.stopped_units} stuck`] : null, each.held_back ? ["warn", `${number(each.held_back)} held back`] : null].filter(Boolean);
    const key = JSON.stringify(said);
    if (key !== found.said) { found.said = key; fill(found.badges, said.map(([level, words]) => h("span", { className: `badge ${level}` }, words, " "))); }
  }

  // Those that have the most may be others by now.
  function inOrder(found) {
    for (const each of found) if (!rows.has(each.address)) rows.set(each.address, row(each));
    const elements = found.map((each) => rows.get(each.address).element);
    if (elements.some((element, at) => list.children[at] !== element)) list.prepend(...elements);
  }

  const asked = (after) => `destinations${query({ contains: state.contains, kind: state.kind, sort: state.sort, own: state.own, limit: PAGE, after })}`;

  async function more() {
    if (state.isLoading || (state.pages.length && !state.next)) return;
    state.isLoading = true;
    const turn = state.turn;
    try {
      const after = state.next;
      const page = await get(asked(after));
      if (turn !== state.turn) return;
      const fresh = page.destinations.filter((each) => !rows.has(each.address));
      for (const each of fresh) rows.set(each.address, row(each));
      list.append(...fresh.map((each) => rows.get(each.address).element));
      page.destinations.forEach(update);
      state.pages.push({ after, first: page.destinations[0]?.address });
      state.next = page.next;
      set(total, number(page.total));
      set(end, rows.size ? (page.next ? "…" : "") : "No destination is called so.");
    } catch (error) { set(end, error.message); } finally { if (turn === state.turn) state.isLoading = false; }
    if (state.next && end.getBoundingClientRect().top < innerHeight + 400) more();
  }

  // Of the pages that were loaded, those in sight.
  async function refresh() {
    if (document.hidden) return;
    const inSight = state.pages.filter(({ first }, at) => {
      const from = rows.get(first)?.element.getBoundingClientRect().top ?? 0;
      const following = rows.get(state.pages[at + 1]?.first)?.element.getBoundingClientRect().top ?? Infinity;
      return from < innerHeight && following > 0;
    });
    const turn = state.turn;
    for (const { after } of inSight.slice(0, 2)) {
      try {
        const page = await get(asked(after));
        if (turn !== state.turn) return;
        if (!after && state.sort !== "name") inOrder(page.destinations);
        page.destinations.forEach(update);
        set(total, number(page.total));
      } catch { return; }
    }
  }

  function again() {
    state.turn += 1;
    Object.assign(state, { pages: [], next: "", isLoading: false, contains: search.value.trim(), kind: kinds.value, own: own.checked });
    rows.clear();
    fill(list);
    more();
  }

  function sortBy(key) {
    state.sort = key;
    byName.setAttribute("aria-pressed", String(key === "name"));
    heads.forEach((head, at) => head.setAttribute("aria-pressed", String(COLUMNS[at][0] === key)));
    again();
  }

  async function create() {
    const said = await ask("Create a destination", field("Name: queue:NAME, topic:NAME or alerts:NAME", "destination", { required: true, value: "queue:", pattern: "(queue|topic|alerts):.+" }), { yes: "Create" });
    if (!said) return;
    try { await post("destinations", said); toast(`${said.destination} is there.`); again(); } catch (error) { toast(error.message, true); }
  }

  let typing = 0;
  search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(again, 200); });
  kinds.addEventListener("change", again);
  own.addEventListener("change", again);
  const watcher = new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) more(); }, { rootMargin: "600px" });
  watcher.observe(end);
  more();
  const timer = setInterval(refresh, 2000);
  return () => { clearInterval(timer); clearTimeout(typing); watcher.disconnect(); };
}
