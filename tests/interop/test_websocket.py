"""Browsers speak STOMP and MQTT over WebSocket; here paho, stomp.py and a bare client do as they do."""

from __future__ import annotations

from typing import Any

import paho.mqtt.client as mqtt
import pytest
import stomp
import websocket

from tests.interop.stage import SECONDS, Stage
from tests.interop.test_paho import V3, V5, Client
from tests.interop.test_stomp_py import Heard

pytestmark = pytest.mark.req("X1")


class OverWebSocket(Client):
    def __init__(self, stage: Stage, version: int) -> None:
        super().__init__(stage, version=version)
        callbacks = self.paho
        self.paho = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=version, transport="websockets")
        for name in (
            "on_connect",
            "on_disconnect",
            "on_message",
            "on_subscribe",
            "on_unsubscribe",
            "on_publish",
        ):
            setattr(self.paho, name, getattr(callbacks, name))


@pytest.mark.parametrize("version", [V3, V5])
def test_paho_over_websocket(stage: Stage, version: int) -> None:
    one = OverWebSocket(stage, version)
    one.connect()
    one.subscribe(f"web/{version}", 2)
    large = bytes(range(256)) * 1000
    for payload in (b"small", large, b""):
        one.publish(f"web/{version}", payload, 2)
    one.await_messages(3)
    assert one.payloads == [b"small", large, b""]
    one.leave()


def test_stomp_py_over_websocket(stage: Stage) -> None:
    connection = stomp.WSConnection([(stage.host, stage.port)], header=["Sec-WebSocket-Protocol: v12.stomp"])
    heard = Heard()
    connection.set_listener("heard", heard)
    connection.connect(wait=True)
    connection.subscribe("/queue/web", id="s", ack="client-individual")
    for number in range(20):
        connection.send("/queue/web", f"grüezi {number}", receipt=f"r{number}")
    messages = heard.await_messages(20)
    assert heard.bodies == [f"grüezi {number}" for number in range(20)]
    heard.await_receipt("r19")
    connection.ack(messages[0].headers["ack"], receipt="acked")
    heard.await_receipt("acked")
    connection.disconnect()


def test_a_page_from_elsewhere_is_refused_and_text_stays_text(stage: Stage) -> None:
    url = f"ws://{stage.host}:{stage.port}/"
    with pytest.raises(websocket.WebSocketBadStatusException) as refusal:
        websocket.create_connection(url, origin="https://evil.example", timeout=SECONDS)
    assert refusal.value.status_code == 403
    page: Any = websocket.create_connection(url, subprotocols=["v12.stomp"], timeout=SECONDS)
    page.send("CONNECT\naccept-version:1.2\nhost:x\n\n\0")
    opcode, data = page.recv_data()
    assert opcode == websocket.ABNF.OPCODE_TEXT
    assert data.startswith(b"CONNECTED\nversion:1.2\n")
    page.send("SUBSCRIBE\nid:1\ndestination:/queue/page\n\n\0")
    page.send_binary(b"SEND\ndestination:/queue/page\ncontent-length:2\n\n\xff\xfe\0")
    opcode, data = page.recv_data()
    assert opcode == websocket.ABNF.OPCODE_BINARY
    assert data.endswith(b"\n\n\xff\xfe\0")
    page.ping("there?")
    page.send("NONSENSE\n\n\0")
    frames = [page.recv_frame()]
    while frames[-1].opcode != websocket.ABNF.OPCODE_CLOSE:
        frames.append(page.recv_frame())
    assert b"ERROR\n" in b"".join(frame.data for frame in frames)
    page.close()
