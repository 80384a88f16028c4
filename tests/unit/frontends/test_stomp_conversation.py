"""STOMP conversations, frame by frame: what becomes of each, when receipts are given, and what is an error."""

from __future__ import annotations

import pytest

from fuzz.desk import OTHERS_LANE, Desk
from heliograph.frontends.conversation import Broken
from heliograph.frontends.stomp.conversation import StompConversation
from heliograph.frontends.stomp.frames import encode
from heliograph.model import block
from heliograph.model.block import Span, parse_trusted, unpack
from heliograph.model.ids import lane_number
from heliograph.model.limits import (
    MAX_EARLY_FRAMES,
    MAX_GREETING_BYTES,
    MAX_HELD_TRANSACTIONS,
    MAX_TRANSACTION_BYTES,
)
from heliograph.sessions import commands
from heliograph.sessions.commands import AnyCommand, AnySessionEffect

pytestmark = pytest.mark.req("X1")


class Quiet(Desk):
    """Answers nothing by itself but what opens a session."""

    def _effects(self, command: AnyCommand) -> list[AnySessionEffect]:
        return []


def frame(command: str, body: bytes = b"", /, **headers: str) -> bytes:
    return encode(command, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def greeted(kind: type[Desk] = Desk, version: str = "1.2", **headers: str) -> Desk:
    desk = kind(StompConversation(), delivers=0)
    desk.receive(frame("CONNECT", accept_version=version, **headers))
    assert desk.said[-1].startswith(f"CONNECTED\nversion:{version}\n".encode())
    desk.said.clear()
    return desk


def published(desk: Desk) -> list[tuple[int, list[bytes], bool]]:
    """Lane, bodies and whether it is of a transaction, for each block."""
    return [
        (lane_number(command.block.lane), unpack(command.block.buffer or b"").bodies, command.staged)
        for command in desk.commands
        if isinstance(command, commands.Publish)
    ]


def deliver(desk: Desk, consumer: int, first: int, count: int) -> None:
    buffer = block.pack([b"m%d" % (first + index) for index in range(count)], lane=OTHERS_LANE, first=first)
    desk.tell(commands.Deliver(consumer, first, Span(parse_trusted(buffer), 0, count), ""))


def settled(desk: Desk) -> list[tuple[int, list[tuple[int, int]], bool]]:
    return [
        (command.consumer, command.ranges, command.returned)
        for command in desk.commands
        if isinstance(command, commands.Settle)
    ]


def test_a_conversation_byte_for_byte() -> None:
    desk = greeted()
    desk.receive(frame("SUBSCRIBE", id="s", destination="/queue/a", ack="client", receipt="r1"))
    buffer = block.pack_lone(b"body", lane=OTHERS_LANE, sequence=7, timestamp=5_000_000, priority=9)
    desk.tell(commands.Deliver(1, 1, Span(parse_trusted(buffer), 0, 1, 1), "ann"))
    desk.receive(frame("ACK", id="1-1", receipt="r2"))
    desk.receive(frame("DISCONNECT", receipt="r3"))
    assert b"".join(desk.said) == (
        b"RECEIPT\nreceipt-id:r1\n\n\0"
        b"MESSAGE\nsubscription:s\ndestination:/queue/a\nmessage-id:514.514.20202020202.33686018/1-7\n"
        b"content-length:4\nack:1-1\ntimestamp:5000\npersistent:true\npriority:9\nredelivered:true\n"
        b"JMSXDeliveryCount:2\nJMSXUserID:ann\n\nbody\0"
        b"RECEIPT\nreceipt-id:r2\n\n\0"
        b"RECEIPT\nreceipt-id:r3\n\n\0"
    )
    assert desk.is_over


def test_what_one_read_brings_is_one_block_for_each_destination() -> None:
    desk = greeted()
    sends = [frame("SEND", b"%d" % number, destination=f"/queue/{number % 2}") for number in range(100)]
    desk.receive(b"".join(sends))
    lanes = published(desk)
    assert lanes == [
        (1, [b"%d" % number for number in range(0, 100, 2)], False),
        (2, [b"%d" % number for number in range(1, 100, 2)], False),
    ]
    assert [type(command) for command in desk.commands].count(commands.OpenLane) == 2


def test_a_receipt_is_given_when_the_message_is_stored_and_not_before() -> None:
    desk = greeted(Quiet)
    desk.receive(frame("SEND", b"x", destination="/queue/a", receipt="r"))
    (opening,) = desk.commands
    assert isinstance(opening, commands.OpenLane)
    desk.tell(commands.LaneReady(opening.request, 0))
    desk.receive(b"\n")
    assert published(desk) == [(1, [b"x"], False)]
    assert desk.said == []
    desk.tell(commands.Confirm(1, 1))
    desk.receive(b"\n")
    assert desk.said == [b"RECEIPT\nreceipt-id:r\n\n\0"]


def test_what_a_stranger_says_behind_connect_is_kept_up_to_a_bound() -> None:
    early = [frame("SEND", b"%d" % number, destination="/queue/a") for number in range(MAX_EARLY_FRAMES)]
    desk = Desk(StompConversation(), delivers=0)
    desk.receive(frame("CONNECT", accept_version="1.2") + b"".join(early))
    assert published(desk) == [(1, [b"%d" % number for number in range(MAX_EARLY_FRAMES)], False)]
    *_, broken = StompConversation().receive(
        frame("CONNECT", accept_version="1.2") + b"".join(early) + early[0]
    )
    assert isinstance(broken, Broken)
    assert broken.error.code == "not-greeted"


def test_a_stranger_has_room_for_a_greeting_and_a_client_for_its_headers() -> None:
    long = "x" * MAX_GREETING_BYTES
    (broken,) = StompConversation().receive(b"CONNECT\nlogin:" + long.encode())
    assert isinstance(broken, Broken)
    assert broken.error.code == "frame-too-long"
    desk = greeted()
    desk.receive(frame("SEND", b"x", destination="/queue/a", said=long))
    assert published(desk) == [(1, [b"x"], False)]


def test_a_client_that_leaves_is_let_go_when_all_is_stored() -> None:
    desk = greeted(Quiet)
    desk.receive(frame("SEND", b"x", destination="/queue/a") + frame("DISCONNECT", receipt="bye"))
    desk.tell(commands.LaneReady(1 + 1, 0))
    desk.receive(b"")
    assert published(desk) == [(1, [b"x"], False)]
    assert not desk.is_over
    desk.tell(commands.Confirm(1, 1))
    desk.receive(b"")
    assert desk.said == [b"RECEIPT\nreceipt-id:bye\n\n\0"]
    assert desk.is_over


def test_an_acknowledgement_is_for_all_before_it_or_for_one() -> None:
    desk = greeted()
    desk.receive(frame("SUBSCRIBE", id="c", destination="/queue/a", ack="client"))
    desk.receive(frame("SUBSCRIBE", id="i", destination="/queue/a", ack="client-individual"))
    deliver(desk, 1, 1, 5)
    deliver(desk, 2, 1, 5)
    desk.receive(
        frame("ACK", id="1-3") + frame("ACK", id="2-3") + frame("NACK", id="2-4") + frame("ACK", id="1-2")
    )
    assert settled(desk) == [(1, [(1, 3)], False), (2, [(3, 3)], False), (2, [(4, 4)], True)]
    desk.receive(frame("ACK", id="1-9"))  # all there are, and no more
    assert settled(desk)[-1] == (1, [(4, 5)], False)


def test_what_went_back_is_not_acknowledged() -> None:
    desk = greeted()
    desk.receive(frame("SUBSCRIBE", id="c", destination="/queue/a", ack="client"))
    deliver(desk, 1, 1, 5)
    desk.tell(commands.TellRecalled(1, [(2, 3)]))
    desk.receive(frame("ACK", id="1-5"))
    assert settled(desk) == [(1, [(1, 1), (4, 5)], False)]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_before_version_1_2_messages_are_acknowledged_by_their_id(version: str) -> None:
    desk = greeted(version=version)
    desk.receive(frame("SUBSCRIBE", id="c", destination="/queue/a", ack="client"))
    deliver(desk, 1, 1, 3)
    name = "514.514.20202020202.33686018/1-2"
    headers: dict[str, str] = {"message_id": name, **({"subscription": "c"} if version == "1.1" else {})}
    desk.receive(frame("ACK", **headers))
    desk.receive(frame("ACK", **headers))
    assert settled(desk) == [(1, [(1, 2)], False)]


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_before_version_1_2_a_message_can_be_acknowledged_again_after_abort(mode: str) -> None:
    desk = greeted(version="1.1")
    desk.receive(frame("SUBSCRIBE", id="c", destination="/queue/a", ack=mode))
    deliver(desk, 1, 1, 3)
    first, second, third = (f"514.514.20202020202.33686018/1-{number}" for number in (1, 2, 3))

    def ack(name: str, **headers: str) -> None:
        desk.receive(frame("ACK", message_id=name, subscription="c", **headers))

    for name in ("aborted", "committed"):
        desk.receive(frame("BEGIN", transaction=name))
    ack(first, transaction="aborted")
    ack(second, transaction="committed")
    ack(third)
    assert settled(desk) == [(1, [(3, 3)], False)]
    ack(first)  # it is in a transaction
    desk.receive(frame("ABORT", transaction="aborted"))
    desk.receive(frame("COMMIT", transaction="committed"))
    ack(second)  # it was committed
    ack(first, receipt="r")
    assert settled(desk) == [(1, [(3, 3)], False), (1, [(1, 1)], False)]
    assert desk.said[-1] == b"RECEIPT\nreceipt-id:r\n\n\0"
    assert isinstance(desk.conversation, StompConversation)
    assert desk.conversation._subscriptions.by_number[1].tags == {}, "nothing is kept for ever"


def test_in_mode_auto_the_network_has_to_have_it() -> None:
    desk = greeted()
    desk.receive(frame("SUBSCRIBE", id="a", destination="/queue/a"))
    deliver(desk, 1, 1, 3)
    deliver(desk, 1, 4, 2)
    assert settled(desk) == []
    desk.receive(b"\n")  # after which the desk says that all is written
    assert settled(desk) == [(1, [(1, 5)], False)]


def test_a_transaction_is_nothing_until_it_is_committed() -> None:
    desk = greeted()
    desk.receive(frame("SUBSCRIBE", id="c", destination="/queue/a", ack="client-individual"))
    deliver(desk, 1, 1, 3)
    for name in ("kept", "dropped"):
        desk.receive(frame("BEGIN", transaction=name))
        desk.receive(frame("SEND", name.encode(), destination="/queue/b", transaction=name))
    desk.receive(frame("ACK", id="1-1", transaction="kept"))
    desk.receive(frame("ACK", id="1-2", transaction="dropped"))
    desk.receive(frame("SEND", b"beside", destination="/queue/b"))
    assert published(desk) == [(1, [b"beside"], False)]
    desk.receive(frame("ABORT", transaction="dropped"))
    desk.receive(frame("COMMIT", transaction="kept", receipt="r"))
    assert published(desk)[1:] == [(2, [b"kept"], True)]
    (commit,) = [command for command in desk.commands if isinstance(command, commands.Commit)]
    assert (commit.transaction, commit.messages, commit.consumed) == (1, 1, [(1, [(1, 1)])])
    assert desk.said[-1] == b"RECEIPT\nreceipt-id:r\n\n\0"
    desk.receive(frame("ACK", id="1-2"))  # it can be acknowledged again
    assert settled(desk) == [(1, [(2, 2)], False)]


def test_a_temporary_queue_is_made_once_and_what_follows_waits_for_it() -> None:
    desk = greeted(Quiet)
    desk.receive(
        frame("SEND", b"1", destination="/queue/a", reply_to="/temp-queue/t")
        + frame("SEND", b"2", destination="/queue/a")
        + frame("SUBSCRIBE", id="t", destination="/temp-queue/t")
    )
    (making,) = desk.commands
    assert isinstance(making, commands.MakeTemporary)
    assert desk.conversation.is_waiting
    desk.tell(commands.Tell(making.request, {"destination": "queue:_temporary.9"}))
    desk.receive(b"")
    assert not desk.conversation.is_waiting
    opening, subscribing = desk.commands[1:]
    assert isinstance(opening, commands.OpenLane)
    assert isinstance(subscribing, commands.Subscribe)
    assert subscribing.destination == "queue:_temporary.9"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (frame("SEND", b"x"), "frame-malformed"),
        (frame("SEND", b"x", destination="somewhere"), "invalid-destination"),
        (frame("SEND", b"x", destination="/queue/a", priority="10"), "priority-invalid"),
        (frame("SEND", b"x", destination="/queue/a", expires="soon"), "header-invalid"),
        (frame("SEND", b"x", destination="/queue/a", transaction="t"), "transaction-unknown"),
        (frame("SUBSCRIBE", destination="/queue/a", id="1", ack="never"), "header-invalid"),
        (frame("SUBSCRIBE", destination="/queue/a", id="1", prefetch_count="0"), "header-invalid"),
        (frame("UNSUBSCRIBE", id="1"), "consumer-unknown"),
        (frame("ACK", id="nonsense"), "frame-malformed"),
        (frame("BEGIN"), "frame-malformed"),
        (frame("BEGIN", transaction="t") * 2, "transaction-exists"),
        (frame("COMMIT", transaction="t"), "transaction-unknown"),
        (frame("CONNECT"), "greeted-twice"),
        (
            b"".join(frame("BEGIN", transaction=f"{n}") for n in range(MAX_HELD_TRANSACTIONS + 1)),
            "transactions-open",
        ),
    ],
)
def test_what_is_wrong_is_an_error_and_the_end(said: bytes, code: str) -> None:
    desk = greeted()
    desk.receive(said)
    assert desk.is_over
    assert desk.said[-1].startswith(b"ERROR\n")
    assert f"\ncode:{code}\n".encode() in desk.said[-1]


def test_an_error_names_the_receipt_that_was_wanted() -> None:
    desk = greeted(Quiet)
    desk.receive(frame("SEND", b"x", destination="/queue/a", receipt="wanted"))
    desk.tell(commands.Fail(2, "not-allowed", "you may not"))
    desk.receive(b"")
    assert desk.is_over
    assert b"\nreceipt-id:wanted\n" in desk.said[-1]


def test_a_transaction_has_a_bound() -> None:
    desk = greeted()
    desk.receive(frame("BEGIN", transaction="t"))
    large = frame("SEND", b"x" * 4_000_000, destination="/queue/a", transaction="t")
    for _ in range(MAX_TRANSACTION_BYTES // 4_000_000 + 1):
        desk.receive(large)
    assert desk.is_over
    assert b"\ncode:transaction-too-large\n" in desk.said[-1]


def test_heart_beats_are_agreed_on() -> None:
    desk = greeted(heart_beat="20000,5000")
    assert (desk.conversation.patience_seconds, desk.conversation.pulse_seconds) == (60.0, 2.5)
    desk = greeted(heart_beat="0,0")
    assert (desk.conversation.patience_seconds, desk.conversation.pulse_seconds) == (0.0, 0.0)
