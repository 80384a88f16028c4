"""A cluster in parts, for those who look after it (P10): what each part says of itself, and what can be ordered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.nodes.cluster_server import ClusterServer
from tests.servers import until
from tests.suites.cluster_in_process import url
from tests.suites.parted_cluster import PartedCluster, parted

pytestmark = pytest.mark.req("P10")

# Three client managers and two message managers: the first part has most of the one, and one of the other.
UNRESTRICTED, RESTRICTED = (1, 2, 11), (3, 12)


async def send(cluster: PartedCluster, at: int, *bodies: bytes) -> None:
    async with heliograph.connect(url(cluster, at)) as connection:
        producer = await connection.producer("queue:orders")
        for body in bodies:
            await producer.send_confirmed(body)


async def taken(cluster: PartedCluster, at: int, count: int) -> list[bytes]:
    """What a consumer gets there: so many, and no more that are there."""
    async with heliograph.connect(url(cluster, at)) as connection:
        consumer = await connection.consumer("queue:orders")
        found: list[bytes] = []
        while len(found) < count:
            message = await consumer.receive(timeout=30)
            assert message is not None, found
            found.append(bytes(message.body))  # type: ignore[arg-type]
        assert await consumer.receive(timeout=0.2) is None
        return found


async def cut(cluster: PartedCluster) -> None:
    cluster.cut(UNRESTRICTED, RESTRICTED)
    await cluster.until_state("B", 1, 11)
    await cluster.until_state("D", 3, 12)


def test_each_part_says_what_it_is_who_is_missing_and_what_it_holds_back(tmp_path: Path) -> None:
    async def story(cluster: PartedCluster) -> None:
        await send(cluster, 1, b"before")
        whole = await cluster.facts(1)
        view = whole["1.2"]["partitions"]["main"]
        assert (view["state"], view["in_force"], view["missing"]) == ("A", True, [])
        assert (view["leads"], view["follow"]) == ("1.11", ["1.12"])
        assert whole["1.11"]["message-manager"]["whole"]
        await cut(cluster)
        here, there = await cluster.facts(1), await cluster.facts(3)
        assert (list(here), list(there)) == (["1.1", "1.2", "1.11"], ["1.3", "1.12"])
        assert here["1.1"]["partitions"] == here["1.11"]["partitions"], "all of a part say the same"
        view, manager = there["1.3"]["partitions"]["main"], there["1.12"]["message-manager"]
        assert (view["state"], view["leads"], view["missing"]) == ("D", "1.12", ["1.11", "1.1", "1.2"])
        assert view["sentence"].startswith("D, restricted: another part may be going on")
        assert (manager["held_back"], manager["whole"]) == (1, False)
        assert "1 from before this view wait until" in manager["held_back_why"]
        view, manager = here["1.1"]["partitions"]["main"], here["1.11"]["message-manager"]
        assert (view["state"], view["in_force"], view["missing"]) == ("B", True, ["1.12", "1.3"])
        assert manager["held_back"] == 0

    parted(tmp_path, story)


def test_a_view_that_is_not_in_force_says_who_is_awaited(tmp_path: Path) -> None:
    async def story(cluster: PartedCluster) -> None:
        standing = cluster.nodes[1].own.standing
        assert standing is not None
        assert standing.awaited == ()
        cluster.nodes[11].own._look_at_standing = lambda *_: None  # type: ignore[method-assign]  # its disk hangs
        cluster.cut(UNRESTRICTED, RESTRICTED)

        def awaited() -> tuple[str, ...]:
            standing = cluster.nodes[1].own.standing
            return standing.awaited if standing is not None else ()

        await until(lambda: awaited() == ("1.11",), "it has not recorded the view")
        facts = await cluster.facts(1)
        view = facts["1.1"]["partitions"]["main"]
        assert (view["state"], view["in_force"], view["awaited"]) == ("B", False, ["1.11"])
        assert "not in force yet" in view["sentence"]
        assert await cluster.order(1, "node.remove", node="1.12") == {
            "1.1": "",
            "1.2": "",
            "1.11": "view-not-in-force",
        }

    parted(tmp_path, story)


async def event(cluster: PartedCluster, at: int, name: str) -> dict[str, Any]:
    """As those have it who watch the log of the cluster."""
    async with heliograph.connect(url(cluster, at)) as connection, asyncio.timeout(60):
        while True:
            found = (await connection.ask("log"))["events"]
            named = [event for event in found if event["event"] == name]
            if named:
                (only,) = named
                return dict(only)


def test_a_node_that_is_gone_for_good_is_removed_and_the_rest_is_whole(tmp_path: Path) -> None:
    async def story(cluster: PartedCluster) -> None:
        await cut(cluster)
        await send(cluster, 3, b"theirs")
        cluster.crash(12)
        await send(cluster, 1, b"ours")
        assert await cluster.order(1, "node.remove", node="1.1") == {
            "1.1": "",
            "1.2": "",
            "1.11": "node-not-awaited",
        }
        assert set((await cluster.order(1, "node.remove", node="1.77")).values()) == {""}
        assert await cluster.order(1, "node.remove", node="1.12") == {
            "1.1": "",
            "1.2": "",
            "1.11": "proposed",
        }
        await cluster.until_state("A", 1, 2, 11)
        view = (await cluster.facts(1))["1.1"]["partitions"]["main"]
        assert view["missing"] == ["1.3"], "a client manager that is away makes nobody wait"
        entry = await event(cluster, 1, "node-removed")
        assert (entry["which"], entry["how"], entry["node"]) == ("1.12", "proposed", "1.11")
        assert "by" in entry
        await cluster.order(1, "node.remove", node="1.3")
        await until(lambda: not missing(cluster, 1), "it is settled")
        assert await taken(cluster, 1, 1) == [b"ours"]
        # It was not gone after all: it takes over what the others have, and what it had comes with it.
        cluster.bus.heal()
        await cluster.begin(12, cluster__message_managers=2)
        await until(lambda: enrolled(cluster, 11) == ["1.11", "1.12"], "it belongs to them again")
        assert await taken(cluster, 1, 1) == [b"theirs"]

    parted(tmp_path, story)


def missing(cluster: PartedCluster, at: int) -> tuple[str, ...]:
    standing = cluster.nodes[at].own.standing
    return standing.missing if standing is not None else ("?",)


def enrolled(cluster: PartedCluster, at: int) -> list[str]:
    standing = cluster.nodes[at].own.standing
    enrolment = standing.enrolment if standing is not None else None
    return [name for name, _ in enrolment.message_managers] if enrolment is not None else []


def test_a_second_removal_waits_for_the_first(tmp_path: Path) -> None:
    async def story(cluster: PartedCluster) -> None:
        cluster.cut((1, 2, 3, 11), (12,), (13,))
        await cluster.until_state("B", 1, 11)
        station = cluster.nodes[11].own
        station._enrolled = lambda *_: None  # type: ignore[method-assign]  # it hears nothing of it for now
        assert (await cluster.order(1, "node.remove", node="1.12"))["1.11"] == "proposed"
        assert (await cluster.order(1, "node.remove", node="1.13"))["1.11"] == "enrolment-unsettled"

    parted(tmp_path, story, message_managers=3)


def test_a_restricted_part_goes_on_without_the_others_when_it_is_told_that_they_are_gone(
    tmp_path: Path,
) -> None:
    async def story(cluster: PartedCluster) -> None:
        await send(cluster, 1, b"before")
        await cut(cluster)
        await send(cluster, 3, b"since")
        cluster.crash(11)
        assert await cluster.order(3, "node.remove", node="1.11") == {"1.3": "", "1.12": "decreed"}
        await cluster.until_state("A", 3, 12)
        assert await taken(cluster, 3, 2) == [b"before", b"since"]
        entry = await event(cluster, 3, "node-removed")
        assert (entry["which"], entry["how"]) == ("1.11", "decreed")

    parted(tmp_path, story)


def test_a_restricted_part_is_made_unrestricted_by_an_override(tmp_path: Path) -> None:
    async def story(cluster: PartedCluster) -> None:
        await send(cluster, 1, b"before")
        await cut(cluster)
        assert await cluster.order(1, "partition.override") == {
            "1.1": "",
            "1.2": "",
            "1.11": "not-restricted",
        }
        for number in UNRESTRICTED:  # they are gone for good
            if number == 11:
                cluster.crash(number)
            else:
                await cluster.nodes.pop(number).stop()
        assert await cluster.order(3, "partition.override") == {"1.3": "", "1.12": "overridden"}
        await cluster.until_state("B", 3, 12)
        assert await taken(cluster, 3, 1) == [b"before"]
        entry = await event(cluster, 3, "partition-overridden")
        assert (entry["node"], entry["missing"]) == ("1.12", "1.11, 1.1, 1.2")
        assert (await cluster.order(3, "node.remove", node="1.11"))["1.12"] == "proposed"
        await cluster.until_state("A", 3, 12)

    parted(tmp_path, story)


def test_an_override_holds_over_a_restart(tmp_path: Path) -> None:
    async def story(cluster: PartedCluster) -> None:
        await cut(cluster)
        cluster.crash(11)
        await cluster.order(3, "partition.override")
        await cluster.until_state("B", 3, 12)
        cluster.crash(12)
        await cluster.begin(12, cluster__message_managers=2)
        await cluster.until_state("B", 3, 12)

    parted(tmp_path, story)


def test_a_manager_that_starts_while_others_are_missing_leads_restricted_after_a_while(
    tmp_path: Path,
) -> None:
    async def story(cluster: PartedCluster) -> None:
        await send(cluster, 1, b"before")
        cluster.crash(12)
        await cluster.until_state("B", 1, 11)
        cluster.crash(11)
        waiting = await cluster.begin(12, cluster__message_managers=2)
        await until(lambda: "message manager 1.11" in waiting.lacks, "it says for whom it waits")
        view = (await cluster.facts(1))["1.12"]["partitions"]["main"]
        assert (view["state"], view["leads"], view["catch_up"]) == ("D", "", ["1.12"])
        time_passes(waiting)
        await cluster.until_state("D", 1, 12)
        await send(cluster, 1, b"since")
        assert await taken(cluster, 1, 1) == [b"since"]
        await cluster.begin(11, cluster__message_managers=2)
        await cluster.until_state("A", 1, 11, 12)
        assert await taken(cluster, 1, 1) == [b"before"]

    parted(tmp_path, story)


def time_passes(server: ClusterServer) -> None:
    """It has waited for the others as long as it does."""
    assert server.replica is not None
    grace = server.replica._grace
    assert grace is not None
    grace.cancel()
    server.replica._waited_enough()
