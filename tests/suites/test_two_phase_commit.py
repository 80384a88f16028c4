"""Transactions over two sub-clusters, as their clients see them, while nodes die between the phases (M10, P8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import heliograph
from heliograph.bus.commands import FinalAsked, OutcomeAsked, PrepareAsked
from heliograph.model.errors import TransactionRolledBack
from heliograph.nodes import preparing
from heliograph.sessions.coordinating import Effect, Say
from tests.servers import until
from tests.suites.cluster_in_process import Cluster, url
from tests.suites.test_sub_clusters import BOTH, NAMES, _cut, kept_by, spread

pytestmark = pytest.mark.req("M10")


@pytest.fixture
def doubts_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a story that waits for their end. In any other, a machine that is busy would be taken for a client manager
    that is gone."""
    monkeypatch.setattr(preparing, "IN_DOUBT_SECONDS", 2.0)
    monkeypatch.setattr(preparing, "ASK_AGAIN_SECONDS", 0.5)


async def one_in_each(connection: heliograph.Connection, cluster: Cluster) -> tuple[str, str]:
    """Two queues with two messages each."""
    for address in ("queue:a", "queue:b"):
        producer = await connection.producer(address)
        for body in (b"1", b"2"):
            await producer.send_confirmed(body)
    (eastern,), (western,) = kept_by(cluster, "east"), kept_by(cluster, "west")
    return eastern, western


async def exchange(session: heliograph.Session, eastern: str, western: str) -> None:
    """Take one from each, and send one to each."""
    for address in (eastern, western):
        consumer = await session.consumer(address, credit=1)
        message = await consumer.receive(timeout=30)
        assert message is not None
        assert message.body == b"1"
    for address in (eastern, western):
        await (await session.producer(address)).send(b"3")


async def contents(
    cluster: Cluster, node: int, *addresses: str, each: int = 2
) -> list[list[tuple[bytes, bool]]]:
    """What is there. `each`: so many are waited for in each place."""
    found = []
    async with heliograph.connect(url(cluster, node)) as connection:
        for address in addresses:
            consumer = await connection.consumer(address)
            got: list[tuple[bytes, bool]] = []
            while (message := await consumer.receive(timeout=20 if len(got) < each else 1)) is not None:
                assert isinstance(message.body, bytes)
                got.append((message.body, message.redelivered))
            found.append(got)
    return found


COMMITTED = [[(b"2", False), (b"3", False)]] * 2


def when_it_says(cluster: Cluster, node: int, what: type, happens: Callable[[Say], bool]) -> None:
    """Before a client manager says this for the first time, something happens; False: it is not said."""
    router = cluster.nodes[node]._sub_clusters
    assert router is not None
    carry_out = router._carry_out
    pending = [True]

    def watched(effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Say) and isinstance(effect.fact, what) and pending:
                pending.clear()
                if not happens(effect):
                    router._carry_out = lambda effects: None  # type: ignore[method-assign]
                    return
            carry_out([effect])

    router._carry_out = watched  # type: ignore[method-assign]


def in_doubt(cluster: Cluster) -> int:
    leading = [cluster.nodes[cluster.leader(name)].replica for name in NAMES]
    catalogues = [replica.manager.catalogue for replica in leading if replica is not None]
    return sum(len(each.transactions.prepared) + len(each.transactions.finishing) for each in catalogues)


def test_a_transaction_over_two_sub_clusters_takes_effect_in_both_or_in_none(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            places = await one_in_each(connection, cluster)
            session = await connection.session(acknowledge="transacted")
            await exchange(session, *places)
            await session.rollback()
            await session.close()
            session = await connection.session(acknowledge="transacted")
            await exchange(session, *places)
            await session.commit()
            await until(lambda: not in_doubt(cluster), "all are through")
            await session.close()
            assert await contents(cluster, 1, *places) == COMMITTED

    spread(tmp_path, story)


@pytest.mark.parametrize("victim", NAMES)
@pytest.mark.parametrize("before", [PrepareAsked, OutcomeAsked, FinalAsked])
def test_whoever_leads_may_die_between_the_phases(before: type, victim: str, tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            places = await one_in_each(connection, cluster)
            session = await connection.session(acknowledge="transacted")
            await exchange(session, *places)
            led = cluster.leader(victim)

            def dies(_effect: Say) -> bool:
                cluster.crash(led)
                return True

            when_it_says(cluster, 1, before, dies)
            await session.commit()
            await cluster.add(led, cluster__sub_cluster=victim, **BOTH)
            await until(lambda: not in_doubt(cluster), "all are through")
            await session.close()
            assert await contents(cluster, 1, *places) == COMMITTED

    spread(tmp_path, story)


@pytest.mark.parametrize("before", [OutcomeAsked, FinalAsked])
def test_a_commit_goes_on_at_another_client_manager(before: type, tmp_path: Path) -> None:
    """The first says nothing more once all are prepared, or once it is decided; its client goes elsewhere."""

    async def story(cluster: Cluster) -> None:
        both = f"{url(cluster, 1)},{url(cluster, 2)[8:]}"
        async with heliograph.connect(both) as connection:
            places = await one_in_each(connection, cluster)
            session = await connection.session(acknowledge="transacted")
            await exchange(session, *places)

            def falls_silent(_effect: Say) -> bool:
                listening = cluster.nodes[1]._server
                assert listening is not None
                listening.close()
                _cut(connection)
                return False

            when_it_says(cluster, 1, before, falls_silent)
            await session.commit()
            await until(lambda: not in_doubt(cluster), "all are through")
            await session.close()
            assert await contents(cluster, 2, *places) == COMMITTED

    spread(tmp_path, story, clients=2)


@pytest.mark.usefixtures("doubts_are_short")
def test_what_a_client_manager_left_behind_is_ended_by_another(tmp_path: Path) -> None:
    """All are prepared; then client and client manager are no more."""

    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster, 2)) as watching:
            places = await one_in_each(watching, cluster)
            async with heliograph.connect(url(cluster, 1), reconnect_seconds=0) as leaving:
                session = await leaving.session(acknowledge="transacted")
                await exchange(session, *places)
                when_it_says(cluster, 1, OutcomeAsked, lambda _effect: False)
                committing = asyncio.create_task(session.commit())
                await until(lambda: in_doubt(cluster) == 2, "both are prepared")
                shown = await watching.ask("transactions")
                assert {entry["decider"] for entry in shown["transactions"]} == {"east"}
                await cluster.nodes.pop(1).stop()
                with pytest.raises(heliograph.HeliographError):
                    await committing
            await until(lambda: not in_doubt(cluster), "it is aborted")
            # The second, which was handed out behind what is prepared, waits for its client as long as its lease.
            assert await contents(cluster, 2, *places, each=1) == [[(b"1", True)]] * 2

    spread(tmp_path, story, clients=2)


def test_what_one_sub_cluster_cannot_do_the_other_does_not_either(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            places = await one_in_each(connection, cluster)
            session = await connection.session(acknowledge="transacted")
            await exchange(session, *places)

            def loses_count(effect: Say) -> bool:
                assert isinstance(effect.fact, PrepareAsked)
                effect.fact.messages += 1
                return True

            when_it_says(cluster, 1, PrepareAsked, loses_count)
            with pytest.raises(TransactionRolledBack):
                await session.commit()
            await session.close()
            assert not in_doubt(cluster)
            assert await contents(cluster, 1, *places) == [[(b"1", True), (b"2", False)]] * 2

    spread(tmp_path, story)
