"""What does a peer speak? All protocols come in by one port, and each begins with bytes that no other begins with.

    HELIO, 01, a line end          ours
    CONNECT or STOMP, a line end   STOMP, perhaps after empty lines
    10 length 00 04 M Q T T        MQTT
    GET, POST, PUT …               HTTP: the API, the console, metrics; or it asks for WebSocket
    A M Q P                        AMQP
    16 03                          TLS

A peer that begins otherwise is answered as one that speaks our protocol badly. Before it is known what a peer
speaks, a few bytes are kept and nothing else.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from heliograph.frontends.conversation import (
    NOTHING,
    AnyHappening,
    Broken,
    Conversation,
    Encrypted,
    Recognised,
)
from heliograph.frontends.http.conversation import HttpConversation
from heliograph.frontends.http.front_desk import FrontDesk
from heliograph.frontends.http.requests import METHODS
from heliograph.frontends.mqtt.conversation import MqttConversation
from heliograph.frontends.native.conversation import Conversation as NativeConversation
from heliograph.frontends.native.frames import PREAMBLE
from heliograph.frontends.stomp.conversation import StompConversation
from heliograph.model.errors import HeliographError, ProtocolFault

_STOMP: Final = (b"CONNECT\n", b"CONNECT\r\n", b"STOMP\n", b"STOMP\r\n")
_MQTT_CONNECT: Final = 0x10
_MQTT_NAME: Final = b"\x00\x04MQTT"
_HTTP: Final = tuple(f"{method} ".encode() for method in METHODS)
# Both our protocol and HEAD begin so.
_UNDECIDED: Final = (b"H", b"HE")
_TLS: Final = b"\x16\x03"
_AMQP: Final = b"AMQP"
# How it is said that a protocol is not spoken: TLS's alert `handshake_failure`, and the header of the AMQP that is.
_REFUSALS: Final = {
    "tls-unknown": b"\x15\x03\x01\x00\x02\x02\x28",
    "protocol-unknown": b"AMQP\x00\x01\x00\x00",
}
# The longest beginning that has to be seen before it is known: MQTT's, with a length of four bytes.
_ENOUGH_BYTES: Final = 16


def recognise(
    data: bytes,
    origins: Sequence[str] = (),
    desk: FrontDesk | None = None,
    *,
    is_secure: bool = False,
) -> Conversation | None:
    """The conversation for a peer that begins so; None: it has to say more first. `origins`: from where web pages may
    connect. `desk`: who answers requests of HTTP. `is_secure`: it is within TLS. Raises ProtocolFault for
    protocols that are known and not spoken here."""
    if data in _UNDECIDED:
        return None
    if PREAMBLE.startswith(data[: len(PREAMBLE)]):
        return NativeConversation() if data else None
    plain = data.lstrip(b"\r\n")
    if any(_begins(plain, word) for word in _STOMP):
        return StompConversation() if plain.startswith(_STOMP) else _unless_long(data)
    if any(_begins(data, method) for method in _HTTP):
        if not data.startswith(_HTTP):
            return None
        return HttpConversation(desk or FrontDesk(), recognise, origins, is_secure=is_secure)
    if data[0] == _MQTT_CONNECT:
        return _mqtt(data)
    if _begins(data, _TLS):
        raise ProtocolFault("this port has no certificate: connect without TLS", code="tls-unknown")
    if _begins(data, _AMQP):
        return _amqp() if data.startswith(_AMQP) else None
    return NativeConversation()


def _amqp() -> Conversation:
    """Proton is only loaded where somebody speaks AMQP."""
    from heliograph.frontends.amqp.engine import IS_THERE

    if not IS_THERE:
        sentence = "AMQP needs Qpid Proton: pip install 'heliograph[amqp]'"
        raise ProtocolFault(sentence, code="protocol-unknown")
    from heliograph.frontends.amqp.conversation import AmqpConversation

    return AmqpConversation()


def _begins(data: bytes, word: bytes) -> bool:
    """Whether data begins with a word, or is the beginning of it."""
    return data.startswith(word) or word.startswith(data)


def _unless_long(data: bytes) -> Conversation | None:
    return None if len(data) < _ENOUGH_BYTES else NativeConversation()


def _mqtt(data: bytes) -> Conversation | None:
    length = 1
    while length < min(len(data), 5) and data[length] & 0x80:
        length += 1
    name = data[length + 1 :]
    if len(name) >= len(_MQTT_NAME):
        return MqttConversation() if name.startswith(_MQTT_NAME) else NativeConversation()
    return None if _MQTT_NAME.startswith(name) and length < 5 else NativeConversation()


class Tls(enum.Enum):
    """Whether a port speaks TLS."""

    NONE = "none"
    WITHIN = "within"  # which is where the question is asked again
    OFFERED = "offered"
    NEEDED = "needed"


class Detecting(Conversation):
    """A conversation with a peer that has not said enough."""

    def __init__(
        self, origins: Sequence[str] = (), desk: FrontDesk | None = None, tls: Tls = Tls.NONE
    ) -> None:
        self._origins = origins
        self._desk = desk
        self._tls = tls
        self._heard = b""

    def receive(self, data: bytes, now: int = 0) -> Sequence[AnyHappening]:
        self._heard += data
        if self._tls in (Tls.OFFERED, Tls.NEEDED) and _begins(self._heard, _TLS):
            return [Encrypted(self._heard)] if self._heard.startswith(_TLS) else NOTHING
        try:
            conversation = recognise(
                self._heard, self._origins, self._desk, is_secure=self._tls is Tls.WITHIN
            )
        except ProtocolFault as fault:
            return [Broken(fault, _REFUSALS[fault.code])]
        if conversation is None:
            return NOTHING
        heard, self._heard = self._heard, b""
        if self._tls is Tls.NEEDED:
            sentence = "this port speaks with TLS only: connect with it, as with helios:// or --tls"
            return [conversation.break_off(ProtocolFault(sentence, code="tls-needed"))]
        return [Recognised(conversation, heard)]

    def break_off(self, error: HeliographError) -> Broken:
        """Nobody knows how to tell it: it hears our protocol."""
        return NativeConversation().break_off(error)
