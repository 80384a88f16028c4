"""python-qpid-proton: send, receive, settle in every way, transact, subscribe durably, reconnect."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from proton import (
    UNDESCRIBED,
    Array,
    Data,
    Delivery,
    Described,
    Endpoint,
    Message,
    Terminus,
    Timeout,
    byte,
    float32,
    int32,
    symbol,
    timestamp,
    ulong,
)
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import (
    AtLeastOnce,
    AtMostOnce,
    Container,
    Copy,
    DurableSubscription,
    LinkOption,
    ReceiverOption,
    Selector,
)
from proton.utils import BlockingConnection, LinkDetached, SendException

from heliograph import connect_blocking
from tests.interop.stage import Stage, on_a_single_server

pytestmark = pytest.mark.req("X1")
SECONDS = 60.0


class Capabilities(ReceiverOption):  # type: ignore[misc]
    """What a receiver says of its node, as the mapping for JMS has it."""

    def __init__(self, *names: str, durable: bool = False) -> None:
        self._names = names
        self._durable = durable

    def apply(self, receiver: Any) -> None:
        capabilities = receiver.source.capabilities
        capabilities.put_array(False, Data.SYMBOL)
        capabilities.enter()
        for name in self._names:
            capabilities.put_symbol(symbol(name))
        capabilities.exit()
        if self._durable:
            receiver.source.durability = Terminus.DELIVERIES
            receiver.source.expiry_policy = Terminus.EXPIRE_NEVER


class NoLocal(ReceiverOption):  # type: ignore[misc]
    def apply(self, receiver: Any) -> None:
        receiver.source.filter.put_dict(
            {symbol("no-local"): Described(symbol("apache.org:no-local-filter:list"), [])}
        )


@contextmanager
def connected(stage: Stage, client_id: str = "", **options: Any) -> Iterator[Any]:
    container = Container()
    container.container_id = client_id or str(uuid.uuid4())
    connection = BlockingConnection(
        f"{stage.host}:{stage.port}",
        timeout=SECONDS,
        container=container,
        allowed_mechs="ANONYMOUS",
        **options,
    )
    try:
        yield connection
    finally:
        connection.close()


def nothing_comes(receiver: Any, seconds: float = 0.3) -> None:
    with pytest.raises(Timeout):
        receiver.receive(seconds)


def bodies(receiver: Any, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        found.append(receiver.receive(SECONDS).body)
        receiver.accept()
    return found


def test_messages_are_sent_received_and_accepted(stage: Stage) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender("proton-plain")
        for number in range(100):
            sender.send(Message(body=number, durable=True))
        receiver = connection.create_receiver("queue:proton-plain", credit=10)
        assert bodies(receiver, 100) == list(range(100))
        nothing_comes(receiver)


def test_what_is_not_settled_comes_again_marked(stage: Stage) -> None:
    with connected(stage) as connection:
        connection.create_sender("proton-again").send(Message(body="work"))
        first = connection.create_receiver("proton-again").receive(SECONDS)
        assert (first.first_acquirer, first.delivery_count) == (True, 0)
    with connected(stage) as connection:
        receiver = connection.create_receiver("proton-again")
        again = receiver.receive(SECONDS)
        assert (again.body, again.first_acquirer, again.delivery_count) == ("work", False, 1)
        receiver.accept()
        nothing_comes(receiver)


def test_what_is_accepted_in_the_breath_of_closing_is_done(stage: Stage) -> None:
    with connected(stage) as connection:
        connection.create_sender("proton-last").send(Message(body="last"))
        receiver = connection.create_receiver("proton-last")
        assert receiver.receive(SECONDS).body == "last"
        receiver.accept()  # which leaves together with the close
    with connected(stage) as connection:
        nothing_comes(connection.create_receiver("proton-last"))


def test_released_comes_back_as_if_never_handed_out(stage: Stage) -> None:
    with connected(stage) as connection:
        connection.create_sender("proton-released").send(Message(body="work"))
        receiver = connection.create_receiver("proton-released", credit=1)
        assert receiver.receive(SECONDS).delivery_count == 0
        receiver.release(delivered=False)
        assert receiver.receive(SECONDS).delivery_count == 0
        delivery = receiver.fetcher.unsettled.pop()
        delivery.local.failed = True
        delivery.update(Delivery.MODIFIED)
        delivery.settle()
        receiver.flow(1)
        assert receiver.receive(SECONDS).delivery_count == 1
        receiver.accept()


def test_rejected_is_among_the_dead_with_the_reason(stage: Stage) -> None:
    with connected(stage) as connection:
        connection.create_sender("proton-rejected").send(Message(body="poison", durable=True))
        receiver = connection.create_receiver("proton-rejected")
        receiver.receive(SECONDS)
        receiver.reject()
        nothing_comes(receiver)
        dead = connection.create_receiver("queue:_DMQ")
        while (message := dead.receive(SECONDS)).body != "poison":
            dead.accept()
        dead.accept()
        assert message.properties["JMS_helio_reason"] == "rejected"
        assert message.properties["JMS_helio_original_destination"] == "queue:proton-rejected"


class Once(MessagingHandler):  # type: ignore[misc]
    """Sends some messages and receives them, with whatever options, and leaves when all is said about them."""

    def __init__(self, stage: Stage, address: str, options: Any, *, settles: bool = True) -> None:
        super().__init__(auto_accept=settles, prefetch=20)
        self._url = f"{stage.host}:{stage.port}"
        self._address = address
        self._options = options
        self.left = 20
        self.settled: list[str] = []
        self.received: list[Any] = []

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._url, allowed_mechs="ANONYMOUS", reconnect=False)
        event.container.create_receiver(connection, self._address, options=self._options)
        event.container.create_sender(connection, self._address, options=self._options)

    def on_sendable(self, event: Any) -> None:
        while self.left and event.sender.credit:
            event.sender.send(Message(body=self.left))
            self.left -= 1

    def on_accepted(self, event: Any) -> None:
        self.settled.append(str(event.delivery.remote_state))
        self._leave_if_done(event)

    def on_message(self, event: Any) -> None:
        self.received.append(event.message.body)
        self._leave_if_done(event)

    def _leave_if_done(self, event: Any) -> None:
        awaited = 0 if isinstance(self._options, AtMostOnce) else 20
        if len(self.received) == 20 and len(self.settled) == awaited:
            self._connection = event.connection
            event.container.schedule(0, self)  # behind the word that the last was accepted

    def on_timer_task(self, event: Any) -> None:
        self._connection.close()


class Second(LinkOption):  # type: ignore[misc]
    """Exactly once: the receiver settles after the sender."""

    def apply(self, link: Any) -> None:
        link.snd_settle_mode = link.SND_UNSETTLED
        link.rcv_settle_mode = link.RCV_SECOND


@pytest.mark.parametrize("options", [AtMostOnce(), AtLeastOnce(), Second()], ids=["most", "least", "exactly"])
def test_each_way_of_settling(stage: Stage, options: Any) -> None:
    handler = Once(stage, f"proton-{type(options).__name__}", options)
    Container(handler).run()
    assert handler.received == list(range(20, 0, -1))
    if isinstance(options, AtLeastOnce | Second):
        assert len(handler.settled) == 20
    with connected(stage) as connection:
        nothing_comes(connection.create_receiver(f"proton-{type(options).__name__}"))


def test_a_link_that_drains_gets_all_there_is_and_gives_the_rest_of_its_credit_back(stage: Stage) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender("proton-drain")
        for number in range(3):
            sender.send(Message(body=number))
        receiver = connection.create_receiver("proton-drain", credit=0)
        receiver.drain = True
        receiver.link.drain(10)
        connection.wait(lambda: not receiver.link.credit and not receiver.link.draining(), msg="draining")
        assert receiver.fetcher.has_message == 3
        sender.send(Message(body="later"))
        other = connection.create_receiver("proton-drain", name="other", credit=1)
        assert other.receive(SECONDS).body == "later", "nobody hoards what it has no credit for"
        other.accept()


def test_credit_is_kept_to(stage: Stage) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender("proton-credit")
        for number in range(10):
            sender.send(Message(body=number))
        receiver = connection.create_receiver("proton-credit", credit=0)
        receiver.link.flow(4)
        connection.wait(lambda: receiver.fetcher.has_message == 4, msg="four messages")
        with pytest.raises(Timeout):
            connection.wait(lambda: receiver.fetcher.has_message > 4, timeout=0.3, msg="five messages")


def test_all_that_a_message_says_comes_out_as_it_went_in(stage: Stage) -> None:
    sent = Message(
        body={"int": int32(1), "long": 2, "ulong": ulong(3), "float": float32(1.5), "bytes": b"\x00\xff",
              "list": [1, "two", None, True], "array": Array(UNDESCRIBED, Data.INT, 1, 2), "uuid": uuid.UUID(int=5),
              "symbol": symbol("word"), "time": timestamp(1000), "described": Described(symbol("d"), 5)},
        id=uuid.UUID(int=7), correlation_id=ulong(9), subject="a type", reply_to="queue:answers", priority=7,
        durable=True, content_type=symbol("application/x-thing"), content_encoding=symbol("gzip"),
        group_id="group", group_sequence=3, reply_to_group_id="answers",
        properties={"text": "ä", "byte": byte(1), "int": int32(2), "long": 3, "double": 1.5, "float": float32(2.5),
                    "true": True, "none": None, "bytes": b"\x01"},
        annotations={symbol("x-opt-own"): "kept"},
    )  # fmt: skip
    with connected(stage) as connection:
        connection.create_sender("proton-all").send(sent)
        receiver = connection.create_receiver("proton-all")
        got = receiver.receive(SECONDS)
        receiver.accept()
    for name in ("id", "correlation_id", "subject", "reply_to", "priority", "durable", "content_type",
                 "content_encoding", "group_id", "group_sequence", "reply_to_group_id"):  # fmt: skip
        assert getattr(got, name) == getattr(sent, name), name
    assert got.properties == sent.properties
    assert {name: type(value) for name, value in got.properties.items() if name != "bytes"} == {
        name: type(value) for name, value in sent.properties.items() if name != "bytes"
    }
    assert got.annotations == sent.annotations
    assert got.body == sent.body
    assert {name: type(value) for name, value in got.body.items() if name != "bytes"} == {
        name: type(value) for name, value in sent.body.items() if name != "bytes"
    }
    assert abs(got.creation_time - time.time()) < SECONDS


def test_our_own_client_sees_what_a_proton_client_sends_and_the_other_way_round(stage: Stage) -> None:
    with connected(stage) as connection, connect_blocking(stage.url) as ours:
        sender = connection.create_sender("proton-ours")
        for body in ("text", b"bytes", {"a": [1, 2.5]}, ["x"], Message(body=b"data", inferred=True).body):
            sender.send(Message(body=body, correlation_id="c", properties={"n": 5}, group_id="g"))
        consumer = ours.session().consumer("queue:proton-ours")
        got = [message for _ in range(5) if (message := consumer.receive(SECONDS)) is not None]
        assert [message.body for message in got] == ["text", b"bytes", {"a": [1, 2.5]}, ["x"], b"data"]
        assert {
            (message.correlation_id, message.properties["n"], message.unit_of_order) for message in got
        } == {("c", 5, "g")}
        producer = ours.session().producer("queue:proton-theirs")
        receiver = connection.create_receiver("proton-theirs")
        for body in ("text", b"bytes", {"a": [1, 2.5]}, ["x"]):
            producer.send(body, properties={"n": 5}, correlation_id="c")
            message = receiver.receive(SECONDS)
            receiver.accept()
            found = bytes(message.body) if isinstance(message.body, memoryview) else message.body
            assert (found, message.properties["n"], message.correlation_id) == (body, 5, "c")


def test_expired_messages_do_not_come_and_delayed_ones_come_later(stage: Stage) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender("proton-times")
        sender.send(Message(body="gone", ttl=0.05))
        due = int((time.time() + 0.6) * 1000)
        sender.send(Message(body="later", annotations={symbol("x-opt-delivery-time"): due}))
        time.sleep(0.1)
        receiver = connection.create_receiver("proton-times")
        message = receiver.receive(SECONDS)
        receiver.accept()
        assert message.body == "later"
        assert time.time() * 1000 >= due - 1


def test_a_queue_is_browsed(stage: Stage) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender("proton-browsed")
        for number in range(5):
            sender.send(Message(body=number))
        browser = connection.create_receiver("proton-browsed", name="browser", credit=10, options=[Copy()])
        assert [browser.receive(SECONDS).body for _ in range(5)] == list(range(5))
        receiver = connection.create_receiver("proton-browsed", credit=10)
        assert bodies(receiver, 5) == list(range(5))


def test_selectors_and_no_local(stage: Stage) -> None:
    with connected(stage) as connection, connected(stage) as other:
        chosen = connection.create_receiver("topic:proton-chosen", credit=10, options=[Selector("n > 2")])
        foreign = connection.create_receiver("topic:proton-chosen", credit=10, name="n", options=[NoLocal()])
        own = connection.create_sender("topic:proton-chosen")
        for number in range(5):
            own.send(Message(body=number, properties={"n": number}))
        other.create_sender("topic:proton-chosen").send(Message(body="other", properties={"n": 9}))
        assert bodies(chosen, 3) == [3, 4, "other"]
        assert bodies(foreign, 1) == ["other"]
        with pytest.raises(LinkDetached, match="selector-invalid"):
            connection.create_receiver("topic:proton-chosen", name="bad", options=[Selector("n >")])


def test_a_durable_subscription_waits_for_its_client(stage: Stage) -> None:
    with connected(stage, "proton-durable") as connection:
        receiver = connection.create_receiver(
            "topic:proton-news", name="news", options=[DurableSubscription()]
        )
        connection.create_sender("topic:proton-news").send(Message(body=1, durable=True))
        assert bodies(receiver, 1) == [1]
        receiver.detach()
        connection.create_sender("topic:proton-news", name="again").send(Message(body=2, durable=True))
    with connected(stage, "proton-durable") as connection:
        receiver = connection.create_receiver(
            "topic:proton-news", name="news", options=[DurableSubscription()]
        )
        assert bodies(receiver, 1) == [2]
        receiver.close()
        connection.create_sender("topic:proton-news").send(Message(body=3, durable=True))
        receiver = connection.create_receiver(
            "topic:proton-news", name="news", options=[DurableSubscription()]
        )
        nothing_comes(receiver)


def test_shared_subscriptions_share(stage: Stage) -> None:
    with connected(stage, "proton-one") as one, connected(stage, "proton-two") as two:
        options = [Capabilities("topic", "shared", "global")]
        receivers = [
            connection.create_receiver("proton-shared", credit=100, name="together|global", options=options)
            for connection in (one, two)
        ]
        sender = one.create_sender("topic:proton-shared")
        for number in range(40):
            sender.send(Message(body=number))
        found: list[list[int]] = [[], []]
        deadline = time.monotonic() + SECONDS
        while sum(map(len, found)) < 40 and time.monotonic() < deadline:
            for receiver, mine in zip(receivers, found, strict=True):
                try:
                    mine += [receiver.receive(0.05).body]
                    receiver.accept()
                except Timeout:
                    pass
        assert sorted(found[0] + found[1]) == list(range(40))


def test_a_dynamic_node_is_for_answers_and_ends_with_its_link(stage: Stage) -> None:
    with connected(stage) as connection, connected(stage) as server:
        answers = connection.create_receiver(None, dynamic=True)
        address = answers.link.remote_source.address
        assert address
        connection.create_sender("proton-requests").send(
            Message(body="2+2", reply_to=address, correlation_id="1")
        )
        requests = server.create_receiver("proton-requests")
        request = requests.receive(SECONDS)
        requests.accept()
        server.create_sender(request.reply_to).send(Message(body="4", correlation_id=request.correlation_id))
        assert answers.receive(SECONDS).body == "4"
        answers.accept()
        answers.close()
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                server.create_sender(address, name=f"{time.monotonic()}").send(Message(body="late"))
            except (LinkDetached, SendException):
                break
        else:
            pytest.fail("the node outlived its link")


def test_a_link_without_an_address_sends_wherever_its_messages_say(stage: Stage) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender(None)
        sender.send(Message(address="queue:proton-anywhere", body=1))
        with pytest.raises(SendException):
            sender.send(Message(body="nowhere"))
        sender.send(Message(address="/queue/proton-anywhere", body=2))
        assert bodies(connection.create_receiver("proton-anywhere", credit=5), 2) == [1, 2]


def test_a_name_that_cannot_be_is_refused_with_its_link_and_the_connection_stays(stage: Stage) -> None:
    with connected(stage) as connection:
        with pytest.raises(LinkDetached, match="name-reserved"):
            connection.create_sender("queue:_mine")
        with pytest.raises(LinkDetached, match="name-reserved"):
            connection.create_receiver("queue:_mine")
        connection.create_sender("proton-fine").send(Message(body="fine"))


class Transacting(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """Takes what there is in transactions and sends it on; every second transaction is rolled back."""

    def __init__(self, stage: Stage, *, commits: Callable[[int], bool]) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._url = f"{stage.host}:{stage.port}"
        self._commits = commits
        self._round = 0
        self._transaction: Any = None
        self.outcomes: list[str] = []
        self.counts: list[int] = []

    def on_start(self, event: Any) -> None:
        self._container = event.container
        self._connection = event.container.connect(self._url, allowed_mechs="ANONYMOUS", reconnect=False)
        self._receiver = event.container.create_receiver(self._connection, "proton-in")
        self._sender = event.container.create_sender(self._connection, "proton-out")
        event.container.declare_transaction(self._connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self._transaction = event.transaction
        self._receiver.flow(1)

    def on_message(self, event: Any) -> None:
        self.counts.append(event.message.delivery_count)
        self._transaction.send(self._sender, Message(body=event.message.body, durable=True))
        self._transaction.accept(event.delivery)
        self._round += 1
        if self._commits(self._round):
            self._transaction.commit()
        else:
            self._transaction.abort()

    def on_transaction_committed(self, event: Any) -> None:
        self.outcomes.append("committed")
        self._again(event)

    def on_transaction_aborted(self, event: Any) -> None:
        self.outcomes.append("aborted")
        self._again(event)

    def _again(self, event: Any) -> None:
        if self._round < 4:
            event.container.declare_transaction(self._connection, handler=self)
        else:
            self._connection.close()


def test_transactions_take_effect_whole_or_not_at_all(stage: Stage) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender("proton-in")
        sender.send(Message(body="a", durable=True))
        sender.send(Message(body="b", durable=True))
    handler = Transacting(stage, commits=lambda number: number % 2 == 0)
    Container(handler).run()
    assert handler.outcomes == ["aborted", "committed", "aborted", "committed"]
    assert handler.counts == [0, 0, 0, 0], "this client releases what it had in a transaction that failed"
    with connected(stage) as connection:
        assert bodies(connection.create_receiver("proton-out", credit=10), 2) == ["a", "b"]
        nothing_comes(connection.create_receiver("proton-in"))


class Deciding(Transacting):
    """Takes three in one transaction, accepts one, gives one back and refuses one."""

    def on_transaction_declared(self, event: Any) -> None:
        self._transaction = event.transaction
        self._receiver.flow(3)

    def on_message(self, event: Any) -> None:
        word = (Delivery.ACCEPTED, Delivery.RELEASED, Delivery.REJECTED)[self._round]
        self._transaction.update(event.delivery, word)
        event.delivery.settle()
        self._round += 1
        if self._round == 3:
            self._transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        self.outcomes.append("committed")
        self._connection.close()


def test_what_is_given_back_in_a_transaction_is_not_gone_with_its_commit(stage: Stage) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender("proton-in")
        for body in ("taken", "given back", "refused"):
            sender.send(Message(body=body, durable=True))
    handler = Deciding(stage, commits=bool)
    Container(handler).run()
    assert handler.outcomes == ["committed"]
    with connected(stage) as connection:
        receiver = connection.create_receiver("proton-in", credit=10)
        assert bodies(receiver, 1) == ["given back"]
        nothing_comes(receiver)


def test_messages_of_a_group_are_a_unit_of_order(stage: Stage) -> None:
    with connected(stage) as connection, connected(stage) as other:
        sender = connection.create_sender("proton-units")
        first = connection.create_receiver("proton-units", credit=1)
        for number in range(4):
            sender.send(Message(body=number, group_id="g"))
        assert first.receive(SECONDS).body == 0
        second = other.create_receiver("proton-units", credit=5)
        nothing_comes(second)
        first.accept()
        assert first.receive(SECONDS).body == 1


def test_a_message_of_some_megabytes_goes_both_ways(stage: Stage) -> None:
    with connected(stage) as connection:
        body = bytes(range(256)) * 16 * 1024
        connection.create_sender("proton-large").send(Message(body=body, inferred=True))
        receiver = connection.create_receiver("proton-large")
        assert bytes(receiver.receive(SECONDS).body) == body
        receiver.accept()


class Reconnecting(MessagingHandler):  # type: ignore[misc]
    """Sends numbers over a server's restart and receives each."""

    def __init__(self, stage: Stage, count: int, halfway: Callable[[], None]) -> None:
        super().__init__(prefetch=10)
        self._url = f"{stage.host}:{stage.port}"
        self._count = count
        self._halfway = halfway
        self._unsettled: dict[Any, int] = {}
        self._next = 0
        self.received: set[int] = set()

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._url, allowed_mechs="ANONYMOUS")
        event.container.create_receiver(connection, "proton-restarted")
        self._sender = event.container.create_sender(connection, "proton-restarted")

    def on_sendable(self, event: Any) -> None:
        while self._next < self._count and event.sender.credit:
            delivery = event.sender.send(Message(body=self._next, durable=True))
            self._unsettled[delivery.tag] = self._next
            self._next += 1

    def on_accepted(self, event: Any) -> None:
        self._unsettled.pop(event.delivery.tag, None)

    def on_disconnected(self, event: Any) -> None:
        self._next = min(self._unsettled.values(), default=self._next)
        self._unsettled.clear()

    def on_message(self, event: Any) -> None:
        is_new = event.message.body not in self.received
        self.received.add(event.message.body)
        if is_new and len(self.received) == self._count // 2:
            self._halfway()
        if len(self.received) == self._count:
            event.connection.close()


@on_a_single_server
def test_a_client_comes_back_after_the_server_was_restarted(stage: Stage) -> None:
    restart = threading.Thread(target=stage.restart)
    handler = Reconnecting(stage, 200, restart.start)
    Container(handler).run()
    restart.join()
    assert handler.received == set(range(200))


def test_a_client_id_that_must_be_alone_is_refused_to_the_second(stage: Stage) -> None:
    options = {"desired_capabilities": symbol("sole-connection-for-container")}
    with (
        connected(stage, "proton-sole", **options),
        pytest.raises(Exception, match="client-id-in-use"),
        connected(stage, "proton-sole", **options),
    ):
        pass
    with connected(stage, "proton-sole", **options) as connection:
        assert connection.conn.state & Endpoint.REMOTE_ACTIVE


def test_outcomes_are_told(stage: Stage) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender("proton-outcome")
        assert sender.send(Message(body=1)).remote_state == Delivery.ACCEPTED
