"""What clustered consumers on Heliograph make of messages that are more than a body, and of a queue (H1, H4, M6)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.clustered import ClusteredConsumer, ClusteredMessage, Delivery, Table
from heliograph.clustered.hashing import VALUES, value_of_text
from heliograph.clustered.holding import Holding
from heliograph.clustered.on_heliograph import Heliograph
from heliograph.clustered.ranges import Policy
from heliograph.model import limits
from heliograph.model.errors import ClientFault
from tests.clustered.test_clustered_more import TERMS, HardOfHearing, members
from tests.servers import ServerProcess, embedded, play, until, url_of

LARGE = bytes(range(256)) * 4096 * 3


async def _content(delivery: Delivery) -> bytes:
    assert delivery.open is not None
    async with delivery.open() as stream:
        return bytes(await stream.read())


@pytest.mark.req("H1", "M6")
@pytest.mark.parametrize("source", ["topic:orders", "queue:orders"])
def test_a_large_message_is_read_by_its_owner(source: str, tmp_path: Path) -> None:
    read: list[bytes] = []

    async def handle(message: ClusteredMessage) -> None:
        assert message.body == b""
        read.append(await _content(message.delivery))

    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            members(url_of(server), {"ada": handle, "bob": handle}, source=source) as consumers,
            heliograph.connect(url_of(server)) as connection,
        ):
            await (await connection.producer(source)).send_stream([LARGE])
            await until(lambda: bool(read), "it is read", 30)
            await until(lambda: not any(each.held for each in consumers.values()), "it is done")
            assert [each.figures.incarnations for each in consumers.values()] == [1, 1]

    play(story())
    assert [each == LARGE for each in read] == [True]  # not compared in words: it is large


def member_of(
    url: str, name: str, adapter: type[Heliograph], handler: Any, policy: Policy | None = None
) -> ClusteredConsumer:
    """Of those who bill orders, each unit at one of them."""
    return ClusteredConsumer(
        lambda: adapter(url, "topic:orders"),
        cluster="billing",
        name=name,
        handler=handler,
        fields=["property:unit"],
        policy=policy,
        terms=TERMS,
    )


@pytest.mark.req("H1", "M6")
@pytest.mark.slow
def test_a_large_message_that_its_owner_never_got_is_read_by_it_all_the_same(tmp_path: Path) -> None:
    """Ada is sent copies of what she lost. They say where the content is."""
    read: dict[str, list[bytes]] = {"ada": [], "bob": []}

    async def story() -> None:
        async with embedded(tmp_path) as server:
            url = url_of(server)

            def consumer(name: str, adapter: type[Heliograph]) -> ClusteredConsumer:
                async def handle(message: ClusteredMessage) -> None:
                    read[name].append(await _content(message.delivery))

                return member_of(url, name, adapter, handle)

            async with (
                consumer("ada", HardOfHearing) as ada,
                consumer("bob", Heliograph) as bob,
                heliograph.connect(url) as connection,
            ):
                await until(lambda: bool(ada.ranges and bob.ranges), "both own something")
                producer = await connection.producer("topic:orders")
                for number in range(6):
                    await producer.send_stream([LARGE], properties={"unit": f"unit-{number}"})
                await until(lambda: len(read["ada"] + read["bob"]) == 6, "all are read", 40)

    play(story())
    assert read["ada"]
    assert all(each == LARGE for each in read["ada"] + read["bob"])


class SlowLine(Heliograph):
    """An adapter whose line takes several leases to send what is as large as may be."""

    async def say(self, word: bytes) -> None:
        await asyncio.sleep(len(word) / 3_000_000)
        await super().say(word)


@pytest.mark.req("H1", "H2")
@pytest.mark.slow
@pytest.mark.parametrize("line", [Heliograph, SlowLine])
def test_a_message_as_large_as_may_be_is_sent_to_an_owner_that_never_got_it(
    line: type[Heliograph], tmp_path: Path
) -> None:
    """No control word could have it whole. However long it takes, nobody's lease runs out."""
    done: dict[str, list[bytes]] = {"ada": [], "bob": []}
    body = LARGE[: limits.MAX_MESSAGE_BYTES - 100].ljust(limits.MAX_MESSAGE_BYTES - 100, b".")
    unit = next(name for name in map(str, range(100)) if value_of_text(name) < VALUES // 2)

    async def story() -> None:
        async with embedded(tmp_path) as server:
            url = url_of(server)

            def consumer(name: str, adapter: type[Heliograph]) -> ClusteredConsumer:
                async def handle(message: ClusteredMessage) -> None:
                    done[name].append(message.body)

                halves = Table({"ada": [(0, VALUES // 2)], "bob": [(VALUES // 2, VALUES)]})
                return member_of(url, name, adapter, handle, halves)

            async with (
                consumer("ada", HardOfHearing) as ada,
                consumer("bob", line) as bob,
                heliograph.connect(url) as connection,
            ):
                await until(lambda: ada.ranges.size == bob.ranges.size == VALUES // 2, "each owns a half")
                producer = await connection.producer("topic:orders")
                await producer.send_confirmed(body, properties={"unit": unit})
                await until(lambda: bool(done["ada"]), "it is processed", 40)
                assert [each.figures.incarnations for each in (ada, bob)] == [1, 1]

    play(story())
    assert [each == body for each in done["ada"]] == [True]


@pytest.mark.req("H1")
def test_a_message_of_a_queue_is_what_it_was_there(tmp_path: Path) -> None:
    """It waited for a while before anybody consumed the queue, and somebody had had it in hand."""
    seen: list[Delivery] = []

    async def handle(message: ClusteredMessage) -> None:
        seen.append(message.delivery)

    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:orders")
            began = time.time()
            identity = await producer.send_confirmed(
                b"one", time_to_live=60, properties={"city": "Graz"}, unit_of_order="customer-5", type="order"
            )
            sent = time.time()
            async with await connection.session(acknowledge="individual") as session:
                consumer = await session.consumer("queue:orders")
                in_hand = await consumer.receive()
                assert in_hand is not None
                await in_hand.return_()
            async with members(url_of(server), {"ada": handle}, source="queue:orders"):
                await until(lambda: bool(seen), "it is processed")
        (found,) = seen
        assert (found.id, found.destination, found.type) == (identity, "queue:orders", "order")
        assert (found.unit_of_order, dict(found.properties)) == ("customer-5", {"city": "Graz"})
        assert began <= found.timestamp <= sent
        assert began + 60 <= found.expiration <= sent + 60
        assert found.redelivered
        # The copy itself expires then, not a minute after it was moved.
        assert abs(found.handle.expiration - found.expiration) < 0.5

    play(story())


@pytest.mark.req("H1")
def test_a_message_of_a_queue_that_is_as_large_as_it_may_be_is_moved_without_what_it_was_there(
    tmp_path: Path,
) -> None:
    """One has no room in its head, the other none beside its body. Whoever comes behind them is what it was."""
    seen: dict[str, Delivery] = {}

    async def handle(message: ClusteredMessage) -> None:
        seen[str(message.delivery.type)] = message.delivery

    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:orders")
            size = limits.MAX_HEAD_BYTES - 30
            await producer.send_confirmed(b"one", properties={"city": "g" * size}, type="head")
            await producer.send_confirmed(b"g" * (limits.MAX_MESSAGE_BYTES - 20), type="body")
            small = await producer.send_confirmed(b"three", type="small")
            async with members(
                url_of(server), {"ada": handle, "bob": handle}, source="queue:orders"
            ) as consumers:
                await until(lambda: len(seen) == 3, "all are processed")
                assert [each.figures.incarnations for each in consumers.values()] == [1, 1]
        assert len(seen["head"].properties["city"]) == size
        assert len(seen["body"].body) == limits.MAX_MESSAGE_BYTES - 20
        assert (seen["small"].id, seen["small"].destination) == (small, "queue:orders")

    play(story())


@pytest.mark.req("H4")
def test_a_member_whose_subscription_is_gone_closes_its_connection_all_the_same(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server:
            adapter = Heliograph(url_of(server), "topic:orders")
            await adapter.connect("billing", ("ada", 1))
            await adapter.subscribe(is_fresh=False)
            assert adapter._copies is not None
            await adapter._copies.close()
            await adapter._session.unsubscribe("copies")
            with pytest.raises(ClientFault):
                await adapter.close(keeps_copies=False)
            with pytest.raises(ClientFault, match="closed"):
                await adapter._connection.session()
            never = Heliograph(url_of(server), "topic:orders")
            await never.close(keeps_copies=True)  # it was never connected

    play(story())


@pytest.mark.req("H3")
def test_an_on_result_that_fails_does_no_harm(tmp_path: Path) -> None:
    """Bob's application cannot use what ada found, and says so badly. He stays a member, and hears all the rest."""
    heard: list[bytes] = []

    def on_result(_identity: str, result: bytes) -> None:
        heard.append(result)
        raise RuntimeError("the application's own fault")

    async def handle(message: ClusteredMessage) -> bytes:
        return message.body

    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            members(
                url_of(server), {"ada": handle, "bob": handle}, shares_results=True, on_result=on_result
            ) as consumers,
            heliograph.connect(url_of(server)) as connection,
        ):
            producer = await connection.producer("topic:orders")
            for number in range(20):
                await producer.send(b"%d" % number)
            await producer.flush()
            await until(lambda: len(heard) == 20, "each has heard what the other did")
            await asyncio.sleep(0)
            assert [each.figures.incarnations for each in consumers.values()] == [1, 1]
            assert sum(each.figures.processed for each in consumers.values()) == 20

    play(story())


@pytest.mark.slow
@pytest.mark.req("H2", "H4")
def test_what_was_held_while_the_server_started_again_is_acknowledged(tmp_path: Path) -> None:
    """Ada holds a message that is another's. The server starts again within her lease and sends it once more: when
    it is done, nothing waits for her any more."""

    async def story() -> None:
        async with ServerProcess(tmp_path) as server:
            ada = Heliograph(server.url, "topic:orders", reconnect_seconds=30)
            await ada.connect("billing", ("ada", 1))
            await ada.subscribe(is_fresh=False)
            async with heliograph.connect(server.url) as connection:
                await (await connection.producer("topic:orders")).send_confirmed(b"one")
            holding = Holding()
            for life in range(2):
                (copy,) = await ada.receive()
                assert holding.receive(copy, 5, 0.0)
                if not life:
                    await server.restart()
            await ada.acknowledge(holding.done([copy.id]))
            await ada.caught_up()
            await ada.close(keeps_copies=False)

    play(story())
