"""Links that a client wants to resume: what it says of unsettled deliveries, and what it is answered.

Proton has no words for the unsettled map of an attach, on either side, so these clients speak in frames."""

from __future__ import annotations

import socket
import struct
import time
import uuid
from typing import Any

import pytest
from proton import Message, Terminus
from proton.reactor import DurableSubscription

from heliograph.frontends.amqp import values
from heliograph.frontends.amqp.values import Described, Symbol
from tests.interop.stage import SECONDS, Stage
from tests.interop.test_proton import bodies, connected

pytestmark = pytest.mark.req("X1")
_HEADER = b"AMQP\x00\x01\x00\x00"
_OPEN, _BEGIN, _ATTACH, _FLOW, _TRANSFER, _DISPOSITION = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15
_NULL = b"\x40"
_ACCEPTED = b"\x00\x53\x24\x45"


def a_map(pairs: dict[bytes, bytes]) -> bytes:
    parts = [part for tag, state in pairs.items() for part in (values.variable("v", tag), state)]
    return values.compound(0xC1, len(parts), b"".join(parts))


def terminus(code: int, address: str) -> bytes:
    """One that is to be kept for ever, with what is unsettled."""
    return values.fields(code, [values.variable("s", address), b"\x52\x02", values.variable("k", "never")])


class Peer:
    """Speaks AMQP frame by frame."""

    def __init__(self, stage: Stage, container: str) -> None:
        self._socket: socket.socket = stage.dial()
        self._socket.settimeout(SECONDS)
        self._socket.sendall(_HEADER)
        assert self._read(8) == _HEADER
        self.say(_OPEN, values.variable("s", container))
        self.say(_BEGIN, _NULL, b"\x43", b"\x70\x00\x00\x08\x00", b"\x70\x00\x00\x08\x00")

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the server hung up"
            data += more
        return data

    def say(self, code: int, *said: bytes, payload: bytes = b"") -> None:
        body = values.fields(code, list(said)) + payload
        self._socket.sendall(struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body)

    def hear(self, code: int) -> tuple[list[Any], bytes]:
        """The next frame of that kind: its fields, and what comes behind them."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            size, offset = struct.unpack(">IB", self._read(5))
            frame = self._read(size - 5)[4 * offset - 5 :]
            if frame:
                found, position = values.read(frame, 0)
                assert isinstance(found, Described)
                if found.descriptor == code:
                    return found.value, frame[position:]
        raise AssertionError(f"no frame {code:#x} came")

    def attach(self, name: str, address: str, unsettled: dict[bytes, bytes], *, sends: bool) -> list[Any]:
        """The fields of the answer."""
        source, target = (0x28, 0x29)
        kept = terminus(target if sends else source, address)
        other = values.fields(source if sends else target, [])
        self.say(
            _ATTACH,
            values.variable("s", name),
            b"\x43",
            b"\x42" if sends else b"\x41",
            _NULL,
            _NULL,
            other if sends else kept,
            kept if sends else other,
            a_map(unsettled),
            b"\x42",
            b"\x43" if sends else _NULL,
        )
        answer, _ = self.hear(_ATTACH)
        return answer + [None] * (14 - len(answer))

    def cut(self) -> None:
        self._socket.close()


def kept(said: Any) -> tuple[int, str]:
    """What a terminus says of its durability and its end."""
    assert isinstance(said, Described)
    return said.value[1] or 0, str(said.value[2] or Symbol("session-end"))


def test_who_wants_to_go_on_sending_is_told_that_nothing_is_known_and_sends_again(stage: Stage) -> None:
    peer = Peer(stage, "resuming-sender")
    answer = peer.attach("s", "queue:resumed", {b"one": _NULL, b"two": _ACCEPTED}, sends=True)
    assert answer[7] is None, "no delivery is known from before: each of them is sent again, or given up"
    assert kept(answer[6]) == (0, "link-detach"), "and none will be known another time"
    peer.hear(_FLOW)
    message = b"\x00\x53\x77" + values.variable("s", "again")
    peer.say(_TRANSFER, b"\x43", b"\x43", values.variable("v", b"one"), b"\x43", b"\x42", payload=message)
    disposition, _ = peer.hear(_DISPOSITION)
    assert disposition[3] is True
    assert disposition[4].descriptor == 0x24
    peer.cut()
    with connected(stage) as connection:
        assert bodies(connection.create_receiver("queue:resumed"), 1) == ["again"]


def test_who_wants_to_go_on_receiving_gets_what_is_not_settled_anew_and_marked(stage: Stage) -> None:
    with connected(stage) as connection:
        connection.create_sender("queue:resumed-out").send(Message(body="work", durable=True))
    container = str(uuid.uuid4())
    peer = Peer(stage, container)
    peer.attach("r", "queue:resumed-out", {}, sends=False)
    credit = (
        b"\x43",
        b"\x70\x00\x00\x08\x00",
        b"\x43",
        b"\x70\x00\x00\x08\x00",
        b"\x43",
        b"\x43",
        b"\x52\x01",
    )
    peer.say(_FLOW, *credit)
    transfer, _ = peer.hear(_TRANSFER)
    peer.cut()
    again = Peer(stage, container)
    answer = again.attach("r", "queue:resumed-out", {transfer[2]: _NULL}, sends=False)
    assert answer[7] is None
    assert kept(answer[5]) == (0, "link-detach")
    again.say(_FLOW, *credit)
    _, payload = again.hear(_TRANSFER)
    header, _ = values.read(payload, 0)
    assert header.value[3:5] == [False, 1], "not the first to get it, and handed out once before"
    again.cut()


def test_a_subscription_is_kept_and_not_what_is_unsettled_of_it(stage: Stage) -> None:
    name, options = str(uuid.uuid4()), [DurableSubscription()]
    with connected(stage, name) as connection:
        receiver = connection.create_receiver("topic:resumed", name="kept", options=options)
        source = receiver.link.remote_source
        assert (source.durability, source.expiry_policy) == (Terminus.CONFIGURATION, Terminus.EXPIRE_NEVER)
        connection.create_sender("topic:resumed").send(Message(body="news", durable=True))
        assert receiver.receive(SECONDS).body == "news"
    with connected(stage, name) as connection:
        again = connection.create_receiver("topic:resumed", name="kept", options=options).receive(SECONDS)
        assert (again.body, again.first_acquirer, again.delivery_count) == ("news", False, 1)
