// Elements, without ever reading HTML from anywhere: what comes from messages and names stays text.

const SVG = new Set(["svg", "path", "g", "line", "circle", "rect", "text"]);

export function h(tag, props = {}, ...children) {
  const element = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && !SVG.has(tag) && !name.startsWith("aria") && name !== "list" && name !== "form") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(4).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Text that is set only if it differs: an update that changes nothing costs no layout.
export function set(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat(4).filter((child) => child !== null && child !== undefined && child !== false));
  if (element.tagName === "TBODY") nameCells(element);
}

// On a phone a row is a card, and each cell says what it is.
function nameCells(body) {
  const names = Array.from(body.parentElement?.tHead?.rows[0].cells ?? [], (cell) => cell.textContent);
  for (const row of body.rows) if (row.cells.length === names.length) names.forEach((name, at) => { row.cells[at].dataset.name = name; });
}

export const many = (count, one, more = `${one}s`) => `${number(count)} ${count === 1 ? one : more}`;

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 6 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const plain = (value) => whole.format(value);
export const number = (value) => (Math.abs(value) < 100000 ? plain(value) : short.format(value));
export const rate = (value) => (value === null || value === undefined ? "–" : value >= 100 || value === 0 ? number(Math.round(value)) : value.toFixed(1));

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${at && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

export function ago(seconds) {
  if (!seconds) return "–";
  const passed = Math.max(0, Date.now() / 1000 - seconds);
  return `${span(passed)} ago`;
}

export function span(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d`;
}

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
export const moment = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleString("en-GB") : "–");

export function toast(text, isBad = false) {
  const shown = h("div", { className: isBad ? "toast bad" : "toast" }, text);
  document.getElementById("toasts").append(shown);
  setTimeout(() => shown.remove(), isBad ? 9000 : 4500);
}

// A dialog that asks; resolves to what its form says, or null.
export function ask(title, fields, { yes = "Do it", no = "Cancel", danger = false, says = "" } = {}) {
  return new Promise((resolve) => {
    const form = h("form", { method: "dialog" },
      h("h2", { id: "asked" }, title),
      says && h("p", { className: "lead" }, says),
      fields,
      h("div", { className: "actions" },
        no && h("button", { type: "button", onclick: () => dialog.close("no") }, no),
        h("button", { className: danger ? "danger" : "main", value: "yes" }, yes)));
    const dialog = h("dialog", { "aria-labelledby": "asked" }, form);
    dialog.addEventListener("close", () => {
      const said = dialog.returnValue === "yes" ? Object.fromEntries(new FormData(form)) : null;
      dialog.remove();
      resolve(said);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export const field = (label, name, props = {}) => h("label", { className: "field" }, label, h(props.rows ? "textarea" : "input", { name, ...props }));
