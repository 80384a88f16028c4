"""Very large messages in AMQP conversations: a slow disk, a client that does not read, contents that cannot be read;
and alerts that end while they wait. Without a network or a disk."""

from __future__ import annotations

import random
from typing import Any

import pytest
from crc32c import crc32c
from proton import Delivery, Described, Message, symbol

from fuzz.desk import ALERT, FILE, OTHERS_LANE, Desk
from heliograph.frontends.amqp.content_reader import ContentReader
from heliograph.frontends.amqp.conversation import AmqpConversation
from heliograph.model import block
from heliograph.model.block import BodyKind, Span, parse_trusted
from heliograph.model.errors import ClientFault
from heliograph.model.large import LargeReference, decode_reference, encode_reference
from heliograph.model.limits import CHUNK_BYTES, FOREIGN_HELD_BYTES, MAX_MESSAGE_BYTES, TRANSFER_WINDOW_BYTES
from heliograph.sessions import commands
from heliograph.sessions.commands import AnyCommand, AnySessionEffect
from tests.unit.frontends.amqp_client import Client

pytestmark = pytest.mark.req("X1", "M6")
SIZE = MAX_MESSAGE_BYTES + 3 * TRANSFER_WINDOW_BYTES
BODY = random.Random(1).randbytes(SIZE)


class SlowDisk(Desk):
    """Writes when it is told to."""

    def _effects(self, command: AnyCommand) -> list[AnySessionEffect]:
        return (
            [] if isinstance(command, commands.SendChunk | commands.EndUpload) else super()._effects(command)
        )

    def of(self, kind: type) -> list[Any]:
        return [command for command in self.commands if type(command) is kind]

    def write(self, written: int) -> None:
        transfer = self.of(commands.BeginUpload)[0].transfer
        self.do(commands.TellAdvance(transfer, written, 0))

    def do(self, effect: AnySessionEffect) -> None:
        self.tell(effect)
        self._carry_out([])


def encoded(body: Any, *, inferred: bool = True) -> bytes:
    return bytes(Message(body=body, inferred=inferred, properties={"n": 1}).encode())


@pytest.mark.parametrize("seed", range(20))
def test_the_sections_of_a_message_are_told_apart_wherever_it_is_cut(seed: int) -> None:
    dice = random.Random(seed)
    head = encoded(b"")[: -len(b"\x00\x53\x75\xa0\x00")]
    parts = [dice.randbytes(dice.choice([0, 1, 200, 255, 256, 5000])) for _ in range(dice.randint(1, 5))]
    sections = [
        b"\x00\x53\x75\xa0" + bytes((len(part),)) + part
        if len(part) < 256 and dice.random() < 0.5
        else b"\x00\x53\x75\xb0" + len(part).to_bytes(4, "big") + part
        for part in parts
    ]
    footer = b"\x00\x53\x78\xc1\x01\x00" if dice.random() < 0.5 else b""
    whole = b"".join((head, *sections, footer))
    first = len(head) + dice.randint(5, 100)
    reader = ContentReader(whole[:first])
    content, position = reader.feed(b""), first
    while position < len(whole):
        step = dice.choice([1, 3, 64, 1000])
        content += reader.feed(whole[position : position + step])
        position += step
    rest, found = reader.finish()
    assert (reader.head, content + rest, found) == (head, b"".join(parts), footer)


@pytest.mark.parametrize(
    "data",
    [
        encoded([1, 2]),
        b"\x00\x53\x75\xb0\x00\x00\x00\x05abc",
        b"\x00\x53\x75\xb0\x00",
        b"\x00\x53\x77\xb1\x00\x00\x00\x01a\x00\x53\x77\x40",
        b"\x00\x53\x75\xa0\x01a\x00\x53\x77\xb1\x00\x00\x00\x01a",
        b"\x00\x53\x75\xa1\x01a",
        b"\x00\x53\x73\xc0\x01\x00",
        b"",
    ],
)
def test_what_is_no_content_is_refused(data: bytes) -> None:
    with pytest.raises(ClientFault):
        ContentReader(data).finish()


def test_a_client_is_not_read_from_while_it_is_ahead_of_the_disk() -> None:
    desk = SlowDisk(AmqpConversation(), delivers=0)
    client = Client(desk, step=CHUNK_BYTES)
    sender = client.sender("queue:a")
    delivery = sender.delivery("1")
    whole = encoded(BODY)
    sender.stream(whole)  # and there is more to come
    client.pump()
    sent = sum(len(chunk.data) for chunk in desk.of(commands.SendChunk))
    assert TRANSFER_WINDOW_BYTES <= sent <= TRANSFER_WINDOW_BYTES + CHUNK_BYTES
    assert desk.conversation.is_waiting
    while desk.conversation.is_waiting:
        desk.write(sum(len(chunk.data) for chunk in desk.of(commands.SendChunk)))
    chunks = desk.of(commands.SendChunk)
    assert b"".join(chunk.data for chunk in chunks) == BODY[: chunks[-1].offset + len(chunks[-1].data)]
    assert SIZE - chunks[-1].offset <= FOREIGN_HELD_BYTES + CHUNK_BYTES
    sender.advance()
    behind = sender.delivery("2")
    sender.stream(encoded(b"behind"))
    sender.advance()
    client.pump()
    desk.write(SIZE)
    assert not desk.of(commands.Publish), "what comes behind it waits until it is on disk"
    assert desk.conversation.is_waiting
    desk.do(commands.Done(desk.of(commands.EndUpload)[0].request))
    client.pump()
    first, second = (block.unpack(bytes(each.block.buffer)) for each in desk.of(commands.Publish))
    assert decode_reference(first.bodies[0]) == LargeReference(FILE, SIZE, crc32c(BODY))
    assert second.bodies == [b"behind"]
    assert (delivery.remote_state, behind.remote_state) == (Delivery.ACCEPTED, Delivery.ACCEPTED)


def test_a_full_disk_is_the_outcome_of_its_message_alone() -> None:
    desk = SlowDisk(AmqpConversation(), delivers=0)
    client = Client(desk)
    sender = client.sender("queue:a")
    delivery = sender.delivery("1")
    whole = encoded(BODY)
    sender.stream(whole[: SIZE // 2 + MAX_MESSAGE_BYTES // 2])
    client.pump()
    desk.do(commands.EndTransfer(desk.of(commands.BeginUpload)[0].transfer, "storage-full", "no room"))
    sender.stream(whole[SIZE // 2 + MAX_MESSAGE_BYTES // 2 :])
    sender.advance()
    client.pump()
    assert delivery.remote_state == Delivery.REJECTED
    assert delivery.remote.condition.name == "amqp:resource-limit-exceeded"
    assert client.send(sender, "small", "2").remote_state == Delivery.ACCEPTED


def test_a_message_that_its_sender_aborts_is_dropped() -> None:
    desk = SlowDisk(AmqpConversation(), delivers=0)
    client = Client(desk)
    sender = client.sender("queue:a")
    delivery = sender.delivery("1")
    sender.stream(encoded(BODY)[:-1000])
    client.pump()
    delivery.abort()
    client.pump()
    assert len(desk.of(commands.DropUpload)) == 1
    assert client.send(sender, "small", "2").remote_state == Delivery.ACCEPTED
    assert len(desk.of(commands.Publish)) == 1


# ---- out


def large(tag: int, consumer: int, content: bytes) -> commands.Deliver:
    raw = encode_reference(LargeReference(FILE, len(content), crc32c(content)))
    buffer = block.pack_lone(raw, lane=OTHERS_LANE, sequence=tag, kind=BodyKind.LARGE)
    return commands.Deliver(consumer, tag, Span(parse_trusted(buffer), 0, 1), "somebody")


def small(tag: int, consumer: int) -> commands.Deliver:
    buffer = block.pack([b"small"], lane=OTHERS_LANE, first=tag, timestamp=1)
    return commands.Deliver(consumer, tag, Span(parse_trusted(buffer), 0, 1), "somebody")


class Downloading:
    """A client to which a large message is on its way, and a small one behind it."""

    def __init__(self, window: int = 0) -> None:
        self.desk = SlowDisk(AmqpConversation(), delivers=0)
        self.client = Client(self.desk)
        if window:
            self.client.session.incoming_capacity = window
        self.receiver = self.client.receiver("queue:a")
        self.consumer = self.desk.of(commands.Subscribe)[0].consumer
        self.content = random.Random(2).randbytes(TRANSFER_WINDOW_BYTES * 2)
        self.desk.do(large(1, self.consumer, self.content))
        self.desk.do(small(2, self.consumer))
        self.desk.receive(b"")
        self.client.pump()
        self.fetch = self.desk.of(commands.BeginFetch)[0]
        self.handed = 0

    @property
    def allowed(self) -> int:
        more: list[int] = [each.allowed for each in self.desk.of(commands.AllowFetch)]
        return max(self.fetch.allowed, *more) if more else int(self.fetch.allowed)

    def hand(self, content: bytes | None = None) -> None:
        """What is allowed comes from the disk."""
        content = self.content if content is None else content
        while self.handed < min(self.allowed, len(content)):
            piece = content[self.handed : min(self.handed + CHUNK_BYTES, self.allowed)]
            self.desk.do(commands.HandChunk(self.fetch.transfer, self.handed, piece))
            self.handed += len(piece)

    def take(self) -> bytes:
        """What the client has got of the delivery at hand."""
        delivery = self.receiver.current
        data = self.receiver.recv(delivery.pending) or b"" if delivery is not None else b""
        self.client.pump()
        return data


def test_a_content_goes_out_as_it_is_read_and_what_comes_behind_it_waits() -> None:
    downloading = Downloading()
    found = b""
    for _ in range(20):
        downloading.hand()
        downloading.desk.receive(b"")  # and the network has it
        downloading.client.pump()
        found += downloading.take()
    assert downloading.handed == len(downloading.content)
    assert found.endswith(downloading.content)
    assert not downloading.receiver.current.partial
    downloading.receiver.advance()
    assert downloading.take().endswith(b"small")
    assert len(downloading.desk.of(commands.EndFetch)) == 1


def test_a_content_that_is_refused_for_now_is_asked_for_again_and_nothing_overtakes_it() -> None:
    downloading = Downloading()
    desk, first = downloading.desk, downloading.fetch
    desk.do(commands.Fail(first.request, "too-many-fetches", "not now"))
    desk.time_passes()
    downloading.fetch = desk.of(commands.BeginFetch)[-1]
    assert downloading.fetch.request != first.request
    downloading.hand(downloading.content[:CHUNK_BYTES])
    desk.do(commands.EndTransfer(first.transfer, "too-many-fetches", "not now"))
    assert not desk.of(commands.Settle)
    desk.time_passes()
    downloading.fetch = desk.of(commands.BeginFetch)[-1]
    assert downloading.fetch.offset == CHUNK_BYTES
    desk.time_passes()
    assert len(desk.of(commands.BeginFetch)) == 3, "nobody has refused it since"
    found = b""
    for _ in range(20):
        downloading.hand()
        desk.receive(b"")
        downloading.client.pump()
        found += downloading.take()
    assert found.endswith(downloading.content)
    downloading.receiver.advance()
    assert downloading.take().endswith(b"small")


def test_no_more_is_read_for_a_client_that_does_not_take_it() -> None:
    downloading = Downloading(window=128 * 1024)
    for _ in range(5):
        downloading.hand()
        downloading.desk.receive(b"")
    assert downloading.handed == TRANSFER_WINDOW_BYTES
    for _ in range(200):
        downloading.take()
        downloading.hand()
        downloading.desk.receive(b"")
        downloading.client.pump()
    assert downloading.handed == len(downloading.content), "as soon as it does, it goes on"


@pytest.mark.parametrize("how", ["damaged", "gone", "recalled"])
def test_a_content_that_cannot_be_read_to_the_end_is_aborted(how: str) -> None:
    downloading = Downloading()
    downloading.hand()
    desk = downloading.desk
    if how == "recalled":
        desk.do(commands.TellRecalled(downloading.consumer, [(1, 1)]))
    elif how == "gone":
        desk.do(commands.EndTransfer(downloading.fetch.transfer, "large-gone", "it is gone"))
    else:
        for _ in range(20):
            desk.receive(b"")
            downloading.hand(b"x" * len(downloading.content))
    downloading.client.pump()
    delivery = downloading.receiver.current
    assert delivery.aborted
    delivery.settle()
    assert downloading.take().endswith(b"small")
    returned = [(each.ranges, each.error) for each in desk.of(commands.Settle) if each.returned]
    why = {"damaged": "its content is damaged", "gone": "it is gone"}.get(how)
    assert returned == ([([(1, 1)], why)] if why else [])


def test_who_drains_gets_the_rest_of_a_large_message_first() -> None:
    downloading = Downloading()
    downloading.hand()
    downloading.receiver.drain(0)
    downloading.client.pump()
    for _ in range(20):
        downloading.desk.receive(b"")
        downloading.hand()
        downloading.client.pump()
        downloading.take()
    downloading.receiver.advance()
    assert downloading.take().endswith(b"small")
    downloading.receiver.advance()
    downloading.client.pump()
    assert downloading.receiver.credit == 0


# ---- alerts


@pytest.mark.parametrize("credit", [0, 5])
def test_an_alert_that_ends_is_dropped_if_it_was_not_sent_and_taken_if_it_was(credit: int) -> None:
    desk = SlowDisk(AmqpConversation(), delivers=0)
    client = Client(desk)
    receiver = client.session.receiver("receiver")
    receiver.source.address = "alerts:a"
    receiver.source.filter.put_dict(
        {"selector": _selector("topics = 'TAG:it''s' OR acknowledgements = 'USER:b'")}
    )
    receiver.open()
    client.pump()
    receiver.flow(credit)
    client.pump()
    attached = desk.of(commands.AttachAlerts)[0]
    assert (attached.topics, attached.acknowledgements) == ("TAG:it's", "USER:b")
    desk.do(commands.WithdrawAlert(attached.consumer, ALERT.id))
    client.pump()
    (said,) = [(each.taken, each.dropped) for each in desk.of(commands.TakeAlerts)]
    assert said == (([ALERT.id], []) if credit else ([], [ALERT.id]))
    receiver.flow(5)
    client.pump()
    assert (receiver.current is not None) is bool(credit)


def _selector(text: str) -> Any:
    return Described(symbol("apache.org:selector-filter:string"), text)
