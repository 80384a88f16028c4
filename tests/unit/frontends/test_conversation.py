"""The server's side of a connection: what it takes in which state, and what it says otherwise."""

import pytest

from heliograph.frontends.conversation import AnyHappening, Broken, Commanded, Greeted, Left, Requested
from heliograph.frontends.native import conversation, frames
from heliograph.frontends.native.conversation import Conversation
from heliograph.frontends.native.frames import (
    CONTROL,
    FRAME_HEADER_BYTES,
    HEARTBEAT_FRAME,
    PREAMBLE,
    FrameReader,
    Goodbye,
    Hello,
    Welcome,
    control_frame,
    pack_header,
)
from heliograph.model import block
from heliograph.model.block import Span
from heliograph.model.errors import NotAuthenticated
from heliograph.model.limits import MAX_ACK_RANGES, MAX_FRAME_BYTES, MAX_GREETING_BYTES
from heliograph.sessions import commands
from tests.golden.specimens import BLOCKS, FROM_CLIENT, LANE

WELCOME = Welcome(version=1, server="test", user="guest", heartbeat_seconds=10.0)
GREETING = PREAMBLE + control_frame(Hello())


def opened() -> Conversation:
    peer = Conversation()
    assert peer.receive(GREETING) == [Greeted(Hello())]
    assert peer.admit(WELCOME) == control_frame(WELCOME)
    return peer


def code_of(happenings: list[AnyHappening]) -> str:
    """The code with which a conversation broke, which the farewell must say too."""
    broken = happenings[-1]
    assert isinstance(broken, Broken)
    ((kind, _flags, _number, payload),) = FrameReader().feed(broken.farewell)
    assert kind == CONTROL
    assert frames.decode_from_server(payload) == Goodbye(broken.error.code, broken.error.sentence)
    return broken.error.code


# ---- greeting


def test_a_peer_greets_is_admitted_and_speaks() -> None:
    peer = opened()
    assert peer.is_open
    assert peer.receive(control_frame(frames.OpenSession(1, 0))) == [Requested(frames.OpenSession(1, 0))]


@pytest.mark.req("X2")
@pytest.mark.parametrize(
    "noise", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\x00", b"HELIO\x02\r\n", b"\n"]
)
def test_whatever_does_not_begin_with_the_preamble_is_sent_away(noise: bytes) -> None:
    peer = Conversation()
    assert code_of(peer.receive(noise)) == "not-heliograph"
    assert peer.receive(GREETING) == []


@pytest.mark.req("X2")
def test_nothing_is_taken_before_the_greeting_but_a_greeting() -> None:
    for name, message in FROM_CLIENT.items():
        if not isinstance(message, Hello | Goodbye):
            assert code_of(Conversation().receive(PREAMBLE + control_frame(message))) == "not-greeted", name
    for raw in (HEARTBEAT_FRAME, frames.publish_frame(0, BLOCKS["lone"]), frames.credit_frame(0, 1, 1)):
        assert code_of(Conversation().receive(PREAMBLE + raw)) == "not-greeted"


def test_a_peer_waits_for_its_welcome() -> None:
    peer = Conversation()
    peer.receive(GREETING)
    assert not peer.is_open
    assert code_of(peer.receive(control_frame(frames.OpenSession(1, 0)))) == "not-greeted"


@pytest.mark.req("X2")
def test_a_peer_that_broke_the_rules_while_its_password_was_checked_stays_out() -> None:
    peer = Conversation()
    happenings = peer.receive(GREETING + HEARTBEAT_FRAME)
    assert happenings[0] == Greeted(Hello())
    assert code_of(happenings) == "not-greeted"
    assert peer.admit(WELCOME) == b""
    assert not peer.is_open
    assert peer.receive(control_frame(frames.OpenSession(1, 0))) == []


def test_a_peer_that_could_not_prove_who_it_is_is_told_so() -> None:
    peer = Conversation()
    peer.receive(GREETING)
    assert code_of([peer.break_off(NotAuthenticated("who are you?"))]) == "not-authenticated"
    assert peer.receive(GREETING) == []


def test_another_version_is_not_spoken() -> None:
    assert code_of(Conversation().receive(PREAMBLE + control_frame(Hello(version=2)))) == "version-unknown"


def test_one_greets_once() -> None:
    assert code_of(opened().receive(control_frame(Hello()))) == "greeted-twice"


@pytest.mark.req("X2")
def test_a_stranger_gets_room_for_a_greeting_and_nothing_more() -> None:
    peer = Conversation()
    assert peer.receive(PREAMBLE + pack_header(MAX_GREETING_BYTES, CONTROL, 0, 0) + bytes(100)) == []
    assert peer.buffered < 200
    over = pack_header(MAX_GREETING_BYTES + 1, CONTROL, 0, 0)
    assert code_of(Conversation().receive(PREAMBLE + over)) == "frame-too-long"


def test_an_admitted_peer_gets_room_for_the_longest_frame() -> None:
    assert opened().receive(pack_header(MAX_FRAME_BYTES, frames.PUBLISH, 0, 0)) == []
    over = pack_header(MAX_FRAME_BYTES + 1, frames.PUBLISH, 0, 0)
    assert code_of(opened().receive(over)) == "frame-too-long"


# ---- open


def test_goodbye_ends_it_and_what_follows_is_not_heard() -> None:
    peer = opened()
    assert peer.receive(control_frame(Goodbye()) + frames.credit_frame(0, 1, 1)) == [Left("closed")]
    assert peer.receive(frames.credit_frame(0, 1, 1)) == []
    assert peer.buffered <= len(PREAMBLE)


def test_a_heartbeat_says_nothing() -> None:
    assert opened().receive(HEARTBEAT_FRAME) == []


def test_commands_are_for_the_session_whose_number_they_bear() -> None:
    published = opened().receive(frames.publish_frame(7, BLOCKS["lone"], resent=True))
    assert published == [Commanded(7, commands.Publish(block.parse(BLOCKS["lone"]), True))]
    assert opened().receive(frames.credit_frame(8, 5, 100)) == [Commanded(8, commands.GrantCredit(5, 100))]
    settled = opened().receive(frames.settle_frame(9, 5, frames.DONE, [(1, 3), (7, 7)], frames.REPLENISH))
    assert settled == [Commanded(9, commands.Settle(5, False, [(1, 3), (7, 7)], True, False))]
    returned = frames.settle_frame(9, 5, frames.RETURNED, [], frames.CONFIRM_SETTLEMENT)
    assert opened().receive(returned) == [Commanded(9, commands.Settle(5, True, [], False, True))]
    lane = opened().receive(control_frame(frames.OpenLane(1, 6, 2, "queue:a")))
    assert lane == [Commanded(6, commands.OpenLane(1, 2, "queue:a"))]
    subscribed = opened().receive(control_frame(frames.Subscribe(1, 6, 2, "queue:a", 10)))
    assert subscribed == [Commanded(6, commands.Subscribe(1, 2, "queue:a", 10))]
    left = opened().receive(control_frame(frames.Unsubscribe(1, 6, 2)))
    assert left == [Commanded(6, commands.Unsubscribe(1, 2))]


@pytest.mark.req("X2")
@pytest.mark.parametrize(
    ("code", "raw"),
    [
        ("frame-unknown", pack_header(0, 0, 0, 0)),
        ("frame-unknown", pack_header(3, 99, 0, 0) + b"abc"),
        ("frame-unknown", pack_header(16, frames.CONFIRM, 0, 0) + bytes(16)),
        ("frame-unknown", pack_header(0, frames.DELIVER, 0, 0)),
        ("frame-malformed", pack_header(7, frames.CREDIT, 0, 0) + bytes(7)),
        ("frame-malformed", pack_header(9, frames.CREDIT, 0, 0) + bytes(9)),
        ("frame-malformed", pack_header(7, frames.SETTLE, 0, 0) + bytes(7)),
        ("frame-malformed", pack_header(9, frames.SETTLE, 0, 0) + bytes(9)),
        ("frame-malformed", frames.settle_frame(0, 1, 2, [(1, 1)])),
        ("frame-malformed", frames.settle_frame(0, 1, 0, [(1, 1)] * (MAX_ACK_RANGES + 1))),
        ("block-malformed", pack_header(0, frames.PUBLISH, 0, 0)),
        ("block-malformed", frames.publish_frame(0, BLOCKS["fragment"])),
        ("block-malformed", frames.publish_frame(0, BLOCKS["plain"][:-1] + b"!")),
        ("block-too-large", frames.publish_frame(0, bytes(MAX_FRAME_BYTES))),
        ("control-malformed", pack_header(1, CONTROL, 0, 0) + b"\xc1"),
        ("control-malformed", control_frame(WELCOME)),
        ("control-too-long", control_frame(frames.Ask(1, "x" * 70_000))),
    ],
    ids=lambda part: part if isinstance(part, str) else f"{len(part)}-bytes",
)
def test_a_broken_rule_ends_the_conversation_with_its_code(code: str, raw: bytes) -> None:
    peer = opened()
    before = peer.receive(frames.credit_frame(1, 2, 3))
    happenings = peer.receive(frames.credit_frame(1, 2, 3) + raw + frames.credit_frame(1, 2, 3))
    assert code_of(happenings) == code
    assert happenings[:-1] == before, "what came before holds, what comes after does not"
    assert peer.receive(frames.credit_frame(1, 2, 3)) == []
    assert peer.buffered <= len(PREAMBLE)


def test_the_most_ranges_of_a_settlement() -> None:
    ranges = [(tag, tag) for tag in range(1, MAX_ACK_RANGES + 1)]
    happening = opened().receive(frames.settle_frame(0, 1, 0, ranges))[0]
    assert isinstance(happening, Commanded)
    assert isinstance(happening.command, commands.Settle)
    assert happening.command.ranges == ranges


# ---- what is said to a client


def said(effect: commands.AnySessionEffect) -> frames.FromServer:
    parts: list[bytes | memoryview] = []
    conversation.encode(3, effect, parts)
    ((kind, _flags, _number, payload),) = FrameReader().feed(b"".join(parts))
    assert kind == CONTROL
    return frames.decode_from_server(payload)


def test_what_a_session_wants_said_is_said() -> None:
    assert said(commands.LaneReady(5, 17)) == frames.LaneOpened(5, 17)
    assert said(commands.Done(5)) == frames.Completed(5)
    assert said(commands.Fail(5, "c", "s")) == frames.Failed(5, "c", "s")
    assert said(commands.RefuseLane(2, 9, "c", "s")) == frames.Refused(3, 2, 9, "c", "s")
    assert said(commands.SettlementStored(8)) == frames.Settled(3, 8)
    assert said(commands.EndConsumer(8, "c", "s")) == frames.ConsumerClosed(3, 8, "c", "s")


def test_a_delivery_names_consumer_tag_earlier_deliveries_and_user() -> None:
    whole = block.parse(block.pack([b"a", b"b", b"c"], lane=LANE, first=5))
    for span, bodies in ((Span(whole, 0, 3, 0), [b"a", b"b", b"c"]), (Span(whole, 1, 2, 4), [b"b"])):
        parts: list[bytes | memoryview] = []
        conversation.encode(3, commands.Deliver(6, 100, span, "Zoë"), parts)
        raw = b"".join(parts)
        assert len(raw) == FRAME_HEADER_BYTES + int.from_bytes(raw[:4], "little")
        ((kind, _flags, number, payload),) = FrameReader().feed(raw)
        assert (kind, number) == (frames.DELIVER, 3)
        consumer, earlier, tag, user_bytes = frames.DELIVERY.unpack_from(payload)
        assert (consumer, earlier, tag) == (6, span.deliveries, 100)
        body = payload[frames.DELIVERY.size :]
        assert body[:user_bytes].decode() == "Zoë"
        contents = block.unpack(body[user_bytes:])
        assert (contents.bodies, contents.first) == (bodies, 5 + span.start)
