"""How a received message is printed: for people, for programs, and as it is."""

import base64
import json
from typing import Any

import pytest

from heliograph.cli.receive import as_body, as_json_line, as_text, summary
from heliograph.client.message import Message, open_delivery
from heliograph.model import block
from heliograph.model.ids import LaneId
from heliograph.model.message import Body, Head, encode_body, encode_head

pytestmark = pytest.mark.req("X4")

LANE = LaneId(bytes(15) + b"\x01")
STAMP = 1_700_000_000_123_000


class Owner:
    """Stands where a consumer would; printing acknowledges nothing."""

    destination = "queue:orders"

    async def acknowledge_message(self, delivery: Any, index: int, *, confirm: bool) -> None:
        raise AssertionError

    def acknowledge_from_thread(self, delivery: Any, index: int, *, confirm: bool) -> None:
        raise AssertionError

    async def return_message(self, delivery: Any, index: int, error: str) -> None:
        raise AssertionError

    async def reply(self, message: Any, body: Any, options: Any) -> None:
        raise AssertionError

    def run_from_thread(self, work: Any) -> Any:
        raise AssertionError

    def open_large(self, destination: str, reference: Any) -> Any:
        raise AssertionError


def message(body: Body, *, earlier: int = 0, priority: int = 4, head: Head | None = None) -> Message:
    kind, raw = encode_body(body)
    packed = block.pack_lone(
        raw,
        lane=LANE,
        sequence=7,
        timestamp=STAMP,
        priority=priority,
        kind=kind,
        head=b"" if head is None else encode_head(head),
    )
    delivery = open_delivery(packed, Owner(), first_tag=1, earlier=earlier, user_id="ann", epoch=0)
    return Message(delivery.bodies[0], delivery, 0)


def test_json_has_all_headers() -> None:
    head = Head(
        correlation_id="c", reply_to="queue:r", type="t", properties={"n": 3, "raw": b"\xff", "ok": True}
    )
    record = json.loads(as_json_line(message("hé", earlier=1, priority=9, head=head)))
    assert record.pop("timestamp") == pytest.approx(STAMP / 1e6)
    assert record == {
        "id": "0.0.0.0/1-7",
        "destination": "queue:orders",
        "expiration": 0.0,
        "priority": 9,
        "persistent": True,
        "correlation_id": "c",
        "reply_to": "queue:r",
        "type": "t",
        "redelivered": True,
        "delivery_count": 2,
        "user_id": "ann",
        "group_id": None,
        "group_sequence": 0,
        "properties": {"n": 3, "raw": {"encoding": "base64", "value": "/w=="}, "ok": True},
        "body_kind": "text",
        "body_size": None,
        "body_encoding": None,
        "body": "hé",
    }


@pytest.mark.parametrize(
    ("body", "kind", "encoding", "shown"),
    [
        (b"plain", "bytes", None, "plain"),
        (b"\xff\x00", "bytes", "base64", base64.b64encode(b"\xff\x00").decode()),
        ({"a": [1, None, "x"]}, "data", None, {"a": [1, None, "x"]}),
        ([1.5], "data", None, [1.5]),
        ("", "text", None, ""),
    ],
)
def test_json_says_what_the_body_was(body: Body, kind: str, encoding: str | None, shown: object) -> None:
    line = as_json_line(message(body))
    assert line.count(b"\n") == 1
    record = json.loads(line)
    assert (record["body_kind"], record["body_encoding"], record["body"]) == (kind, encoding, shown)


def test_bodies_only_are_the_bytes_as_they_are() -> None:
    assert as_body(message(b"\xff\x1b")) == b"\xff\x1b\n"
    assert as_body(message("hé")) == "hé\n".encode()
    assert as_body(message({"a": 1})) == b'{"a":1}\n'


def test_people_see_the_body_and_what_is_out_of_the_ordinary() -> None:
    assert as_text(message("hello"), coloured=False).endswith(".123  hello")
    head = Head(correlation_id="c1", reply_to="queue:r", properties={"colour": "red"})
    lines = as_text(message("hello", earlier=2, priority=9, head=head), coloured=False).split("\n")
    assert lines[1].strip() == "colour=red · answers c1 · reply to queue:r · priority 9 · delivery 3"


@pytest.mark.req("X2")
def test_people_see_foreign_bytes_but_the_terminal_does_not_obey_them() -> None:
    assert as_text(message("\x1b[2J"), coloured=False).endswith("\\x1b[2J")
    assert as_text(message(b"\xff" * 30), coloured=False).endswith("<30 B: " + "ff " * 24 + "…>")
    hostile = Head(properties={"a\x1b": "\x07"})
    assert "\x1b" not in as_text(message("x", head=hostile), coloured=False)


def test_the_last_line_says_how_many_and_why_it_is_over() -> None:
    assert summary(3, "queue:a", 1.0) == "3 messages received from queue:a"
    assert summary(0, "queue:a", 1.0) == "no message came from queue:a within 1 s"
    assert "try --follow" in summary(0, "topic:a", 1.0)
    assert summary(0, "topic:a", None) == "0 messages received from topic:a"
