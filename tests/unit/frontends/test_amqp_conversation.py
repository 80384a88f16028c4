"""AMQP conversations: a client of Proton's on the other side, without a network, and peers that know no manners."""

from __future__ import annotations

import random
from typing import Any

import pytest
from proton import Delivery, Described, Endpoint, Terminus, symbol, ulong

from fuzz.desk import Desk
from heliograph.bus.commands import BY_POLICY, DEAD, UNSEEN
from heliograph.frontends.amqp import sasl, values
from heliograph.frontends.amqp.conversation import AmqpConversation
from heliograph.frontends.conversation import Broken, Greeted, Wondered
from heliograph.model.limits import MAX_AMQP_LINKS, MAX_GREETING_BYTES
from heliograph.sessions import commands
from heliograph.sessions.commands import AnyCommand, AnySessionEffect
from tests.unit.frontends.amqp_client import Client

pytestmark = pytest.mark.req("X1")
_TRANSACTIONAL = 0x34


class Deaf(Desk):
    """Confirms nothing that is published."""

    def _effects(self, command: AnyCommand) -> list[AnySessionEffect]:
        return [] if isinstance(command, commands.Publish) else super()._effects(command)


class Refusing(Desk):
    """Has no destination."""

    def _effects(self, command: AnyCommand) -> list[AnySessionEffect]:
        if isinstance(command, commands.OpenLane | commands.Subscribe):
            return [commands.Fail(command.request, "name-reserved", "no")]
        return super()._effects(command)


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_a_message_is_accepted_when_it_is_stored(step: int) -> None:
    client = Client(step=step)
    delivery = client.send(client.sender("a"), "hello")
    assert (delivery.remote_state, delivery.settled) == (Delivery.ACCEPTED, True)
    deaf = Client(Deaf(AmqpConversation()))
    delivery = deaf.send(deaf.sender("a"), "hello")
    assert (delivery.remote_state, delivery.settled) == (0, False)


def test_a_link_is_refused_with_our_code_and_the_connection_stays() -> None:
    client = Client(Refusing(AmqpConversation()))
    for link in (client.sender("_a"), client.receiver("_a")):
        assert link.state & Endpoint.REMOTE_CLOSED
        assert link.remote_condition.description == "no [name-reserved]"
    assert client.connection.state & Endpoint.REMOTE_ACTIVE


def settled(desk: Desk) -> list[tuple[bool, list[tuple[int, int]], int]]:
    return [
        (command.returned, command.ranges, command.fate)
        for command in desk.commands
        if isinstance(command, commands.Settle) and command.ranges
    ]


def test_what_a_client_says_of_messages_is_what_becomes_of_them() -> None:
    client = Client(Desk(AmqpConversation(), delivers=5))
    receiver = client.receiver("a")
    words: list[Any] = [
        Delivery.ACCEPTED,
        Delivery.REJECTED,
        Delivery.RELEASED,
        Delivery.MODIFIED,
        Delivery.MODIFIED,
    ]
    for number, word in enumerate(words):
        delivery = receiver.current
        delivery.local.failed = number == 3
        delivery.local.undeliverable = number == 4
        delivery.update(word)
        receiver.advance()
        delivery.settle()
    client.pump()
    assert sorted(settled(client.desk)) == [
        (False, [(1, 1)], BY_POLICY),
        (True, [(2, 2), (5, 5)], DEAD),
        (True, [(3, 3)], UNSEEN),
        (True, [(4, 4)], BY_POLICY),
    ]


def told(client: Client, coordinator: Any, word: str, value: list[Any]) -> Any:
    """The coordinator's answer."""
    delivery = client.send(coordinator, Described(symbol(f"amqp:{word}:list"), value), tag=word)
    return delivery.remote


def declared(client: Client) -> tuple[Any, Any]:
    """A coordinator, and a transaction of it."""
    coordinator = client.session.sender("coordinator")
    coordinator.target.type = Terminus.COORDINATOR
    coordinator.open()
    client.pump()
    (transaction,) = told(client, coordinator, "declare", [None]).data
    return coordinator, transaction


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_what_a_client_says_in_a_transaction_is_what_becomes_of_them_when_it_is_committed(
    is_settled: bool, fails: bool
) -> None:
    client = Client(Desk(AmqpConversation(), delivers=6))
    coordinator, transaction = declared(client)
    receiver = client.receiver("a")
    why = Described(ulong(0x1D), [symbol("it:broke"), "badly"])
    words: list[Any] = [
        Described(ulong(Delivery.ACCEPTED), []),
        Described(ulong(Delivery.REJECTED), [why]),
        Described(symbol("amqp:released:list"), []),
        Described(ulong(Delivery.MODIFIED), [True]),
        Described(ulong(Delivery.MODIFIED), [False, True]),
        None,
    ]
    deliveries = []
    for word in words:
        delivery = receiver.current
        delivery.local.data = [transaction] if word is None else [transaction, word]
        delivery.update(_TRANSACTIONAL)
        receiver.advance()
        if is_settled:
            delivery.settle()
        deliveries.append(delivery)
    client.pump()
    assert settled(client.desk) == []
    told(client, coordinator, "discharge", [transaction, fails])
    commits = [each.consumed for each in client.desk.commands if isinstance(each, commands.Commit)]
    if fails:
        assert commits == []
        back = range(1, 7) if is_settled else ()
        assert settled(client.desk) == [(True, [(tag, tag)], BY_POLICY) for tag in back]
        return
    assert commits == [[(1, [(1, 1), (6, 6)])]]
    assert settled(client.desk) == [
        (True, [(2, 2)], DEAD),
        (True, [(3, 3)], UNSEEN),
        (True, [(4, 4)], BY_POLICY),
        (True, [(5, 5)], DEAD),
    ]
    errors = [each.error for each in client.desk.commands if isinstance(each, commands.Settle)]
    assert "it:broke: badly" in errors
    assert is_settled or all(delivery.settled for delivery in deliveries)


def test_a_transaction_of_which_nothing_was_accepted_commits_nothing() -> None:
    client = Client(Desk(AmqpConversation(), delivers=1))
    coordinator, transaction = declared(client)
    delivery = client.receiver("a").current
    delivery.local.data = [transaction, Described(ulong(Delivery.RELEASED), [])]
    delivery.update(_TRANSACTIONAL)
    client.pump()
    told(client, coordinator, "discharge", [transaction, False])
    assert not any(isinstance(each, commands.Commit) for each in client.desk.commands)
    assert settled(client.desk) == [(True, [(1, 1)], UNSEEN)]
    assert delivery.settled


def test_more_comes_than_a_client_allows_and_it_waits() -> None:
    client = Client(Desk(AmqpConversation(), delivers=5))
    receiver = client.receiver("a", credit=2)
    assert (receiver.queued, receiver.credit) == (2, 2)
    receiver.flow(10)
    client.pump()
    assert receiver.queued == 5


def test_sasl_is_spoken_before_proton_is_there() -> None:
    conversation = AmqpConversation()
    assert conversation.receive(sasl.SASL_HEADER) == [Wondered()]
    assert b"PLAIN" in conversation.offer(["PLAIN"])
    init = values.fields(0x41, [values.variable("k", "PLAIN"), values.variable("v", b"\0ann\0secret")])
    frame = (8 + len(init)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + init
    happenings = [each for byte in frame for each in conversation.receive(bytes((byte,)))]
    assert [
        (each.hello.mechanism, each.hello.initial) for each in happenings if isinstance(each, Greeted)
    ] == [("plain", b"\0ann\0secret")]


@pytest.mark.parametrize(
    "data",
    [
        b"AMQP\x00\x00\x09\x01",
        sasl.SASL_HEADER + b"\x00\x00\x10\x01\x02\x01\x00\x00",
        sasl.SASL_HEADER + b"\x00\x00\x00\x09\x02\x01\x00\x00\x40",
        sasl.SASL_HEADER + b"\x00\x00\x00\x08\x02\x00\x00\x00",
        sasl.SASL_HEADER + b"\x00" * (2 * MAX_GREETING_BYTES),
    ],
)
def test_a_stranger_that_says_something_else_is_sent_away(data: bytes) -> None:
    assert isinstance(AmqpConversation().receive(data)[-1], Broken)


def test_a_client_has_so_many_links_and_no_more() -> None:
    client = Client()
    for number in range(MAX_AMQP_LINKS + 1):
        link = client.session.sender(f"{number}")
        link.target.address = "a"
        link.open()
    client.pump()
    assert client.desk.is_over
    assert "too-many-links" in client.connection.remote_condition.description


@pytest.mark.req("X2")
def test_messages_that_never_end_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.frontends.amqp.conversation.AMQP_UNFINISHED_BYTES", 1 << 18)
    client = Client()
    senders = [client.sender("a", f"{number}") for number in range(6)]
    for sender in senders:
        sender.delivery("1")
    piece = b"\x00\x53\x75\xb0\x7f\xff\xff\xff" + bytes(1 << 14)
    for _ in range(4):
        for sender in senders:
            if sender.state & Endpoint.REMOTE_ACTIVE:
                sender.stream(piece)
                client.pump()
    refused = [sender for sender in senders if sender.state & Endpoint.REMOTE_CLOSED]
    assert refused
    assert "message-too-large" in refused[0].remote_condition.description
    refused[0].stream(bytes(1 << 16))
    client.pump()
    assert client.connection.state & Endpoint.REMOTE_ACTIVE


def recorded() -> bytes:
    """All that a client says in a conversation with everything in it."""
    client = Client(Desk(AmqpConversation(), delivers=5))
    receiver = client.receiver("topic:a")
    client.send(client.sender("b"), {"a": [1, b"x", None]})
    client.send(client.sender(None, "anywhere"), "hello")
    for word in (Delivery.ACCEPTED, Delivery.RELEASED):
        receiver.current.update(word)
        receiver.current.settle()
    receiver.drain(5)
    client.pump()
    receiver.detach()
    client.pump()
    other = client.receiver("queue:c", "other")
    other.close()
    client.session.close()
    client.connection.close()
    client.pump()
    assert client.desk.is_over
    return client.said


@pytest.mark.req("X2")
def test_peers_that_break_off_or_talk_nonsense_leave_nothing_behind() -> None:
    """Proton's objects are freed while links, deliveries and events are there in every combination."""
    said = recorded()
    dice = random.Random(1)
    for number in range(200):
        desk = Desk(AmqpConversation(), delivers=5)
        end = dice.randrange(len(said))
        damaged = bytearray(said[:end])
        for _ in range(number % 4):
            if damaged:
                damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        position = 0
        while position < len(damaged):
            step = dice.choice((1, 10, 100, 1000))
            desk.receive(bytes(damaged[position : position + step]))
            position += step
        desk.conversation.lost()
        desk.tell(commands.Confirm(1, 1))
        desk.tell(commands.EndConsumer(1, "destination-deleted", "gone"))
        desk.conversation.lost()
