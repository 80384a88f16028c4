"""Pages that speak STOMP and MQTT with what a browser has: a message goes out, and its answer comes in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")
from playwright.sync_api import expect

import heliograph
from tests.browser.conftest import Window
from tests.interop.stage import Stage

pytestmark = [pytest.mark.req("X1"), pytest.mark.timeout(300, func_only=True)]
# Two names of the machine are two origins. A browser lets no page from the network connect to its own machine.
SHOP, STRANGER = "127.0.0.1", "localhost"
QUESTION, ANSWER = "grüezi ✓ from a page", "answer ✓ to a page"

PAGE = """<!doctype html><meta charset="utf-8"><title>A shop</title><ul id="log"></ul><script>
const say = (text) => {
  const line = document.createElement("li");
  line.textContent = text;
  document.getElementById("log").append(line);
};
const socket = new WebSocket("ws://%s:%d/", "%s");
socket.onerror = () => say("error");
socket.onclose = () => say("closed");
%s
</script>"""

STOMP = """
const frame = (command, headers, body = "") => socket.send(
  [command, ...Object.entries(headers).map(([name, value]) => `${name}:${value}`), "", body].join("\\n") + "\\0");
socket.onopen = () => {
  say(`speaks ${socket.protocol}`);
  frame("CONNECT", { "accept-version": "1.2", host: "shop" });
};
socket.onmessage = ({ data }) => {
  const [head, body] = data.split("\\n\\n");
  const [command, ...lines] = head.trim().split("\\n");
  const headers = Object.fromEntries(lines.map((line) => line.split(/:(.*)/s)));
  if (command === "CONNECTED")
    frame("SUBSCRIBE", { id: "s", destination: "/topic/answers", ack: "client-individual", receipt: "there" });
  if (command === "RECEIPT" && headers["receipt-id"] === "there")
    frame("SEND", { destination: "/queue/questions", "content-type": "text/plain", receipt: "sent" }, "%s");
  if (command === "RECEIPT" && headers["receipt-id"] === "sent") say("sent");
  if (command === "MESSAGE") {
    say(body.replace("\\0", ""));
    frame("ACK", { id: headers.ack, receipt: "taken" });
  }
  if (command === "RECEIPT" && headers["receipt-id"] === "taken") say("taken");
};
"""

MQTT = """
socket.binaryType = "arraybuffer";
const [encoder, decoder] = [new TextEncoder(), new TextDecoder()];
const text = (written) => { const raw = encoder.encode(written); return [0, raw.length, ...raw]; };
const packet = (first, ...body) => socket.send(new Uint8Array([first, body.length, ...body]));
socket.onopen = () => {
  say(`speaks ${socket.protocol}`);
  packet(0x10, ...text("MQTT"), 4, 2, 0, 60, ...text("page"));
};
let heard = [];
socket.onmessage = ({ data }) => {
  heard = [...heard, ...new Uint8Array(data)];
  while (heard.length > 1 && heard.length >= heard[1] + 2) take(heard.splice(0, heard[1] + 2));
};
const take = ([first, length, ...body]) => {
  const kind = first >> 4;
  if (kind === 2) packet(0x82, 0, 1, ...text("answers"), 1);
  if (kind === 9) packet(0x32, ...text("$queue/questions"), 0, 7, ...encoder.encode("%s"));
  if (kind === 4 && body[1] === 7) say("sent");
  if (kind === 3) {
    const named = 2 + body[1];
    say(decoder.decode(new Uint8Array(body.slice(named + 2))));
    packet(0x40, ...body.slice(named, named + 2));
    packet(0xc0);
  }
  if (kind === 13) say("taken");
};
"""


class Pages(ThreadingHTTPServer):
    """Somebody's web server, with one page."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self.text = ""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def address(self, name: str) -> str:
        return f"http://{name}:{self.server_port}"


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Pages)
        body = self.server.text.encode() if self.path == "/page" else b""
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    with Pages() as pages:
        yield pages
        pages.shutdown()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, pages: Pages) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("server")
    with Stage(folder, settings={"server.origins": pages.address(SHOP)}) as stage:
        yield stage


def shown(window: Window, stage: Stage, pages: Pages, name: str, protocol: str, script: str) -> Any:
    """The lines of the page from there."""
    pages.text = PAGE % (stage.host, stage.port, protocol, script % QUESTION)
    window.page.goto(f"{pages.address(name)}/page")
    return window.page.locator("li")


async def answer(url: str) -> str:
    """What the page asked."""
    async with heliograph.connect(url) as connection:
        question = await (await connection.consumer("queue:questions")).receive(timeout=20)
        assert question is not None
        await (await connection.producer("topic:answers")).send_confirmed(ANSWER)
        return question.body.decode() if isinstance(question.body, bytes) else str(question.body)


@pytest.mark.parametrize(("protocol", "script"), [("v12.stomp", STOMP), ("mqtt", MQTT)])
def test_a_page_sends_and_receives(
    window: Window, stage: Stage, pages: Pages, protocol: str, script: str
) -> None:
    lines = shown(window, stage, pages, SHOP, protocol, script)
    expect(lines).to_have_text([f"speaks {protocol}", "sent"])
    assert stage.run(answer(stage.url)) == QUESTION
    expect(lines).to_have_text([f"speaks {protocol}", "sent", ANSWER, "taken"])


@pytest.mark.parametrize(("protocol", "script"), [("v12.stomp", STOMP), ("mqtt", MQTT)])
@pytest.mark.req("X2")
def test_a_page_from_elsewhere_does_not_get_in(
    window: Window, stage: Stage, pages: Pages, protocol: str, script: str
) -> None:
    window.expected.append("Unexpected response code: 403")
    lines = shown(window, stage, pages, STRANGER, protocol, script)
    expect(lines).to_have_text(["error", "closed"])
