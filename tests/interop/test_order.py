"""What a client hears of a topic, it hears in the order in which it was sent, however it acknowledges."""

from __future__ import annotations

import socket

import pytest

from heliograph.frontends.mqtt import packets
from heliograph.frontends.mqtt.packets import CONNACK, PUBACK, PUBLISH, SUBACK, V5
from heliograph.frontends.mqtt.reading import pack_text
from tests.interop.stage import Stage

pytestmark = [pytest.mark.req("X1"), pytest.mark.slow]
THREE_AT_A_TIME = b"\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x03\x21\x00\x03\x00\x00"


class MqttClient:
    """Says several things in one breath, and when it wants to, as no library does."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._heard = connection.makefile("rb")
        self._said = 0
        self.messages: list[tuple[int, bytes]] = []  # their numbers and what they say

    def say(self, *said: bytes) -> None:
        self._connection.sendall(b"".join(said))

    def hear(self, kind: int) -> None:
        """Up to the next of its kind. Messages are remembered."""
        heard = -1
        while heard != kind:
            first, length = self._heard.read(2)
            assert length < 0x80, "all of them are short here"
            heard, body = first >> 4, self._heard.read(length)
            if heard == PUBLISH:
                message = packets.read_publish(first & 0x0F, body, V5)
                self.messages.append((message.packet_id, message.payload))

    def message(self, topic: str, payload: bytes) -> bytes:
        self._said += 1
        return packets.publish(
            pack_text(topic),
            payload,
            qos=1,
            retain=False,
            duplicate=False,
            packet_id=self._said,
            properties=b"\0",
        )


def test_who_acknowledges_several_in_one_breath_hears_the_rest_in_order(stage: Stage) -> None:
    """That makes room for a message that waits for it here, and at the same time brings the one behind it."""
    with stage.dial() as connection:
        client = MqttClient(connection)
        client.say(THREE_AT_A_TIME)
        client.hear(CONNACK)
        for number, topic in enumerate(("order/a", "order/b"), start=1):
            body = number.to_bytes(2, "big") + b"\0" + pack_text(topic) + b"\x01"
            client.say(packets.packet(packets.SUBSCRIBE, 2, body))
            client.hear(SUBACK)
        sent = [("order/b", b"b1"), *(("order/a", b"a%d" % number) for number in range(1, 7))]
        for topic, payload in sent:
            client.say(client.message(topic, payload))
            client.hear(PUBACK)
        while len(client.messages) < 3:
            client.hear(PUBLISH)
        assert [payload for _, payload in client.messages] == [b"b1", b"a1", b"a2"]
        client.say(*[packets.acknowledgement(PUBACK, number, V5) for number, _ in client.messages])
        while len(client.messages) < 6:
            client.hear(PUBLISH)
        assert [payload for _, payload in client.messages[3:]] == [b"a3", b"a4", b"a5"]
