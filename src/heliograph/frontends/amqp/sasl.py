"""AMQP's first words: which protocol, and who the client is (parts 2.2 and 5.3 of the standard).

    AMQP 3 1 0 0 ──▶ mechanisms ──▶ init ──▶ (proved elsewhere) ──▶ outcome ──▶ AMQP 0 1 0 0 ──▶ Proton

A client may leave the proving out and is nobody then. Proton hears nothing of all this, so what strangers send is
only ever read here, and there is little that they may say.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from heliograph.frontends.amqp import values
from heliograph.frontends.amqp.values import Described, Symbol, malformed
from heliograph.model.errors import ProtocolFault
from heliograph.model.limits import MAX_GREETING_BYTES

HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
_HEADER_BYTES: Final = 8
_INIT: Final = 0x41
_RESPONSE: Final = 0x43
_DESCRIPTORS: Final = {"amqp:sasl-init:list": _INIT, "amqp:sasl-response:list": _RESPONSE}
OK, WRONG, BROKEN = 0, 1, 2


class Init(msgspec.Struct):
    """The client chose a mechanism and said the first of it."""

    mechanism: str
    response: bytes


class Response(msgspec.Struct):
    """The client's answer to a challenge."""

    response: bytes


def _frame(descriptor: int, encoded: list[bytes]) -> bytes:
    body = values.fields(descriptor, encoded)
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


def mechanisms(names: list[str]) -> bytes:
    return _frame(0x40, [values.array([values.variable("k", name) for name in names])])


def challenge(data: bytes) -> bytes:
    return _frame(0x42, [values.variable("v", data)])


def outcome(code: int, data: bytes = b"") -> bytes:
    return _frame(0x44, [bytes((0x50, code)), values.variable("v", data) if data else values.NULL])


def goodbye(condition: str, description: str) -> bytes:
    """The farewell to a client for whom there is no Proton: an `open` and a `close` that says why."""
    error = values.fields(0x1D, [values.variable("k", condition), values.variable("s", description)])
    frames = (values.fields(0x10, [values.variable("s", "heliograph")]), values.fields(0x18, [error]))
    return HEADER + b"".join(
        (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body for body in frames
    )


class SaslReader:
    """What a client says before it is known."""

    def __init__(self) -> None:
        self._heard = b""

    def feed(self, data: bytes) -> None:
        self._heard += data

    def check(self) -> None:
        """Raises ProtocolFault where more was said than there is room for."""
        if len(self._heard) > MAX_GREETING_BYTES:
            raise ProtocolFault(
                f"at most {MAX_GREETING_BYTES} bytes before you are known", code="frame-too-long"
            )

    @property
    def rest(self) -> bytes:
        """What was said and not looked at."""
        rest, self._heard = self._heard, b""
        return rest

    def header(self) -> bytes | None:
        """The protocol's header; None: it is not complete. Raises ProtocolFault."""
        if len(self._heard) < _HEADER_BYTES:
            return None
        found, self._heard = self._heard[:_HEADER_BYTES], self._heard[_HEADER_BYTES:]
        if found not in (HEADER, SASL_HEADER):
            raise ProtocolFault("AMQP 1.0 is spoken here, without or with SASL", code="version-unknown")
        return found

    def frame(self) -> Init | Response | None:
        """What the client says next; None: it is not complete. Raises ProtocolFault."""
        if len(self._heard) < 8:
            return None
        size = int.from_bytes(self._heard[:4], "big")
        offset = self._heard[4] * 4
        if not 8 <= offset <= size <= MAX_GREETING_BYTES or self._heard[5] != 1:
            raise malformed("this is no frame of SASL")
        if len(self._heard) < size:
            return None
        body, self._heard = self._heard[offset:size], self._heard[size:]
        return _said(values.read_whole(body))


def _said(value: Any) -> Init | Response:
    if not isinstance(value, Described) or not isinstance(value.value, list):
        raise malformed("this is no frame of SASL")
    code = _DESCRIPTORS.get(value.descriptor) if isinstance(value.descriptor, str) else value.descriptor
    fields = [*value.value, None, None]
    if code == _INIT and isinstance(fields[0], Symbol) and isinstance(fields[1], bytes | None):
        return Init(str(fields[0]), fields[1] or b"")
    if code == _RESPONSE and isinstance(fields[0], bytes):
        return Response(fields[0])
    raise malformed("a client says sasl-init or sasl-response")
