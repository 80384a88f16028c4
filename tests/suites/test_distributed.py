"""Distributed destinations (U6): one name, a member in each sub-cluster, and each unit of order at one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.model.destination import Address
from heliograph.model.distribution import Distribution, HashRouting
from heliograph.model.units import unit_number
from heliograph.nodes import message_manager
from tests.servers import play, until
from tests.suites.cluster_in_process import CLIENTS, Cluster, url

pytestmark = pytest.mark.req("U6")
NAMES = ("east", "west")
QUEUE, TOPIC, PATHS = "queue:orders", "topic:prices", "queue:payments"
RULES = [
    {"destinations": QUEUE, "members": list(NAMES)},
    {"destinations": TOPIC, "members": "all"},
    {"destinations": PATHS, "members": "all", "routing": "path", "path_service": "east"},
    {"destinations": "queue:by-customer", "members": "all", "unit_from": "property:customer"},
]
TWO: dict[str, Any] = {"cluster__sub_clusters": "west, east", "policies": RULES}
UNITS = [f"unit-{number}" for number in range(8)]


def place_of(unit: str) -> str:
    """Where a unit belongs, as everybody computes it."""
    return HashRouting(Distribution(members=NAMES), b"").member_for(unit_number(unit))


EASTERN = next(unit for unit in UNITS if place_of(unit) == "east")
WESTERN = next(unit for unit in UNITS if place_of(unit) == "west")


def spread(base: Path, story: Callable[[Cluster], Awaitable[None]], *, clients: int = 1) -> None:
    """Client managers 1.., one message manager in the east (10) and one in the west (20)."""

    async def whole() -> None:
        cluster = Cluster(base)
        for number in range(1, clients + 1):
            await cluster.add(number, CLIENTS, **TWO)
        for node, name in zip((10, 20), NAMES, strict=True):
            await cluster.add(node, cluster__sub_cluster=name, **TWO)
        try:
            await story(cluster)
        finally:
            await cluster.stop()

    play(whole())


def waiting_at(cluster: Cluster, name: str, address: str = QUEUE) -> int:
    replica = cluster.nodes[cluster.leader(name)].replica
    assert replica is not None
    found = replica.manager.catalogue.by_address.get(Address(address))
    return 0 if found is None else found.figures().depth


def consumers_at(cluster: Cluster, name: str) -> list[Any]:
    replica = cluster.nodes[cluster.leader(name)].replica
    assert replica is not None
    return list(replica.manager.catalogue.by_address[Address(QUEUE)].consumers())


def waiting_at_both(cluster: Cluster) -> int:
    return sum(waiting_at(cluster, name) for name in NAMES)


async def drained(consumer: heliograph.Consumer, count: int) -> list[heliograph.Message]:
    got = [await consumer.receive(timeout=30) for _ in range(count)]
    assert None not in got
    return [message for message in got if message is not None]


def test_each_unit_goes_to_one_member_and_one_consumer_takes_from_all(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            producer = await connection.producer(QUEUE)
            for turn in range(5):
                for unit in UNITS:
                    await producer.send(b"%d" % turn, unit_of_order=unit)
            await producer.flush()
            assert waiting_at(cluster, "east") == 5 * sum(place_of(unit) == "east" for unit in UNITS)
            assert waiting_at(cluster, "west") == 5 * sum(place_of(unit) == "west" for unit in UNITS)
            consumer = await connection.consumer(QUEUE)
            seen: dict[str | None, list[object]] = {}
            for message in await drained(consumer, 5 * len(UNITS)):
                assert message.destination == f"{QUEUE}@{place_of(message.unit_of_order or '')}"
                seen.setdefault(message.unit_of_order, []).append(message.body)
            assert seen == {unit: [b"%d" % turn for turn in range(5)] for unit in UNITS}
            await consumer.close()
            assert waiting_at(cluster, "east") == waiting_at(cluster, "west") == 0

    spread(tmp_path, story)


def test_what_has_no_unit_keeps_the_order_of_its_session(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            sessions = [await connection.session() for _ in range(8)]
            for number, session in enumerate(sessions):
                for turn in range(4):
                    producer = await session.producer(QUEUE)  # another one each time
                    await producer.send(b"%d %d" % (number, turn))
                await producer.flush()
            assert waiting_at(cluster, "east")
            assert waiting_at(cluster, "west")
            consumer = await connection.consumer(QUEUE)
            got = [bytes(message.body).split() for message in await drained(consumer, 32)]  # type: ignore[arg-type]
            for number in range(8):
                assert [turn for of, turn in got if of == b"%d" % number] == [b"0", b"1", b"2", b"3"]

    spread(tmp_path, story)


def test_a_member_that_is_away_is_an_order_error_and_never_a_detour(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session(acknowledge="individual")
            producer = await session.producer(QUEUE)
            for unit in (EASTERN, WESTERN):
                await producer.send_confirmed(b"1", unit_of_order=unit)
            await cluster.nodes.pop(20).stop()
            await until(lambda: _is_away(producer), "the client knows")
            for _ in range(3):
                await producer.send_confirmed(b"2", unit_of_order=EASTERN)
                with pytest.raises(heliograph.OrderBroken) as broken:
                    await producer.send(b"2", unit_of_order=WESTERN)
                assert broken.value.code == "member-unreachable"
                with pytest.raises(heliograph.OrderBroken):
                    await producer.send_confirmed(b"2", unit_of_order=WESTERN)
            # Somebody who comes now, and somebody who loses the connection, hear the same.
            another = await (await connection.session()).producer(QUEUE)
            with pytest.raises(heliograph.OrderBroken):
                await another.send(b"2", unit_of_order=WESTERN)
            consumer = await session.consumer(QUEUE)
            assert [message.body for message in await drained(consumer, 4)] == [b"1", b"2", b"2", b"2"]
            cut(connection)
            await producer.send_confirmed(b"3", unit_of_order=EASTERN)
            with pytest.raises(heliograph.OrderBroken):
                await producer.send_confirmed(b"3", unit_of_order=WESTERN)
            await cluster.add(20, cluster__sub_cluster="west", **TWO)
            await eventually_sent(producer, b"4", WESTERN)
            got = [(message.unit_of_order, message.body) for message in await drained(consumer, 3)]
            assert [body for unit, body in got if unit == EASTERN] == [b"3"]
            assert [body for unit, body in got if unit == WESTERN] == [b"1", b"4"]

    spread(tmp_path, story)


def test_a_member_is_addressed_by_its_own_name_and_nothing_is_routed(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            producer = await connection.producer(f"{QUEUE}@east")
            for unit in UNITS:
                await producer.send_confirmed(unit.encode(), unit_of_order=unit)
            assert waiting_at(cluster, "east") == len(UNITS)
            consumer = await connection.consumer(f"{QUEUE}@east", selector="1 = 1")
            assert [message.text for message in await drained(consumer, len(UNITS))] == UNITS

    spread(tmp_path, story)


@pytest.mark.parametrize("mode", ["auto", "client", "individual", "dups-ok", "transacted"])
def test_every_way_of_acknowledging(tmp_path: Path, mode: Any) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            sending = await connection.producer(QUEUE)
            for turn in range(6):
                for unit in UNITS:
                    await sending.send(f"{unit} {turn}", unit_of_order=unit)
            await sending.flush()
            session = await connection.session(acknowledge=mode)
            consumer = await session.consumer(QUEUE)
            for message in await drained(consumer, 3 * len(UNITS)):
                if mode == "individual":
                    await message.acknowledge(confirm=True)
            if mode == "client":
                await session.acknowledge(confirm=True)
            elif mode == "transacted":
                await session.commit()
            await consumer.close()
            rest = await connection.consumer(QUEUE)
            got = [message.text for message in await drained(rest, 3 * len(UNITS))]
            for unit in UNITS:
                turns = [int(text.split()[1]) for text in got if text.startswith(unit)]
                assert turns == sorted(turns)
            assert await rest.receive(timeout=0.1) is None

    spread(tmp_path, story)


def test_a_transaction_over_both_members_is_all_or_nothing(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session(acknowledge="transacted")
            producer = await session.producer(QUEUE)
            for outcome in (session.rollback, session.commit):
                for unit in UNITS:
                    await producer.send(unit.encode(), unit_of_order=unit)
                await outcome()
            # It is committed as soon as that is decided; the other member is told then.
            await until(lambda: waiting_at_both(cluster) == len(UNITS), "both members have heard it")
            consumer = await session.consumer(QUEUE)
            await drained(consumer, len(UNITS))
            await session.rollback()
            again = await drained(consumer, len(UNITS))
            assert all(message.redelivered for message in again)
            await session.commit()
            assert await consumer.receive(timeout=0.1) is None

    spread(tmp_path, story)


def test_a_distributed_topic_reaches_each_subscriber_once(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster), client_id="ann") as connection:
            session = await connection.session()
            plain = await session.consumer(TOPIC)
            pattern = await session.consumer("topic:glob:price*")
            durable = await session.consumer(TOPIC, durable="mine", selector="size > 0")
            sharing = [await session.consumer(TOPIC, shared="ours") for _ in range(2)]
            producer = await session.producer(TOPIC)
            for unit in UNITS:
                await producer.send(unit, unit_of_order=unit, properties={"size": 1})
            await producer.flush()
            for consumer in (plain, pattern, durable):
                assert sorted(message.text for message in await drained(consumer, len(UNITS))) == UNITS
            shared = [asyncio.ensure_future(_all_of(consumer)) for consumer in sharing]
            assert sorted([*(await shared[0]), *(await shared[1])]) == UNITS
            await durable.close()
            await producer.send_confirmed("later", unit_of_order=WESTERN, properties={"size": 1})
            again = await session.consumer(TOPIC, durable="mine", selector="size > 0")
            assert [message.text for message in await drained(again, 1)] == ["later"]
            await again.close()
            await session.unsubscribe("mine")

    spread(tmp_path, story)


def test_a_browser_looks_into_all_members(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            producer = await connection.producer(QUEUE)
            for unit in UNITS:
                await producer.send_confirmed(unit, unit_of_order=unit)
            seen = [message.text async for message in await connection.browse(QUEUE)]
            assert sorted(seen) == UNITS
            assert waiting_at(cluster, "east") + waiting_at(cluster, "west") == len(UNITS)

    spread(tmp_path, story)


def test_what_a_policy_makes_a_unit_goes_to_one_member_whoever_sends_it(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            for turn in range(4):
                session = await connection.session()
                producer = await session.producer("queue:by-customer")
                for unit in UNITS:
                    await producer.send_confirmed(str(turn), properties={"customer": unit})
            consumer = await connection.consumer("queue:by-customer")
            places: dict[object, set[str]] = {}
            for message in await drained(consumer, 4 * len(UNITS)):
                places.setdefault(message.properties["customer"], set()).add(message.destination)
            assert places == {unit: {f"queue:by-customer@{place_of(unit)}"} for unit in UNITS}

    spread(tmp_path, story)


def test_a_very_large_message_goes_where_its_unit_goes(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            producer = await connection.producer(QUEUE)
            for unit in (EASTERN, WESTERN):
                await producer.send_stream([b"x" * 100_000], threshold=1000, unit_of_order=unit)
            consumer = await connection.consumer(QUEUE)
            for _ in range(2):
                (message,) = await drained(consumer, 1)
                assert message.destination == f"{QUEUE}@{place_of(message.unit_of_order or '')}"
                async with message.open() as stream:
                    assert len(await stream.read()) == 100_000

    spread(tmp_path, story)


def test_connections_come_and_go_and_nothing_is_seen_twice(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(f"{url(cluster, 1)},{url(cluster, 2)[8:]}") as connection:
            session = await connection.session(acknowledge="individual")
            producer = await session.producer(QUEUE)
            consumer = await session.consumer(QUEUE)
            for turn in range(6):
                for unit in UNITS:
                    await producer.send(b"%d" % turn, unit_of_order=unit)
                if turn % 2:
                    cut(connection)
                for message in await drained(consumer, len(UNITS)):
                    assert message.body == b"%d" % turn
                    assert not message.redelivered
                    await message.acknowledge()

    spread(tmp_path, story, clients=2)


def test_a_connection_that_breaks_while_members_are_joined_leaves_no_consumer_behind(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session()
            producer = await session.producer(QUEUE)
            for turns in range(8):  # of the loop, before it breaks
                making = asyncio.ensure_future(session.consumer(QUEUE))
                for _ in range(3 * turns):
                    await asyncio.sleep(0)
                cut(connection)
                consumer = await making
                for unit in UNITS:
                    await producer.send(unit, unit_of_order=unit)
                assert sorted(message.text for message in await drained(consumer, len(UNITS))) == UNITS
                for name in NAMES:
                    assert len(consumers_at(cluster, name)) == 1
                await consumer.close()

    spread(tmp_path, story)


def test_administration_shows_a_destination_and_its_members(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            producer = await connection.producer(QUEUE)
            for unit in UNITS:
                await producer.send_confirmed(unit, unit_of_order=unit)
            shown = await connection.ask("destination.show", destination=QUEUE)
            assert shown["address"] == QUEUE
            assert shown["depth"] == len(UNITS)
            assert shown["routing"] == "hash"
            members = {member["sub_cluster"]: member for member in shown["members"]}
            assert members["east"]["depth"] == waiting_at(cluster, "east")
            assert members["west"]["address"] == f"{QUEUE}@west"
            one = await connection.ask("destination.show", destination=f"{QUEUE}@west")
            assert one["address"] == f"{QUEUE}@west"
            listed: list[str] = []
            after = 0
            while True:
                page = await connection.ask("destinations", after=after)
                listed += [entry["address"] for entry in page["destinations"]]
                after = page["next"]
                if not after:
                    break
            assert [each for each in listed if "orders" in each] == [f"{QUEUE}@east", f"{QUEUE}@west"]
            await connection.ask("destination.purge", destination=QUEUE)
            assert waiting_at(cluster, "east") == waiting_at(cluster, "west") == 0
            await cluster.nodes.pop(20).stop()
            await until(lambda: _is_away(producer), "the client knows")
            shown = await connection.ask("destination.show", destination=QUEUE)
            assert [member["reachable"] for member in shown["members"]] == [True, False]
            with pytest.raises(heliograph.HeliographError) as refused:
                await connection.ask("destination.purge", destination=QUEUE)
            assert refused.value.code == "member-unreachable"

    spread(tmp_path, story)


def test_the_blocking_face_does_the_same(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        await asyncio.to_thread(_blocking_story, url(cluster))

    spread(tmp_path, story)


def _blocking_story(where: str) -> None:
    with heliograph.blocking.connect(where) as connection:
        producer = connection.producer(QUEUE)
        for turn in range(4):
            for unit in UNITS:
                producer.send(f"{turn}", unit_of_order=unit)
        producer.flush()
        consumer = connection.consumer(QUEUE)
        seen: dict[str | None, list[str]] = {}
        for _ in range(4 * len(UNITS)):
            message = consumer.receive(timeout=30)
            assert message is not None
            seen.setdefault(message.unit_of_order, []).append(message.text)
        assert seen == {unit: ["0", "1", "2", "3"] for unit in UNITS}


def test_what_is_stored_and_forwarded_goes_to_a_member_by_its_name(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster), store_and_forward=tmp_path / "store") as connection:
            with pytest.raises(heliograph.ClientFault) as refused:
                await connection.producer(QUEUE)
            assert refused.value.code == "destination-distributed"
            await (await connection.producer(f"{QUEUE}@west")).send_confirmed("stored", unit_of_order=EASTERN)
            consumer = await connection.consumer(QUEUE)
            (message,) = await drained(consumer, 1)
            assert (message.text, message.destination) == ("stored", f"{QUEUE}@west")

    spread(tmp_path, story)


# ---- the path service


def paths_at(cluster: Cluster, name: str = "east") -> Any:
    replica = cluster.nodes[cluster.leader(name)].replica
    assert replica is not None
    return replica.manager.catalogue.paths


async def places_of(session: heliograph.Session, units: list[str]) -> dict[str, str]:
    """Where units are, by sending a message of each and looking where it comes from."""
    producer = await session.producer(PATHS)
    for unit in units:
        await producer.send_confirmed(unit, unit_of_order=unit)
    consumer = await session.consumer(PATHS)
    found = {message.text: message.destination for message in await drained(consumer, len(units))}
    await consumer.close()
    return found


def test_units_are_shared_out_evenly_and_stay_where_they_are(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        units = [f"account-{number}" for number in range(40)]
        async with heliograph.connect(url(cluster, 1)) as one, heliograph.connect(url(cluster, 2)) as other:
            places = await places_of(await one.session(), units)
            assert sorted(places) == sorted(units)
            assert list(places.values()).count(f"{PATHS}@east") == 20
            assert await places_of(await other.session(), units[::-1]) == places
            cluster.crash(10)
            await cluster.add(10, cluster__sub_cluster="east", **TWO)
            assert await places_of(await other.session(), units) == places

    spread(tmp_path, story, clients=2)


def test_while_the_path_service_is_away_known_units_go_on_and_new_ones_are_refused(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session()
            places = await places_of(session, UNITS)
            western = next(unit for unit, place in places.items() if place.endswith("@west"))
            eastern = next(unit for unit, place in places.items() if place.endswith("@east"))
            producer = await session.producer(PATHS)
            await cluster.nodes.pop(10).stop()
            await until(lambda: _is_away(producer, "east"), "the client knows")
            await producer.send_confirmed("goes on", unit_of_order=western)
            for unit, code in ((eastern, "member-unreachable"), ("new", "path-service-unreachable")):
                with pytest.raises(heliograph.OrderBroken) as broken:
                    await producer.send_confirmed("does not", unit_of_order=unit)
                assert broken.value.code == code
            await cluster.add(10, cluster__sub_cluster="east", **TWO)
            await eventually_sent(producer, b"now", "new")

    spread(tmp_path, story)


def test_a_path_is_forgotten_with_its_last_producer_and_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_manager, "_HOUSEKEEPING_SECONDS", 0.05)

    async def story(cluster: Cluster) -> None:
        paths = paths_at(cluster)
        async with heliograph.connect(url(cluster)) as connection:
            sessions = [await connection.session() for _ in range(2)]
            for session in sessions:
                producer = await session.producer(PATHS)
                for unit in UNITS:
                    await producer.send_confirmed("x", unit_of_order=unit)
            assert len(paths) == len(UNITS)
            for session in sessions:
                await session.close()
            await asyncio.sleep(0.3)  # several rounds of housekeeping, in which nothing may happen
            assert len(paths) == len(UNITS)
            consumer = await connection.consumer(PATHS)
            await drained(consumer, 2 * len(UNITS) - 1)
            await consumer.close()
            await until(lambda: len(paths) <= 1 + len(UNITS) // 2, "one member is empty")
            assert len(paths) > 0
            consumer = await connection.consumer(PATHS)
            await drained(consumer, 1)
            await consumer.close()
            await until(lambda: not len(paths), "all are forgotten")
        # And the journal knows it.
        await cluster.nodes.pop(10).stop()
        await cluster.add(10, cluster__sub_cluster="east", **TWO)
        assert not len(paths_at(cluster))

    spread(tmp_path, story)


def test_a_path_is_forgotten_on_a_queue_that_is_never_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_manager, "_HOUSEKEEPING_SECONDS", 0.05)

    async def story(cluster: Cluster) -> None:
        paths = paths_at(cluster)
        async with heliograph.connect(url(cluster)) as connection:
            fleeting = await connection.session()
            await (await fleeting.producer(PATHS)).send_confirmed("1", unit_of_order="fleeting")
            member = paths.member_of(Address(PATHS), unit_number("fleeting"))
            direct = await connection.producer(f"{PATHS}@{member}")
            await direct.send_confirmed("2")
            await fleeting.close()
            consumer = await connection.consumer(PATHS, credit=2)
            async with asyncio.timeout(60):
                while len(paths):
                    await direct.send_confirmed("more")
                    await drained(consumer, 1)

    spread(tmp_path, story)


# ---- members change


async def start_all(cluster: Cluster, rule: dict[str, Any], port: int = 0) -> int:
    """All nodes, with another rule for what is distributed. Returns where clients come."""
    settings: dict[str, Any] = {"cluster__sub_clusters": "west, east", "policies": [rule]}
    await cluster.add(1, CLIENTS, server__port=port, **settings)
    for node, name in zip((10, 20), NAMES, strict=True):
        await cluster.add(node, cluster__sub_cluster=name, **settings)
    address = cluster.nodes[1].address
    assert address is not None
    return address[1]


async def change(cluster: Cluster, rule: dict[str, Any], port: int) -> None:
    """Rules are the same on all nodes: all stop, and start again."""
    for node in (1, 20, 10):
        await cluster.nodes.pop(node).stop()
    await start_all(cluster, rule, port)


def told_with_changes(base: Path, story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def whole() -> None:
        cluster = Cluster(base)
        try:
            await story(cluster)
        finally:
            await cluster.stop()

    play(whole())


def test_by_path_a_unit_moves_when_its_member_has_nothing_of_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_manager, "_HOUSEKEEPING_SECONDS", 0.05)
    by_path = {"destinations": PATHS, "routing": "path", "path_service": "east"}

    async def story(cluster: Cluster) -> None:
        port = await start_all(cluster, {**by_path, "members": ["east"]})
        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session()
            producer = await session.producer(PATHS)
            for unit in UNITS:
                await producer.send_confirmed("1", unit_of_order=unit)
            await change(cluster, {**by_path, "members": ["west"], "leaving": ["east"]}, port)
            for unit in (*UNITS, "new"):
                await producer.send_confirmed("2", unit_of_order=unit)
            assert waiting_at(cluster, "east", PATHS) == 2 * len(UNITS)
            assert waiting_at(cluster, "west", PATHS) == 1
            consumer = await connection.consumer(PATHS)
            seen: dict[str | None, list[str]] = {}
            for message in await drained(consumer, 2 * len(UNITS) + 1):
                seen.setdefault(message.unit_of_order, []).append(message.text)
            assert seen == {**{unit: ["1", "2"] for unit in UNITS}, "new": ["2"]}
            await consumer.close()
            await session.close()
            await until(lambda: not len(paths_at(cluster)), "nobody uses them, and nothing is there")
            places = await places_of(await connection.session(), UNITS)
            assert set(places.values()) == {f"{PATHS}@west"}

    told_with_changes(tmp_path, story)


def test_by_hash_clients_that_come_back_know_the_new_members_before_they_send(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        port = await start_all(cluster, {"destinations": QUEUE, "members": ["east"]})
        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session()
            producer = await session.producer(QUEUE)
            consumer = await session.consumer(QUEUE)
            for unit in UNITS:
                await producer.send_confirmed(unit, unit_of_order=unit)
            assert {message.destination for message in await drained(consumer, len(UNITS))} == {
                f"{QUEUE}@east"
            }
            await change(cluster, {"destinations": QUEUE, "members": "all"}, port)
            for unit in UNITS:
                await producer.send_confirmed("again", unit_of_order=unit)
            got: dict[str | None, str] = {}
            while len(got) < len(UNITS):
                (message,) = await drained(consumer, 1)
                if message.text == "again":  # what was not acknowledged when all stopped may come once more
                    got[message.unit_of_order] = message.destination
            assert got == {unit: f"{QUEUE}@{place_of(unit)}" for unit in UNITS}

    told_with_changes(tmp_path, story)


def test_on_the_blocking_face_units_of_a_member_that_is_there_go_on(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        connection = await asyncio.to_thread(heliograph.connect_blocking, url(cluster))
        producer = await asyncio.to_thread(connection.producer, QUEUE)
        await cluster.nodes.pop(20).stop()
        await until(lambda: _is_away(producer._producer), "the client knows")
        failed: list[str] = []
        completed: list[str] = []

        def send_all() -> int:
            broken = 0
            for turn in range(50):
                for unit in UNITS:
                    told = failed if place_of(unit) == "west" else completed
                    try:
                        producer.send(
                            f"{turn}",
                            unit_of_order=unit,
                            on_completion=lambda error, told=told, unit=unit: told.append(unit),  # type: ignore[misc]
                        )
                    except heliograph.OrderBroken:
                        broken += 1  # of what was sent before: this one was not taken
            return broken

        broken = await asyncio.to_thread(send_all)
        with pytest.raises(heliograph.OrderBroken):
            await asyncio.to_thread(producer.flush)
        await asyncio.to_thread(producer.flush)
        assert failed or broken
        assert len(failed) + len(completed) + broken == 50 * len(UNITS)
        assert waiting_at(cluster, "east") == len(completed)
        await asyncio.to_thread(connection.close)

    spread(tmp_path, story)


def test_a_producer_from_before_a_queue_was_distributed_is_told_and_the_next_one_routes(
    tmp_path: Path,
) -> None:
    async def story(cluster: Cluster) -> None:
        port = await start_all(cluster, {"destinations": "queue:others", "members": "all"})
        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session()
            before = await session.producer(QUEUE)
            await before.send_confirmed("before", unit_of_order=WESTERN)
            await change(cluster, {"destinations": QUEUE, "members": "all"}, port)
            with pytest.raises(heliograph.ClientFault) as refused:
                await before.send_confirmed("lost", unit_of_order=WESTERN)
            assert refused.value.code == "destination-distributed"
            producer = await session.producer(QUEUE)
            await producer.send_confirmed("after", unit_of_order=WESTERN)
            assert waiting_at(cluster, "west") >= 1
            consumer = await connection.consumer(QUEUE)
            assert {message.text for message in await drained(consumer, 2)} == {"before", "after"}

    told_with_changes(tmp_path, story)


async def _all_of(consumer: heliograph.Consumer) -> list[str]:
    got = []
    while (message := await consumer.receive(timeout=0.5)) is not None:
        got.append(message.text)
    return got


def _is_away(producer: Any, name: str = "west") -> bool:
    part = producer._producers.get(name)
    return part is not None and part._sender.away is not None


async def eventually_sent(producer: heliograph.Producer, body: bytes, unit: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await producer.send_confirmed(body, unit_of_order=unit)
                return
            except heliograph.OrderBroken:
                await asyncio.sleep(0.05)


def cut(connection: heliograph.Connection) -> None:
    wire = connection._link.wire
    assert wire is not None
    assert wire._transport is not None
    wire._transport.abort()
