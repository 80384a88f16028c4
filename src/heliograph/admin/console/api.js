// The server's API, and its news.

export class Refused extends Error {
  constructor(status, code, sentence) { super(sentence); this.status = status; this.code = code; }
}

const AGAIN_MILLISECONDS = 1500;
export const place = (name) => encodeURIComponent(name);

export async function call(method, path, body) {
  const options = { method, headers: { "X-Heliograph": "1" }, credentials: "same-origin", cache: "no-store" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let reply;
  try { reply = await fetch(path.startsWith("/") ? path : `/api/v1/${path}`, options); }
  catch { throw new Refused(0, "no-server", "The server does not answer."); }
  if (reply.status === 204) return null;
  const said = await reply.json().catch(() => ({}));
  if (!reply.ok) {
    const error = said.error ?? { code: "error", sentence: reply.statusText };
    if (reply.status === 401) dispatchEvent(new CustomEvent("strangers"));
    throw new Refused(reply.status, error.code, error.sentence);
  }
  return said;
}

export const get = (path) => call("GET", path);
export const post = (path, body = {}) => call("POST", path, body);

export function query(parameters) {
  const pairs = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

// A stream of news; `hears` has a function for each kind. Returns what ends it.
export function listen(parameters, hears) {
  let source = null;
  let waiting = 0;
  let isOver = false;
  const open = () => {
    source = new EventSource(`/api/v1/events${query(parameters)}`);
    for (const [name, hear] of Object.entries(hears)) {
      if (name !== "lost") source.addEventListener(name, (event) => hear(JSON.parse(event.data)));
    }
    const own = source;
    own.addEventListener("error", () => {
      hears.lost?.();
      // A browser comes again by itself when a connection breaks, and not when it was told no.
      if (own.readyState === EventSource.CLOSED && own === source) {
        source.close();
        source = null;
        waiting = setTimeout(async () => { await get("me").catch(() => {}); mind(); }, AGAIN_MILLISECONDS);
      }
    });
  };
  // A browser has six connections to a server for all its tabs: one that nobody looks at gives its own back.
  const mind = () => {
    if (isOver) return;
    if (document.hidden) { source?.close(); source = null; } else if (source === null) open();
  };
  document.addEventListener("visibilitychange", mind);
  mind();
  return () => { isOver = true; clearTimeout(waiting); document.removeEventListener("visibilitychange", mind); source?.close(); source = null; };
}
