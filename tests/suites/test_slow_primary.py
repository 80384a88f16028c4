"""A primary that is behind what its backup has heard introduces it, and ends: whoever leads next knows which client
manager was to hand out what most have not seen (P5, M8)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import patch

import pytest

import heliograph
from heliograph.bus.commands import Command, ConsumerAttached, Logged, SessionResumed
from heliograph.bus.interface import Origin
from simulation.cluster_plants import UNSEEN_PLANTS
from simulation.plants import planted
from tests.servers import until
from tests.suites.cluster_in_process import url
from tests.suites.test_dispatch_majority import SlowCluster, told, where
from tests.suites.test_moving_sessions import send, shown, taken

pytestmark = pytest.mark.req("P5", "M8", "M9")

PRIMARY, BACKUP = 4, 5


async def move_past_the_primary(cluster: SlowCluster, here: int) -> None:
    """The clients of a client manager go elsewhere, and the backup hears of it. Before the primary does, it
    introduces the backup, as it does whenever another has caught up."""
    primary, backup = cluster.nodes[PRIMARY].replica, cluster.nodes[BACKUP].replica
    assert primary is not None
    assert primary.leading is not None
    assert backup is not None
    following, clients = backup._following, cluster.nodes[here].clients
    assert following is not None
    assert clients is not None
    late: list[tuple[Origin, list[Command]]] = []

    def is_under_way() -> bool:
        return any(isinstance(fact, SessionResumed) for _, _, fact in following._facts)

    def is_introduced() -> bool:
        said = [command for _, commands in late for command in commands]
        return any(isinstance(command, Logged) and command.introduction for command in said)

    with patch.object(primary, "on_apply", lambda origin, commands: late.append((origin, commands))):
        going = asyncio.create_task(clients.drain(10))
        await until(is_under_way, "the backup has heard where the session went")
        primary.leading.introduces_all()
        await until(is_introduced, "the primary has introduced it")
        assert is_under_way(), "and had not heard it"
    for origin, commands in late:
        primary.on_apply(origin, commands)
    assert await going


def what_comes(base: Path, *, has_it: bool) -> list[tuple[bytes, bool]]:
    """Three messages, and whether each was marked. `has_it`: whether the client had the second one when the primary
    ended. Of the other client managers, only the one that its session had left had seen that then; else none had."""
    came: list[tuple[bytes, bool]] = []

    async def story(cluster: SlowCluster) -> None:
        both = f"{url(cluster)},{url(cluster, 2).removeprefix('helio://')}"
        async with heliograph.connect(both) as connection:
            consumer = await (await connection.session(acknowledge="client")).consumer("queue:orders")
            here = await where(cluster, connection)
            there = 3 - here
            await move_past_the_primary(cluster, here)
            await send(url(cluster, 3), "queue:orders", b"1")
            came.extend(shown(await taken(consumer, 1)))
            known = cluster.nodes[BACKUP].own._seen
            await until(lambda: not known.handed_out._unseen, "most have said that they have seen it")
            cluster.slow(3, there if has_it else here)
            await send(url(cluster, 3), "queue:orders", b"2")
            if has_it:
                came.extend(shown(await taken(consumer, 1)))
            else:
                await cluster.holds(there, 1)
                seen = cluster.nodes[there].own._seen
                await until(lambda: not seen.handed_out.has_word, "it has said that it has seen it")
            cluster.crash(PRIMARY)
            backup = cluster.nodes[BACKUP].replica
            assert backup is not None
            await until(lambda: backup.is_leading, "the backup leads")
            cluster.quick(1, 2, 3)
            await send(url(cluster, 3), "queue:orders", b"3")
            while came[-1][0] != b"3":
                came.extend(shown(await taken(consumer, 1)))

    told(base, story, managers=2)
    return came


@pytest.mark.parametrize("has_it", [True, False])
def test_whoever_a_slow_primary_introduced_knows_what_clients_have_whose_sessions_moved(
    tmp_path: Path, has_it: bool
) -> None:
    assert what_comes(tmp_path, has_it=has_it) == [(b"1", False), (b"2", False), (b"3", False)]


@pytest.mark.parametrize(("has_it", "bodies"), [(True, [b"1", b"2", b"2", b"3"]), (False, [b"1", b"3"])])
def test_an_introduction_that_takes_sessions_back_shows(
    tmp_path: Path, has_it: bool, bodies: list[bytes]
) -> None:
    """What the client has is handed out again, and nothing says so; or what it has not is never handed out."""
    with planted(UNSEEN_PLANTS["an introduction takes sessions back"]):
        assert what_comes(tmp_path, has_it=has_it) == [(body, False) for body in bodies]


async def claim_past_the_primary(cluster: SlowCluster) -> None:
    """A client loses its connection and comes again. The primary resumes its session, and hears nothing more; the
    backup hears the client claim its consumer."""
    primary, backup = cluster.nodes[PRIMARY].replica, cluster.nodes[BACKUP].replica
    assert primary is not None
    assert backup is not None
    following, clients = backup._following, cluster.nodes[1].clients
    assert following is not None
    assert clients is not None
    apply, is_stuck = primary.on_apply, False

    def stuck_by_a_claim(origin: Origin, commands: list[Command]) -> None:
        nonlocal is_stuck
        is_stuck = is_stuck or any(isinstance(each, ConsumerAttached) for each in commands)
        if not is_stuck:
            apply(origin, commands)

    primary.on_apply = stuck_by_a_claim  # type: ignore[method-assign]
    for each in list(clients.connections):
        assert each._transport is not None
        each._transport.abort()
    await until(
        lambda: any(isinstance(fact, ConsumerAttached) and fact.claim for _, _, fact in following._facts),
        "the backup has heard the claim",
    )
    assert is_stuck


def what_comes_behind_a_claim(base: Path) -> list[tuple[bytes, bool]]:
    """The primary ends before it has heard a claim. Whoever leads then carries it out, hands out a message, and is
    asked again by a client manager that has no answer yet. Before another one has seen the message, the view ends."""
    came: list[tuple[bytes, bool]] = []

    async def story(cluster: SlowCluster) -> None:
        async with (
            heliograph.connect(url(cluster)) as connection,
            heliograph.connect(url(cluster, 2)) as other,
        ):
            consumer = await (await connection.session(acknowledge="client")).consumer("queue:orders")
            producer = await other.producer("queue:orders")
            await claim_past_the_primary(cluster)
            await producer.send(b"1", persistent=False)
            cluster.slow(2, 3)
            asking = cluster.nodes[1].own.clients
            assert asking is not None
            with patch.object(asking, "go_on", lambda: None):  # its bus takes nothing for a while
                cluster.crash(PRIMARY)
                await cluster.holds(1, 1)
            asking.go_on()
            await send(url(cluster), "queue:others", b"all that was asked again is heard")
            await cluster.remove(3)
            cluster.quick(2)
            await producer.send(b"2")
            while not came or came[-1][0] != b"2":
                came.extend(shown(await taken(consumer, 1)))

    told(base, story, managers=3)  # before it answers, whoever leads waits for the disk of another
    return came


def test_what_is_handed_out_behind_a_claim_that_another_carried_out_is_not_lost(tmp_path: Path) -> None:
    assert what_comes_behind_a_claim(tmp_path) == [(b"1", False), (b"2", False)]


def test_a_claim_that_settles_what_came_behind_it_shows(tmp_path: Path) -> None:
    """Asked again, it is taken for the first: what the client manager drops when the view ends goes to nobody."""
    with planted(UNSEEN_PLANTS["a claim that is asked again settles what came since"]):
        assert what_comes_behind_a_claim(tmp_path) == [(b"2", False)]
