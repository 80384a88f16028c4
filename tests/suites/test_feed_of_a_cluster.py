"""The history of a cluster (D2, PROTOCOL 5): the same records at the same positions, whoever leads; nothing that a
part which was cut off could take back; and what is held is there, also with who came later."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.client import Connection
from heliograph.model.block import unpack
from heliograph.model.errors import HeliographError
from heliograph.model.portions import FED
from tests.servers import until
from tests.suites.cluster_in_process import Cluster, told, url
from tests.suites.exchange import receive_all
from tests.suites.parted_cluster import PartedCluster, parted
from tests.suites.test_dispatch_majority import SlowCluster
from tests.suites.test_dispatch_majority import told as told_slowly
from tests.suites.test_pipelines import blocks_of, bodies, fill
from tests.suites.test_pipelines_in_a_cluster import until_served
from tests.suites.test_sub_clusters import NAMES, kept_by, spread

pytestmark = pytest.mark.req("D2")

SMALL: Any = {"journal__segment_bytes": 1 << 20, "journal__snapshot_every_bytes": 1 << 20}
Seen = dict[int, list[Any]]
"""What a reader saw: bodies by position."""


async def ask(connection: Connection, subject: str, **arguments: Any) -> dict[str, Any]:
    """Ask until somebody leads who may answer, as the source of Spark does."""
    deadline = asyncio.get_running_loop().time() + 20
    while True:
        try:
            answer: dict[str, Any] = await connection.ask(subject, destination="queue:a", **arguments)
        except HeliographError as error:
            # A client manager whose cluster begins anew asks its clients to come again.
            is_passing = error.code in ("pipeline-restricted", "connection-lost")
            if not is_passing or asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.02)
        else:
            return answer


async def read(connection: Connection, after: int = 0, *, portion: int = 2000) -> tuple[Seen, int]:
    """All that is there behind a position, portion by portion, and how far that goes."""
    seen: Seen = {}
    last = (await ask(connection, "pipeline.positions"))["last"]
    while after < last:
        found = await ask(connection, "pipeline.feed", after=after, until=last, bytes=portion)
        for (_, _, _, _, lsn), block in blocks_of(found["records"], FED):
            assert after < lsn <= found["upto"]
            seen.setdefault(lsn, []).extend(unpack(block).bodies)
        assert found["upto"] > after, "it goes forward"
        after = found["upto"]
    return seen, last


async def hold(connection: Connection, after: int = 0, name: str = "reader") -> None:
    await ask(connection, "pipeline.hold", name=name, after=after)


def texts(seen: Seen) -> list[Any]:
    return [body for lsn in sorted(seen) for body in seen[lsn]]


async def until_read(connection: Connection, count: int) -> tuple[Seen, int]:
    """What was confirmed is stored, and may be read a moment later."""
    deadline = asyncio.get_running_loop().time() + 20
    while True:
        seen, last = await read(connection)
        if len(texts(seen)) >= count or asyncio.get_running_loop().time() > deadline:
            return seen, last
        await asyncio.sleep(0.02)


async def consume(connection: Connection, count: int) -> None:
    consumer = await connection.consumer("queue:a")
    await receive_all(consumer, count)
    await consumer.close()


async def settled(cluster: Cluster) -> None:
    """Everybody who is here counts: no other view is about to come."""
    nodes = cluster.nodes.values()
    await until(lambda: all(node.own.is_settled for node in nodes), "the cluster has settled")


# ---- whoever leads


def test_whoever_leads_has_the_same_records_at_the_same_positions(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3, 4):
            await cluster.add(node)
        async with heliograph.connect(url(cluster)) as connection:
            await hold(connection)
            await fill(connection, "queue:a", bodies(range(50)))
            await fill(connection, "queue:b", bodies(range(5)))
            before, last = await until_read(connection, 50)
            assert texts(before) == bodies(range(50))
            await consume(connection, 30)
            cluster.crash(cluster.leader())
            await fill(connection, "queue:a", bodies(range(50, 80)))
            after, _ = await until_read(connection, 80)
            assert {lsn: found for lsn, found in after.items() if lsn <= last} == before
            assert texts(after) == bodies(range(80))
            cluster.crash(cluster.leader())
            await until_served(connection)
            again, _ = await until_read(connection, 80)
            assert again == after
            assert texts((await read(connection, last))[0]) == bodies(range(50, 80))

    told(tmp_path, story)


def test_a_reader_goes_on_through_fail_overs_while_others_send(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3, 4):
            await cluster.add(node)
        async with heliograph.connect(url(cluster)) as connection:
            await hold(connection)
            sent: list[bytes] = []

            async def send() -> None:
                producer = await connection.producer("queue:a")
                for number in range(600):
                    sent.append(b"%d" % number)
                    await producer.send(sent[-1])
                    if number % 20 == 0:
                        await producer.flush()
                        await asyncio.sleep(0)
                await producer.flush()

            sending = asyncio.create_task(send())
            seen: Seen = {}
            after, crashes = 0, [150, 350]
            while not sending.done() or len(texts(seen)) < len(sent):
                more, after = await read(connection, after, portion=500)
                assert not more.keys() & seen.keys()
                seen |= more
                if crashes and len(texts(seen)) >= crashes[0]:
                    crashes.pop(0)
                    cluster.crash(cluster.leader())
                    await until_served(connection)
            await sending
            assert not crashes
            assert texts(seen) == sent
            assert (await read(connection))[0] == seen, "read again, it is the same"

    told(tmp_path, story)


# ---- what is held


def test_what_is_held_is_there_with_a_manager_that_came_when_it_was_consumed(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.add(2, **SMALL)
        async with heliograph.connect(url(cluster)) as connection:
            await fill(connection, "queue:a", [b"before"])
            _, after = await until_read(connection, 1)
            await hold(connection, after)
            for _ in range(3):
                await fill(connection, "queue:a", [b"x" * 1000] * 1000)
                await consume(connection, 1000)
            await fill(connection, "queue:b", [b"y" * 1000] * 2000)
            before, last = await until_read(connection, 3000)
            await cluster.add(3, **SMALL)
            await settled(cluster)
            cluster.crash(2)
            await until_served(connection)
            assert cluster.leader() == 3
            shown = await connection.ask("pipelines")
            assert [held["name"] for held in shown["holds"]] == ["reader"]
            held = {lsn: found for lsn, found in before.items() if lsn > after}
            assert {
                lsn: found for lsn, found in (await read(connection, after))[0].items() if lsn <= last
            } == held
            assert len(texts(held)) >= 2999
            # With it, too, what is held stays and the rest goes.
            await fill(connection, "queue:b", [b"y" * 1000] * 3000)
            assert (await read(connection, after))[0] == held
            await connection.ask("pipeline.release", name="reader")
            await fill(connection, "queue:b", [b"y" * 1000] * 5000)
            consumer = await connection.consumer("queue:b")
            await receive_all(consumer, 10_000)
            await fill(connection, "queue:b", [b"y" * 1000] * 3000)
            with pytest.raises(HeliographError) as gone:
                await connection.ask("pipeline.feed", destination="queue:a", after=after)
            assert gone.value.code == "feed-gone"

    told(tmp_path, story)


def test_a_transaction_that_began_before_the_hold_is_there_where_it_was_committed(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.add(2, **SMALL)
        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session(acknowledge="transacted")
            sender = await session.producer("queue:a")
            await sender.send(b"staged")
            await sender.flush()
            await fill(connection, "queue:a", [b"plain"])
            _, after = await until_read(connection, 1)
            await hold(connection, after)
            await session.commit()
            await consume(connection, 2)
            await fill(connection, "queue:b", [b"y" * 1000] * 3000)
            await cluster.add(3, **SMALL)
            before, _ = await read(connection, after)
            assert texts(before) == [b"staged"]
            await settled(cluster)
            cluster.crash(2)
            await until_served(connection)
            assert (await read(connection, after))[0] == before

    told(tmp_path, story)


def test_a_backup_that_was_away_has_what_was_held_meanwhile(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3):
            await cluster.add(node, **SMALL)
        async with heliograph.connect(url(cluster)) as connection:
            await hold(connection)
            await fill(connection, "queue:a", bodies(range(10)))
            away = next(node for node in (2, 3) if node != cluster.leader())
            cluster.crash(away)
            await fill(connection, "queue:a", bodies(range(10, 20)))
            await consume(connection, 20)
            await fill(connection, "queue:b", [b"y" * 1000] * 3000)
            before, _ = await until_read(connection, 20)
            await cluster.add(away, **SMALL)
            await fill(connection, "queue:a", bodies(range(20, 30)))
            await settled(cluster)
            cluster.crash(cluster.leader())
            await until_served(connection)
            assert cluster.leader() == away
            after, _ = await until_read(connection, 30)
            assert texts(after) == bodies(range(30))
            assert {lsn: after[lsn] for lsn in before} == before
            # And after a restart of its own, by its disk alone.
            cluster.crash(away)
            await cluster.add(away, **SMALL)
        async with heliograph.connect(url(cluster)) as connection:
            assert (await until_read(connection, 30))[0] == after

    told(tmp_path, story)


def test_a_hold_on_what_a_backup_never_had_brings_it_there(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.add(2)
        async with heliograph.connect(url(cluster)) as connection:
            await fill(connection, "queue:a", bodies(range(10)))
            await consume(connection, 10)
            third = await cluster.add(3)
            before, _ = await until_read(connection, 10)
            assert texts(before) == bodies(range(10))
            await hold(connection)
            assert third.replica is not None
            place = third.replica.manager.place
            await until(lambda: bool(place.history.brought), "it has the history")
            await settled(cluster)
            cluster.crash(2)
            await until_served(connection)
            assert (await read(connection))[0] == before

    told(tmp_path, story)


# ---- parts


@pytest.mark.req("P5")
def test_a_part_that_was_cut_off_shows_no_history_and_the_others_go_on_from_the_same_place(
    tmp_path: Path,
) -> None:
    async def story(cluster: PartedCluster) -> None:
        async with heliograph.connect(url(cluster, 1)) as here:
            await hold(here)
            await fill(here, "queue:a", bodies(range(10)))
            before, last = await until_read(here, 10)
        led = cluster.leader()
        (other,) = {11, 12} - {led}
        cluster.cut([1, led], [2, 3, other])
        await cluster.until_state("D", 1)
        await cluster.until_state("B", 2)
        async with heliograph.connect(url(cluster, 1)) as here, heliograph.connect(url(cluster, 2)) as there:
            await fill(here, "queue:a", [b"in the branch"] * 3)
            for subject, arguments in (
                ("pipeline.positions", {}),
                ("pipeline.feed", {"after": 0}),
                ("pipeline.measure", {"after": 0}),
                ("pipeline.hold", {"after": 0, "name": "another"}),
            ):
                with pytest.raises(HeliographError) as refused:
                    await here.ask(subject, destination="queue:a", **arguments)
                assert refused.value.code == "pipeline-restricted"
            await fill(there, "queue:a", bodies(range(10, 20)))
            meanwhile, _ = await until_read(there, 20)
            assert texts(meanwhile) == bodies(range(20))
            assert {lsn: meanwhile[lsn] for lsn in before} == before
            assert min(lsn for lsn in meanwhile if lsn not in before) > last
        cluster.cut([1, 2, 3, 11, 12])
        await cluster.until_state("A", 1)
        async with heliograph.connect(url(cluster, 1)) as here:
            united, _ = await until_read(here, 23)
            assert {lsn: united[lsn] for lsn in meanwhile} == meanwhile
            behind = {lsn: found for lsn, found in united.items() if lsn not in meanwhile}
            assert texts(behind) == [b"in the branch"] * 3
            assert min(behind) > max(meanwhile)
        # Also with the manager whose journal has the branch: it was cut at the fork.
        if cluster.leader() != led:
            await cluster.nodes.pop(other).stop()
        async with heliograph.connect(url(cluster, 2)) as there:
            await until_served(there)
            assert cluster.leader() == led
            assert (await until_read(there, 23))[0] == united

    parted(tmp_path, story)


def test_who_takes_over_says_nothing_before_what_it_inherited_is_stored(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3, 4):
            await cluster.add(node)
        await settled(cluster)
        async with heliograph.connect(url(cluster)) as connection:
            await hold(connection)
            await fill(connection, "queue:a", bodies(range(5)))
            before, last = await until_read(connection, 5)
            kept = []
            for server in cluster.nodes.values():
                following = server.replica.following if server.replica is not None else None
                if following is not None:
                    kept.append((following, following.say_stored))
                    following.say_stored = lambda: None  # type: ignore[method-assign]
            cluster.crash(cluster.leader())
            await until_served(connection)
            with pytest.raises(HeliographError) as refused:
                await connection.ask("pipeline.positions", destination="queue:a")
            assert refused.value.code == "pipeline-restricted"
            for following, say_stored in kept:
                following.say_stored = say_stored  # type: ignore[method-assign]
                following.say_stored()
            assert (await read(connection))[1] >= last
            assert (await read(connection))[0] == before

    told(tmp_path, story)


@pytest.mark.req("M2")
def test_each_sub_cluster_has_positions_of_its_own(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            await fill(connection, "queue:a", bodies(range(5)))
            await hold(connection)
            seen, last = await until_read(connection, 5)
            assert texts(seen) == bodies(range(5))
            with pytest.raises(HeliographError) as refused:
                await connection.ask("pipeline.positions", destination="*")
            assert refused.value.code == "sub-cluster-needed"
            assert "*@east" in refused.value.sentence
            held_by = [name for name in NAMES if "queue:a" in kept_by(cluster, name)]
            for name in NAMES:
                found = await connection.ask("pipeline.measure", destination=f"*@{name}", after=0)
                own = await connection.ask("pipeline.measure", destination=f"queue:*@{name}", after=0)
                assert (own["messages"] == 5) == (name in held_by)
                assert found["messages"] >= own["messages"]
            await connection.ask("pipeline.release", name="reader")
            assert (await connection.ask("pipelines"))["holds"] == []
            assert last

    spread(tmp_path, story)


def test_a_position_is_told_when_most_client_managers_know_of_it(tmp_path: Path) -> None:
    async def story(cluster: SlowCluster) -> None:
        async with heliograph.connect(url(cluster, 1)) as connection:
            await fill(connection, "queue:a", bodies(range(5)))
            before, last = await until_read(connection, 5)
            cluster.slow(2, 3)
            await fill(connection, "queue:a", bodies(range(5, 10)))
            asking = asyncio.create_task(read(connection, last))
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await asyncio.shield(asking)
            assert not asking.done(), "the others may go on without what it would be told"
            cluster.quick(2)
            more, _ = await asking
            assert texts(before) + texts(more) == bodies(range(10))

    told_slowly(tmp_path, story, managers=2)
