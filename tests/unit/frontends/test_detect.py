"""One port for all protocols: each is recognised by its first bytes, however few arrive at a time."""

from __future__ import annotations

import pytest

from heliograph.frontends.conversation import Broken, Conversation, Recognised
from heliograph.frontends.detect import Detecting
from heliograph.frontends.http.conversation import HttpConversation
from heliograph.frontends.mqtt.conversation import MqttConversation
from heliograph.frontends.native.conversation import Conversation as NativeConversation
from heliograph.frontends.native.frames import PREAMBLE, Hello, control_frame
from heliograph.frontends.stomp.conversation import StompConversation

BEGINNINGS = [
    (PREAMBLE + control_frame(Hello()), NativeConversation),
    (b"CONNECT\naccept-version:1.2\n\n\0", StompConversation),
    (b"\r\n\nSTOMP\r\nhost:x\r\n\r\n\0", StompConversation),
    (b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04self", MqttConversation),
    (b"\x10\xff\x01\x00\x04MQTT\x05\x02\x00\x3c", MqttConversation),
    (b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", HttpConversation),
    (b"POST /api/v1/login HTTP/1.1\r\nHost: x\r\n\r\n", HttpConversation),
    (b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", HttpConversation),
    (b"PATCH / HTTP/1.1\r\nHost: x\r\n\r\n", HttpConversation),
    (b"CONNECTED to nothing that we know", NativeConversation),
    (b"\x10\x05hello", NativeConversation),
    (b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff", NativeConversation),
    (b"\n" * 40, NativeConversation),
]


@pytest.mark.parametrize(("beginning", "kind"), BEGINNINGS)
@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.req("X1")
def test_a_protocol_is_recognised_by_how_it_begins(
    beginning: bytes, kind: type[Conversation], step: int
) -> None:
    detecting = Detecting()
    for start in range(0, len(beginning), step):
        happenings = detecting.receive(beginning[start : start + step])
        if happenings:
            (recognised,) = happenings
            assert isinstance(recognised, Recognised)
            assert type(recognised.conversation) is kind
            assert recognised.rest == beginning[: start + step]
            return
    raise AssertionError("it was never recognised")


@pytest.mark.parametrize(
    ("beginning", "code", "farewell"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "tls-unknown", b"\x15\x03\x01\x00\x02\x02\x28"),
    ],
)
def test_what_is_known_and_not_spoken_is_refused_in_its_own_words(
    beginning: bytes, code: str, farewell: bytes
) -> None:
    (broken,) = Detecting().receive(beginning)
    assert isinstance(broken, Broken)
    assert (broken.error.code, broken.farewell) == (code, farewell)


def test_without_proton_a_client_of_amqp_is_refused_and_the_log_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("heliograph.frontends.amqp.engine.IS_THERE", False)
    (broken,) = Detecting().receive(b"AMQP\x03\x01\x00\x00")
    assert isinstance(broken, Broken)
    assert (broken.error.code, broken.farewell) == ("protocol-unknown", b"AMQP\x00\x01\x00\x00")
    assert "heliograph[amqp]" in broken.error.sentence
