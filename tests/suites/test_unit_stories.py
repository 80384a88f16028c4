"""Units of order: their names, topics, heads that hold the rest back, and servers that end (U1, U4, U5)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph import ClientFault, Connection
from heliograph.model.limits import UNIT_HELD_MESSAGES
from tests.servers import ServerProcess, embedded, play, url_of
from tests.suites.ordered import Handed, Ledger, Worker, depth_of, until_time, work_off

QUEUE = "queue:orders"
PASSER = "plain-0"


@asynccontextmanager
async def served(folder: Path, **policy: Any) -> AsyncIterator[tuple[str, Connection]]:
    rules = {"policies": [{"destinations": "*", **policy}]} if policy else None
    async with embedded(folder, rules) as server, heliograph.connect(url_of(server)) as connection:
        yield url_of(server), connection


async def send(connection: Connection, *bodies: str, destination: str = QUEUE, **options: Any) -> None:
    """Each message in the unit that its body begins with, unless it is plain."""
    producer = await connection.producer(destination)
    for body in bodies:
        unit = body.partition("-")[0]
        await producer.send(body, unit_of_order="" if unit == "plain" else unit, **options)
    await producer.flush()


async def workers_of(
    url: str, ledger: Ledger, *names: str, destination: str = QUEUE, **options: Any
) -> list[Worker]:
    return [await Worker(name, "individual", ledger).start(url, destination, **options) for name in names]


async def stop(*workers: Worker) -> None:
    for worker in workers:
        await worker.stop()


async def goes_past(url: str, destination: str = QUEUE) -> list[str]:
    """What a second consumer gets while the first sits on the first message, up to the passer, which came last."""
    ledger = Ledger()
    (first,) = await workers_of(url, ledger, "first", destination=destination, credit=1)
    assert await first.take() is not None
    (second,) = await workers_of(url, ledger, "second", destination=destination)
    bodies: list[str] = []
    while PASSER not in bodies:
        message = await second.take()
        assert message is not None, f"only {bodies} came"
        bodies.append(message.text)
        await second.complete()
    await first.complete()
    await stop(first, second)
    return bodies[:-1]


# ---- names


@pytest.mark.req("U4")
def test_a_message_says_its_unit_and_its_receiver_reads_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path) as (url, connection):
            producer = await connection.producer(QUEUE)
            for unit in ("ada", "bob", "ada"):
                await producer.send(unit, unit_of_order=unit)
            await producer.send(PASSER)
            await producer.flush()
            named = {message.text: message.unit_of_order async for message in await connection.browse(QUEUE)}
            assert named == {"ada": "ada", "bob": "bob", PASSER: None}
            assert await goes_past(url) == ["bob"]

    play(story())


@pytest.mark.req("U4")
def test_a_producer_has_a_unit_until_it_is_taken_off(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path) as (url, connection):
            session = await connection.session()
            producer = await session.producer(QUEUE, unit_of_order="ada")
            await producer.send("of ada")
            await producer.send("of ada too")
            await producer.send("of bob", unit_of_order="bob")
            await producer.send("of nobody", unit_of_order="")
            producer.unit_of_order = None
            await producer.send("taken off")
            producer.unit_of_order = "ada"
            await producer.send("of ada again")
            await producer.send(PASSER, unit_of_order="")
            await producer.flush()
            assert await goes_past(url) == ["of bob", "of nobody", "taken off"]

    play(story())


@pytest.mark.req("U4")
def test_thousands_of_messages_keep_their_units_whatever_else_they_say(tmp_path: Path) -> None:
    """Those that say nothing but their unit travel a shorter way; they must not lose it, or take another's."""

    async def story() -> None:
        async with served(tmp_path) as (_, connection):
            producer = await (await connection.session()).producer(QUEUE, unit_of_order="mine")
            said: dict[bytes, tuple[str | None, str | None, int]] = {}
            for number in range(3000):
                body = b"%d" % number
                ways: list[dict[str, Any]] = [
                    {"unit_of_order": f"unit-{number % 7}"},
                    {},
                    {"unit_of_order": f"unit-{number % 5}", "priority": 4},
                    {"unit_of_order": "", "type": "odd"},
                    {"unit_of_order": f"unit-{number % 3}"},
                    {"unit_of_order": f"unit-{number % 3}", "type": "odd"},
                ]
                options = ways[number * number % 13 % 6]
                await producer.send(body, **options)
                unit = options.get("unit_of_order", "mine") or None
                said[body] = (unit, options.get("type"), 4)
            await producer.flush()
            browser = await connection.browse(QUEUE)
            found = {m.body: (m.unit_of_order, m.type, m.priority) async for m in browser}
            assert found == said

    play(story())


@pytest.mark.req("U4")
def test_connections_share_a_unit_by_its_name(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path) as (url, connection):
            for number in range(3):
                async with heliograph.connect(url, unit_of_order="shared") as sending:
                    producer = await sending.producer(QUEUE)
                    assert producer.unit_of_order == "shared"
                    await producer.send_confirmed(f"from connection {number}")
            await send(connection, PASSER)
            assert await goes_past(url) == []

    play(story())


@pytest.mark.req("U4")
def test_a_connection_makes_a_unit_for_each_of_its_sessions(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path) as (url, connection):
            async with heliograph.connect(url, unit_of_order=True) as sending:
                one, other = await sending.session(), await sending.session()
                for session, bodies in ((one, ["one 1", "one 2"]), (other, ["other 1", "other 2"])):
                    producer = await session.producer(QUEUE)
                    for body in bodies:
                        await producer.send_confirmed(body)
                assert one.unit_of_order is not None
                assert one.unit_of_order != other.unit_of_order
            await send(connection, PASSER)
            (first, *_) = [message async for message in await connection.browse(QUEUE)]
            assert first.unit_of_order == one.unit_of_order
            assert await goes_past(url) == ["other 1", "other 2"]

    play(story())


@pytest.mark.req("U4")
def test_a_rule_makes_a_unit_of_each_session_that_sends(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path, unit_from="session") as (url, connection):
            for bodies in (["one 1", "one 2"], ["other 1", "other 2"], [PASSER]):
                producer = await (await connection.session()).producer(QUEUE)
                for body in bodies:
                    await producer.send_confirmed(body)
            assert await goes_past(url) == ["other 1", "other 2"]

    play(story())


@pytest.mark.req("U4")
def test_a_rule_makes_a_unit_of_each_value_of_a_property(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path, unit_from="property:customer") as (url, connection):
            producer = await connection.producer(QUEUE)
            for body, customer in (("1", 7), ("2", 8), ("3", 7), ("4", None), ("5", "7"), (PASSER, None)):
                await producer.send(body, properties={} if customer is None else {"customer": customer})
            await producer.send("6", properties={"customer": 7})
            await producer.flush()
            past = await goes_past(url)
            assert [body for body in past if body != "5"] == [
                "2",
                "4",
            ]  # a number is not a text, or is: as may be

    play(story())


@pytest.mark.req("U4")
def test_a_rule_that_is_set_or_taken_off_holds_for_what_waits(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path) as (url, connection):
            producer = await connection.producer(QUEUE)
            for body in ("1", "2", "3"):
                await producer.send(body, properties={"customer": 7})
            await producer.send(PASSER)
            await producer.flush()
            rule = {"unit_from": "property:customer"}
            await connection.ask("destination.set", destination=QUEUE, policy=rule)
            assert await goes_past(url) == []
            await connection.ask("destination.set", destination=QUEUE, policy={"unit_from": ""})
            await send(connection, PASSER)
            assert await goes_past(url) == ["3"]

    play(story())


@pytest.mark.req("U4")
@pytest.mark.parametrize("name", ["x" * 256, "ß" * 128])
def test_a_name_that_is_too_long_is_refused_where_it_is_said(tmp_path: Path, name: str) -> None:
    async def story() -> None:
        async with served(tmp_path) as (url, connection):
            producer = await connection.producer(QUEUE)
            with pytest.raises(ClientFault) as refused:
                await producer.send(b"", unit_of_order=name)
            assert refused.value.code == "unit-invalid"
            with pytest.raises(ClientFault):
                producer.unit_of_order = name
            with pytest.raises(ClientFault):
                await heliograph.connect(url, unit_of_order=name)
            await producer.send_confirmed(b"fine", unit_of_order=name[:100])

    play(story())


# ---- topics


@pytest.mark.req("U5")
@pytest.mark.parametrize(
    "terms",
    [{}, {"durable": "mine"}, {"shared": "ours"}, {"durable": "ours", "shared": True}],
    ids=["plain", "durable", "shared", "durable-and-shared"],
)
def test_each_subscription_has_its_own_order(tmp_path: Path, terms: dict[str, Any]) -> None:
    """One sits on the head of a unit; the others' copies go on."""

    async def story() -> None:
        topic = "topic:orders"
        async with served(tmp_path) as (url, connection):
            slow, quick = Ledger(), Ledger()
            slow_one = Worker("slow", "individual", slow)
            slow_one.connection = await heliograph.connect(url, client_id="slow")
            slow_one.session = await slow_one.connection.session(acknowledge="individual")
            slow_one.consumer = await slow_one.session.consumer(topic, credit=1, **terms)
            (quick_one,) = await workers_of(url, quick, "quick", destination=topic)
            bodies = [f"ada-{n}" for n in range(1, 6)]
            await send(connection, *bodies, destination=topic)
            await slow_one.expect("ada-1")
            await work_off([quick_one], set(bodies))
            assert [handed.body for handed in quick.of("ada")] == bodies
            await slow_one.complete()
            await work_off([slow_one], set(bodies))
            assert [handed.body for handed in slow.of("ada")] == bodies
            await stop(slow_one, quick_one)

    play(story())


@pytest.mark.req("U5")
@pytest.mark.parametrize(
    "terms", [{"shared": "ours"}, {"durable": "ours", "shared": True}], ids=["shared", "durable"]
)
def test_consumers_that_share_a_subscription_compete_in_order(tmp_path: Path, terms: dict[str, Any]) -> None:
    async def story() -> None:
        topic = "topic:orders"
        async with embedded(tmp_path) as server:
            url, ledger = url_of(server), Ledger()
            workers = []
            async with (
                heliograph.connect(url, client_id="shop") as sharing,
                heliograph.connect(url) as connection,
            ):
                for name, credit in (("first", 1), ("second", 10), ("third", 10)):
                    worker = Worker(name, "individual", ledger)
                    worker.connection = sharing
                    worker.session = await sharing.session(acknowledge="individual")
                    worker.consumer = await worker.session.consumer(topic, credit=credit, **terms)
                    workers.append(worker)
                bodies = [f"{unit}-{n}" for n in range(1, 21) for unit in ("ada", "bob", "cid")]
                await send(connection, *bodies, destination=topic)
                for n in range(1, 21):  # priorities do not matter to a unit on a topic either
                    await send(connection, f"dan-{n}", destination=topic, priority=n % 10)
                bodies += [f"dan-{n}" for n in range(1, 21)]
                first = await workers[0].take()
                assert first is not None
                held = first.text.partition("-")[0]
                others = {body for body in bodies if not body.startswith(held)}
                await work_off(workers[1:], others)
                await workers[0].complete()
                await work_off(workers, set(bodies))
                for unit in ("ada", "bob", "cid", "dan"):
                    numbers = [int(handed.body.partition("-")[2]) for handed in ledger.of(unit)]
                    assert numbers == list(range(1, 21))

    play(story())


# ---- heads that may not go yet


@pytest.mark.req("U1")
def test_a_delayed_head_holds_the_rest_of_its_unit_and_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path) as (url, connection):
            ledger = Ledger()
            workers = await workers_of(url, ledger, "first", "second")
            due = time.time() + 2.0  # what comes before has to be done by then
            await send(connection, "ada-1", deliver_at=due)
            await send(connection, "ada-2", "ada-3", "bob-1", PASSER)
            await work_off(workers, {"bob-1", PASSER})
            assert ledger.of("ada") == []
            await work_off(workers, {"ada-3"})
            assert time.time() >= due
            assert [handed.body for handed in ledger.of("ada")] == ["ada-1", "ada-2", "ada-3"]
            await stop(*workers)

    play(story())


@pytest.mark.req("U1")
def test_a_head_that_backs_off_holds_the_rest_of_its_unit_and_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path, redelivery_delay=2.0) as (url, connection):
            ledger = Ledger()
            workers = await workers_of(url, ledger, "first", "second", credit=2)
            await send(connection, "ada-1", "ada-2", "ada-3")
            messages = [await worker.take(2.0) for worker in workers]
            (head,) = [message for message in messages if message is not None]
            for worker in workers:
                worker.given_back()
            failed = time.time()
            await head.reject("not now")
            await send(connection, "bob-1", PASSER)
            await work_off(workers, {"bob-1", PASSER})
            assert len(ledger.of("ada")) == 1
            await work_off(workers, {"ada-3"})
            assert time.time() >= failed + 2.0
            again = [(handed.body, handed.marked) for handed in ledger.of("ada")[1:]]
            assert again == [("ada-1", True), ("ada-2", False), ("ada-3", False)]
            await stop(*workers)

    play(story())


@pytest.mark.req("U1")
def test_a_head_that_nobody_selects_holds_the_rest_of_its_unit_and_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path) as (url, connection):
            ledger = Ledger()
            workers = await workers_of(url, ledger, "first", "second", selector="colour = 'red'")
            await send(connection, "ada-1", properties={"colour": "blue"})
            await send(connection, "ada-2", "bob-1", PASSER, properties={"colour": "red"})
            await work_off(workers, {"bob-1", PASSER})
            assert ledger.of("ada") == []
            (reason,) = (await connection.ask("destination.units", destination=QUEUE))["units"]
            assert reason["name"] == "ada"
            blues = await workers_of(url, ledger, "third", selector="colour = 'blue'")
            await work_off([*workers, *blues], {"ada-2"})
            assert [handed.body for handed in ledger.of("ada")] == ["ada-1", "ada-2"]
            await stop(*workers, *blues)

    play(story())


@pytest.mark.req("U1")
def test_an_uncommitted_send_takes_its_place_at_the_commit(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path) as (url, connection):
            ledger = Ledger()
            workers = await workers_of(url, ledger, "first", "second")
            session = await connection.session(acknowledge="transacted")
            staged = await session.producer(QUEUE, unit_of_order="ada")
            for body in ("ada-3", "ada-4"):
                await staged.send(body)
            await send(connection, "ada-1", "ada-2")
            await work_off(workers, {"ada-1", "ada-2"})
            await session.commit()
            await work_off(workers, {"ada-3", "ada-4"})
            await send(connection, "ada-5")
            await work_off(workers, {"ada-5"})
            assert [handed.body for handed in ledger.of("ada")] == [f"ada-{n}" for n in range(1, 6)]
            await stop(*workers)

    play(story())


@pytest.mark.req("U1", "U2")
def test_a_unit_whose_head_failed_for_good_stops_where_the_policy_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path, redelivery_limit=2, unit_stops=True) as (url, connection):
            ledger = Ledger()
            workers = await workers_of(url, ledger, "first", "second")
            await send(connection, "ada-1", "ada-2")
            for _ in range(2):
                for worker in workers:
                    message = await worker.take(2.0)
                    if message is not None and message.text == "ada-1":
                        worker.given_back()
                        await message.reject("poison")
                        break
            await send(connection, "bob-1", PASSER)
            await work_off(workers, {"bob-1", PASSER})
            assert {handed.body for handed in ledger.of("ada")} == {"ada-1"}
            assert await depth_of(connection, QUEUE) == (2, 0)
            await connection.ask("destination.resume_unit", destination=QUEUE, unit="ada")
            await work_off(workers, {"ada-1", "ada-2"})
            assert ledger.of("ada")[-1] == Handed(body="ada-2", to=ledger.of("ada")[-1].to, marked=False)
            await stop(*workers)

    play(story())


@pytest.mark.req("J9", "U1")
def test_what_waits_for_its_unit_is_there_for_who_looks(tmp_path: Path) -> None:
    """Behind a message that is handed out as behind one that failed for good; and it can be taken out of the way."""

    async def story() -> None:
        async with served(tmp_path, redelivery_limit=1, unit_stops=True) as (url, connection):
            ledger = Ledger()
            first, second = await workers_of(url, ledger, "first", "second", credit=1)
            await send(connection, "ada-1", "bob-1", "ada-2", "bob-2", "ada-3")
            handed = {
                message.text: message for message in (await first.take(), await second.take()) if message
            }
            assert set(handed) == {"ada-1", "bob-1"}
            assert await _waiting(connection) == ["ada-2", "bob-2", "ada-3"]
            for worker in (first, second):
                worker.given_back()
            await handed["ada-1"].reject("poison")
            await handed["bob-1"].acknowledge()
            await work_off([first, second], {"bob-2"})
            assert await _waiting(connection) == ["ada-1", "ada-2", "ada-3"], "the poison too"
            await stop(first, second)
            await connection.ask("destination.pause", destination=QUEUE, consumption=True)
            await connection.ask("destination.create", destination="queue:aside")
            moved = {"target": "queue:aside", "filter": "", "limit": 1}
            assert (await connection.ask("message.move", destination=QUEUE, **moved))["messages"] == 1
            assert await _waiting(connection) == ["ada-2", "ada-3"]
            assert await _waiting(connection, "queue:aside") == ["ada-1"]

    play(story())


@pytest.mark.req("J9", "U1")
def test_more_than_stays_in_memory_waits_for_its_unit_and_is_there_for_who_looks(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path) as (url, connection):
            ledger = Ledger()
            (worker,) = await workers_of(url, ledger, "first", credit=1)
            (other,) = await workers_of(url, ledger, "second", credit=1)
            count = UNIT_HELD_MESSAGES + 3000
            await send(connection, *[f"ada-{n}" for n in range(count)])
            assert await worker.take() is not None
            await send(connection, PASSER)
            await work_off([other], {PASSER})  # all came up before it
            assert await _waiting(connection) == [f"ada-{n}" for n in range(1, count)]
            await stop(worker, other)

    play(story())


async def _waiting(connection: Connection, queue: str = QUEUE) -> list[str]:
    return [message.text async for message in await connection.browse(queue)]


@pytest.mark.req("U2")
def test_what_goes_back_with_an_earlier_message_is_marked_as_far_as_it_was_seen(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path) as (url, connection):
            ledger = Ledger()
            (worker,) = await workers_of(url, ledger, "first")
            await send(connection, *[f"ada-{n}" for n in range(1, 5)])
            for n in (1, 2):
                await worker.expect(f"ada-{n}")
            first, second = worker.given_back()
            await first.return_()
            await second.acknowledge()  # too late: it went back with the first
            await work_off([worker], {"ada-4"})
            again = [(handed.body, handed.marked) for handed in ledger.handed[2:]]
            assert again == [("ada-1", True), ("ada-2", True), ("ada-3", False), ("ada-4", False)]
            await stop(worker)

    play(story())


# ---- servers that end


@pytest.mark.crash
@pytest.mark.req("U1", "U2")
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_order_is_kept_when_the_server_ends_and_comes_back(tmp_path: Path, how: str) -> None:
    async def story() -> None:
        async with ServerProcess(tmp_path) as server:
            ledger = Ledger()
            (first,) = await workers_of(server.url, ledger, "first", credit=3)
            others = await workers_of(server.url, ledger, "second", "third", credit=3)
            async with heliograph.connect(server.url) as connection:
                bodies = [f"{unit}-{n}" for n in range(1, 11) for unit in ("ada", "bob")]
                await send(connection, *bodies)
                await first.take()
                await first.take()
                held = {handed.body for handed in ledger.handed}
                for worker in (first, *others):
                    worker.given_back()
                await (server.kill() if how == "killed" else server.terminate())
                await server.start()
                await work_off([first, *others], set(bodies), seconds=30)
                for unit in ("ada", "bob"):
                    again = [handed for handed in ledger.handed[2:] if handed.body.startswith(unit)]
                    assert [int(handed.body[4:]) for handed in again] == list(range(1, 11))
                    assert all(handed.marked for handed in again if handed.body in held)
                    assert not any(handed.marked for handed in again[6:])  # nobody had got so far
            await stop(first, *others)

    play(story())


@pytest.mark.req("U1")
def test_what_a_delayed_head_held_back_is_held_back_after_a_restart_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path) as (url, connection):
            due = time.time() + 4.0  # what comes before has to be done by then
            await send(connection, "ada-1", deliver_at=due)
            await send(connection, "ada-2", PASSER)
        async with embedded(tmp_path) as server:
            ledger = Ledger()
            workers = await workers_of(url_of(server), ledger, "first", "second")
            await work_off(workers, {PASSER})
            assert ledger.of("ada") == []
            await until_time(due)
            await work_off(workers, {"ada-1", "ada-2"})
            assert [handed.body for handed in ledger.of("ada")] == ["ada-1", "ada-2"]
            await stop(*workers)

    play(story())
