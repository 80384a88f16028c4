"""Very large messages on their way to clients of STOMP and MQTT: nothing overtakes them, whatever happens."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from fuzz.desk import OTHERS_LANE, Desk
from heliograph.frontends.conversation import Commanded
from heliograph.frontends.fetching import Delivery, Fetching
from heliograph.frontends.mqtt.conversation import MqttConversation
from heliograph.frontends.proxy import Proxy
from heliograph.frontends.stomp.conversation import StompConversation
from heliograph.model import block
from heliograph.model.block import BodyKind, Span, lone_body, parse_trusted
from heliograph.model.large import REFUSED_FOR_NOW, LargeReference, encode_reference
from heliograph.model.limits import MAX_MESSAGE_BYTES
from heliograph.sessions import commands
from heliograph.sessions.commands import AnyCommand, Deliver, DeliverParcel, EndBrowse, Fail

pytestmark = pytest.mark.req("M6", "X1")

CONSUMER, OTHER = 1, 2
FIRST, SECOND = b"first" * 10, b"second" * 10


def large(tag: int, content: bytes, size: int | None = None) -> Deliver:
    size = len(content) if size is None else size
    file = content[:1].ljust(16, b"f")
    raw = encode_reference(LargeReference(file, size, crc32c(content)))
    buffer = block.pack_lone(raw, lane=OTHERS_LANE, sequence=tag, kind=BodyKind.LARGE)
    return Deliver(CONSUMER, tag, Span(parse_trusted(buffer), 0, 1), "")


def small(tag: int, count: int = 1, consumer: int = CONSUMER) -> Deliver:
    buffer = block.pack([b"%d" % (tag + index) for index in range(count)], lane=OTHERS_LANE, first=tag)
    return Deliver(consumer, tag, Span(parse_trusted(buffer), 0, count), "")


class Client:
    """What one connection has heard, and what was asked for it."""

    def __init__(self) -> None:
        self.proxy = Proxy(on_stored=lambda _: None, on_refused=lambda *_: None)
        self.fetching = Fetching(self.proxy, lambda _: "topic:a", self._deliver)
        self.heard: list[bytes | int] = []  # contents, and the tags of what is not large
        self.asked: list[AnyCommand] = []

    def _deliver(self, effect: Deliver | EndBrowse) -> None:
        if isinstance(effect, EndBrowse):
            self.heard.append(b"end")
        elif effect.span.block.count == 1 and lone_body(effect.span.block) in (FIRST, SECOND, b""):
            self.heard.append(lone_body(effect.span.block))
        else:
            self.heard += range(effect.tag, effect.tag + effect.span.stop - effect.span.start)

    def give(self, *deliveries: Delivery) -> None:
        for delivery in deliveries:
            if not self.fetching.takes(delivery):
                assert isinstance(delivery, Deliver)
                self._deliver(delivery)
        self.look()

    def look(self) -> None:
        self.asked += [each.command for each in self.proxy.take() if isinstance(each, Commanded)]

    def of(self, kind: type) -> list[AnyCommand]:
        return [each for each in self.asked if isinstance(each, kind)]

    @property
    def begun(self) -> commands.BeginFetch:
        """The last download that was asked for."""
        begun = self.of(commands.BeginFetch)[-1]
        assert isinstance(begun, commands.BeginFetch)
        return begun

    @property
    def returned(self) -> list[tuple[list[tuple[int, int]], str]]:
        return [
            (each.ranges, each.error)
            for each in self.asked
            if isinstance(each, commands.Settle) and each.returned
        ]

    def hand(self, content: bytes, transfer: int | None = None) -> None:
        """All that is missing of it comes from the disk."""
        begun = self.begun
        number = begun.transfer if transfer is None else transfer
        self.fetching.handle(commands.HandChunk(number, begun.offset, content[begun.offset :]))
        self.look()

    def refuse(self, code: str) -> None:
        self.proxy.tell(Fail(self.begun.request, code, "not now"))
        self.look()


def test_what_is_behind_a_large_message_waits_for_it() -> None:
    client = Client()
    client.give(small(1), large(2, FIRST), small(3, count=2), large(5, SECOND), small(6))
    assert client.heard == [1]
    client.hand(FIRST)
    assert client.heard == [1, FIRST, 3, 4]
    client.give(small(7, consumer=OTHER))
    client.hand(SECOND)
    assert client.heard == [1, FIRST, 3, 4, SECOND, 6, 7]
    assert len(client.of(commands.EndFetch)) == 2
    client.give(small(8))
    assert client.heard[-1] == 8, "nothing waits any more"


def test_what_came_together_keeps_its_order() -> None:
    client = Client()
    spans = [each.span for each in (small(1), large(2, FIRST), small(3, count=2))]
    client.give(DeliverParcel(CONSUMER, 1, spans, ""))
    assert client.heard == [1]
    client.hand(FIRST)
    assert client.heard == [1, FIRST, 3, 4]


@pytest.mark.parametrize("code", REFUSED_FOR_NOW)
def test_a_refusal_that_passes_lets_nothing_overtake(code: str) -> None:
    """There is no room for one more that reads, say, as when a thousand clients hear the same message."""
    client = Client()
    client.give(large(1, FIRST), small(2))
    for _ in range(3):
        assert not client.fetching.is_refused
        client.refuse(code)
        assert client.fetching.is_refused
        assert (client.heard, client.returned) == ([], [])
        client.fetching.ask_again()
        client.look()
    client.hand(FIRST)
    assert client.heard == [FIRST, 2]


def test_a_download_that_breaks_off_for_now_goes_on_where_it_was() -> None:
    client = Client()
    client.give(large(1, FIRST), small(2))
    client.fetching.handle(commands.HandChunk(client.begun.transfer, 0, FIRST[:7]))
    client.fetching.handle(commands.EndTransfer(client.begun.transfer, "too-many-fetches", "not now"))
    client.fetching.ask_again()
    client.look()
    assert client.begun.offset == 7
    client.hand(FIRST)
    assert client.heard == [FIRST, 2]


def test_a_content_that_cannot_be_had_goes_back_and_holds_up_nobody() -> None:
    client = Client()
    client.give(large(1, FIRST), small(2), large(3, SECOND), small(4))
    client.refuse("large-gone")
    client.fetching.handle(commands.EndTransfer(client.begun.transfer, "disk-failed", "it is broken"))
    client.look()
    assert client.heard == [2, 4]
    assert client.returned == [([(1, 1)], "not now"), ([(3, 3)], "it is broken")]


def test_what_is_too_large_or_damaged_goes_back() -> None:
    client = Client()
    client.give(large(1, FIRST, size=MAX_MESSAGE_BYTES), small(2), large(3, SECOND), small(4))
    client.hand(b"x" * len(SECOND))
    assert client.heard == [2, 4]
    (first, why), (second, damaged) = client.returned
    assert (first, second) == ([(1, 1)], [(3, 3)])
    assert "too many for this protocol" in why
    assert damaged == "its content is damaged"


def test_many_empty_contents_come_at_once() -> None:
    client = Client()
    client.give(large(1, FIRST), *[large(tag, b"") for tag in range(2, 2002)], small(2002))
    client.hand(FIRST)
    assert client.heard == [FIRST, *[b""] * 2000, 2002]


def test_what_was_recalled_does_not_come_out() -> None:
    """It comes again under other tags, or to somebody else."""
    client = Client()
    client.give(large(1, FIRST), small(2, count=5), small(3, consumer=OTHER), small(7))
    client.fetching.recalled(CONSUMER, [(5, 5), (1, 1), (3, 3)])
    client.look()
    assert client.heard == [2, 4, 6, 3, 7]
    assert [each.transfer for each in client.of(commands.EndFetch)] == [client.begun.transfer]  # type: ignore[union-attr]


def test_what_was_read_for_a_recalled_message_is_not_taken_for_the_next() -> None:
    client = Client()
    client.give(large(1, FIRST), large(2, SECOND))
    recalled = client.begun.transfer
    client.fetching.recalled(CONSUMER, [(1, 1)])
    client.look()
    client.hand(FIRST, transfer=recalled)
    client.fetching.handle(commands.EndTransfer(recalled, "disk-failed", "it is broken"))
    client.hand(SECOND)
    assert (client.heard, client.returned) == ([SECOND], [])


def test_the_end_of_browsing_comes_behind_what_was_seen() -> None:
    client = Client()
    client.give(large(1, FIRST))
    assert client.fetching.takes(EndBrowse(CONSUMER))
    assert client.heard == []
    client.hand(FIRST)
    assert client.heard == [FIRST, b"end"]
    assert not client.fetching.takes(EndBrowse(CONSUMER))


STOMP = b"CONNECT\naccept-version:1.2\n\n\0"
MQTT = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c"


def subscribed(protocol: str) -> Desk:
    """A client whose number for what it takes from is ours too: 1."""
    desk = Desk(StompConversation() if protocol == "stomp" else MqttConversation(), delivers=0)
    desk.receive(STOMP if protocol == "stomp" else MQTT)
    subscribe = b"SUBSCRIBE\nid:s\ndestination:/topic/a\n\n\0"
    desk.receive(subscribe if protocol == "stomp" else b"\x82\x06\x00\x01\x00\x01a\x01")
    desk.said.clear()
    return desk


def hand_over(desk: Desk, content: bytes) -> None:
    begun = [each for each in desk.commands if isinstance(each, commands.BeginFetch)][-1]
    desk.tell(commands.HandChunk(begun.transfer, 0, content))
    desk.receive(b"")


@pytest.mark.parametrize("protocol", ["stomp", "mqtt"])
def test_a_client_hears_all_in_order_though_there_was_no_room(protocol: str) -> None:
    desk = subscribed(protocol)
    desk.tell(large(1, FIRST))
    desk.tell(small(2))
    desk.receive(b"")
    (begun,) = [each for each in desk.commands if isinstance(each, commands.BeginFetch)]
    desk.tell(Fail(begun.request, "too-many-fetches", "not now"))
    desk.receive(b"")
    assert desk.said == []
    desk.time_passes()
    hand_over(desk, FIRST)
    heard = b"".join(desk.said)
    assert 0 < heard.index(FIRST) < len(heard) - len(FIRST)
    assert heard.rstrip(b"\0").endswith(b"2")
    desk.time_passes()
    assert len([each for each in desk.commands if isinstance(each, commands.BeginFetch)]) == 2


@pytest.mark.parametrize("protocol", ["stomp", "mqtt"])
def test_a_client_does_not_hear_what_was_recalled(protocol: str) -> None:
    desk = subscribed(protocol)
    desk.tell(large(1, FIRST))
    desk.tell(small(2))
    desk.tell(commands.TellRecalled(1, [(1, 2)]))
    desk.receive(b"")
    hand_over(desk, FIRST)
    assert desk.said == []
    assert not any(isinstance(each, commands.Settle) for each in desk.commands)


def test_a_browser_of_stomp_sees_a_large_message_before_the_end() -> None:
    desk = Desk(StompConversation(), delivers=0)
    desk.receive(STOMP)
    desk.receive(b"SUBSCRIBE\nid:s\ndestination:/queue/a\nack:client\n\n\0")
    desk.said.clear()
    desk.tell(large(1, FIRST))
    desk.tell(EndBrowse(1))
    desk.receive(b"")
    hand_over(desk, FIRST)
    heard = b"".join(desk.said)
    assert 0 < heard.index(FIRST) < heard.index(b"browser:end")
