"""What a clustered consumer can besides: results for all, transactions, units of order, a queue as one (H1, H3)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.clustered import (
    Acknowledge,
    ClusteredConsumer,
    ClusteredMessage,
    Delivery,
    Table,
    Terms,
    Weighted,
)
from heliograph.clustered.hashing import VALUES, value_of_text
from heliograph.clustered.on_heliograph import Heliograph
from heliograph.model import limits
from heliograph.model.errors import ClientFault, ConnectionLost, HeliographError, NotAllowed
from tests.clustered.middleware import ALL, each_of, needs
from tests.clustered.play import Cluster, judge
from tests.servers import embedded, play, until, url_of

TERMS = Terms(lease_seconds=1.2, skew_seconds=0.05)
Handler = Callable[[ClusteredMessage], Awaitable[bytes | None]]


@asynccontextmanager
async def members(
    url: str, handlers: Mapping[str, Handler], **options: Any
) -> AsyncIterator[dict[str, ClusteredConsumer]]:
    """Members in this loop, whole: each owns something."""
    transacted = options.pop("transacted", False)
    source = options.pop("source", "topic:orders")
    weights = options.pop("weights", {})
    async with AsyncExitStack() as stack:
        consumers = {
            name: await stack.enter_async_context(
                ClusteredConsumer(
                    lambda: Heliograph(url, source, transacted=transacted),
                    cluster="billing",
                    name=name,
                    handler=handler,
                    terms=TERMS,
                    weight=weights.get(name, 1),
                    **options,
                )
            )
            for name, handler in handlers.items()
        }
        await until(lambda: all(each.ranges for each in consumers.values()), "everybody owns something")
        await until(
            lambda: sum(each.ranges.size for each in consumers.values()) == VALUES, "everything is owned", 30
        )
        yield consumers


@pytest.mark.req("H3")
def test_results_are_shared_with_the_other_members(tmp_path: Path) -> None:
    heard: dict[str, dict[str, bytes]] = {"ada": {}, "bob": {}}
    done: dict[str, list[str]] = {"ada": [], "bob": []}

    def handler_of(name: str) -> Handler:
        async def handle(message: ClusteredMessage) -> bytes:
            done[name].append(message.id)
            return name.encode() + b" did " + message.body

        return handle

    async def story() -> None:
        async with embedded(tmp_path) as server, AsyncExitStack() as stack:
            for name in ("ada", "bob"):
                await stack.enter_async_context(
                    ClusteredConsumer(
                        lambda: Heliograph(url_of(server), "topic:orders"),
                        cluster="billing",
                        name=name,
                        handler=handler_of(name),
                        shares_results=True,
                        on_result=heard[name].__setitem__,
                        terms=TERMS,
                    )
                )
            async with heliograph.connect(url_of(server)) as connection:
                producer = await connection.producer("topic:orders")
                while not (done["ada"] and done["bob"]):
                    await producer.send_confirmed(b"something")
                    await asyncio.sleep(0.02)
            await until(lambda: heard["ada"].keys() == set(done["bob"]), "ada has heard what bob did")
            await until(lambda: heard["bob"].keys() == set(done["ada"]), "bob has heard what ada did")
            assert set(heard["bob"].values()) == {b"ada did something"}

    play(story())


@pytest.mark.slow
@pytest.mark.req("H3")
@pytest.mark.parametrize("transacted", [False, True])
def test_a_result_that_cannot_be_shared_ends_its_member_alone_with_a_sentence(
    transacted: bool, tmp_path: Path
) -> None:
    """Bob's handler returns a text. Ada would not understand the word, and begin again as if she had missed it."""
    done: list[bytes] = []

    async def handle(message: ClusteredMessage) -> bytes:
        done.append(message.body)
        return b"done"

    async def handle_badly(_message: ClusteredMessage) -> bytes:
        return "done"  # type: ignore[return-value]

    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("topic:orders")
            options: dict[str, Any] = {
                "cluster": "billing",
                "fields": ["property:unit"],
                "policy": Table({"ada": [(0, VALUES // 2)], "bob": [(VALUES // 2, VALUES)]}),
                "shares_results": True,
                "terms": TERMS,
            }

            def adapter() -> Heliograph:
                return Heliograph(url_of(server), "topic:orders", transacted=transacted)

            async def bob_works(ada: ClusteredConsumer) -> None:
                async with ClusteredConsumer(adapter, name="bob", handler=handle_badly, **options) as bob:
                    await until(lambda: ada.ranges and bob.ranges, "each owns a half")
                    unit = next(n for n in map(str, range(100)) if value_of_text(n) >= VALUES // 2)
                    await producer.send_confirmed(b"something", properties={"unit": unit})
                    await bob.wait()

            async with ClusteredConsumer(adapter, name="ada", handler=handle, **options) as ada:
                with pytest.raises(ClientFault, match="shared is bytes or None, not str") as error:
                    await bob_works(ada)
                assert error.value.code == "result-invalid"
                await until(lambda: done == [b"something"], "ada has taken over")
                assert ada.figures.incarnations == 1

    play(story())


@pytest.mark.req("H1", "H2")
def test_a_newcomer_that_was_told_otherwise_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    done: list[bytes] = []

    async def handle(message: ClusteredMessage) -> None:
        done.append(message.body)

    async def story() -> None:
        async with embedded(tmp_path) as server, members(url_of(server), {"ada": handle}) as consumers:
            late = ClusteredConsumer(
                lambda: Heliograph(url_of(server), "topic:orders"),
                cluster="billing",
                name="bob",
                handler=handle,
                fields=["unit_of_order"],
                terms=TERMS,
            )
            with pytest.raises(
                ClientFault, match="the fields of ada: id; of this member: unit_of_order"
            ) as error:
                async with late:
                    await late.wait()
            assert error.value.code == "member-disagrees"
            async with heliograph.connect(url_of(server)) as connection:
                await (await connection.producer("topic:orders")).send_confirmed(b"something")
            await until(lambda: done == [b"something"], "ada goes on")
            assert consumers["ada"].figures.incarnations == 1

    play(story())


@pytest.mark.req("H1")
def test_a_unit_of_order_is_processed_in_order_by_one_member(tmp_path: Path) -> None:
    done: list[tuple[str, str | None, bytes]] = []

    def handler_of(name: str) -> Handler:
        async def handle(message: ClusteredMessage) -> None:
            await asyncio.sleep(0.001)
            done.append((name, message.delivery.unit_of_order, message.body))

        return handle

    async def story() -> None:
        async with embedded(tmp_path) as server:
            url = url_of(server)
            handlers = {name: handler_of(name) for name in ("ada", "bob", "cyd")}
            async with members(url, handlers, fields=["unit_of_order"], lanes=4):
                async with heliograph.connect(url) as connection:
                    producer = await connection.producer("topic:orders")
                    for number in range(300):
                        await producer.send(b"%04d" % number, unit_of_order=f"customer-{number % 20}")
                    await producer.flush()
                await until(lambda: len(done) == 300, "all are done")

    play(story())
    for unit in {unit for _, unit, _ in done}:
        assert len({name for name, each, _ in done if each == unit}) == 1
        bodies = [body for _, each, body in done if each == unit]
        assert bodies == sorted(bodies)


@pytest.mark.req("H2")
def test_weights_and_tables_decide_who_gets_how_much(tmp_path: Path) -> None:
    async def handle(_message: ClusteredMessage) -> None: ...

    async def story() -> None:
        async with embedded(tmp_path) as server:
            url = url_of(server)
            handlers = {"ada": handle, "bob": handle}
            async with members(url, handlers, policy=Weighted(), weights={"ada": 3}) as consumers:
                await until(lambda: consumers["ada"].ranges.size == VALUES * 3 // 4, "ada has three quarters")
            half = VALUES // 2
            policy = Table({"ada": [(half, VALUES)], "bob": [(0, half)]})
            async with members(url, handlers, policy=policy) as consumers:
                await until(lambda: list(consumers["bob"].ranges) == [(0, half)], "bob has the first half")

    play(story())


@pytest.mark.req("H1", "H2")
def test_a_handler_that_fails_gets_its_message_again_before_the_next_of_its_unit(tmp_path: Path) -> None:
    tried: list[tuple[bytes, bool]] = []

    async def handle(message: ClusteredMessage) -> None:
        tried.append((message.body, message.redelivered))
        if len(tried) == 1:
            raise ValueError("not today")

    async def story() -> None:
        async with embedded(tmp_path) as server, members(url_of(server), {"ada": handle}):
            async with heliograph.connect(url_of(server)) as connection:
                producer = await connection.producer("topic:orders")
                await producer.send(b"one")
                await producer.send(b"two")
                await producer.flush()
            await until(lambda: len(tried) == 3, "both are done")

    play(story())
    assert tried == [(b"one", False), (b"one", True), (b"two", False)]


@pytest.mark.req("H1")
@pytest.mark.parametrize("acknowledge", [Acknowledge.OWNER, Acknowledge.ALL])
def test_a_queue_is_consumed_as_one_and_ends_empty(acknowledge: Acknowledge, tmp_path: Path) -> None:
    done: Counter[bytes] = Counter()

    async def handle(message: ClusteredMessage) -> None:
        done[message.body] += 1

    async def story() -> None:
        async with embedded(tmp_path) as server:
            url = url_of(server)
            handlers: dict[str, Handler] = {"ada": handle, "bob": handle}
            async with heliograph.connect(url) as connection:
                producer = await connection.producer("queue:orders")
                for number in range(100):
                    await producer.send(b"%d" % number)
                await producer.flush()
                async with members(
                    url, handlers, source="queue:orders", acknowledge=acknowledge
                ) as consumers:
                    await until(lambda: len(done) == 100, "all are done")
                    await until(lambda: not any(each.held for each in consumers.values()), "nothing is held")
                    shown = await connection.ask("destination.show", destination="queue:orders")
                    assert shown["depth"] == 0

    play(story())
    assert set(done.values()) == {1}


@pytest.mark.req("H1", "H2")
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_transacted_members_are_killed_and_every_effect_is_there_exactly_once(tmp_path: Path) -> None:
    middleware = ALL["heliograph-transacted"]

    async def story() -> None:
        async with middleware.running(tmp_path) as url:
            cluster = Cluster(middleware, url, tmp_path, {"lease": 1.5})
            collecting = asyncio.create_task(middleware.collect(url, tmp_path / "queue.effects"))
            try:
                for name in ("ada", "bob", "cyd"):
                    cluster.start(name)
                await cluster.is_whole()
                publishing = asyncio.create_task(middleware.publish(url, 0, 800, rate=400))
                for name in ("ada", "bob"):
                    await cluster.has_processed(range(100), 60)
                    cluster.kill(name)
                await publishing
                await cluster.has_processed(range(800))
                verdict = judge(cluster.effects(), range(800))
                assert not verdict.lost
                assert not verdict.repeated
            finally:
                cluster.end()
                collecting.cancel()

    play(story(), 110)


@pytest.mark.req("H1", "H2")
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_all_transacted_members_die_at_once_and_nothing_that_was_done_is_done_again(tmp_path: Path) -> None:
    """Ada comes back alone, with copies of all that bob has done since. The server kept his words for her."""
    middleware = ALL["heliograph-transacted"]

    async def story() -> None:
        async with middleware.running(tmp_path) as url:
            cluster = Cluster(middleware, url, tmp_path, {"lease": 1.5, "pause": 0.002})
            collecting = asyncio.create_task(middleware.collect(url, tmp_path / "queue.effects"))
            try:
                for name in ("ada", "bob"):
                    cluster.start(name)
                await cluster.is_whole()
                await middleware.publish(url, 0, 600)
                await cluster.has_processed(range(100))
                cluster.kill("ada")
                cluster.kill("bob")
                cluster.start("bob")
                await cluster.has_processed(range(600))
                cluster.kill("bob")
                cluster.start("ada")
                await cluster.is_whole()
                await middleware.publish(url, 600, 100)
                await cluster.has_processed(range(700))
                await cluster.holds_nothing(30)
                verdict = judge(cluster.effects(), range(700))
                assert not verdict.lost
                assert not verdict.repeated
            finally:
                cluster.end()
                collecting.cancel()

    play(story(), 110)


@pytest.mark.req("H1", "H2")
@pytest.mark.nightly
@pytest.mark.timeout(120)
def test_a_founder_shuts_out_who_was_stopped_in_a_transaction_before_it_acts(tmp_path: Path) -> None:
    """Bob is stopped in the middle of a transaction, and nobody is left who knows of him. Ada, who comes back, does
    what he had begun; when he goes on, his transaction takes no effect."""
    middleware = ALL["heliograph-transacted"]

    async def story() -> None:
        async with middleware.running(tmp_path) as url:
            cluster = Cluster(middleware, url, tmp_path, {"lease": 1.5, "pause": 0.02})
            collecting = asyncio.create_task(middleware.collect(url, tmp_path / "queue.effects"))
            try:
                for name in ("ada", "bob"):
                    cluster.start(name)
                await cluster.is_whole()
                await middleware.publish(url, 0, 200)
                await cluster.has_processed(range(10))
                cluster.stop("bob")
                cluster.kill("ada")
                cluster.start("ada")
                await cluster.has_processed(range(200), 80)
                cluster.go_on("bob")
                await cluster.is_whole()
                await middleware.publish(url, 200, 20)
                await cluster.has_processed(range(220))
                await cluster.holds_nothing(30)
                verdict = judge(cluster.effects(), range(220))
                assert not verdict.lost
                assert not verdict.repeated
            finally:
                cluster.end()
                collecting.cancel()

    play(story(), 110)


@pytest.mark.req("H1", "H2")
@pytest.mark.nightly
@pytest.mark.timeout(120)
@pytest.mark.parametrize("key", each_of(["heliograph", "rabbitmq", "nats", "mqtt", "redis", "kafka"]))
def test_all_die_at_once_and_whoever_comes_back_finds_everything(key: str, tmp_path: Path) -> None:
    """The first that comes back founds anew, with what waited for it; what is repeated is marked."""
    middleware = ALL[key]

    async def story() -> None:
        async with middleware.running(tmp_path) as url:
            cluster = Cluster(middleware, url, tmp_path, {"lease": 2.0, "pause": 0.005})
            try:
                for name in ("ada", "bob"):
                    cluster.start(name)
                await cluster.is_whole()
                await middleware.publish(url, 0, 600)
                await cluster.has_processed(range(20))
                cluster.kill("ada")
                cluster.kill("bob")
                cluster.start("bob")
                cluster.start("ada")
                await cluster.has_processed(range(600))
                verdict = judge(cluster.effects(), range(600))
                assert not verdict.lost
                assert not verdict.unmarked
            finally:
                cluster.end()

    play(story(), 110)


@pytest.mark.req("H2")
def test_transacted_members_that_have_left_leave_no_licence_behind(tmp_path: Path) -> None:
    """Otherwise the register would grow with every life, and a founder would look for all of them."""

    async def handle(_message: ClusteredMessage) -> None: ...

    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            async with members(url_of(server), {"ada": handle, "bob": handle}, transacted=True):
                register = await connection.browse("queue:clustered.billing.licences")
                assert len([entry async for entry in register]) == 2
            register = await connection.browse("queue:clustered.billing.licences")
            assert [entry async for entry in register] == []

    play(story())


class Hasty(Heliograph):
    """An adapter whose member acknowledges what it has while the server is being asked how much it still has."""

    taken: list[Delivery]
    answers = 0

    async def _waiting(self, topic: str, name: str, here: int) -> int:
        taken, self.taken = self.taken, []
        await self.acknowledge(taken)
        while taken and await super()._waiting(topic, name, 0) > 10:
            await asyncio.sleep(0.01)  # the server has not heard of it yet
        waiting = await super()._waiting(topic, name, here)
        self.answers += 1
        return waiting


@pytest.mark.req("H2")
def test_who_acknowledges_while_it_asks_is_not_caught_up_too_early(tmp_path: Path) -> None:
    """Ten were received, ten wait. What is acknowledged in between must not make up for what waits."""

    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            adapter = Hasty(url_of(server), "topic:orders")
            await adapter.connect("billing", ("ada", 1))
            await adapter.subscribe(is_fresh=False)
            producer = await connection.producer("topic:orders")
            adapter.taken = []
            for number in range(10):
                await producer.send_confirmed(b"%d" % number)
            while len(adapter.taken) < 10:
                adapter.taken += await adapter.receive()
            for number in range(10, 20):
                await producer.send_confirmed(b"%d" % number)
            catching_up = asyncio.create_task(adapter.caught_up())
            await until(lambda: adapter.answers > 1, "the server has been asked twice")
            assert not catching_up.done()
            late: list[Delivery] = []
            while len(late) < 10:
                late += await adapter.receive()
            await catching_up
            await adapter.close(keeps_copies=False)

    play(story())


@pytest.mark.req("H2")
def test_who_begins_afresh_has_nothing_of_an_earlier_life_that_is_still_connected(tmp_path: Path) -> None:
    """It waits until the server has let go of that life, and throws its copies away then."""

    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            before, after = (Heliograph(url_of(server), "topic:orders") for _ in range(2))
            await before.connect("billing", ("ada", 1))
            await before.subscribe(is_fresh=False)
            producer = await connection.producer("topic:orders")
            await producer.send_confirmed(b"done long ago")
            assert [each.body for each in await before.receive()] == [b"done long ago"]
            await after.connect("billing", ("ada", 2))
            subscribing = asyncio.create_task(after.subscribe(is_fresh=True))
            done, _ = await asyncio.wait([subscribing], timeout=0.5)
            assert not done
            await before.close(keeps_copies=True)
            await subscribing
            await producer.send_confirmed(b"new")
            assert [each.body for each in await after.receive()] == [b"new"]
            await after.close(keeps_copies=False)

    play(story())


class OneByOne(Heliograph):
    """An adapter that hands out twenty copies one by one, in an order of its own, as priorities may bring about."""

    def __init__(self, url: str, *, backwards: bool) -> None:
        super().__init__(url, "topic:orders")
        self._backwards = backwards
        self._gathered: list[Delivery] = []
        self._left: list[Delivery] = []

    async def receive(self) -> list[Delivery]:
        while len(self._gathered) < 20:
            self._gathered += await super().receive()
            self._left = self._gathered[:: 1 if self._backwards else -1]
        if not self._left:
            await super().receive()
        return [self._left.pop()]

    async def caught_up(self) -> None:
        while self._left:
            await asyncio.sleep(0.05)


@pytest.mark.req("H1")
@pytest.mark.nightly
def test_members_that_are_full_of_each_other_s_messages_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ada is given bob's messages first, and bob ada's; neither has room for what it could process."""
    monkeypatch.setattr(limits, "CLUSTERED_HELD_BYTES", 50)
    half = VALUES // 2
    units = [f"unit-{number}" for number in range(100)]
    of_ada, of_bob = ([u for u in units if (value_of_text(u) < half) == is_ada] for is_ada in (True, False))
    done: list[bytes] = []

    async def handle(message: ClusteredMessage) -> None:
        done.append(message.body)

    async def story() -> None:
        async with embedded(tmp_path) as server, AsyncExitStack() as stack:
            url = url_of(server)
            consumers = [
                await stack.enter_async_context(
                    ClusteredConsumer(
                        lambda backwards=name == "bob": OneByOne(url, backwards=backwards),  # type: ignore[misc]
                        cluster="billing",
                        name=name,
                        handler=handle,
                        fields=["unit_of_order"],
                        policy=Table({"ada": [(0, half)], "bob": [(half, VALUES)]}),
                        terms=TERMS,
                    )
                )
                for name in ("ada", "bob")
            ]
            await until(lambda: all(each.ranges.size == half for each in consumers), "each has its half")
            async with heliograph.connect(url) as connection:
                producer = await connection.producer("topic:orders")
                for number, unit in enumerate([*of_bob[:10], *of_ada[:10]]):
                    await producer.send(b"number %03d" % number, unit_of_order=unit)
                await producer.flush()
            await until(lambda: len(done) == 20, "all are done", 50)

    play(story())
    assert len(set(done)) == 20


class Brittle(Heliograph):
    """An adapter whose connection is lost once, and whose client then passes on the cancellation of another task."""

    losses: list[str]

    async def hear(self) -> bytes:
        word = await super().hear()
        if self.losses:
            raise ConnectionError(self.losses.pop())
        return word

    async def close(self, *, keeps_copies: bool) -> None:
        await super().close(keeps_copies=keeps_copies)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future


@pytest.mark.req("H2")
def test_a_member_comes_back_though_its_client_passes_on_a_cancellation_that_was_not_meant_for_it(
    tmp_path: Path,
) -> None:
    async def handle(_message: ClusteredMessage) -> None: ...

    async def story() -> None:
        async with embedded(tmp_path) as server:
            losses: list[str] = []

            def adapter() -> Brittle:
                made = Brittle(url_of(server), "topic:orders")
                made.losses = losses
                return made

            async with ClusteredConsumer(
                adapter, cluster="billing", name="ada", handler=handle, terms=TERMS
            ) as consumer:
                await until(lambda: consumer.ranges.size == VALUES, "ada owns everything")
                losses.append("the cable was pulled")
                await until(lambda: consumer.figures.incarnations == 2, "ada begins again")
                await until(lambda: consumer.ranges.size == VALUES, "ada owns everything again")

    play(story())


class HardOfHearing(Heliograph):
    """An adapter that loses every copy, as middleware without a guarantee may."""

    async def receive(self) -> list[Delivery]:
        while True:
            await super().receive()


@pytest.mark.req("H1")
@pytest.mark.slow
def test_a_message_that_its_owner_never_got_is_asked_about_and_sent_to_it(tmp_path: Path) -> None:
    """Ada loses all her copies. Bob has them, and wonders after a while."""
    done: list[tuple[str, str | None, bytes]] = []

    def handler_of(name: str) -> Handler:
        async def handle(message: ClusteredMessage) -> None:
            done.append((name, message.delivery.unit_of_order, message.body))

        return handle

    async def story() -> None:
        async with embedded(tmp_path) as server, AsyncExitStack() as stack:
            consumers = []
            for name, adapter in (("ada", HardOfHearing), ("bob", Heliograph)):
                consumer = ClusteredConsumer(
                    lambda kind=adapter: kind(url_of(server), "topic:orders"),  # type: ignore[misc]
                    cluster="billing",
                    name=name,
                    handler=handler_of(name),
                    terms=TERMS,
                )
                consumers.append(await stack.enter_async_context(consumer))
            await until(lambda: all(each.ranges for each in consumers), "both own something")
            async with heliograph.connect(url_of(server)) as connection:
                producer = await connection.producer("topic:orders")
                for number in range(20):
                    await producer.send(b"%02d" % number, unit_of_order=f"unit-{number}")
                await producer.flush()
            await until(lambda: len(done) == 20, "all are done", 30)

    play(story())
    assert {name for name, _, _ in done} == {"ada", "bob"}
    assert sorted(body for _, _, body in done) == [b"%02d" % number for number in range(20)]
    assert all(unit == f"unit-{int(body)}" for _, unit, body in done)


@pytest.mark.req("H1")
def test_not_to_acknowledge_is_refused_where_copies_need_it() -> None:
    async def handle(_message: ClusteredMessage) -> None: ...

    async def story() -> None:
        consumer = ClusteredConsumer(
            lambda: Heliograph("helio://localhost:1", "topic:orders"),
            cluster="billing",
            name="ada",
            handler=handle,
            acknowledge=Acknowledge.NONE,
        )
        with pytest.raises(ClientFault) as error:
            async with consumer:
                await consumer.wait()
        assert error.value.code == "acknowledgements-needed"

    play(story())


class _FailingOver:
    """A server that is not there for a moment, and then says what waits."""

    def __init__(self, *answers: Exception | dict[str, Any]) -> None:
        self.answers = list(answers)

    async def ask(self, _subject: str, **_: Any) -> dict[str, Any]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.req("H2")
def test_a_server_that_fails_over_is_asked_again_and_only_who_may_not_ask_goes_by_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("heliograph.clustered.on_heliograph._SILENCE_SECONDS", 0.01)
    mine = {"client": "clustered.billing.ada", "name": "copies", "depth": 5, "in_flight": 2}

    async def waiting(*answers: Exception | dict[str, Any]) -> int:
        adapter = Heliograph("helio://localhost:1", "topic:orders")
        adapter._cluster, adapter._member = "billing", "ada"
        adapter._connection = _FailingOver(*answers)  # type: ignore[assignment]
        return await adapter._waiting("topic:orders", "copies", 3)

    async def story() -> None:
        another = HeliographError("another leads", code="not-leading")
        assert await waiting(ConnectionLost("gone"), another, {"subscribers": [mine]}) == 4
        assert await waiting(NotAllowed("no")) == 0
        with pytest.raises(ClientFault):
            await waiting(ClientFault("something else", code="other"))

    play(story())


@pytest.mark.req("H4")
@pytest.mark.slow
@pytest.mark.timeout(90)
@needs("rabbitmq")
def test_copies_on_rabbitmq_are_not_shared_with_an_earlier_life(tmp_path: Path) -> None:
    middleware = ALL["rabbitmq"]

    async def story() -> None:
        async with middleware.running(tmp_path) as url:
            before, after = middleware.adapter(url), middleware.adapter(url)
            await before.connect("billing", ("ada", 1))
            await before.subscribe(is_fresh=False)
            await after.connect("billing", ("ada", 2))
            subscribing = asyncio.create_task(after.subscribe(is_fresh=False))
            await middleware.publish(url, 0, 10)
            assert len(await before.receive()) > 0
            done, _ = await asyncio.wait([subscribing], timeout=1)
            assert not done, "the earlier life is still there"
            await before.close(keeps_copies=True)
            await subscribing
            received: list[Delivery] = []
            while len(received) < 10:
                received += await after.receive()
            await after.close(keeps_copies=False)

    play(story(), 80)
