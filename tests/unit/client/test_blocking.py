"""The blocking face with a scripted server at the other end, which lives in a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

import heliograph
from heliograph.client.blocking import BlockingConnection
from heliograph.client.blocking_sending import COLLECTED_MESSAGES
from heliograph.frontends.native import frames
from heliograph.model.errors import ClientFault, ConnectionLost, HeliographError, StorageFull
from heliograph.model.limits import PRODUCER_WINDOW_MESSAGES
from tests.unit.client.peer import DEADLINE_SECONDS, Peer
from tests.unit.client.test_receiving import deliver, settled
from tests.unit.client.test_reconnecting import bodies, remember

pytestmark = pytest.mark.req("J12")
T = TypeVar("T")


class Server:
    """A scripted peer on a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.peer = self.call(Peer)
        asyncio.run_coroutine_threadsafe(self.peer.listen(), self.loop).result(DEADLINE_SECONDS)

    def call(self, function: Callable[[], T]) -> T:
        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(DEADLINE_SECONDS)

    def until(self, condition: Callable[[], T]) -> T:
        return asyncio.run_coroutine_threadsafe(self.peer.until(condition), self.loop).result(
            DEADLINE_SECONDS
        )

    def stop(self) -> None:
        async def end() -> None:
            await self.peer.go_away()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self.loop).result(DEADLINE_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE_SECONDS)
        self.loop.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def connection(server: Server) -> Iterator[BlockingConnection]:
    with heliograph.blocking.connect(server.peer.url) as connection:
        yield connection


def test_messages_sent_one_by_one_arrive_in_order_and_in_few_blocks(
    server: Server, connection: BlockingConnection
) -> None:
    producer = connection.producer("queue:a")
    for n in range(5000):
        producer.send(b"%d" % n)
    producer.flush()
    assert producer.unconfirmed == 0
    assert bodies(server.peer.line) == [b"%d" % n for n in range(5000)]
    assert len(server.peer.line.published) < 500


def test_options_and_confirmation_keep_the_order(server: Server, connection: BlockingConnection) -> None:
    told: list[HeliographError | None] = []
    producer = connection.producer("queue:a")
    producer.send(b"1")
    producer.send("2", properties={"n": 2}, on_completion=told.append)
    assert producer.send_confirmed(b"3").endswith("-3")
    assert bodies(server.peer.line) == [b"1", b"2", b"3"]
    assert told == [None]


def test_what_cannot_travel_is_refused_to_the_one_who_sends_it(connection: BlockingConnection) -> None:
    producer = connection.producer("queue:a")
    with pytest.raises(ClientFault):
        producer.send(b"x", priority=11)


def test_a_full_window_makes_send_wait(server: Server, connection: BlockingConnection) -> None:
    server.peer.confirms = False
    producer = connection.producer("queue:a")
    done = threading.Event()
    total = PRODUCER_WINDOW_MESSAGES + 10 * COLLECTED_MESSAGES

    def send() -> None:
        for n in range(total):
            producer.send(b"%d" % n)
        done.set()

    sending = threading.Thread(target=send)
    sending.start()
    server.until(lambda: len(bodies(server.peer.line)) >= PRODUCER_WINDOW_MESSAGES)
    assert not done.wait(0.05)
    assert producer.unconfirmed <= PRODUCER_WINDOW_MESSAGES + 3 * COLLECTED_MESSAGES

    def confirm() -> None:
        server.peer.confirms = True
        server.peer.line.confirm(1, len(bodies(server.peer.line)))

    server.call(confirm)
    sending.join(DEADLINE_SECONDS)
    producer.flush()
    assert bodies(server.peer.line) == [b"%d" % n for n in range(total)]


def test_a_refusal_is_raised_once(server: Server) -> None:
    heard: list[HeliographError] = []
    with heliograph.connect_blocking(server.peer.url, on_error=heard.append) as connection:
        server.peer.confirms = False
        producer = connection.producer("queue:a")
        producer.send(b"x")
        server.until(lambda: bodies(server.peer.line))
        server.call(lambda: server.peer.line.send(frames.Refused(1, 1, 1, "storage-full", "no")))
        with pytest.raises(StorageFull):
            producer.flush()
        server.peer.confirms = True
        assert producer.send_confirmed(b"y").endswith("/2-1")
        assert [error.code for error in heard] == ["storage-full"]


def test_closing_hands_over_what_was_collected(server: Server) -> None:
    with heliograph.connect_blocking(server.peer.url) as connection:
        producer = connection.session().producer("queue:a")
        for n in range(300):
            producer.send(b"%d" % n)
    assert len(bodies(server.peer.line)) == 300
    assert not connection.is_alive()
    with pytest.raises(ClientFault, match="closed"):
        producer.flush()


@pytest.mark.req("J4")
def test_a_loop_is_acknowledged_as_it_goes_and_no_further(
    server: Server, connection: BlockingConnection
) -> None:
    consumer = connection.consumer("queue:a")
    server.call(lambda: deliver(server.peer, 1, 10))
    for message in consumer:
        number = int(message.text)
        server.until(lambda number=number: settled(server.peer) == list(range(1, number)))  # type: ignore[misc]
        if number == 4:
            break
    received = consumer.receive(timeout=30)
    assert received is not None
    assert received.body == b"5"
    assert [message.body for message in consumer.receive_batch(2)] == [b"6", b"7"]
    consumer.close()
    assert settled(server.peer) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.req("J4")
def test_messages_are_acknowledged_without_await(server: Server, connection: BlockingConnection) -> None:
    session = connection.session(acknowledge="individual")
    consumer = session.consumer("queue:a")
    server.call(lambda: deliver(server.peer, 1, 3))
    first, second, third = consumer.receive_batch(3, timeout=30)
    second.acknowledge(confirm=True)
    first.acknowledge()
    server.until(lambda: settled(server.peer) == [2, 1])


def test_receive_waits_no_longer_than_it_is_told(connection: BlockingConnection) -> None:
    assert connection.consumer("queue:a").receive(timeout=0.01) is None


def test_stop_and_start(server: Server, connection: BlockingConnection) -> None:
    consumer = connection.consumer("queue:a")
    server.call(lambda: deliver(server.peer, 1, 2))
    assert consumer.receive(timeout=30) is not None
    connection.stop()
    assert consumer.receive(timeout=0.02) is None
    connection.start()
    assert consumer.receive(timeout=30) is not None


@pytest.mark.req("M8")
def test_a_lost_connection_is_made_again(server: Server, connection: BlockingConnection) -> None:
    server.call(lambda: remember(server.peer, (1, "queue:a", 1)))
    producer = connection.producer("queue:a")
    producer.send_confirmed(b"1")
    server.call(server.peer.line.cut)
    assert producer.send_confirmed(b"2").endswith("-2")


def test_nobody_there_is_said_at_once(server: Server) -> None:
    asyncio.run_coroutine_threadsafe(server.peer.go_away(), server.loop).result(DEADLINE_SECONDS)
    others = set(threading.enumerate())
    with pytest.raises(ConnectionLost):
        heliograph.connect_blocking(server.peer.url)
    assert set(threading.enumerate()) <= others, "threads of other tests may end meanwhile"


def test_a_callback_that_would_wait_for_itself_is_told(server: Server) -> None:
    outcomes: list[object] = []
    with heliograph.connect_blocking(server.peer.url) as connection:
        producer = connection.producer("queue:a")

        def send_another(_: HeliographError | None) -> None:
            try:
                producer.flush()
            except ClientFault as fault:
                outcomes.append(fault.code)

        producer.send(b"x", on_completion=send_another)
        producer.flush()
    assert outcomes == ["called-from-callback"]


@pytest.mark.parametrize("confirm", [False, True])
@pytest.mark.parametrize("what", ["session", "connection"])
@pytest.mark.parametrize("mode", ["auto", "client", "individual", "dups-ok", "transacted"])
def test_acknowledging_after_the_close_is_an_error(
    server: Server, mode: str, what: str, confirm: bool
) -> None:
    with heliograph.connect_blocking(server.peer.url) as connection:
        session = connection.session(acknowledge=mode)  # type: ignore[arg-type]
        consumer = session.consumer("queue:a")
        server.call(lambda: deliver(server.peer, 1, 1))
        message = consumer.receive(DEADLINE_SECONDS)
        assert message is not None
        (session if what == "session" else connection).close()
        with pytest.raises(ClientFault) as caught:
            message.acknowledge(confirm=confirm)
        assert caught.value.code == "closed"
