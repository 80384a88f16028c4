"""What an application reads off a message (J2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from heliograph.client.incoming import Inbox, Mode
from heliograph.client.message import Delivery, Message, Settler
from heliograph.client.outgoing import Lane
from heliograph.client.preparing import prepare
from heliograph.model import block
from heliograph.model.ids import IdIssuer, lane_of

NOW = 1_700_000_000_500_000
LANE = lane_of(IdIssuer(site=1, node=2, started_ms=255).session(), 3)

pytestmark = pytest.mark.req("J2")


@dataclass
class Owner:
    """A consumer of which only the destination matters here."""

    destination: str = "queue:orders"


def received(*bodies: Any, earlier: int = 0, user: str | None = None, **options: Any) -> list[Message]:
    lane = Lane(3, LANE, block_messages=100)
    for body in bodies:
        lane.put(prepare(body, **{"priority": 4, "persistent": True, **options}), NOW)
    lane.seal(NOW)
    box = Inbox(Mode.AUTO, 100)
    for buffer, _ in lane.take_unsent():
        owner = cast(Settler, Owner())
        box.put(Delivery(block.unpack(buffer), owner, first_tag=1, earlier=earlier, user_id=user))
    return box.take_batch(100)


def test_a_plain_message_has_defaults_for_everything() -> None:
    [message] = received(b"body")
    assert (message.body, message.destination, message.id) == (b"body", "queue:orders", "1.2.ff.1/3-1")
    assert (message.timestamp, message.expiration, message.delivery_time) == (1_700_000_000.5, 0, 0)
    assert (message.priority, message.persistent) == (4, True)
    assert (message.redelivered, message.delivery_count, message.user_id) == (False, 1, None)
    assert (message.correlation_id, message.reply_to, message.type) == (None, None, None)
    assert (message.group_id, message.group_sequence, dict(message.properties)) == (None, 0, {})


def test_what_a_sender_says_arrives() -> None:
    said = {"text": "é", "number": 7, "real": 0.5, "yes": True, "nothing": None, "raw": b"\x00"}
    first, second = received(
        b"a",
        "b",
        properties=said,
        correlation_id="c",
        reply_to="queue:r",
        type="t",
        priority=9,
        persistent=False,
    )
    for message in (first, second):
        assert message.properties == said
        assert (message.correlation_id, message.reply_to, message.type) == ("c", "queue:r", "t")
        assert (message.priority, message.persistent) == (9, False)
    assert [first.body, second.body] == [b"a", "b"]


def test_bodies_keep_their_kind_alone_and_among_others() -> None:
    bodies = [b"\xff\x00", "text", {"a": [1, None, "x"]}, [1, 2.5], b"", ""]
    assert [message.body for message in received(*bodies)] == bodies
    assert [message.body for body in bodies for message in received(body)] == bodies


def test_any_body_can_be_read_as_text() -> None:
    assert [message.text for message in received("é", b"\xc3\xa9", b"\xff", {"a": 1}, [1])] == [
        "é",
        "é",
        "\ufffd",
        '{"a":1}',
        "[1]",
    ]


def test_a_redelivered_message_says_so() -> None:
    [message] = received(b"", earlier=2, user="ada")
    assert (message.redelivered, message.delivery_count, message.user_id) == (True, 3, "ada")


def test_expiry_is_told_in_seconds() -> None:
    [message] = received(b"", expiry=NOW + 1_000_000)
    assert message.expiration == message.timestamp + 1


def test_messages_of_one_block_are_told_apart() -> None:
    first, second = received(b"same", b"same")
    assert first != second
    assert len({first, second, first}) == 2
    assert [first.id[-2:], second.id[-2:]] == ["-1", "-2"]
